-- Elastic windows. Follows windows.lua.
--
-- An elastic window is a level in a hash of the window in which it changed last. So it is in the
-- hash of the current or the previous window, or has ended.
--
-- Answers the previous hits of keys, the time of their last change, and their beginning.

local function elastic()
  local kind = {write = set_counts}

  function kind.read(place, base, first, last)
    local before = 'e' .. place.before
    place.name = 'e' .. place.name
    local texts = checked('HMGET', base .. place.name, unpack(ARGV, first, last))
    before = checked('HMGET', base .. before, unpack(ARGV, first, last))
    local hits, times, firsts = room(#texts), room(#texts), room(#texts)
    for i = 1, #texts do
      -- An invalid level counts as none.
      local level = {string.match(texts[i] or before[i] or '', '^(%d+) (%d+) (%d+)$')}
      if #level < 3 or #level[1] > 16 or #level[2] > 15 or #level[3] > 15 then
        level = {'0', '0', '0'}
      end
      hits[i], times[i], firsts[i] = level[1], level[2], level[3]
    end
    for _, texts in ipairs({hits, times, firsts}) do
      answer[#answer + 1] = table.concat(texts, ' ')
    end
    place.current, place.times, place.firsts, place.hit = hits, times, firsts, room(#texts)
    for key = 1, #hits do
      if now - times[key] >= place.size then
        hits[key], firsts[key] = 0, seconds * 1000
      end
    end
  end

  function kind.charge(place, key, cost, is_charged)
    local current, charged = place.current, place.charged
    if cost > 0 then
      place.hit[key] = true
    end
    if is_charged then
      current[key], charged[key] = math.max(current[key] + cost, 0), (charged[key] or 0) + cost
    end
  end

  function kind.prepare(place)
    local sets = {}
    for i = 1, #place.current do
      local charge = place.charged[i]
      if place.hit[i] or charge and charge ~= 0 then
        local time, hits = place.times[i] + 0, place.current[i] + 0
        if place.hit[i] and (time < now or time > now + CLOCK_SKEW) then
          time = now
        end
        sets[#sets + 1] = ARGV[place.offset + i]
        sets[#sets + 1] = format('%.0f %.0f %.0f', math.min(hits, MOST), time, place.firsts[i])
      end
    end
    place.sets = sets[1] and sets
    return place.sets ~= nil
  end

  return kind
end

