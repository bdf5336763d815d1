# A private Redis Cluster: three primaries with one replica each.

package RedisCluster;

use strict;
use warnings;

use Node;
use Processes;
use Redis;

# The number of shards into which the module divides a namespace.
my $SHARDS = 16;

# port => the first of six ports; args => more arguments of the servers, including the password if there is one;
# node_timeout => `cluster-node-timeout` in milliseconds. The default is so long that no failover happens only because
# the machine is busy: a failover can lose writes that the primary acknowledged. The servers start empty.
sub new {
    my ($class, %self) = @_;
    my $self = bless {args => [], %self}, $class;
    my $timeout = $self->{node_timeout} // 15_000;
    my @args = ('--cluster-enabled', 'yes', '--cluster-node-timeout', $timeout, @{$self->{args}});
    my @all  = map {
        Redis->new(port => $self->{port} + $_, args => \@args, password => $self->{password}, dir => memory_dir('own-redis'))
    } 0 .. 5;
    $_->start for @all;
    $self->{all}       = \@all;
    $self->{primaries} = [@all[0 .. 2]];
    $self->{replicas}  = [@all[3 .. 5]];
    my $first = $all[0];
    for my $number (0 .. 2) {
        my ($from, $to) = map { int(16384 * $_ / 3) } $number, $number + 1;
        $all[$number]->cli(CLUSTER => 'ADDSLOTS', $from .. $to - 1);
        $all[$number]->cli(CLUSTER => 'SET-CONFIG-EPOCH', $number + 1);
    }
    $first->cli(CLUSTER => 'MEET', '127.0.0.1', $_->{port}) for @all;
    wait_until('a cluster', sub {
        !grep { $_->cli(CLUSTER => 'INFO') !~ /cluster_state:ok.*cluster_known_nodes:6\r/s } @all;
    });
    for my $number (0 .. 2) {
        my $id = $all[$number]->cli(CLUSTER => 'MYID');
        wait_until('a primary that is known', sub {
            eval { $all[$number + 3]->cli(CLUSTER => 'REPLICATE', $id) };
        });
    }
    wait_until('replicas', sub {
        !grep { $_->cli(INFO => 'replication') !~ /master_link_status:up/ } @all[3 .. 5];
    });
    wait_until('replicas that all know of', sub {
        !grep { (() = $_->cli(CLUSTER => 'NODES') =~ /slave /g) != 3 } @all;
    });
    return $self;
}

sub wait_until {
    my ($what, $condition) = @_;
    eval { Node::wait_until(60, $condition) } or die "waited too long for $what\n";
}

sub kill { $_->kill for @{$_[0]{all}} }

# The interface of a store that nodes share: see TwoNodes.pm.

sub label    { 'the cluster' }
sub strategy { 'redis' }
sub be_empty { $_->cli('FLUSHALL') for @{$_[0]{primaries}} }
sub flush    { $_[0]->be_empty }
sub pause    { $_->pause for @{$_[0]{all}} }
sub go_on    { $_->go_on for @{$_[0]{all}} }

# Returns directives for the block `ratelimit_store`.
sub servers {
    my ($self) = @_;
    return join(' ', map {"server 127.0.0.1:$_->{port};"} @{$self->{primaries}}) . ' cluster on;';
}

# Returns the counts of all shards, as `totals` of Redis.pm. Only the primary of a shard answers for it, and no server does
# during a failover, which happens if the machine is too busy for a primary to answer within `node_timeout`.
sub totals {
    my ($self, $namespace, $size) = @_;
    my %totals;
    for my $number (0 .. $SHARDS - 1) {
        my ($of_shard, @errors);
        my $is_there = sub {
            @errors = ();
            for my $server (grep { $_->{pid} } @{$self->{all}}) {
                last if $of_shard = eval { $server->totals_of_shard($namespace, $number, $size) };
                push @errors, "$server->{port}: $@";
            }
            return $of_shard;
        };
        eval { Node::wait_until(60, $is_there) } or die "nobody has shard $number:\n", @errors;
        %totals = (%totals, %$of_shard);
    }
    return \%totals;
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size)->{$key} // 0;
}

1;
