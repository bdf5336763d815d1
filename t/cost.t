# Tests how much a request counts: `cost=` is known when the request is decided,
# `charge=` when the response has been sent.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# `cost=0` reads counters without counting.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== cost: a constant
--- config
    location /t {
        ratelimit limit=10/366d cost=3;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers_like eval
[main::left(7, 4, 1, 1, 1)]



=== cost: without it, a request is one hit
--- config
    location /one     { ratelimit limit=9/366d cost=1; empty_gif; }
    location /default { ratelimit limit=9/366d; empty_gif; }
--- request eval
["GET /one", "GET /default", "GET /one"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
[main::left(8, 7, 6)]



=== cost: decimals, exactly
--- config
    location /tenth      { ratelimit_key tenth; ratelimit limit=0.3/366d cost=0.1; empty_gif; }
    location /thousandth { ratelimit_key thousandth; ratelimit limit=0.002/366d window=fixed cost=0.001; empty_gif; }
    location /third      { ratelimit_key third; ratelimit limit=1/366d cost=0.333; empty_gif; }
--- request eval
[("GET /tenth") x 4, ("GET /thousandth") x 3, ("GET /third") x 4]
--- error_code eval
[(200) x 3, 429, (200) x 2, 429, (200) x 3, 429]



=== cost: a variable, another one with each request
--- config
    location /t {
        ratelimit limit=10/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} 2, 3.5, 0.25, 5, 4.25, 0.001]
--- error_code eval
[200, 200, 200, 429, 200, 429]
--- response_headers_like eval
[main::left(8, 4, 4, 4, 0, 0)]



=== cost: text and variables
--- config
    location /t {
        ratelimit limit=100/366d "cost=1${arg_c}.5";
        empty_gif;
    }
--- request eval
["GET /t?c=2", "GET /t"]
--- error_code eval
[200, 200]
--- response_headers_like eval
[main::left(87, 86)]



=== cost: the bytes of a request's body
--- config
    location /t {
        ratelimit limit=100/366d cost=$content_length;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200; }
--- request eval
["POST /t\n" . "x" x 60, "POST /t\n" . "x" x 41, "POST /t\n" . "x" x 40]
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
[main::left(40, 40, 0)]



=== cost: one that another module found out, by a map
--- http_config
    ratelimit_zone zone=counters:1m;
    map $request_method $method_cost { GET 1; HEAD 0.5; default 5; }
--- config
    location /t {
        ratelimit limit=10/366d cost=$method_cost;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200; }
--- request eval
["GET /t", "HEAD /t", "POST /t\nbody", "DELETE /t", "HEAD /t"]
--- error_code eval
[200, 200, 200, 429, 200]
--- response_headers_like eval
[main::left(9, 8, 3, 3, 3)]



=== cost: 0 asks without counting
--- config
    location /ask { ratelimit limit=2/366d cost=0; empty_gif; }
    location /t   { ratelimit limit=2/366d; empty_gif; }
--- request eval
["GET /ask", "GET /ask", "GET /ask", "GET /t", "GET /ask", "GET /t", "GET /ask", "GET /ask"]
--- error_code eval
[200, 200, 200, 200, 200, 200, 429, 429]
--- response_headers_like eval
[main::left(2, 2, 2, 1, 1, 0, 0, 0)]



=== cost: 0 from a variable asks too
--- config
    location /t {
        ratelimit limit=2/366d window=fixed cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "0", "0.0", "1", "0", "1", "0", "0.000"]
--- error_code eval
[200, 200, 200, 200, 200, 429, 429]
--- response_headers_like eval
[main::left(2, 2, 1, 1, 0, 0, 0)]



=== cost: 0 is admitted while anything is left, were it less than a hit
--- config
    location /t {
        ratelimit limit=1/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "0.999", "1", "0", "0.001", "0"]
--- error_code eval
[200, 429, 200, 200, 429]



=== cost: a request that only asks and is rejected is told when to ask again
--- config
    location /fixed   { ratelimit limit=1/366d window=fixed cost=$arg_c; empty_gif; }
    location /sliding { ratelimit limit=1/366d cost=0; empty_gif; }
--- request eval
["GET /fixed?c=1", "GET /fixed?c=0", "GET /sliding"]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
# The window is sliding, so that the rate is below the limit at any time after its end.
['Retry-After: ', ('Retry-After: ' . main::seconds_left()) x 2]



=== cost: one that is empty counts 1, which is no error
--- config
    location /t {
        ratelimit limit=3.5/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?c=", "GET /t", "GET /t?c=0.5", "GET /t"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers_like eval
[main::left(2, 1, 0, 0, 0)]



=== cost: one that is empty is not logged as an error
--- config
    location /t {
        ratelimit limit=3/366d cost=$arg_c;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
main::left(2)
--- no_error_log
[error]



=== cost: a wrong value counts 1
--- config
    location /t {
        ratelimit limit=100/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} '1,5', qw(x -1 -0 5x 1e3 +5 5. 1.2.3 5%20 0x5 NaN 50)]
--- error_code eval
[(200) x 13]
--- response_headers_like eval
[main::left(CORE::reverse(88 .. 99), 38)]



=== cost: a wrong value is logged as an error
--- config
    location /t {
        ratelimit limit=5/366d cost=$arg_c;
        empty_gif;
    }
--- request
GET /t?c=5x
--- response_headers_like eval
main::left(4)
--- error_log eval
qr/\[error\] .*ratelimit: .*cost.*"5x".*\b1 is counted/



=== cost: a negative one is logged as an error
--- config
    location /t {
        ratelimit limit=5/366d cost=$arg_c;
        empty_gif;
    }
--- request
GET /t?c=-1
--- response_headers_like eval
main::left(4)
--- error_log eval
qr/\[error\] .*ratelimit: .*cost.*"-1".*\b1 is counted/



=== cost: the whole limit is admitted, more than it never: no Retry-After, and nothing is charged
--- config
    location /t {
        ratelimit limit=5/366d cost=$arg_c;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "5.001", "6", "99999999999999999999999", "5", "6"]
--- error_code eval
[429, 429, 429, 200, 429]
--- response_headers eval
[('RateLimit: "default-366d";r=5
!Retry-After
X-Status: REJECTED') x 3,
'X-Status: PASSED
!Retry-After',
'RateLimit: "default-366d";r=0
!Retry-After
X-Status: REJECTED']



=== cost: more than the limit of a fixed window
--- config
    location /t {
        ratelimit limit=5/366d window=fixed cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "5.001", "5"]
--- error_code eval
[429, 200]
--- response_headers eval
['RateLimit: "default-366d";r=5
!Retry-After', '!Retry-After']



=== cost: more than one of several limits charges none
--- config
    location /t {
        ratelimit cost=$arg_c limit=9/366d limit=2/365d limit=9/364d;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "3", "2"]
--- error_code eval
[429, 200]
--- response_headers_like eval
['RateLimit: "default-365d";r=2, "default-366d";r=9;t=\d+, "default-364d";r=9;t=\d+
Retry-After: ',
 'RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=7;t=\d+, "default-364d";r=7;t=\d+
Retry-After: ']



=== cost: what does not fit is rejected, and a cheaper request is still admitted
--- config
    location /t {
        ratelimit limit=10/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} 6, 5, 4.001, 4, 0.001]
--- error_code eval
[200, 429, 429, 200, 429]



=== cost: the reset and Retry-After are when so many hits would be admitted
--- config
    location /fixed {
        ratelimit_key fixed;
        ratelimit limit=10/366d window=fixed cost=$arg_c;
        empty_gif;
    }
    location /sliding {
        ratelimit limit=10/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
["GET /fixed?c=6", "GET /fixed?c=10", "GET /sliding?c=10", "GET /sliding?c=5", "GET /sliding?c=10", "GET /sliding?c=2.5"]
--- error_code eval
[200, 429, 200, 429, 429, 429]
--- response_headers_like eval
my $size = 31622400;
my $rejected = sub {
    my ($r, $t) = @_;
    return qq(RateLimit: "default-366d";r=$r;t=$t\nRetry-After: $t);
};
# In the next window, the weight of these hits decreases: 10 * 1/2 + 5, 10 * 0 + 10, 10 * 3/4 + 2.5.
['RateLimit: "default-366d";r=4;t=' . main::seconds_left(),
 $rejected->(4, main::seconds_left()),
 'RateLimit: "default-366d";r=0;t=' . main::seconds_left($size),
 $rejected->(0, main::seconds_left($size / 2)),
 $rejected->(0, main::seconds_left($size)),
 $rejected->(0, main::seconds_left($size / 4))]



=== cost: each rule has its own
--- config
    location /t {
        ratelimit limit=5/366d;
        ratelimit limit=100/365d cost=$arg_c;
        ratelimit limit=4/364d cost=0.5;
        empty_gif;
    }
--- request eval
["GET /t?c=60", "GET /t?c=41", "GET /t?c=40", "GET /t?c=0"]
--- error_code eval
[200, 429, 200, 429]
--- response_headers_like eval
['RateLimit: "default-365d";r=40;t=\d+, "default-366d";r=4;t=\d+, "default-364d";r=3;t=\d+',
 'RateLimit: "default-365d";r=40;t=\d+, "default-366d";r=4;t=\d+, "default-364d";r=3;t=\d+',
 ('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=3;t=\d+, "default-364d";r=3;t=\d+') x 2]



=== cost: it is for all limits of its rule
--- config
    location /t {
        ratelimit cost=2 limit=9/366d limit=4/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-365d";r=2;t=\d+, "default-366d";r=7;t=\d+',
 ('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=5;t=\d+') x 2]



=== cost: totals of 10^11 are exact
--- config
    location /t {
        ratelimit limit=100000000000/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "99999999999.999", "0.002", "0.001", "0.001"]
--- error_code eval
[200, 429, 200, 429]



=== cost: a rule that only asks shares its counter with one that counts, whichever comes first
--- config
    location /first {
        ratelimit_key first;
        ratelimit limit=1.5/366d cost=0 name=asks;
        ratelimit limit=9/366d name=counts;
        empty_gif;
    }
    location /last {
        ratelimit_key last;
        ratelimit limit=9/366d name=counts;
        ratelimit limit=1.5/366d cost=0 name=asks;
        empty_gif;
    }
--- request eval
["GET /first", "GET /first", "GET /first", "GET /last", "GET /last", "GET /last"]
--- error_code eval
[(200, 200, 429) x 2]



=== cost: remaining is told after the request, by rules that only ask too
--- config
    location /first {
        ratelimit_key first;
        ratelimit limit=5/366d cost=0 name=asks;
        ratelimit limit=9/366d name=counts;
        empty_gif;
    }
    location /last {
        ratelimit_key last;
        ratelimit limit=9/366d name=counts;
        ratelimit limit=5/366d cost=0 name=asks;
        empty_gif;
    }
--- request eval
["GET /first", "GET /first", "GET /last", "GET /last"]
--- error_code eval
[(200) x 4]
--- response_headers_like eval
[('RateLimit: "asks";r=4;t=\d+, "counts";r=8;t=\d+', 'RateLimit: "asks";r=3;t=\d+, "counts";r=7;t=\d+') x 2]



=== cost: it is evaluated when the request is decided on
--- config
    location /t {
        set $c 1;
        try_files /missing /second;
    }
    location /second {
        set $c 3;
        ratelimit limit=9/366d cost=$c;
        try_files /missing @third;
    }
    location @third {
        set $c 5;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 200]
--- response_headers_like eval
[main::left(6, 3)]



=== charge: hits are counted after the response
--- config
    location /t {
        ratelimit limit=2/366d charge=1;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
[main::left(2, 1, 0, 0)]



=== charge: a request is admitted while the rate is below the limit, and may exceed it
--- config
    location /t    { ratelimit limit=10/366d charge=7; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /t", "GET /look", "GET /t", "GET /look"]
--- error_code eval
[200, 200, 200, 200, 429, 200]
--- response_headers_like eval
[main::left(10, 93, 3, 86, 0, 86)]



=== charge: exactly the limit closes it
--- config
    location /t {
        ratelimit limit=10/366d window=fixed charge=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} "9.999", "0.001", "0"]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[main::left(10, 0, 0)]



=== charge: more than the limit is admitted, and counted
--- config
    location /t    { ratelimit limit=1/366d charge=50; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /t"]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[main::left(1, 50, 0)]



=== charge: decimals
--- config
    location /u {
        ratelimit_key u;
        ratelimit limit=3/366d charge=0.75;
        empty_gif;
    }
    location /t {
        ratelimit limit=0.3/366d charge=0.1;
        empty_gif;
    }
--- request eval
[("GET /t") x 5, ("GET /u") x 5]
--- error_code eval
[200, 200, 200, 429, 429, (200) x 4, 429]
--- response_headers_like eval
[main::left(0, 0, 0, 0, 0, 3, 2, 1, 0, 0)]



=== charge: 0 counts nothing
--- config
    location /t    { ratelimit limit=1/366d charge=$arg_c; empty_gif; }
--- request eval
[map {"GET /t?c=$_"} 0, 0, "0.000", 1, 0]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers_like eval
[main::left(1, 1, 1, 1, 0)]



=== charge: the rejected are told when the rate will be below the limit
--- config
    location /fixed   { ratelimit_key fixed; ratelimit limit=10/366d window=fixed charge=20; empty_gif; }
    location /sliding { ratelimit limit=10/366d charge=40; empty_gif; }
--- request eval
["GET /fixed", "GET /fixed", "GET /sliding", "GET /sliding"]
--- error_code eval
[200, 429, 200, 429]
--- response_headers_like eval
# In the next window, the weight of the 40 hits decreases: 40 * 1/4 is 10.
my $sliding = main::seconds_left(31622400 * 3 / 4);
['RateLimit: "default-366d";r=10;t=' . main::seconds_left() . '
Retry-After: ',
'RateLimit: "default-366d";r=0;t=' . main::seconds_left() . '
Retry-After: ' . main::seconds_left(),
'RateLimit: "default-366d";r=10;t=' . main::seconds_left() . '
Retry-After: ',
"RateLimit: \"default-366d\";r=0;t=$sliding
Retry-After: $sliding"]



=== charge: what an upstream's header says
--- config
    location /t {
        ratelimit limit=100/366d charge=$upstream_http_x_tokens;
        proxy_pass http://127.0.0.1:$server_port/upstream?$args;
    }
    location /upstream {
        add_header X-Tokens $arg_n always;
        return 200 "tokens";
    }
    location /look { ratelimit limit=1000/366d cost=0; empty_gif; }
--- request eval
["GET /t?n=60", "GET /look", "GET /t?n=39.5", "GET /look", "GET /t?n=500", "GET /look", "GET /t?n=1", "GET /look"]
--- error_code eval
[200, 200, 200, 200, 200, 200, 429, 200]
--- response_headers_like eval
[main::left(100, 940, 40, 900, 0, 400, 0, 400)]
--- response_body_like eval
["tokens", "GIF", "tokens", "GIF", "tokens", "GIF", "429", "GIF"]



=== charge: an upstream that does not say counts nothing, and is no error
--- config
    location /t {
        ratelimit limit=100/366d charge=$upstream_http_x_tokens;
        proxy_pass http://127.0.0.1:$server_port/upstream?$args;
    }
    location /upstream { add_header X-Tokens $arg_n; return 200; }
    location /look { ratelimit limit=1000/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /look", "GET /t?n=50", "GET /look"]
--- error_code eval
[(200) x 5]
--- response_headers_like eval
[main::left(100, 100, 1000, 100, 950)]
--- no_error_log
[error]



=== charge: failed logins, by a map
--- http_config
    ratelimit_zone zone=counters:1m;
    map $status $failed { 401 1; 403 1; default 0; }
--- config
    location /login {
        ratelimit limit=2/366d charge=$failed;
        proxy_pass http://127.0.0.1:$server_port/upstream?$args;
    }
    location /upstream {
        if ($arg_p != right) { return 401; }
        return 200;
    }
--- request eval
["GET /login?p=wrong", "GET /login?p=right", "GET /login?p=right", "GET /login?p=right", "GET /login?p=wrong", "GET /login?p=right"]
--- error_code eval
[401, 200, 200, 200, 401, 429]
--- response_headers_like eval
[main::left(2, 1, 1, 1, 1, 0)]



=== charge: bytes of responses
--- config
    location /t/ { ratelimit limit=2500/366d charge=$body_bytes_sent; }
--- user_files eval
[["t/page.txt" => "x" x 1000]]
--- request eval
["GET /t/page.txt", "HEAD /t/page.txt", "GET /t/page.txt", "GET /t/page.txt", "GET /t/page.txt"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers_like eval
[main::left(2500, 1500, 1500, 500, 0)]



=== charge: responses of every status are charged
--- config
    location /t/denied { deny all; }
    location /t/502    { proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1; }
    location /t/       { }
    ratelimit limit=9/366d charge=1;
--- user_files
>>> t/directory/file.txt
hello
--- request eval
["GET /t/missing", "GET /t/denied", "GET /t/502", "GET /t/directory", "HEAD /t/directory/file.txt", "POST /t/directory/file.txt\nbody", "GET /t/directory/file.txt"]
--- error_code eval
[404, 403, 502, 301, 200, 405, 200]
--- response_headers_like eval
[main::left(CORE::reverse 3 .. 9)]



=== charge: a rejected request is not charged
--- http_config
    ratelimit_zone zone=counters:1m;
    map $status $charge { 429 50; default 1; }
--- config
    location /t    { ratelimit limit=1/366d charge=$charge; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /look"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers_like eval
[main::left(1, 0, 0, 99)]



=== charge: a request that another rule rejects is not charged
--- config
    location /t {
        ratelimit limit=9/366d charge=1;
        ratelimit limit=2/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
['RateLimit: "default-365d";r=1;t=\d+, "default-366d";r=9;t=\d+',
 'RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=\d+',
 ('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=7;t=\d+') x 2]



=== charge: a request that its rule rejects is not charged to the others
--- config
    location /t {
        ratelimit limit=9/366d;
        ratelimit limit=2/365d charge=2;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+, "default-365d";r=2;t=\d+',
 ('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=\d+') x 2]



=== charge: a wrong value counts nothing
--- config
    location /t {
        ratelimit limit=1/366d charge=$arg_c;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} qw(x -1 5x 1e3 +5 1.2.3 5.), 1, 1]
--- error_code eval
[(200) x 8, 429]



=== charge: a wrong value is logged as an error
--- config
    location /t {
        ratelimit limit=5/366d charge=$arg_c;
        empty_gif;
    }
--- request
GET /t?c=5x
--- response_headers_like eval
main::left(5)
--- error_log eval
qr/\[error\] .*ratelimit: .*charge.*"5x".*\b0 is counted/



=== charge: a negative one is logged as an error
--- config
    location /t {
        ratelimit limit=5/366d charge=-$arg_c;
        empty_gif;
    }
--- request
GET /t?c=1
--- response_headers_like eval
main::left(5)
--- error_log eval
qr/\[error\] .*ratelimit: .*charge.*"-1".*\b0 is counted/



=== charge: several limits of one rule
--- config
    location /t {
        ratelimit charge=$arg_c limit=9/366d limit=4/365d;
        empty_gif;
    }
--- request eval
[map {"GET /t?c=$_"} 3, 3, 1]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=9;t=\d+, "default-365d";r=4;t=\d+',
 'RateLimit: "default-365d";r=1;t=\d+, "default-366d";r=6;t=\d+',
 'RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=3;t=\d+']



=== charge: each rule has its own, and its own key
--- config
    location /t {
        ratelimit limit=9/366d charge=$arg_a key=$arg_k;
        ratelimit limit=9/365d charge=$arg_b;
        ratelimit limit=9/364d;
        empty_gif;
    }
--- request eval
["GET /t?k=1&a=1&b=2", "GET /t?k=2&a=3&b=2", "GET /t?k=1", "GET /t?k=2", "GET /t?b=5", "GET /t?k=3"]
--- error_code eval
[(200) x 5, 429]
--- response_headers_like eval
['RateLimit: "default-364d";r=8;t=\d+, "default-366d";r=9;t=\d+, "default-365d";r=9;t=\d+',
 'RateLimit: "default-365d";r=7;t=\d+, "default-364d";r=7;t=\d+, "default-366d";r=9;t=\d+',
 'RateLimit: "default-365d";r=5;t=\d+, "default-364d";r=6;t=\d+, "default-366d";r=8;t=\d+',
 'RateLimit: "default-365d";r=5;t=\d+, "default-364d";r=5;t=\d+, "default-366d";r=6;t=\d+',
 'RateLimit: "default-364d";r=4;t=\d+, "default-365d";r=5;t=\d+',
 'RateLimit: "default-365d";r=0;t=\d+, "default-364d";r=4;t=\d+, "default-366d";r=9;t=\d+']



=== charge: limits that share a counter charge it once
--- config
    location /t {
        ratelimit limit=9/366d limit=8/366d charge=2;
        ratelimit limit=7/366d window=fixed charge=2;
        empty_gif;
    }
    location /mixed {
        ratelimit_key mixed;
        ratelimit limit=9/366d;
        ratelimit limit=9/366d charge=1;
        empty_gif;
    }
    location /mixed_too {
        ratelimit_key mixed_too;
        ratelimit limit=9/366d charge=1;
        ratelimit limit=9/366d;
        empty_gif;
    }
    location /look { ratelimit_key $arg_k; ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /look?k=127.0.0.1", "GET /mixed", "GET /mixed", "GET /look?k=mixed",
 "GET /mixed_too", "GET /mixed_too", "GET /look?k=mixed_too"]
--- error_code eval
[(200) x 9]
--- response_headers_like eval
my ($any) = 'RateLimit: .+';
[$any, $any, main::left(96), $any, $any, main::left(98), $any, $any, main::left(98)]



=== charge: in several zones and namespaces
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace a { zone one; }
    ratelimit_namespace b { zone two; }
    ratelimit_namespace c { zone two; }
--- config
    location /t {
        ratelimit a limit=9/366d charge=1;
        ratelimit b limit=9/366d charge=2;
        ratelimit c limit=9/366d charge=3;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
['RateLimit: "a-366d";r=9;t=\d+, "b-366d";r=9;t=\d+, "c-366d";r=9;t=\d+',
 'RateLimit: "c-366d";r=6;t=\d+, "b-366d";r=7;t=\d+, "a-366d";r=8;t=\d+',
 'RateLimit: "c-366d";r=3;t=\d+, "b-366d";r=5;t=\d+, "a-366d";r=7;t=\d+']



=== charge: a rule that did not apply is not charged
--- config
    location /t {
        ratelimit limit=9/366d charge=5 key=$arg_k;
        ratelimit limit=$arg_n/365d limit=9/364d charge=1;
        empty_gif;
    }
--- request eval
["GET /t?n=9", "GET /t", "GET /t?k=127.0.0.1&n=9"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
['RateLimit: "default-365d";r=9;t=\d+, "default-364d";r=9;t=\d+',
 'RateLimit: "default-364d";r=8;t=\d+',
 'RateLimit: "default-364d";r=7;t=\d+, "default-365d";r=8;t=\d+, "default-366d";r=9;t=\d+']



=== charge: the charge of a rule that did not apply is no error
--- config
    location /t {
        ratelimit limit=9/366d charge=wrong$arg_c key=$arg_k;
        ratelimit limit=9/365d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-365d";q=9;w=31536000
--- no_error_log
[error]



=== charge: the key of when the request was decided on is charged
--- config
    location /t {
        set $k first;
        ratelimit_key $k;
        ratelimit limit=9/366d charge=1;
        try_files /missing /second;
    }
    location /second {
        set $k second;
        empty_gif;
    }
    location /look { ratelimit_key $arg_k; ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /look?k=first", "GET /look?k=second"]
--- error_code eval
[(200) x 4]
--- response_headers_like eval
[main::left(9, 8, 98, 100)]



=== charge: the charge is that of the end of the request
--- config
    location /t {
        set $c 1;
        ratelimit limit=9/366d charge=$c;
        try_files /missing /second;
    }
    location /second {
        set $c 3;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 200]
--- response_headers_like eval
[main::left(9, 6)]



=== charge: once, over an error page
--- config
    location /t {
        ratelimit limit=9/366d charge=1;
        error_page 404 /fallback;
    }
    location /fallback { ratelimit limit=9/366d charge=1; empty_gif; }
--- request eval
[("GET /t/missing") x 3]
--- error_code eval
[404, 404, 404]
--- response_headers_like eval
[main::left(9, 8, 7)]



=== charge: once, over the redirects of try_files, and named locations
--- config
    location /t      { ratelimit limit=9/366d charge=1; try_files /missing /second; }
    location /second { ratelimit limit=9/366d charge=1; try_files /missing @third; }
    location @third  { ratelimit limit=9/366d charge=1; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
[main::left(9, 8, 7)]



=== charge: once, over an upstream's X-Accel-Redirect
--- config
    location /t {
        ratelimit limit=9/366d charge=1;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header X-Accel-Redirect /internal;
        return 200;
    }
    location /internal {
        internal;
        ratelimit limit=9/366d charge=1;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
[main::left(9, 8, 7)]



=== charge: once, with subrequests that are logged: SSI
--- config
    log_subrequest on;
    ratelimit limit=9/366d charge=1;
    location /page.txt { ssi on; ssi_types text/plain; }
    location /part.txt { }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" wait="yes" -->, <!--#include virtual="/part.txt" wait="yes" -->
>>> part.txt
part
--- request eval
[("GET /page.txt") x 3]
--- error_code eval
[200, 200, 200]
--- response_body eval
[("part\n, part\n\n") x 3]
--- response_headers_like eval
[main::left(9, 8, 7)]



=== charge: once, with subrequests that are logged: auth_request
--- config
    log_subrequest on;
    location /t {
        ratelimit limit=9/366d charge=1;
        auth_request /auth;
        empty_gif;
    }
    location /auth {
        ratelimit limit=9/366d charge=1;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
[main::left(9, 8, 7)]



=== charge: once, by the rules of a subrequest where the request itself has none
--- config
    log_subrequest on;
    location /page.txt { ssi on; ssi_types text/plain; }
    location /part.txt { ratelimit limit=9/366d charge=1; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" wait="yes" -->, <!--#include virtual="/part.txt" wait="yes" -->
>>> part.txt
part
--- request eval
["GET /part.txt", "GET /page.txt", "GET /part.txt"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
[main::left(9), 'RateLimit: .*', main::left(7)]



=== charge: each request of a connection
--- config
    location /t {
        ratelimit limit=2/366d charge=1;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200; }
--- pipelined_requests eval
["GET /t", "POST /t\nbody", "GET /t", "POST /t\nbody", "GET /t"]
--- error_code eval
[200, 200, 429, 429, 429]
--- response_headers_like eval
[main::left(2, 1, 0, 0, 0)]



=== charge: with access_log off too
--- config
    access_log off;
    location /t {
        ratelimit limit=2/366d charge=1;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[main::left(2, 1, 0)]



=== charge: rules are inherited with it
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limit=2/366d charge=$arg_c;
--- config
    location /t { location /t/nested { empty_gif; } }
--- request eval
["GET /t/nested?c=1", "GET /t/nested?c=1", "GET /t/nested?c=1"]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[main::left(2, 1, 0)]



=== charge: what the rewrite phase answers is not limited, and not charged
--- config
    location /t {
        ratelimit limit=9/366d charge=1;
        return 200;
    }
    location /u {
        ratelimit limit=9/366d charge=1;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /u", "GET /look"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
['RateLimit: ', main::left(9), main::left(99)]



=== cost and charge: an estimate admits, and the response replaces it
--- config
    location /t {
        ratelimit limit=10/366d cost=5 charge=$upstream_http_x_tokens;
        proxy_pass http://127.0.0.1:$server_port/upstream?$args;
    }
    location /upstream { add_header X-Tokens $arg_n; return 200; }
    location /look { ratelimit limit=1000/366d cost=0; empty_gif; }
--- request eval
[map { ("GET /t?n=$_", "GET /look") } 2, "4.5", 0, 9, 1]
--- error_code eval
[200, 200, 200, 200, 429, 200, 429, 200, 429, 200]
--- response_headers_like eval
[main::left(5, 998, 3, 993, 3, 993, 3, 993, 3, 993)]



=== cost and charge: more than the estimate is counted, too
--- config
    location /t {
        ratelimit limit=10/366d cost=1 charge=7;
        empty_gif;
    }
    location /look { ratelimit limit=1000/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /t", "GET /look", "GET /t"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers_like eval
[main::left(9, 993, 2, 986, 0)]



=== cost and charge: of a moving and an elastic window, and of a rate
--- config
    location /moving  { ratelimit limit=10/366d window=moving cost=5 charge=$arg_n; empty_gif; }
    location /elastic { ratelimit limit=10/366d window=elastic cost=5 charge=$arg_n; empty_gif; }
    location /rate    { ratelimit rate=1/366d burst=9 cost=5 charge=$arg_n; empty_gif; }
--- request eval
[map { my $of = $_; map {"GET /$of?n=$_"} 2, 7, 0 } qw(moving elastic rate)]
--- error_code eval
[(200, 200, 429) x 3]
--- response_headers_like eval
[main::left(5, 3, 1, 5, 3, 1), map {qq(RateLimit: "default-rate";r=$_;t=\\d+)} 5, 3, 1]



=== cost and charge: without a known charge, the cost stays
--- config
    location /t {
        ratelimit limit=10/366d cost=4 charge=$arg_n;
        empty_gif;
    }
    location /look { ratelimit limit=1000/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /t?n=x", "GET /look"]
--- error_code eval
[(200) x 4]
--- response_headers_like eval
[main::left(6, 996, 2, 992)]



=== cost and charge: a wrong charge is logged
--- config
    location /t { ratelimit limit=10/366d cost=4 charge=$arg_n; empty_gif; }
--- request
GET /t?n=x
--- error_log eval
qr/\[error\] .*ratelimit: the charge is "x", which is no plain decimal: the cost stays/



=== cost and charge: the rejected are charged nothing, unless rejected hits count
--- config
    location /t       { ratelimit limit=5/366d cost=6 charge=2; empty_gif; }
    location /look    { ratelimit limit=1000/366d cost=0; empty_gif; }
    location /counted { ratelimit limit=5/366d cost=6 charge=2 key=c; ratelimit_count_rejected on; empty_gif; }
    location /looked  { ratelimit limit=1000/366d cost=0 key=c; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /counted", "GET /looked"]
--- error_code eval
[429, 200, 429, 200]
--- response_headers_like eval
[main::left(5, 1000, 0, 998)]
