# The program that scripts/chaos.sh runs; see there for its purpose.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(max min sum0 uniq);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../../t/lib";
use CassandraStore;
use Cluster;
use ClusterStore;
use EtcdStore;
use MemcachedStore;
use Load;
use Requests;
use Plan;
use PostgresStore;
use RedisStore;
use Totals;

use constant {
    SHORT    => 5,      # the window of `short` in Load.pm, in seconds
    REQUESTS => 800,    # the most requests in a second to all nodes
};

$| = 1;
$SIG{INT}  = $SIG{TERM} = sub { exit 130 };
$SIG{PIPE} = 'IGNORE';

my ($seed, $minutes, $name, $nodes, $is_plan_only) = @ARGV;
my %stores = (
    redis     => 'RedisStore',     cluster => 'ClusterStore', postgres => 'PostgresStore',
    cassandra => 'CassandraStore', etcd    => 'EtcdStore',
    memcached => 'MemcachedStore',
);
my $store  = $stores{$name} or die "no store $name\n";
my @rounds = rounds(60 * $minutes);
if ($is_plan_only) {
    print "$_->{kind} round, $_->{seconds} s\n", map { Plan::words($_) . "\n" } @{$_->{faults}}
        for @rounds;
    exit 0;
}

my $begin   = time;
my $cluster = Cluster->new(nodes => $nodes, port => $ENV{PORT} // 17000, store => $store);
$cluster->start_other;
my $files   = tempdir('chaos-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my @latest;       # the last faults, in words
my @troubles;     # what is wrong
my %faults;       # their numbers, by kind
my %disturbed;    # of each node, when its clients may have had to wait
my %sum;          # by namespace, what was compared; see `add_up`
my %slowest = map { $_ => 0 } @Cluster::NAMESPACES;
my %full    = (evicted => 0);    # what was counted in the full zone, and evicted from it
my $latest_error = 0;
my $late_rounds  = 0;
my $banned       = 0;   # keys that all nodes know to be banned

$cluster->{store}->keep(0);
$cluster->start_node($_) for $cluster->numbers;
for my $number (0 .. $#rounds) {
    run_round($number + 1, $rounds[$number]);
    last if @troubles;
}
check_health() if !@troubles;
check_short_window() if !@troubles;
end_nodes() if !@troubles;
check_logs();
summary();
exit(@troubles ? 1 : 0);

# Returns the rounds that fill this number of seconds, half of them of each kind, with their faults.
sub rounds {
    my ($seconds) = @_;
    my $count = 2 * max(1, int($seconds / 60));
    my $plan  = Plan->new(seed => $seed, nodes => $nodes, store => $store);
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
    $cluster->take_late;
    make_faults(@{$round->{faults}});
    my @late = $cluster->take_late;
    print "    $_: hits of the round may be lost\n" for @late;
    $late_rounds++ if @late;
    $_->stop for @loads;
    my @ledgers = map { $_->ledger } @loads;
    for my $node ($cluster->numbers) {
        note_slow($node, $ledgers[$node - 1]{slow});
        note_errors($node, $ledgers[$node - 1]{errors});
    }
    check($number, $round->{kind}, scalar @late, Totals::sum_of(@ledgers));
}

sub load {
    my ($round, $number) = @_;
    return Load->new(
        node => $cluster->{node}{$number}, prefix => "r$round", connections => 6, rate => min(150, REQUESTS / $nodes),
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
        my $took = time - $now;
        printf "    it took %.0f s to %s: %s\n", $took, $what, Plan::words($fault) if $took > 10;
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

# Answers that took long, although their worker was not stopped, killed or replaced.
sub note_slow {
    my ($number, $slow) = @_;
    my @excuses = values %{$disturbed{$number}};
    for my $namespace (keys %$slow) {
        for my $answer (@{$slow->{$namespace}}) {
            my ($from, $to) = @$answer;
            next if grep { $_->[0] - 0.2 < $to && $_->[1] + 0.5 > $from } @excuses;
            $slowest{$namespace} = max($slowest{$namespace}, $to - $from);
        }
    }
    my $slowest = max(values %slowest);
    push @troubles, sprintf 'an answer of node %d took %.1f s', $number, $slowest if $slowest >= 5;
}

# Returns the time for which answers had 503 after all faults were undone.
sub note_errors {
    my ($number, $seconds) = @_;
    $latest_error = max($latest_error, $seconds);
    push @troubles, "node $number goes on to answer with 503" if $seconds > Load::BACK - Load::CALM;
}

# Compares the store and all nodes with the ledger. If nodes ended late, hits that wait for a sync may be missing.
sub check {
    my ($round, $kind, $is_late, $ledger) = @_;
    my $counters = $ledger->{counters};
    my ($trouble, $found, $bounds, @wrong) = Totals::compare($cluster, $round, $counters, 30, $kind, $is_late);
    push @troubles, "round $round: $trouble" if $trouble;
    report($round, $bounds, $found, @wrong) if @wrong;
    check_full($round, $kind, $counters->{'full 366d all'});
    check_metrics();
    check_bans($round);
    check_concurrency($round);
    for my $namespace (grep { $_ ne 'full' } @Cluster::NAMESPACES) {
        add_up($namespace, $kind, $ledger, $bounds, $found);
    }
}

# Sums, by namespace: requests by outcome (`200`, `429`, `503`, `lost`); of the counters that were
# compared how many there are, and how many can have one value only (`exact`); and, of the rounds for
# which the store kept all, the `hits` that were answered, how many more were `stored`, and how many
# limits were `reached`.
sub add_up {
    my ($namespace, $kind, $ledger, $bounds, $found) = @_;
    my ($counters, $requests) = ($ledger->{counters}, $ledger->{requests}{$namespace});
    my @names   = grep {/^$namespace /} keys %$counters;
    my @exact   = grep { $bounds->{$_}[0] == $bounds->{$_}[1] } @names;
    my @kept    = grep { $kind eq 'keeping' || !defined Requests::limit($_) } @names;
    my $hits    = sum0(map { $counters->{$_}{answered} } @kept) / 1000;
    my $stored  = sum0(map { $found->{$_}{store} } @kept) / 1000;
    my @reached = grep { $counters->{$_}{rejected} } @kept;
    my %round   = (
        %$requests, counters => scalar @names, exact => scalar @exact,
        hits => $hits, stored => $stored - $hits, reached => scalar @reached,
    );
    $sum{$namespace}{$_} += $round{$_} for keys %round;
    printf "    %s: requests: %s; counters: %d, of which %d can have one value only\n", $namespace,
        requests(%round), @round{qw(counters exact)};
    printf "    %s  hits: %.3f, in the store %.3f\n", ' ' x length $namespace, $hits, $stored if @kept;
}

sub requests {
    my (%of) = @_;
    return join ', ', map { defined $of{$_} ? "$of{$_} $_" : () } qw(200 429 503 lost);
}

sub report {
    my ($round, $bounds, $found, @wrong) = @_;
    push @troubles, sprintf 'round %d: %d of %d counters are wrong', $round, scalar @wrong,
        scalar keys %$found;
    printf "%-28s %12s %12s %12s %s\n", 'counter', 'at least', 'at most', 'store',
        join ' ', map { sprintf '%12s', "node $_" } $cluster->numbers;
    for my $name (@wrong[0 .. min($#wrong, 39)]) {
        my @amounts = (@{$bounds->{$name}}, @{$found->{$name}}{'store', $cluster->numbers});
        printf "%-28s %s\n", $name, join ' ', map { sprintf '%12.3f', $_ / 1000 } @amounts;
    }
    print "the last faults:\n", map {"    $_\n"} @latest;
}

# A zone that is always full loses the hits of what it evicts, one for each, and no others. If nodes end, their last
# evictions are not known.
sub check_full {
    my ($round, $kind, $counter) = @_;
    my ($answered, $open) = map { $counter->{$_} // 0 } qw(answered open);
    my ($stored, $evicted) = (Totals::in_full($cluster, $round), evicted_from_full());
    my $lost = $evicted - $full{evicted};
    $full{evicted} = $evicted;
    $full{answered} += $answered;
    $full{stored}   += $stored;
    $full{lost}     += $lost if $kind eq 'losing';
    push @troubles, "round $round: too much of the full zone is in the store: $stored of $answered, $open open" if $stored > $answered + $open;
    push @troubles, "round $round: of the full zone, $stored of $answered are in the store, and only $lost were evicted"
        if $kind eq 'losing' && $stored + 1000 * $lost < $answered;
}

sub evicted_from_full {
    my $sum = 0;
    for my $number ($cluster->numbers) {
        my %metrics = $cluster->metrics($number);
        $sum += $metrics{qq(ratelimit_zone_evicted_total{zone="full",state="$_"})} // 0 for qw(sent unsent);
    }
    return $sum;
}

# No live counter was evicted; otherwise totals would prove nothing.
sub check_metrics {
    for my $number ($cluster->numbers) {
        my %metrics = $cluster->metrics($number);
        for my $state (qw(sent unsent)) {
            my $evicted = $metrics{qq(ratelimit_zone_evicted_total{zone="$cluster->{shape}{$number}{zone}",state="$state"})};
            push @troubles, "node $number has evicted counters ($state)" if $evicted;
        }
    }
}

# All nodes know the same bans.
sub check_bans {
    my ($round) = @_;
    my $bans = sub {
        my ($number) = @_;
        my @texts = map { $cluster->{node}{$number}->body("/api/namespaces/$_/bans") } qw(api other);
        return join ' ', sort map {/"key":"(r$round-[^"]*)"/g} @texts;
    };
    my ($deadline, @known) = (time + 30);
    do {
        # Before clocks could differ, a node did not know of bans that began in its future.
        @known = map { $bans->($_) } grep { $cluster->{node}{$_}{module} ne ($ENV{NGINX_OLDER_MODULE} || '') } $cluster->numbers;
    } while (uniq(@known) > 1 && time < $deadline);
    push @troubles, "round $round: nodes know different bans: " . join '; ', @known if uniq(@known) > 1;
    $banned += () = ($known[0] // '') =~ /\S+/g;
}

# Nothing is under way any more, whatever was killed.
sub check_concurrency {
    my ($round) = @_;
    push @troubles, map {"round $round: $_"} $cluster->still_under_way;
}

# The end.

# Every node answers, syncs, and knows of no failure, without a restart.
sub check_health {
    for my $number ($cluster->numbers) {
        my ($node, $health) = $cluster->{node}{$number};
        my $is_well = sub { ($health = $node->body('/api/health')) =~ /"status":"ok"/ };
        push @troubles, "node $number is not well: $health" if !eval { Node::wait_until(30, $is_well) };
        for my $namespace (qw(api other full)) {
            my $text = $node->body("/api/namespaces/$namespace");
            push @troubles, "node $number does not sync $namespace: $text" if $text !~ /"last_result":"ok"/;
        }
    }
}

# In windows of 5 s, nodes with one configuration agree on the current count when their clocks are right.
sub check_short_window {
    $cluster->make_alike;
    my ($key, $each) = ('after-all', 5);
    for my $time (1 .. 5) {
        # From the start of a window; the previous one has no hits.
        my $now = time;
        sleep SHORT - ($now - SHORT * int($now / SHORT));
        my $window = int(time / SHORT);
        for my $node ($cluster->nodes) {
            $node->hit(short => "$key-$time") for 1 .. $each;
        }
        my @rates;
        while (int(time / SHORT) == $window) {
            @rates = map { $_->rate(askshort => "$key-$time") } $cluster->nodes;
            return if !grep { $_ ne $nodes * $each } @rates;
            sleep 0.02;
        }
    }
    push @troubles, 'nodes do not agree on a short window';
}

# Quits the nodes; the store then has its former counts and the last hits.
sub end_nodes {
    my $key = 'the-last';
    for my $number ($cluster->numbers) {
        my $node = $cluster->{node}{$number};
        $node->hit(mark => $key) for 1 .. $number;
        $cluster->end_node($number, 'QUIT');
    }
    my $total = $cluster->{store}->total(api => $key);
    my $expected = sum0($cluster->numbers);
    push @troubles, "of $expected hits before the end, $total are in the store" if $total != $expected && !$cluster->take_late;
}

sub check_logs {
    my @lines = $cluster->log_lines;
    my @told = grep {/\Q@{[Cluster::PASSWORD]}\E/} @lines;
    push @troubles, 'a password is in a log: ' . $told[0] if @told;
    my @grave = grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ && !NodeFaults::is_expected($_) } @lines;
    push @troubles, scalar(@grave) . " grave lines in logs, the first: $grave[0]" if @grave;
}

sub summary {
    printf "$name, seed %s, %s minutes, %d nodes with 2 workers each; took %.0f s\n", $seed, $minutes, $nodes,
        time - $begin;
    printf "faults: %d\n", sum0(values %faults);
    printf "    %4d %s\n", $faults{$_}, $_ for sort { $faults{$b} <=> $faults{$a} || $a cmp $b } keys %faults;
    printf "requests: %s\n", requests(%{$sum{api}});
    printf "    hits that were answered: %.3f; in the store: %.3f more, of requests that were lost\n",
        @{$sum{api}}{qw(hits stored)};
    printf "    counters compared: %d, of which %d without a lost request\n",
        @{$sum{api}}{qw(counters exact)};
    print "    rounds in which hits of nodes that ended may be lost: $late_rounds\n" if $late_rounds;
    print "    banned keys: $banned\n";
    printf "    in full zones: %.0f hits, in the store %.0f, evicted in losing rounds %.0f\n", $full{answered} / 1000, $full{stored} / 1000, $full{lost};
    print '    ', slowest('api'), "\n";
    summary_of_decisions() if $sum{now};
    printf "cycles: %d, and %d that failed\n", @{$cluster->{cycles}}{qw(ok error)};
    print 'WRONG: ', s/\n*\z/\n/r for @troubles;
    print @troubles ? "totals or logs are wrong\n" : "all totals are exact\n";
}

sub summary_of_decisions {
    printf "synchronous requests: %s\n", requests(%{$sum{now}});
    printf "    hits that were answered, where the store kept all: %.3f; in the store: %.3f more,\n" .
        "    of requests that were answered with 503, or lost\n", @{$sum{now}}{qw(hits stored)};
    printf "    counters compared: %d, of which %d can have one value only; limits reached: %d\n",
        @{$sum{now}}{qw(counters exact reached)};
    print '    ', slowest('now'), "\n";
    printf "    with reserves: %s; limits reached: %d\n", requests(%{$sum{held}}), $sum{held}{reached};
    printf "    the last 503 came %.1f s after all faults were undone\n", $latest_error;
}

sub slowest {
    my ($namespace) = @_;
    my $slowest = $slowest{$namespace};
    return 'slowest answer of a node left alone: ' .
        ($slowest ? sprintf '%.3f s', $slowest : 'less than ' . Load::SLOW . ' s');
}
