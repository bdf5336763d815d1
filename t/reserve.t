# Tests `reserve on` with two nodes of four workers each: they never admit more than the limit, decide most
# requests without an exchange with the store, and give back the unused reserve.
#
# This is a plain Perl test, like topologies.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0 uniq);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Proxy;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;
$store = Redis->new(port => $port + 4);

sub reserving {
    my %conf = synchronous(namespace => 'timeout 5s; reserve on;', @_);
    return (%conf, workers => 4);
}

# Returns the number of exchanges with the store, each for one or more requests.
sub exchanges {
    my ($line) = grep {/^cmdstat_evalsha:/} split /\r?\n/, $store->cli(INFO => 'commandstats');
    return ($line // '') =~ /calls=(\d+)/ ? $1 : 0;
}

for my $window (qw(fixed sliding)) {
    subtest "of two nodes under load, $window windows admit at most the limit, and nearly all of it" => sub {
        $store->be_empty;
        $_->start(reserving(limit => 20_000, window => $window)) for @nodes;
        my @loads = map { ($a->load('k'), $b->load('k')) } 1, 2;
        my @sums  = map { $_->(8000) } @loads;
        my $total = sum0(map { $_->{200} + $_->{429} } @sums);
        my $made  = sum0(map { $_->{200} } @sums);
        cmp_ok($total, '>=', 30_000, "of $total requests");
        cmp_ok($made,  '<=', 20_000, "$made are admitted, at most the limit");
        cmp_ok($made,  '>=', 19_000, 'and nearly as many');
        is(sum0(map { $_->{lost} } @sums), 0, 'none is lost');
        eventually(sub { $store->total(api => 'k') }, $made, 'as many are counted, when the rest is given back');
        stop();
    };
}

subtest 'the rate is that of the hits that were made, and few of them ask' => sub {
    $store->be_empty;
    # With more workers, one may read the charge of another before it reads how much of that is left in reserve.
    $a->start(reserving(), workers => 1);
    $a->wait_for_first_sync;
    my $before = exchanges();
    is_deeply([map { $a->rate(hit => 'k') } 1 .. 300], [1 .. 300], 'each hit is counted');
    my $asked = exchanges() - $before;
    cmp_ok($asked, '<', 100, "300 hits, $asked exchanges");
    eventually(sub { $store->total(api => 'k') }, 300, 'what nobody spends is given back');
    stop();
};

subtest 'before the first sync, which enters an epoch of the store, nothing is charged ahead' => sub {
    $store->be_empty;
    my $opens = qr/rl:\{api:0\}\r\n\$0\r\n\r\n/;    # begins an epoch where the store has none
    my $proxy = Proxy->new(port => $port + 6, to => $store->{port}, push => $opens);
    $proxy->hold;
    $a->start(reserving(server => "server 127.0.0.1:$proxy->{port};"), workers => 1);
    $a->wait_for('the first sync', sub { $proxy->state->{held} });
    is($a->rate(hit => 'k'), $_, 'the store decides') for 1 .. 20;
    is($store->total(api => 'k'), 20, 'and has charged no more');
    $proxy->pass;
    $a->wait_for_first_sync;
    my $before = exchanges();
    $a->hit(hit => 'k') for 1 .. 200;
    cmp_ok(exchanges() - $before, '<', 100, 'then hits are');
    eventually(sub { $store->total(api => 'k') }, 220, 'what nobody spends is given back');
    stop();
};

subtest 'requests that only ask have nothing charged' => sub {
    $store->be_empty;
    $a->start(reserving());
    $a->hit(hit => 'k');
    my @counted = map { $a->hit(ask => 'k'); $store->total(api => 'k') } 1 .. 50;
    is_deeply([uniq @counted], [1], 'however often');
    stop();
};

subtest 'a graceful stop gives back' => sub {
    $store->be_empty;
    $a->start(reserving(), workers => 1);
    $a->hit(hit => 'k') for 1 .. 20;
    # A reserve that is requested while the worker stops stays charged. Responses come in the order of the requests.
    $a->hit(hit => 'other');
    stop();
    is($store->total(api => 'k'), 20, 'admitted hits are counted');
};

subtest 'workers that are killed admit nothing twice' => sub {
    $store->be_empty;
    $_->start(reserving(limit => 20_000)) for @nodes;
    my @loads = map { ($a->load('k'), $b->load('k')) } 1, 2;
    for my $node (@nodes) {
        $node->wait_for('a request', sub { $node->hit(ask => 'k') });
        my ($worker) = $node->workers;
        kill KILL => $worker;
    }
    my @sums = map { $_->(6000) } @loads;
    my $made = sum0(map { $_->{200} } @sums);
    cmp_ok($made, '<=', 20_000, "$made are admitted");
    cmp_ok($store->total(api => 'k'), '>=', $made, 'all of them are counted');
    stop($killed);
};

subtest 'several limits, hits of a response, and other costs' => sub {
    $store->be_empty;
    my %conf = reserving();
    $conf{rules}{both} = 'api limit=1000/360d limit=500/330d window=fixed cost=0.5';
    $conf{rules}{late} = 'api limit=1000/300d window=fixed charge=$arg_c';
    $a->start(%conf);
    $a->hit(both => 'k') for 1 .. 40;
    is($a->status(both => 'k'), 'PASSED', 'admitted by both');
    eventually(sub { $store->total(api => 'k') }, 41, 'and counted in both');
    $a->hit(late => 'l', 'c=2') for 1 .. 20;
    eventually(sub { $store->total(api => 'l') }, 40, 'what the responses cost');
    stop();
};

subtest 'responses that cost more than a reserve has are limited all the same' => sub {
    $store->be_empty;
    my %conf = reserving();
    $conf{rules}{late} = 'api limit=1000/300d window=fixed charge=$arg_c';
    $conf{rules}{ask}  = 'api limit=1000/300d window=fixed cost=0';
    $a->start(%conf, workers => 1);
    my $made = 0;
    while ($made < 60 && $a->status(late => 'l', 'c=100') eq 'PASSED') {
        $made++;
        # The next request sees the cost of this one.
        $a->wait_for('its cost', sub { $a->rate(ask => 'l') >= 100 * $made });
    }
    is($made, 10, 'so many of 100 are admitted as the limit has room for');
    stop();
};

subtest 'a store that lost what was charged ahead gets nothing of it back' => sub {
    $store->be_empty;
    my $replica = Redis->new(port => $port + 7, args => ['--replicaof', "127.0.0.1 $store->{port}"]);
    $replica->start;
    my $servers = "server 127.0.0.1:$store->{port}; server 127.0.0.1:$replica->{port};";
    my %conf    = reserving(server => $servers, limit => 3000);
    $conf{server} .= ' location /write/ { ratelimit off; ratelimit_api write=on; }';
    $a->start(%conf, workers => 1);
    $a->wait_for_first_sync;
    # Makes hits and waits until the store has exactly their number, because the unused reserve is given back.
    my $hit_and_settle = sub {
        my ($of, $key, $hits) = @_;
        $a->hit(hit => $key) for 1 .. $hits;
        eventually(sub { $of->total(api => $key) }, $hits, "$hits of $key are counted");
    };
    $hit_and_settle->($store, k => 100);
    eventually(sub { $replica->total(api => 'k') }, 100, 'the replica has them');
    $replica->cli(REPLICAOF => 'NO', 'ONE');
    my $charged = 0;
    $a->wait_for('many that are charged ahead', sub {
        $a->hit(hit => 'k');
        $charged = $store->total(api => 'k');
        return $charged > 400;
    });
    $store->kill;
    # Reserves from before the failover are given back before newer ones. A key whose reserve was void stays charged.
    my $keys = 0;
    $a->wait_for('what is given back', sub {
        my $key = 'after-' . $keys++;
        $a->hit(hit => $key) for 1 .. 40;
        return eval { Nginx::wait_until(3, sub { $replica->total(api => $key) == 40 }); 1 };
    });
    cmp_ok($replica->total(api => 'k'), '>=', 100, 'no hit that it had is gone');
    my $before = $replica->total(api => 'k');
    my $passed = grep { $a->status(hit => 'k') eq 'PASSED' } 1 .. 3200;
    cmp_ok($passed, '<=', 3000 - $before, "$passed are admitted, no more than was left");
    stop($lost);
    $replica->kill;
};

done_testing();
