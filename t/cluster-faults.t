# Tests nodes that share a Redis while their connections to it fail: responses are lost or late, a
# replica takes over, a node is cut off; and while workers are stopped or killed during a push. No hit
# is lost or counted twice. cluster.t tests failures of Redis itself.
#
# This is a plain Perl test, like cluster.t. It uses the ports TEST_NGINX_PORT + 2 to + 8.
#
# Each node reaches Redis through its own proxy (see lib/Proxy.pm). The proxy reports when a fault has
# affected a push, so that no test waits for a fixed time.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Node;
use Processes;
use Proxy;
use Redis;
use TwoNodes qw(
    $port @nodes $store $lost $unconfirmed $back $killed cut_off conf stop settle pushed_under_load no_answer_was_slow pushes_all
    ends_within
);

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;
my $first   = Redis->new(port => $port + 4);
my $second  = Redis->new(port => $port + 5);
my $proxy_a = Proxy->new(port => $port + 6, to => $first->{port});
my $proxy_b = Proxy->new(port => $port + 7, to => $first->{port});

# The current primary.
$store = $first;

subtest 'an answer that is cut off after the push was applied' => sub {
    begin();
    hits(a => 1);
    all_know();
    for my $time (1 .. 5) {
        my $before = $proxy_a->state->{cut};
        $proxy_a->cut_answers($time);
        hits(a => 2, b => 1);
        $a->wait_for('lost answers', sub { $proxy_a->state->{cut} == $before + $time });
        all_know();
    }
    stop($lost);
};

subtest 'answers that are cut off under load' => sub {
    begin();
    my @loads = loads();
    for my $time (1 .. 5) {
        pushed_under_load();
        my @before = map { $_->state->{cut} } $proxy_a, $proxy_b;
        $_->cut_answers(2) for $proxy_a, $proxy_b;
        $a->wait_for('lost answers', sub { $proxy_a->state->{cut} == $before[0] + 2 });
        $b->wait_for('lost answers', sub { $proxy_b->state->{cut} == $before[1] + 2 });
    }
    no_answer_was_slow(totals_of_loads(@loads));
    stop($lost);
};

subtest 'answers that are slow, but not too slow' => sub {
    begin(store => 'timeout 5s; connect_timeout 5s;');
    hits(a => 1, b => 1);
    all_know();
    $_->delay(0.3) for $proxy_a, $proxy_b;
    hits(a => 3, b => 4);
    all_know();
    is($_->logged($lost), 0, "no [error] on $_->{name}") for @nodes;
    stop();
};

subtest 'answers that are slower than the timeout' => sub {
    begin(other => 'timeout 5s; connect_timeout 5s;');
    hits(a => 1, b => 1);
    all_know();
    $proxy_a->delay_pushes(1);
    hits(a => 1);
    knows($store);
    $a->wait_for('an [error]', sub { $a->logged($lost) });
    my $begin = time;
    hits(a => 20);
    cmp_ok(time - $begin, '<', 1, 'requests are as fast as before');
    my $pushes = $proxy_a->state->{pushes};
    $a->wait_for('more pushes', sub { $proxy_a->state->{pushes} >= $pushes + 3 });
    knows($store, -20);
    hits(b => 2);
    knows($b, -20);
    $proxy_a->pass;
    $a->wait_for('a [notice]', sub { $a->logged($back) });
    all_know();
    is($a->logged($lost), 1, 'one [error]');
    is($a->logged($back), 1, 'one [notice]');
    is($b->logged($lost), 0, 'none on the other node');
    stop($lost);
};

# Begins with some four batches in node a, and a store that takes this number of seconds for each. Returns the number
# of hits.
sub begin_slowly {
    my ($seconds) = @_;
    begin(store => 'timeout 5s; connect_timeout 5s;', sync_rate => '10m');
    $_->wait_for_first_sync for @nodes;
    my $sum = $a->load(map {"many-$_"} 1 .. 300)->(300);
    $proxy_a->delay_pushes($seconds);
    return $sum->{200};
}

for my $case ([QUIT => 0.4], [TERM => 0.2]) {
    my ($signal, $seconds) = @$case;
    subtest "$signal pushes what is left to a slow store" => sub {
        pushes_all($signal, 'all is there', sub {
            my $hits = begin_slowly($seconds);
            my $took = $a->stop(cut_off($signal), $signal);
            stop();
            return (sum0(values %{$store->totals('api')}), $hits, $took);
        });
    };
}

for my $case ([QUIT => 2, 2.6, 0.9], [TERM => 1, 1.5, 0.6]) {
    my ($signal, $time, $bound, $seconds) = @$case;
    subtest "$signal pushes for $time s at most, though the store takes more" => sub {
        ends_within($bound, 'it ends', sub {
            my $hits = begin_slowly($seconds);
            my $took = $a->stop(cut_off($signal), $signal);
            cmp_ok($took, '>=', $time, sprintf 'it takes %.1f s', $took);
            is($a->logged($unconfirmed), 1, 'one [error]');
            stop();
            my $total = sum0(values %{$store->totals('api')});
            ok($total > 0 && $total < $hits, "$total of $hits hits are there");
            return $took;
        });
    };
}

# Changes the number of each node's last batch in Redis, as if a copy of each machine had pushed since.
subtest 'another node with the same identity' => sub {
    begin(store => 'timeout 5s; connect_timeout 5s;');
    hits(a => 2, b => 3);
    all_know();
    my ($shard) = grep {/\}\z/} @{$store->cli(KEYS => q(*))};
    my %state = @{$store->cli(HGETALL => $shard)};
    my @known = grep {/^b:/} keys %state;
    is(@known, 2, 'both nodes are known');
    $store->cli(HSET => $shard, $_, $state{$_} =~ s/^\d+/1 << 50/er) for @known;
    hits(a => 5, b => 7);
    all_know();
    my $told = qr/\[error\] .*ratelimit_store "main" knows another node by this one's identity/;
    for my $node (@nodes) {
        $node->wait_for('an [error]', sub { $node->logged($told) });
    }
    hits(a => 1, b => 1);
    all_know();
    is($_->logged($told), 1, "one [error] on $_->{name}") for @nodes;
    is($store->cli(HGET => $shard, 'epoch'), $state{epoch}, 'the same epoch');
    stop($told);
};

subtest 'connections that are reset under load' => sub {
    begin();
    my @loads = loads();
    for my $time (1 .. 10) {
        my @before = map { $_->state->{pushes} } $proxy_a, $proxy_b;
        $_->reset for $proxy_a, $proxy_b;
        $a->wait_for('a push', sub { $proxy_a->state->{pushes} > $before[0] });
        $b->wait_for('a push', sub { $proxy_b->state->{pushes} > $before[1] });
    }
    no_answer_was_slow(totals_of_loads(@loads));
    stop($lost);
};

subtest 'pushes that arrive long after the node has given them up' => sub {
    begin();
    hits(a => 1, b => 1);
    all_know();
    for my $time (1, 2) {
        my $before = $proxy_a->state->{accepted};
        $proxy_a->silence;
        hits(a => 3, b => 1);
        $a->wait_for('attempts', sub { $proxy_a->state->{accepted} >= $before + 3 });
        knows($b, -3);
        hits(a => 2);
        # The proxy forwards now what it has held back.
        $proxy_a->pass;
        all_know();
    }
    stop($lost);
};

subtest 'a store that says nothing, under load' => sub {
    begin();
    my @loads = loads();
    pushed_under_load();
    for my $fault (qw(silence refuse)) {
        my @before = map { $_->logged($lost) } @nodes;
        $_->$fault for $proxy_a, $proxy_b;
        for my $node (@nodes) {
            my $before = shift @before;
            $node->wait_for('an [error]', sub { $node->logged($lost) > $before });
        }
        $_->pass for $proxy_a, $proxy_b;
        pushed_under_load();
    }
    no_answer_was_slow(totals_of_loads(@loads));
    stop($lost);
};

# The sealed hit of node A is evicted before Redis is back. The data that Redis kept must not be
# discarded for it.
for my $sync_rate ('0.1', 0) {
    subtest "a flood of keys while Redis is down, which then has its data, sync_rate $sync_rate" => sub {
        local $first->{args} = [qw(--appendonly yes --appendfsync always --appenddirname), "own-$sync_rate"];
        # The timeouts are long: a stopped server refuses connections at once, and a server on a busy
        # machine responds late.
        my %patient = (store => 'timeout 5s; connect_timeout 5s;');
        $patient{namespace} = 'timeout 5s;' if !$sync_rate;
        begin(sync_rate => $sync_rate, zone => '64k', %patient);
        my @limited = map { $b->hit(limited => 'client') } 1 .. 6;
        is("@limited", '200 200 200 200 200 429', 'a client is exhausted on B');
        eventually(sub { $store->total(api => 'client') }, 5, 'Redis knows');
        my $epoch = $store->cli(HGET => 'rl:{api:0}', 'epoch');
        # Only a store that A has reached can be back.
        $a->wait_for('the first connection', sub { $a->hit(ask => 'client'); $a->logged(TwoNodes::connected()) });
        $b->stop;
        $store->stop;
        $a->wait_for('an [error]', sub { $a->hit(hit => 'client'); $a->logged($lost) });
        my $sum = $a->load(map {"flood-$_"} 1 .. 6000)->(6000);
        is($sum->{lost}, 0, "$sum->{200} hits of other keys on A");
        $store->start;
        $a->wait_for('a [notice]', sub { $a->hit(hit => 'other'); $a->logged($back) });
        eventually(sub { $store->total(api => 'other') > 0 }, 1, 'A pushes');
        cmp_ok($store->total(api => 'client'), '>=', 5, 'the hits of B are there');
        is($store->cli(HGET => 'rl:{api:0}', 'epoch'), $epoch, 'the epoch is the same');
        eventually(sub { $a->hit(limited => 'client') }, 429, 'the client is rejected');
        stop($lost);
    };
}

for my $finds ('an address that moves', 'a second server') {
    subtest "a failover that loses acknowledged writes, to $finds" => sub {
        my $is_second = $finds eq 'a second server';
        begin($is_second ? (servers => [$first->{port}, $second->{port}]) : ());
        my $replication = Proxy->new(port => $port + 8, to => $first->{port});
        replicate($first => $second, $replication->{port});
        hits(a => 3, b => 4);
        all_know();
        eventually(sub { $second->total(api => 'k') }, counted(), 'the replica is up to date');

        $replication->silence;
        hits(a => 5, b => 6);
        all_know();
        is($second->total(api => 'k'), 7, 'the replica lacks acknowledged writes');
        $first->kill;
        $replication->stop;
        hits(a => 1, b => 1);
        promote($second);
        if (!$is_second) {
            $_->lead_to($second->{port}) for $proxy_a, $proxy_b;
        }
        all_know();
        hits(a => 1, b => 1);
        all_know();
        stop($lost);
    };
}

subtest 'a failover that loses acknowledged writes, under load' => sub {
    begin();
    my @loads = loads();
    my $replication = Proxy->new(port => $port + 8, to => $first->{port});
    replicate($first => $second, $replication->{port});
    pushed_under_load();
    $replication->silence;
    pushed_under_load();
    $replication->stop;
    promote($second, 'but the old one serves on');
    # For a while, each node uses another primary.
    $proxy_a->lead_to($second->{port});
    $proxy_a->reset;
    eventually(sub { $second->total(api => 'k') > 0 }, 1, 'one node is there');
    pushed_under_load($a);
    $first->kill;
    $proxy_b->lead_to($second->{port});
    pushed_under_load();
    no_answer_was_slow(totals_of_loads(@loads));
    stop($lost);
};

subtest 'a primary that becomes a replica' => sub {
    begin(servers => [$first->{port}, $second->{port}]);
    replicate($first => $second);
    hits(a => 3, b => 4);
    all_know();
    eventually(sub { $second->total(api => 'k') }, counted(), 'the replica is up to date');
    my @loads = loads();
    pushed_under_load();
    promote($second);
    replicate($second => $first);
    pushed_under_load();
    no_answer_was_slow(totals_of_loads(@loads));
    stop($lost);
};

subtest 'QUIT with 10,000 unsent diffs' => sub {
    pushes_all('QUIT', 'all are in Redis', sub {
        begin(sync_rate => '10m', zone => '16m', store => 'timeout 5s; connect_timeout 5s;');
        $_->wait_for_first_sync for @nodes;
        my $sum = $a->load(map {"key-$_"} 1 .. 10_000)->(10_000);
        is($sum->{lost}, 0, "$sum->{200} hits");
        my $took = $a->stop($unconfirmed);
        stop();
        return (sum0(values %{$store->totals('api')}), $sum->{200}, $took);
    });
    is(scalar keys %{$store->totals('api')}, 10_000, 'by their keys');
};

subtest 'a node that is cut off for longer than a window' => sub {
    begin(windows => ['366d', '2s']);
    hits(a => 1, b => 1);
    all_know();
    $proxy_a->silence;
    my $end = int(time / 2) + 3;
    while (int(time / 2) < $end) {
        hits(a => 1, b => 2);
        settle($b) if counted() % 30 == 0;
    }
    $proxy_a->pass;
    all_know();
    agree_in_short_window('after it');
    # The old diffs were pushed or dropped, and must not be pushed again.
    agree_in_short_window('and later');
    all_know();
    stop($lost);
};

for my $when ('while old workers end', 'when old workers have ended') {
    subtest "a reload during a push, whose answer comes $when" => sub {
        begin(store => 'timeout 1s;');
        hits(a => 1, b => 1);
        all_know();
        for my $time (1, 2) {
            hold_a_push();
            my $wait = $a->begin_reload;
            hits(a => 3);
            $proxy_a->pass if $when =~ /while/;
            $wait->();
            hits(a => 2, b => 1);
            $proxy_a->pass;
            all_know();
        }
        stop($lost);
    };
}

subtest 'the worker that syncs is killed during its push' => sub {
    begin(store => 'timeout 1s;');
    hits(a => 1, b => 1);
    all_know();
    for my $time (1, 2) {
        my $holder = hold_a_push();
        kill KILL => $holder;
        $a->wait_for('a new worker', sub { $a->settled($holder) });
        hits(a => 2, b => 1);
        $proxy_a->pass;
        all_know();
    }
    stop(qr/$lost|$killed/);
};

for my $signal (qw(QUIT TERM)) {
    subtest "$signal, and an answer is cut off" => sub {
        pushes_all($signal, 'all that was left is in Redis', sub {
            begin(sync_rate => '10m', workers => 1);
            $_->wait_for_first_sync for @nodes;
            # There are more keys than fit into one batch.
            my $sum = $a->load(map {"key-$_"} 1 .. 1000)->(1000);
            $proxy_a->cut_answers(1);
            my $took = $a->stop(qr/$lost|${\ cut_off($signal)}/, $signal);
            stop($lost);
            return (sum0(values %{$store->totals('api')}), $sum->{200}, $took);
        });
    };

    subtest "$signal after the worker that syncs was killed during its push" => sub {
        # The lease of the killed worker would block syncs for 3 s if the node did not stop.
        pushes_all($signal, 'what is counted, in Redis', sub {
            begin(store => 'timeout 1s;');
            hits(a => 1, b => 1);
            all_know();
            my $holder = hold_a_push();
            kill KILL => $holder;
            $proxy_a->pass;
            hits(a => 5);
            my $took  = $a->stop(qr/$lost|$killed|$unconfirmed/, $signal);
            my $total = total();
            eventually(sub { $b->rate(ask => 'k') }, $total, 'as the other node knows');
            stop($lost);
            return ($total, counted(), $took);
        });
    };
}

subtest 'the worker that syncs is stopped during its push, and wakes when another has taken over' => sub {
    begin(store => 'timeout 1s;');
    hits(a => 1, b => 1);
    all_know();
    for my $time (1 .. 3) {
        my $holder = hold_a_push();
        stop_processes($holder);
        # The response goes to the stopped worker; the other worker repeats the request.
        $proxy_a->pass;
        hits(a => 5, b => 2);
        knows($_) for $store, $b;
        hits(a => 1);
        kill CONT => $holder;
        all_know();
    }
    stop($lost);
};

done_testing();

# The hits that were made. All requests use the key k.

my $counted;
sub counted { return $counted }
sub total   { return $store->total(api => 'k', 366 * 24 * 3600 * 1000) }

# Makes these numbers of hits on the nodes.
sub hits {
    my (%hits) = @_;
    my %nodes  = (a => $a, b => $b);
    my @failed;
    for my $name (sort keys %hits) {
        push @failed, grep { $_ ne 200 } map { $nodes{$name}->hit(hit => 'k') } 1 .. $hits{$name};
        $counted += $hits{$name};
    }
    is("@failed", '', 'hits are answered') if @failed;
}

# Tests that Redis, or a node, has the number of hits that were made, plus `more`.
sub knows {
    my ($who, $more) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $rate = $who == $store ? \&total : sub { $who->rate(ask => 'k') };
    my $name = $who == $store ? 'Redis' : "node $who->{name}";
    eventually($rate, $counted + ($more // 0), "what is counted, in $name");
}

# Tests that Redis and both nodes have the number of hits that were made, and keep it.
sub all_know {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    knows($_) for $store, $a, $b;
    settle();
    is(total(), $counted, 'it stays in Redis');
    is($_->rate(ask => 'k'), $counted, "it stays on $_->{name}") for @nodes;
}

# Tests that both nodes have the exact count of one of the next windows of 2 s.
sub agree_in_short_window {
    my ($name) = @_;
    my $is_right;
    for my $time (1 .. 5) {
        my $window = int(time / 2) + 1;
        $a->wait_for('the next window', sub { int(time / 2) >= $window });
        hits(a => 3, b => 4);
        my @rates;
        until ($is_right || int(time / 2) > $window) {
            @rates    = map { $_->rate(short => 'k') } @nodes;
            $is_right = "@rates" eq '7 7';
        }
        last if $is_right;
        diag("in a window of 2 s: @rates");
    }
    ok($is_right, "nodes agree on a window of 2 s, $name");
}

# Load.

sub loads { return map { $_->load('k') } @nodes }

# Stops loads, tests that Redis and both nodes have their hits, and returns their sums.
sub totals_of_loads {
    my @sums = map { $_->() } @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is($_->{lost}, 0, "$_->{200} requests were answered, and none was lost") for @sums;
    $counted += sum0(map { $_->{200} } @sums);
    all_know();
    return @sums;
}

# Nodes and Redis.

# Starts two nodes and an empty Redis behind the proxies. servers: ports that replace those of the proxies; other:
# directives that replace `store` on the second node.
sub begin {
    my (%conf) = (store => '', namespace => '', sync_rate => '0.1', zone => '4m', windows => ['366d'], workers => 2, @_);
    $_->kill for $first, $second;
    $store = $first;
    $store->start;
    $counted = 0;
    for my $proxy ($proxy_a, $proxy_b) {
        $proxy->pass;
        $proxy->lead_to($first->{port});
        $proxy->reset;
    }
    $a->start(conf_of(%conf, servers => $conf{servers} // [$proxy_a->{port}]));
    $b->start(conf_of(%conf, servers => $conf{servers} // [$proxy_b->{port}], store => $conf{other} // $conf{store}));
}

# Returns `conf` with these changes: hit counts in all windows, short reads the count of a window of 2
# seconds, and the timeouts are the default ones.
sub conf_of {
    my (%conf)  = @_;
    my $servers = join ' ', map {"server 127.0.0.1:$_;"} @{$conf{servers}};
    my %all     = conf(server => $servers, times => '', %conf{qw(store sync_rate namespace)});
    my $rules   = $all{rules};
    $rules->{hit}     = 'api ' . join ' ', map {"limit=1000000/$_"} @{$conf{windows}};
    $rules->{limited} = 'api limit=5/366d counter=default';
    $rules->{short}   = 'api limit=1000000/2s window=fixed cost=0' if @{$conf{windows}} > 1;
    return (%all, %conf{qw(zone workers)});
}

# Makes one Redis a replica of the other and waits until it has all data. at => the port through which it
# reaches the primary, if that is not the port of the primary.
sub replicate {
    my ($primary, $replica, $at) = @_;
    $primary->cli('CONFIG', 'SET', 'repl-diskless-sync-delay', 0);
    $replica->start if !$replica->{pid};
    $replica->cli('REPLICAOF', '127.0.0.1', $at // $primary->{port});
    eventually(sub { $replica->cli('INFO', 'replication') =~ /^master_link_status:up/m }, 1, 'a replica');
}

# Promotes a replica to primary.
sub promote {
    my ($replica) = @_;
    $replica->cli('REPLICAOF', 'NO', 'ONE');
    $store = $replica;
}

# Processes.

# Counts a hit on a, holds back the response to its push, and returns the worker that waits for it.
sub hold_a_push {
    $proxy_a->hold;
    hits(a => 1);
    my $holder;
    # After a timeout, the worker repeats the push on another connection.
    $a->wait_for('a worker that waits for the answer to a push', sub {
        my $state = $proxy_a->state;
        ($holder) = grep { has_connection($_, $state->{holder}, $proxy_a->{port}) } $a->workers
            if $state->{held};
        return $holder;
    });
    pass('a worker waits for the answer to a push');
    return $holder;
}

# Returns whether a process has the connection from one port to the other.
sub has_connection {
    my ($pid, $from, $to) = @_;
    open my $file, '<', '/proc/net/tcp' or die "cannot read: $!\n";
    my $ports   = sprintf ':%04X \w+:%04X', $from, $to;
    my ($inode) = map { (split)[9] } grep {/$ports/} <$file>;
    return defined $inode && grep { (readlink // '') eq "socket:[$inode]" } glob "/proc/$pid/fd/*";
}
