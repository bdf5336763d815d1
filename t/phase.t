# Tests the order with nginx's other modules: which requests are counted before
# and after authentication, access rules, limit_req, limit_conn, realip, redirects
# and mirrors, in both phases of `ratelimit_phase`.
#
# Windows have about a year, so that none ends during a test (see limit.t).
# Rules with the same window size share a counter, so the remaining hits show
# which requests were counted.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

use MIME::Base64 qw(encode_base64);

# Returns the header with the credentials of a user.
sub login { 'Authorization: Basic ' . encode_base64($_[0], '') }

# The users of blocks with basic authentication.
my $users = ">>> users\nann:{PLAIN}a\nbob:{PLAIN}b\n";
add_block_preprocessor(sub { complete($_[0], user_files => $users) });

no_long_string();
run_tests();

__DATA__

=== auth_basic: precontent does not count who is not let in
--- config
    location /t {
        ratelimit limit=9/366d;
        ratelimit_phase precontent;
        auth_basic closed;
        auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- more_headers eval
[main::login("ann:a"), "", main::login("ann:wrong"), main::login("ann:a")]
--- error_code eval
[200, 401, 401, 200]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+',
('RateLimit: 
RateLimit-Policy: ') x 2,
'RateLimit: "default-366d";r=7;t=\d+']



=== auth_basic: preaccess counts attempts that fail, and stops them
--- config
    location /t {
        ratelimit limit=2/366d;
        auth_basic closed;
        auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- more_headers eval
["", main::login("ann:wrong"), main::login("ann:a")]
--- error_code eval
[401, 401, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== auth_basic: in precontent, nobody can use up the limit of a user whose password they lack
--- config
    location /t {
        ratelimit_key $remote_user;
        ratelimit limit=2/366d;
        ratelimit_phase precontent;
        auth_basic closed;
        auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
        empty_gif;
    }
--- request eval
[("GET /t") x 8]
--- more_headers eval
[(main::login("ann:guess")) x 3, (main::login("ann:a")) x 3, (main::login("bob:b")) x 2]
--- error_code eval
[401, 401, 401, 200, 200, 429, 200, 200]



=== auth_basic: in preaccess, the user's name is what the client claims
--- config
    location /t {
        ratelimit_key $remote_user;
        ratelimit limit=2/366d;
        auth_basic closed;
        auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- more_headers eval
[(main::login("ann:guess")) x 2, main::login("ann:a"), main::login("bob:b")]
--- error_code eval
[401, 401, 429, 200]



=== auth_request: in precontent, the key can be what auth_request_set has set
--- http_config
    ratelimit_zone zone=counters:1m;
    map $http_x_token $user_of_token { 1 ann; 2 ann; 3 bob; }
--- config
    location /t {
        auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        ratelimit_key $user;
        ratelimit limit=2/366d;
        ratelimit_phase precontent;
        empty_gif;
    }
    location /auth     { internal; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream {
        if ($user_of_token = "") { return 401; }
        add_header X-User $user_of_token;
        return 204;
    }
--- request eval
[("GET /t") x 5]
--- more_headers eval
[(map { "X-Token: $_" } 1, 2, 1, 3), ""]
--- error_code eval
[200, 200, 429, 200, 401]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+',
('RateLimit: "default-366d";r=0;t=\d+') x 2,
'RateLimit: "default-366d";r=1;t=\d+',
'RateLimit: ']



=== auth_request: in precontent, the limit can be what auth_request_set has set
--- http_config
    ratelimit_zone zone=counters:1m;
    map $http_x_token $limit_of_token { ann 2; bob 0; }
--- config
    location /t {
        auth_request /auth;
        auth_request_set $per_year $upstream_http_x_limit;
        ratelimit_key $http_x_token;
        ratelimit limit=$per_year/366d;
        ratelimit_phase precontent;
        empty_gif;
    }
    location /auth     { internal; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { add_header X-Limit $limit_of_token; return 204; }
--- request eval
[("GET /t") x 5]
--- more_headers eval
[map { "X-Token: $_" } ("ann") x 3, "bob", "eve"]
--- error_code eval
[200, 200, 429, 429, 200]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+',
('RateLimit: "default-366d";r=0;t=\d+') x 2,
'RateLimit: "default-366d";r=0',
'RateLimit: ']



=== auth_request: in preaccess, what it sets is not known, and an empty key not accounted
--- config
    location /t {
        auth_request /auth;
        auth_request_set $user $upstream_http_x_user;
        ratelimit_key $user$arg_k;
        ratelimit limit=1/366d;
        empty_gif;
    }
    location /auth     { internal; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { add_header X-User ann; return 204; }
--- request eval
["GET /t", "GET /t", "GET /t?k=a", "GET /t?k=a"]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
['RateLimit: ', 'RateLimit: ', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== auth_request: precontent does not count who is not let in, preaccess does
--- config
    location /before   { auth_request /auth; ratelimit limit=9/366d; }
    location /after    { auth_request /auth; ratelimit limit=9/366d; ratelimit_phase precontent; }
    location /auth     { internal; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 403; }
    location /t        { ratelimit limit=9/366d; empty_gif; }
--- request eval
["GET /before", "GET /after", "GET /after", "GET /t"]
--- error_code eval
[403, 403, 403, 200]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+', ('RateLimit: ') x 2, 'RateLimit: "default-366d";r=7;t=\d+']



=== access rules: precontent does not count who is denied, preaccess does
--- config
    location /before { deny all; ratelimit limit=9/366d; }
    location /after  { deny all; ratelimit limit=9/366d; ratelimit_phase precontent; }
    location /t      { ratelimit limit=9/366d; empty_gif; }
--- request eval
["GET /before", "GET /after", "GET /after", "GET /t"]
--- error_code eval
[403, 403, 403, 200]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+', ('RateLimit: ') x 2, 'RateLimit: "default-366d";r=7;t=\d+']



=== the phase is inherited, apart from rules
--- config
    deny all;
    ratelimit limit=9/366d;
    ratelimit_phase precontent;
    location /inherits { location /inherits/nested { } }
    location /rule     { ratelimit limit=9/366d; }
    location /phase    { ratelimit_phase preaccess; }
    location /t        { allow all; empty_gif; }
--- request eval
["GET /inherits", "GET /inherits/nested", "GET /rule", "GET /phase", "GET /phase", "GET /t"]
--- error_code eval
[403, 403, 403, 403, 403, 200]
--- response_headers_like eval
[('RateLimit: ') x 3, map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6]



=== the phase is inherited from http
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit limit=9/366d;
    ratelimit_phase precontent;
--- config
    location /denied { deny all; }
    location /t      { empty_gif; }
--- request eval
["GET /denied", "GET /t"]
--- error_code eval
[403, 200]
--- response_headers_like eval
['RateLimit: ', 'RateLimit: "default-366d";r=8;t=\d+']



=== the phase is inherited by the blocks within a location
--- config
    location /t/ {
        ratelimit limit=9/366d;
        ratelimit_phase precontent;
        if ($arg_k) { set $k 1; }
        limit_except GET { deny all; }
    }
--- user_files
>>> t/file.txt
hello
--- request eval
["POST /t/file.txt\nbody", "GET /t/file.txt?k=1", "POST /t/file.txt\nbody", "GET /t/file.txt"]
--- error_code eval
[403, 200, 403, 200]
--- response_headers_like eval
['RateLimit: ', 'RateLimit: "default-366d";r=8;t=\d+', 'RateLimit: ', 'RateLimit: "default-366d";r=7;t=\d+']



=== satisfy any: an admitted request is not let in by the limit, in either phase
--- config
    satisfy any;
    deny all;
    auth_basic closed;
    auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
    ratelimit limit=9/366d;
    location /before { empty_gif; }
    location /after  { ratelimit_phase precontent; empty_gif; }
--- request eval
["GET /before", "GET /after", "GET /before", "GET /after"]
--- more_headers eval
[("") x 2, (main::login("ann:a")) x 2]
--- error_code eval
[401, 401, 200, 200]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+',
'RateLimit: ',
'RateLimit: "default-366d";r=7;t=\d+',
'RateLimit: "default-366d";r=6;t=\d+']



=== satisfy any: who is allowed is limited, in either phase
--- config
    satisfy any;
    allow all;
    auth_basic closed;
    auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
    location /before { ratelimit limit=2/366d; empty_gif; }
    location /after  { ratelimit limit=2/365d; ratelimit_phase precontent; empty_gif; }
--- request eval
[("GET /before") x 3, ("GET /after") x 3]
--- more_headers eval
["", main::login("ann:a"), "", "", main::login("ann:wrong"), ""]
--- error_code eval
[200, 200, 429, 200, 200, 429]



=== satisfy any: with auth_request that refuses, an admitted request is refused, in either phase
--- config
    satisfy any;
    deny all;
    auth_request /auth;
    ratelimit limit=9/366d;
    location /before   { empty_gif; }
    location /after    { ratelimit_phase precontent; empty_gif; }
    location /auth     { satisfy all; allow all; auth_request off; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 403; }
--- request eval
["GET /before", "GET /after", "GET /before"]
--- error_code eval
[403, 403, 403]
--- response_headers_like eval
['RateLimit: "default-366d";r=8;t=\d+', 'RateLimit: ', 'RateLimit: "default-366d";r=7;t=\d+']



=== satisfy all: an admitted request needs everything else too, in either phase
--- config
    satisfy all;
    allow all;
    auth_basic closed;
    auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/users;
    ratelimit limit=3/366d;
    location /before { empty_gif; }
    location /after  { ratelimit_phase precontent; empty_gif; }
    location /denied { deny all; }
--- request eval
["GET /before", "GET /after", "GET /denied", "GET /after", "GET /after"]
--- more_headers eval
["", "", (main::login("ann:a")) x 3]
--- error_code eval
[401, 401, 403, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=2;t=\d+',
'RateLimit: ',
'RateLimit: "default-366d";r=1;t=\d+',
('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== limit_req: whom we reject it does not count, in preaccess
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone everybody zone=requests:1m rate=1r/m;
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d;
        limit_req zone=requests burst=1 nodelay;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=a", "GET /t?k=b", "GET /t?k=c"]
--- error_code eval
[200, 429, 429, 200, 503]



=== limit_req: whom it rejects we have counted, in preaccess
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone everybody zone=requests:1m rate=1r/m;
--- config
    location /t {
        ratelimit limit=3/366d;
        limit_req zone=requests;
        empty_gif;
    }
--- request eval
[("GET /t") x 5]
--- error_code eval
[200, 503, 503, 429, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 2, 1, 0, 0, 0]



=== limit_req: whom it rejects we do not count, in precontent
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone $arg_k zone=requests:1m rate=1r/m;
--- config
    location /t {
        ratelimit limit=2/366d;
        ratelimit_phase precontent;
        limit_req zone=requests;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a", "GET /t?k=a", "GET /t?k=b", "GET /t?k=c"]
--- error_code eval
[200, 503, 503, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+', ('RateLimit: ') x 2, ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== limit_req: whom we reject it has counted, in precontent
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone $arg_k zone=requests:1m rate=1r/m;
--- config
    location /t {
        ratelimit limit=1/366d;
        ratelimit_phase precontent;
        limit_req zone=requests;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t?k=b"]
--- error_code eval
[200, 429, 503]



=== limit_req: a request that it delays is counted once, in either phase
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone everybody zone=requests:1m rate=20r/s;
--- config
    limit_req zone=requests burst=5;
    # The second request of a pair is too early.
    location /outer/before { proxy_pass http://127.0.0.1:$server_port/inner/before; }
    location /outer/after  { proxy_pass http://127.0.0.1:$server_port/inner/after; }
    location /inner/before { ratelimit limit=9/366d; empty_gif; }
    location /inner/after  { ratelimit limit=9/366d; ratelimit_phase precontent; empty_gif; }
--- request eval
[("GET /outer/before", "GET /outer/after") x 2]
--- error_code eval
[200, 200, 200, 200]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6, 5]
--- error_log eval
[qr/delaying request/]



=== limit_conn: whom we reject holds no connection of its, in either phase
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_conn_zone everybody zone=connections:1m;
--- config
    limit_conn connections 1;
    location /before { ratelimit limit=1/366d; empty_gif; }
    location /after  { ratelimit limit=1/365d; ratelimit_phase precontent; empty_gif; }
--- pipelined_requests eval
[("GET /before") x 3, ("GET /after") x 3, "GET /users"]
--- error_code eval
[200, 429, 429, 200, 429, 429, 200]



=== limit_conn: whom it rejects we have counted in preaccess, and not in precontent
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_conn_zone everybody zone=connections:1m;
--- config
    limit_conn connections 1;
    # The second connection is made while the first is served.
    location /outer/before { proxy_pass http://127.0.0.1:$server_port/inner/before; }
    location /outer/after  { proxy_pass http://127.0.0.1:$server_port/inner/after; }
    location /inner/before { ratelimit limit=2/366d; empty_gif; }
    location /inner/after  { ratelimit limit=9/365d; ratelimit_phase precontent; empty_gif; }
--- request eval
["GET /outer/before", "GET /outer/after", "GET /inner/before", "GET /inner/after", "GET /outer/before"]
--- error_code eval
[503, 503, 200, 200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=1;t=\d+',
'RateLimit: ',
'RateLimit: "default-366d";r=0;t=\d+',
'RateLimit: "default-365d";r=8;t=\d+',
'RateLimit: "default-366d";r=0;t=\d+']



=== realip of the server: the key is the real address, in either phase
--- config
    set_real_ip_from 127.0.0.1;
    real_ip_header X-Real-IP;
    ratelimit limit=1/366d;
    location /before { ratelimit_key "before $remote_addr"; empty_gif; }
    location /after  { ratelimit_key "after $remote_addr"; ratelimit_phase precontent; empty_gif; }
--- request eval
[("GET /before") x 4, ("GET /after") x 4]
--- more_headers eval
[("X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2", "X-Real-IP: 192.0.2.1", "") x 2]
--- error_code eval
[(200, 200, 429, 200) x 2]



=== realip of a location: the key is the real address, in either phase
--- config
    location /before {
        set_real_ip_from 127.0.0.1;
        ratelimit_key "before $remote_addr";
        ratelimit limit=1/366d;
        empty_gif;
    }
    location /after {
        set_real_ip_from 127.0.0.1;
        ratelimit_key "after $remote_addr";
        ratelimit limit=1/366d;
        ratelimit_phase precontent;
        empty_gif;
    }
--- request eval
[("GET /before") x 4, ("GET /after") x 4]
--- more_headers eval
[("X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2", "X-Real-IP: 192.0.2.1", "") x 2]
--- error_code eval
[(200, 200, 429, 200) x 2]



=== realip: $binary_remote_addr and $ratelimit_net are of the real address
--- config
    set_real_ip_from 127.0.0.1;
    ratelimit limit=1/366d;
    location /server/binary { ratelimit_key "1 $binary_remote_addr"; empty_gif; }
    location /server/net    { ratelimit_key "2 $ratelimit_net"; empty_gif; }
    location /binary { set_real_ip_from 127.0.0.1; ratelimit_key "3 $binary_remote_addr"; empty_gif; }
    location /net    { set_real_ip_from 127.0.0.1; ratelimit_key "4 $ratelimit_net"; empty_gif; }
--- request eval
[map { ("GET $_") x 4 } "/server/binary", "/server/net", "/binary", "/net"]
--- more_headers eval
[("X-Real-IP: 2001:db8::1", "X-Real-IP: 2001:db8::2", "X-Real-IP: 2001:db8::1", "X-Real-IP: 2001:db9::1") x 4]
--- error_code eval
[(200, 200, 429, 200, 200, 429, 429, 200) x 2]



=== realip: a variable that was read before realip of a location had its turn is read anew
--- config
    location /t {
        set $before $binary_remote_addr$remote_addr$ratelimit_net;
        set_real_ip_from 127.0.0.1;
        ratelimit_key $ratelimit_net;
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- more_headers eval
["X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2", "X-Real-IP: 192.0.2.1"]
--- error_code eval
[200, 200, 429]



=== realip: proxies that are not trusted do not change the key
--- config
    set_real_ip_from 192.0.2.0/24;
    location /t { ratelimit limit=1/366d; empty_gif; }
--- request eval
[("GET /t") x 2]
--- more_headers eval
["X-Real-IP: 192.0.2.1", "X-Real-IP: 192.0.2.2"]
--- error_code eval
[200, 429]



=== try_files: in precontent, a request is counted before the redirect, once
--- config
    location /t {
        ratelimit limit=3/366d;
        ratelimit_phase precontent;
        try_files /missing /second;
    }
    location /second {
        ratelimit limit=9/366d name=second;
        try_files /missing @third;
    }
    location @third {
        ratelimit limit=9/366d name=third;
        ratelimit_phase precontent;
        empty_gif;
    }
--- request eval
[("GET /t") x 4]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 2, 1, 0, 0]



=== try_files: in precontent, a request is counted that finds its file, and that finds none
--- config
    location /t {
        ratelimit limit=3/366d;
        ratelimit_phase precontent;
        try_files /$arg_file =404;
    }
--- request eval
["GET /t?file=users", "GET /t?file=missing", "GET /t?file=users", "GET /t?file=missing"]
--- error_code eval
[200, 404, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 2, 1, 0, 0]



=== a location that decides in precontent, and a redirect leads to, counts
--- config
    location /t     { try_files /missing /second; }
    location /second { ratelimit limit=2/366d; ratelimit_phase precontent; try_files /missing @third; }
    location @third { ratelimit limit=0.5/365d; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]



=== a named location can decide in precontent
--- config
    location /t     { error_page 404 = @named; }
    location @named { ratelimit limit=2/366d; ratelimit_phase precontent; empty_gif; }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 1, 0, 0]



=== mirror: an admitted request is mirrored, a rejected one is not, in either phase
--- config
    mirror /mirror;
    location /before   { ratelimit limit=2/366d; empty_gif; }
    location /after    { ratelimit limit=2/365d; ratelimit_phase precontent; empty_gif; }
    location /mirror   { internal; mirror off; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { mirror off; ratelimit limit=9/364d; empty_gif; }
--- request eval
[("GET /before") x 4, "GET /upstream", ("GET /after") x 4, "GET /upstream"]
--- error_code eval
[200, 200, 429, 429, 200, 200, 200, 429, 429, 200]
--- response_headers_like eval
[('RateLimit: "default-366d".*') x 4, 'RateLimit: "default-364d";r=6;t=\d+',
 ('RateLimit: "default-365d".*') x 4, 'RateLimit: "default-364d";r=3;t=\d+']



=== what the rewrite phase answers is not counted, in either phase
--- config
    ratelimit limit=9/366d;
    location /return   { return 200; }
    location /redirect { rewrite ^ /elsewhere permanent; }
    location /if       { if ($arg_k) { return 403; } empty_gif; }
    location /after {
        ratelimit_phase precontent;
        location /after/return   { return 200; }
        location /after/redirect { rewrite ^ /elsewhere redirect; }
    }
    location /t        { empty_gif; }
--- request eval
["GET /return", "GET /redirect", "GET /if?k=1", "GET /after/return", "GET /after/redirect", "GET /t"]
--- error_code eval
[200, 301, 403, 200, 302, 200]
--- response_headers_like eval
[('RateLimit: ') x 5, 'RateLimit: "default-366d";r=8;t=\d+']



=== what never comes to a location's phases is not counted, in either phase
--- config
    ratelimit limit=9/366d;
    location /internal { internal; empty_gif; }
    location /large    { client_max_body_size 1; empty_gif; }
    location /after {
        ratelimit_phase precontent;
        location /after/internal { internal; empty_gif; }
        location /after/large    { client_max_body_size 1; empty_gif; }
    }
    location /t        { empty_gif; }
--- request eval
["GET /internal", "POST /large\nbody", "GET /after/internal", "POST /after/large\nbody", "GET /t"]
--- error_code eval
[404, 413, 404, 413, 200]
--- response_headers_like eval
[('RateLimit: ') x 4, 'RateLimit: "default-366d";r=8;t=\d+']



=== proxied: a rejected request does not reach the upstream, in either phase
--- config
    location /before   { ratelimit limit=1/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /after    {
        ratelimit limit=1/365d;
        ratelimit_phase precontent;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream { ratelimit limit=9/364d; empty_gif; }
--- request eval
[("GET /before", "GET /after") x 3, "GET /upstream"]
--- error_code eval
[200, 200, 429, 429, 429, 429, 200]
--- response_headers_like eval
[('RateLimit: "default-366d";r=0;t=\d+', 'RateLimit: "default-365d";r=0;t=\d+') x 3,
'RateLimit: "default-364d";r=6;t=\d+']



=== proxied: the body of an admitted request reaches the upstream, in either phase
--- config
    location /before   { ratelimit limit=9/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /after    {
        ratelimit limit=9/366d;
        ratelimit_phase precontent;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        client_body_in_single_buffer on;
        proxy_set_header X-Body $request_body;
        proxy_pass http://127.0.0.1:$server_port/echo;
    }
    location /echo     { return 200 "$http_x_body\n"; }
--- request eval
["POST /before\nbody-of-before", "POST /after\nbody-of-after"]
--- error_code eval
[200, 200]
--- response_body eval
["body-of-before\n", "body-of-after\n"]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7]



=== a rejected request's body is not taken for the next request of its connection, in either phase
--- config
    location /before { ratelimit limit=0.5/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /after  { ratelimit limit=0.5/366d; ratelimit_phase precontent; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 200; }
    location /smuggled { return 418; }
--- pipelined_requests eval
my $inner = "GET /smuggled HTTP/1.1\nHost: localhost\n";
["POST /before\n$inner", "GET /users", "POST /after\n$inner", "GET /users"]
--- error_code eval
[429, 200, 429, 200]



=== a directory's index is looked for after the decision, which stays, in either phase
--- config
    location /before/ { ratelimit limit=9/366d; index page.html; }
    location /after/  { ratelimit limit=9/366d; ratelimit_phase precontent; index page.html; }
--- user_files
>>> before/page.html
hello
>>> after/page.html
hello
--- request eval
["GET /before/", "GET /after/", "GET /before/", "GET /after/"]
--- error_code eval
[200, 200, 200, 200]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 8, 7, 6, 5]



=== each request of a connection is decided in the phase of its location
--- config
    ratelimit limit=3/366d;
    location /before { deny all; }
    location /after  { ratelimit_phase precontent; deny all; }
    location /t      { ratelimit_phase precontent; empty_gif; }
--- pipelined_requests eval
["GET /before", "GET /after", "GET /t", "GET /after", "GET /before", "GET /after", "GET /t", "GET /before"]
--- error_code eval
[403, 403, 200, 403, 403, 403, 429, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=2;t=\d+', 'RateLimit: ', 'RateLimit: "default-366d";r=1;t=\d+', 'RateLimit: ',
'RateLimit: "default-366d";r=0;t=\d+', 'RateLimit: ', ('RateLimit: "default-366d";r=0;t=\d+') x 2]



=== one counter serves both phases
--- config
    location /before { ratelimit limit=3/366d; empty_gif; }
    location /after  { ratelimit limit=3/366d; ratelimit_phase precontent; empty_gif; }
--- request eval
[("GET /before", "GET /after") x 2]
--- error_code eval
[200, 200, 200, 429]
--- response_headers_like eval
[map { qq(RateLimit: "default-366d";r=$_;t=\\d+) } 2, 1, 0, 0]



=== a rejection in precontent closes the connection with the status 444
--- config
    location /t { ratelimit limit=0.5/366d; ratelimit_phase precontent; ratelimit_status 444; empty_gif; }
--- request
GET /t
--- error_code:
--- response_body eval
""



=== a dry run in precontent counts and rejects nothing
--- config
    location /t {
        ratelimit limit=1/366d;
        ratelimit_phase precontent;
        ratelimit_dry_run on;
        add_header X-Status $ratelimit_status always;
        empty_gif;
    }
--- request eval
[("GET /t") x 2]
--- error_code eval
[200, 200]
--- response_headers eval
["X-Status: PASSED", "X-Status: REJECTED_DRY_RUN"]
