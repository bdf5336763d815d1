# An etcd, and its faults. See Cluster.pm.

package EtcdStore;

use strict;
use warnings;

use parent 'Store';

use Etcd;
use Plan;

use constant SPARE => 'prefix rl/spare';

sub kinds {
    my %all   = (takes => \&Plan::store);
    my %aside = (takes => sub { ('store shared') });
    my ($start, $kill) = (sub { $_[0]->start }, sub { $_[0]{server}->kill });
    return (
        # All nodes restore an empty store, which could hide earlier losses, so these are rare.
        'restart empty' => {
            %all, weight => 2, rounds => 'losing', hold => [0.1, 1.5],
            begin => $kill,
            undo  => sub { $_[0]{server}{keeps} = 0; $_[0]->start },
        },
        'restart old' => {
            %all, weight => 3, rounds => 'losing', hold => [0.5, 2],
            Plan::old_copy($start, $kill, $kill),
        },
        'delete all' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]->flush },
        },
        'revoke leases' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]{server}->revoke_leases },
        },
        # The store has all that it has acknowledged.
        'crash' => {
            %all, weight => 5, rounds => 'keeping', hold => [0.1, 1.5],
            begin => $kill, undo => $start,
        },
        'stop store' => {
            %all, weight => 5, rounds => 'both', hold => [0.1, 2.5],
            begin => sub { $_[0]{server}->pause },
            undo  => sub { $_[0]{server}->go_on },
        },
        'wrong password' => {
            %all, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]{server}->change_password('another') },
            undo  => sub { $_[0]{server}->change_password($_[0]{password}) },
        },
        'full' => {
            %all, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]{server}->alarm('ACTIVATE') },
            undo  => sub { $_[0]{server}->alarm('DEACTIVATE') },
        },
        # Former values are deleted, and the file is written anew. Meanwhile, the server answers nobody.
        'compact' => {
            %aside, weight => 2, rounds => 'both',
            begin => sub {
                my ($server) = $_[0]{server};
                my $revision = $server->ask('maintenance/status', {})->{header}{revision};
                # Just after another one, there is nothing to compact.
                eval { $server->ask('kv/compaction', {revision => $revision, physical => \1}) };
                $server->ask('maintenance/defragment', {});
            },
        },
    );
}

sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    $self->{server} = Etcd->new(port => $self->{port});
    $self->start;
    return $self;
}

# Starts the server; an empty one gets its users.
sub start {
    my ($self) = @_;
    my $server = $self->{server};
    my $keeps  = $server->{keeps};
    $server->start;
    $server->{keeps} = 1;
    $keeps ? $server->log_in($self->{password}) : $server->lock($self->{password});
}

sub way     { my ($self) = @_; return (to => $self->{server}->server_port, push => qr{^POST /v3/kv/txn }) }
sub decides { 'windows' }

# A decision waits for those of others.
sub decides_within { '1s' }
# A transaction takes long on a busy machine.
sub times          { 'timeout 1s; connect_timeout 1s;' }

1;
