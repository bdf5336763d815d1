# Tests keys that are a variable $arg_name. The module looks up the argument
# itself, unless the configuration or an earlier step of the request has given
# the variable another value.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;
    $block->set_value(http_config => ($block->http_config || '') . <<'END');
    ratelimit_zone zone=counters:1m;
    ratelimit_key $arg_k;
END
    $block->set_value(no_error_log => [qr/\[(?:emerg|alert|crit)\]/])
        if !defined $block->no_error_log;
});

no_long_string();
run_tests();

__DATA__

=== an argument is found in upper and lower case, wherever it is, and is not decoded
--- config
    ratelimit limit=1/366d;
    location /t { empty_gif; }
    location /u { ratelimit_key $ARG_K; empty_gif; }
--- request eval
["GET /t?k=a", "GET /t?K=a", "GET /t?x=k=b&k&kk=b&k=a&k=b", "GET /u?&k=a", "GET /t?k=%61",
 "GET /t?k=A", "GET /t?k=a=", "GET /u?k=a="]
--- error_code eval
[200, 429, 429, 429, 200, 200, 200, 429]



=== it is what nginx takes it for, which evaluates ${arg_k}
--- config
    ratelimit limit=1/366d;
    location /nginx { ratelimit_key ${arg_k}; empty_gif; }
    location /t { empty_gif; }
--- request eval
[map { ("GET /nginx?$_", "GET /t?$_") } "k=1", "K=2", "x&k=3", "k&k=4&k=0", "&&k=5", "k=6=6", "k=%37",
 "x=k=0&k=8;9", "kk=0&k=9&", "k=10#k=0"]
--- error_code eval
[(200, 429) x 10]



=== an argument that is empty or missing is not accounted
--- config
    location /t { ratelimit limit=1/366d; empty_gif; }
--- request eval
[map { ("GET $_") x 2 } "/t", "/t?", "/t?k", "/t?k=", "/t?k=&k=a", "/t?kk=a", "/t?xk=a", "/t?x=k=a"]
--- error_code eval
[(200) x 16]



=== arguments are those that a rewrite leaves, whatever they were before
--- config
    location /t {
        set $before $arg_k;
        set $args k=$arg_other;
        ratelimit limit=1/366d;
        add_header Before $before always;
        empty_gif;
    }
--- request eval
["GET /t?k=a&other=b", "GET /t?k=a&other=c", "GET /t?k=b&other=b"]
--- error_code eval
[200, 200, 429]
--- response_headers eval
["Before: a", "Before: a", "Before: b"]



=== a value that was set takes the place of the argument, for this request
--- config
    location /t {
        if ($arg_set) { set $arg_k $arg_set; }
        ratelimit limit=1/366d;
        empty_gif;
    }
--- request eval
["GET /t?k=a", "GET /t?k=a&set=b", "GET /t?k=c&set=b", "GET /t?k=b", "GET /t?k=c", "GET /t?k=c"]
--- error_code eval
[200, 200, 429, 429, 200, 429]



=== a map gives the variable a value of its own
--- config
    location /t { ratelimit limit=1/366d; empty_gif; }
--- http_config
    map $uri $arg_k { volatile; /t/b other; default mapped; }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /t/b?k=a"]
--- error_code eval
[200, 429, 200]



=== so does a geo, and leaves other arguments as they are
--- config
    location /t { ratelimit limit=1/366d; empty_gif; }
    location /u { ratelimit limit=1/366d key=$arg_u; empty_gif; }
--- http_config
    geo $arg_k { default somewhere; }
--- request eval
["GET /t?k=a", "GET /t?k=b", "GET /u?u=a", "GET /u?u=b"]
--- error_code eval
[200, 429, 200, 200]



=== so does what a regular expression captures
--- config
    location ~ ^/t/(?<arg_k>.) { ratelimit limit=1/366d; empty_gif; }
    location /u { ratelimit limit=1/366d; empty_gif; }
--- request eval
["GET /t/a?k=b", "GET /t/a?k=c", "GET /t/b?k=c", "GET /u?k=c", "GET /u?k=c"]
--- error_code eval
[200, 429, 200, 200, 200]



=== a subrequest has arguments of its own
--- config
    location /page.txt { ssi on; ssi_types text/plain; }
    location /part.txt { ratelimit limit=1/366d; }
--- user_files
>>> page.txt
<!--#include virtual="/part.txt?k=a" -->
>>> part.txt
part
--- request eval
["GET /part.txt?k=c", "GET /page.txt?k=b", "GET /part.txt?k=b", "GET /part.txt?k=a"]
--- error_code eval
[200, 200, 200, 429]



=== costs and limits that are arguments are looked up likewise
--- config
    location /t {
        ratelimit limit=$arg_limit/366d cost=$arg_cost key=all;
        empty_gif;
    }
--- request eval
["GET /t?limit=5&cost=4", "GET /t?limit=5&cost=2", "GET /t?LIMIT=6&Cost=2", "GET /t?limit=6", "GET /t?cost=5"]
--- error_code eval
[200, 429, 200, 429, 200]
