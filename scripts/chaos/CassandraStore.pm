# A Cassandra of one node, and its faults. See Cluster.pm.

package CassandraStore;

use strict;
use warnings;

use parent 'Store';

use CassandraServer;
use Plan;

use constant {
    USER     => 'chaos',
    KEYSPACE => 'ratelimit',
    SPARE    => 'table rl_spare',
};

sub kinds {
    my %all   = (takes => \&Plan::store);
    my %aside = (takes => sub { ('store shared') });
    my ($launch, $kill) = (sub { $_[0]->start }, sub { $_[0]{server}->kill });
    # A start takes long, and no other fault is undone meanwhile: a stopped worker would delay
    # clients.
    my %start = (takes => sub { (Plan::store(), map {"workers $_ shared"} 1 .. 3) });
    return (
        # All nodes restore an empty store, which could hide earlier losses, so this is rare.
        'truncate' => {
            %all, weight => 2, rounds => 'losing',
            # Nodes may not have created them again yet after a drop.
            begin => sub {
                my ($self) = @_;
                for my $table ($self->tables) {
                    eval { $self->ask("TRUNCATE $table") };
                    die $@ if $@ && $@ !~ /does not exist/;
                }
            },
        },
        'drop' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]->ask("DROP KEYSPACE IF EXISTS ${\ KEYSPACE}") },
        },
        'restart empty' => {
            %start, weight => 1, rounds => 'losing', hold => [0.1, 1],
            begin => sub { $_[0]{server}->kill; system(qw(rm -rf), "$_[0]{server}{dir}/data") },
            undo  => $launch,
        },
        'restart old' => {
            %start, weight => 1, rounds => 'losing', hold => [0.5, 2],
            Plan::old_copy($launch, $kill, $kill),
        },
        # The store has all that it has acknowledged.
        'crash' => {
            %start, weight => 3, rounds => 'keeping', hold => [0.1, 1.5],
            begin => $kill, undo => $launch,
        },
        'stop store' => {
            %all, weight => 5, rounds => 'both', hold => [0.1, 2.5],
            begin => sub { $_[0]{server}->pause },
            undo  => sub { $_[0]{server}->go_on },
        },
        # Connected clients stay connected.
        'no login' => {
            %aside, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]->ask("ALTER ROLE ${\ USER} WITH LOGIN = false") },
            undo  => sub { $_[0]->ask("ALTER ROLE ${\ USER} WITH LOGIN = true") },
        },
        'read only' => {
            %all, weight => 3, rounds => 'both', hold => [0.6, 2],
            begin => sub { $_[0]->ask("REVOKE MODIFY ON ALL KEYSPACES FROM ${\ USER}") },
            undo  => sub { $_[0]->ask("GRANT MODIFY ON ALL KEYSPACES TO ${\ USER}") },
        },
    );
}

sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    $self->{server} = CassandraServer->new(port => $self->{port}, options => [qw(--durable --auth --heap 256m)]);
    $self->start;
    return $self;
}

# The store has all that it has acknowledged, whenever it is killed. Creates a user in a new one.
sub start {
    my ($self) = @_;
    my $is_new = !-d "$self->{server}{dir}/data";
    $self->{server}->start;
    return if !$is_new;
    # Cassandra accepts connections before it has created its first user.
    $self->ready;
    $self->ask("CREATE ROLE ${\ USER} WITH LOGIN = true AND PASSWORD = '$self->{password}'");
    $self->ask("GRANT $_ ON ALL KEYSPACES TO ${\ USER}") for qw(CREATE SELECT MODIFY);
}

sub ask    { my ($self, @query) = @_; return $self->{server}->ask(@query) }
sub tables { $_[0]{server}->tables(KEYSPACE) }
sub flush  { my ($self) = @_; $self->ask("TRUNCATE $_") for $self->tables }

sub decides { 'windows' }
# All requests that race for the last hits of a limit may be refused.
sub may_refuse_all { 1 }
# A decision takes several steps of a server that others use, too.
sub decides_within { '1s' }

# A push is recognized by its batch of statements.
sub way { my ($self) = @_; return (to => $self->{port}, push => qr/\x04.{3}\x0d/s) }

sub conf {
    my ($self, $port) = @_;
    return "strategy cassandra; server 127.0.0.1:$port; username ${\ USER}; password $self->{password};";
}

sub ask_anything { $_[0]->ask('SELECT key FROM system.local') }

sub totals { my ($self, @of) = @_; return $self->{server}->totals(KEYSPACE . '.rl_counters', @of) }
sub total  { my ($self, $namespace, $key) = @_; return $self->totals($namespace)->{$key} // 0 }

1;
