#!/usr/bin/env perl
# The program of scripts/converge.sh. It runs ten nodes and a store, sends hits to the nodes, and measures how
# much more the nodes admit than a single limiter would. See scripts/converge.sh.
#
#   converge.pl GENERATOR NGINX MODULE STORE SEED NODES WINDOWS LIMIT ALGORITHM RESULTS MODES PATTERNS
#   converge.pl GENERATOR NGINX MODULE STORE SEED NODES quick
#
# MODES and PATTERNS are lists of names, separated by commas. The program writes RESULTS: one line of JSON for each
# pattern in each mode. `quick` only checks that no hit is lost.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use List::Util qw(max sum0);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../bench", "$FindBin::Bin/../../t/lib";
use Bench qw(work_dir write_results);
use Nodes;

# The settings of a namespace in each mode.
my %MODES = (
    'plain-0.1'   => 'sync_rate 0.1; sync_early off;',
    'plain-0.5'   => 'sync_rate 0.5; sync_early off;',
    'early-0.5'   => 'sync_rate 0.5;',
    'early-1'     => 'sync_rate 1;',
    'early-5'     => 'sync_rate 5;',
    'synchronous' => 'sync_rate 0; timeout 1s; on_error deny;',
    'reserve'     => 'sync_rate 0; timeout 1s; on_error deny; reserve on;',
);

my ($generator, $nginx, $module, $store, $seed, $count, $windows, @rest) = @ARGV;
my ($limit, $algorithm, $results, $modes, $patterns) = @rest;
$| = 1;
my $dir = work_dir();

# A module of an earlier version only has the plain modes.
s/ sync_early off;// for grep { !accepts($_) } values %MODES;
exit(quick() ? 0 : 1) if $windows eq 'quick';

my @modes = split /,/, $modes;
exists $MODES{$_} or die "no such mode: $_ (" . join(', ', sort keys %MODES) . ")\n" for @modes;
@modes = grep { accepts($MODES{$_}) } @modes;
# A burst would delay the other patterns.
my @steady = grep { !/^burst/ } split /,/, $patterns;
my @bursts = grep {/^burst/} split /,/, $patterns;
my @lines;
for my $mode (@modes) {
    my %conf = (nodes => $count, mode => $mode, settings => $MODES{$mode}, limit => $limit, algorithm => $algorithm);
    for my $lanes (grep {@$_} \@steady, \@bursts) {
        my $nodes = Nodes->start($nginx, $module, $store, $dir, %conf, lanes => $lanes);
        my $colour = $mode =~ /^plain/ ? '#b0b0b0' : '#2a6f97';
        push @lines, map { {mode => $mode, name => "$mode, $_->{pattern}", colour => $colour, %$_} } measure($nodes);
        $nodes->stop;
    }
}
write_results($results, @lines);
print_patterns();
print "\n";
print_modes();

sub accepts { return Nodes->accepts($nginx, $module, $dir, @_) }

# Sends hits to nodes. Returns the results of each lane.
sub measure {
    my ($nodes) = @_;
    $nodes->meet;
    my ($window, $said) = ($nodes->{window}, generate($nodes, $windows));
    sleep max(0, $nodes->{begin} + $window - time);
    my ($exchanges, $worked, $at) = ($nodes->exchanges, $nodes->work, time);
    sleep max(0, $nodes->{begin} + $windows * $window - time);
    my ($later, $works, $seconds) = ($nodes->exchanges, $nodes->work, time - $at);
    my @lanes = $said->();
    my $hits  = sum0(map { $_->{hits} } @lanes) * ($windows - 1) / $windows;
    for my $number (0 .. $#lanes) {
        my $it = $lanes[$number];
        $it->{exchanges} = ($later->[$number] - $exchanges->[$number]) / $seconds / $count;
        $it->{store_cpu} = 100 * ($works->{store} - $worked->{store}) / $seconds;
        $it->{node_cpu}  = 1e6 * ($works->{nodes} - $worked->{nodes}) / $hits;
        print STDERR "$nodes->{conf}{mode} $it->{pattern}: ", sprintf("%.2f %% over\n", $it->{over});
    }
    return @lanes;
}

# Makes the generator send hits from the next window on. Returns a function that waits for its
# output.
sub generate {
    my ($nodes, $windows) = @_;
    my ($limit, $window) = @$nodes{qw(limit window)};
    my $begin = $nodes->{begin} = $window * (1 + int((time + 0.5) / $window));
    my $ports = join ',', $nodes->ports;
    my @words = ($seed, $windows, int(1000 * $begin + 0.5), $ports, "$limit/" . int(1000 * $window + 0.5));
    my @lanes = map { $_->{pattern} } $nodes->lanes;
    my $pid   = open my $out, '-|', $generator, @words, $nodes->{conf}{algorithm}, @lanes;
    $pid or die "$generator: $!\n";
    return sub {
        my @said = map { decode_json($_) } <$out>;
        close $out or die "the generator failed\n";
        @said == @lanes or die "the generator said nothing of some lanes\n";
        return @said;
    };
}

# Measures each pattern in each mode.
sub print_patterns {
    my $heads = "%-12s %-12s %7s %8s %8s %9s %8s %10s %10s %8s %8s\n";
    printf $heads, ('') x 6, 'worst', 'refused', 'exchanges', '', 'ms of';
    printf $heads, qw(mode pattern hits admitted central over window), 'with room', 'a second', 'late', '99 %';
    printf "%-12s %-12s %7d %8d %8d %7.2f %% %6.1f %% %8.2f %% %10.2f %6.1f %% %8.1f\n",
        @$_{qw(mode pattern hits admitted central over worst refused_with_room exchanges late answer_p99_ms)}
        for @lines;
}

# Measures each mode: all steady patterns together, and each burst.
sub print_modes {
    my $heads = "%-12s %9s %9s %9s %9s %10s %10s %9s %8s\n";
    printf $heads, '', 'over', 'worst', 'worst', 'over', 'refused', 'exchanges', 'CPU', 'us CPU';
    printf $heads, qw(mode mean pattern window burst), 'with room', 'a second', 'of store', 'of a hit';
    for my $mode (@modes) {
        my @all   = grep { $_->{mode} eq $mode } @lines;
        my @burst = grep { $_->{pattern} =~ /^burst/ } @all;
        my @even  = grep { $_->{pattern} !~ /^burst/ } @all;
        @even = @all if !@even;
        printf "%-12s %7.2f %% %7.2f %% %7.1f %% %7.1f %% %8.2f %% %10.2f %7.2f %% %8.1f\n", $mode,
            mean(map { $_->{over} } @even), max(map { $_->{over} } @even), max(map { $_->{worst} } @even),
            mean(map { $_->{over} } @burst), mean(map { $_->{refused_with_room} } @even),
            mean(map { $_->{exchanges} } @even), @{$even[0]}{qw(store_cpu node_cpu)};
    }
}

sub mean { return @_ ? sum0(@_) / @_ : 0 }

# Checks, in every mode, that all nodes learn of each admitted hit. A hit that was neither admitted
# nor refused, because the store did not decide in time, may count or not.
sub quick {
    my $is_well = 1;
    for my $mode (grep { accepts($MODES{$_}) } qw(plain-0.1 early-5 reserve)) {
        my %conf = (nodes => $count, mode => $mode, settings => $MODES{$mode}, limit => '200/1s', algorithm => 'fixed');
        my @lanes = qw(balanced-2 hot-3 burst-2);
        my $nodes = Nodes->start($nginx, $module, $store, $dir, %conf, total => 1, lanes => \@lanes);
        my @said  = generate($nodes, 2)->();
        for my $number (0 .. $#said) {
            my ($pattern, $admitted, $others) = @{$said[$number]}{qw(pattern admitted_in_all others)};
            # A question that was not answered in time may also have charged a reserve.
            my $most = $mode eq 'reserve' && $others ? 'inf' : $admitted + $others;
            my ($is_so, @known) = $nodes->agree($number, $admitted, $most);
            print $is_so ? 'ok' : 'not ok', " - $mode, $pattern: $admitted hits were admitted, $others neither "
                . "admitted nor refused, and nodes know of @known\n";
            $is_well &&= $is_so;
        }
        $nodes->stop;
    }
    return $is_well;
}
