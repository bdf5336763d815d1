# Tests synchronous namespaces, whose store decides, with a Redis: the tests for any store (see
# lib/SynchronousTests.pm), and tests with a Redis Cluster.
#
# This is a plain Perl test, like topologies.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;
use RedisCluster;
use SynchronousTests;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;
$store = Redis->new(port => $port + 4);

synchronous_tests();

subtest 'keys and counts that somebody else overwrites' => sub {
    $store->be_empty;
    $a->start(decided());
    is($a->rate(hit => 'k'), 1, 'a hit');
    my $shard    = 'rl:{api:0}';
    my $base     = "$shard:" . $store->epoch('api');
    my ($counts) = @{$store->cli(KEYS => "$base:*:*")};
    $store->cli(HSET => $counts, 'k', 'many');
    is($a->rate(hit => 'k'), 1, 'a value that is no count is zero');
    is($a->rate(hit => 'k'), 2, 'and put right');
    my $errors = 0;
    for my $what ($counts, "$base:s", $shard) {
        $store->cli(SET => $what, 'something else');
        is($a->status(hit => 'k'), 'ERROR', "$what: one question is not answered");
        eventually(sub { $a->status(hit => 'k') }, 'PASSED', 'and the next one is');
        # The worker that logs the error need not be the one that answers.
        $errors++;
        eventually(sub { $a->logged($lost) }, $errors, 'one [error]');
    }
    stop(qr/$lost.*WRONGTYPE/);
};

$store->kill;
my $cluster = $store = RedisCluster->new(port => $port + 4, node_timeout => 2000);
# Without this setting, the whole cluster is down while one primary is missing.
$_->cli(CONFIG => 'SET', 'cluster-require-full-coverage', 'no') for @{$cluster->{all}};

subtest 'of two nodes with a cluster, each key gets exactly its limit' => sub {
    $_->start(cluster_conf(limit => 100, namespace => 'timeout 5s;')) for @nodes;
    my @keys  = map {"key-$_"} 1 .. 12;
    my @loads = map { ($a->load(@keys), $b->load(@keys)) } 1, 2;
    my @sums  = map { $_->(1700) } @loads;
    my $total = sum0(map { $_->{200} + $_->{429} } @sums);
    cmp_ok($total, '>=', 5 * 1200, "of $total requests");
    is(sum0(map { $_->{200} } @sums), 1200, '1200 are admitted');
    is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
    is_deeply($cluster->totals('api'), {map { ($_ => 100) } @keys}, 'and counted, and nothing else');
    my @of = map { scalar keys %{keys_of($_)} } @{$cluster->{primaries}};
    is(scalar(grep {$_} @of), 3, "by all primaries: @of");
    stop();
};

subtest 'limits of several keys, in several shards of a cluster, charge a request all or none' => sub {
    my %conf = cluster_conf(namespace => 'timeout 5s;');
    $conf{rules}{hit} = 'api limit=1000/360d window=fixed key=first-$key; '
        . 'ratelimit api limit=50/360d window=fixed key=second-$key; '
        . 'ratelimit api limit=1000/360d window=fixed key=third-$key';
    $_->start(%conf) for @nodes;
    my @keys  = map {"k$_"} 1 .. 6;
    my @sums  = map { $_->(800) } map { ($a->load(@keys), $b->load(@keys)) } 1, 2;
    is(sum0(map { $_->{200} } @sums), 300, 'the tightest limit');
    my %expected = map { ("first-$_" => 50, "second-$_" => 50, "third-$_" => 50) } @keys;
    eventually(sub { $cluster->totals(api => 360 * 24 * 3600 * 1000) }, \%expected, 'what was charged');
    stop();
};

subtest 'hits that are known with the response, in a cluster' => sub {
    my %conf = cluster_conf(namespace => 'timeout 5s;');
    $conf{rules}{late} = 'api limit=5/366d window=fixed counter=default charge=$arg_c; '
        . 'ratelimit api limit=50/366d window=fixed charge=$arg_c key=also-$key';
    $a->start(%conf);
    is($a->hit(late => 'late', 'c=7'), 200, 'admitted by what is counted');
    eventually(sub { $a->rate(ask => $_) }, 7, "$_: counted after the response") for qw(late also-late);
    is($a->hit(late => 'late', 'c=4'), 429, 'above the limit');
    stop();
};

subtest 'a primary that hangs, and one that is killed' => sub {
    $a->start(cluster_conf(namespace => 'on_error deny; timeout 2s;', times => ''), workers => 1);
    my @keys = map {"primary-$_"} 1 .. 40;
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });
    my $primary = $cluster->{primaries}[1];
    my $its     = keys_of($primary);
    my @its     = grep { $its->{$_} } @keys;
    my @others  = grep { !$its->{$_} } @keys;
    ok(@its && @others, @its . ' keys of 40 are there');
    my $results = sub {
        my %results;
        $results{$a->status(hit => $_)}++ for @_;
        return \%results;
    };

    my $waits = sub { TwoNodes::metric($a, 'ratelimit_wait_seconds_count{namespace="api"}') };
    $primary->pause;
    is_deeply($results->(@others[0 .. 4]), {PASSED => 5}, 'others go on');
    is_deeply($results->(@its), {ERROR => scalar @its}, 'its requests are decided without it');
    is_deeply($results->(@others), {PASSED => scalar @others}, 'others go on');
    my $before = $waits->();
    is_deeply($results->(@its), {ERROR => scalar @its}, 'the next of its requests');
    is($waits->(), $before, 'at once: none has waited');
    $primary->go_on;
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });

    # After a long pause, either of the two may be the primary.
    my ($there) = grep { $_->cli('ROLE')->[0] eq 'master' } $primary, $cluster->{replicas}[1];
    my ($other) = grep { $_ != $there } $primary, $cluster->{replicas}[1];
    eventually(sub { $other->cli('ROLE')->[3] }, 'connected', 'the replica has what there is');
    $there->kill;
    my (%of_its, %of_others);
    $a->wait_for('another primary', sub {
        $of_its{$a->status(hit => $_)}++ for @its;
        $of_others{$a->status(hit => $_)}++ for @others;
        return $other->cli('ROLE')->[0] eq 'master';
    });
    is_deeply([keys %of_others], ['PASSED'], 'others went on');
    cmp_ok($of_its{ERROR} // 0, '>', 0, 'its requests were decided without it');
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });
    stop($lost);
};

done_testing();

# Returns the configuration of a node with the cluster.
sub cluster_conf {
    my @seeds = map {"server 127.0.0.1:$_->{port};"} @{$cluster->{primaries}}[0, 1];
    return (zone => '5m', decided(server => "@seeds cluster on;", @_));
}

# Returns the counts of a primary, by key.
sub keys_of {
    my ($primary) = @_;
    my %keys;
    for my $number (0 .. 15) {
        my $of_shard = eval { $primary->totals_of_shard(api => $number) } // {};
        %keys = (%keys, %$of_shard);
    }
    return \%keys;
}
