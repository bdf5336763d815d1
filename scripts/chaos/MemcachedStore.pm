# A memcached, and its faults. See Cluster.pm.

package MemcachedStore;

use strict;
use warnings;

use parent 'Store';

use Memcached;
use Plan;

use constant SPARE => 'prefix rl/spare';

sub kinds {
    my %all = (takes => \&Plan::store);
    return (
        # All nodes restore an empty store, which could hide earlier losses, so these are rare.
        'restart empty' => {
            %all, weight => 2, rounds => 'losing', hold => [0.1, 1.5],
            begin => sub { $_[0]{server}->be_away },
            undo  => sub { $_[0]->start },
        },
        'flush_all' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]->flush },
        },
        # As if memcached needed their memory for other items.
        'evict changes' => {
            %all, weight => 1, rounds => 'both',
            begin => sub { $_[0]{server}->evict(qr{/d/}) },
        },
        'evict indexes' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]{server}->evict(qr{/[di]/}) },
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
        # It starts with its memory, if it was told to end.
        'restart' => {
            %all, weight => 3, rounds => 'keeping',
            begin => sub { $_[0]{server}->restart },
        },
    );
}

sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    $self->{server} = Memcached->new(port => $self->{port});
    $self->{server}->be_away;
    $self->start;
    $self->{server}->lock($self->{password});
    return $self;
}

sub start {
    my ($self) = @_;
    $self->{server}{keeps} = 1;
    $self->{server}->start;
}

sub way     { my ($self) = @_; return (to => $self->{server}->server_port, push => qr{^ms \S+/head }m) }
sub decides { 'windows' }
# A decision takes several exchanges, and more if nodes race.
sub decides_within { '1s' }

1;
