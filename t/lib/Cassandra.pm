# A private keyspace in a Cassandra server, and queries for its contents.
#
# The tests share one server, or else this test starts its own. A start takes seconds, and a test needs
# dozens of restarts. Therefore a proxy in front of the server simulates its failures (see Proxy.pm).
# For a killed server, the proxy refuses connections, and the tables are truncated. For a server that
# hangs, the proxy forwards nothing. cluster-cassandra-ring.t kills real servers.

package Cassandra;

use strict;
use warnings;

use CassandraServer;
use Proxy;

my $test = $$;
my @all;

END {
    local $?;
    if ($$ == $test) { eval { $_->drop } for @all }
}

# port => the port of the proxy, to which nodes connect. Without TEST_CASSANDRA, the server uses the ports
# port + 12 and port + 13.
sub new {
    my ($class, %self) = @_;
    my $self = bless {keyspace => "test_$self{port}_$$", table => 'rl_counters', %self}, $class;
    $self->{server} = CassandraServer->shared($self->{port} + 12);
    # A push is a BATCH request.
    $self->{proxy} = Proxy->new(port => $self->{port}, to => $self->{server}{port}, push => qr/\x04.{3}\x0d/s);
    $self->{keyspaces} = {};
    push @all, $self;
    return $self;
}

sub is_there { system('java -version >/dev/null 2>&1') == 0 }

sub ask { my ($self, @query) = @_; return $self->{server}->ask(@query) }

# The interface of a store that nodes share: see TwoNodes.pm.

sub label       { 'Cassandra' }
sub software    { qr/Cassandra \d+\.\d+/ }
sub strategy    { 'cassandra' }
sub access      { $_[0]->block('username cassandra; password cassandra;') }
sub credentials { $_[0]->block(qq(username "${\ $_[0]->locked}"; password $_[1];)) }
sub takes_the_machine { 1 }

sub patience    { 'timeout 1s; connect_timeout 1s;' }
sub second      { 300 }
sub windows     { qw(fixed sliding) }
sub runs        { !$_[0]{is_away} }
sub restart     { $_[0]->kill; $_[0]->start }
sub pause       { $_[0]{proxy}->silence }
sub go_on       { $_[0]{proxy}->pass }

# Nodes that compete may all be rejected, because each charges before it reads: see docs/cassandra.md.
sub may_refuse_all { 1 }

sub block { my ($self, $login) = @_; return "database $self->{keyspace}; $login" }

sub place {
    my ($self, $number) = @_;
    my $table = $number ? "rl_place_$number" : 'rl_counters';
    return ($self->access . " table $table;", table => $table);
}

sub be_empty {
    my ($self, %is) = @_;
    $self->{keeps} = $is{keeps};
    $self->flush;
    $self->start;
}

sub be_away {
    my ($self) = @_;
    $self->{keeps} = 0;
    $self->kill;
}

sub start {
    my ($self) = @_;
    $self->{proxy}->pass;
    $self->{is_away} = 0;
}

sub kill {
    my ($self) = @_;
    $self->{proxy}->refuse;
    $self->{is_away} = 1;
    $self->flush if !$self->{keeps};
}

sub flush {
    my ($self) = @_;
    $self->ask("TRUNCATE $_") for $self->{server}->tables($self->{keyspace});
}

sub drop { $_[0]->ask("DROP KEYSPACE IF EXISTS $_[0]{keyspace}") }

sub cut_connections { $_[0]{proxy}->reset }
sub listeners       { 0 }

sub disturbances {
    my ($self) = @_;
    return (
        ['TRUNCATE',      sub { $self->flush }],
        ['DROP KEYSPACE', sub { $self->drop }],
        ['reset',         sub { $self->cut_connections }],
    );
}

# Returns the name of a user with its own password. The name occurs nowhere else, so that the log can be
# searched for it.
sub locked { return "locked-$_[0]{port}-$$" }

sub lock {
    my ($self, $password) = @_;
    my $name = $self->locked;
    $self->ask("CREATE KEYSPACE IF NOT EXISTS $self->{keyspace} WITH replication = "
        . "{'class': 'SimpleStrategy', 'replication_factor': 1}");
    $self->ask(qq(CREATE ROLE "$name" WITH LOGIN = true AND PASSWORD = '$password'));
    $self->ask(qq(GRANT $_ ON KEYSPACE $self->{keyspace} TO "$name")) for qw(CREATE SELECT MODIFY);
}

sub unlock { my ($self) = @_; $self->ask(qq(DROP ROLE "${\ $self->locked}")) }

sub in_keyspace { return "$_[0]{keyspace}.$_[0]{table}" }

sub epoch { my ($self, $namespace) = @_; return $self->{server}->epoch($self->in_keyspace, $namespace) }

sub totals {
    my ($self, @of) = @_;
    return $self->{server}->totals($self->in_keyspace, @of);
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size, $key)->{$key} // 0;
}

1;
