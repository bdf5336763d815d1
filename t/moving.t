# Tests moving windows: how a request counts, and the response headers. src/table/tests/log.rs tests that hits
# leave when they are older than the window, without waiting. moving-load.t tests concurrent requests.
#
# Windows have about a year, as in limit.t. Each block starts a new nginx with an empty zone.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== hits up to the limit are admitted, until the oldest one leaves
--- config
    location /t {
        ratelimit limit=2/366d window=moving;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=2;w=31622400
RateLimit: "default-366d";r=1;t=31622401
!Retry-After',
'RateLimit: "default-366d";r=0;t=3162\d{4}',
'RateLimit: "default-366d";r=0;t=3162\d{4}
Retry-After: 3162\d{4}',
'Retry-After: 3162\d{4}']



=== a moving window has a counter of its own, whatever the others count
--- config
    location /t {
        ratelimit limit=4/366d;
        ratelimit limit=5/366d window=elastic;
        ratelimit limit=4/366d window=moving;
        ratelimit rate=1/366d burst=4;
        ratelimit limit=3/365d window=moving name=short;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
    location /moving {
        ratelimit limit=4/366d window=moving;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /t", "GET /moving", "GET /moving"]
--- error_code eval
[200, 200, 200, 429, 200, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 3", "X-Rate: 3", "X-Rate: 4", "X-Rate: 4"]



=== a request that a later limit rejects is given back
--- config
    location /t {
        ratelimit limit=9/366d window=moving key=first;
        ratelimit limit=1/366d window=fixed key=second;
        empty_gif;
    }
    location /first {
        ratelimit limit=9/366d window=moving key=first;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /first"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers eval
["", "", "", "X-Rate: 2"]



=== so it is by another limit of the same counter
--- config
    location /t {
        ratelimit limit=9/366d window=moving counter=default;
        ratelimit limit=2/366d window=moving counter=default name=two;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "two";r=1;t=\d+, "default-366d";r=8;t=\d+',
'RateLimit: "two";r=0;t=\d+, "default-366d";r=7;t=\d+',
'RateLimit: "two";r=0;t=\d+, "default-366d";r=7;t=\d+
Retry-After: \d+']



=== rejected hits count if they are to
--- config
    ratelimit_count_rejected on;
    location /t {
        ratelimit limit=1/366d window=moving;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 3"]



=== a dry run counts what it admits, and rejects nothing
--- config
    ratelimit_dry_run on;
    location /t {
        ratelimit limit=1/366d window=moving;
        add_header X-Rate "$ratelimit_status $ratelimit_rate" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_headers eval
["X-Rate: PASSED 1", "X-Rate: REJECTED_DRY_RUN 1"]



=== costs are decimals, 0 asks, and what costs more than the limit is never admitted
--- config
    location /t {
        ratelimit limit=2/366d window=moving cost=$arg_c;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t?c=0.5", "GET /t?c=0", "GET /t?c=1.5", "GET /t?c=0", "GET /t?c=3"]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers_like eval
["X-Rate: 0\\.5", "X-Rate: 0\\.5", "X-Rate: 2", "X-Rate: 2\nRetry-After: \\d+", "X-Rate: 2\n!Retry-After"]



=== hits that are known with the response
--- config
    location /t {
        ratelimit limit=2/366d window=moving counter=default charge=$arg_c;
        empty_gif;
    }
    location /ask {
        ratelimit limit=2/366d window=moving counter=default cost=0;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t?c=5", "GET /ask"]
--- error_code eval
[200, 429]
--- response_headers eval
["", "X-Rate: 5"]



=== keys and counters are apart
--- config
    location /t {
        ratelimit limit=1/366d window=moving key=$arg_k;
        ratelimit limit=2/366d window=moving key=$arg_k counter=other;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t?k=a", "GET /t"]
--- error_code eval
[200, 200, 429, 200]



=== other headers, and variables
--- config
    ratelimit_headers draft03 legacy;
    location /t {
        ratelimit limit=3/100d window=moving cost=2;
        add_header X-All "$ratelimit_status $ratelimit_namespace $ratelimit_policy $ratelimit_limit $ratelimit_window $ratelimit_rate $ratelimit_remaining $ratelimit_reset $ratelimit_key" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit-Limit: 3
RateLimit-Remaining: 1
RateLimit-Reset: 8640001
X-RateLimit-Limit-8640000: 3
X-RateLimit-Remaining-8640000: 1
X-All: PASSED default default-100d 3 8640000 2 1 8640000\.001 127\.0\.0\.1',
'RateLimit-Remaining: 1
X-All: REJECTED default default-100d 3 8640000 2 1 86\d+(?:\.\d+)? 127\.0\.0\.1']



=== a limit from a variable is 100,000 at most
--- config
    location /t {
        ratelimit limit=$arg_l/366d window=moving;
        ratelimit limit=$arg_m/366d window=elastic;
        add_header X-Limit $ratelimit_limit always;
        empty_gif;
    }
    location /metrics {
        ratelimit_metrics;
    }
--- request eval
["GET /t?l=100001&m=100001", "GET /t?l=100000", "GET /metrics"]
--- error_code eval
[200, 200, 200]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=100000;w=31622400, "default-366d-2";q=100001;w=31622400',
'RateLimit-Policy: "default-366d";q=100000;w=31622400', '']
--- response_body_like eval
['', '', 'ratelimit_invalid_values_total\{namespace="default",what="limit"\} 1\n']



=== one that is above is logged, as others that are wrong
--- config
    location /t {
        ratelimit limit=$arg_l/366d window=moving;
        ratelimit limit=$arg_l/366d window=elastic;
        empty_gif;
    }
--- request
GET /t?l=100000.5
--- error_log eval
qr/\[error\] .*the limit "default-366d" is 100000\.5, and its window has at most 100000: it is taken as that,/
--- no_error_log
the limit "default-366d-2" is



=== the API shows the window, and counts in it
--- config
    location /t {
        ratelimit limit=9/366d window=moving key=k;
        empty_gif;
    }
    location /rl {
        ratelimit_api write=on;
    }
--- request eval
["GET /t", "POST /rl/namespaces/default/keys/k?window=366d&window_type=moving&value=2",
 "GET /rl/namespaces/default/keys/k?window=366d&window_type=moving&limit=9",
 "GET /rl/namespaces/default/keys/k?window=366d&limit=9"]
--- response_body_like eval
["", qr/"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":\d{10}(?:\.\d+)?,"remaining":null/,
 qr/"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":\d{10}(?:\.\d+)?,"remaining":6/,
 qr/"rate":0,"current":0/]
