# The requests of clients: their rules, the counters that each charges, their keys and costs.
#
# Amounts are in thousandths of a hit. The name of a counter has its namespace, its window and its key: `api 366d hot`.
# For algorithms other than fixed and sliding windows, it also has the algorithm: `now moving-366d hot`.

package Requests;

use strict;
use warnings;

use Node;
use Time::HiRes qw(time);

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
    odd   => {rule => 'api limit=1000000/366d cost=$arg_c',                     counts => ['api 366d']},
    full  => {rule => 'full limit=1000000/366d',                                counts => ['full 366d']},
    short => {rule => 'api limit=1000000/5s',                                   counts => []},
    now   => {rule => synchronous('366d') . ' cost=$arg_c',                     counts => ['now 366d']},
    crowd => {rule => synchronous('360d'),                                      counts => ['now 360d']},
    few   => {rule => synchronous('300d'),                                      counts => ['now 300d']},
    month => {rule => 'api limit=1000000/month tz=Asia/Kathmandu',              counts => ['api month']},
    # The cost of the response replaces the one with which a request is admitted.
    later => {rule => 'api limit=1000000/366d cost=' . ESTIMATE / 1000 . ' charge=$arg_c', counts => ['api 366d']},
    ban   => {rule => bans('api'),                                              counts => []},
    under => {rule => 'api concurrent=2',                                       counts => []},
    # Its algorithm is that of the node's shape.
    turn  => {rule => '',                                                       counts => []},
    held  => {rule => "held limit=$limits{'held 366d'}/366d window=fixed",      counts => ['held 366d']},
);

sub bans { my ($namespace) = @_; return "$namespace limit=1/364d window=fixed ban=30d" }

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
my %kinds = (all => 187, windows => 157, nothing => 112);

# Returns the rules by location, as a node has them in this shape (see Shape.pm).
sub rules {
    my ($shape) = @_;
    my %all = (%rules, turn => $rules{$shape->{algorithm}} // $rules{now});
    my @names = grep { is_possible($_) } keys %rules;
    @names = grep { $_ ne 'under' } @names if $shape->{decides};
    my %here = map { $_ => $all{$_}{rule} } @names;
    $here{tight} =~ s{=60/}{=$shape->{limit}/};
    for my $rule (values %here) {
        next if $rule !~ s/^api/$shape->{name}/;
        $rule .= ' window=fixed' if $shape->{window} eq 'fixed' && $rule !~ /window=|month|concurrent/;
    }
    return %here;
}

# Returns whether the store can decide about requests to a location.
sub is_possible {
    my ($location) = @_;
    return 1 if $decided eq 'all' || $rules{$location}{rule} =~ /^(?:api|full)/;
    return $decided eq 'windows' && $location !~ /^(?:mixed|turn|moving|elastic|rate)\z/;
}

# Returns the counters that a request charges on a node of this shape.
sub counters_of {
    my ($location, $shape, $key) = @_;
    return 'full 366d all' if $location eq 'full';
    return $shape->{algorithm} eq 'fixed' ? "now 366d $key" : "now $shape->{algorithm}-366d $key" if $location eq 'turn';
    return map { s/^api/$shape->{name}/r . " $key" } @{$rules{$location}{counts}};
}

# Returns the namespace of a location on a node of this shape.
sub namespace_of {
    my ($location, $shape) = @_;
    return 'now' if $location eq 'turn';
    my ($namespace) = split / /, $rules{$location}{rule};
    return $namespace eq 'api' ? $shape->{name} : $namespace;
}

# Returns the locations for counters of windows that are not of days, by namespace and window.
sub asks {
    my %asks = map { ("$_-month" => $rules{month}{rule} =~ s/^api/$_/r . ' cost=0') } qw(api other);
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

# Odd keys, without the prefix of a round, by number; see `key_of`.
my @ODD = (
    (map { 'x' x $_ } 100, 190, 197, 198, 500, 1500),
    ' ', "tab\tnew\nline\r", '%00%41', "\x01\x7f\x80\xff", "\xc3\xa9\xe2\x82\xac", '"quoted" \\ {braces}', "a'b;--", ':' x 20,
    'sha256:x', join('', map { chr } 1 .. 0x2d, 0x3a .. 0xff),
);

# Costs as clients send them, and the thousandths of a hit that are counted.
my @COSTS = (
    ['0', 0], ['0.0004', 0], ['0.0005', 1], ['1.2344999', 1234], ['1.2345', 1235], ['007.5', 7500], ['-1', 1000], ['-0.001', 1000],
    ['NaN', 1000], ['inf', 1000], ['1e3', 1000], ['0x10', 1000], ['', 1000], ['.5', 1000], ['5.', 1000], ['1.2.3', 1000],
    ['999999999999999999999999', 140_737_488_355_327], ['140737488355.328', 140_737_488_355_327], ['%00', 1000], [undef, 1000],
);

# Returns the bytes of a key. An odd one is named by its number: `r1-o3`.
sub key_of {
    my ($name) = @_;
    my ($prefix, $number) = $name =~ /^(r\d+-)o(\d+)\z/ or return $name;
    return $prefix . $ODD[$number];
}

# Returns the names of odd keys of a round, by their name in the store.
sub odd_names { my ($prefix) = @_; return map { (Node::name_of(key_of("$prefix-o$_")) => "$prefix-o$_") } 0 .. $#ODD }

# Returns the path of a request.
sub path_of {
    my ($location, $key, $cost) = @_;
    return Node::path($location, key_of($key), defined $cost ? "c=$cost" : '');
}

# Returns a location, a key, the counted cost, and the text of the cost if it is an odd one. One key is hot, and one has a limit for the whole round, in
# which many requests get a 503. Other synchronous keys are used for a moment, so many of them get
# no 503, and many reach their limits with several concurrent requests.
sub request {
    my ($prefix, $serial) = @_;
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
    return ('full',  "$prefix-f$serial", 1000)                   if $which < 108;
    return odd($prefix)                                          if $which < 112;
    return ('now',   "$prefix-$second-" . int(rand 10), 1 + int rand 5000) if $which < 124;
    return ('few',   $prefix . '-' . int(5 * $now), 1000)        if $which < 132;
    return ('crowd', "$prefix-crowd", 1000)                      if $which < 137;
    return ('held',  $prefix . '-h' . int($now / 6), 1000)       if $which < 157;
    return ('mixed', $prefix . '-m' . int(5 * $now), 1000)       if $which < 167;
    return ('turn',  "$prefix-crowd", 1000)                      if $which < 177;
    return ($algorithms[rand @algorithms], "$prefix-crowd", 1000);
}

# Returns a request with an odd key, an odd cost, or a key that is too short to be of a round.
sub odd {
    my ($prefix) = @_;
    return ('short', ('', 'a', 'b')[rand 3], 1000) if !int rand 8;
    my ($text, $cost) = @{$COSTS[rand @COSTS]};
    return ('odd', "$prefix-o" . int(rand @ODD), $cost, $text);
}

1;
