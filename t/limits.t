# Tests limits=$variable: the limits of a rule are a list in a variable.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
    map $arg_plan $limits {
        small "2/366d";
        large "3/366d 9/365d";
        daily " 1/365d ";
        none  "";
        zero  "0/366d";
        wrong "5/366d x/365d";
        other "5/366d 5/1h";
        twice "5/366d 6/366d";
    }
    ratelimit_namespace api { window_sizes 365d 366d; }
END

no_long_string();
run_tests();

__DATA__

=== each request is limited by its list
--- config
    location /t { ratelimit api limits=$limits key=$arg_plan; empty_gif; }
--- request eval
[("GET /t?plan=small") x 3, ("GET /t?plan=large") x 4, ("GET /t?plan=daily") x 2]
--- error_code eval
[200, 200, 429, 200, 200, 200, 429, 200, 429]



=== an empty list does not limit, and zero admits nothing
--- config
    add_header X-Status <$ratelimit_status> always;
    location /t { ratelimit api limits=$limits key=$arg_plan; empty_gif; }
--- request eval
["GET /t?plan=none", "GET /t?plan=missing", "GET /t?plan=zero"]
--- error_code eval
[200, 200, 429]
--- response_headers eval
["X-Status: <>", "X-Status: <>", "X-Status: <REJECTED>"]



=== policies are named by their windows
--- config
    location /t { ratelimit api limits=$limits key=$arg_plan; ratelimit api limit=8/366d key=$arg_plan counter=a; empty_gif; }
--- request eval
["GET /t?plan=large", "GET /t?plan=daily"]
--- response_headers eval
[qq(RateLimit-Policy: "api-365d";q=9;w=31536000, "api-366d";q=3;w=31622400, "api-366d-2";q=8;w=31622400),
 qq(RateLimit-Policy: "api-365d";q=1;w=31536000, "api-366d-2";q=8;w=31622400)]



=== lists share the counters of rules with the same windows
--- config
    location /list { ratelimit api limits=$limits key=k; empty_gif; }
    location /rule { ratelimit api limit=2/366d key=k; empty_gif; }
--- request eval
["GET /rule", "GET /list?plan=small", "GET /list?plan=small", "GET /rule"]
--- error_code eval
[200, 200, 429, 429]



=== a wrong list is logged once, and does not limit
--- config
    location /t { ratelimit api limits=$limits; empty_gif; }
    location /metrics { ratelimit_metrics; }
--- request
GET /t?plan=wrong
--- error_log
[error]
ratelimit: the limits are "5/366d x/365d", in which \x22x/365d\x22 is no limit: expected hits/window, such as 10/1s: none applies
--- grep_error_log: in which
--- grep_error_log_out
in which



=== the default applies in place of a wrong list
--- config
    location /t { ratelimit api limits=$limits "default=1/366d 5/365d" key=$arg_plan; empty_gif; }
    location /metrics { ratelimit_metrics; }
--- request eval
[("GET /t?plan=other") x 2, ("GET /t?plan=twice") x 2, ("GET /t?plan=small") x 2, ("GET /t?plan=none") x 2, "GET /metrics"]
--- error_code eval
[200, 429, 200, 429, 200, 200, 200, 200, 200]
--- response_body_like eval
["", "", "", "", "", "", "", "", qr/^ratelimit_invalid_values_total\{namespace="api",what="limit"\} 4$/m]



=== levels inherit lists, those of http too
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limits=$arg_l key=$uri;
    ratelimit_namespace default { window_sizes 366d; }
--- config
    location /a { empty_gif; }
    location /b { ratelimit limits=$arg_m key=$uri; location /b/c { empty_gif; } empty_gif; }
--- request eval
[("GET /a?l=1/366d") x 2, ("GET /b/c?l=9/366d&m=1/366d") x 2]
--- error_code eval
[200, 429, 200, 429]



=== windows that rules have, in a namespace without window_sizes
--- http_config
    ratelimit_zone zone=counters:1m;
--- config
    location /a { ratelimit limit=9/366d; empty_gif; }
    location /b { ratelimit limits=$arg_l key=b; empty_gif; }
--- request eval
[("GET /b?l=1/366d") x 2]
--- error_code eval
[200, 429]
