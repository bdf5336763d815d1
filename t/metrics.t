# Tests ratelimit_metrics: the counts of a node in the text format of Prometheus.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# The store of `synced` is a port where no process listens.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
END

no_long_string();
run_tests();

__DATA__

=== requests and hits are counted by namespace
--- config
    location /t {
        ratelimit api limit=2/366d window=fixed cost=0.75;
        empty_gif;
    }
    location = /dry {
        ratelimit_dry_run on;
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
    location = /metrics {
        ratelimit_metrics;
    }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /dry", "GET /dry", "GET /metrics"]
--- error_code eval
[200, 200, 429, 200, 200, 200]
--- response_body_like eval
[qr//, qr//, qr//, qr//, qr//, qr/
^\#\ HELP\ ratelimit_build_info\ [^\n]+\n
\#\ TYPE\ ratelimit_build_info\ gauge\n
ratelimit_build_info\{version="\d+\.\d+\.\d+",nginx="1\.\d+\.\d+"\}\ 1\n
(?s:.*)
ratelimit_config_load_timestamp_seconds\ \d{10}[.\d]*\n
\#\ HELP\ ratelimit_event_loop_hold_seconds\ [^\n]+\n
\#\ TYPE\ ratelimit_event_loop_hold_seconds\ histogram\n
ratelimit_event_loop_hold_seconds_bucket\{le="0\.000001"\}\ \d+\n
(?s:.*)
ratelimit_event_loop_hold_seconds_count\ \d+\n
\#\ HELP\ ratelimit_requests_total\ [^\n]+\n
\#\ TYPE\ ratelimit_requests_total\ counter\n
ratelimit_requests_total\{namespace="api",result="passed"\}\ 2\n
ratelimit_requests_total\{namespace="api",result="rejected"\}\ 1\n
ratelimit_requests_total\{namespace="api",result="rejected_dry_run"\}\ 0\n
ratelimit_requests_total\{namespace="default",result="passed"\}\ 1\n
ratelimit_requests_total\{namespace="default",result="rejected"\}\ 0\n
ratelimit_requests_total\{namespace="default",result="rejected_dry_run"\}\ 1\n
\#\ HELP\ ratelimit_rejected_total\ [^\n]+\n
\#\ TYPE\ ratelimit_rejected_total\ counter\n
ratelimit_rejected_total\{namespace="api",policy="api-366d"\}\ 1\n
ratelimit_rejected_total\{namespace="default",policy="default-366d"\}\ 0\n
(?s:.*)
ratelimit_hits_total\{namespace="api"\}\ 1.5\n
ratelimit_hits_total\{namespace="default"\}\ 1\n
(?s:.*)
ratelimit_zone_size_bytes\{zone="counters"\}\ 1048576\n
(?s:.*)
ratelimit_zone_counters\{zone="counters"\}\ 2\n
(?s:.*)
ratelimit_zone_capacity_counters\{zone="counters"\}\ 1\d{4}\n
(?s:.*)
ratelimit_zone_evicted_total\{zone="counters",state="ended"\}\ 0\n
ratelimit_zone_evicted_total\{zone="counters",state="sent"\}\ 0\n
ratelimit_zone_evicted_total\{zone="counters",state="unsent"\}\ 0\n\z
/x]



=== the type is that of Prometheus' text, and nobody keeps the answer
--- config
    location = /metrics {
        ratelimit_metrics;
    }
--- request
GET /metrics
--- response_headers
Content-Type: text/plain; version=0.0.4
Cache-Control: no-store



=== HEAD is answered without a body
--- config
    location = /metrics {
        ratelimit_metrics;
    }
--- request
HEAD /metrics
--- response_headers_like
Content-Length: [1-9]\d+
--- response_body:



=== other methods are not allowed
--- config
    location = /metrics {
        ratelimit_metrics;
    }
--- request
POST /metrics
--- error_code: 405
--- response_headers
Allow: GET, HEAD



=== a block within the location answers as the location does
--- config
    location = /metrics {
        ratelimit_metrics;
        limit_except GET {
            deny all;
        }
        if ($arg_header) {
            add_header Arg $arg_header;
        }
    }
--- request eval
["POST /metrics", "GET /metrics?header=1"]
--- error_code eval
[403, 200]
--- response_headers eval
["", "Arg: 1"]
--- response_body_like eval
[qr/403/, qr/^ratelimit_zone_size_bytes/m]



=== a store that is away is down
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_store main {
        strategy redis;
        server   127.0.0.1:1;
        timeout  10s;
    }
    ratelimit_store idle {
        strategy redis;
    }
    ratelimit_namespace synced {
        store        main;
        sync_rate    0.02;
        window_sizes 366d;
    }
    ratelimit_namespace local { }
--- config
    location = /metrics {
        ratelimit_metrics;
    }
    location /api {
        ratelimit_api write=on;
    }
--- request eval
["POST /api/namespaces/synced/sync", "HEAD /metrics", "GET /metrics"]
--- error_code eval
[503, 200, 200]
--- response_body_like eval
[qr/"error"/, qr/^$/, qr/
ratelimit_sync_cycles_total\{namespace="synced",result="ok"\}\ 0\n
ratelimit_sync_cycles_total\{namespace="synced",result="error"\}\ [1-9]\d*\n
\#\ HELP\ ratelimit_sync_duration_seconds\ [^\n]+\n
\#\ TYPE\ ratelimit_sync_duration_seconds\ histogram\n
ratelimit_sync_duration_seconds_bucket\{namespace="synced",le="0\.001"\}\ \d+\n
(?s:.*)
ratelimit_sync_duration_seconds_bucket\{namespace="synced",le="\+Inf"\}\ [1-9]\d*\n
ratelimit_sync_duration_seconds_sum\{namespace="synced"\}\ [\d.]+\n
ratelimit_sync_duration_seconds_count\{namespace="synced"\}\ [1-9]\d*\n
(?s:.*)
ratelimit_sync_pushed_counters_total\{namespace="synced"\}\ 0\n
(?s:.*)
ratelimit_sync_fetched_counters_total\{namespace="synced"\}\ 0\n
(?s:.*)
ratelimit_sync_pending_counters\{namespace="synced"\}\ 0\n
(?s:.*)
\#\ TYPE\ ratelimit_store_up\ gauge\n
ratelimit_store_up\{store="main"\}\ 0\n
(?s:.*)
ratelimit_store_connects_total\{store="main"\}\ 0\n
(?s:.*)
ratelimit_store_exchange_duration_seconds_count\{store="main"\}\ [1-9]\d*\n
/x]



=== without a zone there is little to tell
--- http_config
--- config
    location = /metrics {
        ratelimit_metrics;
    }
--- request
GET /metrics
--- response_body_like eval
qr/^ratelimit_build_info\{.*\} 1\n# HELP ratelimit_config_load_timestamp_seconds .*\n#.*\n.*\n\z/m



=== rejections are counted by policy, but not those of a dry run
--- config
    location /a { ratelimit api limit=0.5/366d name=a; empty_gif; }
    location /b { ratelimit api limit=9/365d name=b; ratelimit limit=0.5/366d; empty_gif; }
    location /c { ratelimit api limit=0.5/366d name=a; ratelimit_dry_run on; empty_gif; }
    location /d { ratelimit limit=0.5/366d name=other; empty_gif; }
    location = /metrics { ratelimit_metrics; }
--- request eval
[("GET /a") x 2, "GET /b", "GET /c", "GET /d", "GET /metrics"]
--- error_code eval
[429, 429, 429, 200, 429, 200]
--- response_body_like eval
[(qr//) x 5, qr/
ratelimit_rejected_total\{namespace="api",policy="a"\}\ 2\n
ratelimit_rejected_total\{namespace="api",policy="b"\}\ 0\n
ratelimit_rejected_total\{namespace="default",policy="default-366d"\}\ 1\n
ratelimit_rejected_total\{namespace="default",policy="other"\}\ 1\n
\#/x]



=== of a thousand policies, each has a count, and of further ones all together
--- http_config eval
"    ratelimit_zone zone=counters:2m;\n"
--- config eval
join '', map({ "location = /$_ { ratelimit limit=0.5/366d name=p$_; empty_gif; }\n" } 1 .. 1002),
    "location = /metrics { ratelimit_metrics; }\n"
--- request eval
[map({ "GET /$_" } 1, 1000, 1001, 1002), "GET /metrics"]
--- error_code eval
[(429) x 4, 200]
--- response_body_like eval
[(qr//) x 4, qr/policy="p1"\} 1\n(?s:.*)policy="p1000"\} 1\n.*policy="other"\} 2\n#/]



=== what is wrong at run time is counted
--- config
    location /limit  { ratelimit api limit=$arg_v/366d; empty_gif; }
    location /cost   { ratelimit api limit=9/366d cost=$arg_v; empty_gif; }
    location /charge { ratelimit api limit=9/366d charge=$arg_v; empty_gif; }
    location = /metrics { ratelimit_metrics; }
--- request eval
["GET /limit?v=x", "GET /limit", "GET /cost?v=-1", "GET /cost?v=1e3", "GET /cost", "GET /charge?v=x", "GET /metrics"]
--- response_body_like eval
[(qr//) x 6, qr/
ratelimit_invalid_values_total\{namespace="api",what="limit"\}\ 1\n
ratelimit_invalid_values_total\{namespace="api",what="cost"\}\ 2\n
ratelimit_invalid_values_total\{namespace="api",what="charge"\}\ 1\n
ratelimit_invalid_values_total\{namespace="api",what="key"\}\ 0\n
/x]



=== it takes no parameter
--- config
    location = /metrics {
        ratelimit_metrics on;
    }
--- must_die
--- error_log
ratelimit_metrics: invalid parameter "on": expected none in



=== it stands in a location, once
--- config
    location = /metrics {
        ratelimit_metrics;
        ratelimit_metrics;
    }
--- must_die
--- error_log
ratelimit_metrics: is duplicate on this level: expected it once in
