-- Reads the state of all counters, and decides. Follows the files of the kinds.

-- Rare kinds, by their numbers: the creator of their functions, and later the functions.
local kinds = {[1] = elastic, [2] = logs, [4] = buckets}

local shards, places, histories = {}, {}, {}
for i, key in ipairs(KEYS) do
  local state, refusal = read_shard(key, 'seen')
  if refusal then
    return refusal
  end
  if not state[1] then
    state, written = open_epoch(key, proposed, tag), true
  end
  local base, first, follows = key .. ':' .. state[1] .. ':', #places + 1, ARGV[at]
  at = at + 1
  local of = doubles()
  for j = 1, #of, 3 do
    local kind, size, keys = of[j], of[j + 1], of[j + 2]
    local window, left, last = math.floor(now / size), size - now % size, at + keys - 1
    local calendar = calendars and calendars[size]
    if calendar then
      window, left = calendar.number, calendar.left
    end
    local name, before = window_name(size, window), window_name(size, window - 1)
    -- By the numbers of keys. `current` includes the charges of earlier questions. The previous
    -- window of a calendar has no weight, so only the time for which counts are kept needs its size.
    local place = {
      size = calendar and calendar.next or size, left = left, name = name, before = before, offset = at - 1, charged = room(keys),
    }
    if kind == 0 then
      place.current, answer[#answer + 1], place.below = read_counts(base .. name, at, last)
      place.previous, answer[#answer + 1] = read_counts(base .. before, at, last)
    else
      if type(kinds[kind]) == 'function' then
        kinds[kind] = kinds[kind]()
      end
      place.kind = kinds[kind]
      place.kind.read(place, base, at, last)
    end
    places[#places + 1] = place
    at = last + 1
  end
  shards[i] = {key = key, base = base, position = state[2], first = first, last = #places}
  if follows ~= '' then
    histories[#histories + 1] = {i, has_change(base .. 's', follows) and 1 or 0}
  end
end

-- The count of a key in a window, which may be negative.
local function count_of(place, key)
  local count = place.current[key]
  -- A text until something is charged.
  return count + (type(count) == 'string' and place.below[key] or 0)
end

local forms, refused, obstacles, asked, next = {}, {}, {}, 0, 1
while ARGV[at] do
  forms[#forms + 1] = doubles()
end
while next < #questions do
  local number, count = struct.unpack('>HH', questions, next)
  local form = forms[number]
  local counts_rejected, counters = form[1] == 1, form[2]
  -- The limits follow the counters.
  local limits = 3 + 2 * counters
  local keys = list('H', count * counters, questions, next + 4)
  next = next + 4 + 2 * count * counters
  -- A limit refuses if `previous * weight` is more than `(hits - to_admit - current) * size`, in
  -- integers; or equal, if the cost is zero, which requires a rate below the limit.
  if counters == 1 and form[limits] == 1 and form[limits + 3] >= 0 and form[4] >= 0 and not places[form[3]].kind then
    -- The most frequent case: neither a repair nor a refund.
    local place, cost, algorithm, hits, to_admit = places[form[3]], form[4], form[7], form[8], form[9]
    local current, previous, charged = place.current, place.previous, place.charged
    local weight, size, strictly = 0, 1, to_admit == 0 and 1 or 0
    if algorithm == SLIDING then
      weight, size = place.left, place.size
    end
    hits = hits - to_admit
    for i = 1, count do
      local key = keys[i]
      -- A text until something is charged.
      local counted = current[key] + 0
      -- A text that somebody else wrote may be infinite, so it is not multiplied by a weight of
      -- zero.
      local weighed = weight > 0 and previous[key] * weight or 0
      local refuses = weighed > (hits - counted) * size - strictly
      if refuses then
        refused[#refused + 1] = asked + i
      end
      if counts_rejected or not refuses then
        current[key], charged[key] = counted + cost, (charged[key] or 0) + cost
      end
    end
    asked = asked + count
  else
    -- The leaks of buckets follow the limits.
    local leaks = limits + 4 * form[limits] - 1
    local logged, fills, repairs = {}, {}, false
    for limit = limits + 1, counts_rejected and limits + 4 * form[limits] or 0, 4 do
      local counter = form[limit]
      fills[counter] = fills[counter] or form[limit + 2]
    end
    for counter = 1, counters do
      local kind = places[form[1 + 2 * counter]].kind
      if kind and kind.limits then
        logged[#logged + 1] = kind.limits(form, limits, counter)
      end
    end
    for i = 0, count - 1 do
      local before = #refused
      for limit = limits + 1, limits + 4 * form[limits], 4 do
        local counter, algorithm, hits, to_admit = unpack(form, limit, limit + 3)
        local place, key = places[form[1 + 2 * counter]], keys[i * counters + counter]
        local kind, free, weighed = place.kind, hits - to_admit, 0
        if hits < 0 then
          -- A repair charges only up to the present count.
          repairs, free, to_admit = true, hits - count_of(place, key), 1
        elseif kind and kind.rate then
          local leak = leaks + 2 * counter
          free = free - kind.rate(place, key, form[leak], form[leak + 1])
        else
          free = free - place.current[key]
        end
        if algorithm == SLIDING then
          free, weighed = free * place.size, place.previous[key] * place.left
        end
        asked = asked + 1
        if weighed > free - (to_admit == 0 and 1 or 0) then
          refused[#refused + 1] = asked
        end
      end
      local is_charged = counts_rejected or #refused == before
      for counter = 1, counters do
        local place, cost = places[form[1 + 2 * counter]], form[2 + 2 * counter]
        local kind, key = place.kind, keys[i * counters + counter]
        if kind then
          local leak = leaks + 2 * counter
          kind.charge(place, key, cost, is_charged, form[leak], form[leak + 1], fills[counter])
        elseif is_charged then
          local current, charged = place.current, place.charged
          local count = repairs and count_of(place, key) or current[key] + 0
          -- A refund makes no count negative.
          local charge = repairs and cost or math.max(cost, -count)
          current[key], charged[key] = count + charge, (charged[key] or 0) + charge
        end
      end
      for _, of in ipairs(logged) do
        local place, key = places[form[1 + 2 * of.counter]], keys[i * counters + of.counter]
        obstacles[#obstacles + 1] = place.kind.obstacle(place, key, of)
      end
    end
  end
end
answer[#answer + 1], answer[#answer + 2], answer[#answer + 3] = refused, obstacles, histories

