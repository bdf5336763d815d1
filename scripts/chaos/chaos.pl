# What scripts/chaos.sh runs: see there for what this is about.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(max min sum0 uniq);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../../t/lib";
use Cluster;
use ClusterStore;
use Load;
use Plan;
use PostgresStore;
use RedisStore;

use constant NODES => 3;
use constant SHORT => 5;    # the window of `short` in Load.pm, in seconds

$| = 1;
$SIG{INT}  = $SIG{TERM} = sub { exit 130 };
$SIG{PIPE} = 'IGNORE';

my ($seed, $minutes, $name, $is_plan_only) = @ARGV;
my %stores = (redis => 'RedisStore', cluster => 'ClusterStore', postgres => 'PostgresStore');
my $store  = $stores{$name} or die "no store $name\n";
my @rounds = rounds(60 * $minutes);
if ($is_plan_only) {
    print "$_->{kind} round, $_->{seconds} s\n", map { Plan::words($_) . "\n" } @{$_->{faults}}
        for @rounds;
    exit 0;
}

my $begin   = time;
my $cluster = Cluster->new(nodes => NODES, port => $ENV{PORT} // 21000, store => $store);
my $files   = tempdir('chaos-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my @latest;       # the last faults, in words
my @troubles;     # what is wrong
my %faults;       # their numbers, by kind
my %disturbed;    # of each node, when its clients may have had to wait
my %sum = (counters => 0, exact => 0, answered => 0, lost => 0, slack => 0, hits => 0);
my $slowest = 0;

$cluster->{store}->keep(0);
$cluster->start_node($_) for $cluster->numbers;
for my $number (0 .. $#rounds) {
    run_round($number + 1, $rounds[$number]);
    last if @troubles;
}
check_short_window() if !@troubles;
end_nodes() if !@troubles;
check_logs();
summary();
exit(@troubles ? 1 : 0);

# The rounds that fill so many seconds, half of them of either kind, with their faults.
sub rounds {
    my ($seconds) = @_;
    my $count = 2 * max(1, int($seconds / 60));
    my $plan  = Plan->new(seed => $seed, nodes => NODES, store => $store);
    return map {
        my $kind = $_ % 2 ? 'losing' : 'keeping';
        my $each = $seconds / $count;
        {kind => $kind, seconds => $each, faults => [$plan->round($kind, $each)]}
    } 1 .. $count;
}

sub run_round {
    my ($number, $round) = @_;
    my $faults = @{$round->{faults}};
    printf "round %d of %d: the store is %s its data, %d faults in %.0f s\n",
        $number, scalar @rounds, $round->{kind}, $faults, $round->{seconds};
    $cluster->{store}->keep($round->{kind} eq 'keeping');
    return push @troubles, "round $number: nodes do not sync: $@" if !eval { $cluster->settle; 1 };
    my @loads = map { load($number, $_) } $cluster->numbers;
    make_faults(@{$round->{faults}});
    my @ledgers = map { $_->end } @loads;
    my $ledger  = sum_of(@ledgers);
    note_slow($_, @{$ledgers[$_ - 1]{slow}}) for $cluster->numbers;
    check($number, $ledger);
}

sub load {
    my ($round, $number) = @_;
    return Load->new(
        node => $cluster->{node}{$number}, prefix => "r$round", connections => 6, rate => 120,
        seed => $seed + 1000 * $round + $number, file => "$files/$round-$number",
    );
}

# Makes and undoes faults, each at its time, or as soon after it as possible.
sub make_faults {
    my @events = sort { $a->[0] <=> $b->[0] }
        map { my $fault = $_; ([$fault->{from}, begin => $fault], [$fault->{to}, undo => $fault]) } @_;
    my $start = time;
    for my $event (@events) {
        my ($at, $what, $fault) = @$event;
        my $early = $start + $at - time;
        sleep $early if $early > 0;
        my $now = time;
        note_fault($fault, $now) if $what eq 'begin';
        my $done = eval { $cluster->$what($fault); 1 };
        if (!$done) {
            my $trouble = "$what " . Plan::words($fault) . ": $@";
            print "the last faults:\n", map {"    $_\n"} @latest;
            die $trouble;
        }
        my $node = Cluster::slow_node($fault) // next;
        $disturbed{$node}{$fault} //= [$now];
        $disturbed{$node}{$fault}[1] = time;
    }
    $cluster->{store}->ready;
}

sub note_fault {
    my ($fault, $now) = @_;
    $faults{$fault->{kind}}++;
    push @latest, sprintf '%7.2f s: %s', $now - $begin, Plan::words($fault);
    shift @latest if @latest > 20;
}

# Ledgers.

sub sum_of {
    my %sum;
    for my $ledger (@_) {
        while (my ($name, $counter) = each %{$ledger->{counters}}) {
            $sum{$name}{$_} += $counter->{$_} for qw(answered lost);
        }
        $sum{lost}     += $ledger->{requests}{lost};
        $sum{answered} += $ledger->{requests}{200} + $ledger->{requests}{429};
    }
    my %counters = map { ref $sum{$_} ? ($_ => $sum{$_}) : () } keys %sum;
    return {counters => \%counters, lost => $sum{lost}, answered => $sum{answered}};
}

# Answers that took long, but not because their worker was stopped, killed or replaced.
sub note_slow {
    my ($number, @slow) = @_;
    my @excuses = values %{$disturbed{$number}};
    for my $answer (@slow) {
        my ($from, $to) = @$answer;
        next if grep { $_->[0] - 0.2 < $to && $_->[1] + 0.5 > $from } @excuses;
        $slowest = max($slowest, $to - $from);
    }
    push @troubles, sprintf 'an answer of node %d took %.1f s', $number, $slowest if $slowest >= 5;
}

# Compares the store and all nodes with the ledger, until all is as it must be, and then once more.
sub check {
    my ($round, $ledger) = @_;
    my $counters = $ledger->{counters};
    my (@wrong, $found);
    for my $time (1, 2) {
        my $deadline = time + 30;
        my $trouble;
        do {
            $trouble = eval { $cluster->settle; 1 } ? undef : "round $round: nodes do not sync: $@";
            $found   = found($round, $counters);
            @wrong   = wrong($counters, $found);
        } while (!$trouble && @wrong && time < $deadline);
        push @troubles, $trouble if $trouble;
        last if @wrong || $trouble;
    }
    report($round, $counters, $found, @wrong) if @wrong;
    check_metrics();
    my $exact = grep { $_->{lost} == 0 } values %$counters;
    $sum{counters} += keys %$counters;
    $sum{exact}    += $exact;
    $sum{answered} += $ledger->{answered};
    $sum{lost}     += $ledger->{lost};
    my $hits   = sum0(map { $_->{answered} } values %$counters) / 1000;
    my $stored = sum0(map { $found->{$_}{store} } keys %$counters) / 1000;
    $sum{hits}  += $hits;
    $sum{slack} += $stored - $hits;
    printf "    %d requests answered, %d lost; %d counters, of %d of them all requests were" .
        " answered;\n    of them %.3f hits, in the store %.3f\n",
        @$ledger{qw(answered lost)}, scalar keys %$counters, $exact, $hits, $stored;
}

# What the store and each node have of the counters of a round, in thousandths: by name.
sub found {
    my ($round, $counters) = @_;
    my %found;
    for my $days (366, 360, 300) {
        my $totals = $cluster->{store}->totals('api', $days * 24 * 3600 * 1000);
        for my $key (grep {/^r$round-/} keys %$totals) {
            $found{"${days}d $key"}{store} = thousandths($totals->{$key});
        }
    }
    for my $name (uniq keys %$counters, keys %found) {
        my ($window, $key) = split / /, $name;
        $found{$name}{store} //= 0;
        $found{$name}{$_} = thousandths($cluster->{node}{$_}->rate("ask$window" => $key))
            for $cluster->numbers;
    }
    return \%found;
}

sub thousandths { return 0 + sprintf '%.0f', 1000 * ($_[0] || 0) }

# The counters that are not as they must be.
sub wrong {
    my ($counters, $found) = @_;
    my @wrong;
    for my $name (sort keys %$found) {
        my $ledger = $counters->{$name} // {answered => 0, lost => 0};
        my $of     = $found->{$name};
        my $is_right = $of->{store} >= $ledger->{answered} &&
            $of->{store} <= $ledger->{answered} + $ledger->{lost} &&
            !grep { $of->{$_} != $of->{store} } $cluster->numbers;
        push @wrong, $name if !$is_right;
    }
    return @wrong;
}

sub report {
    my ($round, $counters, $found, @wrong) = @_;
    push @troubles, sprintf 'round %d: %d of %d counters are wrong', $round, scalar @wrong,
        scalar keys %$found;
    printf "%-24s %12s %12s %12s %s\n", 'counter', 'answered', 'or, at most', 'store',
        join ' ', map { sprintf '%12s', "node $_" } $cluster->numbers;
    for my $name (@wrong[0 .. min($#wrong, 39)]) {
        my $ledger = $counters->{$name} // {answered => 0, lost => 0};
        my @amounts = (
            $ledger->{answered}, $ledger->{answered} + $ledger->{lost},
            @{$found->{$name}}{'store', $cluster->numbers},
        );
        printf "%-24s %s\n", $name, join ' ', map { sprintf '%12.3f', $_ / 1000 } @amounts;
    }
    print "the last faults:\n", map {"    $_\n"} @latest;
}

# Nothing alive was evicted: then totals would say nothing.
sub check_metrics {
    for my $number ($cluster->numbers) {
        my %metrics = $cluster->metrics($number);
        for my $state (qw(sent unsent)) {
            my $evicted = $metrics{qq(ratelimit_zone_evicted_total{zone="counters",state="$state"})};
            push @troubles, "node $number has evicted counters ($state)" if $evicted;
        }
    }
}

# The end.

# In windows of 5 s, nodes agree on what is counted now.
sub check_short_window {
    my ($key, $each) = ('after-all', 5);
    for my $time (1 .. 5) {
        # From the beginning of a window; nothing was counted in the one before.
        my $now = time;
        sleep SHORT - ($now - SHORT * int($now / SHORT));
        my $window = int(time / SHORT);
        for my $node ($cluster->nodes) {
            $node->hit(short => "$key-$time") for 1 .. $each;
        }
        my @rates;
        while (int(time / SHORT) == $window) {
            @rates = map { $_->rate(askshort => "$key-$time") } $cluster->nodes;
            return if !grep { $_ ne NODES * $each } @rates;
            sleep 0.02;
        }
    }
    push @troubles, 'nodes do not agree on a short window';
}

# Quits the nodes; the store then has what it had, and the last hits.
sub end_nodes {
    my $key = 'the-last';
    for my $number ($cluster->numbers) {
        my $node = $cluster->{node}{$number};
        $node->hit(mark => $key) for 1 .. $number;
        $cluster->end_node($number, 'QUIT');
    }
    my $total = $cluster->{store}->total(api => $key);
    my $expected = sum0($cluster->numbers);
    push @troubles, "of $expected hits before the end, $total are in the store" if $total != $expected;
}

sub check_logs {
    my @lines = $cluster->log_lines;
    my @told = grep {/\Q@{[Cluster::PASSWORD]}\E/} @lines;
    push @troubles, 'a password is in a log: ' . $told[0] if @told;
    my @grave = grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ } @lines;
    push @troubles, scalar(@grave) . " grave lines in logs, the first: $grave[0]" if @grave;
}

sub summary {
    printf "$name, seed %s, %s minutes, %d nodes with 2 workers each; took %.0f s\n", $seed, $minutes, NODES,
        time - $begin;
    printf "faults: %d\n", sum0(values %faults);
    printf "    %4d %s\n", $faults{$_}, $_ for sort { $faults{$b} <=> $faults{$a} || $a cmp $b } keys %faults;
    printf "requests: %d answered, %d lost\n", @sum{qw(answered lost)};
    printf "hits that were answered: %.3f; in the store: %.3f more, of requests that were lost\n",
        @sum{qw(hits slack)};
    printf "counters compared: %d, of which %d without a lost request\n", @sum{qw(counters exact)};
    printf "slowest answer of a node left alone: %s\n",
        $slowest ? sprintf('%.3f s', $slowest) : 'less than ' . Load::SLOW . ' s';
    printf "cycles: %d, and %d that failed\n", @{$cluster->{cycles}}{qw(ok error)};
    print 'WRONG: ', s/\n*\z/\n/r for @troubles;
    print @troubles ? "totals or logs are wrong\n" : "all totals are exact\n";
}
