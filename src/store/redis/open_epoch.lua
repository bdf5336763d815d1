-- Opens a new epoch for a shard, unless somebody else was faster. Returns the shard's epoch.
--
-- KEYS[1]  the hash of the shard; see changes.lua
-- ARGV     the epoch to replace or '', the new one, the tag of its first position
--
-- Follows changes.lua.
local shard = KEYS[1]
local old, new, tag = unpack(ARGV, 1, 3)

local state, refusal = read_shard(shard, 'seen')
if refusal then
  return refusal
end
local current = state[1]
if current and current ~= old then
  return current
end
open_epoch(shard, new, tag)
if current then
  redis.call('UNLINK', shard .. ':' .. current .. ':s')
end
return new
