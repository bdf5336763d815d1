# Nodes that share a Cassandra of one server, which is killed, set back and emptied under load: none of the
# hits is lost or counted twice. What servers see and do that are not ended is in cluster-cassandra.t.
#
# This is a plain Perl test, as that is. It takes the ports TEST_NGINX_PORT + 2 to + 5.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use CassandraServer;
use Node;
use TwoNodes;

# As TwoNodes.pm has it.
{
    package OneServer;
    our @ISA = 'CassandraServer';

    sub label    { 'Cassandra' }
    sub strategy { 'cassandra' }

    sub total {
        my ($self, $namespace, $key) = @_;
        return $self->totals('ratelimit.rl_counters', $namespace, undef, $key)->{$key} // 0;
    }

    # Ends it, and starts it again with what the command makes of its data.
    sub restart_with {
        my ($self, @command) = @_;
        $self->kill;
        system('sh', '-ec', "cd $self->{dir}; @command") == 0 or die "@command fails\n";
        $self->start;
    }
}

# What it has answered outlives it.
$store = OneServer->new(port => $port + 4, options => [qw(--durable --heap 192m)]);
$store->start;

under_load('a server that is killed has what it had answered', 'true', sub {
    is($store->epoch('ratelimit.rl_counters', 'api'), $_[0], 'the epoch is the same');
});

under_load('a server that is set back to what it once was', 'rm -rf data; mv old data', sub {
    isnt($store->epoch('ratelimit.rl_counters', 'api'), $_[0], 'nodes have noticed, and made another epoch');
});

under_load('a server that is back without anything', 'rm -rf data', sub {
    isnt($store->epoch('ratelimit.rl_counters', 'api'), $_[0], 'there is another epoch');
});

done_testing();

# Two nodes, one under load, of which the server is killed, and is back with what the command makes of its data.
sub under_load {
    my ($name, $command, $then) = @_;
    subtest $name => sub {
        $store->ask("TRUNCATE $_") for $store->tables('ratelimit');
        $_->start(conf()) for @nodes;
        $_->hit(hit => "of-$_->{name}") for @nodes;
        all_know("of-$_->{name}" => 1) for @nodes;
        # Of one node, since the server is to start meanwhile.
        my @loads = $nodes[0]->load('k');
        pushed_under_load();
        # Nothing of it is on its way to a file while that is copied.
        $store->restart_with('cp -a data old') if $command =~ /old/;
        pushed_under_load();
        my $epoch = $store->epoch('ratelimit.rl_counters', 'api');
        $store->restart_with($command);
        pushed_under_load();
        totals_of_loads(@loads);
        all_know("of-$_->{name}" => 1) for @nodes;
        $then->($epoch);
        stop($lost);
    };
}
