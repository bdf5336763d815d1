-- Reads nothing from a hash of counts, which fails if it has another type.
--
-- KEYS[1]  the hash of counts; see changes.lua
--
-- Follows changes.lua.
return checked('HGET', KEYS[1], '')
