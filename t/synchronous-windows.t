# Tests synchronous namespaces, whose store decides, with moving windows, elastic windows and rates: the tests for
# any store (see lib/WindowTests.pm), and tests with a Redis Cluster.
#
# This is a plain Perl test, like topologies.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Postgres;
use Redis;
use RedisCluster;
use TwoNodes;
use WindowTests;

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n" if !Postgres::is_there();

for my $each (Redis->new(port => $port + 4), Postgres->new(port => $port + 4)) {
    $store = $each;
    window_tests();
    $store->kill;
}

my $cluster = $store = RedisCluster->new(port => $port + 4);
my $servers = join(' ', map {"server 127.0.0.1:$_->{port};"} @{$cluster->{primaries}}) . ' cluster on;';

subtest 'limits of several keys, in several shards of a cluster, charge a request all or none' => sub {
    my %of = (
        first  => 'api limit=1000/366d window=moving key=first-$key',
        second => 'api rate=1/366d burst=49 key=second-$key',
        third  => 'api limit=1000/366d window=elastic key=third-$key',
        fourth => 'api rate=1/365d burst=999 key=fourth-$key',
        fifth  => 'api limit=60/365d window=moving key=fifth-$key',
    );
    my %rules = map { ("ask-$_" => "$of{$_} cost=0") } keys %of;
    $rules{hit} = join '; ratelimit ', @of{qw(first second third fourth fifth)};
    $_->start(decided(\%rules, server => $servers), zone => '5m') for @nodes;
    my @keys = map {"k$_"} 1 .. 6;
    my @sums = map { $_->(500) } map { $_->load(@keys) } @nodes;
    is(sum0(map { $_->{200} } @sums), 300, 'the tightest limit');
    is(sum0(map { $_->{lost} } @sums), 0,   'and none lost');
    for my $of (sort keys %of) {
        my $rates = sub { [map { sprintf '%.0f', $nodes[0]->rate("ask-$of" => $_) } @keys] };
        eventually($rates, [(50) x 6], "what was charged of the $of");
    }
    stop();
};

done_testing();
