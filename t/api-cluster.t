# Tests the API of nodes that share a store, with each kind of store: a change on one node reaches the others.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports TEST_NGINX_PORT + 2 to + 9.
# No test waits for the sync period, which is an hour: the API starts each sync.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Api;
use Cassandra;
use Node;
use Postgres;
use Redis;
use RedisCluster;
use TwoNodes;

my ($a, $b) = @nodes;

my @of_store;    # more of the configuration

sub api_conf { return conf(sync_rate => '1h', @of_store, @_), server => $with_api, zone => '5m' }

# Makes nodes sync, one after the other.
sub sync_all {
    for my $node (@_) {
        my ($status, $answer) = api($node, POST => 'api/sync');
        is($status, 200, "$node->{name} is synced") or diag($answer->{error});
    }
}

sub rates { return [map { $_->rate(ask => 'k') } @nodes] }

sub api_tests {
    my $label = $store->label;

    subtest "$label: POST sync" => sub {
        $store->be_empty;
        $_->start(api_conf()) for @nodes;
        $_->wait_for_first_sync for @nodes;
        $_->hit(hit => 'k') for $a, $a, $b;
        is_deeply(rates(), [2, 1], 'the period is long');
        my ($status, $answer) = api($a, POST => 'api/sync');
        is_deeply([$status, $answer], [200, {status => 'ok', pushed_keys => 1, fetched_keys => 0}], 'it has pushed');
        is($store->total(api => 'k'), 2, 'when it has answered');
        sync_all($b, $a);
        is_deeply(rates(), [3, 3], 'all know all');
        # Both workers get calls at once. Each response comes after a sync that began after the call.
        for (1 .. 20) {
            $a->hit(hit => 'many');
            api($a, POST => 'api/sync/');
            is($store->total(api => 'many'), $_, 'hits counted before are there') if $_ % 10 == 0;
        }
        stop();
    };

    subtest "$label: DELETE" => sub {
        $store->be_empty;
        $_->start(api_conf()) for @nodes;
        $_->wait_for_first_sync for @nodes;
        $_->hit(hit => 'k') for $a, $a, $b;
        sync_all($a, $b, $a);
        $_->hit(hit => 'k') for $a, $b, $b, $b;
        my ($status, $answer) = api($a, DELETE => 'api/keys/k');
        is_deeply([$status, $answer], [200, {reset => [{window => 31622400, window_type => 'sliding', counter => undef, rate => 4}]}],
            'it tells what it has set to zero');
        ($status, $answer) = api($a, GET => 'api/keys/k?window_type=fixed');
        is_deeply([$status, @$answer{qw(rate current previous)}], [200, 0, 0, 0], 'it is zero here');
        # DELETE resets the hits that node a knows of. The three hits that b has not pushed yet remain.
        eventually(sub { $store->total(api => 'k') }, 0, "and in $label, at once");
        eventually(\&rates, [0, 3], 'and elsewhere') if eval { $store->listeners };
        $a->hit(hit => 'k');
        sync_all($a, $b, $a);
        is_deeply(rates(), [4, 4], 'but for what others had not pushed, and what came after');
        is($store->total(api => 'k'), 4, "as in $label");
        # Without a channel, a node must sync before it resets a key that the other one has reset.
        my $is_told = eval { $store->listeners };
        my @keys = ('k', $is_told ? map {"k$_"} 1 .. 50 : ());
        $a->hit(hit => $_) for @keys;
        sync_all($a, $b);
        for my $key (@keys) {
            for my $node (@nodes) {
                api($node, DELETE => "api/keys/$key");
                sync_all($a, $b) if !$is_told;
            }
        }
        sync_all($a, $b, $a, $b);
        my @left = grep { $a->rate(ask => $_) || $b->rate(ask => $_) || $store->total(api => $_) } @keys;
        is_deeply(\@left, [], 'two nodes at once set keys to zero once');
        $b->hit(hit => 'k');
        sync_all($b, $a);
        is_deeply(rates(), [1, 1], 'and a hit counts');
        stop();
    };

    subtest "$label: a store that is away" => sub {
        $store->be_empty;
        $a->start(api_conf(times => patience('timeout 250ms; connect_timeout 250ms;')));
        $a->wait_for_first_sync;
        $a->hit(hit => 'k') for 1 .. 3;
        # On a busy machine, a timeout may expire.
        eventually(sub { (api($a, POST => 'api/sync'))[0] }, 200, 'it is synced');
        $store->pause;
        my ($status, $answer) = api($a, POST => 'api/sync');
        is($status, 503, 'is told of in time');
        like($answer->{error}, qr/^the store has not answered in time/, 'as it is');
        ($status, $answer) = api($a, DELETE => 'api/keys/k');
        is_deeply([$status, scalar @{$answer->{reset}}], [200, 1], 'DELETE does without it');
        $store->go_on;
        eventually(sub { (api($a, POST => 'api/sync'))[0] }, 200, 'until it is back');
        is($store->total(api => 'k'), 0, 'with the next sync');
        stop($lost);
    };
}

for my $kind (grep { $_->is_there } qw(Redis Postgres Cassandra)) {
    $store = $kind->new(port => $port + 4);
    api_tests();
    $store->kill;
}

$store    = RedisCluster->new(port => $port + 4);
@of_store = (server => $store->servers);
api_tests();
$store->kill;

subtest 'a write whose body nginx refuses' => sub {
    $a->start(
        http   => 'ratelimit_namespace api { window_sizes 366d; }',
        rules  => {hit => 'api limit=5/366d'},
        server => $with_api,
    );
    my %head = (POST => 'window=366d&value=7', DELETE => 'window=366d');
    is((api($a, POST => 'api/keys/k?window=366d'))[1]{rate}, 1, 'a hit');
    for my $method (qw(POST DELETE)) {
        my $socket = $a->connection;
        syswrite $socket, "$method /rw/namespaces/api/keys/k?$head{$method} HTTP/1.1\r\nHost: localhost\r\n"
            . "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        like(join('', <$socket>), qr{^HTTP/1.1 400 }, "$method is refused");
        is((api($a, GET => 'api/keys/k?window=366d'))[1]{rate}, 1, 'and nothing is counted or reset');
    }
    stop(qr/client sent invalid chunked body/);
};

subtest 'without a store' => sub {
    $a->start(
        http   => 'ratelimit_namespace api { window_sizes 1m; }',
        rules  => {hit => 'api limit=5/1m'},
        server => $with_api,
    );
    my ($status, $answer) = api($a, POST => 'api/sync');
    is_deeply([$status, $answer->{error}], [400, 'the namespace is not synced: expected one with a store and a sync_rate'],
        'there is nothing to sync with');
    is((api($a, POST => 'none/sync'))[0], 404, 'nor is there another namespace');
    stop();
};

done_testing();
