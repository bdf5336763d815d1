-- Returns the counters that other nodes changed since a position, in batches that may be news.
--
-- KEYS     for each shard its hash and its stream; see changes.lua
-- ARGV     the most counters for a shard; for each shard the epoch, the node, the node's position
--
-- Answers for each shard the position up to which it has the changes, and the changes; or nothing, if the epoch is
-- another or the stream does not have the position.
--
-- Follows changes.lua and changes_since.lua.
local answers, limit = {}, tonumber(ARGV[1])
for i = 1, #KEYS, 2 do
  local shard, at = KEYS[i], (3 * i + 1) / 2
  local epoch, node, position = unpack(ARGV, at, at + 2)
  -- Has no effect, but a replica refuses it, since its data may be old.
  redis.call('HDEL', shard, '')
  local present, last = unpack(checked('HMGET', shard, 'epoch', 'position'))
  local reached, _, counts
  if present == epoch and last and is_position(last) then
    reached, _, counts = changes_since(shard .. ':' .. epoch .. ':', position, last, node, limit, true)
  end
  answers[#answers + 1] = reached and {reached, counts} or {}
end
return answers
