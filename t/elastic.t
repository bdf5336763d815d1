# Tests elastic windows: how a request counts, and the response headers. src/table/tests/level.rs and
# src/testing/conformance/decisions/elastic.rs test the end of a window without hits, without waiting.
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

=== hits up to the limit are admitted, and each begins the window anew
--- config
    location /t {
        ratelimit limit=2/366d window=elastic;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers eval
['RateLimit-Policy: "default-366d";q=2;w=31622400
RateLimit: "default-366d";r=1;t=31622400',
'RateLimit: "default-366d";r=0;t=31622400',
'RateLimit: "default-366d";r=0;t=31622400
Retry-After: 31622400',
'Retry-After: 31622400']



=== an elastic window has a counter of its own, whatever sliding and fixed ones count
--- config
    location /t {
        ratelimit limit=3/366d;
        ratelimit limit=2/366d window=fixed counter=default;
        ratelimit limit=4/366d window=elastic counter=default;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
    location /elastic {
        ratelimit limit=4/366d window=elastic counter=default;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /elastic", "GET /elastic", "GET /elastic"]
--- error_code eval
[200, 200, 429, 200, 200, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 2", "X-Rate: 3", "X-Rate: 4", "X-Rate: 4"]



=== a request that a later limit rejects is given back
--- config
    location /t {
        ratelimit limit=9/366d window=elastic key=first;
        ratelimit limit=1/366d window=fixed key=second;
        empty_gif;
    }
    location /first {
        ratelimit limit=9/366d window=elastic key=first;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /first"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers eval
["", "", "", "X-Rate: 2"]



=== rejected hits count if they are to
--- config
    ratelimit_count_rejected on;
    location /t {
        ratelimit limit=1/366d window=elastic;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 3"]



=== costs are decimals, 0 asks, and what costs more than the limit is never admitted
--- config
    location /t {
        ratelimit limit=2/366d window=elastic cost=$arg_c;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t?c=0.5", "GET /t?c=0", "GET /t?c=1.5", "GET /t?c=0", "GET /t?c=3"]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers eval
["X-Rate: 0.5", "X-Rate: 0.5", "X-Rate: 2", "X-Rate: 2", "X-Rate: 2\nRetry-After: "]



=== hits that are known with the response
--- config
    location /t {
        ratelimit limit=2/366d window=elastic counter=default charge=$arg_c;
        empty_gif;
    }
    location /ask {
        ratelimit limit=2/366d window=elastic counter=default cost=0;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
["GET /t?c=5", "GET /ask"]
--- error_code eval
[200, 429]
--- response_headers eval
["", "X-Rate: 5"]



=== the API shows the window, and counts in it
--- config
    location /t {
        ratelimit limit=9/366d window=elastic key=k;
        empty_gif;
    }
    location /rl {
        ratelimit_api write=on;
    }
--- request eval
["GET /t", "POST /rl/namespaces/default/keys/k?window=366d&window_type=elastic&value=2",
 "GET /rl/namespaces/default/keys/k?window=366d&window_type=elastic&limit=9",
 "GET /rl/namespaces/default/keys/k?window=366d&limit=9"]
--- response_body_like eval
["", qr/"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":\d{10},"remaining":null/,
 qr/"rate":3,"current":3,"previous":0,"diff":3,"sync":0,"window_start":\d{10},"remaining":6/,
 qr/"rate":0,"current":0/]
