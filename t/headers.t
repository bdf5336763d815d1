# Tests the headers RateLimit-Policy, RateLimit and Retry-After: every response to
# a request to which rules applied has them; and the format of their values.
#
# Windows have about a year, so that none ends during a test (see limit.t). No
# test waits for the end of a shorter one.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== an admitted request is told the policy, what remains and the time to the window's end
--- config
    location /t {
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
'RateLimit-Policy: "default-366d";q=3;w=31622400
RateLimit: "default-366d";r=2;t=' . main::seconds_left() . '
Retry-After: '



=== what remains falls to zero and stays there
--- config
    location /t {
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 3]



=== with nothing left of a fixed window, reset and Retry-After are its end
--- config
    location /t {
        ratelimit limit=1/366d window=fixed;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=' . main::seconds_left(),
'RateLimit: "default-366d";r=0;t=' . main::seconds_left() . '
Retry-After: ' . main::seconds_left()]



=== with nothing left of a sliding window, they are when enough of it is forgotten
--- config
    location /t {
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
# The two hits count half in the middle of the next window.
my $reset = 'RateLimit: "default-366d";r=0;t=' . main::seconds_left(31622400 / 2);
['RateLimit: "default-366d";r=1;t=' . main::seconds_left(),
$reset,
"$reset
Retry-After: " . main::seconds_left(31622400 / 2)]



=== an admitted request has no Retry-After, a rejected one has one
--- config
    location /t {
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- raw_response_headers_like eval
['\A(?!.*\r\nRetry-After:)', '\r\nRetry-After: [1-9]\d*\r\n']



=== each header is sent once
--- config
    location /t {
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- raw_response_headers_unlike eval
[('(?i)\n(ratelimit|ratelimit-policy|retry-after):.*\n\1:') x 2]



=== names are spelt as the draft spells them
--- config
    location /t {
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request
GET /t
--- raw_response_headers_like eval
'\r\nRateLimit-Policy: "default-366d";q=1;w=31622400\r\nRateLimit: "default-366d";r=0;t=\d+\r\n'



=== 304 Not Modified carries them
--- config
    ratelimit limit=9/366d;
--- request
GET /index.html
--- more_headers
If-None-Match: *
--- error_code: 304
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== 404 Not Found carries them
--- config
    ratelimit limit=9/366d;
--- request
GET /missing
--- error_code: 404
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== 404 Not Found with a page of its own carries them
--- config
    ratelimit limit=9/366d;
    error_page 404 /index.html;
--- request
GET /missing
--- error_code: 404
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== 403 Forbidden carries them
--- config
    location /t {
        ratelimit limit=9/366d;
        deny all;
        empty_gif;
    }
--- request
GET /t
--- error_code: 403
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== a redirect carries them
--- config
    ratelimit limit=9/366d;
--- user_files
>>> directory/index.html
hello
--- request
GET /directory
--- error_code: 301
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== 502 Bad Gateway carries them
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1;
    }
--- request
GET /t
--- error_code: 502
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== an answer to HEAD carries them
--- config
    ratelimit limit=1/366d;
--- request eval
[("HEAD /") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+',
'RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+']



=== a part of a file carries them
--- config
    ratelimit limit=9/366d;
--- request
GET /index.html
--- more_headers
Range: bytes=0-5
--- error_code: 206
--- response_headers_like
RateLimit: "default-366d";r=8;t=\d+



=== an answer to HTTP/1.0 carries them
--- config
    ratelimit limit=1/366d;
--- request eval
[("GET / HTTP/1.0") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+']



=== every request of a connection has its own
--- config
    ratelimit limit=2/366d;
--- pipelined_requests eval
["GET /", "GET /missing", "GET /", "POST /\nbody", "GET /"]
--- error_code eval
[200, 404, 429, 429, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: ',
('RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+') x 3]



=== a page for rejections carries them
--- config
    ratelimit limit=1/366d;
    error_page 429 /sorry.txt;
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 429]
--- response_body eval
[qr/It works!/, "Come back later.\n"]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+',
'RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+']



=== a page for rejections with another status carries them
--- config
    ratelimit limit=1/366d;
    error_page 429 =200 /sorry.txt;
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 200]
--- response_body eval
[qr/It works!/, "Come back later.\n"]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+']



=== a named location for rejections carries them, even where rules are off
--- config
    ratelimit limit=1/366d;
    error_page 429 = @sorry;
    location @sorry {
        ratelimit off;
        return 503 "Come back later.\n";
    }
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 503]
--- response_body eval
[qr/It works!/, "Come back later.\n"]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+',
'RateLimit-Policy: "default-366d";q=1;w=31622400
RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+']



=== a proxied response carries them in place of its own
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header RateLimit-Policy '"upstream";q=1000';
        add_header rateLimit '"upstream";r=999';
        add_header RATELIMIT '"upstream";r=998';
        return 200;
    }
--- request
GET /t
--- raw_response_headers_unlike: upstream
--- response_headers_like
RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=8;t=\d+



=== a proxied response without rules keeps its own
--- config
    location /t {
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header RateLimit-Policy '"upstream";q=1000';
        add_header RateLimit '"upstream";r=999';
        return 200;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "upstream";q=1000
RateLimit: "upstream";r=999



=== the last of several limiting proxies has its say
--- config
    location /t {
        ratelimit_key front;
        ratelimit limit=2/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        ratelimit_key back;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+
Retry-After: ',
('RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+') x 2]



=== a proxied response keeps its Retry-After unless we send one
--- config
    location /t {
        ratelimit limit=1/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header Retry-After 7 always;
        return 503;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[503, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
Retry-After: 7',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d{7,}']



=== a page for rejections from an upstream has our Retry-After
--- config
    location /t {
        ratelimit limit=1/366d;
        error_page 429 @sorry;
        empty_gif;
    }
    location @sorry { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream {
        add_header Retry-After 7 always;
        return 503;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['Retry-After: ', 'Retry-After: \d{7,}']



=== a cached response carries those of now
--- http_config
    ratelimit_zone zone=counters:1m;
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
--- config
    location /t {
        ratelimit limit=2/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
        proxy_cache cache;
        proxy_cache_key t;
        proxy_cache_valid 200 1h;
        add_header X-Cache $upstream_cache_status always;
    }
    location /upstream {
        ratelimit_key upstream;
        ratelimit limit=100/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['X-Cache: MISS
RateLimit-Policy: "default-366d";q=2;w=31622400
RateLimit: "default-366d";r=1;t=\d+',
'X-Cache: HIT
RateLimit-Policy: "default-366d";q=2;w=31622400
RateLimit: "default-366d";r=0;t=\d+',
'X-Cache:
RateLimit-Policy: "default-366d";q=2;w=31622400
RateLimit: "default-366d";r=0;t=\d+']



=== policies are in the order of the configuration, states the tightest first
--- config
    location /t {
        ratelimit limit=9/366d limit=2/365d;
        ratelimit limit=3/364d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
my $policy = 'RateLimit-Policy: "default-366d";q=9;w=31622400, '
    . '"default-365d";q=2;w=31536000, "default-364d";q=3;w=31449600';
["$policy\n" . 'RateLimit: "default-365d";r=1;t=\d+, "default-364d";r=2;t=\d+, "default-366d";r=8;t=\d+',
("$policy\n" . 'RateLimit: "default-365d";r=0;t=\d+, "default-364d";r=1;t=\d+, "default-366d";r=7;t=\d+') x 2]



=== the tightest is the one with the smallest share left, not the fewest hits
--- config
    location /many { ratelimit limit=5/365d; empty_gif; }
    location /t    { ratelimit limit=2/366d limit=5/365d; empty_gif; }
--- request eval
["GET /many", "GET /many", "GET /many", "GET /t"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers_like eval
[('RateLimit: "default-365d";r=\d;t=\d+') x 3,
'RateLimit: "default-365d";r=1;t=\d+, "default-366d";r=1;t=\d+']



=== Retry-After is that of the limit that stays closed longest
--- config
    location /fill { ratelimit limit=9/366d limit=9/1d; empty_gif; }
    location /t    { ratelimit limit=1/1d window=fixed; ratelimit limit=1/366d window=fixed; empty_gif; }
    location /u    { ratelimit limit=1/366d window=fixed; ratelimit limit=1/1d window=fixed; empty_gif; }
--- request eval
["GET /fill", "GET /t", "GET /u"]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['Retry-After: ', ('Retry-After: ' . main::seconds_left()) x 2]



=== a policy is named by the namespace and the window as written
--- config
    location /t {
        ratelimit limit=9/60s limit=8/2m limit=7/0.5 limit=6/90 limit=5/1h30m;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-60s";q=9;w=60, "default-2m";q=8;w=120, "default-0.5";q=7, "default-90";q=6;w=90, "default-1h30m";q=5;w=5400



=== "w" is left out where the window is not whole seconds
--- config
    location /t {
        ratelimit limit=9/1ms limit=8/1500ms limit=7/2.250 limit=6/2000ms limit=5/3.0;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-1ms";q=9, "default-1500ms";q=8, "default-2.250";q=7, "default-2000ms";q=6;w=2, "default-3.0";q=5;w=3



=== the reset is in whole seconds, rounded up, and within the window
--- config
    location /t {
        ratelimit limit=100/1ms window=fixed;
        ratelimit limit=200/10s window=fixed;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like
RateLimit: "default-1ms";r=99;t=1, "default-10s";r=199;t=([1-9]|10)



=== default names that clash get a suffix
--- config
    location /t {
        ratelimit limit=9/366d limit=8/366d;
        ratelimit limit=7/366d;
        ratelimit limit=6/365d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=9;w=31622400, "default-366d-2";q=8;w=31622400, "default-366d-3";q=7;w=31622400, "default-365d";q=6;w=31536000



=== windows of one size that are written differently do not clash
--- config
    location /t {
        ratelimit limit=9/366d limit=8/8784h;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-366d";q=9;w=31622400, "default-8784h";q=8;w=31622400



=== limits and what remains are rounded down to whole hits
--- config
    location /t {
        ratelimit limit=2.999/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
my $policy = 'RateLimit-Policy: "default-366d";q=2;w=31622400';
["$policy\n" . 'RateLimit: "default-366d";r=1;t=\d+',
("$policy\n" . 'RateLimit: "default-366d";r=0;t=\d+') x 2]



=== with less than a hit left, the reset is when one more would be admitted
--- config
    location /t {
        ratelimit limit=1.5/366d window=fixed;
        empty_gif;
    }
    location /u {
        ratelimit_key u;
        ratelimit limit=1.5/366d;
        empty_gif;
    }
--- request eval
["GET /t", "GET /u"]
--- error_code eval
[200, 200]
--- response_headers_like eval
# The window is sliding: 1 * 1/2 + 1 is 1.5.
['RateLimit: "default-366d";r=0;t=' . main::seconds_left(),
'RateLimit: "default-366d";r=0;t=' . main::seconds_left(31622400 / 2)]



=== a limit that never admits a hit has no reset, and its rejections no Retry-After
--- config
    location /t {
        ratelimit limit=0.5/366d;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- response_headers
RateLimit-Policy: "default-366d";q=0;w=31622400
RateLimit: "default-366d";r=0
!Retry-After



=== no Retry-After if one of several limits never admits
--- config
    location /fill { ratelimit limit=1/366d; empty_gif; }
    location /t    { ratelimit limit=1/366d limit=0.5/365d; empty_gif; }
--- request eval
["GET /fill", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
["!Retry-After", "!Retry-After"]



=== off: no RateLimit headers, but rejections have a Retry-After
--- config
    location /t {
        ratelimit_headers off;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers eval
[("!RateLimit
!RateLimit-Policy") x 2]
--- raw_response_headers_like eval
['\A(?!.*\r\nRetry-After:)', '\r\nRetry-After: [1-9]\d*\r\n']



=== off: an upstream's headers are kept
--- config
    location /t {
        ratelimit_headers off;
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header RateLimit-Policy '"upstream";q=1000';
        add_header RateLimit '"upstream";r=999';
        return 200;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "upstream";q=1000
RateLimit: "upstream";r=999



=== the choice of headers is inherited, apart from rules
--- config
    ratelimit_headers off;
    ratelimit limit=9/366d;
    location /off  { empty_gif; }
    location /ietf { ratelimit_headers ietf; empty_gif; }
    location /own  { ratelimit limit=8/366d; empty_gif; }
--- request eval
["GET /off", "GET /ietf", "GET /own"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["!RateLimit-Policy", 'RateLimit-Policy: "default-366d";q=9;w=31622400', "!RateLimit-Policy"]



=== a request without rules has none
--- config
    location /none { empty_gif; }
    location /off  { ratelimit off; empty_gif; }
--- request eval
["GET /none", "GET /off", "GET /missing"]
--- error_code eval
[200, 200, 404]
--- response_headers eval
[("!RateLimit
!RateLimit-Policy
!Retry-After") x 3]



=== draft03: limit, what remains and the reset, and nothing else
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Limit: 3
RateLimit-Remaining: 2
!RateLimit
!RateLimit-Policy
!X-RateLimit-Limit-31622400
!X-RateLimit-Remaining-31622400
!Retry-After



=== draft03: names are spelt as the draft spells them
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request
GET /t
--- raw_response_headers_like eval
'\r\nRateLimit-Limit: 3\r\nRateLimit-Remaining: 2\r\nRateLimit-Reset: ' . main::seconds_left() . '\r\n'



=== draft03: the reset is the window's end while something remains, else when one more is admitted
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=2/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers_like eval
my $half = main::seconds_left(31622400 / 2);
["RateLimit-Limit: 2\nRateLimit-Remaining: 1\nRetry-After: \nRateLimit-Reset: " . main::seconds_left(),
 "RateLimit-Limit: 2\nRateLimit-Remaining: 0\nRetry-After: \nRateLimit-Reset: $half",
 ("RateLimit-Limit: 2\nRateLimit-Remaining: 0\nRetry-After: $half\nRateLimit-Reset: $half") x 2]



=== draft03: the reset is rounded up to whole seconds
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=100/1ms window=fixed;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Limit: 100
RateLimit-Remaining: 99
RateLimit-Reset: 1



=== draft03: a hit that is never admitted has no reset
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=5.5/366d cost=6;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- response_headers
RateLimit-Limit: 5
RateLimit-Remaining: 5
!RateLimit-Reset
!Retry-After



=== draft03: they are of the tightest limit
--- config
    ratelimit_headers draft03;
    location /t {
        ratelimit limit=10/366d cost=$arg_a;
        ratelimit limit=5/365d cost=$arg_b;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=1", "GET /t?a=3&b=0", "GET /t?a=1&b=3", "GET /t?a=1&b=3"]
--- error_code eval
[200, 200, 200, 429]
--- response_headers eval
["RateLimit-Limit: 5
RateLimit-Remaining: 4",
"RateLimit-Limit: 10
RateLimit-Remaining: 6",
("RateLimit-Limit: 5
RateLimit-Remaining: 1") x 2]



=== draft03: decimals are cut
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=3.999/366d cost=0.7;
        empty_gif;
    }
--- request eval
[("GET /t") x 6]
--- error_code eval
[(200) x 5, 429]
--- response_headers eval
[map {"RateLimit-Limit: 3\nRateLimit-Remaining: $_"} 3, 2, 1, 1, 0, 0]



=== draft03: limits from variables
--- config
    ratelimit_headers draft03;
    location /t {
        ratelimit limit=$arg_n/366d limit=$arg_m/365d;
        empty_gif;
    }
--- request eval
["GET /t?n=5.5", "GET /t?n=9&m=3", "GET /t?n=9&m=2", "GET /t", "GET /t?n=0"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers eval
["RateLimit-Limit: 5\nRateLimit-Remaining: 4", "RateLimit-Limit: 3\nRateLimit-Remaining: 2", "RateLimit-Limit: 2\nRateLimit-Remaining: 0",
 "!RateLimit-Limit\n!RateLimit-Remaining\n!RateLimit-Reset", "RateLimit-Limit: 0\nRateLimit-Remaining: 0\n!RateLimit-Reset\n!Retry-After"]



=== draft03: in place of an upstream's
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header RateLimit-Limit 100;
        add_header ratelimit-remaining 99;
        add_header RATELIMIT-RESET 7;
        add_header X-RateLimit-Limit-Minute 60;
        return 200;
    }
--- request
GET /t
--- response_headers_like eval
'RateLimit-Limit: 9
RateLimit-Remaining: 8
RateLimit-Reset: ' . main::seconds_left() . '
X-RateLimit-Limit-Minute: 60'



=== draft03: an upstream's reset is not taken for ours where there is none
--- config
    location /t {
        ratelimit_headers draft03;
        ratelimit_dry_run on;
        ratelimit limit=0.5/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header RateLimit-Limit 100;
        add_header RateLimit-Remaining 99;
        add_header RateLimit-Reset 7;
        return 200;
    }
--- request
GET /t
--- response_headers
RateLimit-Limit: 0
RateLimit-Remaining: 0
!RateLimit-Reset



=== legacy: a pair for each limit, by its window
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=9/1s limit=8/1m limit=7/1h limit=6/1d;
        ratelimit limit=5/10s limit=4/366d limit=3/500ms limit=2/30d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
X-RateLimit-Limit-Second: 9
X-RateLimit-Remaining-Second: 8
X-RateLimit-Limit-Minute: 8
X-RateLimit-Remaining-Minute: 7
X-RateLimit-Limit-Hour: 7
X-RateLimit-Remaining-Hour: 6
X-RateLimit-Limit-Day: 6
X-RateLimit-Remaining-Day: 5
X-RateLimit-Limit-10: 5
X-RateLimit-Remaining-10: 4
X-RateLimit-Limit-31622400: 4
X-RateLimit-Remaining-31622400: 3
X-RateLimit-Limit-0.5: 3
X-RateLimit-Remaining-0.5: 2
X-RateLimit-Limit-2592000: 2
X-RateLimit-Remaining-2592000: 1
!RateLimit
!RateLimit-Policy
!RateLimit-Limit
!RateLimit-Remaining
!RateLimit-Reset
!Retry-After



=== legacy: windows have their name however they are written
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=9/1000ms limit=8/60 limit=7/60m limit=6/24h limit=5/1m30s limit=4/0.250;
        empty_gif;
    }
--- request
GET /t
--- response_headers
X-RateLimit-Limit-Second: 9
X-RateLimit-Limit-Minute: 8
X-RateLimit-Limit-Hour: 7
X-RateLimit-Limit-Day: 6
X-RateLimit-Limit-90: 5
X-RateLimit-Limit-0.25: 4



=== legacy: names are spelt so, and come once
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=9/1h;
        empty_gif;
    }
--- request
GET /t
--- raw_response_headers_like: \A(?!(?i).*ratelimit.*ratelimit.*ratelimit).*\r\nX-RateLimit-Limit-Hour: 9\r\nX-RateLimit-Remaining-Hour: 8\r\n



=== legacy: the tightest, where limits have one window
--- config
    ratelimit_headers legacy;
    location /t {
        ratelimit limit=10/366d key=a cost=$arg_a;
        ratelimit limit=5/366d key=b cost=$arg_b;
        ratelimit limit=20/8784h key=c cost=$arg_c;
        ratelimit limit=30/365d;
        empty_gif;
    }
--- request eval
["GET /t?a=1&b=1&c=1", "GET /t?a=4&b=0&c=0", "GET /t?a=0&b=2&c=1", "GET /t?a=0&b=0&c=17", "GET /t?a=0&b=0&c=2"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_headers eval
my $line = sub { "X-RateLimit-Limit-31622400: $_[0]\nX-RateLimit-Remaining-31622400: $_[1]\nX-RateLimit-Limit-31536000: 30\nX-RateLimit-Remaining-31536000: $_[2]" };
[$line->(5, 4, 29), $line->(10, 5, 28), $line->(5, 2, 27), $line->(20, 1, 26), $line->(20, 1, 26)]
--- raw_response_headers_unlike eval
[('(?i)\n(x-ratelimit[-a-z0-9]*):.*\n\1:') x 5]



=== legacy: a rejection has them, and Retry-After
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=1/366d window=fixed;
        ratelimit limit=9/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
my $pairs = 'X-RateLimit-Limit-31622400: 1
X-RateLimit-Remaining-31622400: 0
X-RateLimit-Limit-31536000: 9
X-RateLimit-Remaining-31536000: 8
Retry-After: ';
[$pairs, $pairs . main::seconds_left()]



=== legacy: decimals are cut
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=2.999/366d cost=0.999;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers eval
[map {"X-RateLimit-Limit-31622400: 2\nX-RateLimit-Remaining-31622400: $_"} 2, 1, 0, 0]



=== legacy: limits from variables, of those that apply
--- config
    ratelimit_headers legacy;
    location /t {
        ratelimit limit=$arg_n/366d limit=$arg_m/1h;
        empty_gif;
    }
--- request eval
["GET /t?n=5.5", "GET /t?m=3", "GET /t", "GET /t?n=7&m=x"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["X-RateLimit-Limit-31622400: 5\nX-RateLimit-Remaining-31622400: 4\n!X-RateLimit-Limit-Hour\n!X-RateLimit-Remaining-Hour",
 "X-RateLimit-Limit-Hour: 3\nX-RateLimit-Remaining-Hour: 2\n!X-RateLimit-Limit-31622400\n!X-RateLimit-Remaining-31622400",
 "!X-RateLimit-Limit-Hour\n!X-RateLimit-Limit-31622400",
 "X-RateLimit-Limit-31622400: 7\nX-RateLimit-Remaining-31622400: 5\n!X-RateLimit-Limit-Hour"]



=== legacy: in place of an upstream's of the same window
--- config
    location /t {
        ratelimit_headers legacy;
        ratelimit limit=9/1h;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header X-RateLimit-Limit-Hour 100;
        add_header x-ratelimit-remaining-hour 99;
        add_header X-RateLimit-Limit-Minute 60;
        add_header RateLimit-Limit 60;
        return 200;
    }
--- request
GET /t
--- response_headers
X-RateLimit-Limit-Hour: 9
X-RateLimit-Remaining-Hour: 8
X-RateLimit-Limit-Minute: 60
RateLimit-Limit: 60



=== all kinds together, in any order
--- config
    ratelimit limit=9/366d;
    location /1 { ratelimit_headers ietf draft03 legacy; empty_gif; }
    location /2 { ratelimit_headers legacy ietf draft03; empty_gif; }
--- request eval
["GET /1", "GET /2"]
--- error_code eval
[200, 200]
--- response_headers_like eval
my $left = main::seconds_left();
[map {qq(RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=$_;t=$left
RateLimit-Limit: 9
RateLimit-Remaining: $_
RateLimit-Reset: $left
X-RateLimit-Limit-31622400: 9
X-RateLimit-Remaining-31622400: $_)} 8, 7]



=== all kinds together, of a rejection by one of several limits
--- config
    location /t {
        ratelimit_headers ietf draft03 legacy;
        ratelimit limit=9/366d window=fixed;
        ratelimit limit=1/365d;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
my $all = 'RateLimit-Policy: "default-366d";q=9;w=31622400, "default-365d";q=1;w=31536000
RateLimit: "default-365d";r=0;t=\d+, "default-366d";r=8;t=' . main::seconds_left() . '
RateLimit-Limit: 1
RateLimit-Remaining: 0
RateLimit-Reset: \d{7,}
X-RateLimit-Limit-31622400: 9
X-RateLimit-Remaining-31622400: 8
X-RateLimit-Limit-31536000: 1
X-RateLimit-Remaining-31536000: 0
';
["${all}Retry-After: ", $all . 'Retry-After: \d{7,}']



=== two kinds are just these
--- config
    ratelimit limit=9/366d;
    location /ietf_draft03   { ratelimit_headers ietf draft03; empty_gif; }
    location /ietf_legacy    { ratelimit_headers ietf legacy; empty_gif; }
    location /draft03_legacy { ratelimit_headers draft03 legacy; empty_gif; }
    location /ietf           { ratelimit_headers ietf; empty_gif; }
--- request eval
["GET /ietf_draft03", "GET /ietf_legacy", "GET /draft03_legacy", "GET /ietf"]
--- error_code eval
[(200) x 4]
--- response_headers eval
my $policy = 'RateLimit-Policy: "default-366d";q=9;w=31622400';
["$policy
RateLimit-Remaining: 8
!X-RateLimit-Remaining-31622400",
"$policy
!RateLimit-Remaining
X-RateLimit-Remaining-31622400: 7",
"!RateLimit-Policy
!RateLimit
RateLimit-Remaining: 6
X-RateLimit-Remaining-31622400: 6",
"$policy
!RateLimit-Limit
!RateLimit-Remaining
!RateLimit-Reset
!X-RateLimit-Limit-31622400
!X-RateLimit-Remaining-31622400"]



=== all kinds are sent with errors and error pages
--- config
    ratelimit_headers draft03 legacy;
    ratelimit limit=4/366d;
    location /page { error_page 404 /index.html; }
    location /named {
        error_page 429 = @sorry;
        ratelimit limit=3/366d;
    }
    location @sorry { ratelimit off; return 503; }
--- request eval
["GET /missing", "GET /page", "HEAD /", "GET /named", "GET /missing", "GET /missing"]
--- error_code eval
[404, 404, 200, 503, 404, 429]
--- response_headers eval
my $pair = sub { "RateLimit-Limit: $_[0]\nRateLimit-Remaining: $_[1]\nX-RateLimit-Limit-31622400: $_[0]\nX-RateLimit-Remaining-31622400: $_[1]" };
[$pair->(4, 3), $pair->(4, 2), $pair->(4, 1), $pair->(3, 0), $pair->(4, 0), $pair->(4, 0)]



=== a request without rules has none of any kind
--- config
    ratelimit_headers ietf draft03 legacy;
    location /none { empty_gif; }
    location /on   { ratelimit limit=9/366d; empty_gif; location /on/off { ratelimit off; empty_gif; } }
    location /key  { ratelimit_key $arg_k; ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /none", "GET /on/off", "GET /key", "GET /on"]
--- error_code eval
[200, 200, 200, 200]
--- raw_response_headers_like eval
[('\A(?!(?i).*(?:ratelimit|retry-after))') x 3, 'RateLimit-Policy:.*RateLimit-Limit:.*X-RateLimit-Limit-31622400:']



=== a level's choice replaces the inherited one
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_headers draft03;
    ratelimit limit=9/366d;
    server {
        listen $TEST_NGINX_RAND_PORT_1;
        ratelimit_headers legacy;
        location / { location /own { ratelimit_headers ietf; empty_gif; } empty_gif; }
    }
--- config
    location /t      { empty_gif; }
    location /off    { ratelimit_headers off; empty_gif; }
    location /server { ratelimit off; proxy_pass http://127.0.0.1:$TEST_NGINX_RAND_PORT_1/; }
--- request eval
["GET /t", "GET /off", "GET /server/t", "GET /server/own"]
--- error_code eval
[(200) x 4]
--- response_headers eval
["RateLimit-Remaining: 8
!RateLimit
!X-RateLimit-Remaining-31622400",
"!RateLimit-Remaining
!RateLimit
!X-RateLimit-Remaining-31622400",
"!RateLimit-Remaining
!RateLimit
X-RateLimit-Remaining-31622400: 6",
'!RateLimit-Remaining
RateLimit-Policy: "default-366d";q=9;w=31622400
!X-RateLimit-Remaining-31622400']



=== off: nothing but Retry-After with a rejection, and that not if nothing helps
--- config
    ratelimit_headers off;
    location /t     { ratelimit limit=1/366d window=fixed; empty_gif; }
    location /never { ratelimit limit=0.5/366d; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /never"]
--- error_code eval
[200, 429, 429]
--- raw_response_headers_unlike eval
["(?i)ratelimit|retry-after", "(?i)ratelimit", "(?i)ratelimit|retry-after"]
--- response_headers_like eval
['Retry-After: ', 'Retry-After: ' . main::seconds_left(), 'Retry-After: ']



=== Retry-After is never earlier than the reset of any limit that refuses
--- config
    location /fill { ratelimit limit=9/366d limit=9/1d cost=9; empty_gif; }
    location /t    { ratelimit limit=9/1d cost=1 window=fixed; ratelimit limit=9/366d cost=3 window=fixed; empty_gif; }
--- request eval
["GET /fill", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['Retry-After: ', 'Retry-After: ' . main::seconds_left()]
