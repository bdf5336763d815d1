#!/usr/bin/env perl
# Measures requests under load: throughput, processor time and latency, compared with bare nginx and
# with other limiters. The servers of all contestants run all the time. Each round measures them one
# after another, in a new order, so that other load on the machine affects all of them. The result of
# a contestant is the median, over all rounds, of its figure divided by that of bare nginx in the
# same round.
#
#   load.pl NGINX MODULE LUA_MODULES WORKERS KEYS ROUNDS RESULTS [CONTESTANT...]
#
# LUA_MODULES is the directory of ndk_http_module.so and ngx_http_lua_module.so. KEYS is a number, or
# zipf:NUMBER: see random.lua. All keys are counted before the measurement, and requested at random. With one
# worker, the worker and the client have one processor each. The program writes RESULTS: one line of JSON for
# each contestant.
use strict;
use warnings;

use FindBin;
use List::Util qw(max shuffle);

use lib $FindBin::Bin;
use Bench qw(
    count cpu interval load lua_modules median redis start_nginx start_redis work_dir write_results
);

my ($nginx, $module, $lua, $workers, $keys, $rounds, $results, @names) = @ARGV;
$| = 1;
my @client_by = $workers == 1 ? qw(taskset -c 1) : ();
my $dir       = work_dir();
my ($redis_port, $redis) = start_redis($dir);

# A sliding window in a shared dictionary.
my $lua_dictionary = <<'LUA';
    local now, size = ngx.now(), 3600
    local window, limits = math.floor(now / size), ngx.shared.limits
    local key = ngx.var.arg_k or ''
    local current = limits:incr(key .. ':' .. window, 1, 0, 2 * size) or 0
    local previous = limits:get(key .. ':' .. window - 1) or 0
    if current + previous * (1 - now % size / size) > 1000000000 then return ngx.exit(429) end
LUA

# A fixed window in Redis, counted if it is within the limit, by one EVALSHA for each request on a
# connection of a pool.
my $sha = redis($redis_port, 'SCRIPT', 'LOAD', <<'LUA');
local count = tonumber(redis.call('GET', KEYS[1]) or 0)
if count >= tonumber(ARGV[1]) then return 1 end
redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 0
LUA
my $lua_redis = <<"LUA";
    local redis = ngx.socket.tcp()
    redis:settimeouts(500, 250, 250)
    assert(redis:connect('127.0.0.1', $redis_port))
    local window = math.floor(ngx.now() / 3600)
    local key = 'limit:' .. (ngx.var.arg_k or '') .. ':' .. window
    local words = {'EVALSHA', '$sha', '1', key, '1000000000', '7200000'}
    local request = {'*', #words, '\\r\\n'}
    for _, word in ipairs(words) do
        request[#request + 1] = '\$' .. #word .. '\\r\\n' .. word .. '\\r\\n'
    end
    assert(redis:send(request))
    local answer = assert(redis:receive())
    redis:setkeepalive(10000, 100)
    if answer ~= ':0' then return ngx.exit(429) end
LUA

# The zone has room for all keys, even if each needs its largest size.
my ($number)  = $keys =~ /(\d+)$/;
my $zone      = max(32, int($number * 640 / 1048576) + 1) . 'm';
my $limit_req = "limit_req_zone \$arg_k zone=requests:$zone rate=1r/s;";
my $request   = 'limit_req zone=requests burst=1000000 nodelay;';
my $store     = "ratelimit_store main { strategy redis; server 127.0.0.1:$redis_port; }";

# A request that is decided without Redis is answered with 503, which ends the program.
my $synchronous = $store
    . ' ratelimit_namespace default { store main; sync_rate 0; timeout 1s; on_error deny; }';

my @contestants = (
    bare       => {},
    'bare-too' => {},
    key        => {location => 'set $key $arg_k;'},
    limit_req  => {http => $limit_req, location => $request},
    'limit_req-and-limit_conn' => {
        http     => "$limit_req limit_conn_zone \$arg_k zone=connections:$zone;",
        location => "$request limit_conn connections 10000;",
    },
    'lua-dictionary' =>
        lua("lua_shared_dict limits $zone;", "access_by_lua_block {\n$lua_dictionary}"),
    'ours-sliding'      => ours(''),
    'ours-fixed'        => ours('', rule => 'window=fixed'),
    'ours-elastic'      => ours('', rule => 'window=elastic'),
    # The log of a key grows during the measurement: requests of one millisecond share an entry.
    'ours-moving'       => ours('', limit => '100000/1h', rule => 'window=moving cost=0.001'),
    # Like limit_req's.
    'ours-rate'         => ours('', limit => undef, rule => 'rate=1/1s burst=1000000'),
    'ours-sliding-ietf' => ours('', headers => 'ietf'),
    'ours-periodic'     => ours("$store ratelimit_namespace default { store main; sync_rate 1s; }"),
    'ours-synchronous'       => ours($synchronous, asks => 1),
    'ours-synchronous-fixed' => ours($synchronous, asks => 1, rule => 'window=fixed'),
    'ours-reserve'           => ours($synchronous =~ s/on_error/reserve on; $&/r, asks => 1, reserves => 1),
    'lua-redis' => {%{lua('', "access_by_lua_block {\n$lua_redis}")}, asks => 1},
);
my %contestants = @contestants;
@names = map { $contestants[2 * $_] } 0 .. $#contestants / 2 if !@names;
unshift @names, 'bare' if !grep { $_ eq 'bare' } @names;
exists $contestants{$_} or die "no such contestant: $_\n" for @names;

sub lua {
    my ($http, $location) = @_;
    return {main => lua_modules($lua), http => $http, location => $location};
}

# Returns a configuration with a limit of the module. limit: the limit, if any; rule: its
# parameters; headers: their format.
sub ours {
    my ($http, %conf) = @_;
    my ($rule, $headers) = ($conf{rule} // '', $conf{headers} // 'off');
    my $limit = exists $conf{limit} ? $conf{limit} : '1000000000/1h';
    $rule = "limit=$limit $rule" if defined $limit;
    return {
        main     => "load_module $module;",
        http     => "ratelimit_zone zone=bench:$zone; $http",
        location => "ratelimit_key \$arg_k; ratelimit_headers $headers; "
            . "ratelimit $rule;",
        asks     => $conf{asks},
        reserves => $conf{reserves},
    };
}

my %servers;
for my $name (@names) {
    my %conf = $contestants{$name}->%*;
    $conf{main} .= "\nworker_cpu_affinity 01;" if $workers == 1;
    my $it = $servers{$name} = start_nginx($nginx, "$dir/$name", %conf, workers => $workers);
    $it->{stores}   = $conf{asks} ? [$redis] : [];
    $it->{reserves} = $conf{reserves};
    count($it, 1 .. $number);
    load($it, $keys, @client_by);
}

my %samples;
for my $round (1 .. $rounds) {
    print STDERR "\r$round of $rounds" if -t STDERR;
    for my $name (shuffle @names) {
        my $figures = measure($servers{$name});
        push @{$samples{$name}{$_}}, $figures->{$_} for keys %$figures;
    }
}
print STDERR "\r" if -t STDERR;

printf "%-24s %10s %20s %8s %20s %8s %10s\n", 'contestant', 'requests/s', 'over bare (95 %)',
    'us CPU', 'over bare (95 %)', 'us p50', 'us store';
my @lines;
for my $name (@names) {
    my ($of, $bare) = @samples{$name, 'bare'};
    my %line = (name => $name, workers => 0 + $workers, keys => $keys, rounds => 0 + $rounds);
    $line{$_} = median(@{$of->{$_}}) for keys %$of;
    for my $figure (qw(rate cpu)) {
        my @ratios = map { $of->{$figure}[$_] / $bare->{$figure}[$_] } 0 .. $rounds - 1;
        $line{"${figure}_over_bare"} = median(@ratios);
        $line{"${figure}_over_bare_interval"} = [interval(@ratios)];
    }
    push @lines, \%line;
    printf "%-24s %10.0f %20s %8.2f %20s %8.0f %10.2f\n", $name, $line{rate},
        ratio(@line{qw(rate_over_bare rate_over_bare_interval)}), $line{cpu},
        ratio(@line{qw(cpu_over_bare cpu_over_bare_interval)}), @line{qw(p50 store)};
}
write_results($results, @lines);

sub ratio {
    my ($ratio, $interval) = @_;
    return sprintf '%.2f (%.2f to %.2f)', $ratio, @$interval;
}

# Runs one round of a contestant.
sub measure {
    my ($it) = @_;
    # Fills the reserves, because unused ones are given back while others are measured.
    load($it, $keys, @client_by) if $it->{reserves};
    my ($cpu, $store) = (cpu($it->{workers}->@*), cpu($it->{stores}->@*));
    my $of = load($it, $keys, @client_by);
    $cpu   = cpu($it->{workers}->@*) - $cpu;
    $store = cpu($it->{stores}->@*) - $store;
    return {
        rate  => $of->{rate},
        cpu   => 1e6 * ($cpu + $store) / $of->{requests},
        store => 1e6 * $store / $of->{requests},
        p50   => $of->{p50},
    };
}
