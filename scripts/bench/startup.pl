#!/usr/bin/env perl
# Measures the time in which nginx starts and reloads its configuration with a large zone full of
# keys, compared with two instances of bare nginx. The time ends when all new workers run and one has
# responded. The contestants take turns.
#
#   startup.pl NGINX MODULE ZONE KEYS ROUNDS RESULTS
#
# ZONE is the size of the zone. KEYS is the number of keys that are counted before the reload. The program
# writes RESULTS: one line of JSON for each contestant, for start and for reload.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use List::Util qw(shuffle);
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Bench qw(
    children count interval median start_nginx stop wait_for work_dir write_results
);

use constant WORKERS => 2;

my ($nginx, $module, $zone, $keys, $rounds, $results) = @ARGV;
my $dir         = work_dir();
my %contestants = (
    bare       => {},
    'bare-too' => {},
    ours       => {
        main     => "load_module $module;",
        http     => "ratelimit_zone zone=bench:$zone;",
        location => 'ratelimit_key $arg_k; ratelimit_headers off; ratelimit limit=1000000000/1h;',
    },
);
my @names = qw(bare bare-too ours);
my (%starts, %reloads, %servers);
for my $round (1 .. $rounds) {
    for my $name (shuffle @names) {
        stop($servers{$name}{master}) if $servers{$name};
        push @{$starts{$name}}, millis(sub {
            $servers{$name} = start_nginx($nginx, "$dir/$name", $contestants{$name}->%*, workers => WORKERS);
            answer($servers{$name});
        });
    }
}
count($servers{ours}, 1 .. $keys);
for my $round (1 .. $rounds) {
    for my $name (shuffle @names) {
        my $it  = $servers{$name};
        my %old = map { $_ => 1 } children($it->{master});
        push @{$reloads{$name}}, millis(sub {
            kill HUP => $it->{master};
            sleep 0.001 until WORKERS == grep { !$old{$_} } children($it->{master});
            answer($it);
        });
    }
}

printf "%-24s %10s %28s\n", '', 'ms', 'more than bare (95 %)';
write_results($results, lines(start => \%starts), lines(reload => \%reloads));

# Prints and returns the figures of start or reload.
sub lines {
    my ($what, $millis) = @_;
    my @lines;
    for my $name (@names) {
        my @values = $millis->{$name}->@*;
        my @more   = map { $values[$_] - $millis->{bare}[$_] } 0 .. $rounds - 1;
        my %line   = (
            name => "$name: $what", zone => $zone, keys => 0 + $keys, rounds => 0 + $rounds,
            millis => median(@values), more => median(@more), more_interval => [interval(@more)],
        );
        printf "%-24s %10.1f %28s\n", @line{qw(name millis)},
            sprintf '%.1f (%.1f to %.1f)', $line{more}, $line{more_interval}->@*;
        push @lines, \%line;
    }
    return @lines;
}

# Returns the time of a call in milliseconds.
sub millis {
    my ($call) = @_;
    my $begin = time;
    $call->();
    return 1000 * (time - $begin);
}

# Waits for a response.
sub answer {
    my ($it) = @_;
    wait_for($it);
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $it->{port}) or die "no nginx\n";
    print $socket "GET / HTTP/1.0\r\n\r\n";
    readline($socket) =~ /^HTTP/ or die "no answer\n";
}
