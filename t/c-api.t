# Tests the C API of the library, called by a test module (lib/c_api.c): what the functions count, their
# errors for invalid arguments, and when they can be called.
#
# This is a plain Perl test; lib/OwnNginx.pm describes its environment. Windows have 366 days, so that none
# ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";

BEGIN {
    require CModule;
    $ENV{TEST_NGINX_LOAD_MODULES} = join ' ', $ENV{TEST_NGINX_LOAD_MODULES} // (),
        CModule::compile('c_api');
}
use OwnNginx;

use constant {
    INVALID => -1, UNKNOWN => -2, PHASE => -4, STALE => -8,
};

my $year   = 366 * 24 * 3600;
my %conf   = (
    workers => 1,
    rule    => 'limit=1000/366d',
    http    => 'ratelimit_namespace listed { window_sizes 1s 1m; }',
    server  => 'location /c { c_api_test; }',
);

subtest 'hits that C counts are counted' => sub {
    start(%conf);
    is(c('version'), '1 size=1 has=1', 'the version');
    my $h = handle('find', n => 'default');
    is(hit('a'), '200 r=999', 'a request');
    is(c('increment', h => $h, k => 'a', w => $year, v => 2.5), '0 rate=3.5', 'hits by C');
    is(hit('a'), '200 r=995', 'and a request');
    is(c('sliding_window', h => $h, k => 'a', w => $year), '0 rate=4.5', 'the rate');
    is(c('sliding_window', h => $h, k => 'a', w => $year, diff => 1), '0 rate=1', 'with a diff');
    is(c('sliding_window', h => $h, k => 'b', w => $year), '0 rate=0', 'of a key that was not seen');
    is(c('increment', h => $h, k => 'a', w => $year, v => 0, weight => 0), '0 rate=4.5', 'of a fixed window');
    my @weights = (0, 0.25, 1, -1);
    my $read    = sub {
        my @rates = map { c('sliding_window', h => $h, k => 'w', w => 2, weight => $_) } @weights;
        return join ' ', map {/rate=(\S+)/} @rates;
    };
    # The previous window has ten hits; a sliding window counts a part of them.
    my $tries = 0;
    until (($read->() || '') =~ /^0 2\.5 10 (\d+(?:\.\d+)?)$/ && $1 < 10 || ++$tries > 200) {
        c('increment', h => $h, k => 'w', w => 2, v => 10) if $read->() eq '0 0 0 0';
        select undef, undef, undef, 0.05;
    }
    cmp_ok($tries, '<=', 200, 'a share of the previous window counts, or that of a sliding one');
    is(c('increment', h => $h, k => 'c', w => 60, v => '1e11'), '0 rate=100000000000', 'many hits');
    is(c('increment', h => $h, len => $_, w => $year), '0 rate=1', "of a key of $_ bytes") for 300, 65_535, 65_536, 1_000_000;
    is(hit('k' x 300), '200 r=998', 'which is the same');
    is(c('increment', h => $h, k => "\0\n%\xff", w => $year), '0 rate=1', 'of any bytes');
    is(c('increment_async', h => $h, k => 'd', w => $year), '0 rate=1 remaining=0 delay=0 retry_after=0',
        'one that might wait');
    is(c('sync', h => $h), '0', 'a local namespace needs no sync');
    is(c('fetch', h => $h), '0', 'nor to fetch');
    stop();
};

subtest 'the example of docs/c.md is C' => sub {
    open my $in, '<', "$FindBin::Bin/../docs/c.md" or die "cannot read docs/c.md: $!\n";
    my ($code) = do { local $/; <$in> } =~ /^```c\n(.*?)^```/ms or die "no example\n";
    is(CModule::check_syntax($code), 0, 'the compiler says nothing of it');
};

subtest 'a limiter admits what a rule admits, and shares its counters' => sub {
    start(%conf, rule => 'limit=3/366d');
    my $h = handle('new_limiter', n => 'default', limit => 3, w => $year);
    like(c('incoming', h => $h, k => 'a'), qr/^0 rate=1 remaining=2 delay=0 /, 'one');
    like(c('incoming', h => $h, k => 'a', commit => 0), qr/^0 rate=2 remaining=1 /, 'one that is not committed');
    is(hit('a'), '200 r=1', 'a request');
    like(c('incoming', h => $h, k => 'a'), qr/^0 rate=3 remaining=0 /, 'the last');
    like(c('incoming', h => $h, k => 'a', commit => 0), qr/^1 rate=3 remaining=0 /, 'no more');
    like(c('incoming', h => $h, k => 'a'), qr/^1 rate=3 remaining=0 delay=0 retry_after=[1-9]\d{4,}/, 'no more');
    is(hit('a'), '429 r=0', 'nor a request');
    is(c('uncommit', h => $h, k => 'a'), '0', 'one is given back');
    is(hit('a'), '200 r=0', 'and used');
    is(c('uncommit', h => $h, k => 'a'), '0', 'another one is given back');
    like(c('uncommit', h => $h, k => 'a'), qr/^-2 this worker has no hits of the key to give back/, 'but no third');
    like(c('incoming', h => $h, k => 'b', v => 4), qr/^1 rate=0 remaining=3 delay=0 retry_after=-1/, 'too many');
    for my $type (qw(sliding fixed elastic)) {
        my $of_type = handle('new_limiter', n => 'default', limit => 1.5, w => 31536000, type => $type);
        like(c('incoming', h => $of_type, k => "t$type"), qr/^0 rate=1 remaining=0\.5 /, "$type: one");
        like(c('incoming', h => $of_type, k => "t$type"), qr/^1 rate=1 /, 'no more');
    }
    my $slow = handle('new_limiter', n => 'default', rate => 0.001, burst => 1);
    like(c('incoming', h => $slow, k => 'r'), qr/^0 rate=\S+ remaining=\S+ delay=0 /, 'at a rate');
    like(c('incoming', h => $slow, k => 'r'), qr/^0 rate=\S+ remaining=\S+ delay=(?:999|1000)/, 'with a delay');
    like(c('incoming', h => $slow, k => 'r'), qr/^1 /, 'no more');
    stop(qr/rejected by/);
};

subtest 'namespaces of an instance' => sub {
    start(%conf);
    my $one = handle('new_instance', n => 'one');
    my $two = handle('new_instance', n => 'two');
    is(handle('new_instance', n => 'one'), $one, 'a known name is the same instance');
    isnt($one, $two, 'another one is another');
    like(c('find', h => $one, n => 'mine'), qr/^-2 0 unknown namespace "mine": expected one that nginx\.conf/,
        'nobody has defined it');
    is(c('new_namespace', h => $one, n => 'mine', w => 60), '0', 'it is defined');
    is(c('new_namespace', h => $one, n => 'mine'), '-3 namespace "mine" is defined already', 'once');
    my $mine = handle('find', h => $one, n => 'mine');
    is(c('increment', h => $mine, k => 'a', w => 60), '0 rate=1', 'it counts');
    like(c('increment', h => $mine, k => 'a', w => 61),
        qr/^-1 rate=-77 invalid argument "window_size": expected one of the window_sizes of namespace "mine" \(1m\), not 61s/,
        'in no other windows');
    like(c('find', h => $two, n => 'mine'), qr/^-2 /, 'another instance has it not');
    is(c('new_namespace', h => $two, n => 'mine'), '0', 'until that defines it');
    is(handle('find', h => $two, n => 'mine'), $mine, 'and shares its counters');
    is(c('new_namespace', h => $two, n => 'listed', w => 5), '0', 'one of nginx.conf');
    my $listed = handle('find', h => $two, n => 'listed');
    is(c('increment', h => $listed, k => 'a', w => 1), '0 rate=1', 'is what that says');
    is(logged(qr/\[warn\] .*ratelimit: namespace "listed" is defined in \S+nginx\.conf:\d+, too/), 1, 'a warning');
    is(logged(qr/\[warn\] .*ratelimit: namespace "mine" is defined in another instance, too/), 1, 'and another');
    is(handle('find', h => $one, n => 'listed'), $listed, 'all instances find it');
    for ([{n => 'p', sync_rate => 1}, INVALID, 'sync_rate'], [{n => 'p', sync_rate => 0}, INVALID, 'sync_rate'],
        [{n => 'p', sync_rate => 1, store => 'main'}, INVALID, 'window_sizes'],
        [{n => 'p', sync_rate => 1, store => 'main', w => 60}, UNKNOWN, 'store'],
        [{n => 'p', sync_rate => 0, strategy => 'redis'}, INVALID, 'window_sizes'],
        [{n => 'p', sync_rate => 1, strategy => 'none'}, INVALID, 'strategy'],
        [{n => 'p', sync_rate => 1, strategy => 'redis', store => 'main'}, INVALID, 'store'],
        [{n => 'p', sync_rate => 1, opts => 1}, INVALID, 'strategy_opts'],
        [{n => 'p', sync_rate => 1, strategy => 'redis', opts => 1}, INVALID, 'strategy_opts'],
        [{n => 'p', sync_rate => 'nan'}, INVALID, 'sync_rate'], [{n => 'p', dict => 'none'}, UNKNOWN, 'dict'],
        [{n => 'p', dict => 'a b'}, INVALID, 'dict'], [{n => 'p', w => 0}, INVALID, 'window_sizes'],
        [{n => 'off'}, INVALID, 'namespace'], [{n => 'x' x 65}, INVALID, 'namespace'],
        [{n => 'p', size => 8}, INVALID, 'options'], [{n => 'p', h => 1}, STALE, 'handle']) {
        my ($arguments, $code, $word) = @$_;
        like(c('new_namespace', h => $one, %$arguments), qr/^$code .*\b$word\b/, join ' ', %$arguments);
    }
    like(c('find', h => $one, n => 'p'), qr/^-2 /, 'none of these was made');
    stop(qr/is defined/);
};

subtest 'a process that is stopped while it defines a namespace holds nobody up for long' => sub {
    start(%conf);
    is(c('lock'), '1', 'the zone is locked');
    my $began = time;
    like(c('new_namespace', n => 'one'), qr/^-7 another process defines a namespace in the zone, and has not ended/, 'nothing is defined');
    cmp_ok(time - $began, '<', 5, 'after a while');
    is(c('unlock'), '1', 'it goes on');
    is(c('new_namespace', n => 'one'), '0', 'and another try is one');
    is(c('lock'), '1', 'the zone is locked');
    my ($worker) = workers();
    kill KILL => $worker;
    $nginx->wait_for('another worker', sub { my ($now) = workers(); ($now // $worker) != $worker });
    is(c('new_namespace', n => 'one'), '0', 'a process that is killed holds nobody up');
    is(c('lock'), '1', 'the zone is locked');
    reload();
    is(hit('a'), '200 r=999', 'a reload goes on, too');
    stop(qr/exited on signal 9|was locked by/);
};

subtest 'wrong arguments are named' => sub {
    start(%conf);
    my $h       = handle('find', n => 'default');
    my $limiter = handle('new_limiter', n => 'default', limit => 3, w => $year);
    for (['increment', {k => ''}, 'key'],
        ['increment', {w => 0}, 'window_size'], ['increment', {w => 'nan'}, 'window_size'],
        ['increment', {w => 31622401}, 'window_size'], ['increment', {v => -1}, 'value'],
        ['increment', {v => 'inf'}, 'value'], ['increment', {v => 1e12}, 'value'],
        ['increment', {weight => 1.5}, 'weight'], ['sliding_window', {weight => 'nan'}, 'weight'],
        ['sliding_window', {diff => '-inf'}, 'cur_diff'], ['sliding_window', {w => -1}, 'window_size'],
        ['fetch', {time => -1}, 'time'], ['fetch', {timeout => 'nan'}, 'timeout'],
        ['increment_async', {v => 'nan'}, 'value'], ['take', {ticket => 1}, 'ticket']) {
        my ($function, $arguments, $word) = @$_;
        like(c($function, h => $h, k => 'a', w => $year, %$arguments), qr/^-1 (?:\S+=\S+ )*invalid argument "$word": expected /,
            join ' ', $function, %$arguments);
    }
    for ([{cost => 0}, 'cost', v => 0], [{}, 'cost', v => 'nan'], [{}, 'key', k => '']) {
        my (undef, $word, @arguments) = @$_;
        like(c('incoming', h => $limiter, k => 'a', @arguments), qr/^-1 .*invalid argument "$word"/, "incoming @arguments");
    }
    for ([limit => {}], [limit => {limit => -1, w => 60}], [window => {limit => 1}], [window => {limit => 1, rate => 1, w => 5}],
        [limit => {limit => 1, rate => 1}], [burst => {rate => 1, burst => -1}], [burst => {limit => 1, w => 60, burst => 1}],
        [window_type => {limit => 1, w => 60, type => 'none'}], [window_type => {rate => 1, type => 'fixed'}],
        [rate => {rate => 'inf'}], [limit => {limit => 1, w => 60, size => 0}], [limit => {limit => 100000.001, w => 60, type => 'moving'}], [namespace => {n => '-/-', limit => 1, w => 60}]) {
        my ($word, $arguments) = @$_;
        # If two arguments exclude each other, the error may name either.
        like(c('new_limiter', n => 'default', %$arguments), qr/^-1 0 invalid argument "(?:$word|limit)"/,
            join ' ', 'new_limiter', map {"$_=$arguments->{$_}"} sort keys %$arguments);
    }
    is(c('increment', h => $_, k => 'a') =~ /^(-\d+)/ && $1, STALE, "handle $_") for 0, 1, 77, $limiter, 4294967295;
    is(c('null'), '1', 'no pointers');
    is(c('increment', h => 0, k => 'a', room => 7), '-8 rate=-77 the ha', 'a text is cut');
    is(c('increment', h => 0, k => 'a', room => 0), '-8 rate=-77', 'where there is room');
    stop();
};

subtest 'arguments at random' => sub {
    start(%conf);
    my ($worker) = workers();
    my @handles = (handle('find', n => 'default'), handle('find', n => 'listed'),
        handle('new_limiter', n => 'default', limit => 3, w => $year), handle('new_instance', n => 'i'));
    my %codes = CModule::call_at_random(\&c, 3000, @handles);
    ok(!$codes{-9} && !$codes{wrong}, 'no fault: ' . join ', ', map {"$_: $codes{$_}"} sort keys %codes);
    ok($codes{0} && $codes{-1} && $codes{-8}, 'of each kind');
    is_deeply([workers()], [$worker], 'the worker lives');
    is(hit('z'), '200 r=999', 'and serves');
    stop(qr/is defined/);
};

subtest 'before workers start, and after a reload' => sub {
    start(%conf, workers => 2);
    my $here = qr/there is no configuration/;
    is(logged(qr/c_api postconfiguration: new -4, find -4, increment -4 \($here/), 1, 'while it is read');
    is(logged(qr/c_api its own cycle: new 0, find -4, increment -8/), 1, 'but it defines namespaces in that');
    is(logged(qr/c_api init_module: new -4, find -4, increment -4/), 1, 'before it is served');
    begun(2);
    my $h = handle('find', n => 'default');
    reload();
    is(logged(qr/c_api init_module: new -4, find -4, increment -4 \(the master serves nothing/), 1, 'in the master');
    begun(4);
    like(c('increment', h => $h, k => 'a', w => $year), qr/^-8 rate=-77 the handle is of another configuration/,
        'a handle of before');
    $h = handle('find', n => 'default');
    is(c('sliding_window', h => $h, k => 'k', w => $year), '0 rate=4', 'counted hits stay');
    stop();
    start(%conf, single => 1);
    $h = handle('find', n => 'default');
    is(c('increment', h => $h, k => 'a', w => $year), '0 rate=1', 'a process that is master and worker');
    $h = handle('find', n => 'of-c');
    is(c('increment', h => $h, k => 'a', w => $year), '0 rate=1', 'a namespace that was defined during the read');
    stop();
    start(%conf, rule => 'limit=5/366d', http => 'ratelimit_zone zone=other:1m; ratelimit_namespace default { zone counters; }');
    is(c('new_namespace', n => 'x'), '-2 namespace "x" names no zone, and there are 2: expected "dict"', 'two zones');
    is(c('new_namespace', n => 'x', dict => 'other'), '0', 'of which one is named');
    stop();
};

done_testing();

# Waits until this number of workers has started.
sub begun {
    my ($workers) = @_;
    wait_for('what workers log', sub { logged(qr/c_api init_process/) == $workers });
    is(logged(qr/c_api init_process: new 0, find 0, increment 0/), $workers, 'in workers');
}

# Calls a function and returns the response.
sub c {
    my ($function, %arguments) = @_;
    my $query = CModule::query($function, %arguments);
    my $socket = connection() or return "no connection: $!";
    print $socket "GET /c?$query HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    local $/;
    my ($body) = (<$socket> // '') =~ m{^HTTP/1\.1 200.*?\r\n\r\n(.*)}s or return 'no answer';
    $body =~ s/ +\z//;
    return $body;
}

# Calls a function that makes a handle; returns the handle.
sub handle {
    my $answer = c(@_);
    my ($handle) = $answer =~ /^0 ([1-9]\d*)$/ or fail("@_: $answer");
    return $handle // 0;
}
