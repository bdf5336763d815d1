# Tests early pushes: nodes keep limits although `sync_rate` is a minute.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports TEST_NGINX_PORT + 2 to + 4.
#
# Windows have 366 days (see lib/ConvergenceTests.pm). No test waits for the sync period or for a fixed time.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Node;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

$store = Redis->new(port => $port + 4);

my ($a, $b) = @nodes;

subtest 'a limit is met by two nodes that sync once in a minute' => sub {
    start_acquainted(limit => 100);
    # The nodes take turns. A node pushes when its hits are a quarter of the remaining limit.
    my ($total, $node) = (0, $b);
    for my $hits (20, 16, 13, 11, 8, 7, 5, 4, 4, 3, 2, 2, 1, 1, 1, 1, 1) {
        $node = $node == $a ? $b : $a;
        $node->hit(hit => 'k') for 2 .. $hits;
        is($store->total(api => 'k') || 0, $total, 'they wait') if $hits > 1;
        $node->hit(hit => 'k');
        $total += $hits;
        eventually(sub { $store->total(api => 'k') }, $total, "hit $hits on $node->{name} is pushed with those before");
        eventually(sub { $_->rate(ask => 'k') }, $total, "$_->{name} knows that") for @nodes;
    }
    is($total, 100, 'as many as the limit');
    is($_->hit(hit => 'k'), 429, "$_->{name} rejects") for @nodes;
    stop();
};

subtest 'a counter far from its limit waits' => sub {
    start_acquainted(limit => 1_000_000);
    $a->hit(hit => 'far') for 1 .. 20;
    $a->hit(near => 'near');
    eventually(sub { $store->totals('api') }, {near => 1}, 'one is pushed at once, the other is not');
    sync_now($a);
    eventually(sub { $store->total(api => 'far') }, 20, 'until a sync');
    stop();
};

subtest 'hits that a node keeps are pushed when the others use up the limit' => sub {
    start_acquainted(limit => 100);
    $a->hit(hit => 'k') for 1 .. 5;
    $b->hit(hit => 'k') for 1 .. 60;
    sync_now($b);
    eventually(sub { $a->rate(ask => 'k') }, 65, 'a node hears of it');
    $a->hit(hit => 'k');
    is($store->total(api => 'k'), 60, 'of 34 remaining hits, it keeps its six');
    $b->hit(hit => 'k') for 1 .. 20;
    sync_now($b);
    eventually(sub { $store->total(api => 'k') }, 86, 'of 14, it does not, without another hit');
    eventually(sub { $_->rate(ask => 'k') }, 86, "$_->{name} knows all") for @nodes;
    stop();
};

# Returns the number of exchanges with the store so far, reads of the channel included.
sub exchanges {
    my $stats = $store->cli(INFO => 'commandstats');
    return sum0($stats =~ /^cmdstat_(?:evalsha|eval|xread):calls=(\d+)/mg);
}

subtest 'all nodes together make as many exchanges as they may' => sub {
    start_acquainted(limit => 1_000_000, store => 'exchanges 10;');
    my ($before, $start) = (exchanges(), time);
    for my $hit (1 .. 200) {
        $_->hit(near => "$hit-$_->{name}") for @nodes;
    }
    eventually(sub { scalar keys %{$store->totals('api')} }, 400, 'all that is due is pushed');
    my ($made, $took) = (exchanges() - $before, time - $start);
    # Before that, each may have saved those of a quarter of a second.
    cmp_ok($made, '<=', 10 * ($took + 0.25) + 2 * @nodes, sprintf 'in %.1f s', $took);
    stop();
};

subtest 'any worker has it pushed, and one that is killed is replaced' => sub {
    start_acquainted(limit => 1_000_000, workers => 2);
    for my $round (1 .. 3) {
        # With so many hits, both workers get some.
        $a->hit(near => "$round-$_") for 1 .. 20;
        eventually(sub { scalar keys %{$store->totals('api')} }, 20 * $round, 'all are pushed');
        if ($round < 3) {
            my $holder = $a->sync_status('lease_pid');
            kill KILL => $holder;
            $a->wait_for('another worker', sub { $a->settled && !grep { $_ == $holder } $a->workers });
        }
    }
    stop($killed);
};

subtest 'sync_early off' => sub {
    start_acquainted(limit => 1_000_000, namespace => 'sync_early off;');
    $a->hit(near => 'near');
    $a->hit(near => 'more');
    is_deeply($store->totals('api'), {}, 'all waits for the period');
    sync_now($a);
    eventually(sub { $store->totals('api') }, {near => 1, more => 1}, 'or until it is asked for');
    stop();
};

subtest 'a store that is away and comes back' => sub {
    start_acquainted(limit => 1_000_000);
    $store->kill;
    for my $key (1 .. 5) {
        $_->hit(near => $key) for @nodes;
    }
    eventually(sub { $_->logged($lost) }, 1, "$_->{name} tells that it is lost") for @nodes;
    $store->start;
    eventually(sub { $_->logged($back) }, 1, "$_->{name} tells that it is back, long before the minute") for @nodes;
    eventually(sub { $store->totals('api') }, {map { $_ => 2 } 1 .. 5}, 'it has all');
    stop($lost);
};

subtest 'on_loss share: while the store is away, a node admits its share of a limit' => sub {
    start_acquainted(limit => 100, namespace => 'on_loss share;');
    # Node a gets three quarters of the hits.
    for (1 .. 10) {
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k');
    }
    sync_now($_) for @nodes, @nodes;
    eventually(sub { $_->rate(ask => 'k') }, 40, "$_->{name} knows all") for @nodes;
    $store->kill;
    $_->hit(near => 'noticed') for @nodes;
    eventually(sub { $_->logged($lost) }, 1, "$_->{name} tells that it is lost") for @nodes;
    is($a->logged(qr/on_loss share: each node admits its share of each limit/), 1, 'and what then happens');
    my %passed = map { my $node = $_; $node->{name} => scalar grep { $node->hit(hit => 'k') == 200 } 1 .. 100 } @nodes;
    is_deeply(\%passed, {a => 45, b => 40}, 'three quarters, less 30, and of two nodes a half, less 10');
    is($b->hit(unseen => 'new'), 200, 'of another key, half is anybody\'s');
    is($b->hit(unseen => 'new'), 429, 'and no more');
    $store->start;
    eventually(sub { $_->logged($back) }, 1, "$_->{name} tells that it is back") for @nodes;
    eventually(sub { $store->total(api => 'k') }, 125, 'all of that is known');
    is($b->hit(unseen => 'new'), 200, 'and the other half is there again');
    stop($lost);
};

subtest 'on_loss share: nodes take turns in a limit that is smaller than their number' => sub {
    start_acquainted(namespace => 'on_loss share;');
    $_->reload(rules => {%{$_->{conf}{rules}}, turn => 'api limit=1/1s window=fixed'}) for @nodes;
    $_->wait_for_first_sync for @nodes;
    $store->kill;
    $_->hit(near => 'noticed') for @nodes;
    eventually(sub { $_->logged($lost) }, 1, "$_->{name} tells that it is lost") for @nodes;
    # The windows in which each node has admitted a request.
    my %admitted = map { $_->{name} => {} } @nodes;
    $a->wait_for('three turns of each node', sub {
        for my $node (@nodes) {
            my $before = int time;
            my $status = $node->hit(turn => 'k');
            # A request at the border may be in either window.
            $admitted{$node->{name}}{$before}++ if $status == 200 && $before == int time;
        }
        return !grep { keys %$_ < 3 } values %admitted;
    });
    my ($of_a, $of_b) = @admitted{qw(a b)};
    is_deeply([grep { $_ > 1 } values %$of_a, values %$of_b], [], 'one request in each turn');
    is_deeply([grep { $of_b->{$_} } keys %$of_a], [], 'no window is the turn of both nodes');
    stop(qr/$lost|$unconfirmed|sync_rate/);
};

done_testing();
