# Tests the Lua functions of the library (lua/resty/rate_limiting.lua): what they count, the errors that they
# throw, and counters that they share with rules; under load and through reloads.
#
# This is a plain Perl test; lib/OwnNginx.pm describes its environment. Without Debian's lua-nginx-module for this
# nginx, only the first part runs. Windows have 366 days, so that none ends during a test.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require LuaNode;
    $has_lua = LuaNode::is_there();
}
use Node;

sub source {
    my ($file) = @_;
    open my $in, '<', "$FindBin::Bin/../$file" or die "cannot read $file: $!\n";
    local $/;
    return <$in> =~ s{/\*.*?\*/|//[^\n]*}{}gsr;
}

sub declarations {
    my $text = source(@_);
    $text =~ s/\bngx_rate_limiting_handle_t\b/uint32_t/g;
    # Matches structures and a function type.
    my @found = $text =~ /(typedef struct \{.*?\} \w+;|typedef int \(\*\w+\)\([^)]*\);)/gs;
    s/\s+/ /g, s/ ?([(){},;*]) ?/$1/g for @found;
    return sort @found;
}

my @declared = declarations('src/api/ngx_rate_limiting.h');
cmp_ok(scalar @declared, '>=', 7, 'the header declares some structures');
is_deeply([declarations('lua/resty/rate_limiting.lua')], \@declared, 'Lua declares what the header declares');

# The fields of each structure, by its name, in their order.
my %in_c = source('src/api/ngx_rate_limiting.h') =~ /typedef struct \{(.*?)\} ngx_rate_limiting_(\w+)_t;/gs;
%in_c = map { $in_c{$_} => [/(\w+)(?:\)\([^)]*\))?;/g] } keys %in_c;
my %in_rust = source('src/nginx/capi/types.rs') =~ /struct Raw(\w+) \{(.*?)\n\}/gs;
%in_rust = map { lc() => [$in_rust{$_} =~ /pub\(super\) (\w+):/g] } keys %in_rust;
is_deeply(\%in_rust, \%in_c, 'Rust declares the same fields in the same order');

if (!$has_lua) {
    done_testing();
    exit;
}

my $node = Node->new(a => ($ENV{TEST_NGINX_PORT} || 1984) + 2);
my $year = 366 * 24 * 3600;
my %conf = (LuaNode::conf(), rules => {rule => 'limit=1000/366d'}, workers => 1);

subtest 'hits that Lua counts are counted' => sub {
    start(%conf);
    is($node->rate(rule => 'a'), 1, 'a request');
    is(lua("return rl.increment('a', $year, 2.5)"), 'true 3.5', 'hits by Lua');
    is($node->rate(rule => 'a'), 4.5, 'and a request');
    is(lua("return rl.sliding_window('a', $year)"), 'true 4.5', 'the rate');
    is(lua("return rl.sliding_window('a', $year, 1)"), 'true 1', 'with a diff');
    is(lua("return rl.sliding_window('a', $year, nil, 'default', 0)"), 'true 4.5', 'of a fixed window');
    is(lua("return rl.increment('a', $year, 0, nil, 0)"), 'true 4.5', 'nothing is counted');
    is(lua("return rl.sliding_window('\\0\\n', $year)"), 'true 0', 'a key that was not seen');
    is(lua("return rl.increment('\\0\\n\\255', $year, 1e11)"), 'true 100000000000', 'many hits');
    is(lua('return rl.sync(false)'), 'true true', 'a local namespace needs no sync');
    is(lua("return rl.fetch(false, 'default', ngx.time(), 5)"), 'true true', 'nor to fetch');
    is(lua('return rl.sync(true)') . lua('return rl.fetch(true)'), 'truetrue', 'nothing is done before its time');
    stop();
};

subtest 'windows of the calendar have names' => sub {
    start(%conf);
    is(lua("return rl.increment('m', 'month', 2)"), 'true 2', 'a month');
    is(lua("return rl.sliding_window('m', 'month tz=utc', 5)"), 'true 5', 'of UTC, which is said aloud');
    is(lua("return rl.increment('m', 'month tz=Asia/Tokyo', 1)"), 'true 1', 'another zone is another window');
    is(lua("return rl.increment('m', 'month', 1, nil, 1)"), 'true 3', 'a weight');
    is(lua(<<'    END'), 'true 2 1 0 rejected', 'a limiter');
        local lim = rl.limiter { limit = 5, window = "month" }
        local _, two = lim:incoming("m", false)
        local _, one = lim:incoming("m", true)
        local _, zero = lim:incoming("m", true)
        local _, err = lim:incoming("m", true)
        return two + 1, one, zero, err
    END
    like(lua("return rl.increment('m', 'day tz=Berlin', 1)"), qr/^false .*did you mean Europe\/Berlin/, 'an unknown zone');
    like(lua("return rl.increment('m', '1d', 1)"), qr/^false .*expected hour, day, week or month/, 'no unit');
    like(lua('return rl.limiter { limit = 5, window = "day", window_type = "moving" }'),
        qr/^false .*"window_type": expected "fixed"/, 'another type');
    stop();
};

subtest 'a weight is the share of the previous window that counts' => sub {
    start(%conf);
    # All rates are read in one window; the previous window has ten hits.
    is(lua(<<'    END'), 'true 4 6.5 9 14 9 14', 'none of it, parts of it, all of it');
        local function window() ngx.update_time() return math.floor(ngx.now()) end
        local function sleep_until_next(first)
            while window() == first do ngx.sleep(0.005) end
            return window()
        end
        local key, rates = 0
        repeat
            key = key + 1
            local first = sleep_until_next(window())
            rl.increment(key .. "", 1, 10)
            local second = sleep_until_next(first)
            rl.increment(key .. "", 1, 4)
            rates = {}
            for _, weight in ipairs { 0, 0.25, 0.5, 1 } do
                rates[#rates + 1] = rl.sliding_window(key .. "", 1, nil, nil, weight)
            end
            rates[#rates + 1] = rl.increment(key .. "", 1, 0, "default", 0.5)
            rates[#rates + 1] = rl.increment(key .. "", 1, 0, nil, 1)
        until second == first + 1 and window() == second
        return unpack(rates)
    END
    stop();
};

subtest 'names arrive as they are, whatever is collected meanwhile' => sub {
    start(%conf);
    my $garbled = lua(<<'    END');
        collectgarbage("setpause", 50)
        local function check(expected, call, options)
            local ok, err = pcall(call, options)
            return not ok and err:find(expected, 1, true) and 0 or 1, err
        end
        -- Options that are made as they are read, and of which nothing else is left; what is made next takes their place.
        local function fresh(values)
            return setmetatable({}, { __index = function(_, name)
                for _ = 1, 20 do local _ = ("%s %s"):format(tostring({}), tostring({})) end
                collectgarbage()
                local value = values[name]
                return type(value) == "string" and value:gsub("%%", tostring(math.random(1e6, 9e6))) or value
            end }), values
        end
        local garbled, last = 0
        local function count(...)
            local wrong, err = check(...)
            garbled = garbled + wrong
            last = wrong == 1 and err or last
        end
        for number = 1, 2000 do
            local name = "n" .. number .. ("x"):rep(number % 40)
            count('unknown namespace "' .. name .. '"', rl.limiter, { namespace = "n" .. number .. ("x"):rep(number % 40), limit = 5, window = 60 })
            count('not "w' .. number .. '"', rl.limiter, { limit = 5, window = 60, window_type = "w" .. number })
            count('zone, not "z' .. number .. '"', rl.new, { namespace = "s" .. number, dict = "z" .. number, sync_rate = -1 })
            count('strategy "s' .. number .. '"', rl.new, { namespace = "s" .. number, sync_rate = 1, strategy = "s" .. number,
                strategy_opts = { server = { "10.0.0." .. number, number .. "" }, database = number } })
            if number % 100 == 0 then
                count('not "zone-', rl.new, (fresh { namespace = "name-%", dict = "zone-%", sync_rate = -1 }))
                count('not "type-', rl.limiter, (fresh { limit = 5, window = 60, window_type = "type-%" }))
                count('unknown namespace "name-', rl.limiter, (fresh { namespace = "name-%", limit = 5, window = 60, window_type = "fixed" }))
                count('invalid server "a:b:', rl.new, (fresh { namespace = "name-%", sync_rate = 1, strategy = "redis",
                    strategy_opts = { server = "a:b:" .. number }, window_sizes = { 60 } }))
            end
        end
        local instances = {}
        for number = 1, 2000 do instances[number] = rl.new_instance("i" .. number) end
        for number = 1, 2000 do garbled = garbled + (rl.new_instance("i" .. number) == instances[number] and 0 or 1) end
        return garbled, last
    END
    is($garbled, 'true 0', 'no name was another one');
    stop();
};

subtest 'instances, and what they define' => sub {
    start(%conf, http => $conf{http} . 'ratelimit_namespace listed { window_sizes 1s 366d; }');
    is(lua('return rl.new_instance("one") == rl.new_instance("one"), rl.new_instance("one") ~= rl.new_instance("two")'),
        'true true true', 'a name is an instance');
    is(lua('t.one = rl.new_instance("one") return t.one.new { namespace = "mine", dict = "counters", window_sizes = { 366 * 86400, 0.5 } }'),
        'true true', 'a namespace');
    like(lua('t.one.new { namespace = "mine" }'), qr/^false .*namespace "mine" is defined already$/, 'twice');
    is(lua("return t.one.increment('k', $year, 1, 'mine'), t.one.increment('l', 0.5, 2, 'mine')"), 'true 1 2', 'its counters');
    like(lua('rl.increment("k", 60, 1, "mine")'), qr/^false .*unknown namespace "mine"/, 'another instance has it not');
    like(lua('t.one.increment("k", 61, 1, "mine")'), qr/^false .*"window_size": expected one of .*\(500ms, 366d\)/, 'other windows');
    is(lua("return rl.new { namespace = 'mine' }, rl.increment('k', $year, 1, 'mine')"), 'true true 2', 'until it defines it');
    is(lua("return rl.new { namespace = 'listed' }, rl.increment('k', $year, 1, 'listed')"), 'true true 1', 'one of nginx.conf');
    like(lua('rl.increment("k", 60.5, 1, "listed")'), qr/^false .*\(1s, 366d\)/, 'is what that says');
    is($node->logged(qr/\[warn\] .*namespace "listed" is defined in \S+nginx\.conf:\d+, too/), 1, 'with a warning');
    is(lua('return rl.new {}'), 'true true', 'the default one');
    $node->stop(qr/is defined/);
};

subtest 'a limiter has the shape of resty.limit' => sub {
    start(%conf, rules => {rule => 'limit=3/366d'});
    is(lua("t.lim = rl.limiter { limit = 3, window = $year } return t.lim:incoming('a', true)"), 'true 0 2', 'one');
    is(lua("return t.lim:incoming('a', false)"), 'true 0 1', 'one that is not committed');
    is($node->rate(rule => 'a'), 2, 'a request');
    is(lua("return t.lim:incoming('a', true)"), 'true 0 0', 'the last');
    is(lua("return t.lim:incoming('a', true)"), 'true nil rejected', 'no more');
    is($node->hit(rule => 'a'), 429, 'nor a request');
    is(lua("return t.lim:uncommit('a')"), 'true true', 'one is given back');
    is($node->hit(rule => 'a'), 200, 'and used');
    is(lua("return t.lim:incoming('b', true, 2.5)"), 'true 0 0.5', 'one that costs more');
    like(lua("return t.lim:uncommit('c')"), qr/^true nil this worker has no hits of the key/, 'of another key there is none');
    # As in resty.limit.req, the excess is the number of waiting hits, and the delay is the time in which they leak.
    is(lua('t.slow = rl.limiter { rate = 0.001, burst = 2 } return t.slow:incoming("r", true)'), 'true 0 0', 'a rate');
    like(lua('return t.slow:incoming("r", true)'), qr/^true (?:1000|999\.\d+) (?:1|0\.99\d)$/, 'with a delay and an excess');
    like(lua('return t.slow:incoming("r", false)'), qr/^true (?:2000|1999\.\d+) (?:2|1\.99\d)$/, 'which are told of what is not committed');
    is(lua('return t.slow:incoming("r", true, 2)'), 'true nil rejected', 'no more');
    is(lua('return t.slow:uncommit("r")'), 'true true', 'one is given back');
    like(lua('return t.slow:incoming("r", true)'), qr/^true (?:1000|999\.\d+) (?:1|0\.99\d)$/, 'and used');
    is(lua('return t.slow:incoming("s", true, 0.5)'), 'true 0 0', 'a part of a hit has no excess');
    # Repeats the arithmetic of resty.limit.req, with random pauses.
    is(lua(<<"    END"), 'true fine', 'delays and excesses are those of resty.limit.req');
        local rate, burst, wrong = 40, 5
        local lim, excess, last = rl.limiter { rate = rate, burst = burst }
        for number = 1, 60 do
            ngx.update_time()
            local before = ngx.now()
            local delay, told = lim:incoming("t", true)
            local now, expected = before * 1000, 0
            if last then expected = math.max(excess - rate * (now - last) / 1000 + 1, 0) end
            if expected > burst then
                if delay or told ~= "rejected" then wrong = "not rejected: " .. expected end
            else
                if not delay or math.abs(told - expected) > 0.0011 or math.abs(delay - told / rate) > 0.0011 then
                    wrong = table.concat({ tostring(delay), tostring(told), expected }, " ")
                end
                excess, last = told or 0, now
            end
            ngx.sleep(math.random(1, 30) / 1000)
        end
        return wrong or "fine"
    END
    is(lua(<<"    END"), 'true 0 70000', 'one may be made for each request');
        local delay, remaining
        for _ = 1, 70000 do
            delay, remaining = rl.limiter({ limit = 140000, window = $year, window_type = "fixed" }):incoming("each", true)
        end
        return delay, remaining
    END
    is(lua('t.conn = rl.limiter { concurrent = 2 } return t.conn:incoming("c", true)'), 'true 0 1', 'requests under way, as in resty.limit.conn');
    is(lua('return t.conn:incoming("c", false)'), 'true 0 2', 'one that is not committed');
    is(lua('return t.conn:incoming("c", true)'), 'true 0 2', 'the second');
    is(lua('return t.conn:incoming("c", true)'), 'true nil rejected', 'no more');
    like($node->body('/metrics'), qr/^ratelimit_concurrent\{namespace="default"\} 2$/m, 'the metric');
    is(lua('return t.conn:leaving("c")'), 'true true', 'one leaves');
    is(lua('return t.conn:incoming("c", true)'), 'true 0 2', 'and another one comes');
    is(lua('return t.conn:uncommit("c")'), 'true true', 'one is taken back');
    is(lua('return t.conn:leaving("c")'), 'true true', 'the last leaves');
    like(lua('return t.conn:leaving("c")'), qr/^true nil this worker has no request of the key under way/, 'and none is left');
    # Combines limiters as resty.limit.traffic does: all are called, the last one with commit; then the others commit.
    is(lua(<<"    END"), 'true 0 nil rejected 3 2', 'as resty.limit.traffic combines them');
        local one = rl.limiter { limit = 3, window = $year, window_type = "fixed" }
        local other = rl.limiter { limit = 2, window = $year - 1 }
        local function combine(limiters, keys)
            local n, most = #limiters, 0
            for i = 1, n do
                local delay, err = limiters[i]:incoming(keys[i], i == n)
                if not delay then return nil, err end
                most = math.max(most, delay)
            end
            for i = 1, n - 1 do
                local delay, err = limiters[i]:incoming(keys[i], true)
                if not delay then
                    for j = 1, i - 1 do limiters[j]:uncommit(keys[j]) end
                    limiters[n]:uncommit(keys[n])
                    return nil, err
                end
            end
            return most
        end
        rl.increment("user", $year, 1)
        combine({ one, other }, { "user", "host" })
        local second = combine({ one, other }, { "user", "host" })
        local delay, err = combine({ one, other }, { "user", "host" })
        return second, delay, err, rl.sliding_window("user", $year, nil, nil, 0), rl.sliding_window("host", $year - 1)
    END
    $node->stop(qr/rejected by/);
};

subtest 'requests that a killed worker had under way are given back' => sub {
    start(%conf);
    my $comes = 't.conn = t.conn or rl.limiter { concurrent = 1 } return t.conn:incoming("k", true)';
    is(lua($comes), 'true 0 1', 'one comes');
    is(lua($comes), 'true nil rejected', 'no more');
    kill KILL => $node->workers;
    eventually(sub { lua($comes) }, 'true 0 1', 'one comes to the next worker');
    $node->stop(qr/exited on signal 9/);
};

subtest 'the examples of docs/lua.md' => sub {
    open my $in, '<', "$FindBin::Bin/../docs/lua.md" or die "cannot read docs/lua.md: $!\n";
    my $page = do { local $/; <$in> };
    my ($login) = $page =~ /^( {8}location \/login \{.*?^ {8}\}\n)/ms or die "no example\n";
    $login =~ s/proxy_pass http:\/\/backend;/empty_gif;/;
    start(%conf, server => $conf{server} . $login);
    is(join(' ', map { $node->plain('/login') } 1 .. 7), '200 200 200 200 200 429 429', 'the first: five logins, and no more');
    my @pieces = $page =~ /^```lua\n(.*?)^```/gms;
    is(scalar @pieces, 2, 'pieces of Lua');
    is(lua("assert(loadstring([==[$_]==])) return true"), 'true true', 'is Lua') for @pieces;
    my ($limiter) = grep {/limiter:incoming/} @pieces;
    $limiter =~ s/^local limiter = ratelimiting(.*)$/t.example = t.example or rl$1 local limiter, key = t.example, "k"/m;
    $limiter =~ s/limit = 100/limit = 2/;
    is(lua("$limiter return 'admitted'"), 'true admitted', 'a limiter admits') for 1, 2;
    is(lua("local ngx = { exit = function(code) return code end } $limiter"), 'true 429', 'and refuses');
    $node->stop(qr/rejected by/);
};

subtest 'a wrong argument throws an error that names it' => sub {
    start(%conf);
    for (['increment(5, 60, 1)', 'key'], ['increment(nil, 60, 1)', 'key'], ['increment({}, 60, 1)', 'key'],
        ['increment("", 60, 1)', 'key'],
        ['increment("k", "60", 1)', 'window_size'], ['increment("k", 0/0, 1)', 'window_size'],
        ['increment("k", -1, 1)', 'window_size'], ['increment("k", 1/0, 1)', 'window_size'],
        ['increment("k", 60)', 'value'], ['increment("k", 60, "1")', 'value'], ['increment("k", 60, -1)', 'value'],
        ['increment("k", 60, 0/0)', 'value'], ['increment("k", 60, 1e300)', 'value'],
        ['increment("k", 60, 1, 5)', 'namespace'], ['increment("k", 60, 1, "a b")', 'namespace'],
        ['increment("k", 60, 1, "none")', 'unknown namespace'], ['increment("k", 60, 1, nil, "0")', 'weight'],
        ['increment("k", 60, 1, nil, 1.5)', 'weight'], ['increment("k", 60, 1, nil, -1)', 'weight'], ['sliding_window("k", 60, nil, nil, 0/0)', 'weight'], ['sliding_window("k")', 'window_size'],
        ['sliding_window("k", 60, "1")', 'cur_diff'], ['sliding_window("k", 60, 0/0)', 'cur_diff'],
        ['sync(false, {})', 'namespace'], ['sync(false, "none")', 'unknown namespace'], ['fetch(false, nil, "1")', 'time'],
        ['fetch(false, nil, -1)', 'time'], ['fetch(false, nil, 1, "x")', 'timeout'], ['fetch(false, nil, 1, 0/0)', 'timeout'],
        ['new_instance()', 'instance_name'], ['new_instance("")', 'instance_name'], ['new()', 'options'],
        ['new("x")', 'options'], ['new { dictionary = "x" }', 'unknown option'], ['new { dict = 5 }', 'dict'],
        ['new { namespace = "x", dict = "none" }', 'dict'], ['new { namespace = "off" }', 'namespace'], ['new { sync_rate = "1" }', 'sync_rate'],
        ['new { sync_rate = 0/0 }', 'sync_rate'], ['new { sync_rate = 1 }', 'sync_rate'],
        ['new { window_sizes = 5 }', 'window_sizes'], ['new { window_sizes = { "x" } }', 'window_sizes'],
        ['new { window_sizes = { -1 } }', 'window_sizes'], ['new { strategy = {} }', 'strategy'],
        ['new { strategy_opts = "x" }', 'strategy_opts'], ['limiter()', 'options'], ['limiter {}', 'limit'],
        ['limiter { limit = 5 }', 'window'], ['limiter { limit = "5", window = 60 }', 'limit'],
        ['limiter { limit = 5, window = 60, window_type = "x" }', 'window_type'], ['limiter { rate = -1 }', 'rate'],
        ['limiter { rate = 5, burst = 0/0 }', 'burst'], ['limiter { concurrent = 1.5 }', 'concurrent'],
        ['limiter { concurrent = 1, limit = 5 }', 'limit'], ['limiter { concurrent = 1, window_type = "fixed" }', 'window_type'],
        ['limiter { limit = 100000.001, window = 60, window_type = "moving" }', 'limit'], ['limiter { limit = 1, window = 1, namespace = "none" }', 'unknown namespace']) {
        my ($call, $word) = @$_;
        like(lua("return rl.$call"), qr/^false (?:\S+: )?(?:invalid argument "$word"|$word)/, $call);
    }
    for (['5, true', 'key'], ['"", true', 'key'], ['nil, true', 'key'], ['"k", true, "x"', 'cost'], ['"k", true, 0/0', 'cost'],
        ['"k", true, 0', 'cost']) {
        my ($arguments, $word) = @$_;
        like(lua("t.lim = t.lim or rl.limiter { limit = 5, window = 60 } return t.lim:incoming($arguments)"),
            qr/^true nil invalid argument "$word"/, "incoming($arguments) returns it");
    }
    like(lua('return t.lim:uncommit(5)'), qr/^true nil invalid argument "key"/, 'and so does uncommit');
    is(lua('return rl.increment("k", 60, 1)'), 'true 1', 'after all that');
    stop();
};

subtest 'arguments at random' => sub {
    start(%conf, workers => 1);
    my ($worker) = $node->workers;
    like(LuaNode::run_at_random($node, 20_000), qr/^true \d\d\d+ \d\d\d+ fine$/, 'each is refused in words, or done');
    is_deeply([$node->workers], [$worker], 'the worker lives');
    is(lua('return rl.increment("k", 61, 1)'), 'true 1', 'and counts');
    $node->stop(qr/is defined|rejected by|"other" cannot be reached/);
};

subtest 'in each phase' => sub {
    my $init = 't.early = { pcall(rl.increment, "k", 60, 1) } t.one = rl.new_instance("one")';
    my %phases = LuaNode::conf(init => $init, init_worker => 't.one.new { namespace = "mine" } t.one.increment("k", 366 * 86400, 1, "mine")');
    my $count = "rl.increment(ngx.get_phase(), $year, 1)";
    my $server = <<"    END" . $phases{server};
        location /phases {
            set_by_lua_block \$x { $count }
            rewrite_by_lua_block { $count }
            access_by_lua_block { $count }
            header_filter_by_lua_block { $count }
            body_filter_by_lua_block { if not t.seen then t.seen = true $count end }
            log_by_lua_block { $count ngx.timer.at(0, function() $count t.timed = true end) }
            empty_gif;
        }
    END
    start(%conf, %phases, server => $server);
    like(lua('return unpack(t.early)'), qr/^true false no namespace can be used before workers start/, 'not before workers start');
    is(lua("return t.one.increment('k', $year, 1, 'mine')"), 'true 2', 'from init_worker on');
    isnt($node->body('/phases'), '', 'a request');
    eventually(sub { lua('return t.timed') }, 'true true', 'a timer');
    is(lua("return rl.sliding_window('$_', $year)"), 'true 1', $_)
        for qw(set rewrite access header_filter body_filter log timer);
    stop();
};

subtest 'under load and through reloads, a limit is exact' => sub {
    my %limited = LuaNode::conf(limiter => "limit = 500, window = $year",
        init_worker => 'rl.new_instance("x").new { namespace = "of_workers" }');
    start(%conf, %limited, workers => 2);
    my @loads = map { $node->load('k', 'l') } 1 .. 3;
    for my $number (1 .. 3) {
        # Other callers make random calls.
        like(LuaNode::run_at_random($node, 2000, $number), qr/^true \d+ \d+ fine$/, 'calls at random');
        $node->reload;
    }
    my @sums = map { $_->(800) } @loads;
    is(sum0(map { $_->{200} } @sums), 1000, 'of two keys, each got its limit');
    cmp_ok(sum0(map { $_->{429} } @sums), '>=', 1000, 'and no more');
    is(lua("return rl.sliding_window('k', $year, nil, 'default')"), 'true 500', 'which is what was counted');
    $node->stop(qr/is defined|rejected by|"other" cannot be reached/);
};

done_testing();

sub start { $node->start(@_) }
sub stop  { $node->stop }
sub lua   { LuaNode::run($node, @_) }
