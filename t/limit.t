# Tests which requests are admitted and which share a counter: limits, counters
# and their keys, inheritance, and that a request is counted once.
#
# Windows have about a year (366d, 365d, 364d), so that none ends during a test.
# Windows of 366d start at multiples of 31622400 seconds since 1970: on
# 2026-02-12 and on 2027-02-13. The end of 2026 is far from both.
# Each block starts a new nginx with an empty zone.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== hits up to the limit are admitted, the next is answered with 429
--- config
    location /t {
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 200, 429, 429]



=== a fixed window admits as many
--- config
    location /t {
        ratelimit limit=3/366d window=fixed;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 200, 429, 429]



=== a rejection is logged with the limit that rejected
--- config
    location /t {
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[error\] .*ratelimit: rejected by "default-366d", namespace "default", key "127\.0\.0\.1", limit 0\.5, rate 1, cost 1,/



=== a limit may have a fraction
--- config
    location /t {
        ratelimit limit=2.5/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]



=== a limit below one hit never admits a request
--- config
    location /t {
        ratelimit limit=0.999/366d window=fixed;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[429, 429]
--- response_headers eval
[("!Retry-After") x 2]



=== every method is counted
--- config
    location /t {
        ratelimit limit=3/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200; }
--- request eval
["GET /t", "HEAD /t", "POST /t\nbody", "GET /t", "HEAD /t", "POST /t\nbody"]
--- error_code eval
[200, 200, 200, 429, 429, 429]



=== different keys count apart
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t?k=a", "GET /t?k=b", "GET /t?k=ab"]
--- error_code eval
[200, 200, 429, 429, 200]



=== a key is text and variables
--- config
    location /t {
        ratelimit_key "$arg_a-${arg_b}x";
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=2", "GET /t?b=2&a=1", "GET /t?a=12", "GET /t?b=12"]
--- error_code eval
[200, 429, 200, 200]



=== a key without variables is one counter for everybody
--- config
    location /t {
        ratelimit_key everybody;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b"]
--- error_code eval
[200, 429]



=== a key may have any bytes, zeros too
--- config
    location /t {
        ratelimit_key $binary_remote_addr$arg_k;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t?k=a", "GET /t"]
--- error_code eval
[200, 200, 429, 200]



=== an empty key is not accounted
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?k=", "GET /t?k=a"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!RateLimit
!RateLimit-Policy
X-Status: <>",
"!RateLimit
!RateLimit-Policy
X-Status: <>",
"X-Status: <PASSED>"]



=== a key of 65535 bytes is accounted
--- config eval
'location /t {
    ratelimit_key "' . '$arg_k' x 15 . '";
    ratelimit limit=1/366d;
    empty_gif;
}'
--- request eval
[("GET /t?k=" . "x" x 4369) x 2, "GET /t?k=" . "y" x 4369]
--- error_code eval
[200, 429, 200]



=== a key of more than 200 bytes is counted by its digest, and a digest is another key
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace default { window_sizes 366d; }
--- config eval
'location /t {
    ratelimit_key $arg_k;
    ratelimit limit=2/366d window=fixed;
    empty_gif;
}
location /api { ratelimit_api; }'
--- request eval
my $long = "x" x 201;
my $digest = "sha256:84a0678c90937f5dcf9994d5866668da6b995109c8ad845410559b48a4ecafed";
[("GET /t?k=$long") x 3, "GET /t?k=${long}x", "GET /t?k=$digest",
"GET /api/namespaces/default/keys/$long", "GET /api/namespaces/default/keys/$digest"]
--- error_code eval
[200, 200, 429, 200, 200, 200, 200]
--- response_body_like eval
[(qr//) x 5, qr/"current":2,/, qr/"current":1,/]



=== a key of any length is counted by its digest
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace default { window_sizes 366d; }
    client_body_buffer_size 2m;
--- config eval
'location /t {
    ratelimit_key "' . '$arg_k' x 64 . '";
    ratelimit limit=2/366d window=fixed;
    add_header X-Key "<$ratelimit_status>" always;
    empty_gif;
}
location /api { ratelimit_api; }'
--- request eval
[("GET /t?k=" . "x" x 1024) x 3, "GET /t?k=" . "x" x 1023 . "y", "GET /t?k=" . "x" x 1025,
 "GET /api/namespaces/default/keys/sha256:" . "0" x 64]
--- error_code eval
[200, 200, 429, 200, 200, 200]
--- response_headers eval
[("X-Key: <PASSED>") x 2, "X-Key: <REJECTED>", ("X-Key: <PASSED>") x 2, ""]



=== the key is the client's address by default, as realip sets it
--- config
    location /t {
        set_real_ip_from 127.0.0.1;
        real_ip_header X-Real-IP;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- more_headers eval
["X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2", "X-Real-IP: 192.0.2.1", "", ""]
--- error_code eval
[200, 200, 429, 200, 429]



=== $remote_addr is the same key as the default
--- config
    location /default { ratelimit limit=1/366d; empty_gif; }
    location /named   { ratelimit_key $remote_addr; ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /default", "GET /named"]
--- error_code eval
[200, 429]



=== rules with the same namespace, window size and key share a counter wherever they stand
--- http_config
    ratelimit_zone zone=counters:1m;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        location / { ratelimit limit=4/366d; empty_gif; }
    }
--- config
    location /a       { ratelimit limit=4/366d; empty_gif; }
    location /b       { ratelimit limit=4/8784h; empty_gif; }
    location /c       { ratelimit default limit=4/366d; empty_gif; }
    location /another { proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1; }
--- request eval
["GET /a", "GET /b", "GET /c", "GET /another", "GET /a", "GET /b", "GET /c", "GET /another"]
--- error_code eval
[200, 200, 200, 200, 429, 429, 429, 429]



=== sliding and fixed are two readings of one counter
--- config
    location /sliding { ratelimit limit=2/366d window=sliding; empty_gif; }
    location /fixed   { ratelimit limit=2/366d window=fixed; empty_gif; }
--- request eval
["GET /sliding", "GET /fixed", "GET /sliding", "GET /fixed"]
--- error_code eval
[200, 200, 429, 429]



=== a shared counter is read against each rule's own limit
--- config
    location /few  { ratelimit limit=2/366d; empty_gif; }
    location /many { ratelimit limit=4/366d; empty_gif; }
--- request eval
["GET /many", "GET /many", "GET /few", "GET /many", "GET /many", "GET /many"]
--- error_code eval
[200, 200, 429, 200, 200, 429]



=== windows of different sizes count apart
--- config
    location /a { ratelimit limit=1/366d; empty_gif; }
    location /b { ratelimit limit=1/365d; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /a", "GET /b"]
--- error_code eval
[200, 200, 429, 429]



=== every limit of a rule must admit
--- config
    location /t {
        ratelimit limit=3/366d limit=2/365d;
        empty_gif;
    }
    location /first { ratelimit limit=3/366d; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /first", "GET /first"]
--- error_code eval
[200, 200, 429, 200, 429]



=== every rule must admit
--- config
    location /t {
        ratelimit limit=3/366d;
        ratelimit limit=2/365d window=fixed;
        ratelimit limit=9/364d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]



=== a rejected request charges none of its limits: the first admits, the second rejects
--- config
    location /t {
        ratelimit limit=9/366d limit=1/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 429, 429, 429]
--- response_headers_like eval
[('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=\d+') x 4]



=== a rejected request charges none of its limits: the first rejects, the second admits
--- config
    location /t {
        ratelimit limit=1/365d;
        ratelimit limit=9/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 429, 429, 429]
--- response_headers_like eval
[('RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=\d+') x 4]



=== a request whose limits share a counter charges it once
--- config
    location /t {
        ratelimit limit=5/366d limit=4/366d window=fixed;
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d-3";r=2;t=\d+, "default-366d-2";r=3;t=\d+, "default-366d";r=4;t=\d+',
 'RateLimit: "default-366d-3";r=1;t=\d+, "default-366d-2";r=2;t=\d+, "default-366d";r=3;t=\d+',
 ('RateLimit: "default-366d-3";r=0;t=\d+, "default-366d-2";r=1;t=\d+, "default-366d";r=2;t=\d+') x 2]



=== rules of http are inherited
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limit=2/366d;
--- config
    location /t { empty_gif; }
--- request eval
["GET /t", "GET /", "GET /t"]
--- error_code eval
[200, 200, 429]



=== rules of a server are inherited in place of those of http
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limit=1/366d;
--- config
    ratelimit limit=3/365d;
    location /t { location /t/nested { empty_gif; } }
--- request eval
[("GET /t/nested") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers eval
[('RateLimit-Policy: "default-365d";q=3;w=31536000') x 4]



=== a location with rules of its own inherits none
--- config
    ratelimit limit=1/366d;
    location /own { ratelimit limit=2/365d; empty_gif; }
--- request eval
[("GET /own") x 3, "GET /", "GET /"]
--- error_code eval
[200, 200, 429, 200, 429]



=== "off" ends inheritance, for the locations within too
--- config
    ratelimit limit=0.5/366d;
    location /off { ratelimit off; location /off/nested { empty_gif; } empty_gif; }
    location /on  { empty_gif; }
--- request eval
["GET /off", "GET /off/nested", "GET /on"]
--- error_code eval
[200, 200, 429]
--- response_headers eval
["!RateLimit
!RateLimit-Policy",
"!RateLimit
!RateLimit-Policy",
'RateLimit-Policy: "default-366d";q=0;w=31622400']



=== rules are inherited by the blocks within a location
--- config
    location /t/ {
        ratelimit limit=2/366d;
        if ($arg_k) { set $k 1; }
        limit_except GET { deny all; }
    }
--- user_files
>>> t/file.txt
hello
--- request eval
["GET /t/file.txt?k=1", "POST /t/file.txt\nbody", "GET /t/file.txt?k=1", "GET /t/file.txt", "POST /t/file.txt\nbody"]
--- error_code eval
[200, 403, 429, 429, 429]



=== a key is inherited, apart from rules
--- config
    ratelimit_key $arg_k;
    ratelimit limit=1/366d;
    location /inherits { empty_gif; }
    location /rule     { ratelimit limit=2/366d; empty_gif; }
    location /key      { ratelimit_key $arg_other; empty_gif; }
--- request eval
["GET /inherits?k=a", "GET /inherits?k=b", "GET /inherits?k=a", "GET /rule?k=a", "GET /rule?k=a",
 "GET /key?k=c&other=a", "GET /key?k=c&other=c", "GET /key?k=a&other=c"]
--- error_code eval
[200, 200, 429, 200, 429, 429, 200, 429]



=== a request is counted once over an error page's redirect
--- config
    location /t {
        ratelimit limit=2/366d;
        error_page 404 /fallback;
    }
    location /fallback { ratelimit limit=2/366d; empty_gif; }
--- request eval
[("GET /t/missing") x 3]
--- error_code eval
[404, 404, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== a request is counted once over the redirects of try_files, and named locations
--- config
    location /t {
        ratelimit limit=2/366d;
        try_files /missing /second;
    }
    location /second {
        ratelimit limit=2/366d;
        try_files /missing @third;
    }
    location @third {
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== a request is counted once over an upstream's X-Accel-Redirect
--- config
    location /t {
        ratelimit limit=2/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header X-Accel-Redirect /internal;
        return 200;
    }
    location /internal {
        internal;
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== the rules of the first location that has any apply
--- config
    location /t     { try_files /missing /first; }
    location /first { ratelimit limit=2/366d; try_files /missing @later; }
    location @later { ratelimit limit=0.5/365d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers eval
[('RateLimit-Policy: "default-366d";q=2;w=31622400') x 3]



=== a location without rules, or that switches them off, passes a request on to one that has any
--- config
    location /t      { ratelimit off; try_files /missing @limited; }
    location @limited { ratelimit limit=1/366d; empty_gif; }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]



=== a request is counted once with its subrequests: auth_request
--- config
    location /t {
        ratelimit limit=2/366d;
        auth_request /auth;
        empty_gif;
    }
    location /auth {
        ratelimit limit=2/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== a request is counted once with its subrequests: SSI
--- config
    ratelimit limit=2/366d;
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
[200, 200, 429]
--- response_body eval
[("part\n, part\n\n") x 2, qr/429 Too Many Requests/]



=== a request without rules is counted once by the first of its subrequests that has any
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /part.txt { ratelimit limit=2/366d; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" wait="yes" -->, <!--#include virtual="/part.txt" wait="yes" -->
>>> part.txt
part
--- request eval
["GET /page.txt", "GET /part.txt", "GET /part.txt"]
--- error_code eval
[200, 200, 429]
--- response_body eval
["part\n, part\n\n", "part\n", qr/429 Too Many Requests/]



=== the page for a rejection is not limited itself
--- config
    error_page 429 /sorry.txt;
    ratelimit limit=1/366d;
--- user_files
>>> sorry.txt
Come back later.
--- request eval
["GET /", "GET /", "GET /"]
--- error_code eval
[200, 429, 429]
--- response_body eval
[qr/It works!/, "Come back later.\n", "Come back later.\n"]



=== what the rewrite phase answers is not limited
--- config
    location /t {
        ratelimit limit=0.5/366d;
        return 200;
    }
--- request
GET /t
--- response_headers
!RateLimit
!RateLimit-Policy



=== an admitted request is still subject to other modules of the phase
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone $arg_k zone=requests:1m rate=1r/m;
--- config
    location /t {
        ratelimit limit=3/366d;
        limit_req zone=requests;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=b"]
--- error_code eval
[200, 503, 200]



=== an admitted request is still subject to access rules
--- config
    location /t {
        ratelimit limit=2/366d;
        satisfy any;
        deny all;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[403, 403, 429]
