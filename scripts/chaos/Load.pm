# Clients of one node, and their ledger. For each counter, the ledger has the `answered` hits, which
# must be counted, and the `open` hits, which may be counted. A hit is open if its request got no
# response, because its worker was killed or closed the connection when it arrived, or if it got a 503,
# because the store did not decide in time.
#
# Counters are named as in Requests.pm, which says what is asked. Each response names the shape of the configuration that
# decided (Shape.pm), and with it the counters.

package Load;

use strict;
use warnings;

use IO::Select;
use List::Util qw(max);
use POSIX ();
use Requests;
use Shape;
use Time::HiRes qw(time);

my $test = $$;
my @all;

END {
    local $?;
    if ($$ == $test) { kill KILL => $_ for grep {defined} map { $_->{pid} } @all }
}

# The possible outcomes of a request, by namespace. In `now` and `held`, which are synchronous, the
# store decides; a node of `held` may reserve hits.
my %outcomes = map { $_ => [qw(200 429 503 lost)] } qw(api other full now held);

# Starts a process that makes requests to a node, on `connections` connections, `rate` requests in a
# second in total, for keys that begin with `prefix`, until `stop`. file => the file of the ledger; calm => replaces CALM.
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

# Tells the process that all faults are undone and that it must exit. It exits when it has received no
# 503 for a while.
sub stop { my ($self) = @_; syswrite $self->{ender}, '.' }

# Waits until the process has exited; returns the ledger: `counters` by name, each with the `answered`
# and the `open` hits and the number of `rejected` requests; the number of `requests` by namespace and
# outcome; the start and end of `slow` requests by namespace; and the time in seconds for which
# `errors` continued after all faults were undone.
sub ledger {
    my ($self) = @_;
    local $?;
    waitpid delete $self->{pid}, 0;
    die "a client failed\n" if $? != 0;
    my %ledger = (counters => {}, slow => {}, requests => {}, errors => 0);
    open my $file, '<', $self->{file} or die "no ledger: $!\n";
    while (<$file>) {
        chomp;
        my ($what, $of, @rest) = split /\t/;
        if    ($what eq 'counter') { @{$ledger{counters}{$of}}{qw(answered open rejected)} = @rest }
        elsif ($what eq 'slow')    { push @{$ledger{slow}{$of}}, [@rest] }
        elsif ($what eq 'errors')  { $ledger{errors} = $of }
        else                       { $ledger{requests}{$of}{$rest[0]} = $rest[1] }
    }
    return \%ledger;
}

# A request that takes longer is recorded as slow; in seconds.
use constant SLOW => 0.02;

# The longest time for an answer, in seconds. A stopped worker may wait for long: on a busy machine, another fault begins
# only after up to 60 s, when its node has synced. chaos.pl judges answers that no fault excuses.
use constant PATIENCE => 90;

# The time in seconds without a 503 after which the process exits, and the time after which it exits
# in any case.
use constant {
    CALM => 1,
    BACK => 60,
};

sub run {
    my ($self) = @_;
    local $SIG{PIPE} = 'IGNORE';
    srand $self->{seed};
    $self->{serial}   = 0;
    $self->{pause}    = $self->{connections} / $self->{rate};
    for my $namespace (keys %outcomes) {
        $self->{requests}{$namespace} = {map { $_ => 0 } @{$outcomes{$namespace}}};
    }
    my @slots = map { {next => time + rand $self->{pause}} } 1 .. $self->{connections};
    until ($self->{is_over} && !grep { $_->{asked} } @slots) {
        my $now = time;
        for my $slot (@slots) {
            $self->ask($slot) if !$slot->{asked} && !$self->{is_over} && $slot->{next} <= $now;
            die "no answer within ${\ PATIENCE} s\n" if $slot->{asked} && $now > $slot->{asked} + PATIENCE;
        }
        my ($next) = sort { $a <=> $b } map { $_->{next} } grep { !$_->{asked} } @slots;
        my $wait   = $self->{is_over} || !defined $next ? 1 : $next - time;
        my @in     = ($self->{told} ? () : $self->{end}, map { $_->{socket} // () } @slots);
        my %is_ready = map { $_ => 1 } IO::Select->new(@in)->can_read($wait > 0 ? $wait : 0);
        for my $slot (grep { $_->{socket} && $is_ready{$_->{socket}} } @slots) {
            $self->listen($slot);
        }
        $self->{told} //= time if $is_ready{$self->{end}};
        $self->{is_over} ||= $self->{told} && $self->is_calm;
    }
}

sub is_calm {
    my ($self) = @_;
    my ($told, $error) = @$self{qw(told error)};
    return time > max($told, $error // 0) + ($self->{calm} // CALM) || time > $told + BACK;
}

# Makes a request.
sub ask {
    my ($self, $slot) = @_;
    $slot->{socket} //= $self->{node}->connection;
    if (!$slot->{socket}) {
        # The node is down at the moment.
        $slot->{next} = time + 0.02;
        return;
    }
    my $prefix = $self->{prefix};
    my ($location, $key, $cost, @text) = Requests::request($prefix, "$self->{node}{name}-" . $self->{serial}++);
    @$slot{qw(asked answer location key cost)} = (time, '', $location, $key, $cost);
    my $path = Requests::path_of($location, $key, @text ? @text : sprintf '%.3f', $cost / 1000);
    syswrite $slot->{socket}, "HEAD $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

# Handles a response.
sub listen {
    my ($self, $slot) = @_;
    my $ended = !sysread $slot->{socket}, $slot->{answer}, 65536, length($slot->{answer} // '');
    if (!$slot->{asked}) {
        # An idle connection was closed: perhaps by a kill just after the response, before the log phase.
        close delete $slot->{socket};
        $self->doubt($slot) if ($slot->{location} // '') eq 'later';
        return;
    }
    my ($status) = $slot->{answer} =~ m{^HTTP/1\.1 (\d+).*\r\n\r\n\z}s;
    return if !$status && !$ended;
    $self->note($slot, $status // 'lost');
    if ($ended || $slot->{answer} =~ /\r\nConnection: close\r\n/) { close delete $slot->{socket} }
    $slot->{next} = delete($slot->{asked}) + $self->{pause} * (0.5 + rand 1);
}

# Records that the response of a connection's last request may not have replaced its estimate.
sub doubt {
    my ($self, $slot) = @_;
    return if (delete $slot->{outcome} // '') ne '200';
    my $more = $slot->{cost} - Requests::ESTIMATE;
    for my $name (Requests::counters_of(@$slot{qw(location shape key)})) {
        my $counter = $self->{counters}{$name};
        $counter->{answered} -= max($more, 0);
        $counter->{open}     += abs $more;
    }
}

# Writes a request into the ledger. One without a response may have been decided by any shape.
sub note {
    my ($self, $slot, $outcome) = @_;
    my ($said)     = $slot->{answer} =~ /\r\nShape: (\S+)/;
    my $shape      = $slot->{shape} = $said ? Shape::said($said) : undef;
    die "a response without a shape\n" if !$shape && $outcome ne 'lost';
    my @shapes     = $shape // Shape::all();
    my $location   = $slot->{location};
    my $namespace  = Requests::namespace_of($location, $shapes[0]);
    # A key with requests under way is not limited where the store decides.
    return if $outcome eq '404' && $location eq 'under';
    die "unexpected status $outcome of $location\n" if !defined $self->{requests}{$namespace}{$outcome};
    $self->{requests}{$namespace}{$outcome}++;
    $slot->{outcome} = $outcome;
    my $now  = time;
    my $cost = $slot->{cost};
    # Of a request without a response, the estimate may stay.
    $cost = max($cost, Requests::ESTIMATE) if $location eq 'later' && $outcome ne '200';
    push @{$self->{slow}}, [$namespace, $slot->{asked}, $now] if $now - $slot->{asked} > SLOW;
    $self->{error} = $now if $outcome eq '503';
    my %names = map { $_ => 1 } map { Requests::counters_of($location, $_, $slot->{key}) } @shapes;
    for my $name (keys %names) {
        my $counter = $self->{counters}{$name} //= {answered => 0, open => 0, rejected => 0};
        if    ($outcome eq '200') { $counter->{answered} += $cost }
        elsif ($outcome eq '429') { $counter->{rejected}++ }
        else                      { $counter->{open} += $cost }
    }
    # A store that decides is told the difference after the response, and may be away then.
    $self->doubt($slot) if $location eq 'later' && $shape && $shape->{decides};
}

sub write_ledger {
    my ($self) = @_;
    open my $file, '>', $self->{file} or die "cannot write: $!\n";
    my $line = sub { print $file join("\t", @_), "\n" };
    my ($counters, $requests) = @$self{qw(counters requests)};
    $line->('counter', $_, @{$counters->{$_}}{qw(answered open rejected)}) for keys %$counters;
    $line->('slow', @$_) for @{$self->{slow}};
    for my $namespace (keys %$requests) {
        $line->('requests', $namespace, $_, $requests->{$namespace}{$_}) for @{$outcomes{$namespace}};
    }
    $line->('errors', max(0, ($self->{error} // 0) - $self->{told}));
    close $file or die "cannot write: $!\n";
}

1;
