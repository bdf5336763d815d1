-- Logs of moving windows. Follows windows.lua.
--
-- A log is a string of entries, oldest first, of ten bytes each: a time in milliseconds, and the
-- sum of all hits up to it, modulo 2^32. So the hits in a window are the difference of two sums,
-- the last entry's and that of the last one that has left. The first entry has always left; its
-- time is the index of the last entry that had left when that was recorded. A log expires a minute
-- after all entries have left.
--
-- Refunded entries become repetitions of the entry before them, and the next hits replace them. The
-- string is rewritten when much of it has left.
--
-- Answers the previous hits of keys in the window, and the time of the oldest.

local function logs()
  local kind = {}
  local unpack_entry, FORMAT, BYTES, SUMS = struct.unpack, '>I6I4', 10, 4294967296
  -- Number of last entries that are read at a time, and number of others: Lua takes a nanosecond
  -- for each byte of a text.
  local TAIL, CHUNK = 128, 32
  -- Most thousandths in a window, more than any limit; the largest limit; most entries, with some
  -- spare ones; and most entries with any limit.
  local MOST_HITS, LARGEST, MOST_ENTRIES, BESIDE, FEW = 134217727, 100000000, 100000, 2, 256
  -- Number of useless entries after which the string is rewritten, or as many as there are useful
  -- ones; and most bytes that are rewritten at a time.
  local SPARE, REWRITTEN = 64, 262144
  -- The life of a log is extended at most once in this number of milliseconds.
  local STRETCH = MARGIN / 2
  local rewritten = 0

  local function pack(time, sum)
    return struct.pack(FORMAT, time, sum % SUMS)
  end

  -- Returns the time and the sum of an entry. The first has index 0.
  local function entry(log, index)
    if index >= log.first then
      return unpack_entry(FORMAT, log.tail, (index - log.first) * BYTES + 1)
    end
    local chunk = index - index % CHUNK
    if chunk ~= log.chunk then
      log.chunk, log.text = chunk, call('GETRANGE', log.name, chunk * BYTES, (chunk + CHUNK) * BYTES - 1)
    end
    return unpack_entry(FORMAT, log.text, (index - chunk) * BYTES + 1)
  end

  -- Returns the log with this name, unless all of it has left. Times in the future have left, too,
  -- since the clock was set back.
  local function find(name, size)
    local tail = checked('GETRANGE', name, -TAIL * BYTES, -1)
    local length = #tail
    if length == TAIL * BYTES then
      length = call('STRLEN', name)
    end
    if length == 0 or length % BYTES ~= 0 then
      return nil
    end
    local time, sum = unpack_entry(FORMAT, tail, #tail - BYTES + 1)
    local since = now - size
    -- Unless somebody else wrote it, there are at least two.
    if time < since or time > now + CLOCK_SKEW or length == BYTES then
      return nil
    end
    local count, first = length / BYTES, (length - #tail) / BYTES
    local log = {
      name = name, tail = tail, first = first, count = count, time = time, sum = sum, gone = 0, base = 0, hits = 0,
      noted = 0,
    }
    -- The entries before `low` have left, and the one at `high` has not.
    local low, high = math.max(first, 1), count - 1
    if first > 0 and unpack_entry(FORMAT, tail, 1) >= since then
      low, high = 1, first
      log.noted = entry(log, 0)
      -- From there on, in growing steps.
      local at, step = math.max(log.noted, low), CHUNK
      while at < high and entry(log, at) < since do
        low, at, step = at + 1, at + step, step * 4
      end
      high = math.min(at, high)
    end
    while low < high do
      local middle = (low + high - (low + high) % 2) / 2
      if entry(log, middle) < since then
        low = middle + 1
      else
        high = middle
      end
    end
    local _, base = entry(log, low - 1)
    log.gone, log.base = low, base
    log.hits = math.min((sum - log.base) % SUMS, MOST_HITS)
    return log
  end

  -- Returns the first entry that includes this number of hits, of all those in the window.
  local function entry_of(log, hits)
    -- The first one in most cases.
    local low, high, middle = log.gone, log.count - 1, log.gone
    while low < high do
      local _, sum = entry(log, middle)
      if (sum - log.base) % SUMS < hits then
        low = middle + 1
      else
        high = middle
      end
      middle = (low + high - (low + high) % 2) / 2
    end
    return low
  end

  function kind.read(place, base, first, last)
    local count, prefix = last - first + 1, base .. format('m%.0f:', place.size)
    local hits, oldest, found, kept = room(count), room(count), room(count), room(count)
    for i = 1, count do
      local log = find(prefix .. ARGV[first + i - 1], place.size)
      found[i], hits[i], kept[i], oldest[i] = log or false, 0, 0, 0
      if log then
        -- Not later than any counted hit.
        hits[i], kept[i], oldest[i] = log.hits, log.hits, math.min(entry(log, log.gone), now + CLOCK_SKEW)
      end
    end
    -- Numbers of up to 14 digits are printed as integers.
    answer[#answer + 1], answer[#answer + 2] = table.concat(hits, ' '), table.concat(oldest, ' ')
    place.prefix, place.current, place.kept, place.logs = prefix, hits, kept, found
    place.largest, place.is_charged = room(count), room(count)
  end

  function kind.charge(place, key, cost, is_charged)
    if is_charged and cost ~= 0 then
      local hits = math.min(math.max(place.current[key] + cost, 0), MOST_HITS)
      place.current[key], place.kept[key] = hits, math.min(place.kept[key], hits)
      place.is_charged[key] = true
    end
  end

  -- Returns a form's limits of a counter: the largest one; and the most hits with which all limits
  -- that can have room have it, if there are any.
  function kind.limits(form, first, counter)
    local of = {counter = counter}
    for limit = first + 1, first + 4 * form[first], 4 do
      if form[limit] == counter then
        local hits, to_admit = form[limit + 2], form[limit + 3]
        local most = hits - math.max(to_admit, 1)
        of.largest = math.max(of.largest or 0, hits)
        if most >= 0 then
          of.most = math.min(of.most or most, most)
        end
      end
    end
    of.largest = of.largest or LARGEST
    return of
  end

  -- Returns the time of the hit that is the obstacle, if there is no room; nothing if that is now.
  function kind.obstacle(place, key, of)
    place.largest[key] = math.max(place.largest[key] or 0, of.largest)
    local excess = of.most and place.current[key] - of.most or 0
    if excess <= 0 or excess > place.kept[key] then
      return nil
    end
    local log = place.logs[key]
    if log.excess ~= excess then
      log.excess, log.obstacle = excess, entry(log, entry_of(log, excess))
    end
    return log.obstacle
  end

  function kind.prepare(place)
    return next(place.is_charged) ~= nil
  end

  -- Starts a log again, or without a string.
  local function begin(name, hits, life)
    if hits > 0 then
      call('SET', name, pack(0, 0) .. pack(now, hits), 'PX', life)
    else
      call('DEL', name)
    end
  end

  -- Returns the most entries with this number of hits: see `most_entries` of moving.rs.
  local function most_entries(largest, hits)
    local most = hits <= largest and math.min(largest, MOST_ENTRIES) or largest / 1000
    return math.max(most + BESIDE, FEW)
  end

  local function change(log, kept, added, largest, life)
    -- The last entry that stays, and the index from which the string is written.
    local last, time, sum, from, data = log.count - 1, log.time, log.sum, log.count, ''
    if kept < log.hits then
      last, sum = entry_of(log, kept), log.base + kept
      time = entry(log, last)
      from, data = last, pack(time, sum)
    elseif added > 0 then
      if last > log.gone and select(2, entry(log, last - 1)) == sum then
        -- The entries after it repeat it.
        last = entry_of(log, log.hits)
      end
      from = last + 1
    else
      return
    end
    if added > 0 then
      local at = math.max(now, time)
      local new, most = pack(at, sum + added), most_entries(largest, kept + added)
      if at == time or last + 1 - log.gone >= most then
        -- Replaces it: its hits get this time, and leave later.
        from, data = last, new
      else
        data = data .. new
      end
    end
    local spare = log.count - from - #data / BYTES
    local is_of_use = spare <= SPARE and log.gone <= math.max(SPARE, log.count / 2)
    local bytes = (from - log.gone) * BYTES
    if not is_of_use and (rewritten == 0 or rewritten + bytes <= REWRITTEN) then
      rewritten = rewritten + bytes
      -- The last entry that has left becomes the first.
      local stays = call('GETRANGE', log.name, (log.gone - 1) * BYTES, from * BYTES - 1)
      call('SET', log.name, stays, 'PX', life)
      call('SETRANGE', log.name, 0, pack(0, log.base))
      call('SETRANGE', log.name, #stays, data)
      return
    end
    if log.first > 0 and math.abs(log.gone - log.noted) > CHUNK then
      local _, sum_of_first = entry(log, 0)
      call('SETRANGE', log.name, 0, pack(log.gone - 1, sum_of_first))
    end
    if spare > 0 then
      data = data .. string.rep(string.sub(data, -BYTES), spare)
    end
    call('SETRANGE', log.name, from * BYTES, data)
    if math.floor(log.time / STRETCH) ~= math.floor(now / STRETCH) then
      call('PEXPIRE', log.name, life)
    end
  end

  function kind.write(place)
    local life = place.size + MARGIN
    local text = format('%.0f', life)
    for key in pairs(place.is_charged) do
      local log, kept = place.logs[key], place.kept[key]
      local added = place.current[key] - kept
      if kept == 0 then
        begin(place.prefix .. ARGV[place.offset + key], added, text)
      else
        change(log, kept, added, place.largest[key], text)
      end
    end
    return life
  end

  return kind
end

