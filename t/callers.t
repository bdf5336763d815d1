# Tests callers of the library, in Lua and in C, that wait for a store: a caller may close its connection or
# be killed, and its worker may exit or get a new configuration. Some results are never collected.
#
# This is a plain Perl test; lib/OwnNginx.pm describes its environment. It uses the ports TEST_NGINX_PORT + 2
# and + 4. Without a lua-nginx-module for this nginx, it runs only the tests in C.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require CModule;
    require LuaNode;
    $ENV{TEST_NGINX_LOAD_MODULES} = join ' ', $ENV{TEST_NGINX_LOAD_MODULES} // (),
        CModule::compile('c_api');
    $has_lua = LuaNode::is_there();
}
use Node;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my $year = 366 * 24 * 3600;
my ($node) = @nodes;
$store = Redis->new(port => $port + 4);
$store->be_empty;

subtest 'in C: an answer is taken once, and nothing is asked while another configuration begins' => sub {
    # A single process that is both master and worker.
    $node->start(with_c(single => 1));
    my $h = handle('find', n => 'asked');
    is(c('increment_async', h => $h, k => 'c', w => $year), "0 rate=1 remaining=0 delay=0 retry_after=0", 'the store answers');
    like(c('increment_async', h => $h, k => 'c', w => $year, again => $h), qr/^0 rate=2 .* again=2$/, 'and is asked again');
    eventually(sub { $store->total(asked => 'again') }, 1, 'which counts');
    $store->pause;
    my $waiting = c_begin('increment_async', h => $h, k => 'c', w => $year, again => $h);
    comes_after();
    $node->begin_reload;
    like($waiting->(), qr/^0 rate=\S+ .* again=0$/, 'one that waited was decided here, and so was what it asked then');
    $store->go_on;
    # After a reload, such a process accepts no new connections.
    $node->stop(qr/worker_connections are not enough/);
};

subtest 'in C: a request that ends while it waits is forgotten' => sub {
    $node->start(with_c(workers => 1));
    my ($worker) = $node->workers;
    my $h = handle('find', n => 'asked');
    $store->pause;
    for (1 .. 20) {
        my $socket = c_send('increment_async', h => $h, k => 'left', w => $year);
        close $socket;
    }
    $store->go_on;
    eventually(sub { $store->total(asked => 'left') }, 20, 'the hits were counted');
    is_deeply([$node->workers], [$worker], 'the worker lives');
    $node->stop;
};

subtest 'in C: answers that are never taken are forgotten one day' => sub {
    $node->start(with_c(workers => 1));
    my $h = handle('find', n => 'asked');
    my ($first) = c('leak', h => $h, w => $year, times => 1) =~ /^2 (\d+)$/;
    my $last = $first;
    my $asked = 1;
    while ($asked < 65536) {
        ($last) = c('leak', h => $h, w => $year, times => 64) =~ /^2 (\d+)$/ or last;
        $asked += 64;
        eventually(sub { $store->total(asked => 'leak') >= $asked ? 'all' : '' }, 'all', 'counted') if $asked % 8192 == 1;
    }
    cmp_ok($asked, '>=', 65536, 'so many were asked');
    like(c('take', ticket => $first), qr/^-1 rate=-77 .*invalid argument "ticket"/, 'the first answer is gone');
    eventually(sub { c('take', ticket => $last) }, sub { $_[0] =~ /^0 rate=\d+ / }, 'the last is there');
    like(c('take', ticket => $last), qr/^-1 /, 'once');
    $node->stop;
};

subtest 'in C: arguments at random where a store decides, under load and through a reload' => sub {
    $node->start(with_c(workers => 1, rules => {hit => 'asked limit=1000000/366d'}));
    my $load = $node->load('load');
    for my $time (1, 2) {
        my @handles = (handle('find', n => 'asked'), handle('find', n => 'default'),
            handle('new_limiter', n => 'asked', limit => 3, w => $year));
        my ($worker) = $node->workers;
        my %codes = CModule::call_at_random(\&c, 1000, @handles);
        ok(!$codes{-9} && !$codes{wrong}, 'no fault: ' . join ', ', map {"$_: $codes{$_}"} sort keys %codes);
        is_deeply([$node->workers], [$worker], 'the worker lives');
        $node->reload if $time == 1;
    }
    my $sum = $load->();
    eventually(sub { $store->total(asked => 'load') }, $sum->{200}, 'what was admitted meanwhile was counted, once');
    $node->stop(qr/is defined/);
};

if ($has_lua) {
    in_lua();
}

done_testing();

sub in_lua {
    my $wait = "rl.increment('k', $year, 1, 'asked')";
    my %more = (
        server => <<"        END",
        location /left   { lua_check_client_abort on; content_by_lua_block { rl.increment('left', $year, 1, 'asked') } }
        location /killed {
            content_by_lua_block {
                local threads = {}
                for number = 1, 10 do
                    threads[number] = ngx.thread.spawn(function() rl.increment('killed', $year, 1, 'asked') end)
                end
                for number = 1, 10 do
                    assert(ngx.thread.kill(threads[number]))
                end
                threads = nil
                collectgarbage()
                collectgarbage()
                ngx.print("killed")
            }
        }
        location /waits  { content_by_lua_block { ngx.print(rl.increment('waits', $year, 1, 'asked')) } }
        END
    );
    subtest 'in Lua: requests that end, and threads that are killed' => sub {
        $node->start(with_lua(%more, workers => 1));
        my ($worker) = $node->workers;
        $store->flush;
        is(LuaNode::run($node, "return $wait"), 'true 1', 'the store answers');
        $store->pause;
        for (1 .. 10) {
            my $socket = $node->connection;
            print $socket "GET /left HTTP/1.0\r\n\r\n";
            close $socket;
        }
        is($node->body('/killed'), 'killed', 'threads');
        is(LuaNode::run($node, 'collectgarbage() return "lives"'), 'true lives', 'the worker goes on');
        $store->go_on;
        eventually(sub { $store->total(asked => 'killed') }, 10, 'the hits of threads were counted');
        eventually(sub { $store->total(asked => 'left') }, 10, 'and those of requests');
        is(LuaNode::run($node, "return $wait"), 'true 2', 'others are answered');
        is_deeply([$node->workers], [$worker], 'by the same worker');
        $node->stop;
    };
    subtest 'in Lua: a reload, and the end of a worker' => sub {
        $node->start(with_lua(%more, workers => 1));
        $store->flush;
        is($node->body('/waits'), 1, 'the store answers');
        $store->pause;
        my $waiting = begin('/waits');
        comes_after();
        my @before = $node->workers;
        my $reloaded = $node->begin_reload;
        $node->wait_for('a new worker', sub { my @now = $node->workers; "@now" ne "@before" });
        $store->go_on;
        is($waiting->(), 2, 'one that waited through a reload was answered by the store');
        $reloaded->();
        $store->pause;
        $waiting = begin('/waits');
        comes_after();
        kill QUIT => $node->{master};
        $node->wait_for('a worker that exits', sub { $node->logged(qr/gracefully shutting down/) == 2 });
        $store->go_on;
        is($waiting->(), 3, 'and one that waited when its worker was told to exit');
        $node->stop;
        $node->start(with_lua(%more, workers => 2));
        $store->pause;
        my @waiting = map { begin('/waits') } 1 .. 5;
        comes_after();
        $node->stop(undef, 'TERM');
        $store->go_on;
        is(join('', map { $_->() } @waiting), '', 'those of a worker that ends at once have no answer');
    };
    subtest 'in Lua: arguments at random where a store decides, under load and through a reload' => sub {
        $node->start(with_lua(%more, workers => 2));
        $store->flush;
        my $load = $node->load('load');
        for my $seed (1 .. 3) {
            like(LuaNode::run_at_random($node, 2000, $seed, 'asked'), qr/^true \d+ \d+ fine$/, "seed $seed");
            $node->reload;
        }
        my $sum = $load->();
        eventually(sub { $store->total(asked => 'load') }, $sum->{200}, 'what was admitted meanwhile was counted, once');
        $node->stop(qr/is defined|rejected by|"other" cannot be reached/);
    };
    subtest 'in Lua: without lua-resty-core' => sub {
        my %conf = with_lua(%more);
        my $init = 'package.preload["ngx.semaphore"] = function() error("not here") end package.loaded["ngx.semaphore"] = nil';
        $node->start(%conf, http => $conf{http} =~ s/init_by_lua_block \{/init_by_lua_block { $init /r);
        like(LuaNode::run($node, "return $wait"), qr/^true nil a store decides, which takes lua-resty-core's ngx.semaphore: .*not here/,
            'an error says what is missing');
        like(LuaNode::run($node, "return rl.increment('other', $year, 1)"), qr/^true 1$/, 'other namespaces need it not');
        $node->stop;
    };
    subtest 'in Lua: at the end of a worker' => sub {
        my $exit = 'exit_worker_by_lua_block { local ok, err = pcall(rl.increment, "k", 60, 1) ngx.log(ngx.NOTICE, "exit: ", tostring(err)) }';
        my %conf = with_lua(%more, workers => 1);
        $node->start(%conf, http => $conf{http} . $exit);
        is($node->body('/waits') > 0, 1, 'a worker');
        $node->stop;
        is($node->logged(qr/exit: .*this process has ended its work/), 1, 'that has ended counts nothing more');
    };
}

# Returns the configuration of a node whose store decides in the namespace `asked`.
sub with_c {
    my %conf = (server => '', @_);
    return (
        conf(name => 'asked', sync_rate => 0, namespace => 'timeout 30s;', limit => 1_000_000),
        %conf, server => $conf{server} . 'location /c { c_api_test; }'
    );
}

sub with_lua {
    my %conf = with_c(@_);
    my %lua  = LuaNode::conf();
    return (%conf, http => $conf{http} . $lua{http}, server => $conf{server} . $lua{server});
}

# Calls a C function and returns the response, as in c-api.t.
sub c { return received(c_send(@_)) }

# Starts a call of a C function; returns a function that waits for the response.
sub c_begin {
    my $socket = c_send(@_);
    return sub { received($socket) };
}

sub c_send {
    my ($function, %arguments) = @_;
    return sent('/c?' . CModule::query($function, %arguments));
}

# Sends a request; returns a function that waits for the response.
sub begin {
    my ($path) = @_;
    my $socket = sent($path);
    return sub { received($socket) };
}

sub sent {
    my ($path) = @_;
    my $socket = $node->connection or die "no connection: $!\n";
    print $socket "GET $path HTTP/1.0\r\n\r\n";
    return $socket;
}

sub received {
    my ($socket) = @_;
    local $/;
    my ($body) = (<$socket> // '') =~ m{^HTTP/1\.1 200.*?\r\n\r\n(.*)}s or return '';
    $body =~ s/ +\z//;
    return $body;
}

# Makes a request. Its response shows that nginx has read all earlier ones, which therefore wait.
sub comes_after { c('version') =~ /^1 / or fail('a request that comes after') }

sub handle {
    my ($handle) = c(@_) =~ /^[02] ([1-9]\d*)$/ or fail("@_");
    return $handle;
}
