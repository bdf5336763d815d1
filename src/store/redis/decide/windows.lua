-- Counts in windows, with a hash for each window. These are nearly all counters, so they have no
-- functions. Follows arguments.lua.
--
-- Answers the previous counts of keys in the current window, and in the window before.

-- Returns the counts of keys, as texts, and all of them in one text. A negative count is zero in
-- the list, since it is no additional room, and is in the third result under its number.
local function read_counts(counts, first, last)
  local below = {}
  local texts = checked('HMGET', counts, unpack(ARGV, first, last))
  for i = 1, #texts do
    if not texts[i] then
      texts[i] = '0'
    end
  end
  local all = table.concat(texts, ' ')
  -- Only digits, and at least one; otherwise some may be invalid.
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

-- Writes a place's counts to the hash of the current window. Returns the time for which it is kept.
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

