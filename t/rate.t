# Tests rates: which requests they admit, and the response headers. Some blocks run limit_req beside a rate;
# limit-req.t compares both without waiting. src/conf/rule/rate.rs tests invalid parameters, and rate-delay.t
# tests delays.
#
# A hit leaks in hours or in a year, so that none leaks during a test. Each block starts a new nginx with an
# empty zone.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== a rate without a burst admits one hit
--- config
    location /t {
        ratelimit rate=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['RateLimit-Policy: "default-rate";q=1;w=31622400
RateLimit: "default-rate";r=0;t=31622400
!Retry-After',
'RateLimit: "default-rate";r=0;t=3162\d{4}
Retry-After: 3162\d{4}',
'RateLimit: "default-rate";r=0;t=3162\d{4}']



=== a burst is admitted at once, and refills in a time that is told while something remains
--- config
    location /t {
        ratelimit rate=1/100d burst=2 name=three;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
['RateLimit-Policy: "three";q=3;w=25920000
RateLimit: "three";r=2;t=8640000',
'RateLimit: "three";r=1;t=172\d{5}',
'RateLimit: "three";r=0;t=8640000',
'RateLimit: "three";r=0;t=86\d{5}
Retry-After: 86\d{5}']



=== other headers, and variables
--- config
    ratelimit_headers draft03 legacy;
    location /t {
        ratelimit rate=4/100d burst=1.5 cost=2;
        add_header X-All "$ratelimit_status $ratelimit_namespace $ratelimit_policy $ratelimit_limit $ratelimit_window $ratelimit_rate $ratelimit_remaining $ratelimit_reset $ratelimit_key" always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit-Limit: 2
RateLimit-Remaining: 0
RateLimit-Reset: 3240000
X-RateLimit-Limit-5400000: 2
X-RateLimit-Remaining-5400000: 0
X-All: PASSED default default-rate 2\.5 5400000 2 0 3240000 127\.0\.0\.1',
'RateLimit-Remaining: 0
X-All: REJECTED default default-rate 2\.5 5400000 (?:2|1\.99\d) 0 32\d+(?:\.\d+)? 127\.0\.0\.1']



=== a variable rate
--- config
    location /t {
        ratelimit rate=$arg_r/100d burst=1;
        add_header X-Status "$ratelimit_status" always;
        empty_gif;
    }
--- request eval
["GET /t?r=2", "GET /t?r=2", "GET /t?r=2", "GET /t", "GET /t?r=x", "GET /t?r=0"]
--- error_code eval
[200, 200, 429, 200, 200, 429]
--- response_headers_like eval
['RateLimit-Policy: "default-rate";q=2;w=8640000
RateLimit: "default-rate";r=1;t=4320000',
'RateLimit: "default-rate";r=0;t=4320000',
'Retry-After: 43\d{5}',
'!RateLimit',
'!RateLimit',
'RateLimit-Policy: "default-rate";q=0
RateLimit: "default-rate";r=0
!Retry-After']



=== a rejection is logged with what the bucket would hold
--- config
    location /t {
        ratelimit rate=1/366d burst=1 cost=3;
        empty_gif;
    }
--- request
GET /t
--- error_code: 429
--- error_log eval
qr/\[error\] .*ratelimit: rejected by "default-rate", namespace "default", key "127\.0\.0\.1", limit 2, rate 3, cost 3, rule nginx\.conf:\d+, client: /



=== a delay has a status of its own
--- config
    location /t {
        ratelimit limit=9/366d;
        ratelimit rate=20/1s burst=2 delay=all key=$arg_k name=slow;
        add_header X-Status "$ratelimit_status $ratelimit_policy" always;
        empty_gif;
    }
--- pipelined_requests eval
[("GET /t?k=a") x 2, "GET /t"]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["X-Status: PASSED slow", "X-Status: DELAYED slow", "X-Status: PASSED default-366d"]



=== in a dry run, a delay has a status of its own, and is none
--- config
    location /t {
        ratelimit_dry_run on;
        ratelimit rate=1/366d burst=2 delay=1;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 200]
--- response_headers eval
["X-Status: PASSED", "X-Status: PASSED", "X-Status: DELAYED_DRY_RUN", "X-Status: REJECTED_DRY_RUN"]



=== a rate that is no number is logged
--- config
    location /t {
        ratelimit rate=$arg_r/100d burst=1;
        empty_gif;
    }
--- request
GET /t?r=x
--- error_log eval
qr/the limit "default-rate" is "x", which is no plain decimal: it does not apply/



=== costs above the burst are never admitted, a cost of 0 only asks
--- config
    location /t {
        ratelimit rate=1/366d burst=1 cost=$arg_c;
        empty_gif;
    }
--- request eval
["GET /t?c=2.001", "GET /t?c=0", "GET /t?c=1.5", "GET /t?c=0", "GET /t?c=0.5", "GET /t?c=0"]
--- error_code eval
[429, 200, 200, 200, 200, 429]
--- response_headers_like eval
['!Retry-After', 'RateLimit: "default-rate";r=2;t=0', 'RateLimit: "default-rate";r=0;t=\d+', '', 'RateLimit: "default-rate";r=0;t=\d+', 'Retry-After: \d+']



=== rules with one rate and key share a counter, whatever numbers tell it; others do not
--- config
    location /t {
        ratelimit rate=1/366d burst=2;
        empty_gif;
    }
    location /same {
        ratelimit rate=0.5/183d burst=2 counter=default;
        empty_gif;
    }
    location /other {
        ratelimit rate=1/366d burst=2 counter=other;
        empty_gif;
    }
    location /time {
        ratelimit rate=1/365d burst=2;
        empty_gif;
    }
    location /rate {
        ratelimit rate=2/366d burst=2;
        empty_gif;
    }
    location /variable {
        ratelimit rate=$arg_r/366d burst=2;
        empty_gif;
    }
    location /window {
        ratelimit limit=3/366d;
        empty_gif;
    }
--- request eval
["GET /t", "GET /same", "GET /t", "GET /same", "GET /other", "GET /time", "GET /rate", "GET /variable?r=1",
    "GET /variable?r=2", "GET /variable?r=3", "GET /window"]
--- error_code eval
[200, 200, 200, 429, 200, 200, 200, 429, 200, 200, 200]
--- response_headers_like eval
['RateLimit: "default-rate";r=2;t=\d+',
'RateLimit: "default-rate";r=1;t=\d+',
'RateLimit: "default-rate";r=0;t=\d+',
'RateLimit: "default-rate";r=0;t=\d+',
'RateLimit: "default-rate";r=2;t=\d+',
'RateLimit: "default-rate";r=2;t=\d+',
'RateLimit: "default-rate";r=2;t=\d+',
'RateLimit: "default-rate";r=0;t=\d+',
'RateLimit: "default-rate";r=1;t=\d+',
'RateLimit: "default-rate";r=2;t=\d+',
'RateLimit: "default-366d";r=2;t=\d+']



=== a fast rate does not empty the bucket of a slow one
--- config
    ratelimit_key k;
    location /login {
        ratelimit rate=1/366d burst=1;
        ratelimit rate=100000/1s burst=9;
        empty_gif;
    }
    location /site {
        ratelimit rate=100000/1s burst=9;
        empty_gif;
    }
--- request eval
[("GET /login", "GET /site") x 3]
--- error_code eval
[200, 200, 200, 200, 429, 200]



=== the API sets a key to zero in the buckets of all rates, those that requests told, too
--- config
    ratelimit_key k;
    location /a { ratelimit rate=1/366d;                     empty_gif; }
    location /b { ratelimit rate=2/365d;                     empty_gif; }
    location /c { ratelimit rate=$arg_r/366d;                empty_gif; }
    location /d { ratelimit rate=3/366d counter=d;           empty_gif; }
    location /e { ratelimit rate=4/366d key=other;           empty_gif; }
    location /rl { ratelimit_api write=on; }
--- request eval
my @all = map {"GET /$_"} 'a', 'b', 'c?r=5', 'c?r=6', 'd', 'e';
[@all, @all, "DELETE /rl/namespaces/default/keys/k?rate=1/366d", "GET /a", "GET /b",
    "DELETE /rl/namespaces/default/keys/k", @all[0 .. 3], @all[0 .. 3]]
--- error_code eval
[(200) x 6, (429) x 6, 200, 200, 429, 200, (200) x 4, (429) x 4]



=== rules that share one are charged once by a request
--- config
    location /t {
        ratelimit rate=1/366d burst=3;
        ratelimit rate=1/366d burst=1 counter=default;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-rate-2";r=1;t=\d+, "default-rate";r=3;t=\d+',
'RateLimit: "default-rate-2";r=0;t=\d+, "default-rate";r=2;t=\d+',
'RateLimit: "default-rate-2";r=0;t=\d+, "default-rate";r=2;t=\d+']



=== a request that another limit rejects is not charged, wherever that stands
--- config
    location /t {
        ratelimit limit=2/366d key=$arg_k;
        ratelimit rate=1/366d burst=3 key=rate;
        ratelimit limit=2/365d window=fixed key=$arg_j;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
    location /rate {
        ratelimit rate=1/366d burst=3 key=rate cost=0;
        empty_gif;
    }
--- request eval
["GET /t?k=a&j=a", "GET /t?k=a&j=b", "GET /t?k=a&j=c", "GET /t?k=b&j=a", "GET /t?k=c&j=a", "GET /t?k=d&j=a", "GET /rate"]
--- error_code eval
[200, 200, 429, 200, 429, 429, 200]
--- response_headers_like eval
['', '', '', '', '', '', 'RateLimit: "default-rate";r=1;t=\d+']



=== rejected hits count if that is wanted, as far as the bucket has room
--- config
    ratelimit_count_rejected on;
    location /t {
        ratelimit rate=1/366d burst=1;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 429, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 2", "X-Rate: 2"]



=== a charge fills the bucket when the response is known
--- config
    location /t {
        ratelimit rate=1/366d burst=4 charge=3;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-rate";r=5;t=0', 'RateLimit: "default-rate";r=2;t=\d+', 'RateLimit: "default-rate";r=0;t=\d+']



=== a dry run counts, and rejects nothing
--- config
    ratelimit_dry_run on;
    location /t {
        ratelimit rate=1/366d burst=1 delay=all;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 200]
--- response_headers eval
["X-Status: PASSED", "X-Status: DELAYED_DRY_RUN", "X-Status: REJECTED_DRY_RUN"]



=== limit_req admits the same
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone $arg_k zone=requests:1m rate=1r/m;
--- config
    ratelimit_dry_run on;
    limit_req_dry_run on;
    limit_req_status 400;
    ratelimit_key $arg_k;
    add_header X-Both "$ratelimit_status $limit_req_status" always;
    location /none  { ratelimit rate=1/1m;          limit_req zone=requests;                 empty_gif; }
    location /burst { ratelimit rate=1/1m burst=3 counter=default;  limit_req zone=requests burst=3 nodelay; empty_gif; }
--- request eval
[(map { ("GET /none?k=$_") x 2 } 'a' .. 'c'), (map { ("GET /burst?k=$_") x 6 } 'd' .. 'f'),
    ("GET /none?k=g", "GET /burst?k=g") x 3]
--- response_headers eval
my ($in, $out) = map {"X-Both: $_ $_"} qw(PASSED REJECTED_DRY_RUN);
[(($in, $out) x 3), ((($in) x 4, ($out) x 2) x 3), $in, $in, $out, $in, $out, $in]



=== the API shows a bucket, and fills it
--- config
    location /t {
        ratelimit rate=1/366d burst=8 key=k;
        empty_gif;
    }
    location /rl {
        ratelimit_api write=on;
    }
--- request eval
["GET /t", "POST /rl/namespaces/default/keys/k?rate=1/366d&burst=8&value=2",
 "GET /rl/namespaces/default/keys/k?rate=1/366d&burst=8", "GET /t",
 "GET /rl/namespaces/default/keys/k?rate=1/365d&burst=8",
 "GET /rl/namespaces/default/keys/k?burst=8"]
--- error_code eval
[200, 200, 200, 200, 200, 400]
--- response_headers_like eval
['RateLimit: "default-rate";r=8;t=\d+', '', '', 'RateLimit: "default-rate";r=5;t=\d+', '', '']
--- response_body_like eval
['', qr/"rate":(?:3|2\.99\d),"current":(?:3|2\.99\d),"previous":0,"diff":(?:3|2\.99\d),"sync":0,"window_start":\d{10}(?:\.\d+)?,"remaining":6,"admitted":true,"reset":\d+/,
 qr/"rate":(?:3|2\.99\d),.*"remaining":6/, '',
 qr/"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":0,"remaining":9/,
 qr/expected rate beside it/]
