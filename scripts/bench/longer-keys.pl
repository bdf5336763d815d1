#!/usr/bin/env perl
# Fills a zone with short keys, and then requests new longer keys, each twice with a limit of one. Prints
# how many were rejected at once, and how many were admitted twice, which means that they were not counted.
#
#   longer-keys.pl NGINX MODULE LUA_MODULES KEYS NEW RESULTS
#
# LUA_MODULES is the directory of ngx_http_lua_module.so. All zones have 1 MB, which KEYS short keys
# should fill. The program writes RESULTS: one line of JSON for each contestant.
use strict;
use warnings;

use FindBin;
use IO::Socket::INET;

use lib $FindBin::Bin;
use Bench qw(count lua_modules start_nginx start_redis work_dir write_results);

my ($nginx, $module, $lua, $keys, $new, $results) = @ARGV;
my $dir          = work_dir();
my ($redis_port) = start_redis($dir);
my %ours         = (
    main     => "load_module $module;",
    http     => 'ratelimit_zone zone=bench:1m;',
    location => 'ratelimit_key $arg_k; ratelimit limit=1/1h;',
);
my @contestants = (
    limit_req => {
        http     => 'limit_req_zone $arg_k zone=requests:1m rate=1r/m;',
        location => 'limit_req zone=requests;',
    },
    'lua-dictionary' => {
        main     => lua_modules($lua),
        http     => 'lua_shared_dict limits 1m;',
        location => 'access_by_lua_block {
            local count = ngx.shared.limits:incr(ngx.var.arg_k, 1, 0, 3600) or 0
            if count > 1 then return ngx.exit(429) end
        }',
    },
    'ours-local'  => \%ours,
    'ours-synced' => {
        %ours,
        http => "$ours{http} ratelimit_store main { strategy redis; server 127.0.0.1:$redis_port; } "
            . 'ratelimit_namespace default { store main; sync_rate 1s; }',
    },
);

my @lines;
printf "%-24s %10s %10s %10s %12s\n", 'contestant', 'new keys', 'counted', 'refused', 'not counted';
while (my ($name, $conf) = splice @contestants, 0, 2) {
    my $it = start_nginx($nginx, "$dir/$name", %$conf, workers => 1);
    count($it, 1 .. $keys);
    my %seen = map { $_ => 0 } qw(counted refused uncounted);
    my $ask  = connection($it);
    for my $number (1 .. $new) {
        my $key = 'longer' x 20 . $number;
        my ($first, $second) = map { $ask->($key) } 1 .. 2;
        $seen{$first != 200 ? 'refused' : $second == 200 ? 'uncounted' : 'counted'}++;
    }
    printf "%-24s %10d %10d %10d %12d\n", $name, $new, @seen{qw(counted refused uncounted)};
    push @lines, {name => $name, new => 0 + $new, %seen};
}
write_results($results, @lines);

# Returns a function that requests a key from a server, and returns the status.
sub connection {
    my ($it) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $it->{port}) or die "no nginx\n";
    return sub {
        my ($key) = @_;
        print $socket "GET /?k=$key HTTP/1.1\r\nHost: localhost\r\n\r\n";
        $socket->flush;
        my ($status, $length);
        while (defined(my $line = readline $socket)) {
            $status //= (split ' ', $line)[1];
            $length = $1 if $line =~ /^Content-Length: (\d+)/i;
            last         if $line eq "\r\n";
        }
        read($socket, my $body, $length // die "no answer\n") == $length or die "no body\n";
        return $status;
    };
}
