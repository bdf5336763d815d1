# Tests nodes that share a ring of three Cassandra servers with replication factor 3. While one server is killed,
# hangs, loses its disk, or returns, the nodes continue, and no hit is lost or counted twice.
#
# This is a plain Perl test, like cluster-cassandra.t. It uses the ports TEST_NGINX_PORT + 2 to + 5, the last two of
# them on three addresses.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use CassandraServer;
use Node;
use TwoNodes;

# The interface of a store that nodes share: see TwoNodes.pm.
{
    package Ring;

    sub label    { 'the ring' }
    sub takes_the_machine { 1 }
    sub strategy { 'cassandra' }
    sub software { qr/Cassandra \d+\.\d+/ }

    # Queries a server that responds; it queries the others.
    sub total {
        my ($self, $namespace, $key) = @_;
        my ($server) = grep { !$_->{is_away} } @{$self->{all}};
        return $server->totals('ratelimit.rl_counters', $namespace, undef, $key)->{$key} // 0;
    }
}

my ($a, $b) = @nodes;
my @addresses = map {"127.0.0.1$_"} 1 .. 3;
my @ring      = map {
    my @seed = $_ eq $addresses[0] ? () : ('--seed', $addresses[0]);
    CassandraServer->new(address => $_, port => $port + 4, options => ['--durable', '--heap', '256m', @seed]);
} @addresses;
$_->start for @ring;
$store = bless {all => \@ring, port => $ring[0]{port}}, 'Ring';

# Each node is configured with two servers, in a different order.
my %first = ($a => [0, 1], $b => [1, 2]);

sub ring_conf {
    my ($node, @more) = @_;
    my $servers = join ' ', map {"server $addresses[$_]:$store->{port};"} @{$first{$node}};
    return conf(server => "$servers replication 3;", @more);
}

subtest 'a ring: all three have what nodes count' => sub {
    $_->start(ring_conf($_)) for @nodes;
    $_->hit(hit => 'k') for $a, $b, $b;
    all_know(k => 3);
    my ($keyspace) = $ring[2]->ask("SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = 'ratelimit'");
    is($keyspace->{replication}{replication_factor}, 3, 'there are as many replicas as was said');
    is($_->logged(connected()), 1, "$_->{name} is connected") for @nodes;
    # Both nodes create the tables at the same time. A server may learn of them late; then the nodes try again.
    stop($lost);
};

# Faults of the first server of node a: pairs of a function that starts the fault and one that ends it.
my %faults = (
    'is killed' => [
        sub { $_->{is_away} = 1; $_->kill },
        sub { $_->start; $_->{is_away} = 0 },
    ],
    'loses its disk' => [
        sub { $_->{is_away} = 1; $_->kill },
        sub { $_->start_empty($addresses[1]); $_->{is_away} = 0 },
    ],
    'hangs' => [
        sub { $_->{is_away} = 1; $_->pause },
        sub { $_->go_on; $_->{is_away} = 0 },
    ],
);

for my $what (sort keys %faults) {
    subtest "one of the ring $what: nodes go on" => sub {
        $ring[1]->ask("TRUNCATE $_", 'ALL') for $ring[1]->tables('ratelimit');
        my ($begin, $end) = @{$faults{$what}};
        $_->start(ring_conf($_, times => 'timeout 2s; connect_timeout 2s;')) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
        pushed_under_load();
        $begin->() for $ring[0];
        # The nodes exchange counts through the rest of the ring. A query of the test itself could wait for all servers.
        settle() for 1 .. 3;
        $end->() for $ring[0];
        pushed_under_load();
        no_answer_was_slow(totals_of_loads(@loads));
        # After a slow exchange, the measured clock offset is wrong.
        stop(qr/$lost|has a clock that is/);
    };
}

done_testing();
