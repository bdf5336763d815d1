# The program that scripts/faults.sh runs; see there for its purpose.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(shuffle uniq);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../chaos", "$FindBin::Bin/../../t/lib";
use Alone;
use CassandraStore;
use Cluster;
use Load;
use Node;
use PostgresStore;
use RedisStore;
use Totals;

use constant {
    # The orders of src/table/words/fail_driver.rs: milliseconds of a delay, and what stands for the others.
    ORDERS => {kill => 0, stop => 0xffffffff, delay => 300},
    # Seconds after which a point counts as not reached.
    PATIENCE => 6,
};

$| = 1;
$SIG{PIPE} = 'IGNORE';

# The status of a run that a signal ends. Where the signal arrives, `$?` may be local.
my $ended;
$SIG{INT} = $SIG{TERM} = sub { exit($ended = 130) };
END { $? = $ended if $ended }

my ($root, $name, $seed, $sample, @only) = @ARGV;
srand $seed;
my %stores  = (redis => 'RedisStore', postgres => 'PostgresStore', cassandra => 'CassandraStore');
my $store   = $stores{$name} or die "no store $name\n";
my $begin   = time;
my $cluster = Cluster->new(nodes => 2, port => $ENV{PORT} // 17000, store => $store);
my $node    = $cluster->{node}{1};
my $files   = tempdir('faults-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $orders  = "$files/orders";
my $round   = 0;
my (@troubles, @missed, %made, %requests);

write_orders(0, 0, 0, '');
$cluster->{store}->keep(1);
$cluster->{sync_rate}{$_} = 0.1 for $cluster->numbers;
my %conf = $cluster->configuration(1);
$cluster->start_node(1,
    environment => {RATELIMIT_FAIL_POINTS => $orders}, http => "$conf{http} ratelimit_namespace alone { }",
    rules => {%{$conf{rules}}, Alone::rules()},
);
$cluster->start_node(2);
$cluster->settle;

my %reason = reasons();
my @points = points_of_source();
my @faults = map { my $point = $_; map { [$point, $_] } qw(stop kill delay) } grep { !$reason{$_} } @points;
@faults = grep { my $fault = $_; grep { $fault->[0] =~ /\A(?:$_)\z/ } @only } @faults if @only;
@faults = (shuffle @faults)[0 .. $sample - 1] if $sample && $sample < @faults;
for my $fault (@faults) {
    eval { try(@$fault); 1 } or push @troubles, "$fault->[1] at $fault->[0]: $@";
    last if @troubles;
}
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

# Returns the points that no worker of the driver's nodes reaches, with the reason.
sub reasons {
    open my $file, '<', "$root/scripts/faults/elsewhere" or die "no list: $!\n";
    return map { /^([a-z]\S*)\s+(.+)/ ? ($1 => $2) : () } <$file>;
}

sub write_orders {
    my ($left, $process, $millis, $point) = @_;
    # In place, since workers have mapped the file. The number of passes is written last.
    open my $file, -e $orders ? '+<' : '+>', $orders or die "cannot write: $!\n";
    for my $part ([4, pack 'L L x52 a64', $process, $millis, $point], [0, pack 'L', $left]) {
        sysseek $file, $part->[0], 0;
        syswrite $file, $part->[1];
    }
    close $file;
}

# Returns the process that was hit, or 0.
sub hit {
    open my $file, '<', $orders or die "cannot read: $!\n";
    sysread $file, my $text, 8;
    return (unpack 'L L', $text)[1];
}

sub seen {
    open my $file, '<', "$orders.seen" or return;
    chomp(my @seen = <$file>);
    return map { $_ => 1 } @seen;
}

# Kills a worker of the first node. The other one may have been hit just now, and have no successor yet.
sub kill_worker {
    my @workers = $node->workers;
    kill KILL => $workers[$round % @workers] if @workers;
}

# Makes requests to both nodes until a worker of the first one reaches the point, and is hit there. Then compares.
sub try {
    my ($point, $action) = @_;
    my $kind = 'keeping';
    $round++;
    my @loads = map {
        Load->new(node => $cluster->{node}{$_}, prefix => "r$round", connections => 4, rate => 100,
            seed => $seed + 10 * $round + $_, file => "$files/$round-$_", calm => 0.2)
    } $cluster->numbers;
    my @alone = map { Alone->new(node => $node, key => "r$round", file => "$files/$round-alone-$_") } 1, 2;
    write_orders(1, 0, ORDERS->{$action}, $point);
    my $patience = (grep {/ at \Q$point\E\z/} @missed) ? 1 : PATIENCE;
    my ($process, $deadline) = (0, time + $patience);
    # Some points are reached only after a loss: of the store's data, or of a worker that holds leases.
    my @losses = ([0.7, sub { flush(); $kind = 'losing' }], [1.4, \&kill_worker]);
    my $started = time;
    until (($process = hit()) || time > $deadline) {
        if (@losses && time > $started + $losses[0][0]) { (shift @losses)->[1]->() }
        sleep 0.01;
    }
    write_orders(0, $process, 0, '') if !$process;
    my $done = eval {
        die "the master reached $point\n" if $process == $node->{master};
        taken_over($process) if $process && $action eq 'stop';
        $node->wait_for('a new worker', sub { $node->settled($process) }) if $process && $action eq 'kill';
        sleep 0.3 if $process && $action eq 'delay';
        1;
    };
    my $error = $@;
    kill CONT => $process if $process && $action eq 'stop';
    $_->stop for @loads;
    my ($admitted, $open) = (0, 0);
    for my $alone (@alone) {
        my @of = $alone->stop;
        $admitted += $of[0];
        $open     += $of[1];
    }
    my $ledger = Totals::sum_of(map { $_->ledger } @loads);
    push @troubles, "$action at $point: $error" if !$done;
    push @missed, "$action at $point" if !$process;
    $made{$action}++ if $process;
    compare("$action at $point", $ledger, $kind) if $done;
    push @troubles, map {"$action at $point: $_"} Alone::wrong($node, "r$round", $admitted, $open) if $done;
    for my $namespace (keys %{$ledger->{requests}}) {
        my $requests = $ledger->{requests}{$namespace};
        $requests{$_} += $requests->{$_} for keys %$requests;
    }
    printf "%4d of %d: %s at %s: %s\n", $round, scalar @faults, $action, $point,
        @troubles ? 'WRONG' : $process ? 'exact' : 'not reached';
}

# Makes the store lose all data. Living nodes restore what they have counted.
sub flush {
    my $server = $cluster->{store};
    return $server->{present}->cli('FLUSHALL') if $name eq 'redis';
    return $server->{server}->flush            if $name eq 'postgres';
    $server->ask("TRUNCATE $_") for $server->tables;
}

# Waits until another worker syncs and serves as the broker, while one is stopped: a hit that it counts is in the store,
# and the store decides about a request.
sub taken_over {
    my ($process) = @_;
    $node->wait_for('a stopped worker', sub { state_of($process) eq 'T' });
    my $mark = "mark-$round";
    Cluster::hit_for_sure($node, $mark);
    $node->wait_for('the push of another worker', sub { $cluster->{store}->total(api => $mark) });
    return if !grep { $_ eq 'now' } @Cluster::NAMESPACES;
    $node->wait_for('a decision', sub { $node->hit('ask-now-366d' => $mark) eq '200' });
}

# Compares the store and both nodes with the ledger, until they agree, and once more.
sub compare {
    my ($fault, $ledger, $kind) = @_;
    my $counters = $ledger->{counters};
    for my $time (1, 2) {
        my ($deadline, $found, $bounds, @wrong) = (time + 20);
        do {
            eval { $cluster->settle; 1 } or return push @troubles, "$fault: nodes do not sync: $@";
            $found  = Totals::found($cluster, $round, $counters);
            $bounds = {map { $_ => [Totals::bounds($cluster, $_, $counters->{$_}, $kind, 0)] } keys %$found};
            @wrong  = Totals::wrong($cluster, $bounds, $found);
        } while (@wrong && time < $deadline);
        for my $counter (@wrong) {
            push @troubles, sprintf "%s: %s: %s to %s are right; the store has %s, nodes have %s", $fault, $counter,
                @{$bounds->{$counter}}, $found->{$counter}{store}, join ' and ', @{$found->{$counter}}{$cluster->numbers};
        }
        return if @wrong;
    }
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
