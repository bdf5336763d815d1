-- Decides on questions, one after the other, and charges what is admitted: what it is given and answers. Follows
-- changes.lua; then come a file for each kind of counters, decisions.lua and writes.lua.
--
-- KEYS     the hashes of shards, in a cluster of one; all other keys are derived from them. The node
--          that has them need not have all: if it is giving them away, what is gone is an error when
--          it is used, and nothing is written before all that is to be written was read, but for the
--          stream, which is the first. One that is given them cannot tell what is still to come from
--          what there is not, and is not asked.
-- ARGV     node, epoch for shards that have none, tag of its first position; the questions: runs of
--          those of one form, each with the number of the form, how many questions, and for each of
--          their counters the number of the key in its place, all in two bytes. For each shard: what its history is to have,
--          '' if that is not asked, or 'none', or a witness (see changes.lua); the
--          numbers of its places, which are for each its kind, the size of its windows (of buckets,
--          the rate in hits a second) and how many keys it has; and the keys. For each form its numbers: 1 if rejected hits are counted, or 0; how
--          many counters, and for each its place and its cost; how many limits, and for each its
--          counter, the number of its algorithm, its hits, and the cost that is to be admitted; and if a
--          counter is a bucket, for each counter how many thousandths leak from it, and in how many
--          milliseconds. These numbers are doubles.
--
-- A place is for counters of one shard and kind with windows of one size, or one rate. A form is what questions may have
-- in common: all but keys. Whatever has a number is numbered from 1. Hits are thousandths.
--
-- Answers TIME; for each place lists of what was kept of its keys, which the file of its kind says; which
-- limits refused, numbered through all questions; for each shard whose history is asked about the position of the last
-- change, and 1 if the history is whole; and for each counter of each question that is a log, and
-- whose limits have no room when it was decided, the time of the hit with which there will be, unless that is now.
--
-- Lua takes long here: 40 to 200 instructions for a step, and 400 more to call a function or to make one. So
-- lists are read and answered as one text, each; a table has room from the beginning for what it will hold;
-- what most questions are is decided in a loop of its own; and of a kind that is rare, functions are made when
-- it comes.
--
-- Such a kind is a table of functions:
--   read(place, base, first, last)                what is kept of its keys, which are these arguments
--   rate(place, key, leaked, millis)              the hits that a limit compares with, if not `current`; and how
--                                                 many thousandths leak from a bucket, in how many milliseconds
--   charge(place, key, cost, is_charged, leaked, millis, most)
--                                                 of buckets: where rejected hits count, what these fill it to
--   prepare(place)                                what is to be written, before anything is; whether there is any
--   write(place, base, seldom)                    writes it; for how long it is kept
--   limits(form, first, counter)                  of logs: what the limits of a form say about a counter
--   obstacle(place, key, limits)                  of logs: after a question was decided, the time of the hit that is
--                                                 in the way of these limits

local call, format, ARGV = redis.call, string.format, ARGV
local node, proposed, tag, questions, at = ARGV[1], ARGV[2], ARGV[3], ARGV[4], 5
-- The number of the algorithm by which the window before weighs; by the other one, it does not.
local SLIDING = 1
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

