# Tests that no hit of nodes that share a store is lost or counted twice when the store, a worker or a
# node fails. Every store runs the same tests, as in the conformance suite of src/store.

package RecoveryTests;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(sum0);
use Node;
use Processes;
use Test::More;
use TwoNodes;

our @EXPORT = qw(recovery_tests);

my ($a, $b) = @nodes;

sub recovery_tests {
    subtest 'a store that is not there at first' => sub {
        $store->be_away;
        $_->start(conf(limit => 20)) for @nodes;
        is($a->hit(hit => 'k'), 200, 'a hit is counted here') for 1 .. 3;
        is($a->rate(ask => 'k'), 3, 'and known here');
        is($b->rate(hit => 'k'), 1, 'and another one there');
        is($b->rate(ask => 'other'), 0, 'nothing else is');
        $a->hit(hit => 'full') for 1 .. 20;
        is($a->hit(hit => 'full'), 429, 'the limit holds here');
        for my $node (@nodes) {
            $node->wait_for('an [error]', sub { $node->logged($lost) });
        }
        $store->start;
        all_know(k    => 4);
        all_know(full => 20);
        is($b->hit(hit => 'full'), 429, 'and there');
        for my $node (@nodes) {
            $node->wait_for('a [notice]', sub { $node->logged(connected()) });
            is($node->logged($lost), 1, "one [error] on $node->{name}");
            is($node->logged(connected()), 1, "one [notice] on $node->{name}");
        }
        stop($lost);
    };

    subtest 'a store that comes back empty' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
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
            $store->kill;
            $hits->();
            $store->start;
            $hits->();
            all_know(k => $count);
        }
        stop($lost);
    };

    for my $disturbance ($store->disturbances) {
        my ($name, $disturb) = @$disturbance;
        subtest $name => sub {
            $store->be_empty;
            $_->start(conf()) for @nodes;
            $a->hit(hit => $_) for qw(k k k of-a);
            $b->hit(hit => $_) for qw(k k of-b);
            all_know(k => 5);
            for my $time (1, 2) {
                $disturb->();
                $a->hit(hit => 'k');
                $disturb->();
                $b->hit(hit => 'k');
                all_know(k => 5 + 2 * $time);
            }
            all_know('of-a' => 1);
            all_know('of-b' => 1);
            stop($lost);
        };
        subtest "under load: $name" => sub {
            $store->be_empty;
            $_->start(conf()) for @nodes;
            my @loads = map { $_->load('k') } @nodes;
            for (1 .. 3) {
                pushed_under_load();
                $disturb->();
            }
            pushed_under_load();
            totals_of_loads(@loads);
            stop($lost);
        };
    }

    subtest 'a store that comes back empty under load' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
        $_->hit(hit => "of-$_->{name}") for @nodes;
        my @loads = map { $_->load('k') } @nodes;
        for (1 .. 3) {
            pushed_under_load();
            $store->kill;
            $store->start;
        }
        pushed_under_load();
        totals_of_loads(@loads);
        all_know("of-$_->{name}" => 1) for @nodes;
        stop($lost);
    };

    subtest 'a store that keeps what it has, restarted under load' => sub {
        $store->be_empty(keeps => 1);
        $_->start(conf()) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
        pushed_under_load();
        my $epoch = $store->epoch('api');
        for (1 .. 3) {
            pushed_under_load();
            $store->restart;
        }
        pushed_under_load();
        totals_of_loads(@loads);
        is($store->epoch('api'), $epoch, 'the epoch is the same');
        stop($lost);
    };

    subtest 'a store that hangs under load' => sub {
        $store->be_empty;
        $_->start(impatient()) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
        my $up    = 'ratelimit_store_up{store="main"}';
        for (1, 2) {
            pushed_under_load();
            $store->pause;
            # On a busy machine, a timeout may have expired before.
            for my $node (@nodes) {
                $node->wait_for('its loss', sub { TwoNodes::metric($node, $up) eq '0' });
                is($node->hit(hit => 'meanwhile'), 200, 'a request is answered while it hangs');
            }
            $store->go_on;
            for my $node (@nodes) {
                $node->wait_for('its return', sub { TwoNodes::metric($node, $up) eq '1' });
            }
        }
        my @sums = totals_of_loads(@loads);
        no_answer_was_slow(@sums);
        is($_->{lost}, 0, 'and none was lost') for @sums;
        stop($lost);
    };

    subtest 'workers that are killed under load' => sub {
        $store->be_empty;
        $_->start(impatient()) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
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
        $store->be_empty;
        $_->start(impatient()) for @nodes;
        my $count = 0;
        for my $worker ($a->workers) {
            stop_processes($worker);
            for (1 .. 5) {
                is($a->hit(hit => 'k'), 200, 'a hit in the other worker');
                $count++;
            }
            eventually(sub { $store->total(api => 'k') }, $count, 'which syncs');
            eventually(sub { $b->rate(ask => 'k') }, $count, 'so that the other node knows it');
            $b->hit(hit => 'k');
            $count++;
            eventually(sub { $a->rate(ask => 'k') }, $count, 'and the other way round');
            kill CONT => $worker;
            all_know(k => $count);
        }
        stop($lost);
    };

    subtest 'a node that is killed whole' => sub {
        $store->be_empty;
        $_->start(conf()) for @nodes;
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k') for 1 .. 4;
        all_know(k => 7);
        $a->kill_all;
        $b->hit(hit => 'k');
        eventually(sub { $store->total(api => 'k') }, 8, 'the other goes on');
        unlink "$a->{root}/nginx.pid";
        $a->start(conf());
        all_know(k => 8);
        $a->hit(hit => 'k');
        all_know(k => 9);
        stop();
    };

    for my $signal (qw(QUIT TERM)) {
        subtest "$signal pushes what is left" => sub {
            my $count = $signal eq 'TERM' && $store->can('second') ? $store->second : 2000;
            pushes_all($signal, 'all is there', sub {
                my ($time) = @_;
                my @keys = map {"key-$_"} 1 .. $count / $time;
                $store->be_empty;
                $_->start(conf(sync_rate => '10m')) for @nodes;
                $_->wait_for_first_sync             for @nodes;
                my ($counted, @took) = 0;
                for my $node (@nodes) {
                    my $sum = $node->load(@keys)->(2000);
                    is($sum->{lost}, 0, "$sum->{200} hits on $node->{name}");
                    $node->hit(hit => "of-$node->{name}") for 1 .. 3;
                    $counted += $sum->{200} + 3;
                }
                for my $node (@nodes) {
                    is($store->total(api => "of-$node->{name}"), 0, "the hits of $node->{name} are not there yet");
                    push @took, $node->stop(cut_off($signal), $signal);
                }
                return (sum0(values %{$store->totals('api')}), $counted, @took);
            });
        };
        subtest "$signal ends in time without a store" => sub {
            for my $is_paused (0, 1) {
                ends_within($signal eq 'QUIT' ? 3 : 1.5, $is_paused ? 'it hangs' : 'it is gone', sub {
                    $store->be_empty;
                    $a->start(impatient());
                    $a->hit(hit => 'k');
                    eventually(sub { $store->total(api => 'k') }, 1, 'it was there');
                    $is_paused ? $store->pause : $store->kill;
                    $a->hit(hit => 'k');
                    my $took = $a->stop(qr/$lost|${\ cut_off($signal)}/, $signal);
                    $store->go_on if $is_paused;
                    return $took;
                });
            }
        };
    }

    subtest 'a loss is told once for a store, by a node' => sub {
        $store->be_away;
        my %conf = conf();
        my $namespaces = join ' ', map {"ratelimit_namespace n$_ { store main; sync_rate 0.1; }"} 1 .. 3;
        $conf{http} .= $namespaces;
        $conf{rules}{"n$_"} = "n$_ limit=1000000/366d" for 1 .. 3;
        $_->start(%conf) for @nodes;
        $a->hit($_ => 'k') for qw(hit n1 n2 n3);
        for my $node (@nodes) {
            $node->wait_for('an [error]', sub { $node->logged($lost) });
        }
        $a->reload;
        my @before = $a->workers;
        kill KILL => $before[0];
        $a->wait_for('a new worker', sub { $a->settled($before[0]) });
        $a->hit($_ => 'k') for qw(hit n1 n2 n3);
        $store->start;
        all_know(k => 2);
        eventually(sub { $store->total("n$_" => 'k') }, 2, "and in n$_") for 1 .. 3;
        for my $node (@nodes) {
            $node->wait_for('a [notice]', sub { $node->logged(connected()) });
            is($node->logged($lost), 1, "one [error] on $node->{name}");
            is($node->logged(connected()), 1, "one [notice] on $node->{name}");
        }
        stop(qr/$lost|$killed/);
    };

    subtest 'a long sync_rate and a store that is away' => sub {
        $store->be_away;
        $_->start(conf(sync_rate => '60s')) for @nodes;
        $_->hit(hit => 'k') for @nodes;
        for my $node (@nodes) {
            $node->wait_for('an [error]', sub { $node->logged($lost) });
        }
        $store->start;
        eventually(sub { $store->total(api => 'k') }, 2, 'attempts are 2 s apart at most');
        stop($lost);
    };
}

1;
