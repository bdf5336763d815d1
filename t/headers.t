# What clients are told: RateLimit-Policy, RateLimit and Retry-After, with every
# response of a request that rules applied to, and how the values are written.
#
# Windows are of about a year, so that no test meets the end of one (see
# limit.t). Shorter ones are only named, not waited for.

use Test::Nginx::Socket 'no_plan';

# A pattern for the seconds to the end of the current window of 366 days, and
# `more`: some minutes may pass until the request is made.
sub seconds_left {
    my ($more) = @_;
    my $left = 31622400 - time % 31622400 + ($more // 0);
    return '(?:' . join('|', map { $left + 1 - $_ } 0 .. 600) . ')';
}

add_block_preprocessor(sub {
    my ($block) = @_;
    $block->set_value(http_config => 'ratelimit_zone zone=counters:1m;')
        if !defined $block->http_config;
    $block->set_value(no_error_log => [qr/\[(?:emerg|alert|crit)\]/])
        if !defined $block->no_error_log;
});

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
# Half of the two hits: half of the next window.
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
# Sliding: 1 * 1/2 + 1 is 1.5.
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
