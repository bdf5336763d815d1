#!/usr/bin/env perl
# Measures how nodes that start or are killed at once disturb the store and the other nodes. See scripts/converge.sh.
#
#   joining.pl NGINX MODULE STORE RESULTS NAME=VALUE...
#
# The names are those of ManyKeys.pm. Of Postgres, bytes of connections that have ended are unknown. The program prints a table, and writes RESULTS: a line of JSON for each phase.
use strict;
use warnings;

use FindBin;
use List::Util qw(max);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../bench", "$FindBin::Bin/../../t/lib";
use Bench qw(await_nginx stop work_dir write_results);
use ManyKeys;
use Meter;

# The phases, and how many windows each lasts. The first window is not measured.
my @PHASES = (['before', 3], ['joining', 3], ['all', 2], ['leaving', 4], ['after', 2]);

# Pause between readings of the store's commands, in seconds. Postgres tells them once a second.
use constant PAUSE => 0.2;

my ($nginx, $module, $store, $results, @of) = @ARGV;
my %conf = map { my ($name, $value) = split /=/, $_, 2; ($name => $value =~ /^\d+\z/ ? 0 + $value : $value) } @of;
$| = 1;

my $all    = $conf{nodes};
my $first  = max(2, int($all / 5));
my $left   = int($all / 2);
my $nodes  = ManyKeys->start($nginx, $module, $store, work_dir(), %conf, nodes => $first, most => $all);
my @stay   = @{$nodes->{nodes}};
my $begin  = $nodes->next_window;
my $length = 1;
$length += $_->[1] for @PHASES;
my $result = $nodes->generate($begin, $length);
my %at     = (joining => \&join_all, leaving => \&kill_some);
my @rows;
my $window = 1;
sleep $begin + $nodes->{window} - time;

for my $phase (@PHASES) {
    my ($name, $windows) = @$phase;
    my $before = Meter->read($nodes, @stay);
    my $start = time;
    $at{$name}->() if $at{$name};
    $window += $windows;
    my ($peak, $known, $full) = watch($begin + $window * $nodes->{window}, scalar @{$nodes->{nodes}});
    await_nginx($_) for grep { !$_->{workers} } @{$nodes->{nodes}};
    push @rows, {
        phase => $name, nodes => scalar @{$nodes->{nodes}}, windows => [$window - $windows, $window - 1],
        $at{$name} ? (known_after => $known && $known - $start) : (),
        $name eq 'joining' ? (full_after => $full && $full - $start) : (),
        commands_peak => $peak, %{Meter->read($nodes, @stay)->since($before)},
    };
}
my $said = $result->();
$nodes->stop;
for my $row (@rows) {
    my ($from, $to) = @{$row->{windows}};
    %$row = (%$row, $nodes->judged(@{$said->{windows}}[$from .. $to]), store => $store);
}
write_results($results, @rows);

print "$first nodes with the load; then $all; then $left. Probes and exchanges are of the first.\n\n";
my @table = (
    ['nodes',                                          sub { $_->{nodes} }],
    ['each knows their number after, s',               sub { after('known_after') }],
    ['each has all keys after, s',                     sub { after('full_after') }],
    ['commands a second, mean',                        sub { sprintf '%.0f', $_->{commands_in_all} }],
    ['... in the worst second',                        sub { sprintf '%.0f', $_->{commands_peak} }],
    ['CPU of the store, % of a core',                  sub { sprintf '%.1f', $_->{store_cpu} }],
    ['kilobytes a second from the store',              sub { $_->{bytes_out} < 0 ? 'unknown' : sprintf '%.0f', $_->{bytes_out} / 1000 }],
    ['exchanges a second of a node',                   sub { sprintf '%.1f', $_->{exchanges} / $first }],
    ['exchange, median, ms',                           sub { sprintf '%.2f', $_->{exchange_p50_ms} }],
    ['... p99',                                        sub { sprintf '%.2f', $_->{exchange_p99_ms} }],
    ['CPU of a node for syncing, % of a core',         sub { sprintf '%.2f', $_->{sync_cpu} }],
    ['over-admission, %',                              sub { sprintf '%.2f', $_->{over} }],
    ['... in the worst window',                        sub { sprintf '%.2f', $_->{worst} }],
    ['refused with room, %',                           sub { sprintf '%.2f', $_->{refused_with_room} }],
);
my $line = '%-40s' . ' %9s' x @rows . "\n";
printf $line, '', map { $_->{phase} } @rows;
for my $of (@table) {
    my ($name, $value) = @$of;
    printf $line, $name, map { $value->() } @rows;
}
printf "\nrequests sent late, p99: %.1f ms; a hit is known by all of the first nodes: median %.1f, p99 %.1f ms\n",
    @$said{qw(late_p99_ms everywhere_p50_ms everywhere_p99_ms)};

sub after {
    my ($what) = @_;
    return !exists $_->{$what} ? '' : defined $_->{$what} ? sprintf '%.1f', $_->{$what} : 'never';
}

# Starts the other nodes at once.
sub join_all { $nodes->launch($all - $first) }

# Kills the last nodes at once.
sub kill_some {
    my @gone = splice @{$nodes->{nodes}}, $left;
    kill KILL => map { ($_->{master}, @{$_->{workers}}) } @gone;
    stop($_->{master}, 'KILL') for @gone;
}

# Watches until a time. Returns the most commands in a second, and when all nodes knew their number and had all keys.
sub watch {
    my ($end, $count) = @_;
    my @unaware = my @lacking = @{$nodes->{nodes}};
    my (@readings, $peak, $known, $full);
    while (time < $end - PAUSE) {
        push @readings, [time, Meter::sum_of_commands($nodes)];
        shift @readings while @readings > 2 && $readings[-1][0] - $readings[1][0] >= 1;
        my $seconds = $readings[-1][0] - $readings[0][0];
        $peak = max($peak // 0, ($readings[-1][1] - $readings[0][1]) / $seconds) if $seconds >= 1;
        # One that has just started may not listen.
        my %metrics = map { $_ => eval { +{Nodes::metrics($_)} } } @unaware, @lacking;
        my $is_left = sub { my ($has) = @_; return grep { !$metrics{$_} || !$has->($metrics{$_}) } @_[1 .. $#_] };
        @unaware = $is_left->(sub { Nodes::know($_[0], $count) }, @unaware);
        @lacking = $is_left->(sub { $nodes->has_all($_[0]) },     @lacking);
        $known //= time if !@unaware;
        $full  //= time if !@lacking;
        sleep PAUSE;
    }
    sleep max(0, $end - time);
    return ($peak // 0, $known, $full);
}
