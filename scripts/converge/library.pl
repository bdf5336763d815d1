#!/usr/bin/env perl
# Measures nodes of the library, all in one process, with one namespace in a real store. See scripts/converge.sh.
#
#   library.pl GENERATOR STORE RESULTS NODES SEED WINDOWS LIMIT ALGORITHM LOAD...
#
# LOAD is names of patterns, each for a key of its own, or `many` and the numbers of converge/main.rs. The program
# prints a table, and writes RESULTS, in JSON.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use List::Util qw(max sum0);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../bench", "$FindBin::Bin/../../t/lib";
use Bench qw(cpu_of_threads work_dir write_results);
use ManyKeys;
use Meter;
use Nodes;

my ($generator, $store, $results, $count, $seed, $windows, $limit, $algorithm, @load) = @ARGV;
my ($hits, $window) = $limit =~ m{^(\d+)/(\d+)s$} or die "no limit: $limit\n";
my $is_many = $load[0] eq 'many';
work_dir();
$| = 1;

my @lines;
# A burst would delay the other patterns.
for my $load ($is_many ? \@load : ([grep { !/^burst/ } @load], [grep {/^burst/} @load])) {
    push @lines, measure(@$load) if @$load;
}
write_results($results, @lines);

# Starts a store and the nodes, and measures a load. Returns the line of each pattern.
sub measure {
    my @words   = @_;
    my $cluster = bless {conf => {nodes => $count, lanes => ['all']}, nodes => []}, 'Nodes';
    my ($port)  = $cluster->start_store($store) =~ /server \S+:(\d+)/;
    my $pid     = open my $out, '-|', $generator, $seed, $windows, 0, "library:$store:$port:$count", "$hits/${window}000",
        $algorithm, @words
        or die "$generator: $!\n";
    my $start = decode_json(scalar(<$out>) // die "the nodes do not start\n")->{start} / 1000;
    sleep max(0, $start + $window - time);
    my $before = reading($cluster, $pid);
    # Before the end of the last window, at which the nodes begin to leave.
    sleep max(0, $start + $windows * $window - 0.5 - time);
    my $after   = reading($cluster, $pid);
    my @said    = map { decode_json($_) } <$out>;
    close $out or die "the generator failed\n";
    my %of_all  = (store => $store, nodes => 0 + $count, limit => $limit, algorithm => $algorithm);
    my $seconds = $after->{at} - $before->{at};
    $of_all{$_} = ($after->{$_} - $before->{$_}) / $seconds for qw(commands store_cpu sync_cpu);
    $cluster->stop;
    %of_all = (%of_all, %{pop @said}) if !$is_many;
    @said = map { {%of_all, %$_} } @said;
    $is_many ? print_many($said[0]) : print_patterns(@said);
    return @said;
}

# Reads the counters: commands of the store, and processor time in percent of a core's seconds.
sub reading {
    my ($cluster, $pid) = @_;
    return {
        at        => time,
        commands  => Meter::sum_of_commands($cluster),
        store_cpu => 100 * $cluster->work->{store},
        sync_cpu  => 100 * cpu_of_threads('ratelimit sync', $pid),
    };
}

sub print_patterns {
    my @all = @_;
    printf "%-12s %8s %9s %9s %10s %10s %12s\n", qw(pattern hits admitted central over worst), 'with room';
    printf "%-12s %8d %9d %9d %8.2f %% %8.1f %% %10.2f %%\n",
        @$_{qw(pattern hits admitted central over worst refused_with_room)}
        for @all;
    print_cost(
        $all[0],
        ['over-admission of patterns, mean; worst, %' => [sum0(map { $_->{over} } @all) / @all, max(map { $_->{over} } @all)]],
        ['refused with room, mean, %' => [sum0(map { $_->{refused_with_room} } @all) / @all]],
    );
}

sub print_many {
    my ($it) = @_;
    my $nodes = {limit => $hits, conf => {busy => $load[1]}};
    my (undef, @judged) = @{$it->{windows}};
    %$it = (%$it, ManyKeys::judged($nodes, @judged), busy => 0 + $load[1]);
    print_cost(
        $it,
        ['over-admission; worst window, %' => [@$it{qw(over worst)}]],
        ['refused with room, %'            => [$it->{refused_with_room}]],
    );
}

sub print_cost {
    my ($it, @rows) = @_;
    printf "%-52s %s\n", $_->[0], join '; ', map { sprintf abs $_ < 99.95 ? '%.2f' : '%.0f', $_ } @{$_->[1]} for (
        @rows,
        ['exchanges a second, all nodes; of a node'        => [$it->{commands}, $it->{commands} / $count]],
        ['CPU of the store, % of a core'                   => [$it->{store_cpu}]],
        ['CPU of a node for syncing, mean, % of a core'    => [$it->{sync_cpu} / $count]],
        ['a hit is known by a node, median; p99, ms'       => [@$it{qw(known_p50_ms known_p99_ms)}]],
        ['... by all nodes, median; p99, ms'               => [@$it{qw(everywhere_p50_ms everywhere_p99_ms)}]],
        ['hits counted late, p99, ms'                      => [$it->{late_p99_ms}]],
        ['probes'                                          => [$it->{probes}]],
    );
}
