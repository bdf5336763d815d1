FROM clock LEFT JOIN counters AS asked ON true
