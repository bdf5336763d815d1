# Tests that a request is counted once, by the rules of the first location with
# rules that it reaches, through internal redirects, error pages and subrequests
# of every kind. limit.t has the plain cases.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# Rules with the same window size share a counter, so the remaining hits show how
# often a request was counted. The name of the policy shows which location
# counted it.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;
    lacks($block, slice => 'slice', add_after_body => 'addition');
    complete($block);
});

no_long_string();
run_tests();

__DATA__

=== a request is counted once over the redirect to an index
--- config
    location /directory/           { ratelimit limit=9/366d; index page.html; }
    location /directory/page.html  { ratelimit limit=9/366d name=index; }
--- user_files
>>> directory/page.html
hello
--- request eval
["GET /directory/", "GET /directory/", "GET /directory/page.html"]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+',
'RateLimit: "default-366d";r=7;t=\d+',
'RateLimit: "index";r=6;t=\d+']
--- error_code eval
[200, 200, 200]



=== a location that a request is rewritten in is not reached: the one it is rewritten to is
--- config
    location /old { ratelimit limit=1/365d; rewrite ^ /new last; }
    location /new { ratelimit limit=9/366d; empty_gif; }
--- request eval
[("GET /old") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a rewrite that stays in its location is counted once, there
--- config
    location /old { ratelimit limit=9/366d; rewrite ^ /index.html break; }
    location /index.html { ratelimit limit=1/365d; }
--- request eval
[("GET /old") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a request is counted once over a rewrite that follows a redirect
--- config
    location /t   { ratelimit limit=9/366d; try_files /missing /old; }
    location /old { ratelimit limit=9/366d name=old; rewrite ^ /new last; }
    location /new { ratelimit limit=9/366d name=new; empty_gif; }
--- request eval
[("GET /t") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a request is counted once over a chain of redirects and error pages
--- config
    recursive_error_pages on;
    location /t     { ratelimit limit=9/366d; try_files /missing /one; }
    location /one   { ratelimit limit=9/366d name=one; error_page 404 /two; }
    location /two   { ratelimit limit=9/366d name=two; error_page 403 = @three; deny all; }
    location @three { ratelimit limit=9/366d name=three; proxy_pass http://127.0.0.1:$server_port/accel; }
    location /accel { add_header X-Accel-Redirect /four; return 200; }
    location /four  { internal; ratelimit limit=9/366d name=four; empty_gif; }
--- request eval
[("GET /t") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a request is counted once over an upstream's error with a page of its own
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
        proxy_intercept_errors on;
        error_page 503 @busy;
    }
    location /upstream { return 503; }
    location @busy     { ratelimit limit=1/366d name=busy; empty_gif; }
--- request eval
[("GET /t") x 3]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6]
--- error_code eval
[503, 503, 503]



=== a location that an upstream's X-Accel-Redirect leads to counts where the first has no rules
--- config
    location /t        { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { add_header X-Accel-Redirect /internal; return 200; }
    location /internal { internal; ratelimit limit=2/366d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 1, 0, 0]



=== a page for errors counts where the location of the error has no rules
--- config
    error_page 404 /page;
    location /t    { return 404; }
    location /page { ratelimit limit=2/366d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[404, 404, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 1, 0, 0]



=== a location that is reached after the answer does not count again
--- config
    location /t    { ratelimit limit=9/366d; post_action /done; empty_gif; }
    location /done { ratelimit limit=9/366d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6]
--- error_code eval
[200, 200, 200]



=== an empty key decides too: a location that a redirect leads to does not count
--- config
    location /t      { ratelimit_key $arg_k; ratelimit limit=1/366d; try_files /missing /second; }
    location /second { ratelimit limit=0.5/365d; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /t?k=a", "GET /t?k=a"]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
['RateLimit: ', 'RateLimit: ', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== a request is counted once with the subrequests of a subrequest
--- config
    ratelimit limit=9/366d;
    location /page.txt { ssi on; ssi_types text/plain; }
    location /part.txt { ssi on; ssi_types text/plain; auth_request /auth; }
    location /leaf.txt { auth_request /auth; }
    location /auth     { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" -->
>>> part.txt
part <!--#include virtual="/leaf.txt" -->
>>> leaf.txt
leaf
--- request eval
[("GET /page.txt") x 2]
--- response_body eval
[("part leaf\n\n\n") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a request is counted once with its mirrored copies
--- config
    location /t {
        ratelimit limit=9/366d;
        mirror /mirror;
        mirror /mirror;
        empty_gif;
    }
    location /mirror {
        internal;
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 3]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6]
--- error_code eval
[200, 200, 200]



=== rules for mirrored copies alone reject copies, not the requests
--- config
    location /t      { mirror /mirror; empty_gif; }
    location /mirror {
        ratelimit limit=2/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { ratelimit limit=9/365d; empty_gif; }
--- request eval
[("GET /t") x 4, "GET /mirror", "GET /upstream"]
--- error_code eval
[200, 200, 200, 200, 429, 200]
--- response_headers_like eval
[('') x 4, 'RateLimit: "default-366d";r=0;t=\d+', 'RateLimit: "default-365d";r=6;t=\d+']



=== a request that is fetched in slices is counted once
--- http_config
    ratelimit_zone zone=counters:1m;
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
--- config
    location /t {
        ratelimit limit=9/366d;
        slice 4;
        proxy_cache cache;
        proxy_cache_key $slice_range;
        proxy_set_header Range $slice_range;
        proxy_cache_valid 200 206 1h;
        proxy_pass http://127.0.0.1:$server_port/file.txt;
    }
    location /file.txt { ratelimit limit=20/365d; }
--- user_files
>>> file.txt
0123456789abcdefghi
--- request eval
["GET /t", "GET /t", "GET /file.txt"]
--- response_body eval
[("0123456789abcdefghi\n") x 3]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+',
'RateLimit: "default-366d";r=7;t=\d+',
# The 5 slices and this request are counted.
'RateLimit: "default-365d";r=14;t=\d+']
--- error_code eval
[200, 200, 200]



=== a request is counted once with what is added around its body
--- config
    ratelimit limit=9/366d;
    location /t.txt { add_after_body /part.txt; add_before_body /part.txt; addition_types text/plain; }
--- user_files
>>> t.txt
body
>>> part.txt
part
--- request eval
[("GET /t.txt") x 2]
--- response_body eval
[("part\nbody\npart\n") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== auth_request: the subrequest's rules apply where the request has none, once
--- config
    location /t        { auth_request /auth; empty_gif; }
    location /auth     {
        ratelimit limit=2/366d;
        ratelimit_status 403;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 403, 403]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: ',
('RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+') x 2]



=== auth_request: a rejection with a status that it does not know is an error, as any such
--- config
    location /t        { auth_request /auth; empty_gif; }
    location /auth     {
        ratelimit limit=1/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 500]
--- error_log eval
qr/ratelimit: |auth request unexpected status: 429|upstream/



=== auth_request: the subrequest's rules apply where the request's are off
--- config
    ratelimit limit=2/366d;
    location /t        { ratelimit off; auth_request /auth; empty_gif; }
    location /auth     { ratelimit_status 403; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 403]



=== auth_request: a location that a redirect leads to later does not count again
--- config
    location /t        { auth_request /auth; try_files /missing /second; }
    location /second   { ratelimit limit=0.5/365d; empty_gif; }
    location /auth     {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 2]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]
--- error_code eval
[200, 200]



=== a request that decides in precontent is decided by its own rules, not by those of its auth_request
--- config
    ratelimit limit=9/366d;
    location /t {
        ratelimit limit=2/365d;
        ratelimit_phase precontent;
        auth_request /auth;
        empty_gif;
    }
    location /auth     { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
    location /u        { empty_gif; }
--- request eval
[("GET /t") x 3, "GET /u"]
--- error_code eval
[200, 200, 429, 200]
--- response_headers_like eval
['RateLimit: "default-365d";r=1;t=\d+',
('RateLimit: "default-365d";r=0;t=\d+') x 2,
'RateLimit: "default-366d";r=8;t=\d+']



=== nor where the subrequest's rules are its own
--- config
    location /t {
        ratelimit limit=2/365d;
        ratelimit_phase precontent;
        auth_request /auth;
        empty_gif;
    }
    location /auth {
        ratelimit limit=0.5/366d;
        ratelimit_status 403;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { return 204; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]



=== a request that decides in precontent is counted once with its subrequests and redirects
--- config
    ratelimit limit=9/366d;
    ratelimit_phase precontent;
    location /t        { auth_request /auth; mirror /mirror; try_files /missing /page.txt; }
    location /page.txt { auth_request /auth; mirror /mirror; ssi on; ssi_types text/plain; }
    location /part.txt { auth_request /auth; }
    location /auth     { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /mirror   { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" -->
>>> part.txt
part
--- request eval
[("GET /t") x 3]
--- response_body eval
[("part\n\n") x 3]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6]
--- error_code eval
[200, 200, 200]



=== a page for rejections may include what is limited itself
--- config
    ratelimit limit=1/366d;
    error_page 429 /sorry.txt;
    location /sorry.txt { ssi on; ssi_types text/plain; }
--- user_files
>>> sorry.txt
Come back later<!--#include virtual="/part.txt" wait="yes" --><!--#include virtual="/part.txt" -->
>>> part.txt
!
--- request eval
[("GET /") x 3]
--- error_code eval
[200, 429, 429]
--- response_body eval
[qr/It works!/, ("Come back later!\n!\n\n") x 2]
--- response_headers_like eval
[('RateLimit: "default-366d";r=0;t=\d+') x 3]



=== a page for rejections may have rules of its own, which do not apply
--- config
    location /t         { ratelimit limit=1/366d; error_page 429 /sorry.txt; empty_gif; }
    location /sorry.txt { ratelimit limit=0.5/365d; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 429]
--- response_body eval
[qr/^GIF89a/, "Come back later.\n"]
--- response_headers_like eval
[('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== a page for rejections may be behind auth_request, with rules inherited
--- config
    ratelimit limit=1/366d;
    error_page 429 /sorry.txt;
    location /sorry.txt { auth_request /auth; }
    location /auth      { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream  { return 204; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 429]
--- response_body eval
[qr/It works!/, "Come back later.\n"]



=== a page for rejections may come from an upstream, over redirects
--- config
    ratelimit limit=1/366d;
    error_page 429 = @sorry;
    location @sorry    { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { ratelimit off; add_header X-Accel-Redirect /internal; return 200; }
    location /internal { try_files /missing /sorry.txt; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 200]
--- response_body eval
[qr/It works!/, "Come back later.\n"]



=== a page for rejections in precontent is served
--- config
    ratelimit limit=1/366d;
    ratelimit_phase precontent;
    error_page 429 /sorry.txt;
    location /sorry.txt { ratelimit_phase preaccess; ssi on; ssi_types text/plain; }
--- user_files
>>> sorry.txt
Come back later<!--#include virtual="/part.txt" -->
>>> part.txt
!
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 429]
--- response_body eval
[qr/It works!/, "Come back later!\n\n"]



=== after a subrequest was rejected, others that reach rules are rejected without being counted
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /a.txt    { ratelimit limit=1/366d; }
    location /b.txt    { ratelimit limit=9/365d; }
    location /c.txt    { }
--- user_files
>>> page.txt
<!--#include virtual="/a.txt" wait="yes" --><!--#include virtual="/b.txt" wait="yes" --><!--#include virtual="/c.txt" -->
>>> a.txt
a
>>> b.txt
b
>>> c.txt
c
--- request eval
["GET /page.txt", "GET /page.txt", "GET /b.txt"]
--- error_code eval
[200, 200, 200]
--- response_body eval
["a\nb\nc\n\n", qr/\A(?!.*\bb\n).*429 Too Many Requests.*429 Too Many Requests.*c\n\n\z/s, "b\n"]
--- response_headers_like eval
['', '', 'RateLimit: "default-365d";r=8;t=\d+']



=== the page for a rejected subrequest is served within the response
--- config
    error_page 429 /sorry.txt;
    location /page.txt  { ssi on; ssi_types text/plain; }
    location /part.txt  { ratelimit limit=1/366d; }
    location /sorry.txt { ratelimit limit=1/366d; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" -->
>>> part.txt
part
>>> sorry.txt
sorry
--- request eval
[("GET /page.txt") x 2]
--- error_code eval
[200, 200]
--- response_body eval
["part\n\n", "sorry\n\n"]



=== the page is served for each subrequest that is rejected
--- config
    error_page 429 /sorry.txt;
    location /page.txt  { ssi on; ssi_types text/plain; }
    location /part.txt  { ratelimit limit=1/366d; }
    location /sorry.txt { ratelimit limit=1/366d; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" wait="yes" --><!--#include virtual="/part.txt" wait="yes" -->
>>> part.txt
part
>>> sorry.txt
sorry
--- request eval
[("GET /page.txt") x 2]
--- error_code eval
[200, 200]
--- response_body eval
["part\npart\n\n", "sorry\nsorry\n\n"]



=== the page for a request whose auth_request was rejected is served
--- config
    ratelimit limit=1/366d;
    error_page 403 /sorry.txt;
    location /t        { ratelimit off; auth_request /auth; empty_gif; }
    location /auth     { ratelimit_status 403; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- user_files
>>> sorry.txt
Come back later.
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 403]
--- response_body eval
[qr/^GIF89a/, "Come back later.\n"]



=== a rejected request's subrequests are not made
--- config
    location /t {
        ratelimit limit=1/366d;
        auth_request /auth;
        mirror /mirror;
        empty_gif;
    }
    location /auth     { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /mirror   { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { ratelimit limit=9/365d; empty_gif; }
--- request eval
[("GET /t") x 4, "GET /upstream"]
--- error_code eval
[200, 429, 429, 429, 200]
--- response_headers_like eval
[('') x 4, 'RateLimit: "default-365d";r=6;t=\d+']



=== each request of a connection is counted once with its subrequests
--- config
    ratelimit limit=3/366d;
    location /page.txt { ssi on; ssi_types text/plain; auth_request /auth; }
    location /part.txt { }
    location /auth     { proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt" -->
>>> part.txt
part
--- pipelined_requests eval
[("GET /page.txt") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 2, 1, 0, 0]
