# Clients of one node, and their ledger. For each counter, the ledger has the `answered` hits, which
# must be counted, and the `open` hits, which may be counted. A hit is open if its request got no
# response, because its worker was killed or closed the connection when it arrived, or if it got a 503,
# because the store did not decide in time.
#
# Amounts are in thousandths of a hit. The name of a counter has its namespace, its window and its key:
# `api 366d hot`. For algorithms other than fixed and sliding windows, it also has the algorithm:
# `now moving-366d hot`.

package Load;

use strict;
use warnings;

use IO::Select;
use List::Util qw(max);
use POSIX ();
use Time::HiRes qw(time);

my $test = $$;
my @all;

END {
    local $?;
    if ($$ == $test) { kill KILL => $_ for grep {defined} map { $_->{pid} } @all }
}

# The possible outcomes of a request, by namespace. In `now` and `held`, which are synchronous, the
# store decides; a node of `held` may reserve hits.
my %outcomes = (api => [qw(200 429 lost)], map { $_ => [qw(200 429 503 lost)] } qw(now held));

# The cost with which a request is admitted whose response says another one, in thousandths of a hit.
use constant ESTIMATE => 2000;

# The limits of synchronous counters, in hits.
my %limits = ('now 366d' => 1_000_000, 'now 360d' => 200, 'now 300d' => 2, 'held 366d' => 200);

# A rule for each algorithm with its own counters, with a window in days and a limit.
my %algorithms = (
    moving  => sub { my ($days, $limit) = @_; return "now limit=$limit/${days}d window=moving" },
    elastic => sub { my ($days, $limit) = @_; return "now limit=$limit/${days}d window=elastic" },
    rate    => sub { my ($days, $limit) = @_; return "now rate=1/${days}d burst=" . ($limit - 1) },
);
# The limits of these rules, in hits, by the days of the window.
my %limits_of_days = (366 => 20, 360 => 2);

# The rules of the locations for requests, with the counters that they charge.
my %rules = (
    hit   => {rule => 'api limit=1000000/366d',                                 counts => ['api 366d']},
    both  => {rule => 'api limit=1000000/366d limit=1000000/360d cost=$arg_c',  counts => ['api 366d', 'api 360d']},
    tight => {rule => 'api limit=1000000/360d limit=60/300d',                   counts => ['api 360d', 'api 300d']},
    short => {rule => 'api limit=1000000/5s',                                   counts => []},
    now   => {rule => synchronous('366d') . ' cost=$arg_c',                     counts => ['now 366d']},
    crowd => {rule => synchronous('360d'),                                      counts => ['now 360d']},
    few   => {rule => synchronous('300d'),                                      counts => ['now 300d']},
    month => {rule => 'api limit=1000000/month tz=Asia/Kathmandu',              counts => ['api month']},
    # The cost of the response replaces the one with which a request is admitted.
    later => {rule => 'api limit=1000000/366d cost=' . ESTIMATE / 1000 . ' charge=$arg_c', counts => ['api 366d']},
    ban   => {rule => 'api limit=1/1h ban=1h',                                  counts => []},
    under => {rule => 'api concurrent=2',                                       counts => []},
    held  => {rule => "held limit=$limits{'held 366d'}/366d window=fixed",      counts => ['held 366d']},
);

sub synchronous { my ($window) = @_; return "now limit=$limits{qq(now $window)}/$window window=fixed" }

# Each algorithm has a rule; one rule has all of them, and a fixed window.
for my $algorithm (keys %algorithms) {
    $rules{$algorithm} = {rule => rule_of($algorithm, 366), counts => ["now $algorithm-366d"]};
}
my @algorithms = sort keys %algorithms;
$rules{mixed} = {
    rule   => join('; ratelimit ', synchronous('300d'), map { rule_of($_, 360) } @algorithms),
    counts => ['now 300d', map {"now $_-360d"} @algorithms],
};

sub rule_of {
    my ($algorithm, $days, $limit) = @_;
    return $algorithms{$algorithm}->($days, $limit // $limits_of_days{$days});
}

# The requests in `now` and `held` that the store decides: `all`, those by fixed `windows`, or
# `nothing`.
our $decided = 'all';

# The number of kinds of requests that `request` draws from, by $decided.
my %kinds = (all => 165, windows => 145, nothing => 100);

sub rules {
    my @names = grep {
        my $windows = $rules{$_}{rule} =~ /^api/ || ($decided ne 'nothing' && !/mixed/ && !$algorithms{$_});
        $windows || $decided eq 'all';
    } keys %rules;
    return map { $_ => $rules{$_}{rule} } @names;
}

# Returns the locations for counters of windows that are not of days, by namespace and window.
sub asks {
    my %asks = ('api-month' => "$rules{month}{rule} cost=0");
    return %asks if $decided ne 'all';
    return %asks, map {
        my $algorithm = $_;
        map { ("now-$algorithm-${_}d" => rule_of($algorithm, $_, 1000) . ' cost=0') } keys %limits_of_days;
    } keys %algorithms;
}

# Returns whether the store itself has the total of a counter, as it does for windows.
sub has_total { my ($counter) = @_; return $counter =~ /^\w+ \d+d / }

# Returns whether a counter may have charged hits without a request: the reserve of a killed node.
sub is_held { my ($counter) = @_; return $counter =~ /^held / }

# Returns the limit of a counter, in thousandths of a hit; undef if it is not synchronous.
sub limit {
    my ($counter) = @_;
    my ($namespace, $window) = split / /, $counter;
    my $limit = $window =~ /-(\d+)d\z/ ? $limits_of_days{$1} : $limits{"$namespace $window"};
    return defined $limit ? 1000 * $limit : undef;
}

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
    my ($location, $key, $cost) = $self->request;
    @$slot{qw(asked answer location key cost)} = (time, '', $location, $key, $cost);
    my $path = Node::path($location, $key, sprintf('c=%.3f', $cost / 1000));
    syswrite $slot->{socket}, "HEAD $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

# Returns a location, a key and a cost. One key is hot, and one has a limit for the whole round, in
# which many requests get a 503. Other synchronous keys are used for a moment, so many of them get
# no 503, and many reach their limits with several concurrent requests.
sub request {
    my ($self) = @_;
    my $prefix = $self->{prefix};
    my $now    = time;
    my $second = int $now;
    my $which  = int rand $kinds{$decided};
    return ('hit',   "$prefix-hot", 1000)                        if $which < 20;
    return ('hit',   $prefix . '-k' . int(rand 200), 1000)       if $which < 35;
    return ('later', $prefix . '-l' . int(rand 40), 1 + int rand 5000) if $which < 40;
    return ('month', $prefix . '-m' . int(rand 20), 1000)        if $which < 45;
    return ('both',  $prefix . '-k' . int(rand 200), 1 + int rand 5000) if $which < 80;
    return ('tight', $prefix . '-t' . int(rand 20), 1000)        if $which < 95;
    return ('short', 's' . int(rand 20), 1000)                   if $which < 98;
    return ('under', 'u' . int(rand 3), 0)                       if $which < 99;
    return ('ban',   $prefix . '-b' . int(rand 40), 0)           if $which < 100;
    return ('now',   "$prefix-$second-" . int(rand 10), 1 + int rand 5000) if $which < 112;
    return ('few',   $prefix . '-' . int(5 * $now), 1000)        if $which < 120;
    return ('crowd', "$prefix-crowd", 1000)                      if $which < 125;
    return ('held',  $prefix . '-h' . int($now / 6), 1000)       if $which < 145;
    return ('mixed', $prefix . '-m' . int(5 * $now), 1000)       if $which < 155;
    return ($algorithms[rand @algorithms], "$prefix-crowd", 1000);
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
    my $counter = $self->{counters}{"api 366d $slot->{key}"};
    my $more    = $slot->{cost} - ESTIMATE;
    $counter->{answered} -= max($more, 0);
    $counter->{open}     += abs $more;
}

# Writes a request into the ledger.
sub note {
    my ($self, $slot, $outcome) = @_;
    my $rule = $rules{$slot->{location}};
    my ($namespace) = split / /, $rule->{rule};
    my $requests = $self->{requests}{$namespace};
    die "unexpected status $outcome of $slot->{location}\n" if !defined $requests->{$outcome};
    $requests->{$outcome}++;
    $slot->{outcome} = $outcome;
    my $now  = time;
    my $cost = $slot->{cost};
    # Of a request without a response, the estimate may stay.
    $cost = max($cost, ESTIMATE) if $slot->{location} eq 'later' && $outcome ne '200';
    push @{$self->{slow}}, [$namespace, $slot->{asked}, $now] if $now - $slot->{asked} > SLOW;
    $self->{error} = $now if $outcome eq '503';
    for my $count (@{$rule->{counts}}) {
        my $counter = $self->{counters}{"$count $slot->{key}"} //= {answered => 0, open => 0, rejected => 0};
        if    ($outcome eq '200') { $counter->{answered} += $cost }
        elsif ($outcome eq '429') { $counter->{rejected}++ }
        else                      { $counter->{open} += $cost }
    }
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
