-- Decides on questions, one after the other, and charges what is admitted. Follows changes.lua.
--
-- KEYS     the hashes of shards, in a cluster of one; all other keys are derived from them. The node
--          that has them need not have all: if it is giving them away, what is gone is an error when
--          it is used, and nothing is written before all that is to be written was read, but for the
--          stream, which is the first. One that is given them cannot tell what is still to come from
--          what there is not, and is not asked.
-- ARGV     node, epoch for shards that have none, tag of its first position; the questions: runs of
--          those of one form, each with the number of the form, how many questions, and for each of
--          their counters the number of the key in its place, all in two bytes. For each shard: the
--          numbers of its places, which are for each its kind, the size of its windows and how many
--          keys it has; and the keys. For each form its numbers: 1 if rejected hits are counted, or 0; how
--          many counters, and for each its place and its cost; how many limits, and for each its
--          counter, the number of its algorithm, its hits, and the cost that is to be admitted.
--          These numbers are doubles.
--
-- A place is for counters of one shard and kind with windows of one size. A form is what questions may have
-- in common: all but keys. Whatever has a number is numbered from 1. Hits are thousandths.
--
-- Answers TIME; for each place the counts of its keys in the present window, as they were, and in
-- the one before; of levels their hits, as they were, when these changed last, and when they began;
-- and which limits refused, numbered through all questions.
--
-- A level is kept in a hash of the window in which it changed last: so it is in that of the present
-- window, or in the one before, or has ended.
--
-- Lua takes long here: 40 to 200 instructions for a step, and 400 more to call a function. So lists are
-- read and answered as one text, each; a table has room from the beginning for what it will hold; and
-- what most questions are is decided in a loop of its own.

local call, format, ARGV = redis.call, string.format, ARGV
local node, proposed, tag, questions, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], 5
-- The number of the algorithm by which the window before weighs; by the other one, it does not.
local SLIDING = 1
-- The number of the kind of counters that are elastic windows, which are levels.
local ELASTIC = 1
-- How many bytes are added to the stream until things are done that need not be done each time.
local SELDOM = 65536
-- Whole numbers below this are formatted the quick way, wherever the server runs.
local SMALL = 2147483648

-- So many numbers of a text, as a list.
local function list(kind, count, text, first)
  local numbers = {struct.unpack('>' .. string.rep(kind, count), text, first)}
  -- Where the rest of the text begins.
  numbers[count + 1] = nil
  return numbers
end

-- The next argument, which is a list of doubles.
local function doubles()
  at = at + 1
  return list('d', #ARGV[at - 1] / 8, ARGV[at - 1], 1)
end

-- A list that has room for so many.
local function room(count)
  return {unpack(ARGV, #ARGV + 1, #ARGV + count)}
end

-- The name of a window.
local function window_name(size, window)
  return format(window < SMALL and size < SMALL and '%d:%d' or '%.0f:%.0f', size, window)
end

local answer, written = call('TIME'), false
local seconds, micros = answer[1], answer[2]
local now = seconds * 1000 + math.floor(micros / 1000)

-- The counts of keys, as texts; and all of them in one text.
local function read(counts, first, last)
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
  end
  return texts, all
end

-- The levels of keys, in the hashes of the present window and of the one before.
local function read_levels(counts, counts_before, first, last)
  local texts = checked('HMGET', counts, unpack(ARGV, first, last))
  local before = checked('HMGET', counts_before, unpack(ARGV, first, last))
  local hits, times, firsts = room(#texts), room(#texts), room(#texts)
  for i = 1, #texts do
    -- What is no level is none.
    local level = {string.match(texts[i] or before[i] or '', '^(%d+) (%d+) (%d+)$')}
    if #level < 3 or #level[1] > 16 or #level[2] > 15 or #level[3] > 15 then
      level = {'0', '0', '0'}
    end
    hits[i], times[i], firsts[i] = level[1], level[2], level[3]
  end
  return hits, times, firsts
end

local shards, places = {}, {}
for i, key in ipairs(KEYS) do
  local state = checked('HMGET', key, 'epoch', 'position')
  if not state[1] then
    state, written = open_epoch(key, proposed, tag), true
  end
  local base, first, of = key .. ':' .. state[1] .. ':', #places + 1, doubles()
  for j = 1, #of, 3 do
    local kind, size, keys = of[j], of[j + 1], of[j + 2]
    local window, elapsed, last = math.floor(now / size), now % size, at + keys - 1
    local name, before = window_name(size, window), window_name(size, window - 1)
    -- By the numbers of keys. What questions so far were charged is in `current`, too.
    local place = {size = size, left = size - elapsed, offset = at - 1, charged = room(keys)}
    if kind == ELASTIC then
      place.name = 'e' .. name
      place.hit, place.previous = room(keys), room(keys)
      place.current, place.times, place.firsts =
        read_levels(base .. place.name, base .. 'e' .. before, at, last)
      for _, texts in ipairs({place.current, place.times, place.firsts}) do
        answer[#answer + 1] = table.concat(texts, ' ')
      end
      for key = 1, keys do
        if now - place.times[key] >= size then
          place.current[key], place.firsts[key] = 0, seconds * 1000
        end
        place.previous[key] = 0
      end
    else
      place.name = name
      place.current, answer[#answer + 1] = read(base .. name, at, last)
      place.previous, answer[#answer + 1] = read(base .. before, at, last)
    end
    places[#places + 1] = place
    at = last + 1
  end
  shards[i] = {key = key, base = base, position = state[2], first = first, last = #places}
end

local forms, refused, asked, next = {}, {}, 0, 1
while ARGV[at] do
  forms[#forms + 1] = doubles()
end
while next < #questions do
  local number, count = struct.unpack('>HH', questions, next)
  local form = forms[number]
  local counts_rejected, counters = form[1] == 1, form[2]
  -- After the counters come the limits.
  local limits = 3 + 2 * counters
  local keys = list('H', count * counters, questions, next + 4)
  next = next + 4 + 2 * count * counters
  -- A limit refuses if `previous * weight` is more than `(hits - to_admit - current) * size`, which are
  -- whole numbers; or is that, if it is to admit nothing, which asks for a rate below the limit.
  if counters == 1 and form[limits] == 1 and not places[form[3]].hit then
    -- As most have.
    local place, cost, algorithm, hits, to_admit = places[form[3]], form[4], form[7], form[8], form[9]
    local current, previous, charged = place.current, place.previous, place.charged
    local weight, size, strictly = 0, 1, to_admit == 0 and 1 or 0
    if algorithm == SLIDING then
      weight, size = place.left, place.size
    end
    hits = hits - to_admit
    for i = 1, count do
      local key = keys[i]
      -- A text before anything was charged.
      local counted = current[key] + 0
      local refuses = previous[key] * weight > (hits - counted) * size - strictly
      if refuses then
        refused[#refused + 1] = asked + i
      end
      if counts_rejected or not refuses then
        current[key], charged[key] = counted + cost, (charged[key] or 0) + cost
      end
    end
    asked = asked + count
  else
    for i = 0, count - 1 do
      local before = #refused
      for limit = limits + 1, limits + 4 * form[limits], 4 do
        local counter, algorithm, hits, to_admit = unpack(form, limit, limit + 3)
        local place, key = places[form[1 + 2 * counter]], keys[i * counters + counter]
        local free, weight, size = hits - to_admit - place.current[key], 0, 1
        if algorithm == SLIDING then
          weight, size = place.left, place.size
        end
        asked = asked + 1
        if place.previous[key] * weight > free * size - (to_admit == 0 and 1 or 0) then
          refused[#refused + 1] = asked
        end
      end
      local is_charged = counts_rejected or #refused == before
      for counter = 1, counters do
        local place, cost = places[form[1 + 2 * counter]], form[2 + 2 * counter]
        local current, charged, key = place.current, place.charged, keys[i * counters + counter]
        if place.hit and cost > 0 then
          place.hit[key] = true
        end
        if is_charged then
          current[key], charged[key] = current[key] + cost, (charged[key] or 0) + cost
        end
        if place.hit and current[key] + 0 < 0 then
          current[key] = 0
        end
      end
    end
  end
end
answer[#answer + 1] = refused

-- Has a shard live for at least so long, and if not, then for as long as after any change.
local function keep(shard, life)
  if call('PTTL', shard.key) < life then
    extend(shard.base .. 's', math.max(life, LIFE))
    extend(shard.key, math.max(life, LIFE))
  end
end

-- Does what push.lua does with a batch, whose changes are in the stream.
local function apply(shard, last)
  local life = LIFE / 2
  -- Whether it is time for what need not be done each time.
  local seldom = math.floor(shard.after / SELDOM) ~= math.floor(shard.before / SELDOM)
  call('HSET', shard.key, 'position', last)
  for j = shard.first, shard.last do
    local place = places[j]
    local sets = place.sets
    if sets then
      local counts, left = shard.base .. place.name, place.left + place.size + MARGIN
      local known = #sets / 2 - call('HSET', counts, unpack(sets))
      if seldom or known == 0 then
        -- The hash may be new, or may have become a list when the server was restarted.
        use_table(counts)
        call('HDEL', counts, '')
        extend(counts, left)
      end
      life = math.max(life, left + MARGIN)
    end
  end
  if seldom then
    trim(shard.base .. 's', last)
  end
  keep(shard, life)
end

-- Has the levels of a place written that were hit, or charged. Returns whether there are any.
local function set_levels(place)
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

for _, shard in ipairs(shards) do
  local changes, count, is_hit = {}, 0, false
  for j = shard.first, shard.last do
    local place = places[j]
    if place.hit then
      is_hit = set_levels(place) or is_hit
    else
      local current, charged, offset = place.current, place.charged, place.offset
      local keys, sets, changed, set = room(#current), room(2 * #current), 0, 0
      for i = 1, #current do
        local charge = charged[i]
        if charge and charge ~= 0 then
          local key, total = ARGV[offset + i], current[i]
          changed = changed + 1
          keys[changed] = key
          if total < SMALL and total > -SMALL then
            total = format('%d', total)
          elseif total > MOST then
            total = MOST
          elseif total < -MOST then
            total = -MOST
          end
          sets[set + 1], sets[set + 2] = key, total
          set = set + 2
        end
      end
      if changed > 0 then
        -- Keys and their new counts, as HSET is given them.
        place.sets = sets
        changes[#changes + 1] = place.name
        changes[#changes + 1] = keys
        count = count + changed
      end
    end
  end
  if count > 0 or is_hit then
    local packed = cmsgpack.pack(changes)
    shard.before = sequence(shard.position)
    shard.after = shard.before + #packed + OVERHEAD
    -- The tag is the time: another server gives an entry this sequence at another microsecond.
    local last = format('%.0f-%s%06d', shard.after, seconds, micros)
    -- The first write, as one that needs memory, and of the only key that was not read: if it is
    -- refused, nothing was done yet.
    checked('XADD', shard.base .. 's', last, 'node', node, 'count', count, 'changes', packed)
    written = true
    local done, failure = pcall(apply, shard, last)
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
