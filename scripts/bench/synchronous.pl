#!/usr/bin/env perl
# Measures requests that Redis decides about: throughput, processor time and latency, over bare nginx
# and beside the same decision by ngx_http_lua_module. Contestants take turns, so that they share
# whatever else the machine does; medians of all rounds are compared.
#
#   synchronous.pl NGINX MODULE LUA_MODULES ROUNDS REQUESTS
#
# LUA_MODULES is the directory of ndk_http_module.so and ngx_http_lua_module.so; empty: without them.
use strict;
use warnings;
use File::Temp qw(tempdir);
use IO::Socket::INET;
use List::Util qw(sum);
use POSIX qw(sysconf _SC_CLK_TCK);
use Time::HiRes qw(sleep time);

my ($nginx, $module, $lua, $rounds, $requests) = @ARGV;
my $connections = 64;
my $dir         = tempdir(CLEANUP => 1);
chmod 0755, $dir;
my ($redis_port, $port) = map { free_port() } 1, 2;
my @started;
END { local $?; kill QUIT => $_ for @started; waitpid $_, 0 for @started }
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

# The decision in Lua: a fixed window, counted if it is within the limit, by one EVALSHA for each
# request on a connection of a pool.
my $decision = <<'LUA';
local count = tonumber(redis.call('GET', KEYS[1]) or 0)
if count >= tonumber(ARGV[1]) then return 1 end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
LUA

my $lua_access = <<"LUA";
    local redis = ngx.socket.tcp()
    redis:settimeouts(500, 250, 250)
    assert(redis:connect('127.0.0.1', $redis_port))
    local window = math.floor(ngx.now() / 3600)
    local key = 'limit:' .. (ngx.var.arg_k or '') .. ':' .. window
    local words = {'EVALSHA', sha, '1', key, '1000000000', '7200000'}
    local request = {'*', #words, '\\r\\n'}
    for _, word in ipairs(words) do
        request[#request + 1] = '\$' .. #word .. '\\r\\n' .. word .. '\\r\\n'
    end
    assert(redis:send(request))
    local answer = assert(redis:receive())
    redis:setkeepalive(10000, 100)
    if answer ~= ':0' then return ngx.exit(429) end
LUA

my %contestants = (
    bare => {},
    ours => {
        load => "load_module $module;",
        http => <<"        END",
        ratelimit_zone zone=bench:32m;
        ratelimit_store main { strategy redis; server 127.0.0.1:$redis_port; }
        ratelimit_namespace default { store main; sync_rate 0; timeout 1s; }
        END
        location => 'ratelimit_key $arg_k; ratelimit_headers off;
            ratelimit limit=1000000000/1h window=fixed;',
    },
    'ours-sliding' => {
        like     => 'ours',
        location => 'ratelimit_key $arg_k; ratelimit_headers off; ratelimit limit=1000000000/1h;',
    },
);
$contestants{lua} = {
    load => "load_module $lua/ndk_http_module.so;\nload_module $lua/ngx_http_lua_module.so;",
    http => '',
    location => '',
} if $lua;
$contestants{'ours-sliding'} = {%{$contestants{ours}}, %{$contestants{'ours-sliding'}}};
my @names = grep { $contestants{$_} } qw(bare ours ours-sliding lua);

my $redis = start('redis-server', '--port', $redis_port, '--bind', '127.0.0.1', '--save', '',
    '--dir', $dir, '--logfile', "$dir/redis.log");
wait_for($redis_port);
if ($lua) {
    my $sha = redis('SCRIPT', 'LOAD', $decision);
    $contestants{lua}{http}     = "init_by_lua_block { sha = '$sha' }";
    $contestants{lua}{location} = "access_by_lua_block { $lua_access }";
}

my %results;
for my $round (1 .. $rounds) {
    for my $name (@names) {
        my $result = measure($name);
        push @{$results{$name}{$_}}, $result->{$_} for keys %$result;
    }
}

printf "%-14s %12s %10s %14s %10s %12s %14s\n", 'contestant', 'requests/s', 'over bare', 'us CPU/request',
    'over bare', 'us p50', 'us Redis each';
my %median = map { my $name = $_; $name => {map { $_ => median(@{$results{$name}{$_}}) } keys %{$results{$name}}} } @names;
for my $name (@names) {
    my ($it, $bare) = @median{$name, 'bare'};
    printf "%-14s %12.0f %10.2f %14.2f %10.2f %12.0f %14.2f\n", $name, $it->{rate}, $it->{rate} / $bare->{rate},
        $it->{cpu}, $it->{cpu} / $bare->{cpu}, $it->{p50}, $it->{redis};
}

# One round of a contestant.
sub measure {
    my ($name) = @_;
    my $conf = $contestants{$name};
    my $file = "$dir/$name.conf";
    open my $out, '>', $file or die "$file: $!\n";
    my ($load, $http, $location) = map { $conf->{$_} // '' } qw(load http location);
    print $out <<"END";
$load
daemon off;
worker_processes 2;
pid $dir/nginx.pid;
error_log $dir/error.log;
@{[$> == 0 ? 'user root;' : '']}
events { worker_connections 512; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path $dir/client_body_temp;
    proxy_temp_path       $dir/proxy_temp;
    fastcgi_temp_path     $dir/fastcgi_temp;
    uwsgi_temp_path       $dir/uwsgi_temp;
    scgi_temp_path        $dir/scgi_temp;
    $http
    server {
        listen 127.0.0.1:$port reuseport;
        location / { $location empty_gif; }
    }
}
END
    close $out;
    my $master = start($nginx, '-p', $dir, '-e', "$dir/error.log", '-c', $file);
    wait_for($port);
    load($requests / 10);
    my ($cpu, $redis_cpu, $begin) = (cpu(children($master), $redis), cpu($redis), time);
    my $times = load($requests);
    my $took  = time - $begin;
    ($cpu, $redis_cpu) = (cpu(children($master), $redis) - $cpu, cpu($redis) - $redis_cpu);
    stop($master);
    return {
        rate  => $requests / $took,
        cpu   => 1e6 * $cpu / $requests,
        redis => 1e6 * $redis_cpu / $requests,
        p50   => median(@$times),
    };
}

# Sends so many requests, of 1000 keys; returns how long each took, in microseconds.
sub load {
    my ($count) = @_;
    $count = int $count;
    open my $uris, '>', "$dir/uris" or die;
    print $uris "http://127.0.0.1:$port/?k=key$_\n" for 1 .. 1000;
    close $uris;
    unlink "$dir/times";
    my $said = `h2load --h1 -n $count -c $connections -t 1 -i $dir/uris --log-file $dir/times 2>&1`;
    $said =~ /status codes: $count 2xx/ or die "not all were answered by 200:\n$said\n" . `tail $dir/error.log`;
    open my $in, '<', "$dir/times" or die;
    return [map { (split ' ')[2] } <$in>];
}

sub children {
    my ($parent) = @_;
    return grep { (stat_of($_))[3] == $parent } map { m{(\d+)/stat} } glob '/proc/[0-9]*/stat';
}

# The fields of /proc/PID/stat.
sub stat_of {
    open my $file, '<', "/proc/$_[0]/stat" or return (0) x 52;
    my $text = <$file> // return (0) x 52;
    $text =~ s/\(.*\)/name/;
    return split ' ', $text;
}

# Seconds on a processor, of all threads of some processes.
sub cpu { return sum(map { my @stat = stat_of($_); ($stat[13] + $stat[14]) / sysconf(_SC_CLK_TCK) } @_) }

sub median { my @sorted = sort { $a <=> $b } @_; return $sorted[@sorted / 2] }

sub start {
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        open STDOUT, '>', '/dev/null' or die;
        exec @_ or die "$_[0]: $!\n";
    }
    push @started, $pid;
    return $pid;
}

sub stop {
    my ($pid) = @_;
    kill QUIT => $pid;
    waitpid $pid, 0;
    @started = grep { $_ != $pid } @started;
}

sub free_port {
    my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!\n";
    return $socket->sockport;
}

sub wait_for {
    my ($at) = @_;
    for (1 .. 500) {
        return if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $at);
        sleep 0.01;
    }
    die "nobody listens on port $at\n", `tail $dir/error.log 2>/dev/null`;
}

sub redis {
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $redis_port) or die "no Redis\n";
    print $socket '*' . @_ . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @_;
    $socket->flush;
    readline($socket) =~ /^\$\d+/ or die "Redis does not take the script\n";
    my $answer = readline $socket;
    $answer =~ s/\r\n//;
    return $answer;
}
