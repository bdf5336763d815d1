-- Collects the counters that others changed since a position. Follows changes.lua.

-- Bytes of the stream that are read for one answer.
local SCANNED = 65536
-- Entries and counts that are read at a time.
local ENTRIES, COUNTS = 16, 1000

-- Returns the position up to which changes were collected, of those up to the position `last`; whether there are more;
-- and for each window its name, its keys, each once, and their totals, in groups for one call. Returns nothing if the
-- stream does not have the position, or somebody else wrote an entry after it.
--
-- There are up to `limit` counters, or those of one entry if these are more, which `is_partial` leaves out.
local function changes_since(base, position, last, node, limit, is_partial)
  local groups, open, seen, noted = {}, {}, {}, 0

  local function note(window, keys)
    local known = seen[window] or {}
    seen[window] = known
    for _, key in ipairs(keys) do
      assert(type(key) == 'string')
      if not known[key] then
        known[key] = true
        noted = noted + 1
        local group = open[window]
        if not group or #group == COUNTS then
          group = {}
          open[window] = group
          groups[#groups + 1] = {window, group}
        end
        group[#group + 1] = key
      end
    end
  end

  -- Adds the changes of a stream entry; fails if no node wrote it.
  local function note_entry(fields)
    local changes = cmsgpack.unpack(fields[6])
    for j = 1, #changes, 2 do
      assert(string.find(changes[j], '^%d+:%d+$'))
      note(changes[j], changes[j + 1])
    end
  end

  local function collect()
    local stream, at = base .. 's', position
    while at ~= last do
      local entries = checked('XRANGE', stream, at, '+', 'COUNT', ENTRIES)
      local first = entries[1]
      if not first then
        return nil
      end
      -- The first entry is known, unless it replaced the one that is.
      local is_known = first[1] == at
      if is_known and #entries < 2 or not is_known and not string.find(' ' .. replaced(first), ' ' .. at .. ' ', 1, true) then
        return nil
      end
      for i = is_known and 2 or 1, #entries do
        local id, fields = entries[i][1], entries[i][2]
        local count = tonumber(fields[4]) or 0
        if fields[2] ~= node and not (is_partial and count > limit) then
          if noted > 0 and noted + count > limit then
            return at, true
          end
          if not pcall(note_entry, fields) then
            return nil
          end
        end
        at = id
        if at == last then
          break
        end
        if sequence(at) - sequence(position) > SCANNED then
          return at, true
        end
      end
    end
    return at, false
  end

  if position == '' then
    return nil
  end
  local at, has_more = collect()
  if not at then
    return nil
  end
  local counts = {}
  for _, group in ipairs(groups) do
    counts[#counts + 1] = group[1]
    counts[#counts + 1] = group[2]
    counts[#counts + 1] = checked('HMGET', base .. group[1], unpack(group[2]))
  end
  return at, has_more, counts
end
