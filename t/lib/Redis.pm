# A private redis-server, and queries for its contents.

package Redis;

use strict;
use warnings;

use File::Temp qw(tempdir);
use IO::Socket::UNIX;
use Processes;

# port => its port; args => more arguments, written as in redis.conf; config => a configuration file, for a
# sentinel, which saves its state there; dir => its directory, if not a new one.
sub new {
    my ($class, %self) = @_;
    my $self = bless {args => [], prefix => 'rl', database => 0, %self}, $class;
    $self->{dir} //= tempdir('own-redis-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    return $self;
}

sub is_there { system('redis-server --version >/dev/null 2>&1') == 0 }
sub socket   { $_[0]{dir} . '/redis.sock' }

# Starts the server. With `appendonly yes`, it has the data of its append-only file.
sub start {
    my ($self) = @_;
    my @command = (
        'redis-server', $self->{config} // (), '--port', $self->{port}, '--bind', '127.0.0.1', '--dir', $self->{dir},
        '--unixsocket', $self->socket, '--save', '', '--appendonly', 'no',
        # Without this, a former replica would start with the data of its last full synchronization.
        '--rdb-del-sync-files', 'yes', @{$self->{args}},
    );
    $self->{pid} = start_server(
        name     => 'redis-server',
        command  => \@command,
        port     => $self->{port},
        log      => "$self->{dir}/log",
        is_ready => sub { $self->cli('PING') eq 'PONG' },
    );
}

sub runs      { defined $_[0]{pid} }
sub pause     { stop_processes($_[0]{pid}) }
sub go_on     { kill CONT => $_[0]{pid} }
sub kill      { $_[0]->end('KILL') }
sub stop      { $_[0]->end('TERM') }

sub end {
    my ($self, $signal) = @_;
    my $pid = delete $self->{pid} or return;
    end_process($pid, $signal);
    delete $self->{connection};
}

# Runs a command; returns its reply: text, a list, or undef. Dies on an error.
sub cli {
    my ($self, @command) = @_;
    my $answer = eval { $self->ask(@command) };
    return $answer if !$@;
    delete $self->{connection};
    die $@;
}

sub ask {
    my ($self, @command) = @_;
    if (!$self->{connection} || $self->{of} != $$) {
        $self->{connection} = IO::Socket::UNIX->new($self->socket) or die "cannot connect: $!\n";
        $self->{of}         = $$;
        $self->{selected}   = 0;
        $self->ask(AUTH => $self->{password}) if defined $self->{password};
    }
    if (($self->{database} // 0) != $self->{selected}) {
        $self->{selected} = $self->{database};
        $self->ask(SELECT => $self->{database});
    }
    my $connection = $self->{connection};
    local $SIG{PIPE} = 'IGNORE';
    print $connection '*' . @command . "\r\n", map {'$' . length($_) . "\r\n$_\r\n"} @command;
    $connection->flush;
    return answer($connection);
}

sub answer {
    my ($connection) = @_;
    local $/ = "\r\n";
    my ($type, $rest) = (readline($connection) // die "no answer\n") =~ /^(.)(.*)\r\n\z/s;
    return $rest if $type eq '+' || $type eq ':';
    die "$rest\n" if $type eq '-';
    return undef if $rest < 0;
    return [map { answer($connection) } 1 .. $rest] if $type eq '*';
    my $length = $rest + 2;
    my $text   = '';
    while (length $text < $length) {
        read $connection, $text, $length - length $text, length $text or die "no answer\n";
    }
    return substr $text, 0, $rest;
}

# The interface of a store that nodes share: see TwoNodes.pm.

sub label       { 'Redis' }
sub software    { qr/(?:redis|valkey) \d+\.\d+/ }
sub strategy    { 'redis' }
sub be_away     { $_[0]->kill }
sub restart     { $_[0]->kill; $_[0]->start }
sub flush       { $_[0]->cli('FLUSHALL') }
sub credentials { "password $_[1];" }
sub place       { ("database $_[1];", database => $_[1]) }

sub be_empty {
    my ($self, %is) = @_;
    $self->kill;
    system('rm', '-rf', "$self->{dir}/appendonlydir");
    $self->{args} = $is{keeps} ? ['--appendonly', 'yes', '--appendfsync', 'always'] : [];
    $self->start;
}

sub cut_connections { $_[0]->cli(CLIENT => 'KILL', 'TYPE', 'normal') }

# Returns the number of connections of nodes. Those of tests are to the socket.
sub connections { return scalar grep {/ addr=127\.0\.0\.1:/} split /\n/, $_[0]->cli(CLIENT => 'LIST') }

# Returns the number of connections that listen to the channel.
sub listeners { return scalar grep {/ cmd=xread/} split /\n/, $_[0]->cli(CLIENT => 'LIST') }

sub disturbances {
    my ($self) = @_;
    my @commands = (['FLUSHALL'], ['FLUSHDB'], ['SCRIPT', 'FLUSH'], ['CLIENT', 'KILL', 'TYPE', 'normal']);
    return map { my $command = $_; ["@$command", sub { $self->cli(@$command) }] } @commands;
}

sub lock {
    my ($self, $password) = @_;
    $self->cli(CONFIG => 'SET', 'requirepass', $password);
    $self->{password} = $password;
}

sub unlock {
    my ($self) = @_;
    $self->cli(CONFIG => 'SET', 'requirepass', '');
    delete $self->{password};
}

sub epoch {
    my ($self, $namespace) = @_;
    return $self->cli(HGET => "$self->{prefix}:{$namespace:0}", 'epoch');
}

# Returns the counts of a namespace by key: those of all windows, or only of windows of `size` milliseconds.
sub totals {
    my ($self, $namespace, $size) = @_;
    return $self->totals_of_shard($namespace, 0, $size);
}

sub totals_of_shard {
    my ($self, $namespace, $number, $size) = @_;
    my $shard = "$self->{prefix}:{$namespace:$number}";
    my $epoch = $self->cli(HGET => $shard, 'epoch') // return {};
    my %totals;
    for my $name (@{$self->cli(KEYS => "$shard:$epoch:*:*")}) {
        next if defined $size && $name !~ /:\Q$size\E:\d+\z/;
        my @counts = @{$self->cli(HGETALL => $name)};
        while (my ($key, $count) = splice @counts, 0, 2) {
            $totals{$key} += $count;
        }
    }
    $_ /= 1000 for values %totals;
    return \%totals;
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size)->{$key} // 0;
}

1;
