-- Counts in windows, which are in a hash for each window: nearly all counters, so there are no functions for
-- them. Follows arguments.lua.
--
-- Answers the counts of keys in the present window, as they were, and in the one before.

-- The counts of keys, as texts, and all of them in one text. A count below zero is no room: it is zero in the list, and
-- the third result has it, by its number.
local function read_counts(counts, first, last)
  local below = {}
  local texts = checked('HMGET', counts, unpack(ARGV, first, last))
  for i = 1, #texts do
    if not texts[i] then
      texts[i] = '0'
    end
  end
  local all = table.concat(texts, ' ')
  -- All digits, and none without any: or else some may be no counts.
  if not string.find(table.concat(texts), '^%d*$') or string.find(' ' .. all .. ' ', '  ', 1, true) then
    for i = 1, #texts do
      texts[i] = counted(texts[i])
    end
    all = table.concat(texts, ' ')
    for i = 1, #texts do
      if texts[i] + 0 < 0 then
        below[i], texts[i] = texts[i] + 0, '0'
      end
    end
  end
  return texts, all, below
end

-- Writes what a place has for the hash of the present window. Returns for how long that is kept.
local function set_counts(place, base, seldom)
  local sets, counts, left = place.sets, base .. place.name, place.left + place.size + MARGIN
  local known = #sets / 2 - call('HSET', counts, unpack(sets))
  if seldom or known == 0 then
    -- The hash may be new, or may have become a list when the server was restarted.
    use_table(counts)
    call('HDEL', counts, '')
    extend(counts, left)
  end
  return left
end

