-- Buckets. Follows windows.lua.
--
-- A bucket is a string: its hits, and the time of their last change. Its key contains the rate and
-- the key, and expires a minute after the bucket is empty.
--
-- Answers the previous hits of keys, and the time of their last change.

local function buckets()
  local kind = {}
  -- Most hits of a bucket; the bound below which products are exact; and the longest life of a
  -- bucket, which may never be empty: a hundred years in milliseconds.
  local FULL, EXACT, LONGEST = 140737488355327, 9007199254740992, 3162240000000

  -- Returns the leak in `age` milliseconds, rounded down, if `leaked` leak in `millis`; if it is
  -- more than `most`, any number above that.
  local function leak(leaked, millis, age, most)
    local product = leaked * age
    if product < EXACT then
      return (product - math.fmod(product, millis)) / millis
    end
    -- Adds the remainder of the quotient's integer part, bit by bit of `age`.
    local rest_of_one = math.fmod(leaked, millis)
    local of_one = (leaked - rest_of_one) / millis
    local whole, rest, bit = 0, 0, 1
    while bit * 2 <= age do
      bit = bit * 2
    end
    while bit >= 1 and whole <= most do
      whole, rest = whole * 2, rest * 2
      if age >= bit then
        age, whole, rest = age - bit, whole + of_one, rest + rest_of_one
      end
      local left = math.fmod(rest, millis)
      whole, rest, bit = whole + (rest - left) / millis, left, bit / 2
    end
    return whole
  end

  function kind.read(place, base, first, last)
    local names, prefix = room(last - first + 1), base .. format('r%.17g:', place.size)
    for i = first, last do
      names[i - first + 1] = prefix .. ARGV[i]
    end
    -- A key of another type counts as empty, and is replaced.
    local texts = call('MGET', unpack(names))
    local hits, times = room(#texts), room(#texts)
    for i = 1, #texts do
      local held, time = string.match(texts[i] or '', '^(%d+) (%d+)$')
      if not held or #held > 15 or #time > 15 then
        held, time = '0', '0'
      end
      hits[i], times[i] = held, time
    end
    answer[#answer + 1], answer[#answer + 2] = table.concat(hits, ' '), table.concat(times, ' ')
    place.names, place.current, place.times, place.lives = names, hits, times, room(#texts)
  end

  function kind.rate(place, key, leaked, millis)
    local hits, age = place.current[key] + 0, now - place.times[key]
    if hits == 0 or age <= 0 then
      return hits
    end
    return math.max(hits - leak(leaked, millis, age, hits), 0)
  end

  function kind.charge(place, key, cost, is_charged, leaked, millis, most)
    local hits, time = place.current[key] + 0, place.times[key] + 0
    -- A refused question changes nothing, unless the clock was set back: then the bucket leaks from
    -- now on.
    local is_set_back = cost > 0 and time > now + CLOCK_SKEW
    if not is_set_back and (cost == 0 or not is_charged) then
      return
    end
    if cost > 0 then
      hits = kind.rate(place, key, leaked, millis)
      time = is_set_back and now or math.max(time, now)
    end
    if is_charged then
      hits = math.min(math.max(hits + cost, 0), most and math.max(most, hits) or FULL)
    end
    place.current[key], place.times[key] = hits, time
    place.lives[key] = leaked > 0 and math.ceil(hits * millis / leaked) or LONGEST
  end

  function kind.prepare(place)
    return next(place.lives) ~= nil
  end

  function kind.write(place, base)
    local longest = 0
    for key, life in pairs(place.lives) do
      local value = format('%.0f %.0f', place.current[key], place.times[key])
      life = math.min(life + MARGIN, LONGEST)
      call('SET', place.names[key], value, 'PX', format('%.0f', life))
      longest = math.max(longest, life)
    end
    return longest
  end

  return kind
end

