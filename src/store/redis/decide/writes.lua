-- Writes the charges, and answers. Follows decisions.lua.

-- Makes a shard live at least this long; if that is shorter, as long as after any change.
local function keep(shard, life)
  if call('PTTL', shard.key) < life then
    extend(shard.base .. 's', math.max(life, LIFE))
    extend(shard.key, math.max(life, LIFE))
  end
end

-- Performs push.lua's tasks after a batch, whose changes are in the stream up to this position.
local function apply(shard, last)
  local life = LIFE / 2
  -- Whether the rare tasks are due.
  local seldom = math.floor(shard.after / SELDOM) ~= math.floor(shard.before / SELDOM)
  if last ~= shard.position then
    call('HSET', shard.key, 'position', last)
  end
  for j = shard.first, shard.last do
    local place = places[j]
    if place.is_changed then
      local write = place.kind and place.kind.write or set_counts
      life = math.max(life, write(place, shard.base, seldom) + MARGIN)
    end
  end
  if seldom then
    trim(shard.base .. 's', last)
  end
  keep(shard, life)
end

for _, shard in ipairs(shards) do
  -- Changes in hashes of windows are added to the stream, whose length shows when the rare tasks
  -- are due.
  local changes, count, is_changed, is_told = {}, 0, false, false
  for j = shard.first, shard.last do
    local place = places[j]
    if place.kind then
      place.is_changed = place.kind.prepare(place)
    else
      local current, charged, offset = place.current, place.charged, place.offset
      local keys, sets, changed, set = room(#current), room(2 * #current), 0, 0
      for i = 1, #current do
        local charge = charged[i]
        if charge and charge ~= 0 then
          local key, total = ARGV[offset + i], current[i]
          changed = changed + 1
          keys[changed] = key
          if total < SMALL and total > -SMALL then
            total = format('%d', total)
          elseif total > MOST then
            total = MOST
          elseif total < -MOST then
            total = -MOST
          end
          sets[set + 1], sets[set + 2] = key, total
          set = set + 2
        end
      end
      if changed > 0 then
        -- Keys and their new counts, as arguments of HSET.
        place.sets, place.is_changed = sets, true
        changes[#changes + 1] = place.name
        changes[#changes + 1] = keys
        count = count + changed
      end
    end
    is_changed, is_told = is_changed or place.is_changed, is_told or place.sets
  end
  if is_changed then
    local last = shard.position
    shard.before = sequence(last)
    shard.after = shard.before
    -- The first write needs memory: if it is refused, nothing was done yet.
    if is_told then
      local packed = cmsgpack.pack(changes)
      shard.after = shard.before + #packed + OVERHEAD
      -- The tag is the time: another server would use this sequence at another microsecond.
      last = format('%.0f-%s%06d', shard.after, seconds, micros)
      -- The type of the only key that was not read.
      checked('XADD', shard.base .. 's', last, 'node', node, 'count', count, 'changes', packed)
    else
      call('HSET', shard.key, 'position', last)
    end
    written, shard.told = true, last
    local done, failure = pcall(apply, shard, last)
    if not done then
      -- Half of it cannot be undone, so the epoch is given up, as in push.lua. The error has no
      -- code, which would say that nothing was done.
      call('DEL', shard.key)
      error('midway: ' .. string.gsub(failure.err or failure, '%-', ''), 0)
    end
  else
    keep(shard, LIFE / 2)
  end
end
for _, history in ipairs(histories) do
  local shard = shards[history[1]]
  history[1] = shard.told or shard.position
end
if not written and KEYS[1] then
  -- Has no effect, but a replica refuses it, since its data may be old.
  call('HDEL', KEYS[1], '')
end
return answer
