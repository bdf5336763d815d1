# A Cassandra server, private to the test or shared by the tests, and queries to it. It is started by
# scripts/cassandra/server.sh.

package CassandraServer;

use strict;
use warnings;

use Cql;
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use Processes;

my $launcher = dirname(__FILE__) . '/../../scripts/cassandra/server.sh';

my $test = $$;    # child processes must not stop the server when they exit
my @all;

END {
    local $?;
    if ($$ == $test) { $_->kill for @all }
}

# address, port => where the server listens; options => command-line options of server.sh
sub new {
    my ($class, %self) = @_;
    my $self = bless {address => '127.0.0.1', options => [], %self}, $class;
    $self->{dir} = tempdir('own-cassandra-XXXXXX', TMPDIR => 1, CLEANUP => 1) . '/server';
    push @all, $self;
    return $self;
}

# Returns the server whose directory is TEST_CASSANDRA. Without that variable, starts a private server with the
# same options.
sub shared {
    my ($class, $port) = @_;
    my $dir = $ENV{TEST_CASSANDRA};
    if (!defined $dir) {
        my $self = $class->new(port => $port, options => [qw(--ephemeral --auth --tls optional --heap 256m)]);
        $self->start;
        return $self;
    }
    open my $file, '<', "$dir/address" or die "no address of a Cassandra in $dir: $!\n";
    my ($address, $its_port) = <$file> =~ /^(.+):(\d+)\n/ or die "no address in $dir/address\n";
    return bless {address => $address, port => $its_port, dir => $dir}, $class;
}

# Starts the server with the data that it has, and with more options.
sub start {
    my ($self, @more) = @_;
    $self->launch('start', @{$self->{options}}, @more, '--address', $self->{address}, '--port', $self->{port});
}

# Starts a server of a ring after it lost its files. It restores its data from the other servers, with this address
# as the seed.
sub start_empty {
    my ($self, $seed) = @_;
    remove_tree("$self->{dir}/data");
    $self->start('--replace', '--seed', $seed);
}

# Kills the server, as in a crash.
sub kill { $_[0]->launch('kill') }

sub launch {
    my ($self, $command, @options) = @_;
    local ($?, $!);
    delete $self->{session};
    system($launcher, $command, @options, $self->{dir}) == 0 or die "Cassandra: $command fails: see $self->{dir}/log\n";
}

sub pause { stop_processes($_[0]->pid) }
sub go_on { CORE::kill(CONT => $_[0]->pid) }

sub pid {
    my ($self) = @_;
    open my $file, '<', "$self->{dir}/pid" or die "no pid: $!\n";
    return <$file> + 0;
}

# Runs a query and returns its rows: see Cql.pm.
sub ask {
    my ($self, $query, $consistency) = @_;
    if (!$self->{session} || $self->{of} != $$) {
        $self->{of}      = $$;
        $self->{session} = Cql->new(
            host => $self->{address}, port => $self->{port}, user => 'cassandra', password => 'cassandra',
        );
    }
    my @rows = eval { $self->{session}->ask($query, $consistency) };
    return @rows if !$@;
    my $error = $@;
    delete $self->{session};
    die "$query: $error";
}

# Returns the counts of a namespace in a table, by key: those of all windows, or only of windows of `size`
# milliseconds; those of all keys, or only of `key`.
sub totals {
    my ($self, $table, $namespace, $size, $key) = @_;
    my $epoch = $self->epoch($table, $namespace) // return {};
    my $only  = defined $key ? 'AND name = 0x' . unpack('H*', $key) : '';
    my %totals;
    my $query = "SELECT window_size, name, thousandths FROM $table WHERE epoch = $epoch $only ALLOW FILTERING";
    for my $row ($self->ask($query, 'QUORUM')) {
        $totals{$row->{name}} += $row->{thousandths} if !defined $size || $row->{window_size} == $size;
    }
    $_ /= 1000 for values %totals;
    return \%totals;
}

# Returns the epoch of a namespace, or undef if there is none.
sub epoch {
    my ($self, $table, $namespace) = @_;
    my $query = "SELECT epoch FROM ${table}_shards WHERE namespace = '$namespace' AND shard = 0";
    my ($row) = eval { $self->ask($query, 'QUORUM') };
    die $@ if $@ && $@ !~ /(?:table|keyspace) \S+ does not exist/;
    return $row && $row->{epoch};
}

# Returns the tables of a keyspace.
sub tables {
    my ($self, $keyspace) = @_;
    my @rows = $self->ask("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '$keyspace'");
    return map {"$keyspace.$_->{table_name}"} @rows;
}

1;
