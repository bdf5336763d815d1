# Tests that all workers share the counters. reload.t tests them over reloads,
# signals and crashes of workers.
#
# Each request uses a new connection, which any of the workers may accept.
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

master_on();
workers(4);
no_long_string();
run_tests();

__DATA__

=== exactly the limit is admitted, whichever workers the requests reach
--- config
    location /t {
        ratelimit limit=30/366d window=fixed;
        empty_gif;
    }
--- request eval
[("GET /t") x 40]
--- error_code eval
[(200) x 30, (429) x 10]
--- response_headers_like eval
[(map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } map { 29 - $_ } 0 .. 29),
 ('RateLimit: "default-366d";r=0;t=\d+') x 10]



=== sliding and fixed rules share their counter in all workers
--- config
    location /sliding { ratelimit limit=20/366d; empty_gif; }
    location /fixed   { ratelimit limit=20/366d window=fixed; empty_gif; }
--- request eval
[("GET /sliding", "GET /fixed") x 12]
--- error_code eval
[(200) x 20, (429) x 4]



=== keys count apart in all workers
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[map { "GET /t?k=$_" } ("a" .. "h") x 3]
--- error_code eval
[(200) x 16, (429) x 8]



=== a rejected request charges none of its limits, whichever workers reject
--- config
    location /t {
        ratelimit limit=100/366d limit=3/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 15]
--- error_code eval
[(200) x 3, (429) x 12]
--- response_headers_like eval
[map { qq(RateLimit: "default-365d";r=\\d;t=\\d+, "default-366d";r=$_;t=\\d+) } 99, 98, (97) x 13]



=== the smallest zone serves all workers
--- http_config
    ratelimit_zone zone=counters:32k;
--- config
    location /t {
        ratelimit limit=5/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 10]
--- error_code eval
[(200) x 5, (429) x 5]
