# Tests the Lua functions of the library with a store: `sync` and `fetch`. lua.t has the tests without a store.
#
# This is a plain Perl test that needs Debian's lua-nginx-module; lib/OwnNginx.pm describes its environment. It uses
# the ports TEST_NGINX_PORT + 2 to + 4. Windows have 366 days, so that none ends during a test.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require LuaNode;
    $has_lua = LuaNode::is_there();
}
use Node;
use Postgres;
use Redis;
use TwoNodes;

if (!$has_lua) {
    pass('there is no lua-nginx-module for this nginx');
    done_testing();
    exit;
}

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n" if !Postgres::is_there();

my ($a, $b) = @nodes;

$store = Redis->new(port => $port + 4);

subtest 'no sync is skipped, whatever is under way' => sub {
    $store->be_empty;
    # After the first cycle, the next periodic one would follow in an hour.
    $a->start(with_lua(sync_rate => '1h'));
    $a->wait_for_first_sync;
    for my $number (1 .. 3) {
        $a->hit(hit => 'k');
        is(lua($a, 'return rl.sync(false, "api")'), 'true true', 'a sync');
        eventually(sub { $store->total(api => 'k') }, $number, 'pushes what was counted');
    }
    $store->pause;
    $a->hit(hit => 'k');
    my %asked;
    # One worker has the lease and waits for the store; the other worker waits for it.
    $a->wait_for('a sync of both workers', sub {
        $asked{lua($a, 'return rl.sync(false, "api") and ngx.worker.id()')} = 1;
        return keys %asked == 2;
    });
    $a->hit(hit => 'k');
    is(lua($a, 'return rl.sync(false, "api")'), 'true true', 'another sync while they wait');
    $store->go_on;
    eventually(sub { $store->total(api => 'k') }, 5, 'pushes what was counted meanwhile');
    stop();
};

use constant YEAR => 366 * 24 * 3600;

# Tests namespaces that Lua defines in `init_by_lua`, with a store that Lua or nginx.conf defines.
sub defined_in_lua {
    my ($label, $strategy) = ($store->label, $store->strategy);
    my $new = "namespace = 'mine', sync_rate = 0.05, window_sizes = { @{[YEAR]} }";
    subtest "$label: nodes share a namespace that Lua defines, once it is synced" => sub {
        my $init = "rl.new { $new, strategy = '$strategy', strategy_opts = { server = '127.0.0.1:$store->{port}' } }";
        $_->start(lua_conf(init => $init)) for @nodes;
        for my $number (1 .. 3) {
            is(lua($_, count('mine')), "true $number", 'it counts') for @nodes;
        }
        is(total('mine'), 0, 'in the node alone, as nothing syncs it');
        is(lua($a, 'return rl.sync(true, "mine")'), 'true', 'nor does a premature one');
        is(lua($a, 'return rl.fetch(false, "mine", ngx.time(), 5)'), 'true true', 'a fetch');
        eventually(sub { total('mine') }, 3, 'pushes, too');
        is(lua($b, 'return rl.sync(false, "mine")'), 'true true', 'the first sync of the other');
        eventually(sub { rate($b, 'mine') }, 'true 6', 'fetches and pushes');
        eventually(sub { total('mine') }, 6, 'once');
        is(lua($b, count('mine')), 'true 7', 'one more hit');
        eventually(sub { total('mine') }, 7, 'is pushed by its timer');
        is(lua($a, 'return rl.sync(false, "mine")'), 'true true', 'a sync of the node that has none');
        eventually(sub { rate($a, 'mine') }, 'true 7', 'fetches it');
        is(lua($b, count('mine')), 'true 8', 'a hit of the other');
        eventually(sub { rate($a, 'mine') }, 'true 8', 'by its timer, too');
        stop();
    };
    subtest "$label: from init_worker_by_lua on, and after a reload" => sub {
        my $init = "rl.new { $new, store = 'main' } rl.new_instance('other').new { $new, strategy = '$strategy' }";
        # With a shared dictionary, lua-nginx-module runs `init_by_lua` at a later time.
        my %conf = lua_conf(init => $init, init_worker => 'rl.sync(false, "mine")');
        $a->start(%conf, http => "lua_shared_dict dict 64k; $conf{http}");
        my $before = total('mine');
        eventually(sub { rate($a, 'mine') }, "true $before", 'what the store has');
        lua($a, count('mine'));
        eventually(sub { total('mine') }, $before + 1, 'a hit');
        $a->reload;
        lua($a, count('mine'));
        eventually(sub { total('mine') }, $before + 2, 'and one after a reload');
        lua($a, count('mine')) for 1 .. 5;
        $a->stop(qr/"mine" is defined in another instance, too/);
        is(total('mine'), $before + 7, 'the remaining hits are pushed at the end');
    };
    subtest "$label: the store decides in a namespace that Lua defines" => sub {
        my $init = "rl.new { namespace = 'asked', sync_rate = 0, window_sizes = { @{[YEAR]} }, store = 'main' }";
        $_->start(lua_conf(init => $init)) for @nodes;
        # If a response is late, the node decides by itself; then the test tries again with another key.
        my $tries = 0;
        my $try   = sub {
            my $call = sprintf "('k%d', %d, %%s 'asked')", ++$tries, YEAR;
            my @counted = map { lua($_, 'return rl.increment' . sprintf $call, '1,') } @nodes, @nodes;
            return join ' ', @counted, map { lua($_, 'return rl.sliding_window' . sprintf $call, 'nil,') } @nodes;
        };
        eventually($try, 'true 1 true 2 true 3 true 4 true 4 true 4', 'each node is told of all hits');
        stop();
    };
}

subtest 'a namespace that was used has no store any more' => sub {
    my %conf = lua_conf();
    $a->start(%conf, http => "$conf{http} ratelimit_namespace listed {}", rules => {rule => 'listed limit=1/366d'}, workers => 1);
    is(lua($a, 'return rl.increment("k", 60, 1)'), 'true 1', 'the default one is local');
    my $new = 'rl.new { sync_rate = 1, store = "main", window_sizes = { 60 } }';
    like(lua($a, $new), qr/^false .*namespace "default" is local, as it was used before it was defined: expected /, 'and stays so');
    is(lua($a, "return rl.new_instance('other').new { namespace = 'x' }"), 'true true', 'a local one');
    my $other = 'rl.new_instance("third").new { namespace = "x", sync_rate = 1, store = "main", window_sizes = { 60 } }';
    is(lua($a, "return $other"), 'true true', 'is what was said first');
    $a->stop(qr/"x" is defined in another instance, too/);
};

# Tests namespaces that workers define at run time, each for itself.
sub defined_in_workers {
    my ($label, $strategy) = ($store->label, $store->strategy);
    my $sizes = "window_sizes = { @{[YEAR]} }";
    my $opts  = "strategy = '$strategy', strategy_opts = { server = '127.0.0.1:$store->{port}', timeout = 5, connect_timeout = 5 }";
    subtest "$label: workers define a namespace while they serve" => sub {
        my $define = "rl.new { namespace = 'late', sync_rate = 0.05, $sizes, $opts }";
        my %conf   = lua_conf();
        $a->start(%conf, workers => 2);
        $b->start(%conf, workers => 1);
        like($_, qr/^true \d+ true true$/, 'it is defined, and synced') for on_each($a, "$define, rl.sync(false, 'late')");
        like(lua($b, "return $define, rl.sync(false, 'late')"), qr/^true true true$/, 'by the other node');
        like(lua($a, $define), qr/^false .*namespace "late" is defined already/, 'but not twice');
        my @hits = on_each($a, "rl.increment('k', @{[YEAR]}, 1, 'late') > 0");
        lua($b, count('late'));
        eventually(sub { total('late') }, 3, 'what each worker counts is pushed, once');
        eventually(sub { rate($_, 'late') }, 'true 3', 'and fetched') for $a, $b;
        my ($victim) = $a->workers;
        kill KILL => $victim;
        $a->wait_for('another worker', sub { my @now = $a->workers; @now == 2 && !grep { $_ == $victim } @now });
        my $other = "rl.new { namespace = 'late', sync_rate = 1, $sizes, $opts }";
        # The remaining worker has defined it before.
        my @errors = grep { !/defined already/ } on_each($a, "select(2, pcall(function() return $other end))");
        is(@errors, 1, 'another worker has not defined it');
        like($errors[0], qr/namespace "late": another worker has defined it otherwise: expected the same store, sync_rate and/,
            'and cannot do so otherwise');
        my @joined = grep {/ true true$/} on_each($a, "pcall(function() return $define end)");
        is(@joined, 1, 'but alike');
        on_each($a, "rl.increment('k', @{[YEAR]}, 1, 'late')");
        eventually(sub { total('late') }, 5, 'then it goes on');
        eventually(sub { rate($b, 'late') }, 'true 5', 'for all');
        # A worker that drains keeps its definition, and new workers may define the namespace again.
        my $drains = LuaNode::begin($a, "ngx.sleep(0.5) rl.increment('k', @{[YEAR]}, 1, 'late') return 'counted'");
        my %is_old = map { $_ => 1 } $a->workers;
        $a->begin_reload;
        $a->wait_for('new workers', sub { (grep { !$is_old{$_} } $a->workers) == 2 && !grep { $a->listens($_) } keys %is_old });
        like($_, qr/^true \d+ true true$/, 'workers of the next configuration, too')
            for on_each($a, "rl.new { namespace = 'late', sync_rate = 0.1, $sizes, $opts }, rl.sync(false, 'late')");
        on_each($a, "rl.increment('k', @{[YEAR]}, 1, 'late')");
        is($drains->(), 'true counted', 'one that drains counts on');
        eventually(sub { total('late') }, 8, 'and all of it is pushed');
        lua($a, count('late')) for 1 .. 5;
        stop($killed);
        is(total('late'), 13, 'the remaining hits are pushed at the end');
    };
    subtest "$label: workers define a namespace as they start, and so does a process that is its own master" => sub {
        # With a long sync period, hits near a limit are pushed at once and reach the other node.
        my $new   = "rl.new { namespace = 'early', sync_rate = 3600, $sizes, $opts }";
        my $limit = "rl.limiter { namespace = 'early', limit = 3, window = @{[YEAR]}, window_type = 'fixed' }";
        my %conf  = lua_conf(init_worker => "$new rl.sync(false, 'early')");
        $a->start(%conf, single => 1, workers => 1);
        $b->start(%conf, workers => 2);
        eventually(sub { lua($a, "local _, left = $limit:incoming('first', true) return left ~= nil and rl.sync(false, 'early')") }, 'true true', 'a hit');
        eventually(sub { total('early', 'first') > 0 }, 1, 'is pushed');
        my $number = 0;
        my $told   = sub {
            my $key = 'near' . ++$number;
            lua($a, "$limit:incoming('$key', true)") for 1 .. 2;
            my $rate = "return rl.sliding_window('$key', @{[YEAR]}, nil, 'early')";
            return eval { $b->wait_for('the rate', sub { lua($b, $rate) eq 'true 2' }); 1 } ? 'heard' : 'not heard';
        };
        is($told->(), 'heard', 'a counter near its limit is heard of at once');
        $b->reload;
        is($told->(), 'heard', 'and after a reload');
        my $before = total('early');
        lua($a, count('early')) for 1 .. 3;
        stop();
        is(total('early'), $before + 3, 'the remaining hits are pushed at the end');
    };
    subtest "$label: the store decides in a namespace that workers define" => sub {
        my $define = "rl.new { namespace = 'decided', sync_rate = 0, $sizes, store = 'main' }";
        my %conf   = lua_conf();
        $a->start(%conf, workers => 2);
        $b->start(%conf, workers => 1);
        like($_, qr/^true \d+ true$/, 'it is defined') for on_each($a, $define), on_each($b, $define);
        my $tries = 0;
        my $try   = sub {
            my $call = sprintf "rl.increment('late%d', %d, 1, 'decided')", ++$tries, YEAR;
            my @rates = map {/ (\d+)$/} on_each($a, $call), on_each($a, $call), on_each($b, $call);
            return join ' ', @rates;
        };
        eventually($try, '1 2 3 4 5', 'each worker is told of all hits');
        my $limited = "local lim = rl.limiter { namespace = 'decided', limit = 3, window = @{[YEAR]}, window_type = 'fixed' }"
            . " return lim:incoming('%s', true)";
        my $admitted = sub {
            my $call = sprintf $limited, 'limited' . ++$tries;
            return join ' ', map { lua($_, $call) } $a, $b, $a, $b;
        };
        eventually($admitted, 'true 0 2 true 0 1 true 0 0 true nil rejected', 'and a limit is one of all');
        $store->pause;
        like(lua($a, sprintf $limited, 'alone'), qr/^true 0 2$/, 'a store that hangs is not waited for');
        $store->go_on;
        # The store also had the request and responds too late. Then it may count the hit once more.
        eventually(sub { total('decided', 'alone') }, sub { $_[0] >= 1 }, 'and is told when it is back');
        lua($a, sprintf $limited, 'after');
        eventually(sub { total('decided', 'after') }, sub { $_[0] >= 1 }, 'as of what comes after it');
        cmp_ok(total('decided', 'alone'), '<=', 2, 'at most twice');
        $_->stop(qr/"main" is/) for @nodes;
    };
}

subtest 'definitions with a store that are errors' => sub {
    $a->start(lua_conf(init => <<'    END'));
        t.wrong = {}
        function t.try(options)
            options.namespace = options.namespace or "x"
            options.window_sizes = options.window_sizes or { 60 }
            local ok, err = pcall(rl.new, options)
            return (ok and "done: " or "") .. tostring(err)
        end
        for _, options in ipairs {
            { sync_rate = 1 }, { sync_rate = 0 }, { strategy = "redis" }, { sync_rate = 1, strategy = "oracle" },
            { sync_rate = 1, strategy = "redis", strategy_opts = { tabel = 1 } },
            { sync_rate = 1, strategy = "redis", strategy_opts = { table = "x" } },
            { sync_rate = 1, strategy = "redis", strategy_opts = { server = {} , database = {} , timeout = "x" } },
            { sync_rate = 1, strategy = "redis", strategy_opts = { password_file = "no/such/file" } },
            { sync_rate = 1, strategy = "redis", strategy_opts = { server = print } },
            { sync_rate = 1, strategy = "redis", strategy_opts = { "server" } },
            { sync_rate = 1, strategy_opts = { database = 1 } },
            { sync_rate = 1, strategy = "redis", store = "main" },
            { sync_rate = 1, strategy = "redis", strategy_opts = { store = "main" } },
            { sync_rate = 1, store = "none" }, { sync_rate = 1, strategy_opts = { store = "no ne" } },
            { sync_rate = 1, store = "main", window_sizes = {} }, { sync_rate = 1, store = "main", dict = "none" },
            { sync_rate = 1, store = "main" }, { sync_rate = 1, store = "main" },
            { namespace = "y", sync_rate = -1, strategy = "redis" },
            { namespace = "z", sync_rate = 1, strategy = "redis", strategy_opts = { server = { "127.0.0.1:1", "a:2" }, database = 3, tls = false } },
        } do
            t.wrong[#t.wrong + 1] = t.try(options)
        end
    END
    my @expected = (
        'invalid argument "sync_rate": expected a negative number without "strategy" or "store"',
        'invalid argument "sync_rate": expected a negative number without "strategy" or "store"',
        'invalid argument "sync_rate": expected a number beside "strategy" or "store", not nil',
        'invalid argument "strategy": invalid strategy "oracle"', 'invalid argument "strategy_opts": unknown directive "tabel"',
        'invalid argument "strategy_opts": "table" is an option', 'invalid argument "strategy_opts": invalid timeout "x"',
        'invalid argument "strategy_opts": ', 'invalid argument "strategy_opts": expected a string, number, boolean or list of them as "server"',
        'invalid argument "strategy_opts": expected names of options', 'invalid argument "strategy_opts": expected none without "strategy"',
        'invalid argument "store": expected none with "strategy"', 'invalid argument "store": expected none with "strategy"',
        'invalid argument "store": expected the name of a ratelimit_store', 'invalid argument "store": expected 1 to 64',
        'invalid argument "window_sizes": expected some', 'invalid argument "dict": expected the name of a ratelimit_zone',
        'done: true', 'namespace "x" is defined already', 'done: true', 'done: true',
    );
    my $number = 0;
    for my $text (@expected) {
        $number++;
        like(lua($a, "return t.wrong[$number]"), qr/^true (?:\S+: )?\Q$text\E/, $text);
    }
    is(lua($a, 'return #t.wrong'), 'true ' . @expected, 'these were all');
    like($a->body('/api/namespaces'), qr/"x".*"y".*"z"/s, 'the API knows them');
    stop();
};

$store->kill;
for my $each (Redis->new(port => $port + 4), Postgres->new(port => $port + 4)) {
    $store = $each;
    $store->be_empty;
    defined_in_lua();
    defined_in_workers();
    $store->kill;
}

done_testing();

# Returns the count of the key in the store.
sub total {
    my ($namespace, $key) = @_;
    return eval { $store->total($namespace => $key // 'k') } || 0;
}

# Runs Lua code on each worker of a node; returns the results. Further calls on the same worker do nothing.
my $calls = 0;

sub on_each {
    my ($node, $code) = @_;
    my ($mark, %results) = 'call' . ++$calls;
    $node->wait_for('each worker', sub {
        my $result = lua($node, "if t.$mark then return 'again' end t.$mark = true return ngx.worker.pid(), $code");
        # Ignores a call whose connection ended with its worker.
        $results{$1} = $result if $result =~ /^true (\d+)/ || $result =~ /^(false .*)/s;
        return keys %results == $node->{conf}{workers};
    });
    return values %results;
}


sub count { my ($namespace) = @_; return "return rl.increment('k', @{[YEAR]}, 1, '$namespace')" }

sub rate {
    my ($node, $namespace) = @_;
    return lua($node, "return rl.sliding_window('k', @{[YEAR]}, nil, '$namespace')");
}

# Returns the configuration of a node with Lua and with the store, without a namespace.
sub lua_conf {
    my %conf = conf();
    my %lua  = LuaNode::conf(@_);
    return (%lua, rules => {rule => 'limit=1000/366d'}, http => $conf{http} =~ s/ratelimit_namespace.*//r . $lua{http});
}

# Returns `conf` for a node with Lua.
sub with_lua {
    my %conf = conf(@_);
    my %lua  = LuaNode::conf();
    return (%conf, %lua, http => $conf{http} . $lua{http});
}

sub lua { LuaNode::run(@_) }
