# What the configuration accepts, as far as nginx itself has a part in it, and
# one wrong use of each directive: all others are rows of src/conf/tests. Wrong
# ones keep nginx from starting: one [emerg] line names the wrong word, says
# what would be right, and where it is. Odd but legal ones start. How blocks are
# read is told in lib/Configuration.pm; here, there is a zone "counters" unless
# they have a section http_config.

use Test::Nginx::Socket 'no_plan';

use FindBin;
use lib "$FindBin::Bin/lib";
use Configuration;

add_block_preprocessor(sub { configure($_[0], 'ratelimit_zone zone=counters:1m;') });

no_long_string();
run_tests();

__DATA__

=== ratelimit_zone: a parameter that is no zone
--- http_config
    ratelimit_zone name=counters:1m;
--- must_die
--- error_log
ratelimit_zone: invalid parameter "name=counters:1m"
expected "zone=name:size"
zone=counters:10m



=== ratelimit_zone: a zone of fewer than 8 pages
--- http_config
    ratelimit_zone zone=counters:31k;
--- must_die
--- error_log
ratelimit_zone: zone "counters" is too small
at least 8 pages, 32k



=== ratelimit_zone: in a server
--- config
    ratelimit_zone zone=other:1m;
--- must_die
--- error_log
"ratelimit_zone" directive is not allowed here



=== ratelimit_zone: a name that another module has taken
--- http_config
    limit_req_zone $binary_remote_addr zone=counters:1m rate=1r/s;
    ratelimit_zone zone=counters:1m; # here
--- must_die
--- error_log
ratelimit_zone: zone "counters" is already used by another module
expected another name



=== ratelimit_zone: a name that another module uses, and did not define
--- http_config
    server { listen unix:/tmp/ratelimit-test.sock; limit_conn counters 1; }
    ratelimit_zone zone=counters:1m; # here
--- must_die
--- error_log
ratelimit_zone: zone "counters" is already used by another module
expected another name



=== ratelimit_zone: a name that another module takes afterwards
--- http_config
    ratelimit_zone zone=counters:1m;
    limit_req_zone $binary_remote_addr zone=counters:1m rate=1r/s; # here
--- must_die
--- error_log
the shared memory zone "counters" is already declared for a different use



=== ratelimit_zone: in a location
--- config
    location /t {
        ratelimit_zone zone=other:1m; # here
    }
--- must_die
--- error_log
"ratelimit_zone" directive is not allowed here



=== ratelimit_zone: outside of http
--- main_config
    ratelimit_zone zone=other:1m;
--- must_die
--- error_log
"ratelimit_zone" directive is not allowed here



=== ratelimit_zone: in a file that is included
--- http_config
    include ../html/zones.conf;
--- user_files
>>> zones.conf
ratelimit_zone zone=counters:1m;
ratelimit_zone zone=counters:1x;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:1x"
a number of bytes, or of k, m or g
[zones.conf:2]



=== ratelimit: no zone to count in
--- http_config

--- config
    ratelimit limit=5/10s;
--- must_die
--- error_log
namespace "default" has no zone for its counters
"ratelimit_zone zone=name:size;"



=== ratelimit: an unknown namespace
--- config
    ratelimit api limit=5/10s;
--- must_die
--- error_log
ratelimit: unknown namespace "api"
"ratelimit_namespace" block



=== ratelimit: within "if"
--- config
    location /t { if ($arg_k) { ratelimit limit=5/10s; } }
--- must_die
--- error_log
"ratelimit" directive is not allowed here



=== ratelimit: hits of an unknown variable
--- config
    ratelimit limit=$nothing/1m;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: a key with a variable without a name
--- config
    ratelimit limit=5/10s key=a$;
--- must_die
--- error_log
ratelimit: invalid variable in "a$"
expected $name or ${name}



=== ratelimit: a key with an unknown variable
--- config
    ratelimit limit=5/10s key=$nothing;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: a cost with an unknown variable
--- config
    ratelimit limit=5/10s cost=$nothing;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: within "limit_except"
--- config
    location /t {
        limit_except GET {
            ratelimit limit=5/10s; # here
        }
    }
--- must_die
--- error_log
"ratelimit" directive is not allowed here



=== ratelimit: outside of http
--- main_config
    ratelimit limit=5/10s;
--- must_die
--- error_log
"ratelimit" directive is not allowed here



=== ratelimit_key: twice on a level
--- config
    ratelimit_key $arg_a;
    ratelimit_key $arg_b; # here
--- must_die
--- error_log
ratelimit_key: is duplicate



=== ratelimit_key: an unknown variable
--- config
    ratelimit_key $nothing;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit_key: an unknown variable among others
--- config
    ratelimit_key "$arg_a $nothing";
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit_key: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_key $arg_k; } }
--- must_die
--- error_log
"ratelimit_key" directive is not allowed here



=== ratelimit_headers: an unknown kind
--- config
    ratelimit_headers none;
--- must_die
--- error_log
ratelimit_headers: invalid parameter "none"
off
ietf



=== ratelimit_count_rejected: no word
--- config
    ratelimit_count_rejected;
--- must_die
--- error_log
ratelimit_count_rejected: no parameter
expected on or off



=== ratelimit_count_rejected: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_count_rejected on; } }
--- must_die
--- error_log
"ratelimit_count_rejected" directive is not allowed here



=== ratelimit_status: no word
--- config
    ratelimit_status;
--- must_die
--- error_log
ratelimit_status: no parameter
expected a status from 400 to 599



=== ratelimit_status: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_status 429; } }
--- must_die
--- error_log
"ratelimit_status" directive is not allowed here



=== ratelimit_dry_run: no word
--- config
    ratelimit_dry_run;
--- must_die
--- error_log
ratelimit_dry_run: no parameter
expected on or off



=== ratelimit_dry_run: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_dry_run on; } }
--- must_die
--- error_log
"ratelimit_dry_run" directive is not allowed here



=== ratelimit_log_level: no word
--- config
    ratelimit_log_level;
--- must_die
--- error_log
ratelimit_log_level: no parameter
expected info, notice, warn, error or off



=== ratelimit_log_level: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_log_level info; } }
--- must_die
--- error_log
"ratelimit_log_level" directive is not allowed here



=== ratelimit_headers: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_headers off; } }
--- must_die
--- error_log
"ratelimit_headers" directive is not allowed here



=== ratelimit_retry_after_jitter: no word
--- config
    ratelimit_retry_after_jitter;
--- must_die
--- error_log
ratelimit_retry_after_jitter: no parameter
expected a time



=== ratelimit_retry_after_jitter: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_retry_after_jitter 1s; } }
--- must_die
--- error_log
"ratelimit_retry_after_jitter" directive is not allowed here



=== ratelimit_phase: no word
--- config
    ratelimit_phase;
--- must_die
--- error_log
ratelimit_phase: no parameter
expected preaccess or precontent



=== ratelimit_phase: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_phase preaccess; } }
--- must_die
--- error_log
"ratelimit_phase" directive is not allowed here



=== ratelimit_key: outside of http
--- main_config
    ratelimit_key $arg_k;
--- must_die
--- error_log
"ratelimit_key" directive is not allowed here



=== ratelimit_status: outside of http
--- main_config
    ratelimit_status 429;
--- must_die
--- error_log
"ratelimit_status" directive is not allowed here



=== ratelimit_phase: outside of http
--- main_config
    ratelimit_phase precontent;
--- must_die
--- error_log
"ratelimit_phase" directive is not allowed here



=== no rules at all
--- http_config

--- config
    ratelimit off;
--- response_headers
!RateLimit-Policy



=== the smallest zone
--- http_config
    ratelimit_zone zone=counters:32k;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a minute, a month, a year
--- config
    ratelimit limit=5/1m limit=6/1M limit=7/1y;
--- error_log
ratelimit: in "1M", M is a month of 30 days: a minute is m [config.conf:1]
--- response_headers
RateLimit-Policy: "default-1m";q=5;w=60, "default-1M";q=6;w=2592000, "default-1y";q=7;w=31536000



=== a key of text and variables
--- config
    ratelimit_key "a key: ${remote_addr}_$uri";
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a key that is a variable in braces
--- config
    ratelimit_key ${arg_k};
    ratelimit limit=5/1d;
--- request
GET /?k=1
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a key that is a capture
--- config
    location ~ ^/(\w+) {
        ratelimit_key $1;
        ratelimit limit=5/1d;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== an empty key: nothing is accounted
--- config
    ratelimit_key "";
    ratelimit limit=0.5/1d;
--- response_headers
!RateLimit-Policy



=== directives on every level
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_key $arg_a;
    ratelimit_headers off;
    ratelimit limit=5/1d;
--- config
    ratelimit_key $arg_b;
    ratelimit_headers off;
    ratelimit limit=5/2d;
    location /t {
        ratelimit_key $arg_c;
        ratelimit_headers ietf;
        ratelimit limit=5/3d;
        empty_gif;
    }
--- request
GET /t?c=1
--- response_headers
RateLimit-Policy: "default-3d";q=5;w=259200



=== hits of a variable
--- config
    ratelimit limit=$arg_limit/1d;
--- request
GET /?limit=5
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== hits of text and variables
--- config
    ratelimit limit=${arg_limit}0.5/1d limit=1$arg_limit/2d;
--- request
GET /?limit=5
--- response_headers
RateLimit-Policy: "default-1d";q=50;w=86400, "default-2d";q=15;w=172800



=== hits of a capture
--- config
    location ~ ^/(\d)(\d) {
        ratelimit limit=$2$1/1d;
        empty_gif;
    }
--- request
GET /12
--- response_headers
RateLimit-Policy: "default-1d";q=21;w=86400



=== an empty key of a rule: the rule is not accounted
--- config
    ratelimit limit=5/1d key=;
    ratelimit limit=6/2d "key=";
--- response_headers
!RateLimit-Policy



=== a cost above the limit, with which no request is admitted
--- config
    ratelimit_dry_run on;
    ratelimit limit=1/1d cost=100000000000;
--- response_headers
RateLimit-Policy: "default-1d";q=1;w=86400



=== a cost of text and variables
--- config
    ratelimit limit=5/1d cost=${arg_c}.5;
--- request
GET /?c=1
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a charge of a number, and one of a variable
--- config
    ratelimit limit=5/1d charge=0.5;
    ratelimit limit=6/2d charge=$request_time;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400, "default-2d";q=6;w=172800



=== names of any printable characters
--- config
    ratelimit limit=5/1d "name=a b; #{}'(,)=/";
--- response_headers
RateLimit-Policy: "a b; #{}'(,)=/";q=5;w=86400



=== a rule over several lines, with comments
--- config
    ratelimit # the namespace is "default"
        limit=5/1d
        limit=6/2d # a day more
        window=fixed
    ;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400, "default-2d";q=6;w=172800



=== a rule in quotes
--- config
    "ratelimit" "limit=5/1d" 'window=sliding';
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== all headers, in any order
--- config
    ratelimit_headers legacy ietf draft03;
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400
RateLimit-Limit: 5
X-RateLimit-Limit-Day: 5



=== every directive on every level
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_count_rejected on;
    ratelimit_status 503;
    ratelimit_dry_run on;
    ratelimit_log_level warn;
    ratelimit_retry_after_jitter 10s;
    ratelimit_phase precontent;
    ratelimit limit=5/1d;
--- config
    ratelimit_count_rejected off;
    ratelimit_status 500;
    ratelimit_dry_run off;
    ratelimit_log_level info;
    ratelimit_retry_after_jitter 0.5;
    ratelimit_phase preaccess;
    location /t {
        ratelimit_count_rejected on;
        ratelimit_status 429;
        ratelimit_dry_run on;
        ratelimit_log_level error;
        ratelimit_retry_after_jitter 0;
        ratelimit_phase precontent;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a zone beside another module's zone
--- http_config
    limit_req_zone $binary_remote_addr zone=requests:1m rate=1000r/s;
    ratelimit_zone zone=counters:1m;
    limit_conn_zone $binary_remote_addr zone=connections:1m;
--- config
    limit_req zone=requests;
    limit_conn connections 10;
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== rules in a location that nothing reaches, and none elsewhere
--- config
    location /t { ratelimit limit=5/1d; }
--- response_headers
!RateLimit-Policy



=== rules of different limits that share a counter are warned of, once each, with both places
--- config
    ratelimit limit=5/1d;
    location /a { ratelimit limit=6/1d; location /a/a { } if ($arg_x) { } }
    location /b { ratelimit limit=7/1d counter=default; }
    location /c { ratelimit limit=7/1d counter=c; }
    location /d { ratelimit limit=5/24h window=fixed; }
    location /e { ratelimit_key $uri; ratelimit limit=9/1d; }
    location /f { ratelimit limit=9/1d key=$remote_addr; }
    location /g { ratelimit limit=9/1d limit=5/1d; }
    location /h { ratelimit_metrics; }
--- error_log
config.conf:1 have different limits, and share the counter of key "$remote_addr" and window 1d [config.conf:2]
config.conf:1 have different limits, and share the counter of key "$remote_addr" and window 1d [config.conf:7]
config.conf:1 have different limits, and share the counter of key "$remote_addr" and window 1d [config.conf:8]
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400
