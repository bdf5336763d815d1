# Nodes that share a store, which is a real Redis: that they converge, that none of their hits is
# lost or counted twice, whatever becomes of Redis, of a worker, of a configuration.
#
# This is a plain Perl test: it needs several nginx at once, and signals. It takes the ports
# TEST_NGINX_PORT + 2 to + 4. Without a redis-server it is skipped.
#
# Windows are of 366 days, so that no test meets the end of one (see limit.t). Nothing waits for a
# fixed time: for a thing to be done twice, a node has pushed something else after it (see settle).

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;

die "redis-server is not installed\n" if !Redis::is_there();

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $a     = Node->new(a => $port + 2);
my $b     = Node->new(b => $port + 3);
my $redis = Redis->new(port => $port + 4);

my $lost = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;
my $connected = qr/\[notice\] .*ratelimit_store "main" is connected to \S+ \(\w+ \d+\.\d+/;
my $back = qr/\[error\] .*ratelimit_store "main" is back/;
my $killed = qr/\[alert\] .* exited on signal 9/;

subtest 'hits on one node are in the rate of the other' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    is($a->hit(hit => 'k'), 200, 'a hit on a');
    eventually(sub { $b->rate(ask => 'k') }, 1, 'is in the rate of b');
    is($b->rate(hit => 'k'), 2, 'where another one adds to it');
    eventually(sub { $a->rate(ask => 'k') }, 2, 'which is in the rate of a');
    for (1 .. 20) {
        $a->hit(hit => 'many');
        $b->hit(hit => 'many') for 1, 2;
    }
    all_know(many => 60);
    $a->hit(cost => 'decimal', 'c=0.001');
    $b->hit(cost => 'decimal', 'c=2.5');
    all_know(decimal => 2.501);
    all_know(k => 2);
    stop();
};

subtest 'keys that only came from the store limit' => sub {
    with_redis();
    $_->start(conf(limit => 3)) for $a, $b;
    is($a->hit(hit => 'k'), 200, 'a hit') for 1 .. 3;
    eventually(sub { $b->hit(ask => 'k') }, 429, 'the other node rejects');
    is($b->hit(hit => 'k'), 429, 'and does not count that');
    all_know(k => 3);
    stop();
};

subtest 'a node that starts later begins with what the others counted' => sub {
    with_redis();
    $a->start(conf());
    $a->hit(hit => "k$_") for 1 .. 50;
    eventually(sub { sum0(values %{$redis->totals('api')}) }, 50, 'is in Redis');
    $b->start(conf());
    eventually(sub { $b->rate(ask => 'k1') + $b->rate(ask => 'k50') }, 2, 'and soon in b');
    stop();
};

subtest 'several windows, many keys of any bytes' => sub {
    with_redis();
    my @windows = qw(366d 360d 300d);
    my %rules   = map { ("hit$_" => "api limit=1000000/$windows[$_]") } 0 .. 2;
    $rules{"ask$_"} = "$rules{\"hit$_\"} cost=0" for 0 .. 2;
    $rules{hit} = 'api ' . join ' ', map {"limit=1000000/$_"} @windows;
    $_->start(conf(), rules => \%rules) for $a, $b;

    # nginx refuses a zero byte in a path, and resolves dots and slashes.
    my @bytes = grep { !m{[\0./]} } map {chr} 0 .. 255;
    my @keys  = map { join '', map { $bytes[rand @bytes] } 1 .. 1 + $_ % 20, 'x' } 1 .. 990;
    push @keys, @bytes[map { $_ * 20 } 1 .. 9], 'long' x 1000;
    # By the names that keys have in the store.
    my (%counts, %extra);
    for my $i (0 .. $#keys) {
        ($i % 2 ? $a : $b)->hit(hit => $keys[$i]);
        $counts{name_of($keys[$i])}++;
    }
    $b->hit(hit1 => $keys[$_]) for 0 .. 9;
    $extra{name_of($keys[$_])}++ for 0 .. 9;
    my %more = map { $_ => $counts{$_} + ($extra{$_} // 0) } keys %counts;

    my $day = 24 * 3600 * 1000;
    eventually(sub { $redis->totals('api', 366 * $day) }, \%counts, 'the first window in Redis');
    eventually(sub { $redis->totals('api', 360 * $day) }, \%more,   'the second, with more');
    eventually(sub { $redis->totals('api', 300 * $day) }, \%counts, 'the third');
    for my $node ($a, $b) {
        my @wrong;
        eventually(sub {
            @wrong = grep { $node->rate(ask0 => $_) ne $counts{name_of($_)} } @keys[0 .. 99, -10 .. -1];
            scalar @wrong;
        }, 0, "node $node->{name} knows the keys");
        eventually(sub { $node->rate(ask1 => $keys[0]) }, $more{$keys[0]}, 'in the second window');
        eventually(sub { $node->rate(ask2 => $keys[0]) }, $counts{$keys[0]}, 'in the third');
    }
    stop();
};

subtest 'namespaces of one store do not mix' => sub {
    with_redis();
    my %conf = conf();
    $conf{http} .= <<'    END';
    ratelimit_namespace other { store main; sync_rate 0.1; }
    END
    $conf{rules}{other}    = 'other limit=1000000/366d';
    $conf{rules}{askother} = 'other limit=1000000/366d cost=0';
    $_->start(%conf) for $a, $b;
    $a->hit(hit   => 'k') for 1 .. 3;
    $b->hit(other => 'k') for 1 .. 5;
    eventually(sub { $redis->totals('api') },   {k => 3}, 'one');
    eventually(sub { $redis->totals('other') }, {k => 5}, 'the other');
    for my $node ($a, $b) {
        eventually(sub { $node->rate(ask      => 'k') }, 3, "one on $node->{name}");
        eventually(sub { $node->rate(askother => 'k') }, 5, "the other on $node->{name}");
    }
    stop();
};

subtest 'a store that is not there at first' => sub {
    without_redis();
    $_->start(conf(limit => 20)) for $a, $b;
    is($a->hit(hit => 'k'), 200, 'a hit is counted here') for 1 .. 3;
    is($a->rate(ask => 'k'), 3, 'and known here');
    is($b->rate(hit => 'k'), 1, 'and another one there');
    is($b->rate(ask => 'other'), 0, 'nothing else is');
    $a->hit(hit => 'full') for 1 .. 20;
    is($a->hit(hit => 'full'), 429, 'the limit holds here');
    for my $node ($a, $b) {
        $node->wait_for('an [error]', sub { $node->logged($lost) });
    }
    $redis->start;
    all_know(k    => 4);
    all_know(full => 20);
    is($b->hit(hit => 'full'), 429, 'and there');
    for my $node ($a, $b) {
        $node->wait_for('a [notice]', sub { $node->logged($connected) });
        is($node->logged($lost), 1, "one [error] on $node->{name}");
        is($node->logged($connected), 1, "one [notice] on $node->{name}");
    }
    stop($lost);
};

subtest 'a store that comes back empty' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    my $count = 0;
    my $hits = sub {
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k') for 1 .. 4;
        $count += 7;
    };
    $hits->();
    all_know(k => $count);
    for (1, 2) {
        $hits->();
        $redis->kill;
        $hits->();
        $redis->start;
        $hits->();
        all_know(k => $count);
    }
    stop($lost);
};

for my $command (['FLUSHALL'], ['FLUSHDB'], ['SCRIPT', 'FLUSH'], ['CLIENT', 'KILL', 'TYPE', 'normal']) {
    subtest "@$command" => sub {
        with_redis();
        $_->start(conf()) for $a, $b;
        $a->hit(hit => $_) for qw(k k k of-a);
        $b->hit(hit => $_) for qw(k k of-b);
        all_know(k => 5);
        for my $time (1, 2) {
            eval { $redis->cli(@$command) };
            $a->hit(hit => 'k');
            $redis->cli(@$command) if $command->[0] ne 'CLIENT';
            $b->hit(hit => 'k');
            all_know(k => 5 + 2 * $time);
        }
        all_know('of-a' => 1);
        all_know('of-b' => 1);
        stop($lost);
    };
}

subtest 'a store that comes back empty under load' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for (1 .. 3) {
        pushed_under_load();
        $redis->cli('FLUSHALL');
    }
    pushed_under_load();
    $redis->kill;
    $redis->start;
    pushed_under_load();
    totals_of_loads(@loads);
    stop($lost);
};

subtest 'a store that keeps what it has, killed under load' => sub {
    $redis->stop;
    my $usual = $redis;
    $redis = Redis->new(port => $port + 4, args => ['--appendonly', 'yes']);
    $redis->start;
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for (1 .. 3) {
        pushed_under_load();
        $redis->kill;
        $redis->start;
    }
    pushed_under_load();
    totals_of_loads(@loads);
    stop($lost);
    $redis->kill;
    $redis = $usual;
};

subtest 'a store that hangs under load' => sub {
    with_redis();
    $_->start(impatient()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1, 2) {
        pushed_under_load();
        $redis->pause;
        for my $node ($a, $b) {
            $node->wait_for('an [error]', sub { $node->logged($lost) == $time });
        }
        $redis->go_on;
        for my $node ($a, $b) {
            $node->wait_for('a [notice]', sub { $node->logged($back) == $time });
        }
    }
    my @sums = totals_of_loads(@loads);
    cmp_ok($_->{slowest}, '<', 1, 'every answer was there within a second') for @sums;
    is($_->{lost}, 0, 'and none was lost') for @sums;
    stop($lost);
};

subtest 'workers that are killed under load' => sub {
    with_redis();
    $_->start(impatient()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1 .. 6) {
        my @before = $a->workers;
        kill KILL => $before[$time % 2];
        pushed_under_load();
        $a->wait_for('a new worker', sub { $a->settled($before[$time % 2]) });
    }
    my @before = $a->workers;
    kill KILL => @before;
    $a->wait_for('new workers', sub { $a->settled(@before) });
    my @sums = totals_of_loads(@loads);
    is($sums[1]{lost}, 0, 'the other node lost nothing');
    stop(qr/$lost|$killed/);
};

subtest 'a worker that is stopped for long' => sub {
    with_redis();
    $_->start(impatient()) for $a, $b;
    my $count = 0;
    for my $worker ($a->workers) {
        kill STOP => $worker;
        $a->wait_for('a worker that has stopped', sub { state_of($worker) eq 'T' });
        for (1 .. 5) {
            is($a->hit(hit => 'k'), 200, 'a hit in the other worker');
            $count++;
        }
        eventually(sub { $redis->total(api => 'k') }, $count, 'which syncs');
        eventually(sub { $b->rate(ask => 'k') }, $count, 'so that the other node knows it');
        $b->hit(hit => 'k');
        $count++;
        eventually(sub { $a->rate(ask => 'k') }, $count, 'and the other way round');
        kill CONT => $worker;
        all_know(k => $count);
    }
    stop($lost);
};

subtest 'reloads under load' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for (1 .. 4) {
        pushed_under_load();
        $a->reload;
    }
    pushed_under_load();
    my @sums = totals_of_loads(@loads);
    is($sums[1]{lost}, 0, 'the other node lost nothing');
    stop();
};

subtest 'reloads with another sync_rate' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    my $count = 0;
    my $hits = sub { $a->hit(hit => 'k') for 1 .. 10; $count += 10 };
    $hits->();
    all_know(k => $count);
    for my $rate ('0.5', '50ms', '10s', '0.1') {
        $hits->();
        $a->reload(conf(sync_rate => $rate));
        $hits->();
        is($a->rate(ask => 'k'), $count, "counts stay with sync_rate $rate");
        all_know(k => $count) if $rate ne '10s';
    }
    all_know(k => $count);
    $a->reload(conf(sync_rate => '30s'));
    $hits->();
    $a->reload(conf(sync_rate => 'off'));
    eventually(sub { $redis->total(api => 'k') }, $count, 'before sync_rate off, all is pushed');
    is($a->rate(ask => 'k'), $count, 'counts stay with sync_rate off');
    my $pushed = $count;
    $hits->();
    is($a->rate(ask => 'k'), $count, 'where more are counted');
    $b->hit(hit => 'k');
    eventually(sub { $redis->total(api => 'k') }, $pushed + 1, 'the other node goes on');
    is($a->rate(ask => 'k'), $count, 'unnoticed');
    $a->reload(conf());
    $hits->();
    $a->hit(hit => 'last');
    eventually(sub { $redis->total(api => 'last') }, 1, 'with sync_rate 0.1 again, hits are pushed');
    my $total = $redis->total(api => 'k');
    cmp_ok($total, '>=', $pushed + 11, 'those that were meant for the store');
    cmp_ok($total, '<=', $count + 1, 'but none twice');
    diag("of 10 hits that were counted with sync_rate off, ", $total - $pushed - 11, ' are pushed');
    stop();
};

subtest 'a node that is killed whole' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k') for 1 .. 4;
    all_know(k => 7);
    $a->kill_all;
    $b->hit(hit => 'k');
    eventually(sub { $redis->total(api => 'k') }, 8, 'the other goes on');
    unlink "$a->{root}/nginx.pid";
    $a->start(conf());
    all_know(k => 8);
    $a->hit(hit => 'k');
    all_know(k => 9);
    stop();
};

for my $signal (qw(QUIT TERM)) {
    subtest "$signal pushes what is left" => sub {
        with_redis();
        $_->start(conf(sync_rate => '30s')) for $a, $b;
        $_->wait_for_first_sync             for $a, $b;
        my @keys = map {"key-$_"} 1 .. 2000;
        my %expected;
        for my $node ($a, $b) {
            my $sum = $node->load(@keys)->(2000);
            is($sum->{lost}, 0, "$sum->{200} hits on $node->{name}");
            $expected{all} += $sum->{200};
            $node->hit(hit => "of-$node->{name}") for 1 .. 3;
        }
        my $took = $a->stop(undef, $signal);
        cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, 'ends in time');
        is($redis->total(api => 'of-a'), 3, 'what one counted is in Redis');
        is($redis->total(api => 'of-b'), 0, 'what the other did, is not yet');
        $took = $b->stop(undef, $signal);
        cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, 'the other ends in time');
        is(sum0(values %{$redis->totals('api')}), $expected{all} + 6, 'and all is there');
    };
    subtest "$signal ends in time without a store" => sub {
        for my $is_paused (0, 1) {
            with_redis();
            $a->start(impatient());
            $a->hit(hit => 'k');
            eventually(sub { $redis->total(api => 'k') }, 1, 'it was there');
            $is_paused ? $redis->pause : $redis->kill;
            $a->hit(hit => 'k');
            my $took = $a->stop($lost, $signal);
            cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, $is_paused ? 'it hangs' : 'it is gone');
            $redis->go_on if $is_paused;
        }
    };
}

subtest 'a password' => sub {
    with_redis(password => 'correct-horse');
    my $message = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;
    $a->start(conf(store => 'password correct-horse;'));
    $b->start(conf(store => 'password battery-staple;'));
    is($b->hit(hit => 'k'), 200, 'the wrong one: limits alone');
    is($a->hit(hit => 'k'), 200, 'the right one');
    eventually(sub { $redis->total(api => 'k') }, 1, 'pushes');
    $b->wait_for('an [error]', sub { $b->logged($message) });
    is($b->logged($message), 1, 'the wrong one: one [error]');
    is($_->logged(qr/correct-horse|battery-staple/), 0, 'without the password') for $a, $b;
    is($a->logged($message), 0, 'the right one: none');
    $b->reload(conf(store => 'password correct-horse;'));
    all_know(k => 2);
    is($_->logged(qr/correct-horse|battery-staple/), 0, 'never a password in the log') for $a, $b;
    stop($message);
};

subtest 'a database, a prefix, a socket' => sub {
    with_redis();
    $a->start(conf(store => 'database 3; prefix my-limits;'));
    $b->start(conf(server => 'unix:' . $redis->socket, store => 'database 3; prefix my-limits;'));
    $_->hit(hit => 'k') for $a, $b;
    {
        local @$redis{qw(database prefix)} = (3, 'my-limits');
        $redis->cli(SELECT => 3);
        all_know(k => 2);
        my @names = @{$redis->cli(KEYS => '*')};
        is_deeply([grep { !/^my-limits:\{api:0\}/ } @names], [], 'all keys begin with the prefix');
    }
    $redis->cli(SELECT => 0);
    is_deeply($redis->cli(KEYS => '*'), [], 'nothing is in the usual database');
    stop();
};

subtest 'without a master process' => sub {
    with_redis();
    $a->start(conf(), single => 1);
    $b->start(conf());
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k');
    all_know(k => 4);
    $redis->cli('FLUSHALL');
    $a->hit(hit => 'k');
    all_know(k => 5);
    for my $signal (qw(QUIT TERM)) {
        $a->stop($lost, $signal);
        $a->start(conf(sync_rate => '30s'), single => 1);
        $a->wait_for_first_sync;
        is($a->rate(ask => 'k'), 5, 'the first sync');
        $a->hit(hit => $signal) for 1 .. 3;
        is($redis->total(api => $signal), 0, 'not pushed yet');
    }
    # nginx does not answer any more when it reloads so: that is its own.
    kill HUP => $a->{master};
    eventually(sub { $redis->total(api => 'TERM') }, 3, 'a reload pushes what is left');
    eventually(sub { $redis->total(api => 'QUIT') }, 3, 'as an end does');
    stop($lost);
};

subtest 'a reload that names another store' => sub {
    with_redis();
    $_->start(conf()) for $a, $b;
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k') for 1 .. 4;
    all_know(k => 7);
    for my $database (1, 0, 2) {
        for my $node ($a, $b) {
            $node->reload(conf(store => "database $database;"));
        }
        local $redis->{database} = $database;
        $redis->cli(SELECT => $database);
        all_know(k => 7);
    }
    stop();
    $redis->cli(SELECT => 0);
};

subtest 'a loss is told once for a store, by a node' => sub {
    without_redis();
    my %conf = conf();
    my $namespaces = join ' ', map {"ratelimit_namespace n$_ { store main; sync_rate 0.1; }"} 1 .. 3;
    $conf{http} .= $namespaces;
    $conf{rules}{"n$_"} = "n$_ limit=1000000/366d" for 1 .. 3;
    $_->start(%conf) for $a, $b;
    $a->hit($_ => 'k') for qw(hit n1 n2 n3);
    for my $node ($a, $b) {
        $node->wait_for('an [error]', sub { $node->logged($lost) });
    }
    $a->reload;
    my @before = $a->workers;
    kill KILL => $before[0];
    $a->wait_for('a new worker', sub { $a->settled($before[0]) });
    $a->hit($_ => 'k') for qw(hit n1 n2 n3);
    $redis->start;
    all_know(k => 2);
    eventually(sub { $redis->total("n$_" => 'k') }, 2, "and in n$_") for 1 .. 3;
    for my $node ($a, $b) {
        $node->wait_for('a [notice]', sub { $node->logged($connected) });
        is($node->logged($lost), 1, "one [error] on $node->{name}");
        is($node->logged($connected), 1, "one [notice] on $node->{name}");
    }
    stop(qr/$lost|$killed/);
};

subtest 'a reload that adds a window' => sub {
    with_redis();
    my %one = conf();
    my %two = conf();
    $two{rules}{hit} =~ s{(limit=\d+)/366d}{$1/366d $1/360d};
    $two{rules}{ask2} = 'api limit=1000000/360d cost=0';
    $a->start(%two);
    $b->start(%one);
    $a->hit(hit => 'k') for 1 .. 3;
    eventually(sub { $b->rate(ask => 'k') }, 3, 'the other node is up to date');
    $b->reload(%two);
    eventually(sub { $b->rate(ask2 => 'k') }, 3, 'what others counted in it is known');
    $b->hit(hit => 'k');
    eventually(sub { $_->rate(ask2 => 'k') }, 4, 'and it goes on') for $a, $b;
    stop();
};

subtest 'a clock that is far from that of the store' => sub {
    with_redis();
    my $off = qr/\[warn\] .*ratelimit_store "main" has a clock that is [45]\d\d\d ms behind this node's/;
    $a->start(conf(), clock => '+5s');
    $b->start(conf());
    $a->wait_for('a [warn]', sub { $a->logged($off) });
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 2);
    is($a->logged($off), 1, 'one [warn]');
    is($b->logged($off), 0, 'none where the clocks agree');
    my ($offset) = $a->body('/metrics') =~ /^ratelimit_store_clock_offset_seconds\{store="main"\} (.*)/m;
    cmp_ok(abs($offset + 5), '<', 1, "an offset of $offset s in the metrics");
    stop($off);
};

subtest 'what an operator sees of the syncs' => sub {
    with_redis();
    $a->start(conf());
    $a->hit(hit => "k$_") for 1 .. 20;
    eventually(sub { sum0(values %{$redis->totals('api')}) }, 20, 'the hits are in Redis');
    eventually(sub { $a->pending }, 0, 'so that nothing is pending');
    like(join(' ', $a->workers), qr/\b@{[$a->sync_status('lease_pid')]}\b/, 'a worker syncs');
    my $metric = sub { my ($name) = @_; return $a->body('/metrics') =~ /^\Q$name\E (\S+)$/m ? $1 : '' };
    my $connects = 'ratelimit_store_connects_total{store="main"}';
    cmp_ok($metric->($connects), '>', 0, 'there have been connections');
    cmp_ok($metric->('ratelimit_store_exchange_duration_seconds_count{store="main"}'), '>', 1, 'and exchanges');
    cmp_ok($metric->('ratelimit_event_loop_hold_seconds_sum'), '>', 0, 'which held the event loop');

    my $before = $metric->($connects);
    $redis->cli(CLIENT => 'KILL', 'TYPE', 'normal');
    eventually(sub { $metric->($connects) }, sub { $_[0] > $before }, 'a connection that is cut is made again');

    $redis->kill;
    $a->hit(hit => "k$_") for 1 .. 30;
    $a->wait_for('an [error]', sub { $a->logged($lost) });
    is($a->pending, 30, 'while it is away, keys are pending');
    is($metric->('ratelimit_sync_pending_counters{namespace="api"}'), 30, 'in the metrics, too');
    is($metric->('ratelimit_store_up{store="main"}'), 0, 'the store is down');
    $redis->start;
    eventually(sub { $a->pending }, 0, 'until it is back');
    stop($lost);
};

subtest 'a long sync_rate and a store that is away' => sub {
    without_redis();
    $_->start(conf(sync_rate => '60s')) for $a, $b;
    $_->hit(hit => 'k') for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('an [error]', sub { $node->logged($lost) });
    }
    $redis->start;
    eventually(sub { $redis->total(api => 'k') }, 2, 'attempts are 2 s apart at most');
    stop($lost);
};

done_testing();

# The configuration of a node: the namespace `api` in the store `main`, and the locations hit, which
# counts 1, cost, which counts its argument c, and ask, which counts nothing. The store has so much
# time that it is never late.
sub conf {
    my (%conf) = (
        server    => "127.0.0.1:$redis->{port}",
        store     => '',
        times     => 'timeout 5s; connect_timeout 5s;',
        sync_rate => '0.1',
        limit     => 1_000_000,
        @_
    );
    my $limit = "api limit=$conf{limit}/366d";
    return (
        http => <<"        END",
        ratelimit_store main { strategy redis; server $conf{server}; $conf{store} $conf{times} }
        ratelimit_namespace api { store main; sync_rate $conf{sync_rate}; }
        END
        rules => {hit => $limit, cost => "$limit cost=\$arg_c", ask => "$limit cost=0"},
    );
}

# The same with the store's usual times, which a busy machine may miss.
sub impatient { conf(times => '', @_) }

# An empty Redis.
sub with_redis {
    my (%is) = @_;
    $redis->kill;
    $redis->{password} = $is{password};
    $redis->{args}     = $is{password} ? ['--requirepass', $is{password}] : [];
    $redis->start;
}

sub without_redis { $redis->kill }

# Stops the nodes that there are.
sub stop {
    my ($expected) = @_;
    $_->stop($expected) for grep { $_->{master} } $a, $b;
}

# Tests that the total of a key is in Redis and in the rates of both nodes, and stays.
sub all_know {
    my ($key, $total) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { $redis->total(api => $key) }, $total, "$key in Redis");
    eventually(sub { $a->rate(ask => $key) },      $total, "$key on a");
    eventually(sub { $b->rate(ask => $key) },      $total, "$key on b");
    settle();
    is($redis->total(api => $key), $total, "$key stays in Redis");
    is($_->rate(ask => $key), $total, "$key stays on $_->{name}") for $a, $b;
}

# Waits until each node has pushed what it counted, and knows what the other did.
my $settled = 0;

sub settle {
    my $key = 'settle-' . ++$settled;
    $_->hit(hit => $key) for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('the hits of both', sub { $node->rate(ask => $key) eq '2' });
    }
}

# Waits until both nodes have pushed a hit that they count now.
sub pushed_under_load {
    my $key = 'settle-' . ++$settled;
    $_->hit(hit => "$key-$_->{name}") for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('a push', sub { eval { $redis->total(api => "$key-$node->{name}") } });
    }
}

# Ends the loads of `k`, tests that its total is that of the answers, and returns their sums.
sub totals_of_loads {
    my @sums = map { $_->() } @_;
    my $made = sum0(map { $_->{200} } @sums);
    my $lost = sum0(map { $_->{lost} } @sums);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    settle();
    my $total = $redis->total(api => 'k');
    cmp_ok($total, '>=', $made,         "of the hits, $made were answered, $lost were not: no less");
    cmp_ok($total, '<=', $made + $lost, 'and no more are in Redis');
    all_know(k => $total);
    return @sums;
}
