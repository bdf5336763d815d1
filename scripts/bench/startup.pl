#!/usr/bin/env perl
# Measures how long nginx takes to start, and to reload its configuration, with a large zone full of
# keys, beside bare nginx: until all new workers are there, and one has answered.
#
#   startup.pl NGINX MODULE ZONE KEYS ROUNDS RESULTS
#
# ZONE is the zone's size; so many KEYS are counted in it before it is reloaded. RESULTS is written,
# in JSON.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use JSON::PP;
use Time::HiRes qw(sleep time);

use lib $FindBin::Bin;
use Bench
    qw(children free_port load median nginx_conf start stop wait_for work_dir write_file write_uris);

use constant WORKERS => 2;

my ($nginx, $module, $zone, $keys, $rounds, $results) = @ARGV;
my $dir         = work_dir();
my %contestants = (
    bare => {},
    ours => {
        main     => "load_module $module;",
        http     => "ratelimit_zone zone=bench:$zone;",
        location => 'ratelimit_key $arg_k; ratelimit_headers off; ratelimit limit=1000000000/1h;',
    },
);
my %line = (zone => $zone, keys => 0 + $keys, rounds => 0 + $rounds);
printf "%-24s %20s %20s\n", 'contestant', 'ms to start', "ms to reload";
for my $name (qw(bare ours)) {
    my ($it, $port, $log) = ($contestants{$name}, free_port(), "$dir/error.log");
    write_file("$dir/nginx.conf", nginx_conf($dir, location => '', %$it, workers => WORKERS, port => $port));
    my $begin = sub { start($nginx, '-p', $dir, '-e', $log, '-c', "$dir/nginx.conf") };
    my (@starts, @reloads, $master);
    for (1 .. $rounds) {
        stop($master) if $master;
        push @starts, took(sub { $master = $begin->() }, $port, sub { children($master) == WORKERS });
    }
    if ($name eq 'ours') {
        write_uris("$dir/uris", $port, 1 .. $keys);
        load("$dir/uris", $keys, $log);
    }
    for (1 .. $rounds) {
        my %old = map { $_ => 1 } children($master);
        push @reloads, took(sub { kill HUP => $master }, $port,
            sub { WORKERS == grep { !$old{$_} } children($master) });
    }
    stop($master);
    @{$line{$name}}{qw(start reload)} = (median(@starts), median(@reloads));
    printf "%-24s %20.1f %20.1f\n", $name, @{$line{$name}}{qw(start reload)};
}
write_file($results, JSON::PP->new->canonical->encode(\%line) . "\n");

# How many milliseconds pass from a call until there are workers, and one answers.
sub took {
    my ($call, $port, $is_there) = @_;
    my $begin = time;
    $call->();
    wait_for($port, "$dir/error.log");
    sleep 0.001 until $is_there->();
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "no nginx\n";
    print $socket "GET / HTTP/1.0\r\n\r\n";
    readline($socket) =~ /^HTTP/ or die "no answer\n";
    return 1000 * (time - $begin);
}
