# Tests the variables of the tightest limit, and $ratelimit_net. status.t tests
# $ratelimit_status.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# `cost=0` reads counters without counting. Access logs are written to the file of
# the error log, where the section error_log finds them.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;
    # $all combines the namespace, limit, window, rate, remaining hits, reset and Retry-After.
    $block->set_value(http_config => ($block->http_config // '') . <<'END');
    ratelimit_zone zone=counters:1m;
    map "" $all {
        volatile;
        default "$ratelimit_namespace $ratelimit_limit $ratelimit_window $ratelimit_rate $ratelimit_remaining <$ratelimit_reset> <$ratelimit_retry_after>";
    }
    log_format all 'logged: [$ratelimit_status $all]';
END
    complete($block);
});

no_long_string();
run_tests();

__DATA__

=== after the decision, each has the value of the limit
--- config
    location /t {
        ratelimit limit=2.5/366d window=fixed;
        add_header Namespace   "<$ratelimit_namespace>"   always;
        add_header Limit       "<$ratelimit_limit>"       always;
        add_header Window      "<$ratelimit_window>"      always;
        add_header Rate        "<$ratelimit_rate>"        always;
        add_header Remaining   "<$ratelimit_remaining>"   always;
        add_header Reset       "<$ratelimit_reset>"       always;
        add_header Wait        "<$ratelimit_retry_after>" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
my $left = main::seconds_left() . '(?:\.\d{1,3})?';
my $same = "Namespace: <default>\nLimit: <2\\.5>\nWindow: <31622400>\nReset: <$left>\n";
["${same}Rate: <1>\nRemaining: <1>",
 "${same}Rate: <2>\nRemaining: <0>",
 "${same}Rate: <2>\nRemaining: <0>\nWait: <$left>"]



=== before the decision they are empty, and that is not remembered
--- config
    location /t {
        set $before "<$all>";
        ratelimit limit=1/366d;
        add_header Before $before always;
        add_header After  "<$all>" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
[('Before: <     <> <>>
After: <default 1 31622400 1 0 <\d+[.\d]*> <\d+[.\d]*>>') x 2]



=== they are empty where no rule applied
--- config
    add_header All "[$all]" always;
    location /none   { empty_gif; }
    location /off    { ratelimit off; empty_gif; }
    location /return { ratelimit limit=1/366d; return 200; }
    location /key    { ratelimit_key $arg_k; ratelimit limit=1/366d; empty_gif; }
    location /limit  { ratelimit limit=$arg_n/366d; empty_gif; }
--- request eval
["GET /none", "GET /off", "GET /return", "GET /key", "GET /limit", "GET /limit?n=x", "GET /missing", "GET /key?k=a"]
--- error_code eval
[(200) x 6, 404, 200]
--- response_headers_like eval
[('All: \[     <> <>\]') x 7, 'All: \[default 1 31622400 1 0 .*']



=== they are of the limit with the smallest share remaining, whichever rule has it
--- http_config
    ratelimit_namespace api { }
--- config
    add_header All "$ratelimit_namespace $ratelimit_limit $ratelimit_window $ratelimit_rate $ratelimit_remaining" always;
    location /t {
        ratelimit limit=10/366d limit=4.5/365d;
        ratelimit api limit=5/364d key=$arg_k;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=b", "GET /t?k=b", "GET /t?k=b"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers eval
["All: default 4.5 31536000 1 3", "All: default 4.5 31536000 2 2", "All: default 4.5 31536000 3 1", "All: default 4.5 31536000 4 0", "All: default 4.5 31536000 4 0"]



=== they change to the limit that has become the tightest
--- http_config
    ratelimit_namespace api { }
--- config
    add_header All "$ratelimit_namespace $ratelimit_limit $ratelimit_window $ratelimit_rate $ratelimit_remaining" always;
    location /t {
        ratelimit limit=10/366d cost=$arg_a;
        ratelimit api limit=10/365d window=fixed cost=$arg_b;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=2", "GET /t?a=3&b=1", "GET /t?a=1&b=4", "GET /t?a=5&b=0"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["All: api 10 31536000 2 8", "All: default 10 31622400 4 6", "All: api 10 31536000 7 3", "All: default 10 31622400 10 0"]



=== the tightest has the smallest share remaining, though another one refused
--- config
    add_header All "$ratelimit_limit $ratelimit_rate $ratelimit_remaining" always;
    location /t {
        ratelimit limit=100/366d cost=$arg_a;
        ratelimit limit=10/365d cost=$arg_b;
        empty_gif;
    }
--- request eval
["GET /t?a=50&b=8", "GET /t?a=60&b=1"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['All: 10 8 2', 'All: 10 8 2
RateLimit: "default-365d";r=2;t=\d+, "default-366d";r=50;t=\d+']



=== hits are decimals, what remains is whole
--- config
    location /t {
        ratelimit limit=$arg_n/366d cost=$arg_c;
        add_header All "$ratelimit_limit $ratelimit_rate $ratelimit_remaining" always;
        empty_gif;
    }
--- request eval
["GET /t?n=1.50&c=0.25", "GET /t?n=1.500&c=0.25", "GET /t?n=2.001&c=0.001", "GET /t?n=100000000000&c=99999999999"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["All: 1.5 0.25 1", "All: 1.5 0.5 1", "All: 2.001 0.501 1", "All: 100000000000 99999999999.501 0"]



=== windows are in seconds with up to three decimals
--- config
    add_header Window "<$ratelimit_window>";
    location /1ms    { ratelimit limit=9/1ms; empty_gif; }
    location /500ms  { ratelimit limit=9/500ms; empty_gif; }
    location /1250ms { ratelimit limit=9/1.250; empty_gif; }
    location /1s     { ratelimit limit=9/1000ms; empty_gif; }
    location /1m     { ratelimit limit=9/1m; empty_gif; }
    location /1h30m  { ratelimit limit=9/1h30m; empty_gif; }
    location /1M     { ratelimit limit=9/1M; empty_gif; }
--- request eval
[map {"GET /$_"} qw(1ms 500ms 1250ms 1s 1m 1h30m 1M)]
--- error_code eval
[(200) x 7]
--- response_headers eval
[map {"Window: <$_>"} qw(0.001 0.5 1.25 1 60 5400 2592000)]



=== with a cost of 0, the rate is what was counted before
--- config
    add_header All "$ratelimit_rate $ratelimit_remaining" always;
    location /t    { ratelimit limit=9/366d cost=2; empty_gif; }
    location /look { ratelimit limit=9/366d cost=0; empty_gif; }
--- request eval
["GET /look", "GET /t", "GET /look", "GET /t", "GET /look"]
--- error_code eval
[(200) x 5]
--- response_headers eval
["All: 0 9", "All: 2 7", "All: 2 7", "All: 4 5", "All: 4 5"]



=== a rate may be above the limit: nothing remains
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit limit=1/366d;
        add_header All "$ratelimit_rate $ratelimit_remaining" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["All: 1 0", "All: 2 0", "All: 3 0"]



=== the reset is the window's end while something remains, else when one more is admitted
--- config
    location /t {
        ratelimit limit=2/366d;
        add_header Reset $ratelimit_reset always;
        add_header Wait  $ratelimit_retry_after always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
my ($end, $half) = map { main::seconds_left($_) . '(?:\.\d{1,3})?' } 0, 31622400 / 2;
["Reset: $end", "Reset: $half", "Reset: $half\nWait: $half"]



=== times of a hit that is never admitted are empty
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        add_header All "[$all]" always;
        empty_gif;
    }
--- request eval
["GET /t?n=0.5", "GET /t?n=0"]
--- error_code eval
[429, 429]
--- response_headers eval
["All: [default 0.5 31622400 0 0 <> <>]", "All: [default 0 31622400 0 0 <> <>]"]



=== they do not depend on the headers that are sent
--- config
    location /t {
        ratelimit_headers off;
        ratelimit limit=1/366d;
        add_header All "[$all]" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
[('All: \[default 1 31622400 1 0 <\d+[.\d]*> <\d+[.\d]*>\]') x 2]



=== the policy and the key are those of the tightest limit
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=9/366d "name=one client";
        ratelimit limit=2/365d key=$http_user_agent;
        add_header Tightest "<$ratelimit_policy> <$ratelimit_key>" always;
        empty_gif;
    }
--- more_headers
User-Agent: me
--- request eval
["GET /t?k=a", "GET /t?k=", "GET /t?k=b", "GET /none"]
--- error_code eval
[200, 200, 429, 404]
--- response_headers eval
["Tightest: <default-365d> <me>", "Tightest: <default-365d> <me>", "Tightest: <default-365d> <me>", ""]



=== the key is what was sent, also if it is counted by its digest, and after a redirect
--- config
    location /t {
        ratelimit limit=1/366d key=$uri$arg_k;
        error_page 429 =200 /page;
        rewrite ^ /t break;
        add_header Key $ratelimit_key always;
        add_header Policy $ratelimit_policy always;
        empty_gif;
    }
    location /page { return 200 "$ratelimit_key\n"; }
--- request eval
my $long = 'k' x 300;
["GET /t?k=$long", "GET /t?k=$long", "GET /t?k=sha256:a"]
--- response_headers eval
my $long = 'k' x 300;
["Key: /t$long\nPolicy: default-366d", "", "Key: /tsha256:a"]
--- response_body_like eval
my $long = 'k' x 300;
[qr/GIF/, qr{^/t$long\n$}, qr/GIF/]



=== in a dry run they are what they would be
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=1/366d window=fixed;
        add_header All "[$all]";
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_headers_like eval
my $left = main::seconds_left() . '(?:\.\d{1,3})?';
[('All: \[default 1 31622400 1 0 <' . $left . '> <' . $left . '>\]') x 2]



=== a log shows them: an admitted request
--- config
    location /t {
        ratelimit limit=3/366d;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log all;
        empty_gif;
    }
--- request
GET /t
--- error_log eval
qr/^logged: \[PASSED default 3 31622400 1 2 <\d+[.\d]*> </m



=== a log shows them: a rejected request
--- config
    location /t {
        ratelimit limit=1/366d cost=2;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log all;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log
logged: [REJECTED default 1 31622400 0 1 <> <>]



=== a log shows that there are none where no rule applied
--- http_config
    log_format not_found 'logged: [$ratelimit_status $all] $ratelimit_key $ratelimit_retry_after $ratelimit_rule';
--- config
    access_log $TEST_NGINX_SERVER_ROOT/logs/error.log not_found;
    location /t { empty_gif; }
    location /u { ratelimit limit=1/366d key=$arg_k; empty_gif; }
--- request eval
["GET /t", "GET /u"]
--- error_log
logged: [-      <> <>] - - -
--- no_error_log eval
qr/^logged: \[[^-]/m



=== the rule is told by its place
--- http_config
    include ../html/rules.conf;
--- config
    add_header Rule "<$ratelimit_rule>" always;
    location /inherited { empty_gif; }
    location /tightest {
        ratelimit limit=9/365d key=$arg_k
                  limit=2/366d;
        ratelimit limit=1/366d name=own counter=own key=k; # here
        empty_gif;
    }
    location /off { ratelimit off; empty_gif; }
--- user_files
>>> rules.conf
ratelimit_key k;

ratelimit limit=100/366d;
--- request eval
["GET /inherited", "GET /tightest?k=a", "GET /off"]
--- response_headers_like eval
['Rule: <../html/rules\.conf:3>', 'Rule: <nginx\.conf:\d+>', 'Rule: <>']



=== a log shows the rate of the decision, not what was charged since
--- config
    location /t {
        ratelimit limit=3/366d charge=2;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log all;
        empty_gif;
    }
--- request
GET /t
--- error_log
logged: [PASSED default 3 31622400 0 3 <



=== the body of an error page may tell them
--- config
    location /t {
        ratelimit limit=1/366d window=fixed;
        error_page 429 /sorry;
        empty_gif;
    }
    location /sorry {
        return 429 "Only $ratelimit_limit in $ratelimit_window s: come back in $ratelimit_retry_after s.";
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_body_like eval
["GIF", '\AOnly 1 in 31622400 s: come back in ' . main::seconds_left() . '(?:\.\d{1,3})? s\.\z']



=== the body of a named location may tell them
--- config
    location /t {
        ratelimit limit=0.5/366d;
        error_page 429 =503 @sorry;
        empty_gif;
    }
    location @sorry { return 503 "$all"; }
--- request
GET /t
--- error_code: 503
--- response_body eval
"default 0.5 31622400 0 0 <> <>"



=== an upstream can be told
--- config
    location /t {
        ratelimit limit=3/366d;
        proxy_set_header X-Remaining $ratelimit_remaining;
        proxy_pass http://127.0.0.1:$server_port/upstream?limit=$ratelimit_limit&rate=$ratelimit_rate;
    }
    location /upstream { return 200 "$arg_limit $arg_rate $http_x_remaining"; }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_body eval
["3 1 2", "3 2 1"]



=== an upstream of a request without rules is told nothing
--- config
    location /t {
        proxy_set_header X-Remaining $ratelimit_remaining;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200 "<$http_x_remaining>"; }
--- request
GET /t
--- response_body: <>



=== they survive internal redirects, and the locations that these lead to do not change them
--- config
    location /t      { ratelimit limit=9/366d; try_files /missing /second; }
    location /second { ratelimit limit=1/365d; try_files /missing @third; }
    location @third  { return 200 "$ratelimit_limit $ratelimit_window $ratelimit_rate"; }
--- request
GET /t
--- response_body: 9 31622400 1



=== subrequests see those of their request
--- config
    location /page.txt { ratelimit limit=9/366d; ssi on; ssi_types text/plain; }
    location /part     { proxy_pass http://127.0.0.1:$server_port/echo?$ratelimit_limit-$ratelimit_remaining; }
    location /echo     { return 200 $args; }
--- user_files
>>> page.txt
<!--#include virtual="/part" -->
--- request
GET /page.txt
--- response_body eval
"9-8\n"



=== a page can show them by SSI
--- config
    location /page.txt { ratelimit limit=9/366d; ssi on; ssi_types text/plain; }
--- user_files
>>> page.txt
<!--#echo var="ratelimit_remaining" --> of <!--#echo var="ratelimit_limit" -->
--- request
GET /page.txt
--- response_body
8 of 9



=== a map can choose by them
--- http_config
    map $ratelimit_remaining $warning { default ""; ~^[01]$ "nearly used up"; }
--- config
    location /t {
        ratelimit limit=3/366d;
        add_header X-Warning "<$warning>" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers eval
["X-Warning: <>", ("X-Warning: <nearly used up>") x 3]



=== each request of a connection has its own
--- config
    add_header All "<$ratelimit_limit $ratelimit_rate>" always;
    location /t { ratelimit limit=2/366d; empty_gif; }
    location /u { empty_gif; }
--- pipelined_requests eval
["GET /t", "GET /u", "GET /t", "GET /t", "GET /u"]
--- error_code eval
[200, 200, 200, 429, 200]
--- response_headers eval
["All: <2 1>", "All: < >", "All: <2 2>", "All: <2 2>", "All: < >"]



=== net: an IPv4 address is itself
--- config
    location /t { return 200 "<$ratelimit_net>"; }
--- request
GET /t
--- response_body: <127.0.0.1>



=== net: of the client's address, as realip sets it
--- config
    set_real_ip_from 127.0.0.1;
    location /t { return 200 "<$ratelimit_net>"; }
--- request eval
[("GET /t") x 21]
--- more_headers eval
[map {"X-Real-IP: $_"} qw(
    192.0.2.1 203.0.113.255
    2001:db8:1:2:3:4:5:6 2001:db8:1:2:: 2001:DB8:1:2:ffff:ffff:ffff:ffff
    2001:db8::1 2001:db8:0:1::1 2001::2:0:0:0:3 ::1 fe80::1 1:2:3:4:5:6:7:8
    ::ffff:192.0.2.7 ::ffff:c000:207 ::192.0.2.7 ::fffe:192.0.2.7
    64:ff9b::192.0.2.8 64:ff9b::c000:209 64:ff9b::1:c000:209 64:ff9b:1::192.0.2.8 64:ff9a::192.0.2.8
    [2001:db8:1:2::3]:443
)]
--- error_code eval
[(200) x 21]
--- response_body eval
[map {"<$_>"} qw(
    192.0.2.1 203.0.113.255
    2001:db8:1:2::/64 2001:db8:1:2::/64 2001:db8:1:2::/64
    2001:db8::/64 2001:db8:0:1::/64 2001:0:0:2::/64 ::/64 fe80::/64 1:2:3:4::/64
    192.0.2.7 192.0.2.7 ::/64 ::/64
    192.0.2.8 192.0.2.9 64:ff9b::/64 64:ff9b:1::/64 64:ff9a::/64
    2001:db8:1:2::/64
)]



=== net: of the last address of X-Forwarded-For that is not trusted
--- config
    set_real_ip_from 127.0.0.0/8;
    set_real_ip_from 2001:db8:ff::/48;
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;
    location /t { return 200 "<$ratelimit_net>"; }
--- request eval
[("GET /t") x 3]
--- more_headers eval
["X-Forwarded-For: 192.0.2.9, 2001:db8:1:2:3::4, 2001:db8:ff::1", "X-Forwarded-For: 192.0.2.9", ""]
--- error_code eval
[200, 200, 200]
--- response_body eval
["<2001:db8:1:2::/64>", "<192.0.2.9>", "<127.0.0.1>"]



=== net: empty for a Unix socket
--- http_config
    server {
        listen unix:$TEST_NGINX_SERVER_ROOT/logs/nginx.sock;
        set_real_ip_from unix:;
        location /t { return 200 "<$ratelimit_net>"; }
        location /v {
            ratelimit_key $ratelimit_net;
            ratelimit limit=0.5/366d;
            empty_gif;
        }
    }
--- config
    location ~ ^/[tv]$ {
        proxy_set_header X-Real-IP $http_x_real_ip;
        proxy_pass http://unix:$TEST_NGINX_SERVER_ROOT/logs/nginx.sock:;
    }
--- request eval
["GET /t", "GET /t", "GET /v", "GET /v"]
--- more_headers eval
["", "X-Real-IP: 2001:db8:1:2::3", "", "X-Real-IP: 2001:db8:1:2::3"]
--- error_code eval
[200, 200, 200, 429]
--- response_body_like eval
['\A<>\z', '\A<2001:db8:1:2::/64>\z', 'GIF', '429']



=== net: one key for all addresses of a client's IPv6 network
--- config
    set_real_ip_from 127.0.0.1;
    ratelimit_key $ratelimit_net;
    location /t { ratelimit limit=2/366d; empty_gif; }
--- request eval
[("GET /t") x 9]
--- more_headers eval
[map {"X-Real-IP: $_"} qw(2001:db8:1:2::1 2001:db8:1:2::2 2001:db8:1:2:ffff::3 2001:db8:1:3::1
    192.0.2.1 ::ffff:192.0.2.1 192.0.2.1 192.0.2.2 ::ffff:192.0.2.2)]
--- error_code eval
[200, 200, 429, 200, 200, 200, 429, 200, 200]



=== net: realip in a location has its turn before the rules
--- config
    location /t {
        set_real_ip_from 127.0.0.1;
        set $before $ratelimit_net;
        ratelimit_key $ratelimit_net;
        ratelimit limit=1/366d;
        add_header X-Nets "$before $ratelimit_net" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- more_headers eval
["X-Real-IP: 2001:db8:1:2::1", "X-Real-IP: 2001:db8:1:2::ff", "X-Real-IP: 2001:db8:1:3::1", ""]
--- error_code eval
[200, 429, 200, 200]
--- response_headers eval
[map {"X-Nets: 127.0.0.1 $_"} "2001:db8:1:2::/64", "2001:db8:1:2::/64", "2001:db8:1:3::/64", "127.0.0.1"]



=== net: it does not need rules, nor a zone that is used
--- config
    add_header X-Net $ratelimit_net always;
--- request eval
["GET /", "GET /missing"]
--- error_code eval
[200, 404]
--- response_headers eval
[("X-Net: 127.0.0.1") x 2]
