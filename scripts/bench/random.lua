-- For wrk: asks for keys at random, and prints what came of it as JSON, with times in microseconds.
--
--   wrk -t 1 -s random.lua URL -- KEYS SEED
--
-- KEYS is a number: each is as likely as the others; or `zipf:NUMBER`: the second is half as likely as the first, the
-- third a third, and so on.
-- One thread, or all ask for the same. What is asked is made before: some seconds' worth.
local requests, at = {}, 0

-- What draws numbers from 1 on, of which the k-th has the weight 1/k.
local function zipf(keys)
    local sums, sum = {}, 0
    for key = 1, keys do
        sum = sum + 1 / key
        sums[key] = sum
    end
    return function()
        local drawn, low, high = math.random() * sum, 1, keys
        while low < high do
            local middle = math.floor((low + high) / 2)
            if sums[middle] < drawn then low = middle + 1 else high = middle end
        end
        return low
    end
end

function init(args)
    local weighted, keys = args[1]:match('^(%a*):?(%d+)$')
    keys = tonumber(keys)
    math.randomseed(tonumber(args[2]))
    local draw = weighted == 'zipf' and zipf(keys) or function() return math.random(keys) end
    for index = 1, 200000 do
        requests[index] = wrk.format(nil, '/?k=key' .. draw())
    end
end

function request()
    at = at % #requests + 1
    return requests[at]
end

function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format('{"requests":%d,"micros":%d,"failed":%d,"p50":%d}\n',
        summary.requests, summary.duration, failed, latency:percentile(50)))
end
