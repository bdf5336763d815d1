-- Decides on questions, one after the other, and charges what is admitted. Follows changes.lua.
--
-- KEYS     the hashes of shards, in a cluster of one; all other keys are derived from them. The node
--          that has them need not have all: if it is giving them away, what is gone is an error when
--          it is used, and nothing is written before all that is to be written was read, but for the
--          stream, which is the first. One that is given them cannot tell what is still to come from
--          what there is not, and is not asked.
-- ARGV     node, epoch for shards that have none, tag of its first position; the questions: for each
--          its form, then for each of its counters the number of the key in its place, all in two
--          bytes. For each shard: how many places it has, and for each place the size of its
--          windows, the number of its keys, and the keys. For each form: 1 if rejected hits are
--          counted, or 0; the number of its counters, and for each its place and its cost; the
--          number of its limits, and for each its counter, 1 if the previous window weighs, or 0,
--          its hits, and the cost that is to be admitted.
--
-- A place is for counters of one shard with windows of one size. A form is what questions may have
-- in common: all but keys. Whatever has a number is numbered from 1. Hits are thousandths.
--
-- Answers TIME; for each place the counts of its keys in the present window, as they were, and in
-- the one before; and which limits refused, numbered through all questions.

local call = redis.call
local node, proposed, tag, questions, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], 5
-- For how long counts are kept after they ceased to matter, since clocks differ: milliseconds.
local CLOCKS = 60000
-- How many bytes are added to the stream until things are done that need not be done each time.
local SELDOM = 65536
-- Whole numbers below this are exact.
local EXACT = 9007199254740992

-- The next argument.
local function number()
  at = at + 1
  return tonumber(ARGV[at - 1])
end

-- Does what open_epoch.lua does where there is no epoch, with a write first that needs memory.
local function open(shard)
  local stream, first = shard .. ':' .. proposed .. ':s', '1-' .. tag
  call('XADD', stream, first, 'node', '', 'count', 0, 'changes', cmsgpack.pack({}))
  call('DEL', shard)
  call('HSET', shard, 'epoch', proposed, 'position', first)
  call('PEXPIRE', stream, LIFE)
  call('PEXPIRE', shard, LIFE)
  return {proposed, first}
end

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answer, written = {time[1], time[2]}, false

local shards, places = {}, {}
for i, key in ipairs(KEYS) do
  local state = call('HMGET', key, 'epoch', 'position')
  if not state[1] then
    state, written = open(key), true
  end
  local base, first = key .. ':' .. state[1] .. ':', #places + 1
  for j = first, #places + number() do
    local size, keys = number(), number()
    local window, elapsed, last = math.floor(now / size), now % size, at + keys - 1
    local name = string.format('%.0f:%.0f', size, window)
    local before = string.format('%.0f:%.0f', size, window - 1)
    local current = call('HMGET', base .. name, unpack(ARGV, at, last))
    local previous = call('HMGET', base .. before, unpack(ARGV, at, last))
    places[j] = {
      size = size, left = size - elapsed, name = name, keys = keys, offset = at - 1,
      -- By the numbers of keys. `charged` is what questions so far were charged.
      current = current, previous = previous, charged = {},
    }
    at = last + 1
    answer[#answer + 1] = current
    answer[#answer + 1] = previous
  end
  shards[i] = {key = key, base = base, position = state[2], first = first, last = #places}
end

-- Sets what a limit needs to be asked: it refuses if `previous * weight` is more than
-- `(room - current) * size - strictly`, which are whole numbers.
local function set_limit(limit, place)
  local weighs, hits, cost = number() == 1, number(), number()
  limit.room = hits - cost
  -- A cost of zero asks for a rate below the limit.
  limit.strictly = cost == 0 and 1 or 0
  limit.weight = weighs and place.left or 0
  limit.size = weighs and place.size or 1
end

local forms = {}
while ARGV[at] do
  local form = {counts_rejected = number() == 1}
  forms[#forms + 1] = form
  local counters = number()
  if counters == 1 and ARGV[at + 2] == '1' then
    -- Most have one counter and one limit: this one is both.
    local place = places[number()]
    form.current, form.previous, form.charged = place.current, place.previous, place.charged
    form.cost, at = number(), at + 2
    set_limit(form, place)
  else
    form.counters, form.limits = {}, {}
    for i = 1, counters do
      local place = places[number()]
      form.counters[i] = {place = place, cost = number()}
    end
    for i = 1, number() do
      local counter = form.counters[number()]
      form.limits[i] = {counter = counter}
      set_limit(form.limits[i], counter.place)
    end
  end
end

local refused, limits, byte, next = {}, 0, string.byte, 1
while next < #questions do
  local high, low, key_high, key_low = byte(questions, next, next + 3)
  local form = forms[high * 256 + low]
  if form.charged then
    next, limits = next + 4, limits + 1
    local key, charged = key_high * 256 + key_low, form.charged
    local charge = charged[key] or 0
    local current, previous = (form.current[key] or 0) + charge, form.previous[key] or 0
    local refuses = previous * form.weight > (form.room - current) * form.size - form.strictly
    if refuses then
      refused[#refused + 1] = limits
    end
    if form.counts_rejected or not refuses then
      charged[key] = charge + form.cost
    end
  else
    next = next + 2
    for _, counter in ipairs(form.counters) do
      high, low = byte(questions, next, next + 1)
      counter.key, next = high * 256 + low, next + 2
    end
    local before = #refused
    for _, limit in ipairs(form.limits) do
      limits = limits + 1
      local place, key = limit.counter.place, limit.counter.key
      local current = (place.current[key] or 0) + (place.charged[key] or 0)
      local previous = place.previous[key] or 0
      if previous * limit.weight > (limit.room - current) * limit.size - limit.strictly then
        refused[#refused + 1] = limits
      end
    end
    if form.counts_rejected or #refused == before then
      for _, counter in ipairs(form.counters) do
        local charged, key = counter.place.charged, counter.key
        charged[key] = (charged[key] or 0) + counter.cost
      end
    end
  end
end
answer[#answer + 1] = refused

-- Lists which keys of a place were charged, their new counts as HSET is given them, and keys and
-- charges where sums are not exact. The server adds these.
local function charges(place)
  local keys, sets, adds = {}, {}, {}
  for i = 1, place.keys do
    local charge = place.charged[i]
    if charge and charge ~= 0 then
      local key, total = ARGV[place.offset + i], (place.current[i] or 0) + charge
      keys[#keys + 1] = key
      local list = sets
      if total >= EXACT or total <= -EXACT then
        list, total = adds, string.format('%.0f', charge)
      end
      list[#list + 1] = key
      list[#list + 1] = total
    end
  end
  return keys, sets, adds
end

-- Has a shard live for at least so long, and if not, then for as long as after any change.
local function keep(shard, life)
  if call('PTTL', shard.key) < life then
    extend(shard.base .. 's', math.max(life, LIFE))
    extend(shard.key, math.max(life, LIFE))
  end
end

-- Does what push.lua does with a batch. Each of `charged` is a place with its sets and adds.
local function apply(shard, charged, last)
  local stream, life = shard.base .. 's', LIFE / 2
  -- Whether it is time for what need not be done each time.
  local seldom = math.floor(shard.after / SELDOM) ~= math.floor(shard.before / SELDOM)
  call('HSET', shard.key, 'position', last)
  for _, of in ipairs(charged) do
    local place, sets, adds = of[1], of[2], of[3]
    local counts, left = shard.base .. place.name, place.left + place.size + CLOCKS
    local known = #sets / 2
    if #sets > 0 then
      known = known - call('HSET', counts, unpack(sets))
    end
    for i = 1, #adds, 2 do
      call('HINCRBY', counts, adds[i], adds[i + 1])
    end
    if seldom or known == 0 then
      -- The hash may be new, or may have become a list when the server was restarted.
      use_table(counts)
      call('HDEL', counts, '')
      extend(counts, left)
    end
    life = math.max(life, left + MARGIN)
  end
  if seldom then
    trim(stream, last)
  end
  keep(shard, life)
end

for _, shard in ipairs(shards) do
  local changes, charged, count = {}, {}, 0
  for j = shard.first, shard.last do
    local place = places[j]
    local keys, sets, adds = charges(place)
    if #keys > 0 then
      charged[#charged + 1] = {place, sets, adds}
      changes[#changes + 1] = place.name
      changes[#changes + 1] = keys
      count = count + #keys
    end
  end
  if count > 0 then
    local packed = cmsgpack.pack(changes)
    shard.before = sequence(shard.position)
    shard.after = shard.before + #packed + OVERHEAD
    -- The tag is the time: another server gives an entry this sequence at another microsecond.
    local last = string.format('%.0f-%s%06d', shard.after, time[1], time[2])
    -- The first write, as one that needs memory, and of the only key that was not read: if it is
    -- refused, nothing was done yet.
    call('XADD', shard.base .. 's', last, 'node', node, 'count', count, 'changes', packed)
    written = true
    local done, failure = pcall(apply, shard, charged, last)
    if not done then
      -- Half of it cannot be taken back, so the epoch is given up, as in push.lua. With its code, the
      -- error would say that nothing was done.
      call('DEL', shard.key)
      error('midway: ' .. string.gsub(failure.err or failure, '%-', ''), 0)
    end
  else
    keep(shard, LIFE / 2)
  end
end
if not written and KEYS[1] then
  -- Does nothing, but a replica refuses it: what is read from one may be old.
  call('HDEL', KEYS[1], '')
end
return answer
