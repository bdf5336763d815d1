# A Cassandra of the test's own, or one that tests share, and what is asked of it: see
# scripts/cassandra/server.sh.

package CassandraServer;

use strict;
use warnings;

use Cql;
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use FindBin;

my $launcher = "$FindBin::Bin/../scripts/cassandra/server.sh";

my $test = $$;    # children are not to stop it when they end
my @all;

END {
    local $?;
    if ($$ == $test) { $_->kill for @all }
}

# address, port => where it listens; options => of server.sh, as they are written
sub new {
    my ($class, %self) = @_;
    my $self = bless {address => '127.0.0.1', options => [], %self}, $class;
    $self->{dir} = tempdir('own-cassandra-XXXXXX', TMPDIR => 1, CLEANUP => 1) . '/server';
    push @all, $self;
    return $self;
}

# The one of the directory TEST_CASSANDRA; without that, one of the test's own, which has the same options.
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

# Starts it, with what it has; with more options.
sub start {
    my ($self, @more) = @_;
    $self->launch('start', @{$self->{options}}, @more, '--address', $self->{address}, '--port', $self->{port});
}

# Starts one of a ring that has lost its files: it gets from the others, of which one has this address, what it had.
sub start_empty {
    my ($self, $seed) = @_;
    remove_tree("$self->{dir}/data");
    $self->start('--replace', '--seed', $seed);
}

# As if it had crashed.
sub kill { $_[0]->launch('kill') }

sub launch {
    my ($self, $command, @options) = @_;
    local ($?, $!);
    delete $self->{session};
    system($launcher, $command, @options, $self->{dir}) == 0 or die "Cassandra: $command fails: see $self->{dir}/log\n";
}

sub pause { $_[0]->signal('STOP') }
sub go_on { $_[0]->signal('CONT') }

sub signal {
    my ($self, $signal) = @_;
    open my $file, '<', "$self->{dir}/pid" or die "no pid: $!\n";
    CORE::kill($signal, <$file> + 0);
}

# The rows of a query: see Cql.pm.
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

# What a namespace has counted in a table: by key, of all windows or of those of so many milliseconds; of
# one key, if it is named.
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

# The epoch of a namespace; undef if there is none.
sub epoch {
    my ($self, $table, $namespace) = @_;
    my $query = "SELECT epoch FROM ${table}_shards WHERE namespace = '$namespace' AND shard = 0";
    my ($row) = eval { $self->ask($query, 'QUORUM') };
    die $@ if $@ && $@ !~ /(?:table|keyspace) \S+ does not exist/;
    return $row && $row->{epoch};
}

# The tables of a keyspace.
sub tables {
    my ($self, $keyspace) = @_;
    my @rows = $self->ask("SELECT table_name FROM system_schema.tables WHERE keyspace_name = '$keyspace'");
    return map {"$keyspace.$_->{table_name}"} @rows;
}

1;
