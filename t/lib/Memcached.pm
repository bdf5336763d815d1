# A private memcached, and queries for its contents.
#
# Nodes reach it through a proxy (see Proxy.pm), since memcached has no command that cuts connections. A killed or paused
# memcached is a real one.

package Memcached;

use strict;
use warnings;

use Digest::SHA qw(sha256_base64);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use Processes;
use Proxy;
use Time::HiRes qw(sleep);

my $test = $$;    # child processes must not remove the files when they exit
my @all;

END {
    if ($$ == $test) { unlink $_->memory for @all }
}

# port => the port of the proxy, to which nodes connect. The server uses the port port + 1.
sub new {
    my ($class, %self) = @_;
    my $self = bless {prefix => 'rl', dir => tempdir(CLEANUP => 1), %self}, $class;
    $self->{proxy} = Proxy->new(port => $self->{port}, to => $self->server_port);
    push @all, $self;
    return $self;
}

# The port of the server itself.
sub server_port { $_[0]{port} + 1 }
sub is_there    { system('memcached --version >/dev/null 2>&1') == 0 }

# Sends commands, and returns all that the server answers to them.
sub ask {
    my ($self, @commands) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->server_port, Timeout => 10)
        or die "memcached cannot be reached: $@\n";
    print $socket $self->login, map { "$_\r\n" } @commands, 'mn';
    my $answer = '';
    until ($answer =~ s/MN\r\n\z//) {
        sysread $socket, $answer, 65536, length $answer or die "memcached closes the connection after $answer\n";
    }
    $answer =~ s/\ASTORED\r\n// or die "memcached does not know the user: $answer\n" if $self->{login};
    return $answer;
}

# Returns the command by which a server with users lets one in.
sub login {
    my ($self) = @_;
    my $login = join ' ', @{$self->{login} // return ''};
    return sprintf "set auth 0 0 %d\r\n%s\r\n", length $login, $login;
}

# Returns the values of items, undef for those that do not exist.
sub get {
    my ($self, @names) = @_;
    my $answer = $self->ask(map { "mg $_ v" } @names);
    my @values;
    while (length $answer) {
        $answer =~ s/\A([A-Z]+)(?: (\d+))?[^\r]*\r\n// or die "memcached answers $answer\n";
        push @values, $1 eq 'VA' ? substr $answer, 0, $2 : undef;
        substr $answer, 0, $2 + 2, '' if $1 eq 'VA';
    }
    return @values;
}

# The interface of a store that nodes share: see TwoNodes.pm.

sub label         { 'memcached' }
sub software      { qr/memcached \d+\.\d+/ }
sub strategy      { 'memcached' }
sub second        { 300 }
sub credentials   { "username ${\ $_[0]->user}; password $_[1];" }
sub tells_no_time { 1 }

sub place {
    my (undef, $number) = @_;
    my $prefix = $number ? "place-$number" : 'rl';
    return ("prefix $prefix;", prefix => $prefix);
}

sub start {
    my ($self) = @_;
    my @users = -e "$self->{dir}/users" ? ("--auth-file=$self->{dir}/users") : ();
    my @keeps = $self->{keeps} ? ('--memory-file=' . $self->memory) : ();
    my $port  = $self->server_port;
    $self->{pid} = start_server(
        name     => 'memcached',
        command  => ['memcached', '--listen=127.0.0.1', "--port=$port", '--user=' . getpwuid($<), @users, @keeps],
        port     => $port,
        log      => "$self->{dir}/log",
        is_ready => sub { $self->ask('version') =~ /^VERSION/ },
    );
    $self->{proxy}->pass;
}

sub runs  { defined $_[0]{pid} }
sub pause { stop_processes($_[0]{pid}) }
sub go_on { kill CONT => $_[0]{pid} }

# One that keeps its data has them in a file in memory, if it is stopped in order, and not in the same second.
sub restart {
    my ($self) = @_;
    $self->{proxy}->refuse;
    $self->end($self->{keeps} ? 'USR1' : 'KILL');
    sleep 1.1 if $self->{keeps};
    $self->start;
}

sub kill {
    my ($self) = @_;
    $self->{proxy}->refuse;
    $self->end;
}

sub end {
    my ($self, $signal) = @_;
    my $pid = delete $self->{pid} or return;
    end_process($pid, $signal);
}

sub be_empty {
    my ($self, %is) = @_;
    $self->be_away;
    $self->{keeps} = $is{keeps};
    $self->start;
}

sub be_away {
    my ($self) = @_;
    $self->kill;
    $self->{keeps} = 0;
    unlink $self->memory;
}

sub memory          { "/dev/shm/own-memcached-$_[0]{port}" }
sub flush           { $_[0]->ask('flush_all') }
sub cut_connections { $_[0]{proxy}->reset }

sub disturbances {
    my ($self) = @_;
    return (['flush_all', sub { $self->flush }], ['reset', sub { $self->cut_connections }]);
}

# Returns the name of the user of nodes. It occurs nowhere else, so that the log can be searched for it.
sub user { return "locked-$$" }

sub lock {
    my ($self, $password) = @_;
    $self->{login} = ['root', $password];
    $self->set_password($password);
    $self->restart;
}

sub set_password {
    my ($self, $password) = @_;
    open my $file, '>', "$self->{dir}/users" or die;
    print $file "${\ $self->user}:$password\n", join(':', @{$self->{login}}), "\n" or die;
    close $file or die;
}

sub change_password {
    my ($self, $password) = @_;
    $self->set_password($password);
    CORE::kill(HUP => $self->{pid});
}

sub unlock {
    my ($self) = @_;
    delete $self->{login};
    unlink "$self->{dir}/users";
    $self->restart;
}

# The keys of a namespace are in several shards.
use constant SHARDS => 4;

# Returns the epochs of all shards, as one word.
sub epoch {
    my ($self, $namespace) = @_;
    my @epochs = map { $_->{epoch} // () } $self->heads($namespace);
    return @epochs ? "@epochs" : undef;
}

# Returns the heads of all shards: the epoch, the number of the last transaction, the names of all pages of the indexes, and
# the writes of that transaction by the names of their items.
sub heads {
    my ($self, $namespace) = @_;
    my $shard = 0;
    return map {
        my %head = (prefix => "$self->{prefix}/$namespace/" . $shard++ . '/');
        if (defined) {
            (@head{qw(epoch number)}, my ($nodes, $windows, $writes)) = unpack 'H16 Q>4', $_;
            my $rest = substr $_, 8 * (5 + 5 * $nodes);
            for (1 .. $windows) {
                my ($size, $window, $last) = unpack 'Q>4', substr $rest, 0, 32, '';
                push @{$head{pages}}, map {"i/$size/$window/$_"} 0 .. $last;
            }
            for (1 .. $writes) {
                my (undef, $of_name, $of_value) = unpack 'Q>3', $rest;
                my ($name, $value) = unpack "x24 a$of_name a$of_value", $rest;
                $head{writes}{$name} = $value;
                substr $rest, 0, 24 + $of_name + $of_value, '';
            }
            $head{prefix} .= "$head{epoch}/";
        }
        \%head;
    } $self->get(map { "$self->{prefix}/$namespace/$_/head" } 0 .. SHARDS - 1);
}

# Returns the name of an item.
sub name {
    my ($prefix, $name) = @_;
    return $prefix . $name if $name =~ /\A[!-~]*\z/ && length($prefix . $name) <= 250;
    return $prefix . '#' . (sha256_base64($name) =~ tr{+/}{-_}r);
}

# Returns the values of items of a shard by their names after the epoch. A write of the last transaction that is not done yet
# counts as done, as for nodes.
sub written {
    my ($self, $head, @names) = @_;
    my @items = $self->get(map { name($head->{prefix}, $_) } @names);
    return map {
        my ($number, $value) = (shift @items // '') =~ /\A(\d+) (.*)\z/s;
        ($number // -1) < $head->{number} ? $head->{writes}{$_} // $value : $value;
    } @names;
}

# Returns the sums of the windows `size` (in milliseconds; all without), by keys.
sub totals {
    my ($self, $namespace, $size) = @_;
    my %totals;
    for my $head (grep { $_->{epoch} } $self->heads($namespace)) {
        for my $page (@{$head->{pages}}) {
            my ($of, $window) = $page =~ m{\Ai/(\d+)/(\d+)/\d+\z} or die "a page has the name $page\n";
            next if defined $size && $of != $size;
            my ($keys) = $self->written($head, $page);
            my @keys   = unpack 'x8 (Q>/a)*', $keys // next;
            my @counts = $self->written($head, map {"c/$of/$window/$_"} @keys);
            for my $key (@keys) { $totals{$key} += (shift(@counts) // 0) / 1000 }
        }
    }
    return \%totals;
}

# Returns the names of all items.
sub names {
    my ($self) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->server_port, Timeout => 10)
        or die "memcached cannot be reached: $@\n";
    # memcached answers nothing to this command if it comes together with others.
    print $socket $self->login;
    readline $socket if $self->{login};
    my @names;
    my $is_whole = sub {
        # By the hash table: in the lists, it skips an item that a reply still uses.
        print $socket "lru_crawler metadump hash\r\n";
        @names = ();
        while (defined(my $line = <$socket>)) {
            # It is busy while it looks for expired items.
            $line =~ /\Akey=(\S+)/ or return $line !~ /\ABUSY/;
            push @names, $1 =~ s/%([0-9A-F]{2})/chr hex $1/ger;
        }
        return 1;
    };
    sleep 0.01 until $is_whole->();
    return @names;
}

# Deletes items whose names match, as if memcached needed their memory for others.
sub evict {
    my ($self, $which) = @_;
    my @names = grep { /$which/ } $self->names;
    $self->ask(map { "md $_" } @names);
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size)->{$key} // 0;
}

1;
