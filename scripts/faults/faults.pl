# The program that scripts/faults.sh runs; see there for its purpose.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(shuffle uniq);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../chaos", "$FindBin::Bin/../../t/lib";
use CassandraStore;
use Cluster;
use EtcdStore;
use Load;
use MemcachedStore;
use Node;
use PostgresStore;
use Processes;
use RedisStore;
use Target;
use Totals;

# Seconds after the last event, after which a point counts as not reached.
use constant PATIENCE => 3;
# Faults after which nodes and store begin again without counts, since nodes restore all counters after each loss.
use constant BEGIN_AGAIN_AFTER => 10;

$| = 1;
$SIG{PIPE} = 'IGNORE';

# The status of a run that a signal ends. Where the signal arrives, `$?` may be local.
my $ended;
$SIG{INT} = $SIG{TERM} = sub { exit($ended = 130) };
END { $? = $ended if $ended }

my ($root, $name, $seed, $sample, @only) = @ARGV;
srand $seed;
my $store   = ucfirst($name) . 'Store';
my $begin   = time;
# These stores are slow on a busy machine, and not lost. A killed worker's lease lasts for as long as its exchanges may.
my $times   = $name =~ /^(?:redis|etcd)\z/ ? undef : 'connect_timeout 2s; timeout 1s;';
my $cluster = Cluster->new(nodes => 2, port => $ENV{PORT} // 17000, store => $store, times => $times);
my $node    = $cluster->{node}{1};
my $files   = tempdir('faults-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $round   = 0;
my (@troubles, @missed, %made, %requests, %is_of_master);

$cluster->{store}->keep(1);
my $target = Target->new(cluster => $cluster, files => $files);
start_second();

my %reason = reasons();
my @points = points_of_source();
my @faults = map { my $point = $_; map { [$point, $_] } qw(stop kill delay) } grep { !$reason{$_} } @points;
@faults = grep { my $fault = $_; grep { $fault->[0] =~ /\A(?:$_)\z/ } @only } @faults if @only;
@faults = (shuffle @faults)[0 .. $sample - 1] if $sample && $sample < @faults;
# Whether a point is reached may depend on the moment, so those that were not are tried twice more.
my @left = @faults;
for my $time (1 .. 3) {
    @missed = ();
    for my $fault (@left) {
        begin_again() if $round && $round % BEGIN_AGAIN_AFTER == 0;
        eval { try(@$fault); 1 } or push @troubles, "$fault->[1] at $fault->[0]: $@";
        last if @troubles;
    }
    last if @troubles;
    @left = @missed;
}
@missed = map {"$_->[1] at $_->[0]"} @missed;
check_points() if !@only && !$sample && !@troubles;
my @grave = grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ } $cluster->log_lines;
push @troubles, "grave lines in logs, the first: $grave[0]" if @grave;
summary();
exit(@troubles ? 1 : 0);

# Returns the names of all fail points.
sub points_of_source {
    my @found = qx(grep -rhoE 'fail_point!\\("[^"]+"\\)' '$root/src');
    return sort { $a cmp $b } uniq map { /"(.*)"/ } @found;
}

# Returns the points that no worker of the driver's nodes reaches with this store, with the reason.
sub reasons {
    open my $file, '<', "$root/scripts/faults/elsewhere" or die "no list: $!\n";
    return map { /^([a-z]\S*)\s+(?:\S+,)?(?:all|$name)(?:,\S+)?\s+(\S.*)/ ? ($1 => $2) : () } <$file>;
}

sub start_second {
    my %second = $cluster->configuration(2);
    $cluster->start_node(2, server => $second{server} . Target::api());
    $cluster->settle;
}

# Lets nodes and store begin again without counts.
sub begin_again {
    $cluster->end_node($_, 'QUIT') for $cluster->numbers;
    $cluster->{store}->flush;
    $target->start;
    start_second();
}

# Makes requests to both nodes until a process of the first one reaches the point, and is hit there. Then compares.
sub try {
    my ($point, $action) = @_;
    $round++;
    my @loads = map {
        Load->new(node => $cluster->{node}{$_}, prefix => "r$round", connections => 4, rate => 100,
            seed => $seed + 10 * $round + $_, file => "$files/$round-$_", calm => 0.2)
    } $cluster->numbers;
    my $end_clients = $target->clients($round);
    my ($process, $fault, $kind) = reach($point, $action);
    my $is_master = $process == $node->{master};
    $is_of_master{$point} = 1 if $is_master;
    my $done = eval {
        if ($process && $action eq 'stop') {
            $kind = 'losing' if !$is_master;
            taken_over($process, $is_master);
        }
        sleep 0.3 if $process && $action eq 'delay';
        if ($process && $action eq 'kill') {
            if ($is_master) { $target->restart }
            else { $node->wait_for('a new worker', sub { $node->settled($process) }) }
        }
        1;
    };
    my $error = $@;
    kill CONT => $process if $process && $action eq 'stop';
    $target->wait_for_reload;
    $_->stop for @loads;
    my $ledger = Totals::sum_of(map { $_->ledger } @loads);
    # With a master in a reload, counts without a store are lost, and hits that were not pushed yet: workers of the former
    # configuration do not sync any more.
    my $is_lost = $is_master && $action eq 'kill';
    my @wrong = $end_clients->($done && !$is_lost);
    push @troubles, "$fault: $error" if !$done;
    push @missed, [$point, $action] if !$process;
    $made{$action}++ if $process;
    compare($fault, $ledger, $kind, $is_lost) if $done;
    push @troubles, map {"$fault: $_"} @wrong;
    for my $namespace (keys %{$ledger->{requests}}) {
        my $requests = $ledger->{requests}{$namespace};
        $requests{$_} += $requests->{$_} for keys %$requests;
    }
    printf "%4d: %s at %s: %s\n", $round, $action, $point,
        @troubles ? 'WRONG' : $process ? ($is_master ? 'exact, of the master' : 'exact') : 'not reached';
}

# Waits until a process is hit at the point. Returns the process, or 0; the fault in words; and whether the store was
# `keeping` its data, or `losing` it.
sub reach {
    my ($point, $action) = @_;
    my ($fault, $kind)   = ("$action at $point", 'keeping');
    # Some points are reached only after a loss of the store's data, the end of a worker that holds leases, or a reload.
    my @losses = (
        [0.7, 'a loss', sub { $cluster->{store}->flush; $kind = 'losing' }],
        [1.4, 'a kill', sub { return if $target->disarm; $target->kill_worker; $target->order($action, $point) }],
    );
    # A master that is killed takes what its node has not restored yet with it, and no worker syncs after it. The other node
    # counts the lost hits until somebody else counts their keys again.
    my @reloads = map { [$_, 'a reload', sub { $cluster->wait_for_sync(1) if $_[0] == 2; $target->reload }] } 2, 3, 4, 5;
    my @events = $is_of_master{$point} ? map({ [$_->[0] - 1.5, @$_[1, 2]] } @reloads) : (@losses, @reloads);
    my $last   = my $started = time;
    $target->order($action, $point);
    until ($target->hit || !@events && time > $last + PATIENCE) {
        if (@events && time > $started + $events[0][0]) {
            my ($at, $what, $make) = @{shift @events};
            $make->($at);
            $fault .= ", after $what";
            $last = time;
        }
        sleep 0.01;
    }
    return ($target->disarm, $fault, $kind);
}

# Waits until another worker syncs and serves as the broker, while one is stopped: a hit that it counts is in the store,
# and the store decides about a request. Then the store loses all data, and others restore it. While a master is stopped
# in a reload, nobody syncs.
sub taken_over {
    my ($process, $is_master) = @_;
    $node->wait_for('a stopped process', sub { has_stopped($process) });
    my $mark = "mark-$round";
    Cluster::hit_for_sure($node, mark => $mark);
    return if $is_master;
    $node->wait_for('the push of another worker', sub { $cluster->{store}->total(api => $mark) });
    $node->wait_for('a decision', sub { $node->hit('ask-now-366d' => $mark) eq '200' });
    $cluster->{store}->flush;
    $node->wait_for('the restored data', sub { $cluster->{store}->total(api => $mark) });
}

# Compares the store and both nodes with the ledger.
sub compare {
    my ($fault, $ledger, $kind, $is_lost) = @_;
    my ($trouble, $found, $bounds, @wrong)
        = Totals::compare($cluster, $round, $ledger->{counters}, 60, $kind, $is_lost);
    return push @troubles, "$fault: $trouble" if $trouble;
    for my $counter (@wrong) {
        push @troubles, sprintf "%s: %s: %s to %s are right; the store has %s, nodes have %s", $fault, $counter,
            @{$bounds->{$counter}}, $found->{$counter}{store}, join ' and ', @{$found->{$counter}}{$cluster->numbers};
    }
    return if @wrong;
    push @troubles, map {"$fault: $_"} $cluster->still_under_way;
}

# Each point of the source was hit, or is listed with the reason why not.
sub check_points {
    my %is_point = map { $_ => 1 } @points;
    push @troubles, "$_ is in scripts/faults/elsewhere, but no fail point" for grep { !$is_point{$_} } sort keys %reason;
    push @troubles, "$_: no worker reached it" for grep { !$reason{(split / at /)[1]} } @missed;
}

sub summary {
    printf "$name, seed %s: %d points, of which %d are covered elsewhere; %d faults (%s) in %.0f s\n", $seed, scalar @points,
        scalar keys %reason, scalar(@faults) - @missed, join(', ', map {"$made{$_} $_"} sort keys %made), time - $begin;
    print 'requests: ', join(', ', map {"$requests{$_} $_"} sort keys %requests), "\n";
    print "not reached: $_\n" for @missed;
    print "WRONG: $_\n" for map {s/\n*\z//r} @troubles[0 .. ($#troubles < 20 ? $#troubles : 20)];
    print @troubles ? "ledgers are wrong\n" : "all ledgers are exact\n";
}
