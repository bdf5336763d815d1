# Clients of one node, and their ledger: for each counter what was answered, so it must be counted,
# and what was asked and never answered, so it may be: the request's worker was killed, or closed
# the connection just when the request was on its way.
#
# Amounts are in thousandths of a hit. A counter is named by its window and its key: `366d hot`.

package Load;

use strict;
use warnings;

use IO::Select;
use POSIX ();
use Time::HiRes qw(time);

my $test = $$;
my @all;

END {
    local $?;
    if ($$ == $test) { kill KILL => $_ for grep {defined} map { $_->{pid} } @all }
}

# The rules of the locations in which requests are made, with the windows in which those count.
my %rules = (
    hit   => {rule => 'api limit=1000000/366d',                                 windows => ['366d']},
    both  => {rule => 'api limit=1000000/366d limit=1000000/360d cost=$arg_c',  windows => ['366d', '360d']},
    tight => {rule => 'api limit=1000000/360d limit=60/300d',                   windows => ['360d', '300d']},
    short => {rule => 'api limit=1000000/5s',                                   windows => []},
);

sub rules { return map { $_ => $rules{$_}{rule} } keys %rules }

# A process that makes requests to a node, on `connections` at once, altogether `rate` in a second,
# for keys that begin with `prefix`, until it is told to end. file => where the ledger goes.
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    pipe my $end, $self->{ender} or die "cannot make a pipe: $!\n";
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        close delete $self->{ender};
        my $done = eval { $self->{end} = $end; $self->run; $self->write_ledger; 1 };
        print STDERR "a client of node $self->{node}{name}: $@" if !$done;
        POSIX::_exit($done ? 0 : 1);
    }
    $self->{pid} = $pid;
    push @all, $self;
    return $self;
}

# Ends it when all requests are answered; returns the ledger: `counters`, by name, each with what was
# `answered` and `lost`; the numbers of requests by status and of those `lost`; and when the `slow`
# ones were made and answered.
sub end {
    my ($self) = @_;
    syswrite $self->{ender}, '.';
    local $?;
    waitpid delete $self->{pid}, 0;
    die "a client failed\n" if $? != 0;
    my %ledger = (counters => {}, slow => [], requests => {});
    open my $file, '<', $self->{file} or die "no ledger: $!\n";
    while (<$file>) {
        chomp;
        my ($what, @rest) = split /\t/;
        if    ($what eq 'counter') { @{$ledger{counters}{$rest[0]}}{qw(answered lost)} = @rest[1, 2] }
        elsif ($what eq 'slow')    { push @{$ledger{slow}}, [@rest] }
        else                       { $ledger{requests}{$rest[0]} = $rest[1] }
    }
    return \%ledger;
}

# What an answer may take before it is noted.
use constant SLOW => 0.02;

sub run {
    my ($self) = @_;
    local $SIG{PIPE} = 'IGNORE';
    srand $self->{seed};
    $self->{pause}    = $self->{connections} / $self->{rate};
    $self->{requests} = {200 => 0, 429 => 0, lost => 0};
    my @slots = map { {next => time + rand $self->{pause}} } 1 .. $self->{connections};
    until ($self->{is_over} && !grep { $_->{asked} } @slots) {
        my $now = time;
        for my $slot (@slots) {
            $self->ask($slot) if !$slot->{asked} && !$self->{is_over} && $slot->{next} <= $now;
            die "no answer within 30 s\n" if $slot->{asked} && $now > $slot->{asked} + 30;
        }
        my ($next) = sort { $a <=> $b } map { $_->{next} } grep { !$_->{asked} } @slots;
        my $wait   = $self->{is_over} || !defined $next ? 1 : $next - time;
        my @in     = ($self->{is_over} ? () : $self->{end}, map { $_->{socket} // () } @slots);
        my %is_ready = map { $_ => 1 } IO::Select->new(@in)->can_read($wait > 0 ? $wait : 0);
        for my $slot (grep { $_->{socket} && $is_ready{$_->{socket}} } @slots) {
            $self->listen($slot);
        }
        $self->{is_over} ||= $is_ready{$self->{end}};
    }
}

# Makes a request.
sub ask {
    my ($self, $slot) = @_;
    $slot->{socket} //= $self->{node}->connection;
    if (!$slot->{socket}) {
        # The node is not there at the moment.
        $slot->{next} = time + 0.02;
        return;
    }
    my ($location, $key, $cost) = $self->request;
    @$slot{qw(asked answer location key cost)} = (time, '', $location, $key, $cost);
    my $path = Node::path($location, $key, sprintf('c=%.3f', $cost / 1000));
    syswrite $slot->{socket}, "HEAD $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

# What to ask for: a location, a key, the cost. One key is hot.
sub request {
    my ($self) = @_;
    my $prefix = $self->{prefix};
    my $which  = int rand 100;
    return ('hit',   "$prefix-hot", 1000)                        if $which < 20;
    return ('hit',   $prefix . '-k' . int(rand 200), 1000)       if $which < 45;
    return ('both',  $prefix . '-k' . int(rand 200), 1 + int rand 5000) if $which < 80;
    return ('tight', $prefix . '-t' . int(rand 20), 1000)        if $which < 95;
    return ('short', 's' . int(rand 20), 1000);
}

# Takes what has come of an answer.
sub listen {
    my ($self, $slot) = @_;
    my $ended = !sysread $slot->{socket}, $slot->{answer}, 65536, length($slot->{answer} // '');
    if (!$slot->{asked}) {
        # An idle connection was closed.
        close delete $slot->{socket};
        return;
    }
    my ($status) = $slot->{answer} =~ m{^HTTP/1\.1 (\d+).*\r\n\r\n\z}s;
    return if !$status && !$ended;
    $self->note($slot, $status // 'lost');
    if ($ended || $slot->{answer} =~ /\r\nConnection: close\r\n/) { close delete $slot->{socket} }
    $slot->{next} = delete($slot->{asked}) + $self->{pause} * (0.5 + rand 1);
}

# Writes a request into the ledger.
sub note {
    my ($self, $slot, $status) = @_;
    die "unexpected status $status\n" if !defined $self->{requests}{$status};
    $self->{requests}{$status}++;
    my $now = time;
    push @{$self->{slow}}, [$slot->{asked}, $now] if $now - $slot->{asked} > SLOW;
    return if $status eq '429';
    my $column = $status eq 'lost' ? 'lost' : 'answered';
    for my $window (@{$rules{$slot->{location}}{windows}}) {
        my $counter = $self->{counters}{"$window $slot->{key}"} //= {answered => 0, lost => 0};
        $counter->{$column} += $slot->{cost};
    }
}

sub write_ledger {
    my ($self) = @_;
    open my $file, '>', $self->{file} or die "cannot write: $!\n";
    my $counters = $self->{counters};
    print $file join("\t", 'counter', $_, @{$counters->{$_}}{qw(answered lost)}), "\n"
        for keys %$counters;
    print $file join("\t", 'slow', @$_), "\n" for @{$self->{slow}};
    print $file join("\t", 'requests', $_, $self->{requests}{$_}), "\n" for keys %{$self->{requests}};
    close $file or die "cannot write: $!\n";
}

1;
