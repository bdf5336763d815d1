-- Decides about questions, one after another, and charges the admitted ones: arguments and answer.
-- Follows changes.lua; then come a file for each kind of counters, decisions.lua and writes.lua.
--
-- KEYS     the hashes of shards, in a cluster of one shard; all other keys are derived from them. The
--          node need not have all keys: if it is moving them away, using a moved one is an error, and
--          nothing is written before all keys to write were read, except for the stream, which is the
--          first. A node that is receiving them cannot distinguish keys still to come from missing
--          ones, and is not asked.
-- ARGV     node, epoch for shards that have none, tag of its first position; the questions: runs of
--          those of one form, each with the number of the form, how many questions, and for each of
--          their counters the number of the key in its place, all in two bytes. For each size of a
--          calendar, the size, the number of its window, when that starts and ends, and when the
--          next one ends. For each shard: the exchange that
--          its history must have: '' if that is not asked, 'none', or a witness (see changes.lua); the
--          numbers of its places, which are for each its kind, the size of its windows (of buckets,
--          the rate in hits a second) and how many keys it has; and the keys. For each form its numbers: 1 if rejected hits are counted, or 0; how
--          many counters, and for each its place and its cost; how many limits, and for each its
--          counter, the number of its algorithm, its hits, and the cost that is to be admitted; and if a
--          counter is a bucket, for each counter how many thousandths leak from it, and in how many
--          milliseconds. These numbers are doubles.
--
-- A place has the counters of one shard and kind with windows of one size, or one rate. A form is
-- the common part of questions: everything except the keys. Numbers start with 1. Hits are in
-- thousandths.
--
-- If one of these windows is not that of this server's time, answers only TIME, and does nothing.
-- Otherwise answers TIME; for each place lists of the previous state of its keys, which the file of its kind describes; the
-- limits that refused, numbered through all questions; for each shard whose history is asked about, the position of the
-- last change, and 1 if the history is complete; and for each log of each question whose limits had no room, the time of
-- the hit after which they will have, unless that is now.
--
-- Lua is slow here: 40 to 200 instructions for a step, and 400 more to call or create a function.
-- So each list is passed and returned as one text; a table is created with room for its content;
-- most questions are decided in a loop of their own; and functions of rare kinds are created when
-- needed.
--
-- A rare kind is a table of functions:
--   read(place, base, first, last)                the state of its keys, which are these arguments
--   rate(place, key, leaked, millis)              the hits that a limit compares with, if not `current`; and how
--                                                 many thousandths leak from a bucket, in how many milliseconds
--   charge(place, key, cost, is_charged, leaked, millis, most)
--                                                 buckets: `most` is the level to which rejected hits fill it
--   prepare(place)                                prepares the writes, before any is made; whether there are any
--   write(place, base, seldom)                    makes the writes; the time for which they are kept
--   limits(form, first, counter)                  logs: a form's limits of a counter
--   obstacle(place, key, limits)                  logs: after the decision, the time of the hit that is the obstacle
--                                                 for these limits

local call, format, ARGV = redis.call, string.format, ARGV
local node, proposed, tag, questions, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], 5
-- The number of the algorithm in which the previous window has weight; in the other one it has
-- none.
local SLIDING = 1
-- Bytes added to the stream after which rare tasks are done.
local SELDOM = 65536
-- Integers below this are formatted the fast way, on any machine.
local SMALL = 2147483648

-- Returns this number of numbers from a text, as a list.
local function list(kind, count, text, first)
  local numbers = {struct.unpack('>' .. string.rep(kind, count), text, first)}
  -- Start of the rest of the text.
  numbers[count + 1] = nil
  return numbers
end

-- Returns the next argument, a list of doubles.
local function doubles()
  at = at + 1
  return list('d', #ARGV[at - 1] / 8, ARGV[at - 1], 1)
end

-- Returns a list with room for this number of values.
local function room(count)
  return {unpack(ARGV, #ARGV + 1, #ARGV + count)}
end

-- Returns the name of a window.
local function window_name(size, window)
  return format(window < SMALL and size < SMALL and '%d:%d' or '%.0f:%.0f', size, window)
end

local answer, written = call('TIME'), false
local seconds, micros = answer[1], answer[2]
local now = seconds * 1000 + math.floor(micros / 1000)

-- By size: the number of a calendar's window, what is left of it, and the length of the next one.
local calendars
if ARGV[at] ~= '' then
  calendars = {}
  local of = doubles()
  for i = 1, #of, 5 do
    if now < of[i + 2] or now >= of[i + 3] then
      return answer
    end
    calendars[of[i]] = {number = of[i + 1], left = of[i + 3] - now, next = of[i + 4] - of[i + 3]}
  end
else
  at = at + 1
end

