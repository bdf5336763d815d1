-- The layout of counts and changes: the beginning of all scripts that read and write them.
--
-- The hash of a shard: epoch, position (of the last change), b:<node> (the id of the node's last batch, and the time
-- until which it is known), seen (the cursor of the search for expired nodes), layout (the number of shards of the
-- namespace, and whether they are in a cluster: on or off), run (of news that are one entry of the stream: the time of
-- the first in Unix milliseconds, the bytes of the entry, its id), living (when the living nodes were counted, and their
-- number). All other keys are derived from its key, and share its hash tag:
--   <shard>:<epoch>:<window>  a hash of counts
--   <shard>:<epoch>:s         the stream of changes
--   <shard>:l                 a hash of the living nodes, with the ends of their lives in Unix milliseconds
--   <shard>:<epoch>:n         the stream of news: batches with their totals, for listening nodes, each with
--                             its position in the stream of changes
--
-- An entry of the stream of changes has the node ('' for several), the number of changed counters, the changes (for each
-- window its name and its keys), and if it is a run of news, the ids of the entries that it replaced, each followed by
-- a space.
--
-- A position is the id of an entry in the stream, <sequence>-<tag>, or one that an entry replaced. The sequence counts
-- bytes, so it shows the distance of two entries. The tag distinguishes an entry from another one that got
-- the same sequence after a failover lost the first.
--
-- Numbers that may be large are strings, or formatted with %.0f: Lua would print 1e+14.

-- Bytes that the stream keeps before the oldest entries are removed. An entry counts as slightly
-- more than its content.
local KEPT, OVERHEAD = 16777216, 100
-- Milliseconds for which an unused shard is kept, and for which counts are kept after they ceased
-- to matter, since clocks differ, and a shard after its counts.
local LIFE, MARGIN = 3600000, 60000
-- Bound of counts, up and down, in thousandths, at which they saturate, as strategy.rs requires.
-- Integers up to it are exact.
local MOST = 9007199254740991
-- The largest tag of a position.
local LARGEST_TAG = '18446744073709551615'

local function sequence(id)
  return tonumber(string.match(id, '^%d+'))
end

-- Runs a command on a key that has a type. If somebody has written another type there, or has added
-- entries to a stream after which none can follow, deletes the key, so that the next script finds
-- nothing, and fails this once.
local function checked(command, key, ...)
  local done, result = pcall(redis.call, command, key, ...)
  if done then
    return result
  end
  local failure = result.err or result
  if string.find(failure, 'WRONGTYPE', 1, true) or command == 'XADD' and string.find(failure, 'stream', 1, true) then
    redis.call('DEL', key)
    error(failure, 0)
  end
  -- Adds the error code again, which pcall removes.
  return redis.call(command, key, ...)
end

-- Returns whether a text is an epoch.
local function is_epoch(text)
  return #text == 16 and string.find(text, '^%x+$') and string.find(text, '[^0]')
end

-- Returns whether a text is a position after which an entry can follow.
local function is_position(text)
  local number, tag = string.match(text, '^(%d+)%-(%d+)$')
  return number and #number < 16 and (#tag < #LARGEST_TAG or #tag == #LARGEST_TAG and tag <= LARGEST_TAG)
end

-- Returns fields of a shard's hash: its epoch, its position, another field, its layout, and its run. If one of the
-- first two is missing, or only somebody else can have written it, gives the epoch up, and returns none.
-- If nodes divide the namespace in another way than this one, the second result is the answer to
-- return.
local function read_shard(shard, field)
  local state = checked('HMGET', shard, 'epoch', 'position', field, 'layout', 'run')
  local layout = state[4]
  if layout ~= LAYOUT then
    if layout and string.find(layout, '^%d+ o[nf]f?$') then
      return state, redis.error_reply('LAYOUT ' .. layout .. ' ' .. LAYOUT)
    elseif state[1] then
      -- Written by an older version.
      redis.call('HSET', shard, 'layout', LAYOUT)
    end
  end
  local is_sound = state[1] and state[2] and is_epoch(state[1]) and is_position(state[2])
  if state[1] and not is_sound then
    redis.call('DEL', shard)
    state[1] = false
  end
  return state
end

-- Converts a text to a count, as a text: an integer, saturated. Any other text counts as none,
-- since somebody else wrote it.
local function counted(text)
  local number = string.match(text, '^%-?%d+$') and tonumber(text) or 0
  -- Minus zero plus zero is zero, which HINCRBY accepts.
  return string.format('%.0f', math.max(-MOST, math.min(MOST, number)) + 0)
end

-- Returns the ids of the entries that an entry replaced.
local function replaced(entry)
  return entry[2][8] or ''
end

-- Returns whether a stream has the change of a witness, `<sequence> <last digits of its tag>`, or
-- had it before its oldest entries were removed.
local function has_change(stream, witness)
  local at, digits = string.match(witness, '^(%d+) (%d+)$')
  if not at then
    return true
  end
  local found = checked('XRANGE', stream, at, '+', 'COUNT', 1)[1]
  if found and sequence(found[1]) == tonumber(at) then
    return string.sub(found[1], -#digits) == digits
  end
  if found and string.find(' ' .. replaced(found), ' ' .. at .. '%-%d*' .. digits .. ' ') then
    return true
  end
  local oldest = checked('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  return oldest and sequence(oldest[1]) > tonumber(at) and sequence(oldest[1]) > 1
end

-- Opens an epoch for a shard. Returns it and its first position. The first write needs memory.
local function open_epoch(shard, epoch, tag)
  -- The first change changes nothing, so that every position belongs to an entry.
  local stream, first = shard .. ':' .. epoch .. ':s', '1-' .. tag
  redis.call('XADD', stream, first, 'node', '', 'count', 0, 'changes', cmsgpack.pack({}))
  -- Counts of an earlier epoch, which have their own hashes, expire; no script finds them any more.
  redis.call('DEL', shard)
  redis.call('HSET', shard, 'epoch', epoch, 'position', first, 'layout', LAYOUT)
  redis.call('PEXPIRE', stream, LIFE)
  redis.call('PEXPIRE', shard, LIFE)
  return {epoch, first}
end

-- Makes the key live at least this long.
local function extend(key, life)
  if redis.call('PTTL', key) < life then
    redis.call('PEXPIRE', key, life)
  end
end

-- Makes a hash a table from the start. A small one would be a list, in which finding 500 keys takes
-- 5 ms instead of 1. A long value converts it to a table, which it stays. No key is empty, so the
-- added one is deleted when the hash has another key.
local function use_table(counts)
  if redis.call('OBJECT', 'ENCODING', counts) ~= 'hashtable' then
    redis.call('HSET', counts, '', string.rep(' ', 1024))
  end
end

local function trim(stream, last)
  local oldest = redis.call('XRANGE', stream, '-', '+', 'COUNT', 1)[1]
  local kept = sequence(last) - sequence(oldest[1])
  if kept > KEPT then
    local length = redis.call('XLEN', stream)
    redis.call('XTRIM', stream, 'MAXLEN', '~', math.floor(length * KEPT / kept))
  end
end

