#!/usr/bin/env perl
# Measures the cost and the accuracy of many nodes with busy keys among many others. See scripts/converge.sh.
#
#   busy.pl NGINX MODULE STORE RESULTS WINDOWS NAME=VALUE...
#
# The names are those of ManyKeys.pm. The program prints a table, and writes RESULTS: one line of JSON.
use strict;
use warnings;

use FindBin;
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin, "$FindBin::Bin/../bench", "$FindBin::Bin/../../t/lib";
use Bench qw(work_dir write_results);
use ManyKeys;
use Meter;

my ($nginx, $module, $store, $results, $windows, @of) = @ARGV;
my %conf = map { my ($name, $value) = split /=/, $_, 2; ($name => $value =~ /^\d+\z/ ? 0 + $value : $value) } @of;
$| = 1;

my $nodes  = ManyKeys->start($nginx, $module, $store, work_dir(), %conf);
my $begin  = $nodes->next_window;
my $result = $nodes->generate($begin, $windows);
sleep $begin + $nodes->{window} - time;
my $before = Meter->read($nodes);
sleep $begin + $windows * $nodes->{window} - time;
my $cost = Meter->read($nodes)->since($before);
my $said = $result->();
$nodes->stop;

my @judged = @{$said->{windows}};
shift @judged;    # in which the cluster gets used to the load
my %all = (%conf, %{$nodes->{conf}}, %$said, %$cost, $nodes->judged(@judged), store => $store, name => "$store, $conf{nodes} nodes");
delete $all{generator};
write_results($results, \%all);

printf "%-52s %s\n", @$_ for (
    ['nodes',                                                 $conf{nodes}],
    ['busy keys; other keys',                                 "$conf{busy}; $conf{keys}"],
    ['hits a second: busy keys; others',                      $all{rate} * $all{cost} . "; $conf{trickle}"],
    ['requests a second for busy keys; hits of each',         "$all{rate}; $all{cost}"],
    ['CPU of the store, % of a core',                         number($all{store_cpu})],
    ['exchanges a second, all nodes; of a node',              number($all{exchanges}) . '; ' . number($all{exchanges} / $conf{nodes})],
    ['commands a second',                                     number($all{commands_in_all})],
    (map { ["... $_", number($all{commands}{$_})] } sort keys %{$all{commands}}),
    ['kilobytes a second to the store; from it',              number($all{bytes_in} / 1000) . '; ' . number($all{bytes_out} / 1000)],
    ['exchange, median; p99, ms',                             number($all{exchange_p50_ms}) . '; ' . number($all{exchange_p99_ms})],
    ['CPU of a node for syncing, mean; most, % of a core',    number($all{sync_cpu}) . '; ' . number($all{sync_cpu_most})],
    ['CPU of a node, % of a core',                            number($all{node_cpu})],
    ['over-admission; worst window, %',                       number($all{over}) . '; ' . number($all{worst})],
    ['refused with room, %',                                  number($all{refused_with_room})],
    ['a hit is known by a node, median; p99, ms',             number($all{known_p50_ms}) . '; ' . number($all{known_p99_ms})],
    ['... by all nodes, median; p99, ms',                     number($all{everywhere_p50_ms}) . '; ' . number($all{everywhere_p99_ms})],
    ['probes',                                                $all{probes}],
    ['requests sent late, p99, ms',                           number($all{late_p99_ms})],
    ['answer, median; p99, ms',                               number($all{answer_p50_ms}) . '; ' . number($all{answer_p99_ms})],
    ['requests without a verdict',                            $all{others}],
);

sub number { return abs $_[0] < 99.95 ? sprintf '%.2f', $_[0] : sprintf '%.0f', $_[0] }
