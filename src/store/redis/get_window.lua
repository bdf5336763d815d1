-- Returns the count of a key in a window, in the shard's current epoch; nothing without one.
--
-- KEYS[1]  the hash of the shard; see changes.lua
-- ARGV     the window's name, the key
--
-- Follows changes.lua.
local epoch = checked('HGET', KEYS[1], 'epoch')
local count = epoch and checked('HGET', KEYS[1] .. ':' .. epoch .. ':' .. ARGV[1], ARGV[2])
return count and counted(count)
