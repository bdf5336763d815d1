# Tests nodes that share one Cassandra server that is killed, restored from an old copy, and emptied under load: no
# hit is lost or counted twice. cluster-cassandra.t has the tests for which the server keeps running.
#
# This is a plain Perl test, like cluster-cassandra.t. It uses the ports TEST_NGINX_PORT + 2 to + 5.

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
    package OneServer;
    our @ISA = 'CassandraServer';

    sub label    { 'Cassandra' }
    sub strategy { 'cassandra' }

    sub total {
        my ($self, $namespace, $key) = @_;
        return $self->totals('ratelimit.rl_counters', $namespace, undef, $key)->{$key} // 0;
    }

    # Kills the server, runs a command on its data, and starts it again.
    sub restart_with {
        my ($self, @command) = @_;
        $self->kill;
        system('sh', '-ec', "cd $self->{dir}; @command") == 0 or die "@command fails\n";
        $self->start;
    }
}

# The server keeps all acknowledged writes when it is killed.
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

# Tests two nodes, one of them under load, while the server is restarted with data changed by the command.
sub under_load {
    my ($name, $command, $then) = @_;
    subtest $name => sub {
        $store->ask("TRUNCATE $_") for $store->tables('ratelimit');
        $_->start(conf()) for @nodes;
        $_->hit(hit => "of-$_->{name}") for @nodes;
        all_know("of-$_->{name}" => 1) for @nodes;
        # Only one node has load, because the server must be able to start meanwhile.
        my @loads = $nodes[0]->load('k');
        pushed_under_load();
        # The server is stopped, so that it does not write while its files are copied.
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
