# Tests that nodes that share a store converge on the same counts, for any keys, in all windows and
# namespaces, also when their configurations change. Every store runs the same tests, as in the conformance
# suite of src/store.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

package ConvergenceTests;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(sum0);
use Node;
use Test::More;
use TwoNodes;

our @EXPORT = qw(convergence_tests);

my ($a, $b) = @nodes;

sub convergence_tests {
    subtest 'hits on one node are in the rate of the other' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
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

    subtest 'requests under way count on both nodes, and those of a node that is gone for 5 s at most' => sub {
        $store->be_empty;
        for my $node (@nodes) {
            # A request waits for its body.
            $node->start(conf(), server => <<"            END");
            location = /held/k { ratelimit api concurrent=4 key=k; proxy_pass http://127.0.0.1:$node->{port}/end; }
            location = /end { ratelimit off; return 200 end; }
            END
        }
        my $hold = sub {
            my $socket = $_[0]->connection or die "no connection: $!";
            print $socket "POST /held/k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
            return $socket;
        };
        my $number = sub { my ($node) = @_; TwoNodes::metric($node, q(ratelimit_concurrent{namespace="api"})) };
        my @held   = map { $hold->($a) } 1 .. 3;
        eventually(sub { $b->rate(held => 'k') }, 4, 'three of the other node, and this one');
        push @held, $hold->($b);
        eventually(sub { $a->hit(held => 'k') }, 429, 'four are the limit');
        is($b->hit(held => 'k'), 429, 'on both nodes');
        is($number->($a), 3, 'the metric is the number of the node');
        is($number->($b), 1, 'and of the other');
        close shift @held;
        eventually(sub { $b->hit(held => 'k') }, 200, 'one that ends makes room on the other node');
        # Longer than any window in which they were told.
        my $begin = time;
        while (time < $begin + 6) {
            my $rate = $b->rate(held => 'k');
            if ($rate != 4) { is($rate, 4, 'they stay'); last }
        }
        my $gone = time;
        $a->kill_all;
        eventually(sub { $b->rate(held => 'k') }, 2, 'the others are gone with their node');
        cmp_ok(time - $gone, '<', 7, 'in time');
        close $_ for @held;
        eventually(sub { $number->($b) }, 0, 'none');
        $b->stop;
    };

    subtest 'keys that only came from the store limit' => sub {
        $store->be_empty;
        $_->start(conf(limit => 3)) for @nodes;
        is($a->hit(hit => 'k'), 200, 'a hit') for 1 .. 3;
        eventually(sub { $b->hit(ask => 'k') }, 429, 'the other node rejects');
        is($b->hit(hit => 'k'), 429, 'and does not count that');
        all_know(k => 3);
        stop();
    };

    subtest 'a node that starts later begins with what the others counted' => sub {
        $store->be_empty;
        $a->start(conf());
        $a->hit(hit => "k$_") for 1 .. 50;
        eventually(sub { sum0(values %{$store->totals('api')}) }, 50, 'is in ' . $store->label);
        $b->start(conf());
        eventually(sub { $b->rate(ask => 'k1') + $b->rate(ask => 'k50') }, 2, 'and soon in b');
        stop();
    };

    subtest 'several windows, many keys of any bytes' => sub {
        $store->be_empty;
        my @windows = qw(366d 360d 300d);
        my %rules   = map { ("hit$_" => "api limit=1000000/$windows[$_]") } 0 .. 2;
        $rules{"ask$_"} = "$rules{\"hit$_\"} cost=0" for 0 .. 2;
        $rules{hit} = 'api ' . join ' ', map {"limit=1000000/$_"} @windows;
        $_->start(conf(), rules => \%rules) for @nodes;

        # nginx refuses a zero byte in a path, and resolves dots and slashes.
        my @bytes = grep { !m{[\0./]} } map {chr} 0 .. 255;
        my @keys  = map { join '', map { $bytes[rand @bytes] } 1 .. 1 + $_ % 20, 'x' } 1 .. 990;
        push @keys, @bytes[map { $_ * 20 } 1 .. 9], 'long' x 1000;
        # The counts are indexed by the names of the keys in the store.
        my (%counts, %extra);
        for my $i (0 .. $#keys) {
            ($i % 2 ? $a : $b)->hit(hit => $keys[$i]);
            $counts{name_of($keys[$i])}++;
        }
        $b->hit(hit1 => $keys[$_]) for 0 .. 9;
        $extra{name_of($keys[$_])}++ for 0 .. 9;
        my %more = map { $_ => $counts{$_} + ($extra{$_} // 0) } keys %counts;

        my $day = 24 * 3600 * 1000;
        eventually(sub { $store->totals('api', 366 * $day) }, \%counts, 'the first window in ' . $store->label);
        eventually(sub { $store->totals('api', 360 * $day) }, \%more,   'the second, with more');
        eventually(sub { $store->totals('api', 300 * $day) }, \%counts, 'the third');
        for my $node (@nodes) {
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
        $store->be_empty;
        my %conf = conf();
        $conf{http} .= <<'        END';
        ratelimit_namespace other { store main; sync_rate 0.1; }
        END
        $conf{rules}{other}    = 'other limit=1000000/366d';
        $conf{rules}{askother} = 'other limit=1000000/366d cost=0';
        $_->start(%conf) for @nodes;
        $a->hit(hit   => 'k') for 1 .. 3;
        $b->hit(other => 'k') for 1 .. 5;
        eventually(sub { $store->totals('api') },   {k => 3}, 'one');
        eventually(sub { $store->totals('other') }, {k => 5}, 'the other');
        for my $node (@nodes) {
            eventually(sub { $node->rate(ask      => 'k') }, 3, "one on $node->{name}");
            eventually(sub { $node->rate(askother => 'k') }, 5, "the other on $node->{name}");
        }
        stop();
    };

    subtest 'reloads under load' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
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
        $store->be_empty;
        $_->start(conf()) for @nodes;
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
        eventually(sub { $store->total(api => 'k') }, $count, 'before sync_rate off, all is pushed');
        is($a->rate(ask => 'k'), $count, 'counts stay with sync_rate off');
        my $pushed = $count;
        $hits->();
        is($a->rate(ask => 'k'), $count, 'where more are counted');
        $b->hit(hit => 'k');
        eventually(sub { $store->total(api => 'k') }, $pushed + 1, 'the other node goes on');
        is($a->rate(ask => 'k'), $count, 'unnoticed');
        $a->reload(conf());
        $hits->();
        $a->hit(hit => 'last');
        eventually(sub { $store->total(api => 'last') }, 1, 'with sync_rate 0.1 again, hits are pushed');
        # The keys may be in different shards, which are pushed one after another.
        eventually(sub { $store->total(api => 'k') }, sub { $_[0] >= $pushed + 11 }, 'those that were meant for the store');
        my $total = $store->total(api => 'k');
        cmp_ok($total, '<=', $count + 1, 'but none twice');
        diag("of 10 hits that were counted with sync_rate off, ", $total - $pushed - 11, ' are pushed');
        stop();
    };

    subtest 'a password' => sub {
        $store->be_empty;
        $store->lock('correct-horse');
        $a->start(conf(store => $store->credentials('correct-horse')));
        $b->start(conf(store => $store->credentials('battery-staple')));
        is($b->hit(hit => 'k'), 200, 'the wrong one: limits alone');
        is($a->hit(hit => 'k'), 200, 'the right one');
        eventually(sub { $store->total(api => 'k') }, 1, 'pushes');
        $b->wait_for('an [error]', sub { $b->logged(qr/$lost.*denies access/) });
        is($b->logged($lost), 1, 'the wrong one: one [error]');
        is($a->logged($lost), 0, 'the right one: none');
        $b->reload(conf(store => $store->credentials('correct-horse')));
        all_know(k => 2);
        my $secrets = qr/correct-horse|battery-staple|\blocked\b/;
        is($_->logged($secrets), 0, 'never a password or a name in the log') for @nodes;
        stop($lost);
        $store->unlock;
    };

    subtest 'without a master process' => sub {
        $store->be_empty;
        $a->start(conf(), single => 1);
        $b->start(conf());
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k');
        all_know(k => 4);
        $store->flush;
        $a->hit(hit => 'k');
        all_know(k => 5);
        for my $signal (qw(QUIT TERM)) {
            $a->stop($lost, $signal);
            $a->start(conf(sync_rate => '30s'), single => 1);
            $a->wait_for_first_sync;
            is($a->rate(ask => 'k'), 5, 'the first sync');
            $a->hit(hit => $signal) for 1 .. 3;
            is($store->total(api => $signal), 0, 'not pushed yet');
        }
        # After a reload without a master process, nginx itself no longer answers requests.
        kill HUP => $a->{master};
        eventually(sub { $store->total(api => 'TERM') }, 3, 'a reload pushes what is left');
        eventually(sub { $store->total(api => 'QUIT') }, 3, 'as an end does');
        stop($lost);
    };

    subtest 'a reload that names another store' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k') for 1 .. 4;
        all_know(k => 7);
        for my $number (1, 0, 2) {
            my ($options, %fields) = $store->place($number);
            $_->reload(conf(store => $options)) for @nodes;
            local @$store{keys %fields} = values %fields;
            all_know(k => 7);
        }
        stop();
    };

    subtest 'a reload that adds a window' => sub {
        $store->be_empty;
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
        eventually(sub { $_->rate(ask2 => 'k') }, 4, 'and it goes on') for @nodes;
        stop();
    };

    subtest 'a clock that is far from that of the store' => sub {
        $store->be_empty;
        my $off = qr/\[warn\] .*ratelimit_store "main" has a clock that is [45]\d\d\d ms behind this node's/;
        $a->start(conf(), clock => '+5s');
        $b->start(conf());
        $a->wait_for('a [warn]', sub { $a->logged($off) });
        $_->hit(hit => 'k') for @nodes;
        all_know(k => 2);
        is($a->logged($off), 1, 'one [warn]');
        is($b->logged($off), 0, 'none where the clocks agree');
        my ($offset) = $a->body('/metrics') =~ /^ratelimit_store_clock_offset_seconds\{store="main"\} (.*)/m;
        cmp_ok(abs($offset + 5), '<', 1, "an offset of $offset s in the metrics");
        stop($off);
    } if !$store->can('tells_no_time');

    subtest 'the metrics and the log of syncs' => sub {
        $store->be_empty;
        $a->start(conf());
        $a->hit(hit => "k$_") for 1 .. 20;
        eventually(sub { sum0(values %{$store->totals('api')}) }, 20, 'the hits are in ' . $store->label);
        eventually(sub { $a->pending }, 0, 'so that nothing is pending');
        like(join(' ', $a->workers), qr/\b@{[$a->sync_status('lease_pid')]}\b/, 'a worker syncs');
        my $metric = sub { my ($name) = @_; return $a->body('/metrics') =~ /^\Q$name\E (\S+)$/m ? $1 : '' };
        my $connects = 'ratelimit_store_connects_total{store="main"}';
        # A sync cycle updates the metric when it ends.
        eventually(sub { $metric->($connects) }, sub { $_[0] > 0 }, 'there have been connections');
        cmp_ok($metric->('ratelimit_store_exchange_duration_seconds_count{store="main"}'), '>', 1, 'and exchanges');
        cmp_ok($metric->('ratelimit_event_loop_hold_seconds_sum'), '>', 0, 'which held the event loop');

        my $before = $metric->($connects);
        $store->cut_connections;
        eventually(sub { $metric->($connects) }, sub { $_[0] > $before }, 'a connection that is cut is made again');

        my $up = 'ratelimit_store_up{store="main"}';
        eventually(sub { $metric->($up) }, 1, 'the store is up');
        my $told = $a->logged($lost);
        $store->kill;
        $a->hit(hit => "k$_") for 1 .. 30;
        $a->wait_for('an [error]', sub { $a->logged($lost) > $told });
        is($a->pending, 30, 'while it is away, keys are pending');
        is($metric->('ratelimit_sync_pending_counters{namespace="api"}'), 30, 'in the metrics, too');
        is($metric->($up), 0, 'the store is down');
        $store->start;
        eventually(sub { $a->pending }, 0, 'until it is back');
        stop($lost);
    };
}

1;
