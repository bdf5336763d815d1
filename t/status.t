# Tests the variable $ratelimit_status: PASSED, REJECTED, or empty where no rule
# applied, in every phase of a request in which it can be read.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# Access logs are written to the file of the error log, where the sections
# error_log and no_error_log find them.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
    log_format status 'logged status: <$ratelimit_status> $status';
END

no_long_string();
run_tests();

__DATA__

=== PASSED is an admitted request, REJECTED a rejected one
--- config
    location /t {
        ratelimit limit=1/366d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED", "X-Status: REJECTED"]



=== one of several limits that rejects makes it REJECTED
--- config
    location /t {
        ratelimit limit=9/366d;
        ratelimit limit=1/365d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED"]



=== it does not depend on the headers that are sent
--- config
    location /t {
        ratelimit limit=1/366d;
        ratelimit_headers off;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED"]



=== it is empty where no rule applied
--- config
    add_header X-Status "<$ratelimit_status>" always;
    location /none   { empty_gif; }
    location /off    { ratelimit off; empty_gif; }
    location /return { ratelimit limit=1/366d; return 200; }
    location /key    { ratelimit_key $arg_k; ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /none", "GET /off", "GET /return", "GET /key", "GET /key?k=a"]
--- error_code eval
[200, 200, 200, 200, 200]
--- response_headers eval
[("X-Status: <>") x 4, "X-Status: <PASSED>"]



=== it is empty before the decision, and that is not remembered
--- config
    location /t {
        set $before "<$ratelimit_status>";
        ratelimit limit=1/366d;
        add_header X-Before $before always;
        add_header X-Status "<$ratelimit_status>" always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers eval
["X-Before: <>
X-Status: <PASSED>",
"X-Before: <>
X-Status: <REJECTED>"]



=== a log shows PASSED
--- config
    location /t {
        ratelimit limit=1/366d;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        empty_gif;
    }
--- request
GET /t
--- error_log
logged status: <PASSED> 200



=== a log shows REJECTED
--- config
    location /t {
        ratelimit limit=0.5/366d;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log
logged status: <REJECTED> 429



=== a log shows that no rule applied
--- config
    location /t {
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        empty_gif;
    }
--- request
GET /t
--- error_log
logged status: <-> 200



=== it survives the redirect to an error page
--- config
    location /t {
        ratelimit limit=1/366d;
        error_page 404 429 =200 /page;
    }
    location /page {
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        add_header X-Status $ratelimit_status;
        return 200 "$ratelimit_status\n";
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_body eval
["PASSED\n", "REJECTED\n"]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED"]
--- error_log eval
qr/logged status: <(?:PASSED|REJECTED)> 200/



=== it survives the redirects of try_files, and named locations
--- config
    location /t      { ratelimit limit=1/366d; try_files /missing /second; }
    location /second { try_files /missing @third; }
    location @third  { return 200 "$ratelimit_status\n"; }
--- request
GET /t
--- response_body
PASSED



=== a location that a redirect leads to does not decide again
--- config
    location /t      { ratelimit limit=1/366d; try_files /missing /second; }
    location /second {
        ratelimit limit=0.5/365d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request
GET /t
--- response_headers
X-Status: PASSED



=== subrequests see the status of their request
--- config
    location /page.txt { ratelimit limit=1/366d; ssi on; ssi_types text/plain; }
    location /part     { proxy_pass http://127.0.0.1:$server_port/echo?$ratelimit_status; }
    location /echo     { return 200 $args; }
--- user_files
>>> page.txt
<!--#include virtual="/part" -->
--- request
GET /page.txt
--- response_body eval
"PASSED\n"



=== a subrequest's rules set the status of its request
--- config
    location /t {
        auth_request /auth;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
    location /auth {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/yes;
    }
    location /yes { return 204; }
--- request
GET /t
--- response_headers
X-Status: PASSED



=== an upstream can be told
--- config
    location /t {
        ratelimit limit=1/366d;
        proxy_set_header X-Status $ratelimit_status;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200 "$http_x_status\n"; }
--- request
GET /t
--- response_body
PASSED



=== it can choose among values
--- http_config
    ratelimit_zone zone=counters:1m;
    map $ratelimit_status $answer {
        PASSED   welcome;
        REJECTED later;
        default  unlimited;
    }
--- config
    add_header X-Answer $answer always;
    location /t { ratelimit limit=1/366d; empty_gif; }
    location /u { empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /u"]
--- error_code eval
[200, 429, 200]
--- response_headers eval
["X-Answer: welcome", "X-Answer: later", "X-Answer: unlimited"]



=== each request of a connection has its own
--- config
    add_header X-Status "<$ratelimit_status>" always;
    location /t { ratelimit limit=1/366d; empty_gif; }
    location /u { empty_gif; }
--- pipelined_requests eval
["GET /t", "GET /u", "GET /t", "GET /u"]
--- error_code eval
[200, 200, 429, 200]
--- response_headers eval
["X-Status: <PASSED>", "X-Status: <>", "X-Status: <REJECTED>", "X-Status: <>"]
