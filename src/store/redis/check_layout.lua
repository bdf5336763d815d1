-- Records how this node divides a namespace, or fails if other nodes divide it differently.
--
-- KEYS[1]  the hash of the first shard, which exists in every layout; see changes.lua
--
-- Follows changes.lua.
local shard = KEYS[1]
local state, refusal = read_shard(shard, 'seen')
if refusal then
  return refusal
end
if not state[1] then
  redis.call('HSET', shard, 'layout', LAYOUT)
  redis.call('PEXPIRE', shard, LIFE)
end
return LAYOUT
