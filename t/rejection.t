# Tests rejected requests: whether they count, their response, their log line, and
# the time in Retry-After; and dry runs, which reject nothing.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# `cost=0` reads counters without counting. Access logs are written to the file of
# the error log, where the sections that check logs find them.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
    log_format status 'logged status: <$ratelimit_status> $status';
    log_format wait 'logged wait: <$sent_http_retry_after>';
END

no_long_string();
run_tests();

__DATA__

=== count_rejected: rejected hits do not count by default
--- config
    location /default { ratelimit limit=2/366d; empty_gif; }
    location /off     { ratelimit_count_rejected off; ratelimit limit=2/366d; empty_gif; }
    location /look    { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /default", "GET /off", "GET /default", "GET /off", "GET /look"]
--- error_code eval
[200, 200, 429, 429, 200]
--- response_headers_like eval
[main::left(1, 0, 0, 0, 98)]



=== count_rejected: if it is on they do
--- config
    location /t    { ratelimit_count_rejected on; ratelimit limit=2/366d; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
[("GET /t", "GET /look") x 4]
--- error_code eval
[200, 200, 200, 200, 429, 200, 429, 200]
--- response_headers_like eval
[main::left(1, 99, 0, 98, 0, 97, 0, 96)]



=== count_rejected: a client that never slows down stays blocked, the longer the more it tries
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 429, 429, 429]
--- response_headers_like eval
# In the next window, the weight of the n hits decreases until n * 1/n + 1 is 2.
my $wait = sub { my ($n) = @_; main::seconds_left(31622400 - 31622400 / $n) };
['Retry-After: ', 'Retry-After: ', map { 'Retry-After: ' . $wait->($_) } 3, 4, 5]



=== count_rejected: without it, trying changes nothing
--- config
    location /t {
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 200, 429, 429, 429]
--- response_headers_like eval
['Retry-After: ', 'Retry-After: ', ('Retry-After: ' . main::seconds_left(31622400 / 2)) x 3]



=== count_rejected: in every limit of the request, whichever refuses
--- config
    ratelimit_count_rejected on;
    location /first  { ratelimit_key first; ratelimit limit=1/366d limit=9/365d; empty_gif; }
    location /second { ratelimit_key second; ratelimit limit=9/365d; ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /first", "GET /first", "GET /first", "GET /second", "GET /second", "GET /second"]
--- error_code eval
[(200, 429, 429) x 2]
--- response_headers_like eval
[(map {'RateLimit: "default-366d";r=0;t=\d+, "default-365d";r=' . $_ . ';t=\d+'} 8, 7, 6) x 2]



=== count_rejected: a counter that limits share is charged once
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit limit=1/366d limit=9/366d window=fixed;
        ratelimit limit=8/366d;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /look"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers_like eval
[(map {'RateLimit: "default-366d";r=0;t=\d+, "default-366d-3";r=' . (8 - $_) . ';t=\d+, "default-366d-2";r=' . (9 - $_) . ';t=\d+'} 1, 2, 3),
 main::left(97)]



=== count_rejected: hits of any cost, more than the limit too
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit limit=2/366d cost=$arg_c;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t?c=2.5", "GET /look", "GET /t?c=0", "GET /look", "GET /t?c=0.5", "GET /look"]
--- error_code eval
[429, 200, 429, 200, 429, 200]
--- response_headers_like eval
[main::left(0, 97, 0, 97, 0, 97)]



=== count_rejected: charges of rejected requests too
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit limit=1/366d charge=5;
        ratelimit limit=9/365d;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
["GET /t", "GET /look", "GET /t", "GET /look"]
--- error_code eval
[200, 200, 429, 200]
--- response_headers_like eval
['RateLimit: "default-365d";r=8;t=\d+, "default-366d";r=1;t=\d+', main::left(95),
 'RateLimit: "default-366d";r=0;t=\d+, "default-365d";r=7;t=\d+', main::left(90)]



=== count_rejected: in several zones
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace a { zone one; }
    ratelimit_namespace b { zone two; }
--- config
    location /t {
        ratelimit_count_rejected on;
        ratelimit a limit=1/366d;
        ratelimit b limit=9/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
[map {'RateLimit: "a-366d";r=0;t=\d+, "b-366d";r=' . $_ . ';t=\d+'} 8, 7, 6]



=== count_rejected: a rejected request counts once, over its error page
--- config
    ratelimit_count_rejected on;
    ratelimit limit=1/366d;
    error_page 429 /sorry.txt;
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
["GET /", "GET /", "GET /look"]
--- error_code eval
[200, 429, 200]
--- response_headers_like eval
[main::left(0, 0, 98)]



=== count_rejected: it is inherited, apart from rules
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_count_rejected on;
    ratelimit limit=1/366d;
    ratelimit_key $arg_k;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        ratelimit_count_rejected off;
        location /on { ratelimit_count_rejected on; location /on/t { empty_gif; } }
        location /   { empty_gif; }
    }
--- config
    location /t      { empty_gif; }
    location /off    { ratelimit_count_rejected off; location /off/t { empty_gif; } }
    location /rule   { ratelimit limit=1/366d; empty_gif; }
    location /server { ratelimit off; proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
    location /look   { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
[map { ("GET $_?k=$_") x 3, "GET /look?k=$_" } "/t", "/off/t", "/rule", "/server/t", "/server/on/t"]
--- error_code eval
[(200, 429, 429, 200) x 5]
--- response_headers_like eval
[map { main::left(0, 0, 0, $_) } 97, 99, 97, 99, 97]



=== status: any from 400 to 599
--- config eval
CORE::join '', map {"location /$_/ { ratelimit_key $_; ratelimit_status $_; ratelimit limit=1/366d; error_page 404 =200 /index.html; }\n"}
    400 .. 407, 409 .. 418, 421 .. 431, 450, 451, 498, 500 .. 511, 520, 599
--- request eval
[map {"GET /$_/"} map { ($_, $_) } 400 .. 407, 409 .. 418, 421 .. 431, 450, 451, 498, 500 .. 511, 520, 599]
--- error_code eval
[map { (200, $_ == 404 ? 200 : $_) } 400 .. 407, 409 .. 418, 421 .. 431, 450, 451, 498, 500 .. 511, 520, 599]
--- response_headers_like eval
[('RateLimit: "default-366d";r=0;t=\d+
Retry-After: ', 'RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d{7,}') x 48]



=== status: those that nginx itself uses in another sense are answered as they are
--- config eval
CORE::join '', map {"location /$_ { ratelimit_status $_; ratelimit limit=0.5/366d; empty_gif; }\n"} 408, 494 .. 497, 499
--- request eval
[map {"GET /$_"} 408, 494 .. 497, 499]
--- error_code eval
[408, 494 .. 497, 499]



=== status: 503 as well has the headers of a rejection
--- config
    location /t {
        ratelimit_status 503;
        ratelimit limit=1/366d window=fixed;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 503]
--- response_headers_like eval
['X-Status: PASSED',
'RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+
Retry-After: ' . main::seconds_left() . '
X-Status: REJECTED']
--- response_body_like eval
["GIF", "503 Service"]



=== status: one that nginx has no text for
--- config
    location /t {
        ratelimit_status 450;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 450
--- raw_response_headers_like: \AHTTP/1\.1 450\b
--- response_headers_like
RateLimit: "default-366d";r=0
Content-Length: 0



=== status: 444 closes the connection without an answer
--- config
    location /t/ {
        ratelimit_status 444;
        ratelimit limit=1/366d;
    }
--- user_files
>>> t/file.txt
hello
--- request eval
["GET /t/file.txt", "GET /t/file.txt", "POST /t/file.txt\nbody", "HEAD /t/file.txt", "GET /"]
--- error_code eval
[200, "", "", "", 200]
--- response_body eval
["hello\n", "", "", "", qr/It works!/]



=== status: with 444, what else was sent on the connection is not answered
--- config
    location /t {
        ratelimit_status 444;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- pipelined_requests eval
["GET /", "GET /t", "GET /t", "GET /"]
--- error_code eval
[200, 200, "", ""]



=== status: 444 is logged, and counted as a rejection
--- config
    location /t {
        ratelimit_status 444;
        ratelimit limit=0.5/366d;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        empty_gif;
    }
--- request
GET /t
--- error_code:
--- response_body:
--- error_log eval
[qr/\[error\] .*ratelimit: rejected by "default-366d"/, 'logged status: <REJECTED> 444']



=== status: an error page for it is served, and not limited
--- config
    ratelimit_status 503;
    location /t          { ratelimit limit=1/366d; error_page 503 /sorry.txt; empty_gif; }
    location /named      { ratelimit limit=1/366d; error_page 503 @sorry; empty_gif; }
    location /other      { ratelimit limit=1/366d; error_page 503 =418 /sorry.txt; empty_gif; }
    location = /sorry.txt { ratelimit limit=0.5/365d; }
    location @sorry       { ratelimit limit=0.5/365d; root html; try_files /sorry.txt =404; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
["GET /t", "GET /t", "GET /named", "GET /other", "GET /t", "GET /sorry.txt"]
--- error_code eval
[200, 503, 503, 418, 503, 503]
--- response_body eval
[qr/GIF/, ("Come back later.\n") x 4, qr/503 Service/]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+') x 4, 'RateLimit: "default-365d";r=0
Retry-After: ']



=== status: an error page sees those that nginx takes for something else, too
--- config eval
my $locations = join '', map {qq(
    location /named/$_ { ratelimit_status $_; ratelimit limit=0.5/366d; error_page $_ \@sorry; empty_gif; }
    location /other/$_ { ratelimit_status $_; ratelimit limit=0.5/366d; error_page $_ =418 /sorry.txt; empty_gif; }
    location /moved/$_ { ratelimit_status $_; ratelimit limit=0.5/366d; error_page $_ =303 http://example.org/sorry; empty_gif; }
    location /none/$_  { ratelimit_status $_; ratelimit limit=0.5/366d; error_page 500 /sorry.txt; empty_gif; }
    location /$_       { ratelimit_status $_; ratelimit limit=0.5/366d; error_page 500 $_ /sorry.txt; empty_gif; })
} 408, 430, 494 .. 498, 508, 599;
qq(
    $locations
    location = /sorry.txt { ratelimit limit=0.5/365d; }
    location \@sorry      { ratelimit limit=0.5/365d; root html; try_files /sorry.txt =404; }
)
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[map { ("POST /$_\nbody", "GET /named/$_", "GET /other/$_", "GET /moved/$_", "HEAD /none/$_") } 408, 430, 494 .. 498, 508, 599]
--- error_code eval
# For 494 to 497, which nginx uses for invalid requests over TLS, it sends 400 if the error page sets no other status.
[map { my $named = /49[4-7]/ ? 400 : $_; ($named, $named, 418, 303, $_) } 408, 430, 494 .. 498, 508, 599]
--- response_body_like eval
[(('Come back later.') x 3, '303 See Other', '\A\z') x 9]
--- response_headers_like eval
[('RateLimit: "default-366d";r=0') x 45]



=== status: a subrequest is answered so, and its request goes on
--- config eval
my $locations = join '', map {qq(
    location = /page/$_.txt { ssi on; ssi_types text/plain; alias html/page.txt; set \$of $_; }
    location = /part/$_     { ratelimit_status $_; ratelimit limit=0.5/366d; empty_gif; }
    location = /told/$_     { ratelimit_status $_; ratelimit limit=0.5/366d; error_page $_ /sorry.txt; empty_gif; })
} 408, 494 .. 498;
"$locations location = /sorry.txt { }"
--- user_files
>>> page.txt
<!--#include virtual="/part/$of" -->|<!--#include virtual="/told/$of" -->
>>> sorry.txt
Come back later.
--- pipelined_requests eval
[map {"GET /page/$_.txt"} 408, 494 .. 498]
--- error_code eval
[(200) x 6]
--- response_body eval
[("|Come back later.\n\n") x 6]



=== status: an error page of another status is not for it
--- config
    location /t {
        ratelimit_status 403;
        ratelimit limit=0.5/366d;
        error_page 429 /sorry.txt;
        empty_gif;
    }
--- request
GET /t
--- error_code: 403
--- response_body_like: 403 Forbidden



=== status: the connection is kept, bodies of rejected requests are not taken for requests
--- config
    location /t {
        ratelimit_status 503;
        ratelimit limit=1/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200; }
--- pipelined_requests eval
["POST /t\nGET / HTTP/1.1", "POST /t\nGET / HTTP/1.1", "POST /t\nGET / HTTP/1.1", "GET /"]
--- error_code eval
[200, 503, 503, 200]



=== status: it is inherited, apart from rules
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_status 503;
    ratelimit limit=0.5/366d;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        ratelimit_status 403;
        location /own { ratelimit_status 420; location /own/t { empty_gif; } }
        location /    { empty_gif; }
    }
--- config
    location /t      { empty_gif; }
    location /own    { ratelimit_status 420; location /own/t { empty_gif; } }
    location /rule   { ratelimit limit=0.5/365d; empty_gif; }
    location /server { ratelimit off; proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
--- request eval
["GET /t", "GET /own/t", "GET /rule", "GET /server/t", "GET /server/own/t"]
--- error_code eval
[503, 420, 503, 403, 420]



=== gRPC: a rejected call is answered as gRPC does
--- config
    location /t {
        ratelimit_status 503;
        ratelimit limit=1/366d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("POST /t\nbody") x 3]
--- more_headers eval
["Content-Type: application/grpc", "Content-Type: application/grpc", "content-type: application/grpc+proto"]
--- error_code eval
[405, 200, 200]
--- response_body_like eval
["405", ('\A\z') x 2]
--- response_headers_like eval
['Grpc-Status: ', (map {"Grpc-Status: 8
Content-Type: $_
X-Status: REJECTED" . '
RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d{7,}'} 'application/grpc', 'application/grpc\+proto')]



=== gRPC: other content types are no calls
--- config
    location /t {
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request eval
[("POST /t\nbody") x 3]
--- more_headers eval
["Content-Type: application/json", "Content-Type: x-application/grpc", ""]
--- error_code eval
[429, 429, 429]
--- response_headers eval
[("!Grpc-Status") x 3]



=== gRPC: 444 closes the connection of a call too
--- config
    location /t {
        ratelimit_status 444;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request eval
"POST /t\nbody"
--- more_headers
Content-Type: application/grpc
--- error_code:
--- response_body:



=== gRPC: a dry run does not reject calls
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=0.5/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 200 "answer"; }
--- request eval
"POST /t\nbody"
--- more_headers
Content-Type: application/grpc
--- response_body: answer
--- response_headers
!Grpc-Status
RateLimit: "default-366d";r=0



=== dry_run: nothing is rejected, and there is no Retry-After
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=2/366d;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[(200) x 4]
--- response_headers_like eval
[map {"RateLimit: \"default-366d\";r=$_->[0];t=\\d+\nX-Status: $_->[1]\nRetry-After: "}
    [1, "PASSED"], [0, "PASSED"], [0, "REJECTED_DRY_RUN"], [0, "REJECTED_DRY_RUN"]]



=== dry_run: what would be rejected is logged as a dry run
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=0.5/366d;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log status;
        empty_gif;
    }
--- request
GET /t
--- error_log eval
[qr/\[error\] .*ratelimit: would be rejected by "default-366d", namespace "default", key "127\.0\.0\.1", limit 0\.5, rate 1, cost 1, rule nginx\.conf:\d+, client: /, 'logged status: <REJECTED_DRY_RUN> 200']



=== dry_run: what is rejected is not logged as a dry run
--- config
    location /t {
        ratelimit_dry_run off;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log: ratelimit: rejected by "default-366d"
--- no_error_log
would be



=== dry_run: what is admitted is not logged
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
main::left(0)
--- no_error_log
rejected by
[error]



=== dry_run: it counts as if it were not dry
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=2/366d limit=9/365d;
        ratelimit limit=9/364d charge=1;
        empty_gif;
    }
    location /wet  { ratelimit limit=2/366d; empty_gif; }
    location /look { ratelimit limit=100/366d limit=100/365d limit=100/364d cost=0; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /wet", "GET /look"]
--- error_code eval
[(200) x 5, 429, 200]
--- response_headers_like eval
[('RateLimit: .*') x 5, main::left(0), 'RateLimit: "default-366d";r=98;t=\d+, "default-365d";r=98;t=\d+, "default-364d";r=98;t=\d+']



=== dry_run: what is rejected counts if it would
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit_count_rejected on;
        ratelimit limit=2/366d limit=9/365d;
        ratelimit limit=9/364d charge=1;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d limit=100/365d limit=100/364d cost=0; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /look"]
--- error_code eval
[(200) x 6]
--- response_headers_like eval
[('RateLimit: .*') x 5, 'RateLimit: "default-366d";r=95;t=\d+, "default-365d";r=95;t=\d+, "default-364d";r=95;t=\d+']



=== dry_run: with any status, 444 too
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit_status 444;
        ratelimit limit=0.5/366d;
        error_page 429 503 /sorry.txt;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit: "default-366d";r=0
--- response_body_like: GIF



=== dry_run: a Retry-After of the upstream is kept
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit_retry_after_jitter 1d;
        ratelimit limit=0.5/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { add_header Retry-After 7 always; return 503; }
--- request
GET /t
--- error_code: 503
--- response_headers
Retry-After: 7
RateLimit: "default-366d";r=0



=== dry_run: other modules still reject
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit limit=0.5/366d;
        deny all;
        empty_gif;
    }
--- request
GET /t
--- error_code: 403
--- response_headers
RateLimit: "default-366d";r=0
!Retry-After



=== dry_run: a request is decided on once, over internal redirects
--- config
    location /t     { ratelimit_dry_run on; ratelimit limit=0.5/366d; try_files /missing /later; }
    location /later { ratelimit limit=0.5/365d; empty_gif; }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=0;w=31622400
!Retry-After



=== dry_run: it is inherited, apart from rules
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_dry_run on;
    ratelimit limit=0.5/366d;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        ratelimit_dry_run off;
        location /on { ratelimit_dry_run on; location /on/t { empty_gif; } }
        location /   { empty_gif; }
    }
--- config
    location /t      { empty_gif; }
    location /off    { ratelimit_dry_run off; location /off/t { empty_gif; } }
    location /rule   { ratelimit limit=0.5/365d; empty_gif; }
    location /server { ratelimit off; proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
--- request eval
["GET /t", "GET /off/t", "GET /rule", "GET /server/t", "GET /server/on/t"]
--- error_code eval
[200, 429, 200, 429, 200]



=== the line of a rejection names policy, namespace and key, and the rate that was refused
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { }
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit api limit=1/366d window=fixed cost=1.5 name=few;
        empty_gif;
    }
--- request
GET /t?k=a
--- error_code: 429
--- error_log
ratelimit: rejected by "few", namespace "api", key "a", limit 1, rate 1.5, cost 1.5,



=== count_rejected: the rate in the line is what is counted
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit_count_rejected on;
        ratelimit limit=1/366d window=fixed cost=1.5;
        empty_gif;
    }
--- request
GET /t?k=a
--- error_code: 429
--- error_log
key "a", limit 1, rate 1.5, cost 1.5,



=== of several limits, the line names the tightest that refused
--- config
    location /t {
        ratelimit limit=1/365d limit=0.5/366d cost=0.75 key=one;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log
ratelimit: rejected by "default-366d", namespace "default", key "one", limit 0.5, rate 0.75, cost 0.75,



=== a key cannot forge a line, nor end its quotes
--- config
    location /t { ratelimit limit=0.5/366d key=$uri; empty_gif; }
--- request
GET /t%22,%20limit%209%0a%1b%5b31m%5c%e4
--- error_code: 429
--- error_log
key "/t\x22, limit 9\x0a\x1b[31m\x5c\xe4", limit 0.5, rate 1, cost 1,



=== a long key is cut in the line
--- config
    location /t { ratelimit limit=0.5/366d key=$arg_k; empty_gif; }
--- request eval
"GET /t?k=" . 'k' x 4000
--- error_code: 429
--- error_log eval
'key "' . 'k' x 100 . '", limit 0.5, rate 1, cost 1,'



=== log_level: error by default
--- config
    location /t { ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[error\] .*ratelimit: rejected by /



=== log_level: error
--- config
    location /t { ratelimit_log_level error; ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[error\] .*ratelimit: rejected by /



=== log_level: warn
--- config
    location /t { ratelimit_log_level warn; ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[warn\] .*ratelimit: rejected by /



=== log_level: notice
--- config
    location /t { ratelimit_log_level notice; ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[notice\] .*ratelimit: rejected by /



=== log_level: info
--- config
    location /t { ratelimit_log_level info; ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[info\] .*ratelimit: rejected by /



=== log_level: off
--- config
    location /t { ratelimit_log_level off; ratelimit limit=0.5/366d; empty_gif; }
--- log_level: debug
--- request
GET /t
--- error_code: 429
--- no_error_log
rejected by
[emerg]



=== log_level: it is the level of dry runs too
--- config
    location /t { ratelimit_dry_run on; ratelimit_log_level notice; ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_log eval
qr/\[notice\] .*ratelimit: would be rejected by /
--- no_error_log
[error]



=== log_level: a line below the error log's own level is not written
--- config
    location /t {
        error_log $TEST_NGINX_SERVER_ROOT/logs/error.log notice;
        ratelimit_log_level info;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- no_error_log
rejected by



=== log_level: a line of the error log's own level is written
--- config
    location /t {
        error_log $TEST_NGINX_SERVER_ROOT/logs/error.log notice;
        ratelimit_log_level notice;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log
rejected by



=== log_level: that of http is inherited, apart from rules
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_log_level info;
--- config
    location /t { ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[info\] .*ratelimit: rejected by /



=== log_level: that of a server is inherited in place of that of http
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_log_level info;
    ratelimit limit=0.5/366d;
--- config
    ratelimit_log_level warn;
    location /t { location /t/nested { empty_gif; } }
--- request
GET /t/nested
--- error_code: 429
--- error_log eval
qr/\[warn\] .*ratelimit: rejected by /



=== log_level: that of a location is its own
--- config
    ratelimit_log_level warn;
    ratelimit limit=0.5/366d;
    location /t { ratelimit_log_level notice; location /t/nested { empty_gif; } }
--- request
GET /t/nested
--- error_code: 429
--- error_log eval
qr/\[notice\] .*ratelimit: rejected by /



=== retry_after_jitter: waits differ at random, by no more than it
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /ask { proxy_pass http://127.0.0.1:$server_port/limited; }
    location /limited {
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log wait;
        ratelimit_status 404;
        ratelimit_retry_after_jitter 10m;
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
--- user_files eval
[["page.txt" => '<!--#include virtual="/ask" wait="yes" -->' x 41]]
--- request
GET /page.txt
--- grep_error_log eval
qr/logged wait: <.*?>/
--- grep_error_log_out eval
my ($any, $above) = (main::seconds_between(0, 600), main::seconds_between(603, 600));
# The 40 waits are in the range, they are not all equal, and some are longer than without the range.
# The patterns allow 600 seconds until the request is made.
qr/\Alogged wait: <->\n(?=(?:.*\n)*logged wait: <$above>)(?!logged wait: <(\d+)>\n(?:logged wait: <\1>\n)*\z)(?:logged wait: <$any>\n){40}\z/



=== retry_after_jitter: without it there is none
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /ask { proxy_pass http://127.0.0.1:$server_port/limited; }
    location /limited {
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log wait;
        ratelimit_status 404;
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
--- user_files eval
[["page.txt" => '<!--#include virtual="/ask" wait="yes" -->' x 41]]
--- request
GET /page.txt
--- grep_error_log eval
qr/logged wait: <.*?>/
--- grep_error_log_out eval
my $left = main::seconds_left();
qr/\Alogged wait: <->\n(?:logged wait: <$left>\n){40}\z/



=== retry_after_jitter: 0 is none, and less than a second adds one at most
--- config
    location /0     { ratelimit_retry_after_jitter 0; ratelimit limit=1/366d window=fixed; empty_gif; }
    location /999ms { ratelimit_retry_after_jitter 999ms; ratelimit limit=1/366d window=fixed; empty_gif; }
--- request eval
["GET /0", "GET /0", ("GET /999ms") x 9]
--- error_code eval
[200, (429) x 11]
--- response_headers_like eval
['Retry-After: ', ('Retry-After: ' . main::seconds_between(0, 1)) x 11]



=== retry_after_jitter: what RateLimit says of the reset does not change
--- config
    location /t {
        ratelimit_retry_after_jitter 1d;
        ratelimit_headers ietf draft03;
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
--- request eval
[("GET /t") x 6]
--- error_code eval
[200, (429) x 5]
--- response_headers_like eval
my $left = main::seconds_left();
['Retry-After: ', ("RateLimit: \"default-366d\";r=0;t=$left\nRateLimit-Reset: $left\nRetry-After: \\d{7,}") x 5]



=== retry_after_jitter: a rejection that nothing can help has no Retry-After still
--- config
    location /t {
        ratelimit_retry_after_jitter 1d;
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- response_headers
!Retry-After



=== retry_after_jitter: the variable has the same as the header
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /ask { proxy_pass http://127.0.0.1:$server_port/limited; }
    location /limited {
        ratelimit_retry_after_jitter 10m;
        ratelimit limit=1/366d window=fixed;
        error_page 429 =200 @wait;
        empty_gif;
    }
    location @wait {
        return 200 "<$ratelimit_retry_after>\n";
    }
--- user_files eval
[["page.txt" => '<!--#include virtual="/ask" wait="yes" -->' x 41]]
--- request
GET /page.txt
--- response_body_like eval
my ($any, $above) = (main::seconds_between(0, 600), main::seconds_between(603, 600));
'(?=(?:.*\n)*<' . $above . '[.>])(?:<' . $any . '(?:\.\d{1,3})?>\n){40}\s*\z'



=== retry_after_jitter: it is inherited, apart from rules
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_retry_after_jitter 10m;
    ratelimit limit=1/366d window=fixed;
    log_format wait 'logged wait: <$sent_http_retry_after>';
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        ratelimit_retry_after_jitter 0;
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log wait;
        location /own  { ratelimit_retry_after_jitter 600; location /own/t { empty_gif; } }
        location /rule { ratelimit limit=1/366d window=fixed; empty_gif; }
        location /     { empty_gif; }
    }
--- config
    ratelimit off;
    location /page.txt { ssi on; ssi_types text/plain; }
    location /server   { proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
    location /http     { proxy_pass http://127.0.0.1:$server_port/limited; }
    location /limited  {
        access_log $TEST_NGINX_SERVER_ROOT/logs/error.log wait;
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
--- user_files eval
[["page.txt" => CORE::join '', map {'<!--#include virtual="' . $_ . '" wait="yes" -->'} "/http", ("/http") x 40, ("/server/own/t") x 40, ("/server/t") x 20, ("/server/rule") x 20]]
--- request
GET /page.txt
--- grep_error_log eval
qr/logged wait: <.*?>/
--- grep_error_log_out eval
my ($any, $above, $left) = (main::seconds_between(0, 600), main::seconds_between(603, 600), main::seconds_left());
my $differ = "(?=(?:.*\\n){0,39}logged wait: <$above>)(?:logged wait: <$any>\\n){40}";
qr/\Alogged wait: <->\n$differ$differ(?:logged wait: <$left>\n){40}\z/
