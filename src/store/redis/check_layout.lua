-- Notes how this node divides a namespace, or fails where others divide it in another way.
--
-- KEYS[1]  the hash of its first shard, which there is in every layout; see changes.lua
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
