#!/usr/bin/env perl
# Measures sync cycles between two nodes and a real Redis: the time of a cycle that pushes many changed
# keys and of one that fetches them; and the processor time of Redis and of the nodes' threads.
#
#   sync.pl NGINX MODULE LIVE CHANGED ROUNDS RESULTS
#
# LIVE keys of 32 bytes are counted before. Each round hits CHANGED of them on one node, and makes no
# requests until both nodes have synced. Therefore the processor time of the event loop's thread is all
# for cycles, and bounds the time for which a cycle holds the event loop. The program writes RESULTS: one
# line of JSON for each row.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use List::Util qw(max min);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Bench qw(
    count cpu cpu_of_thread interval median start_nginx start_redis work_dir write_results
);

use constant SYNC_RATE => 3;    # seconds: long enough to hit all in between

my ($nginx, $module, $live, $changed, $rounds, $results) = @ARGV;
$| = 1;
my $dir = work_dir();
my ($redis_port, $redis) = start_redis($dir);

# Room for live keys.
my $zone  = max(64, int($live * 640 / 1048576) + 1) . 'm';
my %nodes = map { $_ => node($_) } qw(pushes fetches);
my ($one, $other) = @nodes{qw(pushes fetches)};

my ($first, $step) = (0, min($changed, 100_000));
while ($first < $live) {
    hit($one, $first, $step);
    $first += $step;
}
wait_until('all is synced', sub { !grep { says($_)->{pending} } values %nodes });

my %samples;
for my $round (1 .. $rounds) {
    print STDERR "\r$round of $rounds" if -t STDERR;
    my $figures = round();
    for my $name (keys %$figures) {
        push @{$samples{$name}{$_}}, $figures->{$name}{$_} for keys %{$figures->{$name}};
    }
}
print STDERR "\r" if -t STDERR;

printf "%-34s %10s %20s\n", 'ms of a cycle', 'median', '95 %';
my @rows = (
    ['pushes',  'cycle'],  ['pushes',  'thread'], ['pushes',  'event loop'],
    ['fetches', 'cycle'],  ['fetches', 'thread'], ['fetches', 'event loop'],
    ['Redis',   'of both'],
);
my @lines;
for (@rows) {
    my ($of, $figure) = @$_;
    my @values = @{$samples{$of}{$figure}};
    my %line   = (name => "$of: $figure", live => 0 + $live, changed => 0 + $changed, rounds => 0 + $rounds);
    ($line{millis}, $line{millis_interval}) = (median(@values), [interval(@values)]);
    printf "%-34s %10.2f %20s\n", $line{name}, $line{millis}, sprintf '%.2f to %.2f', @{$line{millis_interval}};
    push @lines, \%line;
}
write_results($results, @lines);

# Starts a node with one worker, so that its metrics are those of the worker that syncs.
sub node {
    my ($name) = @_;
    return start_nginx(
        $nginx, "$dir/$name",
        main => "load_module $module;",
        http => "ratelimit_zone zone=bench:$zone; "
            . "ratelimit_store main { strategy redis; server 127.0.0.1:$redis_port; } "
            . 'ratelimit_namespace default { store main; sync_rate ' . SYNC_RATE . 's; }',
        server   => 'location /metrics { ratelimit_metrics; }',
        location => 'ratelimit_key $arg_k; ratelimit_headers off; ratelimit limit=1000000000/1h;',
        workers  => 1,
    );
}

# Hits keys on a node, starting with a number. Returns the node's number of cycles before.
sub hit {
    my ($it, $from, $many) = @_;
    my ($before, $cycles) = says($it)->{cycles};
    wait_until('a cycle', sub { ($cycles = says($it)->{cycles}) > $before });
    count($it, map { sprintf '%029d', $_ } $from .. $from + $many - 1);
    return $cycles;
}

# Measures a cycle that pushes, and one that fetches, with the processor time of each part, in
# milliseconds.
sub round {
    my %said;
    # Repeats if another cycle ran meanwhile.
    for (1 .. 10) {
        my $cycles = hit($one, int rand max(1, $live - $changed), $changed);
        %said = map { $_ => says($nodes{$_}) } keys %nodes;
        last if $said{pushes}{cycles} == $cycles;
        %said = ();
    }
    %said or die "to hit all takes longer than from cycle to cycle\n";
    my %worked = work();
    # Time for a cycle of one node, and then of the other.
    sleep 3 * SYNC_RATE;
    my %works = work();
    my %says  = map { $_ => says($nodes{$_}) } keys %nodes;
    $says{pushes}{pushed} - $said{pushes}{pushed} == $changed or die "not all were pushed\n";
    $says{fetches}{fetched} - $said{fetches}{fetched} >= $changed or die "not all were fetched\n";
    my %took;
    for my $name (keys %nodes) {
        $took{$name}{cycle} = 1000 * ($says{$name}{took} - $said{$name}{took});
        $took{$name}{$_} = 1000 * ($works{$name}{$_} - $worked{$name}{$_}) for 'thread', 'event loop';
    }
    $took{Redis}{'of both'} = 1000 * ($works{Redis} - $worked{Redis});
    return \%took;
}

# Returns the processor time of the processes, in seconds.
sub work {
    my %works = (Redis => cpu($redis));
    for my $name (keys %nodes) {
        my ($worker) = $nodes{$name}{workers}->@*;
        my ($all, $loop) = (cpu($worker), cpu_of_thread($worker));
        $works{$name} = {thread => $all - $loop, 'event loop' => $loop};
    }
    return %works;
}

# Returns a node's metrics.
sub says {
    my ($it)   = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $it->{port}) or die "no nginx\n";
    print $socket "GET /metrics HTTP/1.0\r\n\r\n";
    my %all = map { /^([^#\s]\S*) (\S+)$/ ? ($1 => $2) : () } readline $socket;
    my $of  = sub { $all{"ratelimit_sync_$_[0]"} // die "no metric $_[0]\n" };
    return {
        cycles  => $of->('cycles_total{namespace="default",result="ok"}'),
        took    => $of->('duration_seconds_sum{namespace="default"}'),
        pending => $of->('pending_counters{namespace="default"}'),
        pushed  => $of->('pushed_counters_total{namespace="default"}'),
        fetched => $of->('fetched_counters_total{namespace="default"}'),
    };
}

sub wait_until {
    my ($what, $is_so) = @_;
    my $deadline = time + 60;
    until ($is_so->()) {
        die "not within a minute: $what\n" if time > $deadline;
        sleep 0.02;
    }
}
