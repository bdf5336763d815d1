# A TCP proxy in front of a store that injects network faults.
#
# The proxy is a separate process, which gets its orders over a pipe. Each method returns when the
# order is in effect. An order applies to all connections, present and future, until `pass`:
#
#   pass                    forwards everything, including the data that it held back
#   reset                   resets all connections, once
#   refuse                  resets all connections and accepts no new ones
#   silence                 accepts connections and forwards nothing, in either direction. After
#                           `pass`, it forwards what clients sent, also if they have closed their
#                           connections
#   delay(SECONDS)          delays all responses
#   delay_pushes(SECONDS)   delays the responses to pushes only, so that connections can be opened
#   hold                    holds back the responses to pushes
#   cut_answers(N)          forwards the first half of the next N responses to pushes, and then
#                           closes the connection: the push is applied, and the node cannot know it
#   lead_to(PORT)           forwards new connections to another server
#
# A push is a request that contains EVALSHA, or that matches the option `push`.

package Proxy;

use strict;
use warnings;

use IO::Handle;
use IO::Select;
use IO::Socket::INET;
use POSIX ();

my $test = $$;    # child processes must not stop the proxy when they exit
my @all;

END {
    local $?;
    if ($$ == $test) { $_->stop for @all }
}

# port => the port that the proxy listens on, to => the port of the server, push => a pattern for pushes.
sub new {
    my ($class, %self) = @_;
    pipe my $orders, my $orderer or die "cannot make a pipe: $!\n";
    pipe my $reports, my $reporter or die "cannot make a pipe: $!\n";
    my $self = bless {%self, orderer => $orderer, reports => $reports}, $class;
    my $parent = $$;
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        close $orderer;
        close $reports;
        eval { Proxy::Process->new(%self, orders => $orders, reporter => $reporter)->run($parent) };
        print STDERR "the proxy at $self{port}: $@" if $@;
        POSIX::_exit(1);
    }
    $self->{pid} = $pid;
    $orderer->autoflush(1);
    push @all, $self;
    $self->state;    # returns when the proxy listens
    return $self;
}

sub stop {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    kill KILL => $pid;
    waitpid $pid, 0;
}

sub pass         { $_[0]->order('pass') }
sub reset        { $_[0]->order('reset') }
sub refuse       { $_[0]->order('refuse') }
sub silence      { $_[0]->order('silence') }
sub delay        { $_[0]->order("delay $_[1]") }
sub delay_pushes { $_[0]->order("delay_pushes $_[1]") }
sub hold         { $_[0]->order('hold') }
sub cut_answers  { $_[0]->order("cut_answers $_[1]") }
sub lead_to      { $_[0]->order("lead_to $_[1]") }

# Returns counters: the number of `accepted` connections, of `pushes` received, of responses `cut`, of
# responses `held` now; and `holder`, the client port of a held response.
sub state { $_[0]->order('state') }

sub order {
    my ($self, $order) = @_;
    local $SIG{PIPE} = 'IGNORE';
    print {$self->{orderer}} "$order\n";
    my $line = readline($self->{reports}) // die "the proxy at $self->{port} is gone\n";
    return {split ' ', $line};
}

# The process of the proxy. A link is a connection of a client and the matching connection to the server:
#   client, server   the sockets; the one to the server is opened when there is something to send
#   request          bytes to send to the server
#   answers          responses to send to the client: their bytes, the time from which on they may be
#                    sent (`at`), and whether the connection is closed after them (`is_last`)
#   is_push          whether the next response answers a push
package Proxy::Process;

use Errno qw(EAGAIN EINTR);
use List::Util qw(max min);
use Socket qw(IPPROTO_TCP SOL_SOCKET SO_LINGER TCP_NODELAY);
use Time::HiRes qw(time);

use constant NEVER => 9**9**9;

sub new {
    my ($class, %self) = @_;
    my $self = bless {
        push => qr/EVALSHA/,
        %self,
        links  => {},    # by client
        counts => {accepted => 0, pushes => 0, cut => 0},
        rest   => '',    # of an order
    }, $class;
    $self->{orders}->blocking(0);
    $self->{reporter}->autoflush(1);
    $self->pass;
    return $self;
}

sub run {
    my ($self, $parent) = @_;
    local $SIG{PIPE} = 'IGNORE';
    while (getppid == $parent) {
        my %is_ready = map { $_ => 1 } $self->wait;
        for my $link (values %{$self->{links}}) {
            $self->from_client($link) if $is_ready{$link->{client}};
            $self->from_server($link) if $link->{server} && $is_ready{$link->{server}};
            $self->send_on($link) if !$self->{is_silent};
        }
        $self->accept if $self->{listener} && $is_ready{$self->{listener}};
        $self->obey   if $is_ready{$self->{orders}};
    }
}

# Waits until there is something to do, at most one second; returns the readable handles.
sub wait {
    my ($self) = @_;
    my @in  = grep {defined} @$self{qw(orders listener)};
    my @out = ();
    my $now = time;
    my $end = $now + 1;
    for my $link ($self->{is_silent} ? () : values %{$self->{links}}) {
        push @in,  $link->{client} if !$link->{client_ended};
        push @in,  $link->{server} if $link->{server} && !$link->{server_ended};
        push @out, $link->{server} if $link->{server} && length $link->{request};
        my $answer = $link->{answers}[0] or next;
        push @out, $link->{client} if $answer->{at} <= $now;
        $end = min($end, $answer->{at}) if $answer->{at} > $now;
    }
    my ($readable) = IO::Select->select(
        IO::Select->new(@in), IO::Select->new(@out), undef, $end - $now
    );
    return @{$readable // []};
}

# Connections.

sub accept {
    my ($self) = @_;
    my $client = $self->{listener}->accept or return;
    prepare($client);
    $self->{links}{$client} = {client => $client, request => '', answers => []};
    $self->{counts}{accepted}++;
}

sub from_client {
    my ($self, $link) = @_;
    my $bytes = received($link->{client}) // return;
    $link->{client_ended} = $bytes eq '';
    $link->{request} .= $bytes;
    return if $bytes !~ $self->{push};
    $link->{is_push} = 1;
    $self->{counts}{pushes}++;
}

sub from_server {
    my ($self, $link) = @_;
    my $bytes = received($link->{server}) // return;
    return $link->{server_ended} = 1 if $bytes eq '';
    my $is_push = delete $link->{is_push};
    my $delay   = $self->{delay} + ($is_push ? $self->{push_delay} : 0);
    my $answer  = {bytes => $bytes, at => time + $delay};
    if ($is_push && $self->{cuts} > 0) {
        $self->{cuts}--;
        $self->{counts}{cut}++;
        @$answer{qw(bytes is_last)} = (substr($bytes, 0, length($bytes) / 2), 1);
    }
    elsif ($is_push && $self->{is_holding}) { $answer->{at} = NEVER }
    push @{$link->{answers}}, $answer;
}

# Forwards the pending data of a link, as far as the sockets accept it and responses are due.
sub send_on {
    my ($self, $link) = @_;
    if (length $link->{request}) {
        $link->{server} //= $self->connect or return $self->drop($link);
        $link->{server_ended} = 1 if !sent($link->{server}, \$link->{request});
    }
    while (my $answer = $link->{answers}[0]) {
        last if $answer->{at} > time;
        my $is_sent = sent($link->{client}, \$answer->{bytes});
        return $self->drop($link) if !$is_sent || ($answer->{is_last} && $answer->{bytes} eq '');
        last if length $answer->{bytes};
        shift @{$link->{answers}};
    }
    # A request that a client sent before it closed its connection is still forwarded.
    my $is_over = $link->{client_ended} ? !length $link->{request} || $link->{server_ended}
        : $link->{server_ended} && !@{$link->{answers}};
    $self->drop($link) if $is_over;
}

sub connect {
    my ($self) = @_;
    my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{to}) or return;
    prepare($server);
    return $server;
}

# Makes a socket nonblocking and disables Nagle's algorithm.
sub prepare {
    my ($socket) = @_;
    $socket->blocking(0);
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
}

sub drop {
    my ($self, $link) = @_;
    delete $self->{links}{$link->{client}};
    close $_ for grep {defined} @$link{qw(client server)};
}

# Returns received bytes: '' if the connection is closed, undef if no data is available yet.
sub received {
    my ($socket) = @_;
    my $count = sysread $socket, my $bytes, 65536;
    return $bytes if defined $count;
    return $! == EAGAIN || $! == EINTR ? undef : '';
}

# Sends as much as the socket accepts and removes it from the buffer. Returns whether the connection is still open.
sub sent {
    my ($socket, $bytes) = @_;
    my $count = syswrite $socket, $$bytes;
    return $! == EAGAIN || $! == EINTR if !defined $count;
    substr $$bytes, 0, $count, '';
    return 1;
}

# Orders.

sub obey {
    my ($self) = @_;
    sysread $self->{orders}, $self->{rest}, 4096, length $self->{rest} or POSIX::_exit(0);
    while ($self->{rest} =~ s/^(\w+) ?(.*)\n//) {
        my ($order, $argument) = ($1, $2);
        $self->$order($argument);
        my ($holder, @others) = grep { @{$_->{answers}} && $_->{answers}[0]{at} == NEVER }
            values %{$self->{links}};
        my %state = (%{$self->{counts}}, held => $holder ? 1 + @others : 0);
        $state{holder} = $holder->{client}->peerport if $holder;
        print {$self->{reporter}} join(' ', %state), "\n";
    }
}

sub pass {
    my ($self) = @_;
    @$self{qw(is_silent is_holding delay push_delay cuts)} = (0, 0, 0, 0, 0);
    $self->listen if !$self->{listener};
    for my $link (values %{$self->{links}}) {
        $_->{at} = 0 for @{$link->{answers}};
    }
}

sub listen {
    my ($self) = @_;
    $self->{listener} = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $self->{port}, Listen => 128, ReuseAddr => 1,
    ) or die "cannot listen: $!\n";
    $self->{listener}->blocking(0);
}

sub reset {
    my ($self) = @_;
    for my $link (values %{$self->{links}}) {
        setsockopt $link->{client}, SOL_SOCKET, SO_LINGER, pack 'll', 1, 0;
        $self->drop($link);
    }
}

sub refuse {
    my ($self) = @_;
    close $self->{listener} if $self->{listener};
    delete $self->{listener};
    $self->reset;
}

sub silence      { $_[0]{is_silent}  = 1 }
sub hold         { $_[0]{is_holding} = 1 }
sub delay        { $_[0]{delay}      = $_[1] }
sub delay_pushes { $_[0]{push_delay} = $_[1] }
sub cut_answers  { $_[0]{cuts}       = $_[1] }
sub lead_to      { $_[0]{to}         = $_[1] }
sub state        { }

1;
