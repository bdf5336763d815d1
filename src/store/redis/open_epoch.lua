-- Gives a shard a new epoch, unless somebody else was faster; answers the epoch it is in then.
--
-- KEYS[1]  the hash of the shard; see changes.lua
-- ARGV     the epoch that is to be replaced or '', the new one, the tag of its first position, for
--          how many milliseconds the shard lives if it is not used
local shard = KEYS[1]
local old, new, tag, life = unpack(ARGV, 1, 4)

local current = redis.call('HGET', shard, 'epoch')
if current and current ~= old then
  return current
end

-- The old counts, which are in hashes of their own, expire; nobody finds them any more.
redis.call('DEL', shard)
if current then
  redis.call('UNLINK', shard .. ':' .. current .. ':s')
end
-- The first change changes nothing, so that every position is that of an entry.
local stream, first = shard .. ':' .. new .. ':s', '1-' .. tag
redis.call('XADD', stream, first, 'node', '', 'count', 0, 'changes', cmsgpack.pack({}))
redis.call('HSET', shard, 'epoch', new, 'position', first)
redis.call('PEXPIRE', stream, life)
redis.call('PEXPIRE', shard, life)
return new
