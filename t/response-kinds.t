# Tests that every kind of response of nginx has the headers about limits exactly
# once, however other modules change the response. headers.t has the plain cases.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

use File::Temp qw(tempdir);
use IO::Socket::UNIX;

# An upstream that accepts connections and never responds.
my $directory = tempdir(CLEANUP => 1);
chmod 0755, $directory;
$ENV{TEST_NGINX_SILENT} = "$directory/silent.sock";
my $silent = IO::Socket::UNIX->new(Local => $ENV{TEST_NGINX_SILENT}, Listen => 10)
    or die "cannot listen: $!\n";

# Returns the headers about a limit of 9 hits, for an admitted or a rejected request.
sub told {
    my ($remaining, $more) = @_;
    return qq(RateLimit-Policy: "default-366d";q=9;w=31622400
RateLimit: "default-366d";r=$remaining;t=\\d+
Retry-After: ) . ($more // '');
}

add_block_preprocessor(sub {
    my ($block) = @_;
    return complete($block) if lacks($block, sub_filter => 'sub');
    # No header of the module occurs twice.
    my $requests = $block->pipelined_requests || $block->request;
    my $twice    = '(?i)\n(ratelimit|ratelimit-policy|retry-after):.*\n\1:';
    $block->set_value(raw_response_headers_unlike =>
        ref $requests ? [($twice) x @$requests] : $twice);
    complete($block);
});

no_long_string();
run_tests();

__DATA__

=== a file
--- config
    ratelimit limit=9/366d;
--- request eval
[("GET /index.html") x 2]
--- error_code eval
[200, 200]
--- response_headers_like eval
[map { main::told($_) } 8, 7]



=== 304 Not Modified, by date
--- config
    ratelimit limit=9/366d;
    if_modified_since before;
--- request
GET /index.html
--- more_headers
If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT
--- error_code: 304
--- response_headers_like eval
main::told(8)



=== 304 Not Modified, from an upstream
--- config
    location /t        { ratelimit limit=9/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { add_header RateLimit '"upstream";r=1' always; return 304; }
--- request
GET /t
--- error_code: 304
--- response_headers_like eval
main::told(8)



=== 206 Partial Content, one range and several
--- config
    ratelimit limit=9/366d;
--- request eval
[("GET /index.html") x 2]
--- more_headers eval
["Range: bytes=0-5", "Range: bytes=0-2,4-6"]
--- error_code eval
[206, 206]
--- response_headers_like eval
[main::told(8) . "\nContent-Range: bytes 0-5/\\d+",
main::told(7) . "\nContent-Type: multipart/byteranges.*"]



=== 416 Range Not Satisfiable
--- config
    ratelimit limit=9/366d;
--- request
GET /index.html
--- more_headers
Range: bytes=5000-
--- error_code: 416
--- response_headers_like eval
main::told(8)



=== 412 Precondition Failed
--- config
    ratelimit limit=9/366d;
--- request
GET /index.html
--- more_headers
If-Unmodified-Since: Sat, 01 Jan 2000 00:00:00 GMT
--- error_code: 412
--- response_headers_like eval
main::told(8)



=== 405 Not Allowed
--- config
    ratelimit limit=9/366d;
--- request
POST /index.html
body
--- error_code: 405
--- response_headers_like eval
main::told(8)



=== 401 Unauthorized
--- config
    ratelimit limit=9/366d;
    auth_basic closed;
    auth_basic_user_file $TEST_NGINX_SERVER_ROOT/html/index.html;
--- request
GET /index.html
--- error_code: 401
--- response_headers_like eval
main::told(8) . "\nWWW-Authenticate: .*"



=== 403 Forbidden, of a directory that has no index
--- config
    ratelimit limit=9/366d;
--- user_files
>>> directory/page.html
hello
--- request
GET /directory/
--- error_code: 403
--- response_headers_like eval
main::told(8)



=== the index of a directory
--- config
    ratelimit limit=9/366d;
    autoindex on;
--- user_files
>>> directory/page.html
hello
--- request
GET /directory/
--- response_body_like: page\.html
--- response_headers_like eval
main::told(8)



=== the answer to HEAD is that to GET
--- config
    ratelimit limit=9/366d;
    location /t { proxy_pass http://127.0.0.1:$server_port/index.html; }
    location /index.html { ratelimit off; }
--- request eval
["HEAD /", "HEAD /t", "HEAD /missing"]
--- error_code eval
[200, 200, 404]
--- response_headers_like eval
[map { main::told($_) } 8, 7, 6]



=== 204 No Content, from an upstream
--- config
    location /t        { ratelimit limit=9/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 204; }
--- request
GET /t
--- error_code: 204
--- response_body eval
""
--- response_headers_like eval
main::told(8)



=== an empty page in place of a rejection's
--- config
    ratelimit limit=0.5/366d name=t;
    error_page 429 =204 @empty;
    location @empty { return 204; }
--- request
GET /
--- error_code: 204
--- response_body eval
""
--- response_headers_like
RateLimit: "t";r=0



=== redirects, from an upstream
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream/$arg_code;
    }
    location /upstream/301 { return 301 /elsewhere; }
    location /upstream/302 { return 302 /elsewhere; }
    location /upstream/303 { return 303 /elsewhere; }
    location /upstream/307 { return 307 /elsewhere; }
    location /upstream/308 { return 308 /elsewhere; }
--- request eval
[map { "GET /t?code=$_" } 301, 302, 303, 307, 308]
--- error_code eval
[301, 302, 303, 307, 308]
--- response_headers_like eval
[map { main::told($_) . "\nLocation: .*/elsewhere" } 8, 7, 6, 5, 4]



=== a redirect in place of a rejection
--- config
    ratelimit limit=1/366d;
    error_page 429 https://www.example.com/later;
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 302]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
Retry-After: \d+
Location: https://www.example.com/later']



=== errors, from an upstream
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream/$arg_code;
    }
    location /upstream/400 { return 400; }
    location /upstream/404 { return 404; }
    location /upstream/500 { return 500; }
    location /upstream/503 { return 503; }
    location /upstream/429 { add_header Retry-After 7 always; return 429; }
--- request eval
[map { "GET /t?code=$_" } 400, 404, 500, 503, 429]
--- error_code eval
[400, 404, 500, 503, 429]
--- response_headers_like eval
[(map { main::told($_) } 8, 7, 6, 5), main::told(4, 7)]



=== 502 Bad Gateway: an upstream that closes
--- config
    location /t        { ratelimit limit=9/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /upstream { return 444; }
--- request
GET /t
--- error_code: 502
--- response_headers_like eval
main::told(8)



=== 504 Gateway Timeout: an upstream that is silent
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://unix:$TEST_NGINX_SILENT:/;
        proxy_read_timeout 10ms;
    }
--- request
GET /t
--- error_code: 504
--- response_headers_like eval
main::told(8)



=== 504 Gateway Timeout, with a page of its own
--- config
    ratelimit limit=9/366d;
    location /t {
        proxy_pass http://unix:$TEST_NGINX_SILENT:/;
        proxy_read_timeout 10ms;
        error_page 504 /index.html;
    }
--- request
GET /t
--- error_code: 504
--- response_body_like: It works!
--- response_headers_like eval
main::told(8)



=== what is compressed
--- config
    ratelimit limit=9/366d;
    gzip on;
    gzip_min_length 1;
--- request
GET /index.html
--- more_headers
Accept-Encoding: gzip
--- response_headers_like eval
main::told(8) . "\nContent-Encoding: gzip"



=== what is substituted within
--- config
    ratelimit limit=9/366d;
    sub_filter works fails;
    sub_filter_once off;
--- request
GET /index.html
--- response_body_like: It fails!
--- response_headers_like eval
main::told(8)



=== what is assembled by SSI
--- config
    ratelimit limit=9/366d;
    ssi on;
--- user_files
>>> page.html
<!--#echo var="ratelimit_status" -->
--- request
GET /page.html
--- response_body eval
"PASSED\n"
--- response_headers_like eval
main::told(8) . "\nTransfer-Encoding: chunked"



=== what is generated
--- config
    ratelimit limit=9/366d;
    location /status { stub_status; }
--- request
GET /status
--- response_body_like: Active connections
--- response_headers_like eval
main::told(8)



=== with add_header
--- config
    ratelimit limit=1/366d;
    add_header X-Always 1 always;
    add_header X-Success 1;
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
X-Always: 1
X-Success: 1
Retry-After: ',
'RateLimit: "default-366d";r=0;t=\d+
X-Always: 1
X-Success: 
Retry-After: \d+']



=== with expires
--- config
    ratelimit limit=1/366d;
    expires 1h;
--- request eval
[("GET /") x 2]
--- error_code eval
[200, 429]
--- response_headers_like eval
['RateLimit: "default-366d";r=0;t=\d+
Expires: .+
Cache-Control: max-age=3600',
'RateLimit: "default-366d";r=0;t=\d+
Expires: 
Cache-Control: 
Retry-After: \d+']



=== with expires, from an upstream that has headers of its own
--- config
    location /t {
        ratelimit limit=9/366d;
        expires 1h;
        add_header Cache-Control public always;
        proxy_pass http://127.0.0.1:$server_port/upstream;
    }
    location /upstream {
        add_header Expires 0;
        add_header Cache-Control no-store;
        add_header RateLimit '"upstream";r=1';
        return 200;
    }
--- request
GET /t
--- response_headers_like eval
main::told(8) . "\nExpires: .+ GMT\nCache-Control: .*max-age=3600.*"



=== from a cache, with headers of now: whole, not modified, in part, without a body
--- http_config
    ratelimit_zone zone=counters:1m;
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
--- config
    location /t {
        ratelimit limit=9/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream/file.txt;
        proxy_cache cache;
        proxy_cache_key t;
        proxy_cache_valid 200 1h;
        add_header X-Cache $upstream_cache_status always;
    }
    location /upstream/file.txt {
        add_header RateLimit-Policy '"upstream";q=1000';
        add_header RateLimit '"upstream";r=999';
        add_header Retry-After 7;
    }
--- user_files
>>> upstream/file.txt
0123456789
--- request eval
[("GET /t") x 5]
--- more_headers eval
["", "", "If-None-Match: *", "Range: bytes=2-4", ""]
--- error_code eval
[200, 200, 304, 206, 200]
--- response_body eval
[("0123456789\n") x 2, "", "234", "0123456789\n"]
--- response_headers_like eval
[main::told(8, 7) . "\nX-Cache: MISS", map { main::told($_, 7) . "\nX-Cache: HIT" } 7, 6, 5, 4]



=== a rejection is not what a cache keeps
--- http_config
    ratelimit_zone zone=counters:1m;
    proxy_cache_path $TEST_NGINX_SERVER_ROOT/cache keys_zone=cache:1m;
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit limit=1/366d;
        proxy_pass http://127.0.0.1:$server_port/upstream;
        proxy_cache cache;
        proxy_cache_key $arg_page;
        proxy_cache_valid any 1h;
        add_header X-Cache $upstream_cache_status always;
    }
    location /upstream { empty_gif; }
--- request eval
["GET /t?page=1&k=a", "GET /t?page=2&k=a", "GET /t?page=2&k=b", "GET /t?page=2&k=b", "GET /t?page=1&k=c"]
--- error_code eval
[200, 429, 200, 429, 200]
--- response_headers_like eval
['X-Cache: MISS', 'X-Cache: ', 'X-Cache: MISS', 'X-Cache: ', 'X-Cache: HIT']



=== an upstream's that was hidden, or passed on, or ignored
--- config
    ratelimit limit=9/366d;
    proxy_intercept_errors on;
    location /hide { proxy_hide_header RateLimit; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /pass { proxy_pass_header RateLimit; proxy_pass http://127.0.0.1:$server_port/upstream; }
    location /page { error_page 503 /index.html; proxy_pass http://127.0.0.1:$server_port/upstream?503; }
    location /upstream {
        ratelimit off;
        add_header RateLimit '"upstream";r=999' always;
        if ($args) { return 503; }
        return 200;
    }
--- request eval
["GET /hide", "GET /pass", "GET /page"]
--- error_code eval
[200, 200, 503]
--- response_headers_like eval
[map { main::told($_) } 8, 7, 6]



=== responses of many kinds on one connection, each with its own
--- config
    location /directory { ratelimit limit=6/366d; gzip on; gzip_min_length 1; }
    location /missing   { ratelimit limit=6/366d; }
    location /free { empty_gif; }
    location /upstream { return 203; }
    location /proxied { ratelimit limit=6/366d; proxy_pass http://127.0.0.1:$server_port/upstream; }
--- user_files
>>> directory/page.html
hello
--- pipelined_requests eval
["GET /directory/page.html", "GET /free", "GET /directory", "GET /missing", "GET /proxied", "POST /proxied\nbody",
"GET /directory/page.html", "GET /free", "GET /directory/page.html", "POST /proxied\nbody", "GET /proxied"]
--- error_code eval
[200, 200, 301, 404, 203, 203, 200, 200, 429, 429, 429]
--- response_headers_like eval
my @told = map { qq(RateLimit: "default-366d";r=$_;t=\\d+\nRetry-After: ) } 0 .. 5;
my $free = "RateLimit: \nRateLimit-Policy: \nRetry-After: ";
[$told[5], $free, @told[4, 3, 2, 1, 0], $free, (qq(RateLimit: "default-366d";r=0;t=\\d+\nRetry-After: \\d+)) x 3]
