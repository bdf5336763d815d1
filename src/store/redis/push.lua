-- Applies a node's batch once, and returns the other nodes' changes since the node's position.
--
-- KEYS[1]  the hash of a shard; see changes.lua
-- KEYS[2]  the stream
-- KEYS[3]  and so on: the hash of living nodes, if it is needed, the hashes of counts that may change, and
--          if the batch is news, the stream of news
-- ARGV     epoch, node, the batch's id or '' if the node only asks, the id of the batch before it or
--          '0', the milliseconds for which the node is known, the batch's tag, the node's position or
--          '', the most counters in the answer, the milliseconds for which the node lives (0: it leaves) or ''
--          if it does not say, 1 if the batch is news, the charges for the node's reserves; then for each window its
--          name, milliseconds until it ends, the number of its diffs, and for each diff the key and thousandths.
--
-- The charges for reserves are '' if the node does not say, and diffs are simply added; 'none';
-- 'lost'; or a witness: the shard may refund its charges up to that change. Negative diffs are then
-- refunds: they make no count negative, and lost charges are not refunded.
--
-- Follows changes.lua and changes_since.lua.

-- Approximate number of nodes that are checked for expiry when a new one comes.
local NODES = 20
-- Living nodes that are read at a time, and the longest time for which they are not counted again, in milliseconds.
local NODES_AT_ONCE, RECOUNT = 1000, 1000
-- Approximate number of batches that are kept for listening nodes.
local NEWS = 100
-- Milliseconds for which a run of news lasts, and most bytes of its entry, which each of them writes again.
local RUN, RUN_BYTES = 20, 4096

local shard = KEYS[1]
local epoch, node, batch, previous, known_for, tag, position = unpack(ARGV, 1, 7)
local limit, lives_for, FIRST = tonumber(ARGV[8]), tonumber(ARGV[9]), 12
local news = ARGV[10] == '1' and KEYS[#KEYS]
local granted = ARGV[11]

local state, refusal = read_shard(shard, 'b:' .. node)
if refusal then
  return refusal
end
if not state[1] then
  return {'none'}
elseif state[1] ~= epoch then
  return {'other', state[1]}
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the id of a node's last batch, and the time until which it is known. The node may have
-- expired, or somebody else may have written the field.
local function known(field)
  local id, till = string.match(field or '', '^(%d+) (%d+)$')
  if not id or #id > 19 or #till > 15 then
    return '0', 0
  end
  till = tonumber(till)
  if till < now then
    return '0', till
  end
  return id, till
end

local before, applied, till = state[2], known(state[3])
local last = before
local base = shard .. ':' .. epoch .. ':'
local stream = base .. 's'

local lost = granted == 'lost' or not has_change(stream, granted)

-- Returns the number to add for a negative diff that is a refund.
local function given_back(counts, key, diff)
  if lost then
    return '0'
  end
  local count = counted(redis.call('HGET', counts, key) or '') + 0
  -- Minus zero plus zero is zero, as in `counted`.
  return string.format('%.0f', math.max(diff + 0, -math.max(count, 0)) + 0)
end

-- Notifies listening nodes of the totals after the batch, with its position in the stream. If that
-- fails, they fetch the totals.
local function tell(last, totals)
  local function add()
    return redis.pcall('XADD', news, 'MAXLEN', '~', NEWS, last, 'node', node, 'totals', totals)
  end
  if type(add()) == 'table' then
    -- Somebody has written another type there, or an entry that none can follow.
    redis.pcall('DEL', news)
    add()
  end
  redis.pcall('PEXPIRE', news, LIFE)
end

-- Adds changes to an entry of the stream. Returns its fields; fails if no node wrote it.
local function merged(entry, changes)
  local fields, places = entry[2], {}
  local all, count = cmsgpack.unpack(fields[6]), tonumber(fields[4])
  for j = 1, #all, 2 do
    places[all[j]] = j + 1
  end
  for j = 1, #changes, 2 do
    local place, keys = places[changes[j]], changes[j + 1]
    if place then
      local known, old = {}, all[place]
      for _, key in ipairs(old) do
        known[key] = true
      end
      for _, key in ipairs(keys) do
        if not known[key] then
          known[key], old[#old + 1], count = true, key, count + 1
        end
      end
    else
      all[#all + 1], all[#all + 2], count = changes[j], keys, count + #keys
    end
  end
  return {
    node = fields[2] == node and node or '', count = count, packed = cmsgpack.pack(all), size = #fields[6],
    ids = replaced(entry) .. entry[1] .. ' ',
  }
end

-- Adds changes to the stream. News that follow others within milliseconds replace their entry by one for all, since each
-- other node reads each entry. Returns the id of the entry.
local function record(changes, count)
  local packed = cmsgpack.pack(changes)
  local function id(bytes)
    return string.format('%.0f-%s', sequence(before) + bytes + OVERHEAD, tag)
  end
  local since, bytes, run = string.match(news and state[5] or '', '^(%d+) (%d+) (%S+)$')
  if run == before and tonumber(since) <= now and now < since + RUN and bytes + #packed <= RUN_BYTES then
    local entry = redis.call('XRANGE', stream, run, run)[1]
    local done, all = pcall(merged, entry, changes)
    -- Without the right to delete it, both entries stay.
    if done and redis.pcall('XDEL', stream, run) == 1 then
      -- Deleted entries take memory, until all entries within some kilobytes are deleted.
      local dead = #replaced(entry) / #run * bytes < RUN_BYTES and bytes or 0
      local last = id(#all.packed - all.size + #run + 1 + dead)
      redis.call('XADD', stream, last, 'node', all.node, 'count', all.count, 'changes', all.packed, 'merged', all.ids)
      redis.call('HSET', shard, 'position', last, 'run', since .. ' ' .. #all.packed + #all.ids .. ' ' .. last)
      return last
    end
  end
  local last = id(#packed)
  redis.call('XADD', stream, last, 'node', node, 'count', count, 'changes', packed)
  if news then
    redis.call('HSET', shard, 'position', last, 'run', string.format('%.0f %d %s', now, #packed, last))
  else
    redis.call('HSET', shard, 'position', last)
  end
  return last
end

-- Counts that the batch makes negative: in groups of a window, its keys, and their totals.
local overdrawn = {}

local function apply()
  local changes, told, count, life, at = {}, {}, 0, LIFE, FIRST
  while ARGV[at] do
    local window, left, diffs = ARGV[at], tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local counts, keys, below, totals = base .. window, {}, {}, {}
    use_table(counts)
    if news then
      told[#told + 1] = window .. ' ' .. diffs .. '\n'
    end
    for i = 1, diffs do
      local key = at + 1 + 2 * i
      keys[i] = ARGV[key]
      local diff = ARGV[key + 1]
      if granted ~= '' and string.sub(diff, 1, 1) == '-' then
        diff = given_back(counts, keys[i], diff)
      end
      local total = redis.pcall('HINCRBY', counts, keys[i], diff)
      if type(total) == 'table' then
        -- Somebody wrote an invalid count, or one that is too large. Any other error recurs.
        redis.call('HSET', counts, keys[i], counted(redis.call('HGET', counts, keys[i]) or ''))
        total = redis.call('HINCRBY', counts, keys[i], diff)
      end
      if total > MOST or total < -MOST then
        total = total > 0 and MOST or -MOST
        redis.call('HSET', counts, keys[i], total)
      end
      if total < 0 then
        below[#below + 1], totals[#totals + 1] = keys[i], string.format('%.0f', total)
      end
      if news then
        told[#told + 1] = string.format('%.0f %d ', total, #keys[i]) .. keys[i]
      end
    end
    redis.call('HDEL', counts, '')
    extend(counts, left)
    if #below > 0 then
      for _, part in ipairs({window, below, totals}) do
        overdrawn[#overdrawn + 1] = part
      end
    end
    life = math.max(life, left + MARGIN)
    changes[#changes + 1] = window
    changes[#changes + 1] = keys
    count = count + diffs
    at = at + 3 + 2 * diffs
  end
  if count == 0 then
    return
  end
  last = record(changes, count)
  trim(stream, last)
  extend(stream, life)
  extend(shard, life)
  if news then
    tell(last, table.concat(told))
  end
end

-- Removes some expired nodes. Since each new node does so, they do not accumulate.
local function forget_nodes()
  local seen = redis.call('HGET', shard, 'seen') or '0'
  local page = redis.pcall('HSCAN', shard, string.match(seen, '^%d+$') or '0', 'COUNT', NODES)
  if page.err then
    -- The cursor is invalid, so somebody else wrote it.
    redis.call('HDEL', shard, 'seen')
    return
  end
  for i = 1, #page[2], 2 do
    -- Batches of an older version stay, since it is unknown how long they matter.
    local field, value = page[2][i], page[2][i + 1]
    if string.match(field, '^b:') and string.match(value, ' ') and known(value) == '0' then
      redis.call('HDEL', shard, field)
    end
  end
  redis.call('HSET', shard, 'seen', page[1])
end

if batch ~= '' and applied == previous then
  -- Before any change: checks the types of the keys to change.
  checked('XLEN', stream)
  for i = 3, #KEYS - (news and 1 or 0) do
    checked('HGET', KEYS[i], '')
  end
  -- The first write needs memory: if the server refuses writes, it refuses this one, and nothing
  -- was done yet. Later ones are not refused.
  till = math.max(till, now + known_for)
  redis.call('HSET', shard, 'b:' .. node, batch .. ' ' .. string.format('%.0f', till))
  local done, failure = pcall(apply)
  if not done then
    -- For example, the user lacks a right. Half a batch cannot be undone, so the epoch is given up,
    -- and the nodes restore their counts.
    redis.call('DEL', shard)
    error(failure, 0)
  end
  if previous == '0' then
    forget_nodes()
  end
else
  -- Has no effect, but a replica refuses it, since its data may be old.
  redis.call('HDEL', shard, '')
  if applied ~= (batch ~= '' and batch or previous) then
    return {'misfit', applied}
  end
end
if last == before and redis.call('PTTL', shard) < LIFE / 2 then
  extend(stream, LIFE)
  extend(shard, LIFE)
end

-- Returns this node's place in a list of nodes in order, each between spaces; nothing if it is not in the list.
local function place_in(order)
  local at = string.find(order, ' ' .. node .. ' ', 1, true)
  if at then
    local _, before = string.gsub(string.sub(order, 2, at), ' ', '')
    return before
  end
end

-- Returns the number of living nodes, including this one if it lives, from the hash with their
-- times, and of those before this one, if it was counted. They are counted again after as many milliseconds as there are
-- nodes, so that the cost does not grow with their number; meanwhile nodes that come and leave are added.
local function living()
  local nodes, cursor, alive, count, change = KEYS[3], '0', {}, 0, 0
  if lives_for > 0 then
    change = checked('HSET', nodes, node, string.format('%.0f', now + math.min(lives_for, LONGEST_LIFE)))
    extend(nodes, lives_for)
  else
    change = -checked('HDEL', nodes, node)
  end
  local known = redis.call('HGET', shard, 'living') or ''
  local counted_at, before, order = string.match(known, '^(%d+) (%d+)( .*)$')
  local age = before and now - counted_at or -1
  if age >= 0 and age < math.min(before, RECOUNT) then
    count = math.max(before + change, lives_for > 0 and 1 or 0)
    if change ~= 0 then
      redis.call('HSET', shard, 'living', counted_at .. ' ' .. count .. order)
    end
    return count, place_in(order)
  end
  repeat
    local page = checked('HSCAN', nodes, cursor, 'COUNT', NODES_AT_ONCE)
    for i = 1, #page[2], 2 do
      local other, till = page[2][i], string.match(page[2][i + 1], '^%d+$')
      till = till and tonumber(till) or 0
      -- A longer life than any node's was written by somebody else.
      if till <= now or till > now + LONGEST_LIFE then
        redis.call('HDEL', nodes, other)
      elseif not alive[other] then
        alive[other], count = true, count + 1
      end
    end
    cursor = page[1]
  until cursor == '0'
  local all = {}
  for other in pairs(alive) do
    all[#all + 1] = other
  end
  table.sort(all)
  local order = ' ' .. table.concat(all, ' ') .. ' '
  redis.call('HSET', shard, 'living', string.format('%.0f %d', now, count) .. order)
  return count, place_in(order)
end

local nodes, place
if lives_for then nodes, place = living() end

local at, has_more, counts = last, false, {}
-- Otherwise only this batch changed anything.
if position ~= before then
  at, has_more, counts = changes_since(base, position, last, node, limit)
end
if not at then
  return {'behind', time[1], time[2], last, lost and 1 or 0, overdrawn, nodes, place}
end
return {'since', time[1], time[2], at, has_more and 1 or 0, counts, lost and 1 or 0, overdrawn, nodes, place}
