-- For wrk: each connection asks for a key at random, and pauses: wrk -s paced.lua URL -- KEYS MILLISECONDS SEED
local keys, pause

function init(args)
    keys, pause = tonumber(args[1]), tonumber(args[2])
    math.randomseed(tonumber(args[3]))
end

function delay() return pause end

function request() return wrk.format('GET', '/hit/' .. math.random(keys)) end

function done(summary)
    local errors = summary.errors
    io.write(string.format('%d %d\n', summary.requests, errors.connect + errors.read + errors.write + errors.timeout))
end
