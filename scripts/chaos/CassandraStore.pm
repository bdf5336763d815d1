# A Cassandra of one node, and its faults. See Cluster.pm.

package CassandraStore;

use strict;
use warnings;

use Cql;
use File::Temp qw(tempdir);
use FindBin;
use Node;
use Plan;

use constant {
    USER     => 'chaos',
    KEYSPACE => 'ratelimit',
    HOST     => '127.0.0.1',
};

my $launcher = "$FindBin::Bin/../cassandra/server.sh";

# Its servers end with this process.
my $test = $$;
my @all;

END {
    local $?;
    if ($$ == $test) { $_->launch('kill') for @all }
}

sub kinds {
    my %all   = (takes => \&Plan::store);
    my %aside = (takes => sub { ('store shared') });
    my ($launch, $kill) = (sub { $_[0]->start }, sub { $_[0]->launch('kill') });
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
            begin => sub { $_[0]->launch('kill'); system(qw(rm -rf), "$_[0]{dir}/data") },
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
            begin => sub { $_[0]->signal('STOP') },
            undo  => sub { $_[0]->signal('CONT') },
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
    $self->{dir} = tempdir('cassandra-XXXXXX', TMPDIR => 1, CLEANUP => 1) . '/server';
    push @all, $self;
    $self->start;
    return $self;
}

# The store has all that it has acknowledged, whenever it is killed. Creates a user in a new one.
sub start {
    my ($self) = @_;
    my $is_new = !-d "$self->{dir}/data";
    $self->launch('start', qw(--durable --auth --heap 256m --address), HOST, '--port', $self->{port});
    return if !$is_new;
    # Cassandra accepts connections before it has created its first user.
    $self->ready;
    $self->ask("CREATE ROLE ${\ USER} WITH LOGIN = true AND PASSWORD = '$self->{password}'");
    $self->ask("GRANT $_ ON ALL KEYSPACES TO ${\ USER}") for qw(CREATE SELECT MODIFY);
}

sub launch {
    my ($self, $command, @options) = @_;
    local $?;
    delete $self->{session};
    system($launcher, $command, @options, $self->{dir}) == 0 or die "$command fails\n";
}

sub signal {
    my ($self, $signal) = @_;
    open my $file, '<', "$self->{dir}/pid" or die "no pid: $!\n";
    CORE::kill($signal, <$file> + 0);
}

# Returns the rows of a query; see Cql.pm.
sub ask {
    my ($self, $query) = @_;
    $self->{session} //= Cql->new(host => HOST, port => $self->{port}, user => 'cassandra', password => 'cassandra');
    my @rows = eval { $self->{session}->ask($query, 'QUORUM') };
    return @rows if !$@;
    delete $self->{session};
    die "$query: $@";
}

sub tables {
    my ($self) = @_;
    my @rows = $self->ask("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '${\ KEYSPACE}'");
    return map {"${\ KEYSPACE}.$_->{table_name}"} @rows;
}

sub flush { my ($self) = @_; $self->ask("TRUNCATE $_") for $self->tables }

sub has_way { 1 }
sub decides { 'windows' }
# All requests that race for the last hits of a limit may be refused.
sub may_refuse_all { 1 }
# A decision takes several steps of a server that others use, too.
sub decides_within { '1s' }

# A push is recognized by its batch of statements.
sub way { my ($self) = @_; return (to => $self->{port}, push => qr/\x04.{3}\x0d/s) }

sub spare { my ($self, @port) = @_; return $self->conf(@port) . ' table rl_spare;' }

sub conf {
    my ($self, $port) = @_;
    return "strategy cassandra; server 127.0.0.1:$port; username ${\ USER}; password $self->{password};";
}

sub keep { $_[0]->ready }

sub ready {
    my ($self) = @_;
    my $failure = '';
    my $answers = sub { eval { $self->ask('SELECT key FROM system.local'); 1 } or $failure = $@, 0 };
    eval { Node::wait_until(60, $answers) } or die "Cassandra does not get ready: $failure\n";
}

# Returns the counts of a namespace in the current window of this size in milliseconds.
sub totals {
    my ($self, $namespace, $size) = @_;
    my %totals;
    for my $row ($self->rows_of($namespace)) {
        $totals{$row->{name}} += $row->{thousandths} / 1000 if !defined $size || $row->{window_size} == $size;
    }
    return \%totals;
}

sub total { my ($self, $namespace, $key) = @_; return $self->totals($namespace)->{$key} // 0 }

sub rows_of {
    my ($self, $namespace) = @_;
    my $table = KEYSPACE . '.rl_counters';
    my ($shard) = $self->ask("SELECT epoch FROM ${table}_shards WHERE namespace = '$namespace' ALLOW FILTERING");
    return if !$shard;
    return $self->ask("SELECT window_size, name, thousandths FROM $table WHERE epoch = $shard->{epoch} ALLOW FILTERING");
}

1;
