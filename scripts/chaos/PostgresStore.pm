# A Postgres, and its faults. See Cluster.pm.

package PostgresStore;

use strict;
use warnings;

use parent 'Store';

use Plan;
use Postgres;
use Processes;

use constant {
    USER   => 'locked',
    SPARE  => 'table rl_spare',
    TABLES => join(', ', map {"rl_counters$_"} '', qw(_epochs _nodes _changes _levels _logs)),
};

# The sessions of nodes.
my $OURS = "FROM pg_stat_activity WHERE usename = '${\ USER}'";

# A lock that another transaction may hold for a while.
my %LOCKS = (
    counters => 'LOCK TABLE rl_counters',
    nodes    => 'LOCK TABLE rl_counters_nodes',
    epochs   => 'LOCK TABLE rl_counters_epochs',
    changes  => 'LOCK TABLE rl_counters_changes IN SHARE ROW EXCLUSIVE MODE',
    rows     => 'SELECT FROM rl_counters_epochs FOR UPDATE',
    counts   => 'SELECT FROM rl_counters FOR UPDATE',
    levels   => 'SELECT FROM rl_counters_levels FOR UPDATE',
    logs     => 'LOCK TABLE rl_counters_logs',
);

sub kinds {
    my %all   = (takes => \&Plan::store);
    my %aside = (takes => sub { ('store shared') });
    my ($start, $stop, $kill) = map { my $method = $_; sub { $_[0]{server}->$method } } qw(start stop kill);
    return (
        # All nodes restore an empty store, which could hide earlier losses, so this is rare, except
        # for crashes, which also end running statements.
        'crash' => {
            %all, weight => 3, rounds => 'losing', hold => [0.1, 1.5],
            begin => $kill, undo => $start,
        },
        # Postgres then ends all other processes, too, and continues without unlogged data.
        'kill backend' => {
            %all, weight => 2, rounds => 'losing', draw => \&a_backend,
            begin => sub { my ($self, $fault) = @_; kill KILL => $self->backend($fault) },
        },
        'restart old' => {
            %all, weight => 3, rounds => 'losing', hold => [0.5, 2],
            Plan::old_copy($start, $stop, $kill),
        },
        'truncate' => {
            %all, weight => 1, rounds => 'losing',
            # After a `drop`, nodes may not have created the tables again yet.
            begin => sub {
                my $truncate = 'BEGIN TRUNCATE ' . TABLES . '; EXCEPTION WHEN undefined_table THEN NULL; END';
                $_[0]{server}->overrule("DO \$\$ $truncate \$\$");
            },
        },
        'drop' => {
            %all, weight => 1, rounds => 'losing',
            begin => sub { $_[0]{server}->overrule('DROP TABLE IF EXISTS ' . TABLES) },
        },
        'restart' => {
            %all, weight => 5, rounds => 'keeping', hold => [0.1, 1.5],
            begin => $stop, undo => $start,
        },
        'stop store' => {
            %all, weight => 4, rounds => 'both', hold => [0.1, 2.5],
            begin => sub { $_[0]{server}->pause },
            undo  => sub { $_[0]{server}->go_on },
        },
        # Its locks are kept.
        'stop backend' => {
            %all, weight => 4, rounds => 'both', hold => [0.1, 2], draw => \&a_backend,
            begin => sub {
                my ($self, $fault) = @_;
                stop_processes(@{$fault->{stopped}} = $self->backend($fault));
            },
            undo => sub { my ($self, $fault) = @_; kill CONT => @{$fault->{stopped}} },
        },
        'end sessions' => {
            %aside, weight => 3, rounds => 'both',
            begin => sub { $_[0]->ask("SELECT pg_terminate_backend(pid) $OURS") },
        },
        'cancel statements' => {
            %aside, weight => 3, rounds => 'both',
            begin => sub { $_[0]->ask("SELECT pg_cancel_backend(pid) $OURS") },
        },
        'wrong password' => {
            %all, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]->change("PASSWORD 'another'") },
            undo  => sub { $_[0]->change("PASSWORD '$_[0]{password}'") },
        },
        'no more connections' => {
            %all, weight => 1, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]->change('CONNECTION LIMIT 0') },
            undo  => sub { $_[0]->change('CONNECTION LIMIT -1') },
        },
        'read only' => {
            %all, weight => 2, rounds => 'both', hold => [0.2, 1.5],
            begin => sub { $_[0]->set('SET default_transaction_read_only = on') },
            undo  => sub { $_[0]->set('RESET default_transaction_read_only') },
        },
        'lock' => {
            %all, weight => 5, rounds => 'both', hold => [0.1, 2],
            draw  => sub { my ($plan) = @_; (what => $plan->one_of(sort keys %LOCKS)) },
            begin => sub {
                my ($self, $fault) = @_;
                $fault->{end} = $self->open_transaction("BEGIN; $LOCKS{$fault->{what}}");
            },
            undo => sub { my ($self, $fault) = @_; $fault->{end}->() },
        },
        # The server keeps everything older.
        'long transaction' => {
            %aside, weight => 2, rounds => 'both', hold => [1, 5],
            begin => sub {
                my ($self, $fault) = @_;
                my $begin = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT txid_current()';
                $fault->{end} = $self->open_transaction($begin);
            },
            undo => sub { my ($self, $fault) = @_; $fault->{end}->() },
        },
    );
}

sub a_backend { my ($plan) = @_; return (backend => $plan->number(12)) }

sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    # A node has two store blocks, each with two connections, and so has a worker that it replaces.
    $self->{server} = Postgres->new(port => $self->{port}, connections => 100 + 12 * $self->{nodes});
    $self->{server}->create;
    $self->{server}->start;
    $self->ask("CREATE ROLE ${\ USER} LOGIN PASSWORD '$self->{password}'");
    $self->ask("GRANT ALL ON SCHEMA public TO ${\ USER}");
    return $self;
}

# Each exchange contains the name of the node, except for the first ones of a connection.
sub way {
    my ($self) = @_;
    return (to => $self->{port}, push => qr/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/);
}

sub ready {
    my ($self) = @_;
    eval { $self->SUPER::ready; 1 } or die $@, `tail -n 30 $self->{server}{dir}/log`;
}

sub ask_anything {
    my ($self) = @_;
    return if eval { $self->ask('SELECT 1') };
    my $failure = $@;
    # A server whose process was killed while it created a file may not recover ("File exists"),
    # and ends; then its administrator starts it.
    if ($self->{server}->has_ended) {
        $self->{server}->kill;
        $self->{server}->start;
    }
    die $failure;
}

sub ask { my ($self, $query) = @_; return $self->{server}->sql($query) }

# Returns the process of one of the sessions; undef without sessions.
sub backend {
    my ($self, $fault) = @_;
    my @pids = split /\n/, $self->ask("SELECT pid $OURS ORDER BY backend_start, pid");
    return @pids ? $pids[$fault->{backend} % @pids] : ();
}

sub change {
    my ($self, $what) = @_;
    $self->ask("ALTER ROLE ${\ USER} $what");
    $self->ask("SELECT pg_terminate_backend(pid) $OURS");
}

sub set {
    my ($self, $what) = @_;
    $self->ask("ALTER SYSTEM $what");
    $self->ask('SELECT pg_reload_conf()');
}

# Begins a transaction, unless there are no tables at the moment. Returns the function that ends it.
sub open_transaction {
    my ($self, $begin) = @_;
    return eval { $self->{server}->open_session($begin) } // do {
        die $@ if $@ !~ /does not exist/;
        sub { };
    };
}

1;
