# A Redis, and a spare one that may take its place, and their faults. See Cluster.pm.

package RedisStore;

use strict;
use warnings;

use parent 'Store';

use Node;
use Plan;
use Redis;

use constant SPARE => 'prefix spare';

sub kinds {
    return (
        # All nodes restore an empty store, which could hide earlier losses, so this is rare.
        'restart empty' => {
            weight => 1, rounds => 'losing', hold => [0.1, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->kill },
            undo   => sub { $_[0]->restart(1) },
        },
        'restart old' => {
            weight => 3, rounds => 'losing', hold => [0.2, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('SAVE') },
            undo   => sub { $_[0]->restart },
        },
        'flush' => {
            weight => 1, rounds => 'losing', takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('FLUSHALL') },
        },
        'failover' => {
            weight => 3, rounds => 'losing', hold => [0.2, 2], takes => \&Plan::store,
            draw   => sub { (order => [$_[0]->shuffle($_[0]->nodes)]) },
            begin  => sub { $_[0]->copy_to_spare },
            undo   => \&fail_over,
        },
        'restart' => {
            weight => 5, rounds => 'keeping', hold => [0.1, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->kill },
            undo   => sub { $_[0]->restart },
        },
        'script flush' => {
            weight => 2, rounds => 'both', takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('SCRIPT', 'FLUSH') },
        },
        'client kill' => {
            weight => 2, rounds => 'both', takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('CLIENT', 'KILL', 'TYPE', 'normal') },
        },
        'stop store' => {
            weight => 4, rounds => 'both', hold => [0.1, 2.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->pause },
            undo   => sub { $_[0]{present}->go_on },
        },
        'wrong password' => {
            weight => 2, rounds => 'both', hold => [0.2, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]->change_password('another') },
            undo   => sub { $_[0]->change_password($_[0]{password}) },
        },
        'out of memory' => {
            weight => 2, rounds => 'both', hold => [0.2, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('CONFIG', 'SET', 'maxmemory', '1') },
            undo   => sub { $_[0]{present}->cli('CONFIG', 'SET', 'maxmemory', '0') },
        },
        # A replica of no server: it keeps its data, and refuses writes.
        'demote' => {
            weight => 2, rounds => 'both', hold => [0.2, 1.5], takes => \&Plan::store,
            begin  => sub { $_[0]{present}->cli('REPLICAOF', '127.0.0.1', '1') },
            undo   => sub { $_[0]{present}->cli('REPLICAOF', 'NO', 'ONE') },
        },
    );
}

sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    @$self{qw(present spare)} = map { Redis->new(port => $self->{port} + $_) } 0, 1;
    return $self;
}

sub server { $_[0]{present} }
sub way    { my ($self) = @_; return (to => $self->{present}{port}) }
sub ready  { }

sub keep {
    my ($self, $is_keeping) = @_;
    $self->{append} = $is_keeping ? 'yes' : 'no';
    $self->restart(1);
}

# Starts a killed store again, without data if the fault has `is_empty`.
sub restart {
    my ($self, $is_empty) = @_;
    my $store = $self->{present};
    $store->kill;
    unlink "$store->{dir}/dump.rdb" if $is_empty;
    $self->start($store, $self->{append});
}

sub start {
    my ($self, $store, $append) = @_;
    my $password = $store->{password} = $self->{password};
    $store->{args} = [
        '--requirepass', $password, '--masterauth', $password, '--appendonly', $append,
        # By default, Redis answers during a slow fsync before it has written.
        '--appendfsync', 'always',
        '--repl-diskless-sync-delay', '0',
    ];
    $store->start;
}

# Copies the store's current data to a spare one: a replica that lags behind.
sub copy_to_spare {
    my ($self) = @_;
    my ($store, $spare) = @$self{qw(present spare)};
    $self->start($spare, 'no');
    $spare->cli('REPLICAOF', '127.0.0.1', $store->{port});
    Node::wait_until(30, sub { $spare->cli('INFO', 'replication') =~ /^master_link_status:up/m });
    $spare->cli('REPLICAOF', 'NO', 'ONE');
}

# The spare becomes the store, and the former store ends; nodes connect to it one after another.
sub fail_over {
    my ($self, $fault, $cluster) = @_;
    @$self{qw(present spare)} = @$self{qw(spare present)};
    for my $number (@{$fault->{order}}) {
        for my $proxy ($cluster->proxies_of($number)) {
            $proxy->lead_to($self->{present}{port});
            $proxy->reset;
        }
    }
    $self->{spare}->kill;
    unlink "$self->{spare}{dir}/dump.rdb";
}

sub change_password {
    my ($self, $password) = @_;
    my $store = $self->{present};
    $store->cli('CONFIG', 'SET', 'requirepass', $password);
    $store->{password} = $password;
    $store->cli('CLIENT', 'KILL', 'TYPE', 'normal');
}

1;
