-- For wrk: asks for keys at random, and prints what came of it as JSON, with times in microseconds.
--
--   wrk -t 1 -s random.lua URL -- KEYS SEED
--
-- One thread, or all ask for the same. What is asked is made before: some seconds' worth.
local requests, at = {}, 0

function init(args)
    local keys = tonumber(args[1])
    math.randomseed(tonumber(args[2]))
    for index = 1, 200000 do
        requests[index] = wrk.format(nil, '/?k=key' .. math.random(keys))
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
