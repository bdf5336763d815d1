# Tests bans: `ban=` and `ban_after=` of a rule.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Expect;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(\&complete);

no_long_string();
run_tests();

__DATA__

=== a key is banned with its first rejection
--- config
    location /t    { ratelimit limit=2/366d ban=1h; empty_gif; }
    location /more { ratelimit limit=9/366d; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /more"]
--- error_code eval
[200, 200, 429, 429, 429, 200]
--- response_headers_like eval
# The rejection that begins the ban has the limit's reset, and the ban's end.
['RateLimit-Policy: "default-366d";q=2;w=31622400', main::left(0), 'Retry-After: ' . main::seconds_left(31622400 * 1/2),
 map({qq(RateLimit: "default-366d";r=0;t=(?:3600|3599)\nRetry-After: (?:3600|3599))} 1, 2), main::left(6)]



=== a ban is longer than the limit
--- config
    location /t {
        ratelimit limit=1/1s ban=1h name=login;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['', 'Retry-After: (?:3600|3599)', qq(RateLimit: "login";r=0;t=(?:3600|3599)\nRetry-After: (?:3600|3599))]



=== a ban begins after some rejections
--- config
    location /t    { ratelimit limit=2/366d ban=1h ban_after=3; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
[("GET /t") x 7, "GET /look"]
--- error_code eval
[200, 200, (429) x 5, 200]
--- response_headers_like eval
['', '', ('Retry-After: \d{7,8}') x 3, ('Retry-After: (?:3600|3599)') x 2, main::left(98)]



=== a banned request is not counted, even where rejected hits count
--- config
    location /t    { ratelimit limit=2/366d ban=1h ban_after=2; ratelimit_count_rejected on; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
[("GET /t") x 7, "GET /look"]
--- error_code eval
[200, 200, (429) x 5, 200]
--- response_headers_like eval
[('') x 4, ('Retry-After: (?:3600|3599)') x 3, main::left(96)]



=== a banned request changes nothing, though rejected hits count: hits that the response tells
--- config
    location /t    { ratelimit limit=1/366d ban=1h charge=10; ratelimit_count_rejected on; empty_gif; }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /look"]
--- error_code eval
[200, (429) x 4, 200]
--- response_headers_like eval
['', '', ('Retry-After: (?:3600|3599)') x 3, main::left(80)]



=== a banned request changes nothing, though rejected hits count: the rules before, beside a dry run
--- config
    location /t    {
        ratelimit limit=100/366d counter=first;
        ratelimit limit=1/366d ban=1h;
        ratelimit limit=1000/366d counter=third dry_run=on;
        ratelimit_count_rejected on;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d counter=first cost=0; empty_gif; }
--- request eval
[("GET /t") x 6, "GET /look"]
--- error_code eval
[200, (429) x 5, 200]
--- response_headers_like eval
['', '', ('Retry-After: (?:3600|3599)') x 4, main::left(98)]



=== a banned request changes nothing, though rejected hits count: a rule that is tried is not counted either
--- config
    location /t    {
        ratelimit limit=1/366d ban=1h charge=10 dry_run=on;
        ratelimit limit=100/366d counter=other;
        ratelimit_count_rejected on;
        empty_gif;
    }
    location /look { ratelimit limit=100/366d cost=0; empty_gif; }
    location /more { ratelimit limit=100/366d cost=0 counter=other; empty_gif; }
--- request eval
[("GET /t") x 5, "GET /look", "GET /more"]
--- error_code eval
[(200) x 7]
--- response_headers_like eval
[('') x 5, main::left(80), main::left(95)]



=== a rule that rejects where the level does not bans as well
--- config
    ratelimit_dry_run on;
    location /t {
        ratelimit limit=1/366d ban=1h dry_run=off;
        ratelimit limit=5/366d counter=other;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, (429) x 3]
--- response_headers_like eval
['', '', ('Retry-After: (?:3600|3599)') x 2]



=== a banned request is told the hits of a burst, too
--- config
    location /t {
        ratelimit rate=1/366d burst=2 ban=1h;
        ratelimit_headers ietf draft03;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[(200) x 3, 429, 429]
--- response_headers_like eval
['', '', '', 'RateLimit-Limit: 3', qq(RateLimit-Limit: 3\nRateLimit-Remaining: 0)]



=== a banned request is told the window of the rule, not the time of the ban
--- config
    location /t {
        ratelimit limit=5/1s limit=1/366d ban=1h;
        ratelimit_headers ietf legacy;
        add_header X-Window $ratelimit_window always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['', '', qq(RateLimit-Policy: "default-366d";q=1;w=31622400\nX-RateLimit-Limit-31622400: 1\nX-Window: 31622400)]



=== the wait of a dry run is not longer than the ban and the limit
--- config
    location /t {
        ratelimit limit=1/1h window=moving ban=1s dry_run=on;
        add_header X-Wait $ratelimit_retry_after;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_headers_like eval
['', 'X-Wait: 3(?:600|599\.\d+)']



=== a ban ends
--- config
    location /t {
        ratelimit_key $arg_key;
        ratelimit limit=1/1ms ban=1ms;
        empty_gif;
    }
--- request eval
[map {"GET /t?key=$_"} (1) x 20]
--- error_code_like eval
[("200|429") x 19, 200]



=== other keys are not banned
--- config
    location /t {
        ratelimit_key $arg_key;
        ratelimit limit=1/366d ban=1h;
        empty_gif;
    }
--- request eval
[map {"GET /t?key=$_"} qw(a a a b b), "sha256:!0", "x" x 300, "x" x 300, "x" x 300, "y" x 300]
--- error_code eval
[200, 429, 429, 200, 429, 200, 200, 429, 429, 200]



=== rules with the same limits share bans, others do not
--- config
    location /one   { ratelimit limit=1/366d ban=1h; empty_gif; }
    location /two   { ratelimit limit=1/366d ban=1h; empty_gif; }
    location /other { ratelimit limit=9/366d ban=1h; empty_gif; }
    location /named { ratelimit limit=1/366d ban=1h counter=named; empty_gif; }
    location /later { ratelimit limit=1/366d ban=2h; empty_gif; }
--- request eval
["GET /one", "GET /one", "GET /two", "GET /other", "GET /named", "GET /named", "GET /later"]
--- error_code eval
[200, 429, 429, 200, 200, 429, 429]
--- response_headers_like eval
['', '', 'Retry-After: (?:3600|3599)', '', '', 'RateLimit: "default-366d";r=0;t=\d{7,8}', 'RateLimit: "default-366d";r=0;t=\d{7,8}']



=== the rule's status, message and name
--- config
    location /t {
        ratelimit limit=1/366d ban=1h status=403 name=login;
        ratelimit_message text/plain "until $ratelimit_reset by $ratelimit_policy of $ratelimit_limit";
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 403, 403]
--- response_body_like eval
['GIF', 'until \d{8}.* by login of 1', 'until 3599\.\d+ by login of 1|until 3600 by login of 1']



=== every algorithm
--- config
    location /fixed   { ratelimit limit=1/366d window=fixed ban=1h; empty_gif; }
    location /moving  { ratelimit limit=1/366d window=moving ban=1h counter=m; empty_gif; }
    location /elastic { ratelimit limit=1/366d window=elastic ban=1h counter=e; empty_gif; }
--- request eval
[map { ("GET /$_") x 3 } qw(fixed moving elastic)]
--- error_code eval
[(200, 429, 429) x 3]
--- response_headers_like eval
[('', 'Retry-After: \d{7,8}', 'Retry-After: (?:3600|3599)') x 3]



=== a rate
--- config
    location /t {
        ratelimit rate=1/1s ban=1h;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers_like eval
['RateLimit: "default-rate";r=0;t=1', ('Retry-After: (?:3600|3599)') x 2]



=== the first rule that has banned a key rejects the request; the others are charged nothing
--- config
    location /t {
        ratelimit limit=9/366d counter=first;
        ratelimit limit=1/366d counter=second ban=1h;
        ratelimit limit=9/366d counter=third;
        empty_gif;
    }
    location /first { ratelimit limit=9/366d counter=first cost=0; empty_gif; }
    location /third { ratelimit limit=9/366d counter=third cost=0; empty_gif; }
--- request eval
[("GET /t") x 3, "GET /first", "GET /third"]
--- error_code eval
[200, 429, 429, 200, 200]
--- response_headers_like eval
['', '', '', main::left(8, 8)]



=== a dry run bans nobody, and says so
--- config
    location /t {
        ratelimit limit=1/366d ban=1h;
        ratelimit_dry_run on;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
    location /tried {
        ratelimit limit=1/366d ban=1h key=tried dry_run=on;
        ratelimit limit=9/366d key=tried counter=other;
        add_header X-Status $ratelimit_status;
        empty_gif;
    }
--- request eval
[("GET /t") x 3, ("GET /tried") x 3]
--- error_code eval
[(200) x 6]
--- response_headers_like eval
[map {"X-Status: $_\n"} (qw(PASSED REJECTED_DRY_RUN REJECTED_DRY_RUN)) x 2]



=== a rule that does not apply does not ban
--- config
    location /t {
        ratelimit limit=1/366d ban=1h unless=$arg_free;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t", "GET /t?free=1", "GET /t"]
--- error_code eval
[200, 429, 200, 429]
