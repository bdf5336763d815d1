# ratelimit_metrics: what a node counted, as Prometheus reads it.
#
# Windows are of about a year, so that no test meets the end of one (see
# limit.t). The store of `synced` is a port where nobody listens.

use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;
    $block->set_value(http_config => <<'END') if !defined $block->http_config;
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
END
    $block->set_value(no_error_log => [qr/\[(?:emerg|alert|crit)\]/])
        if !defined $block->no_error_log && !defined $block->must_die;
});

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
^\#\ HELP\ ratelimit_requests_total\ [^\n]+\n
\#\ TYPE\ ratelimit_requests_total\ counter\n
ratelimit_requests_total\{namespace="api",result="passed"\}\ 2\n
ratelimit_requests_total\{namespace="api",result="rejected"\}\ 1\n
ratelimit_requests_total\{namespace="api",result="rejected_dry_run"\}\ 0\n
ratelimit_requests_total\{namespace="api",result="error"\}\ 0\n
ratelimit_requests_total\{namespace="default",result="passed"\}\ 1\n
ratelimit_requests_total\{namespace="default",result="rejected"\}\ 0\n
ratelimit_requests_total\{namespace="default",result="rejected_dry_run"\}\ 1\n
(?s:.*)
ratelimit_hits_total\{namespace="api"\}\ 1.5\n
ratelimit_hits_total\{namespace="default"\}\ 1\n
(?s:.*)
ratelimit_zone_size_bytes\{zone="counters"\}\ 1048576\n
(?s:.*)
ratelimit_zone_keys\{zone="counters"\}\ 2\n
(?s:.*)
ratelimit_zone_evicted_total\{zone="counters",state="ended"\}\ 0\n
ratelimit_zone_evicted_total\{zone="counters",state="sent"\}\ 0\n
ratelimit_zone_evicted_total\{zone="counters",state="unsent"\}\ 0\n
\#\ HELP\ ratelimit_event_loop_hold_seconds_max\ [^\n]+\n
\#\ TYPE\ ratelimit_event_loop_hold_seconds_max\ gauge\n
ratelimit_event_loop_hold_seconds_max\ [\d.]+\n\z
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
--- wait: 1
--- request eval
["HEAD /metrics", "GET /metrics"]
--- response_body_like eval
[qr/^$/, qr/
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
ratelimit_sync_pushed_keys_total\{namespace="synced"\}\ 0\n
(?s:.*)
ratelimit_sync_fetched_keys_total\{namespace="synced"\}\ 0\n
(?s:.*)
ratelimit_sync_pending_keys\{namespace="synced"\}\ 0\n
(?s:.*)
\#\ TYPE\ ratelimit_store_up\ gauge\n
ratelimit_store_up\{store="main"\}\ 0\n
(?s:.*)
ratelimit_store_connects_total\{store="main"\}\ 0\n
(?s:.*)
ratelimit_store_exchange_duration_seconds_count\{store="main"\}\ [1-9]\d*\n
(?s:.*)
ratelimit_event_loop_hold_seconds_max\ [\d.]+\n\z
/x]



=== without anything to tell the answer is empty
--- http_config
--- config
    location = /metrics {
        ratelimit_metrics;
    }
--- request
GET /metrics
--- response_body:



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
ratelimit_metrics: is duplicate on this level in
