# Tests the parameters with which a rule differs from its level: status=, unless= and dry_run=.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
    ratelimit_headers off;
END

no_long_string();
run_tests();

__DATA__

=== the status of a rule is that of its rejections
--- config
    ratelimit_status 503;
    location /t {
        ratelimit limit=1/366d key=$arg_a status=403;
        ratelimit limit=1/365d key=$arg_b;
        empty_gif;
    }
--- request eval
["GET /t?a=1", "GET /t?a=1", "GET /t?b=1", "GET /t?b=1"]
--- error_code eval
[200, 403, 200, 503]



=== with several refusals, the status is that of the tightest limit
--- config
    location /t {
        ratelimit limit=2/366d status=403 counter=a;
        ratelimit limit=1/365d status=404 counter=b cost=$arg_c;
        empty_gif;
    }
--- request eval
[("GET /t?c=0") x 2, "GET /t?c=0", "GET /t?c=1"]
--- error_code eval
[200, 200, 403, 403]



=== error_page sees the status of a rule, and 444 closes the connection
--- config
    error_page 418 /teapot;
    location /t { ratelimit limit=1/366d status=418; empty_gif; }
    location /teapot { return 200 short; }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 418]
--- response_body_like eval
[qr/^GIF/, qr/^short$/]



=== status 444 of a rule
--- config
    location /t { ratelimit limit=1/366d status=444 key=$arg_k; empty_gif; }
--- request eval
["GET /t?k=1", "GET /t?k=1"]
--- error_code eval
[200, ""]



=== a rule does not apply to requests with an exception
--- config
    location /t {
        ratelimit limit=1/366d key=$arg_k unless=$arg_free;
        add_header X-Status <$ratelimit_status> always;
        empty_gif;
    }
--- request eval
["GET /t?k=1&free=1", "GET /t?k=1&free=yes", "GET /t?k=1", "GET /t?k=1&free=0", "GET /t?k=1&free=", "GET /t?k=1&free=00"]
--- error_code eval
[200, 200, 200, 429, 429, 200]
--- response_headers eval
["X-Status: <>", "X-Status: <>", "X-Status: <PASSED>", "X-Status: <REJECTED>", "X-Status: <REJECTED>", "X-Status: <>"]



=== other rules apply, whose key is evaluated anew
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d;
        ratelimit limit=9/365d unless=$arg_free;
        ratelimit limit=2/364d;
        empty_gif;
    }
--- request eval
["GET /t?k=1&free=1", "GET /t?k=1&free=1", "GET /t?k=2&free=1"]
--- error_code eval
[200, 429, 200]



=== an exception of a list of networks, and of a rule with a counter
--- http_config
    ratelimit_zone zone=counters:1m;
    geo $internal { default 0; 127.0.0.0/8 1; }
--- config
    location /t { ratelimit limit=1/366d unless=$internal counter=a; empty_gif; }
    location /u { ratelimit limit=1/366d unless=$internal$arg_no counter=b; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]



=== a rule that is tried refuses no request, and charges what it admits
--- config
    ratelimit_log_level warn;
    location /t {
        ratelimit limit=1/366d dry_run=on;
        ratelimit limit=3/365d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
    location /asked { ratelimit limit=1/366d cost=0 counter=default; ratelimit_headers legacy; empty_gif; }
--- request eval
[("GET /t") x 4, "GET /asked"]
--- error_code eval
[200, 200, 200, 429, 429]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED_DRY_RUN", "X-Status: REJECTED_DRY_RUN", "X-Status: REJECTED", ""]



=== a tried rule logs what it would reject
--- config
    ratelimit_log_level warn;
    location /t {
        ratelimit limit=0.5/366d dry_run=on;
        ratelimit limit=3/365d;
        empty_gif;
    }
--- request
GET /t
--- error_log eval
qr/\[warn\] .*would be rejected by "default-366d", .*limit 0.5, rate 1, cost 1, rule nginx.conf:\d+,/



=== of a tried and another rule, a rejection logs the other
--- config
    location /t {
        ratelimit limit=0.5/366d dry_run=on;
        ratelimit limit=0.6/365d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/: rejected by "default-365d", .*limit 0.6, rate 1,/
--- no_error_log
default-366d



=== all limits of a tried rule charge a request, or none
--- config
    location /t {
        ratelimit limit=2/366d limit=1/365d dry_run=on;
        empty_gif;
    }
    location /asked {
        ratelimit limit=$arg_l/366d cost=0 counter=default;
        empty_gif;
    }
--- request eval
[("GET /t") x 3, "GET /asked?l=1", "GET /asked?l=2"]
--- error_code eval
[200, 200, 200, 429, 200]



=== a rejected request charges no tried rule
--- config
    location /t {
        ratelimit limit=5/366d dry_run=on;
        ratelimit limit=1/365d;
        empty_gif;
    }
    location /asked { ratelimit limit=$arg_l/366d cost=0 counter=default; empty_gif; }
--- request eval
[("GET /t") x 3, "GET /asked?l=1", "GET /asked?l=2"]
--- error_code eval
[200, 429, 429, 429, 200]



=== in a dry run, a rule without one rejects
--- config
    ratelimit_dry_run on;
    location /t {
        ratelimit limit=1/366d;
        ratelimit limit=2/365d dry_run=off status=403;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 403]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED_DRY_RUN", "X-Status: REJECTED"]



=== levels that inherit such rules each say what the others do
--- config
    ratelimit limit=1/366d key=$arg_k;
    ratelimit limit=9/365d dry_run=off key=$arg_k;
    location /dry/ { ratelimit_dry_run on; try_files /none @gif; }
    location /wet/ { try_files /none @gif; }
    location @gif { empty_gif; }
--- request eval
["GET /dry/?k=a", "GET /dry/?k=a", "GET /wet/?k=b", "GET /wet/?k=b"]
--- error_code eval
[200, 200, 200, 429]



=== rejected requests that are charged are charged to tried rules, too
--- config
    ratelimit_count_rejected on;
    location /t {
        ratelimit limit=1/366d dry_run=on;
        empty_gif;
    }
    location /asked { ratelimit limit=$arg_l/366d cost=0 counter=default; ratelimit_count_rejected off; empty_gif; }
--- request eval
[("GET /t") x 3, "GET /asked?l=3", "GET /asked?l=4"]
--- error_code eval
[200, 200, 200, 429, 200]



=== hits that are known with the response are charged by tried rules that admit
--- config
    location /t {
        ratelimit limit=4/366d charge=2 dry_run=on;
        ratelimit limit=99/365d charge=1;
        empty_gif;
    }
    location /a { ratelimit limit=$arg_l/366d cost=0 counter=default; empty_gif; }
    location /b { ratelimit limit=$arg_l/365d cost=0 counter=default; empty_gif; }
--- request eval
[("GET /t") x 4, "GET /a?l=4", "GET /a?l=4.1", "GET /b?l=4", "GET /b?l=4.1"]
--- error_code eval
[200, 200, 200, 200, 429, 200, 429, 200]



=== the rate of a tried rule delays none, and that of another one does
--- config
    location /t {
        ratelimit rate=1/366d burst=9 delay=all dry_run=on;
        ratelimit rate=1/10ms burst=9 delay=all counter=b;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
    location /u {
        ratelimit rate=1/366d burst=9 delay=all counter=c dry_run=on;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
["GET /u", "GET /u", "GET /t", "GET /t"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers_like eval
["X-Status: PASSED", "X-Status: DELAYED_DRY_RUN", "X-Status: PASSED", "X-Status: DELAYED(_DRY_RUN)?"]



=== the API lists what each rule does
--- config
    location /dry { ratelimit_dry_run on; ratelimit api limit=1/366d; ratelimit api limit=1/365d dry_run=off status=403 unless=$arg_x; empty_gif; }
    location /api/ { ratelimit_api; }
--- request
GET /api/namespaces/api/rules
--- response_body_like eval
qr/^\{"rules":\[\{.*"dry_run":true\},\{.*"dry_run":false\}\]\}$/
