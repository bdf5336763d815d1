# Tests ratelimit_message: the body of rejections.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'END') });
    ratelimit_zone zone=counters:1m;
END

no_long_string();
run_tests();

__DATA__

=== a body with variables, a type, and the headers of a rejection
--- config
    location /t {
        ratelimit limit=1/366d name=mine;
        ratelimit_message "text/plain; charset=utf-8" "too many: $ratelimit_policy${arg_x}!\n";
        empty_gif;
    }
--- request eval
["GET /t", "GET /t?x=%22"]
--- error_code eval
[200, 429]
--- response_headers_like eval
["", "Content-Type: text/plain; charset=utf-8\nContent-Length: 19\nCache-Control: no-store\nRateLimit-Policy: \"mine\";q=1;w=31622400\nRetry-After: \\d+"]
--- response_body_like eval
[qr/^GIF/, qr/^too many: mine%22!$/]



=== values of variables are escaped in JSON
--- config
    location /t {
        ratelimit limit=1/366d;
        ratelimit_message application/problem+json '{"agent": "$http_user_agent", "key": "$ratelimit_key"}';
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- more_headers eval
["", "User-Agent: a\"b\\c\t\xff"]
--- error_code eval
[200, 429]
--- response_body eval
[qr/^GIF/, "{\"agent\": \"a\\\"b\\\\c\\t\xef\xbf\xbd\", \"key\": \"127.0.0.1\"}"]



=== the status of the response
--- config
    location /t {
        ratelimit limit=0.5/366d status=403;
        ratelimit_message application/json '{"status": $status}';
        empty_gif;
    }
--- request
GET /t
--- error_code: 403
--- response_body chomp
{"status": 403}



=== levels inherit it, and may set another
--- config
    ratelimit_message text/plain outer;
    ratelimit limit=0.5/366d;
    location /outer { empty_gif; }
    location /inner { ratelimit_message text/html inner; empty_gif; }
--- request eval
["GET /outer", "GET /inner"]
--- error_code eval
[429, 429]
--- response_body eval
["outer", "inner"]



=== error_page comes first
--- config
    ratelimit_message text/plain message;
    ratelimit limit=0.5/366d;
    location /t { error_page 429 /page; empty_gif; }
    location /page { return 200 page; }
--- request eval
["GET /t"]
--- error_code eval
[429]
--- response_body eval
["page"]



=== any status, and none with 444
--- config
    ratelimit_message text/plain message;
    location /a { ratelimit limit=0.5/366d status=408; empty_gif; }
    location /b { ratelimit limit=0.5/366d status=499; empty_gif; }
    location /c { ratelimit limit=0.5/366d status=503; empty_gif; }
--- request eval
["GET /a", "GET /b", "GET /c", "HEAD /c"]
--- error_code eval
[408, 499, 503, 503]
--- response_body eval
["message", "message", "message", ""]



=== 444 has no body
--- config
    ratelimit_message text/plain message;
    location /t { ratelimit limit=0.5/366d status=444; empty_gif; }
--- request eval
["GET /t"]
--- error_code eval
[""]
--- response_body eval
[""]



=== an empty body
--- config
    ratelimit_message text/plain $arg_x;
    location /t { ratelimit limit=0.5/366d; empty_gif; }
--- request
GET /t
--- error_code: 429
--- response_headers
Content-Length: 0



=== a request with a body, on a connection that stays open
--- config
    ratelimit_message text/plain message;
    location /t { ratelimit limit=0.5/366d; empty_gif; }
--- pipelined_requests eval
["POST /t\nhello", "GET /t"]
--- response_body eval
["message", "message"]
--- error_code eval
[429, 429]
