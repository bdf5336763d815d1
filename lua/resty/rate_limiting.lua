-- The rate-limiting library in Lua, over ngx_http_rate_limiting_module of the same nginx: docs/lua.md.
--
-- What is wrong with arguments is thrown, in words that name the argument; `incoming` and `uncommit` return
-- it, as those of resty.limit.* do. Where a store decides (sync_rate 0), functions yield and never block: the
-- module posts a semaphore of lua-nginx-module's when the answer is there.

local ffi = require "ffi"

local C = ffi.C
local error = error
local ngx_get_phase = ngx.get_phase
local ipairs = ipairs
local pairs = pairs
local pcall = pcall
local setmetatable = setmetatable
local tostring = tostring
local type = type

-- As in ngx_rate_limiting.h. Without code cache, this file is run again and again.
if not pcall(ffi.typeof, "ngx_rate_limiting_api_t") then
    ffi.cdef [[
        typedef struct { size_t len; const void *data; } ngx_rate_limiting_str_t;

        typedef struct {
            size_t                          size;
            ngx_rate_limiting_str_t         name;
            ngx_rate_limiting_str_t         dict;
            double                          sync_rate;
            ngx_rate_limiting_str_t         store;
            ngx_rate_limiting_str_t         strategy;
            const ngx_rate_limiting_str_t  *strategy_opts;
            size_t                          strategy_opts_n;
            const double                   *window_sizes;
            size_t                          window_sizes_n;
        } ngx_rate_limiting_options_t;

        typedef struct {
            size_t                   size;
            ngx_rate_limiting_str_t  name;
            double                   limit;
            double                   window;
            ngx_rate_limiting_str_t  window_type;
            double                   rate;
            double                   burst;
            double                   concurrent;
        } ngx_rate_limiting_limit_t;

        typedef struct {
            double  rate;
            double  remaining;
            double  delay;
            double  retry_after;
        } ngx_rate_limiting_result_t;

        typedef int (*ngx_rate_limiting_ready_pt)(void *data, int n);

        typedef struct {
            ngx_rate_limiting_ready_pt  ready;
            void                       *data;
            uint64_t                    ticket;
        } ngx_rate_limiting_wait_t;

        typedef struct {
            uint32_t  version;
            uint32_t  size;
            int (*new_instance)(const void *name, size_t name_len, uint32_t *instance, char *error,
                size_t error_size);
            int (*new_namespace)(uint32_t instance, const ngx_rate_limiting_options_t *options,
                char *error, size_t error_size);
            int (*find)(uint32_t instance, const void *name, size_t name_len, uint32_t *found,
                char *error, size_t error_size);
            int (*increment)(uint32_t found, const void *key, size_t key_len, double window_size,
                double value, double weight, double *rate, char *error, size_t error_size);
            int (*sliding_window)(uint32_t found, const void *key, size_t key_len,
                double window_size, const double *cur_diff, double weight, double *rate,
                char *error, size_t error_size);
            int (*sync)(uint32_t found, char *error, size_t error_size);
            int (*fetch)(uint32_t found, double time, double timeout, char *error,
                size_t error_size);
            int (*new_limiter)(uint32_t instance, const ngx_rate_limiting_limit_t *limit,
                uint32_t *limiter, char *error, size_t error_size);
            int (*incoming)(uint32_t limiter, const void *key, size_t key_len, double cost,
                int commit, ngx_rate_limiting_result_t *result, char *error, size_t error_size);
            int (*uncommit)(uint32_t limiter, const void *key, size_t key_len, char *error,
                size_t error_size);
            int (*increment_async)(uint32_t found, const void *key, size_t key_len,
                double window_size, double value, double weight, ngx_rate_limiting_wait_t *wait,
                ngx_rate_limiting_result_t *result, char *error, size_t error_size);
            int (*incoming_async)(uint32_t limiter, const void *key, size_t key_len, double cost,
                int commit, ngx_rate_limiting_wait_t *wait, ngx_rate_limiting_result_t *result,
                char *error, size_t error_size);
            int (*take)(uint64_t ticket, ngx_rate_limiting_result_t *result, char *error,
                size_t error_size);
            void (*forget)(uint64_t ticket);
            int (*window)(const void *text, size_t text_len, double *window_size, char *error,
                size_t error_size);
        } ngx_rate_limiting_api_t;

        extern const ngx_rate_limiting_api_t ngx_rate_limiting_api;
    ]]
end

local API_VERSION = 1
local OK, REJECTED, WAIT = 0, 1, 2
-- The weight of a sliding window, in C: callers leave it out.
local SLIDING = -1
-- The worst that is no mistake of the caller's: no room, or no store that answers.
local FULL, UNAVAILABLE = -6, -7

local found, api = pcall(function()
    return C.ngx_rate_limiting_api
end)
if not found then
    error("ngx_http_rate_limiting_module is not loaded: expected \"load_module\" in nginx.conf", 2)
end
if api.version ~= API_VERSION then
    error("ngx_http_rate_limiting_module has version " .. api.version .. " of its interface: expected "
        .. API_VERSION, 2)
end

local c_increment, c_sliding_window = api.increment, api.sliding_window
local c_incoming, c_uncommit = api.incoming, api.uncommit

-- Nothing yields between a call and the look at what it wrote.
local ERROR_SIZE = 512
local error_text = ffi.new("char[?]", ERROR_SIZE)
local handle_place = ffi.new("uint32_t[1]")
local rate_place = ffi.new("double[1]")
local diff_place = ffi.new("double[1]")
local result_place = ffi.new("ngx_rate_limiting_result_t")
local wait_place = ffi.new("ngx_rate_limiting_wait_t")

local function said()
    return ffi.string(error_text)
end

local function wrong(name, expected, value)
    return "invalid argument \"" .. name .. "\": expected " .. expected .. ", not " .. type(value)
end

-- The numbers that stand for windows of the calendar in C, by their texts.
local windows = {}

-- Returns the number of a window that is no number of seconds.
local function number_of_window(name, window, level)
    local known = windows[window]
    if known then
        return known
    end
    if type(window) ~= "string" then
        error(wrong(name, "a number", window), level)
    end
    if api.window(window, #window, rate_place, error_text, ERROR_SIZE) ~= OK then
        error((said():gsub("\"window\"", "\"" .. name .. "\"", 1)), level)
    end
    windows[window] = rate_place[0]
    return windows[window]
end

-- Returns nil and the text of a failure; throws it if it is the caller's mistake, `level` calls above.
local function failed(code, level)
    if code == FULL or code == UNAVAILABLE then
        return nil, said()
    end
    error(said(), level + 1)
end

-- Questions to stores.

-- Semaphores that the module may post: until their question is answered or forgotten.
local posted = {}
local questions = 0

-- What a coroutine has while it waits: when that ends meanwhile, this is collected, and then nobody waits.
local guard_type = ffi.typeof("struct { uint64_t ticket; double question; }")

-- No closure in the coroutine: lua-nginx-module uses the stack of one that has ended for another.
local function forget(guard)
    api.forget(guard.ticket)
    posted[guard.question] = nil
end

local yields = {
    rewrite = true, server_rewrite = true, access = true, content = true, timer = true,
    ssl_cert = true, ssl_session_fetch = true, ssl_client_hello = true,
}

local semaphore, post

-- Returns nil, or an error.
local function load_semaphores()
    local found, module = pcall(require, "ngx.semaphore")
    if not found then
        return "a store decides, which takes lua-resty-core's ngx.semaphore: expected that in lua_package_path ("
            .. tostring(module):gsub("\n.*", "") .. ")"
    end
    semaphore = module
    post = ffi.cast("ngx_rate_limiting_ready_pt", ngx.config.subsystem == "stream"
        and C.ngx_stream_lua_ffi_sema_post or C.ngx_http_lua_ffi_sema_post)
end

-- Asks by `ask`, one of the functions that may have to wait; returns its code, or nil and an error.
local function wait_for(ask, ...)
    local phase = ngx_get_phase()
    if not yields[phase] then
        return nil, "a store decides, for which phase \"" .. phase .. "\" cannot wait"
    end
    local failure = not semaphore and load_semaphores()
    if failure then
        return nil, failure
    end
    local sema, err = semaphore.new(0)
    if not sema then
        return nil, err
    end
    wait_place.ready = post
    wait_place.data = sema.sem
    local code = ask(...)
    if code ~= WAIT then
        return code
    end
    local ticket = wait_place.ticket
    questions = questions + 1
    posted[questions] = sema
    local guard = ffi.gc(guard_type(ticket, questions), forget)
    -- The module has a timeout of its own, a minute at most.
    local ok
    ok, err = sema:wait(90)
    ffi.gc(guard, nil)
    posted[guard.question] = nil
    if not ok then
        api.forget(ticket)
        return nil, err
    end
    return api.take(ticket, result_place, error_text, ERROR_SIZE)
end

local function increment_async(handle, key, window_size, value, weight)
    return api.increment_async(handle, key, #key, window_size, value, weight, wait_place, result_place,
        error_text, ERROR_SIZE)
end

local function incoming_async(handle, key, cost, commit)
    return api.incoming_async(handle, key, #key, cost, commit, wait_place, result_place, error_text,
        ERROR_SIZE)
end

-- Limiters, in the shape of resty.limit.*.

local limiter = {}
local limiter_mt = { __index = limiter }

-- delay, and what remains or, of a rate, the excess, or how many requests are under way; nil, "rejected"; nil, an error
function limiter.incoming(self, key, commit, cost)
    if type(key) ~= "string" then
        return nil, wrong("key", "a string", key)
    end
    if cost == nil then
        cost = 1
    elseif type(cost) ~= "number" then
        return nil, wrong("cost", "a number", cost)
    end
    local code, err
    if self.is_synchronous then
        code, err = wait_for(incoming_async, self.handle, key, cost, commit and 1 or 0)
        if not code then
            return nil, err
        end
    else
        code = c_incoming(self.handle, key, #key, cost, commit and 1 or 0, result_place, error_text,
            ERROR_SIZE)
    end
    if code == OK then
        if self.is_of_rate then
            -- An empty bucket takes one hit without an excess.
            local excess = result_place.rate - 1
            return result_place.delay, excess > 0 and excess or 0
        end
        if self.is_of_concurrency then
            return 0, result_place.rate
        end
        return result_place.delay, result_place.remaining
    end
    if code == REJECTED then
        return nil, "rejected"
    end
    return nil, said()
end

-- true; nil, an error
function limiter.uncommit(self, key)
    if type(key) ~= "string" then
        return nil, wrong("key", "a string", key)
    end
    if c_uncommit(self.handle, key, #key, error_text, ERROR_SIZE) == OK then
        return true
    end
    return nil, said()
end

-- A request of the key ends: true; nil, an error. For a limiter of concurrent requests, uncommit does the same.
limiter.leaving = limiter.uncommit

-- Options. A pointer in a structure keeps nothing: what the structures of a call point to is in its list `anchors`.

-- The anchors of the call to C that is under way. A local variable that nobody reads any more keeps nothing either.
local anchored

-- Calls `call`, a function in C, while `anchors` stay.
local function call_anchored(anchors, call, instance, given, ...)
    anchored = anchors
    local code = call(instance, given, ...)
    anchored = nil
    return code
end

local function point(anchors, place, text)
    anchors[#anchors + 1] = text
    place.data, place.len = ffi.cast("const char *", text), #text
end

local function set_string(anchors, place, options, name)
    local value = options[name]
    if value == nil then
        return
    end
    if type(value) ~= "string" then
        error(wrong(name, "a string", value), 4)
    end
    point(anchors, place, value)
end

local function set_number(structure, options, name)
    local value = options[name]
    if value == nil then
        return
    end
    if type(value) ~= "number" then
        error(wrong(name, "a number", value), 4)
    end
    structure[name] = value
end

local function check_options(options, known)
    if type(options) ~= "table" then
        error(wrong("options", "a table", options), 4)
    end
    for name in pairs(options) do
        if not known[name] then
            error("unknown option \"" .. tostring(name) .. "\"", 4)
        end
    end
end

local namespace_options = {
    dict = true, sync_rate = true, strategy = true, strategy_opts = true, store = true,
    namespace = true, window_sizes = true,
}

local limiter_options = {
    namespace = true, limit = true, window = true, window_type = true, rate = true, burst = true,
    concurrent = true,
}

-- A value of a store's option, as nginx.conf would say it.
local function word_of(name, value)
    if value == true then
        return "on"
    end
    if value == false then
        return "off"
    end
    if type(value) ~= "string" and type(value) ~= "number" then
        error(wrong("strategy_opts", "a string, number, boolean or list of them as \"" .. name .. "\"", value), 5)
    end
    return tostring(value)
end

local function set_strategy_opts(anchors, given, opts)
    if type(opts) ~= "table" then
        error(wrong("strategy_opts", "a table", opts), 4)
    end
    local words = {}
    for name, value in pairs(opts) do
        if type(name) ~= "string" then
            error(wrong("strategy_opts", "names of options", name), 4)
        end
        if name == "store" then
            set_string(anchors, given.store, opts, name)
        else
            for _, each in ipairs(type(value) == "table" and value or { value }) do
                words[#words + 1] = name
                words[#words + 1] = word_of(name, each)
            end
        end
    end
    local places = ffi.new("ngx_rate_limiting_str_t[?]", #words)
    for index, word in ipairs(words) do
        point(anchors, places[index - 1], word)
    end
    anchors[#anchors + 1] = places
    given.strategy_opts, given.strategy_opts_n = places, #words
end

local function new_namespace(instance, options)
    check_options(options, namespace_options)
    local given = ffi.new("ngx_rate_limiting_options_t")
    given.size = ffi.sizeof(given)
    given.sync_rate = -1
    local anchors = {}
    set_string(anchors, given.name, options, "namespace")
    set_string(anchors, given.dict, options, "dict")
    set_string(anchors, given.strategy, options, "strategy")
    set_string(anchors, given.store, options, "store")
    set_number(given, options, "sync_rate")
    if options.sync_rate == nil and (options.strategy ~= nil or options.store ~= nil) then
        error(wrong("sync_rate", "a number beside \"strategy\" or \"store\"", nil), 3)
    end
    if options.strategy_opts ~= nil then
        set_strategy_opts(anchors, given, options.strategy_opts)
    end
    local sizes = options.window_sizes
    if sizes ~= nil then
        if type(sizes) ~= "table" then
            error(wrong("window_sizes", "a table", sizes), 3)
        end
        local list = ffi.new("double[?]", #sizes)
        for index = 1, #sizes do
            local size = sizes[index]
            if type(size) == "string" then
                size = number_of_window("window_sizes", size, 4)
            elseif type(size) ~= "number" then
                error(wrong("window_sizes", "numbers", size), 3)
            end
            list[index - 1] = size
        end
        given.window_sizes, given.window_sizes_n = list, #sizes
        anchors[#anchors + 1] = list
    end
    local code = call_anchored(anchors, api.new_namespace, instance, given, error_text, ERROR_SIZE)
    if code ~= OK then
        return failed(code, 3)
    end
    return true
end

local function new_limiter(instance, options)
    check_options(options, limiter_options)
    local given = ffi.new("ngx_rate_limiting_limit_t")
    given.size = ffi.sizeof(given)
    local anchors = {}
    set_string(anchors, given.name, options, "namespace")
    set_string(anchors, given.window_type, options, "window_type")
    for _, name in ipairs { "limit", "rate", "burst", "concurrent" } do
        set_number(given, options, name)
    end
    if type(options.window) == "string" then
        given.window = number_of_window("window", options.window, 4)
    else
        set_number(given, options, "window")
    end
    local code = call_anchored(anchors, api.new_limiter, instance, given, handle_place, error_text, ERROR_SIZE)
    if code < 0 then
        return failed(code, 3)
    end
    return setmetatable({
        handle = handle_place[0],
        is_synchronous = code == WAIT,
        is_of_rate = given.rate > 0,
        is_of_concurrency = given.concurrent > 0,
    }, limiter_mt)
end

-- Instances.

local function find(instance, handles, synchronous, namespace, level)
    local name = namespace
    if name == nil then
        name = "default"
    elseif type(name) ~= "string" then
        error(wrong("namespace", "a string", name), level + 1)
    end
    local code = api.find(instance, name, #name, handle_place, error_text, ERROR_SIZE)
    if code < 0 then
        failed(code, level + 1)
        error(said(), level + 1)
    end
    local handle = handle_place[0]
    handles[name] = handle
    synchronous[name] = code == WAIT or nil
    return handle
end

-- Returns the weight and the window as C takes them.
local function check(key, window_size, value, name, weight)
    if type(key) ~= "string" then
        error(wrong("key", "a string", key), 3)
    end
    if type(window_size) ~= "number" then
        window_size = number_of_window("window_size", window_size, 4)
    end
    if type(value) ~= "number" then
        error(wrong(name, "a number", value), 3)
    end
    if weight == nil then
        return SLIDING, window_size
    end
    if type(weight) ~= "number" then
        error(wrong("weight", "a number from 0 to 1", weight), 3)
    end
    if weight == SLIDING then
        error("invalid argument \"weight\": expected a number from 0 to 1, not " .. weight, 3)
    end
    return weight, window_size
end

-- What a store counts of a key, with `value` more.
local function ask_rate(handle, key, window_size, value, weight)
    local code, err = wait_for(increment_async, handle, key, window_size, value, weight)
    if not code then
        return nil, err
    end
    if code < 0 then
        return failed(code, 3)
    end
    return result_place.rate
end

local function make(instance)
    local M = {}
    -- By the names of namespaces.
    local handles, synchronous = {}, {}

    function M.new(options)
        return new_namespace(instance, options)
    end

    function M.increment(key, window_size, value, namespace, weight)
        weight, window_size = check(key, window_size, value, "value", weight)
        local name = namespace == nil and "default" or namespace
        local handle = handles[name] or find(instance, handles, synchronous, namespace, 2)
        if synchronous[name] then
            return ask_rate(handle, key, window_size, value, weight)
        end
        local code = c_increment(handle, key, #key, window_size, value, weight, rate_place,
            error_text, ERROR_SIZE)
        if code ~= OK then
            return failed(code, 2)
        end
        return rate_place[0]
    end

    function M.sliding_window(key, window_size, cur_diff, namespace, weight)
        weight, window_size = check(key, window_size, cur_diff == nil and 0 or cur_diff, "cur_diff", weight)
        local name = namespace == nil and "default" or namespace
        local handle = handles[name] or find(instance, handles, synchronous, namespace, 2)
        if synchronous[name] and cur_diff == nil then
            return ask_rate(handle, key, window_size, 0, weight)
        end
        local diff
        if cur_diff ~= nil then
            diff_place[0] = cur_diff
            diff = diff_place
        end
        local code = c_sliding_window(handle, key, #key, window_size, diff, weight, rate_place,
            error_text, ERROR_SIZE)
        if code ~= OK then
            return failed(code, 2)
        end
        return rate_place[0]
    end

    function M.sync(premature, namespace)
        if premature then
            return
        end
        local handle = handles[namespace == nil and "default" or namespace]
            or find(instance, handles, synchronous, namespace, 2)
        local code = api.sync(handle, error_text, ERROR_SIZE)
        if code ~= OK then
            return failed(code, 2)
        end
        return true
    end

    function M.fetch(premature, namespace, time, timeout)
        if premature then
            return
        end
        if type(time) ~= "number" then
            error(wrong("time", "a number", time), 2)
        end
        if timeout ~= nil and type(timeout) ~= "number" then
            error(wrong("timeout", "a number", timeout), 2)
        end
        local handle = handles[namespace == nil and "default" or namespace]
            or find(instance, handles, synchronous, namespace, 2)
        local code = api.fetch(handle, time, timeout or 0, error_text, ERROR_SIZE)
        if code ~= OK then
            return failed(code, 2)
        end
        return true
    end

    function M.limiter(options)
        return new_limiter(instance, options)
    end

    return M
end

-- The default instance, and others by their names.

local _M = make(0)
local instances = {}

_M._VERSION = "0.1.0"

function _M.new_instance(name)
    if type(name) ~= "string" then
        error(wrong("instance_name", "a string", name), 2)
    end
    local known = instances[name]
    if known then
        return known
    end
    local code = api.new_instance(name, #name, handle_place, error_text, ERROR_SIZE)
    if code ~= OK then
        return failed(code, 2)
    end
    local instance = make(handle_place[0])
    instance.new_instance = _M.new_instance
    instances[name] = instance
    return instance
end

return _M
