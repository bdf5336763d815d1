# Tests the parameters of a rule and combinations of rules and limits: separate
# keys and names, limits from variables, namespaces and zones; and that a request
# is charged to all of its limits or to none.
#
# Windows have about a year (366d to 363d), so that none ends during a test (see
# limit.t; those of 363d end on 2027-08-24). `cost=0` reads counters without
# counting.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== every limit of every rule must admit; if one refuses, none is charged, whatever their order
--- config
    location /t {
        ratelimit limit=9/366d limit=8/365d;
        ratelimit key=$arg_k limit=2/364d window=fixed;
        ratelimit limit=7/363d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=a", "GET /t?k=a", "GET /t?k=b", "GET /t?k=a", "GET /t?k=b", "GET /t?k=b"]
--- error_code eval
[200, 200, 429, 429, 200, 429, 200, 429]
--- response_headers_like eval
my $state = sub { my ($first, @rest) = map {qq("default-$_->[0]";r=$_->[1];t=\\d+)} @_; CORE::join ', ', "RateLimit: $first", @rest };
my $at = sub {
    my ($k, $charged) = @_;
    $state->(["364d", $k], ["363d", 7 - $charged], ["365d", 8 - $charged], ["366d", 9 - $charged]);
};
[$at->(1, 1), ($at->(0, 2)) x 3, $at->(1, 3), $at->(0, 3), ($at->(0, 4)) x 2]



=== a refusal by each of four limits in turn charges nothing
--- config
    ratelimit_key all;
    location /fill1 { ratelimit limit=1/366d; empty_gif; }
    location /fill2 { ratelimit limit=1/365d; empty_gif; }
    location /fill3 { ratelimit limit=1/364d; empty_gif; }
    location /fill4 { ratelimit limit=1/363d; empty_gif; }
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d key=$arg_a;
        ratelimit limit=1/365d key=$arg_b;
        ratelimit limit=1/364d key=$arg_c;
        ratelimit limit=1/363d key=$arg_d;
        empty_gif;
    }
--- request eval
["GET /fill1", "GET /fill2", "GET /fill3", "GET /fill4",
 "GET /t?a=all&b=1&c=1&d=1", "GET /t?a=1&b=all&c=1&d=1", "GET /t?a=1&b=1&c=all&d=1", "GET /t?a=1&b=1&c=1&d=all",
 "GET /t?a=1&b=1&c=1&d=1", "GET /t?a=1&b=2&c=2&d=2"]
--- error_code eval
[200, 200, 200, 200, 429, 429, 429, 429, 200, 429]



=== limits with fractions are exact, together too
--- config
    location /t {
        ratelimit cost=0.1 limit=0.3/366d;
        ratelimit cost=0.001 limit=0.004/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 200, 429, 429]



=== key: a rule counts by a key of its own
--- config
    location /t {
        ratelimit limit=1/366d key=$arg_k;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t?k=a", "GET /t?k=b"]
--- error_code eval
[200, 200, 429, 429]



=== key: other rules count by the key of their level
--- config
    location /t {
        ratelimit_key $arg_level;
        ratelimit limit=2/366d key=$arg_own;
        ratelimit limit=3/365d;
        empty_gif;
    }
--- request eval
["GET /t?level=a&own=1", "GET /t?level=a&own=1", "GET /t?level=a&own=1", "GET /t?level=a&own=2", "GET /t?level=a&own=2", "GET /t?level=b&own=2"]
--- error_code eval
[200, 200, 429, 200, 429, 200]



=== key: each rule may have one
--- config
    location /t {
        ratelimit limit=1/366d key=$arg_a;
        ratelimit limit=1/365d key=$arg_b;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=1", "GET /t?a=1&b=2", "GET /t?a=2&b=1", "GET /t?a=2&b=2"]
--- error_code eval
[200, 429, 429, 200]



=== key: it is for all limits of its rule
--- config
    location /t {
        ratelimit key=$arg_k limit=2/366d limit=1/365d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=b"]
--- error_code eval
[200, 429, 200]



=== key: it may be text and variables
--- config
    location /t {
        ratelimit limit=1/366d "key=$arg_a-${arg_b}x y";
        empty_gif;
    }
    location /same {
        ratelimit_key "1-2x y";
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=2", "GET /t?b=2&a=1", "GET /t?a=12", "GET /same"]
--- error_code eval
[200, 429, 200, 429]



=== key: it may have any bytes, "=" too
--- config
    location /t {
        ratelimit limit=1/366d key=a=$binary_remote_addr=b;
        empty_gif;
    }
    location /same  { ratelimit_key a=$binary_remote_addr=b; ratelimit limit=1/366d; empty_gif; }
    location /other { ratelimit_key a=$binary_remote_addr=; ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /t", "GET /same", "GET /other"]
--- error_code eval
[200, 429, 200]



=== key: without variables, it is one counter for everybody
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d key=everybody;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b"]
--- error_code eval
[200, 429]



=== key: where it is empty, only that rule is left out
--- config
    location /t {
        ratelimit limit=1/366d key=$arg_k;
        ratelimit limit=3/365d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?k=", "GET /t?k=a", "GET /t"]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
my $without = 'RateLimit-Policy: "default-365d";q=3;w=31536000' . "\n";
[$without . 'RateLimit: "default-365d";r=2;t=\d+' . "\nX-Status: <PASSED>",
 $without . 'RateLimit: "default-365d";r=1;t=\d+' . "\nX-Status: <PASSED>",
 'RateLimit-Policy: "default-366d";q=1;w=31622400, "default-365d";q=3;w=31536000
RateLimit: "default-366d";r=0;t=\d+, "default-365d";r=0;t=\d+
X-Status: <PASSED>',
 $without . 'RateLimit: "default-365d";r=0;t=\d+' . "\nX-Status: <REJECTED>"]



=== key: where that of the level is empty, rules with one of their own apply
--- config
    location /t {
        ratelimit_key $arg_level;
        ratelimit limit=9/366d;
        ratelimit limit=1/365d key=own;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
[('RateLimit-Policy: "default-365d";q=1;w=31536000') x 2]



=== key: where all are empty, nothing is accounted
--- config
    location /t {
        ratelimit_key $arg_level;
        ratelimit limit=0.5/366d key=$arg_k;
        ratelimit limit=0.5/365d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?k=a", "GET /t?level=a"]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["!RateLimit
!RateLimit-Policy
X-Status: <>", ("X-Status: <REJECTED>") x 2]



=== key: a rule's own may be of any length
--- config eval
'location /t {
    ratelimit limit=1/366d name=own "key=' . '$arg_k' x 64 . '";
    ratelimit limit=9/365d;
    empty_gif;
}'
--- request eval
[("GET /t?k=" . "x" x 1024) x 2, "GET /t?k=" . "y" x 1024]
--- error_code eval
[200, 429, 200]



=== key: equal values are one key, wherever they come from
--- config
    location /a { ratelimit limit=3/366d key=$arg_k; empty_gif; }
    location /b { ratelimit_key $arg_b; ratelimit limit=3/366d; empty_gif; }
    location /c { ratelimit limit=3/366d key=x; empty_gif; }
--- request eval
["GET /a?k=x", "GET /b?b=x", "GET /c", "GET /a?k=x", "GET /b?b=x", "GET /c", "GET /a?k=y"]
--- error_code eval
[200, 200, 200, 429, 429, 429, 200]



=== key: two rules whose keys are equal charge their counter once
--- config
    location /t {
        ratelimit limit=9/366d key=$arg_a name=a;
        ratelimit limit=9/366d key=$arg_b name=b;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=1", "GET /t?a=1&b=1", "GET /t?a=1&b=2", "GET /t?a=2&b=2"]
--- response_headers_like eval
['RateLimit: "a";r=8;t=\d+, "b";r=8;t=\d+',
 'RateLimit: "a";r=7;t=\d+, "b";r=7;t=\d+',
 'RateLimit: "a";r=6;t=\d+, "b";r=8;t=\d+',
 'RateLimit: "a";r=7;t=\d+, "b";r=7;t=\d+']
--- error_code eval
[200, 200, 200, 200]



=== name: the policy is called so in headers, and in the log
--- config
    location /t {
        ratelimit limit=0.5/366d "name=per client";
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- response_headers
RateLimit-Policy: "per client";q=0;w=31622400
RateLimit: "per client";r=0
--- error_log
rejected by "per client"



=== name: rules with names, and others
--- config
    location /t {
        ratelimit limit=9/366d;
        ratelimit limit=8/366d name=second;
        ratelimit limit=7/366d;
        ratelimit limit=6/366d name=default-366d-2;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=9;w=31622400, "second";q=8;w=31622400, "default-366d-3";q=7;w=31622400, "default-366d-2";q=6;w=31622400



=== name: a default name that another rule was given gets a suffix, wherever that rule stands
--- config
    location /before {
        ratelimit limit=9/366d name=default-366d;
        ratelimit limit=8/366d;
        empty_gif;
    }
    location /after {
        ratelimit limit=8/366d;
        ratelimit limit=9/366d name=default-366d;
        empty_gif;
    }
--- request eval
["GET /before", "GET /after"]
--- error_code eval
[200, 200]
--- response_headers eval
['RateLimit-Policy: "default-366d";q=9;w=31622400, "default-366d-2";q=8;w=31622400',
 'RateLimit-Policy: "default-366d-2";q=8;w=31622400, "default-366d";q=9;w=31622400']



=== name: another location may use it again; it does not matter to counters
--- config
    location /a { ratelimit limit=2/366d name=n; empty_gif; }
    location /b { ratelimit limit=2/365d name=n; empty_gif; }
    location /c { ratelimit limit=2/366d name=m; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /c", "GET /a", "GET /b", "GET /b"]
--- error_code eval
[200, 200, 200, 429, 200, 429]



=== name: default names of several namespaces do not clash
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
--- config
    location /t {
        ratelimit     limit=9/366d limit=8/366d;
        ratelimit api limit=7/366d limit=6/366d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=9;w=31622400, "default-366d-2";q=8;w=31622400, "api-366d";q=7;w=31622400, "api-366d-2";q=6;w=31622400



=== limit: a variable may be any decimal, and another one with each request
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        empty_gif;
    }
--- request eval
["GET /t?n=2", "GET /t?n=2.999", "GET /t?n=2", "GET /t?n=2.999", "GET /t?n=3.000", "GET /t?n=10"]
--- error_code eval
[200, 200, 429, 429, 200, 200]
--- response_headers_like eval
my $w = ';w=31622400
RateLimit: "default-366d"';
['RateLimit-Policy: "default-366d";q=2' . $w . ';r=1;t=\d+',
 'RateLimit-Policy: "default-366d";q=2' . $w . ';r=0;t=\d+',
 'RateLimit-Policy: "default-366d";q=2' . $w . ';r=0;t=\d+',
 'RateLimit-Policy: "default-366d";q=2' . $w . ';r=0;t=\d+',
 'RateLimit-Policy: "default-366d";q=3' . $w . ';r=0;t=\d+',
 'RateLimit-Policy: "default-366d";q=10' . $w . ';r=6;t=\d+']



=== limit: a variable may choose among plans
--- http_config
    ratelimit_zone zone=counters:1m;
    map $http_x_plan $plan_limit {
        gold    3;
        trial   0.5;
        none    "";
        default 1;
    }
--- config
    location /t {
        ratelimit_key $http_x_plan.;
        ratelimit limit=$plan_limit/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 9]
--- more_headers eval
[("X-Plan: gold") x 4, "X-Plan: trial", ("X-Plan: none") x 2, ("X-Plan: other") x 2]
--- error_code eval
[200, 200, 200, 429, 429, 200, 200, 200, 429]



=== limit: text and variables
--- config
    location /t {
        ratelimit limit=1${arg_n}.5/366d;
        empty_gif;
    }
--- request eval
["GET /t?n=2", "GET /t"]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=12;w=31622400
RateLimit: "default-366d";r=11;t=\d+',
 'RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+']
--- error_code eval
[200, 429]



=== limit: an empty variable does not apply, and is not in the policy
--- config
    location /t {
        ratelimit limit=$arg_n/366d limit=5/365d;
        ratelimit limit=$arg_m/364d;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?n=", "GET /t?n=9", "GET /t?m=9", "GET /t?n=9&m=9", "GET /t"]
--- error_code eval
[200, 200, 200, 200, 200, 429]
--- response_headers_like eval
my $policy = 'RateLimit-Policy: ';
my ($n, $five, $m) = ('"default-366d";q=9;w=31622400', '"default-365d";q=5;w=31536000', '"default-364d";q=9;w=31449600');
["$policy$five\n" . 'RateLimit: "default-365d";r=4;t=\d+',
 "$policy$five\n" . 'RateLimit: "default-365d";r=3;t=\d+',
 "$policy$n, $five\n" . 'RateLimit: "default-365d";r=2;t=\d+, "default-366d";r=8;t=\d+',
 "$policy$five, $m\n" . 'RateLimit: "default-365d";r=1;t=\d+, "default-364d";r=8;t=\d+',
 "$policy$n, $five, $m\n" . 'RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=7;t=\d+, "default-364d";r=7;t=\d+',
 "$policy$five\n" . 'RateLimit: "default-365d";r=0;t=\d+']



=== limit: where no limit applies, nothing is accounted
--- config
    location /t {
        ratelimit limit=$arg_n/366d limit=$arg_m/365d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?m=1"]
--- error_code eval
[200, 200]
--- response_headers eval
["!RateLimit
!RateLimit-Policy
!Retry-After
X-Status: <>", "X-Status: <PASSED>"]
--- no_error_log
[error]



=== limit: with 0 nothing is admitted, and there is no Retry-After
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
["GET /t?n=0", "GET /t?n=0.000", "GET /t?n=1", "GET /t?n=0"]
--- error_code eval
[429, 429, 200, 429]
--- response_headers eval
my $none = 'RateLimit-Policy: "default-366d";q=0;w=31622400
RateLimit: "default-366d";r=0
!Retry-After
X-Status: <REJECTED>';
[$none, $none, "!Retry-After\nX-Status: <PASSED>", $none]



=== limit: 0 in a fixed window, for requests of any cost
--- config
    location /t {
        ratelimit limit=$arg_n/366d window=fixed cost=$arg_c;
        empty_gif;
    }
--- request eval
["GET /t?n=0&c=1", "GET /t?n=0&c=0.001", "GET /t?n=0&c=0", ("GET /t?n=1&c=0") x 2, "GET /t?n=1&c=1"]
--- error_code eval
[429, 429, 429, 200, 200, 200]
--- response_headers eval
[("!Retry-After") x 6]



=== limit: 0 refuses for the other limits too, and none is charged
--- config
    location /t {
        ratelimit limit=9/366d limit=$arg_n/365d;
        empty_gif;
    }
--- request eval
["GET /t?n=0", "GET /t?n=0", "GET /t?n=1"]
--- error_code eval
[429, 429, 200]
--- response_headers_like eval
[('RateLimit: "default-365d";r=0, "default-366d";r=9;t=\d+') x 2,
 'RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=\d+']



=== limit: one that is no plain decimal does not apply
--- config
    location /t {
        ratelimit limit=$arg_n/366d limit=9/365d;
        empty_gif;
    }
--- request eval
[map {"GET /t?n=$_"} '1,5', qw(-1 -0 5x x5 1e3 +5 5. 0x5 1.2.3 5%20 NaN inf)]
--- error_code eval
[(200) x 9, (429) x 4]
--- response_headers eval
[('RateLimit-Policy: "default-365d";q=9;w=31536000') x 13]



=== limit: a negative one is logged as an error
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request
GET /t?n=-1
--- response_headers
!RateLimit
X-Status: <>
--- error_log eval
qr/\[error\] .*ratelimit: .*"default-366d".*"-1".*does not apply/



=== limit: one with something after its digits is logged as an error
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        empty_gif;
    }
--- request
GET /t?n=5x
--- response_headers
!RateLimit
--- error_log eval
qr/\[error\] .*ratelimit: .*"default-366d".*"5x".*does not apply/



=== limit: one with an exponent is logged as an error
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        empty_gif;
    }
--- request
GET /t?n=1e3
--- response_headers
!RateLimit
--- error_log eval
qr/\[error\] .*ratelimit: .*"default-366d".*"1e3".*does not apply/



=== limit: a wrong value cannot break the line of the log
--- log_level: info
--- config
    set $bad "1
[emerg] 2";
    location /t {
        ratelimit limit=$bad/366d;
        empty_gif;
    }
--- request
GET /t
--- error_log eval
qr/\[error\] .*ratelimit: .*"1\\x0a\[emerg\] 2"/
--- no_error_log eval
qr/^\[emerg\]/



=== limit: below one hit, a variable admits what costs as little
--- config
    location /t {
        ratelimit limit=$arg_n/366d cost=$arg_c;
        empty_gif;
    }
--- request eval
["GET /t?n=0.5&c=1", "GET /t?n=0.5&c=0.5", "GET /t?n=0.5&c=0.001"]
--- error_code eval
[429, 200, 429]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=0;w=31622400
RateLimit: "default-366d";r=0
Retry-After: ', 'Retry-After: ', 'Retry-After: \d{7,}']



=== limit: a very large one applies
--- config
    location /t {
        ratelimit limit=$arg_n/366d;
        empty_gif;
    }
--- request eval
["GET /t?n=100000000000", "GET /t?n=100000000000.999", "GET /t?n=99999999999999999999999999999999"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=100000000000;w=31622400
RateLimit: "default-366d";r=99999999999;t=\d+',
 'RateLimit-Policy: "default-366d";q=100000000000;w=31622400
RateLimit: "default-366d";r=99999999998;t=\d+',
 'RateLimit-Policy: "default-366d";q=\d{12,};w=31622400
RateLimit: "default-366d";r=\d{12,};t=\d+']
--- no_error_log
[error]



=== limit: a variable has its value of when the request is decided on
--- config
    location /t {
        set $n 1;
        try_files /missing /second;
    }
    location /second {
        set $n 3;
        ratelimit limit=$n/366d;
        try_files /missing @third;
    }
    location @third {
        set $n 9;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=3;w=31622400



=== namespaces count apart
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace a { }
    ratelimit_namespace b { }
--- config
    location /a       { ratelimit a limit=1/366d; empty_gif; }
    location /b       { ratelimit b limit=1/366d; empty_gif; }
    location /default { ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /default", "GET /a", "GET /b", "GET /default"]
--- error_code eval
[200, 200, 200, 429, 429, 429]
--- response_headers eval
[('RateLimit-Policy: "a-366d";q=1;w=31622400',
  'RateLimit-Policy: "b-366d";q=1;w=31622400',
  'RateLimit-Policy: "default-366d";q=1;w=31622400') x 2]



=== namespaces count apart in one request, which all must admit
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace a { }
    ratelimit_namespace b { }
--- config
    location /t {
        ratelimit a limit=9/366d;
        ratelimit b limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
['RateLimit: "b-366d";r=1;t=\d+, "a-366d";r=8;t=\d+', ('RateLimit: "b-366d";r=0;t=\d+, "a-366d";r=7;t=\d+') x 3]



=== zones count apart
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace a { zone one; }
    ratelimit_namespace b { zone two; }
    ratelimit_namespace c { zone two; }
--- config
    location /a { ratelimit a limit=1/366d; empty_gif; }
    location /b { ratelimit b limit=1/366d; empty_gif; }
    location /c { ratelimit c limit=1/366d; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /c", "GET /a", "GET /b", "GET /c"]
--- error_code eval
[200, 200, 200, 429, 429, 429]



=== zones count apart in one request, which all must admit
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace a { zone one; }
    ratelimit_namespace b { zone two; }
--- config
    location /t {
        ratelimit a limit=9/366d;
        ratelimit b limit=2/366d;
        ratelimit a limit=8/365d;
        ratelimit b limit=7/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
['RateLimit: "b-366d";r=1;t=\d+, "b-365d";r=6;t=\d+, "a-365d";r=7;t=\d+, "a-366d";r=8;t=\d+',
 ('RateLimit: "b-366d";r=0;t=\d+, "b-365d";r=5;t=\d+, "a-365d";r=6;t=\d+, "a-366d";r=7;t=\d+') x 3]



=== a namespace and a zone may be used before they are defined
--- http_config
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        location / { ratelimit late limit=2/366d; empty_gif; }
    }
    ratelimit_namespace late { zone two; }
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
--- config
    location /t       { ratelimit late limit=2/366d; empty_gif; }
    location /another { proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1; }
--- request eval
["GET /t", "GET /another", "GET /t"]
--- error_code eval
[200, 200, 429]



=== the same namespace, window and key are one counter in all servers and levels
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
    ratelimit api limit=5/366d;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        location / { empty_gif; }
    }
--- config
    location /inherits { empty_gif; }
    location /own      { ratelimit api limit=5/527040m; empty_gif; }
    location /fixed    { ratelimit api limit=5/31622400 window=fixed; empty_gif; }
    location /another  { ratelimit off; proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1; }
    location /default  { ratelimit limit=5/366d; empty_gif; }
--- request eval
["GET /inherits", "GET /own", "GET /fixed", "GET /another", "GET /default", "GET /inherits", "GET /own", "GET /fixed", "GET /another", "GET /inherits", "GET /default"]
--- error_code eval
[200, 200, 200, 200, 200, 200, 429, 429, 429, 429, 200]



=== the namespace "default" may be defined
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace default { zone two; }
--- config
    location /a { ratelimit limit=2/366d; empty_gif; }
    location /b { ratelimit default limit=2/366d; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /a"]
--- error_code eval
[200, 200, 429]



=== a request whose limits share a counter charges it once, over rules, names, windows' ways of reading
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
--- config
    location /t {
        ratelimit api limit=9/366d name=a;
        ratelimit     limit=9/366d name=other;
        ratelimit api limit=8/366d name=b window=fixed;
        ratelimit api limit=9/365d limit=7/8784h;
        ratelimit api limit=6/31622400.000 key=$remote_addr name=c;
        empty_gif;
    }
--- request eval
[("GET /t") x 7]
--- error_code eval
[(200) x 6, 429]
--- response_headers_like eval
[(map {
    my $n = $_ > 6 ? 6 : $_;
    CORE::join '', 'RateLimit: "c";r=', 6 - $n, ';t=\d+, "api-8784h";r=', 7 - $n, ';t=\d+, "b";r=', 8 - $n,
        ';t=\d+, "a";r=', 9 - $n, ';t=\d+, "other";r=', 9 - $n, ';t=\d+, "api-365d";r=', 9 - $n, ';t=\d+'
} 1 .. 7)]



=== the most demanding of limits that share a counter refuses, and it is not charged
--- config
    location /t {
        ratelimit limit=9/366d name=nine;
        ratelimit limit=2/366d name=two;
        ratelimit limit=5/366d name=five;
        empty_gif;
    }
    location /look { ratelimit cost=0 limit=9/366d name=look; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /look"]
--- error_code eval
[200, 200, 429, 429, 429, 200]
--- response_headers_like eval
['RateLimit: "two";r=1;t=\d+, "five";r=4;t=\d+, "nine";r=8;t=\d+',
 ('RateLimit: "two";r=0;t=\d+, "five";r=3;t=\d+, "nine";r=7;t=\d+') x 4,
 'RateLimit: "look";r=7;t=\d+']



=== an inherited rule counts by the key of the location that inherits it
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
    ratelimit api limit=1/366d;
    ratelimit api limit=3/365d key=all;
--- config
    ratelimit_key $arg_s;
    location /server   { empty_gif; }
    location /location { ratelimit_key $arg_l; empty_gif; }
--- request eval
["GET /server?s=a&l=b", "GET /location?s=a&l=b", "GET /server?s=a&l=c", "GET /location?s=c&l=b", "GET /server?s=c", "GET /location?l=d"]
--- error_code eval
[200, 200, 429, 429, 200, 429]
--- response_headers eval
[('RateLimit-Policy: "api-366d";q=1;w=31622400, "api-365d";q=3;w=31536000') x 6]



=== directives other than "ratelimit" do not end the inheritance of rules
--- config
    ratelimit limit=9/366d;
    location /t {
        ratelimit_key x;
        ratelimit_status 503;
        ratelimit_headers ietf;
        ratelimit_dry_run off;
        ratelimit_count_rejected off;
        ratelimit_log_level warn;
        ratelimit_retry_after_jitter 1;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=9;w=31622400



=== "off" ends the inheritance of a whole server, and rules within begin anew
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
    ratelimit limit=0.5/366d;
    ratelimit api limit=0.5/365d;
--- config
    ratelimit off;
    location /off { empty_gif; }
    location /on  {
        ratelimit api limit=1/366d;
        empty_gif;
        location /on/off { ratelimit off; empty_gif; }
        location /on/on  { empty_gif; }
    }
--- request eval
["GET /off", "GET /on", "GET /on/off", "GET /on/on", "GET /on"]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers eval
["!RateLimit", 'RateLimit-Policy: "api-366d";q=1;w=31622400', "!RateLimit", ('RateLimit-Policy: "api-366d";q=1;w=31622400') x 2]



=== rules in different namespaces do not add up over levels: a level's own replace all inherited ones
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
    ratelimit limit=0.5/366d;
--- config
    location /t { ratelimit api limit=2/366d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers eval
[('RateLimit-Policy: "api-366d";q=2;w=31622400') x 3]



=== counter: another one for the same key and window; "default" is the one that is shared
--- config
    ratelimit_key $arg_k;
    location /shared  { ratelimit limit=3/366d; empty_gif; }
    location /default { ratelimit limit=3/366d counter=default; empty_gif; }
    location /login   { ratelimit limit=3/366d counter=login; empty_gif; }
    location /both {
        ratelimit limit=3/366d;
        ratelimit limit=3/366d counter=login name=login;
        ratelimit limit=9/366d counter=default name=all;
        empty_gif;
    }
    location /own   { ratelimit limit=9/366d key=$arg_k counter=login; empty_gif; }
    location /empty { ratelimit limit=9/366d key=$arg_none counter=login; empty_gif; }
--- request eval
["GET /shared?k=a", "GET /default?k=a", "GET /login?k=a", "GET /login?k=b", "GET /both?k=a",
 "GET /both?k=a", "GET /login?k=a", "GET /own?k=a", "GET /empty?k=a"]
--- error_code eval
[200, 200, 200, 200, 200, 429, 200, 200, 200]
--- response_headers_like eval
["RateLimit: .*r=2;.*", "RateLimit: .*r=1;.*", "RateLimit: .*r=2;.*", "RateLimit: .*r=2;.*",
 'RateLimit: "default-366d";r=0;t=\d+, "login";r=1;t=\d+, "all";r=6;t=\d+',
 "RateLimit: .*", "RateLimit: .*r=0;.*", "RateLimit: .*r=5;.*", "!RateLimit"]



=== locations of the API and of metrics inherit no rules; what is in them does; their own apply
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limit=1/366d;
--- config
    location /metrics { ratelimit_metrics; if ($arg_x) { } }
    location /api     { ratelimit_api; location /api/t { empty_gif; } }
    location /own     { ratelimit_metrics; if ($arg_x) { } ratelimit limit=1/366d counter=own; }
    location /t       { empty_gif; }
--- request eval
["GET /t", "GET /metrics", "GET /metrics?x=1", "GET /api", "GET /api/t", "GET /own", "GET /own?x=1",
 "GET /t"]
--- error_code eval
[200, 200, 200, 200, 429, 200, 429, 429]
--- no_error_log
[emerg]
