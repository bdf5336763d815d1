# Tests configurations that need a real nginx: its own messages, included files,
# variables, zones, inheritance between levels, and at least one use of each
# directive. All other cases are rows of src/conf/tests. An invalid
# configuration keeps nginx from starting: one [emerg] line names the invalid
# word, the accepted values, and the position. An unusual but valid one starts.
# No log line contains a password; all passwords are "s3cret".
# lib/Configuration.pm describes the format of the blocks. Blocks without a
# section http_config have a zone "counters".

use Test::Nginx::Socket 'no_plan';

use FindBin;
use File::Temp qw(tempdir);
use lib "$FindBin::Bin/lib";
use Certificate;
use Configuration;

# The directory that PEM/ in a block stands for. It has a key and a certificate.
my $pem = tempdir('certificate-XXXXXX', TMPDIR => 1, CLEANUP => 1);
certificate($pem);

add_block_preprocessor(sub {
    my ($block) = @_;
    if (my $conf = $block->http_config) {
        $block->set_value(http_config => $conf =~ s{PEM/}{$pem/}gr);
    }
    configure($block, 'ratelimit_zone zone=counters:1m;');
});

no_long_string();
run_tests();

__DATA__

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



=== ratelimit_zone: the smallest zone
--- http_config
    ratelimit_zone zone=counters:32k;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== ratelimit_zone: beside another module's zone
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



=== ratelimit_store: in a location
--- config
    location /t {
        ratelimit_store main { strategy redis; } # here
    }
--- must_die
--- error_log
"ratelimit_store" directive is not allowed here



=== ratelimit_store: ";" in place of a block
--- http_config
    ratelimit_store main;
--- must_die
--- error_log
directive "ratelimit_store" has no opening "{"



=== ratelimit_store: a block that does not end
--- http_config
    ratelimit_store main {
        strategy redis;
        password s3cret;
--- must_die
--- error_log
unexpected end of file, expecting "}"
[http_config.conf:4]



=== ratelimit_store: a block in the block
--- http_config
    ratelimit_store main {
        tls { verify on; } # here
    }
--- must_die
--- error_log
unexpected "{"



=== ratelimit_store: a file that is not there is included
--- http_config
    ratelimit_store main {
        include ../html/nothing.conf;
    }
--- must_die
--- error_log
open()
nothing.conf" failed



=== ratelimit_store: what is wrong in a file that is included is found there
--- http_config
    ratelimit_store main {
        strategy redis;
        include ../html/main.conf;
    }
--- user_files
>>> main.conf
username joe;
password s3cret s3cret;
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 2
[main.conf:2]



=== ratelimit_store: a password without a semicolon at the block's end
--- http_config
    ratelimit_store main {
        strategy redis;
        password s3cret
    } # here
--- must_die
--- error_log
unexpected "}"



=== ratelimit_store: a password with a quote too few
--- http_config
    ratelimit_store main {
        password "s3cret;
    }
--- must_die
--- error_log
unexpected end of file
[http_config.conf:4]



=== ratelimit_store: a password that is quoted in part
--- http_config
    ratelimit_store main {
        password "s3"cret;
    }
--- must_die
--- error_log
unexpected "c"



=== ratelimit_store: a password with a brace
--- http_config
    ratelimit_store main {
        password s3cret{};
    }
--- must_die
--- error_log
unexpected "{"



=== ratelimit_store: a password outside of the block
--- http_config
    password s3cret;
--- must_die
--- error_log
unknown directive "password"



=== ratelimit_store: a password_file that is a directory
--- http_config
    ratelimit_store main {
        password_file ../html;
    }
--- must_die
--- error_log
ratelimit_store "main": password_file cannot be read ("../html": Is a directory



=== ratelimit_store: a password_file without an end
--- http_config
    ratelimit_store main {
        password_file /dev/zero;
    }
--- must_die
--- error_log
ratelimit_store "main": password_file cannot be read ("/dev/zero": larger than 1 MiB



=== ratelimit_store: a certificate that is not there
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_trusted_certificate nothing.pem; }
--- must_die
--- error_log
ratelimit_store "main": cannot read the file
nothing.pem" of tls_trusted_certificate (No such file or directory



=== ratelimit_store: every directive that Redis has
--- http_config
    ratelimit_store main {
        tls_certificate_key PEM/key.pem;
        tls_certificate PEM/certificate.pem;
        tls_trusted_certificate PEM/certificate.pem;
        tls_name redis.example;
        tls_verify off;
        tls on;
        timeout 1m;
        connect_timeout 1ms;
        prefix rl:2;
        database 5;
        password "s3cret; #{}$x\"'\\ =ü";
        username joe;
        sentinel_password s3cret;
        sentinel_username joe;
        sentinel_master mymaster;
        cluster off;
        server redis-1.example.:26379;
        server [2001:db8::1]:26379;
        strategy redis;
    }



=== ratelimit_store: every directive that Postgres has
--- http_config
    ratelimit_store main {
        strategy postgres;
        server unix:/run/postgresql;
        server unix:/run/postgresql/.s.PGSQL.5433;
        server db.example:5432;
        server 127.0.0.1:5432;
        server [::1]:5432;
        username joe;
        password s3cret;
        database "a database";
        table Rate.counters_1;
        connect_timeout 0.5;
        timeout 250ms;
        tls off;
    }



=== ratelimit_store: a password_file relative to the directory of nginx.conf, in a file of another directory too, and an absolute one
--- http_config
    include ../html/ratelimit_store.conf;
    ratelimit_store other { strategy redis; password_file $TEST_NGINX_SERVER_ROOT/html/password; }
--- user_files
>>> ratelimit_store.conf
ratelimit_store main { strategy redis; password_file ../html/password; }
>>> password
s3cret



=== ratelimit_store: stores that nobody listens for, and a rule
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_store one { strategy redis; server 127.0.0.1:1; }
    ratelimit_store two { strategy postgres; server unix:/nowhere; }
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== ratelimit_namespace: outside of http
--- main_config
    ratelimit_namespace api { }
--- must_die
--- error_log
"ratelimit_namespace" directive is not allowed here



=== ratelimit_namespace: a name that is taken in another file
--- http_config
    include ../html/api.conf;
    ratelimit_namespace api { } # here
--- user_files
>>> api.conf
ratelimit_namespace api { }
--- must_die
--- error_log
ratelimit_namespace: namespace "api" is duplicate
expected another name than in
/api.conf:1



=== ratelimit_namespace: what is found at the end of http has its own line, in the file that is included
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api {
        zone counters;
        include ../html/api.conf;
    }
--- user_files
>>> api.conf
window_sizes 1d;
sync_rate 1;

store other;
--- must_die
--- error_log
ratelimit_namespace "api": unknown store "other"
[api.conf:4]



=== ratelimit_namespace: directives, of which two have no effect
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_store main { strategy redis; }
    ratelimit_namespace api {
        timeout 20ms;
        on_error deny;
        window_sizes 1d 1h;
        sync_rate off;
        store main;
        zone counters;
    }
--- config
    ratelimit api limit=5/1d;
--- error_log
ratelimit_namespace "api": on_error has no effect without "sync_rate 0;" [http_config.conf:5]
ratelimit_namespace "api": timeout has no effect without "sync_rate 0;" [http_config.conf:4]
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== ratelimit_namespace: directives in files that are included
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_store main { strategy redis; }
    ratelimit_namespace api {
        include ../html/api.conf;
        timeout 1;
    }
--- config
    ratelimit api limit=5/1d;
--- user_files
>>> api.conf
zone counters;
include ../html/windows.conf;
>>> windows.conf
window_sizes 1d;
store main;
--- error_log
timeout has no effect [http_config.conf:5]
store "main" is not used without a sync_rate [windows.conf:2]
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== ratelimit_namespace: a mask that matches no file is included
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api {
        include ../html/*.nothing;
    }
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== ratelimit_namespace: several zones and namespaces
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace a { zone one; }
    ratelimit_namespace b { zone two; }
    ratelimit_namespace c { zone two; }
--- config
    ratelimit a limit=5/1d;
    ratelimit b limit=6/1d;
    ratelimit c limit=7/1d;
--- response_headers
RateLimit-Policy: "a-1d";q=5;w=86400, "b-1d";q=6;w=86400, "c-1d";q=7;w=86400



=== ratelimit_namespace: sync_rate is a time, though the store is not there
--- http_config
    ratelimit_zone zone=counters:3m;
    ratelimit_store away { strategy redis; server 127.0.0.1:1; }
    ratelimit_namespace seconds { store away; sync_rate 0.5; sync_early 5%; on_loss share; }
    ratelimit_namespace minute { store away; sync_rate 1m; }
    ratelimit_namespace shortest { store away; sync_rate 1ms; }
--- config
    ratelimit seconds limit=5/1d;
    location /m { ratelimit minute limit=5/1d; }
    location /s { ratelimit shortest limit=5/1d; }
--- response_headers
RateLimit-Policy: "seconds-1d";q=5;w=86400



=== ratelimit_namespace: sync_rate is 0 with a Redis Cluster, though it is not there
--- http_config
    ratelimit_zone zone=counters:5m;
    ratelimit_store away { strategy redis; server 127.0.0.1:1; cluster on; }
    ratelimit_namespace many { store away; sync_rate 0; reserve on; }
--- config
    ratelimit many limit=5/1d;
--- response_headers
RateLimit-Policy: "many-1d";q=5;w=86400



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
ratelimit_key: unknown "nothing" variable



=== ratelimit_key: an unknown variable among others
--- config
    ratelimit_key "$arg_a $nothing";
--- must_die
--- error_log
ratelimit_key: unknown "nothing" variable



=== ratelimit_key: outside of http
--- main_config
    ratelimit_key $arg_k;
--- must_die
--- error_log
"ratelimit_key" directive is not allowed here



=== ratelimit_key: an empty key, of a level and of a rule: nothing is accounted
--- config
    ratelimit_key "";
    ratelimit limit=5/1d;
    ratelimit limit=5/2d key=;
--- error_log
ratelimit_key: the key is empty, and requests with an empty key are not accounted [config.conf:1]
ratelimit: the key is empty, and requests with an empty key are not accounted [config.conf:3]
--- response_headers
!RateLimit-Policy



=== ratelimit_key: a capture
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



=== ratelimit: an unknown namespace
--- config
    ratelimit api limit=5/10s;
--- must_die
--- error_log
ratelimit: unknown namespace "api"
"ratelimit_namespace" block



=== ratelimit: hits of an unknown variable
--- config
    ratelimit limit=$nothing/1m;
--- must_die
--- error_log
ratelimit: unknown "nothing" variable



=== ratelimit: within "if"
--- config
    location /t { if ($arg_k) { ratelimit limit=5/10s; } }
--- must_die
--- error_log
"ratelimit" directive is not allowed here



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



=== ratelimit: no rules at all
--- http_config

--- config
    ratelimit off;
--- response_headers
!RateLimit-Policy



=== ratelimit: a minute, a month, a year
--- config
    ratelimit limit=5/1m limit=6/1M limit=7/1y;
--- error_log
ratelimit: in "1M", M is a month of 30 days: a minute is m [config.conf:1]
--- response_headers
RateLimit-Policy: "default-1m";q=5;w=60, "default-1M";q=6;w=2592000, "default-1y";q=7;w=31536000



=== ratelimit: hits of text and variables
--- config
    ratelimit limit=${arg_limit}0.5/1d limit=1$arg_limit/2d;
--- request
GET /?limit=5
--- response_headers
RateLimit-Policy: "default-1d";q=50;w=86400, "default-2d";q=15;w=172800



=== ratelimit: hits of captures
--- config
    location ~ ^/(\d)(\d) {
        ratelimit limit=$2$1/1d;
        empty_gif;
    }
--- request
GET /12
--- response_headers
RateLimit-Policy: "default-1d";q=21;w=86400



=== ratelimit: several lines, with quotes and comments, and a name of any printable characters
--- config
    "ratelimit" # the namespace is "default"
        limit=5/1d # five a day
        'window=sliding'
        "name=a b; #{}'(,)=/"
    ;
--- response_headers
RateLimit-Policy: "a b; #{}'(,)=/";q=5;w=86400



=== ratelimit: rules of different limits that share a counter are warned of, once each, with both places
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



=== ratelimit_count_rejected: no word
--- config
    ratelimit_count_rejected;
--- must_die
--- error_log
ratelimit_count_rejected: no parameter
expected on or off



=== ratelimit_status: no word
--- config
    ratelimit_status;
--- must_die
--- error_log
ratelimit_status: no parameter
expected a status from 400 to 599



=== ratelimit_dry_run: no word
--- config
    ratelimit_dry_run;
--- must_die
--- error_log
ratelimit_dry_run: no parameter
expected on or off



=== ratelimit_log_level: no word
--- config
    ratelimit_log_level;
--- must_die
--- error_log
ratelimit_log_level: no parameter
expected info, notice, warn, error or off



=== ratelimit_headers: an unknown kind
--- config
    ratelimit_headers none;
--- must_die
--- error_log
ratelimit_headers: invalid parameter "none"
off
ietf



=== ratelimit_retry_after_jitter: no word
--- config
    ratelimit_retry_after_jitter;
--- must_die
--- error_log
ratelimit_retry_after_jitter: no parameter
expected a time



=== ratelimit_phase: no word
--- config
    ratelimit_phase;
--- must_die
--- error_log
ratelimit_phase: no parameter
expected preaccess or precontent



=== ratelimit_api: in a server
--- config
    ratelimit_api;
--- must_die
--- error_log
"ratelimit_api" directive is not allowed here



=== ratelimit_metrics: in http
--- http_config
    ratelimit_metrics;
--- must_die
--- error_log
"ratelimit_metrics" directive is not allowed here



=== every directive of a level on every level
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_key $arg_a;
    ratelimit limit=5/1d;
    ratelimit_count_rejected on;
    ratelimit_status 503;
    ratelimit_dry_run on;
    ratelimit_log_level warn;
    ratelimit_headers off;
    ratelimit_retry_after_jitter 10s;
    ratelimit_phase precontent;
--- config
    ratelimit_key $arg_b;
    ratelimit limit=5/2d;
    ratelimit_count_rejected off;
    ratelimit_status 500;
    ratelimit_dry_run off;
    ratelimit_log_level info;
    ratelimit_headers off;
    ratelimit_retry_after_jitter 0.5;
    ratelimit_phase preaccess;
    location /t {
        ratelimit_key $arg_c;
        ratelimit limit=5/3d;
        ratelimit_count_rejected on;
        ratelimit_status 429;
        ratelimit_dry_run on;
        ratelimit_log_level error;
        ratelimit_headers ietf;
        ratelimit_retry_after_jitter 0;
        ratelimit_phase precontent;
        empty_gif;
    }
--- request
GET /t?c=1
--- response_headers
RateLimit-Policy: "default-3d";q=5;w=259200



=== ratelimit: variables of all kinds are known, wherever they are defined
--- config
    set $of_set 1;
    location ~ ^/(?<of_regex>x) { }
    ratelimit limit=5/1d
        key=$arg_k$http_x$cookie_c$of_set$of_map$of_geo$of_regex$remote_addr$ratelimit_net$1;
--- http_config
    ratelimit_zone zone=counters:1m;
    map $uri $of_map { default 1; }
    geo $of_geo { default 1; }
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== ratelimit: no end of the directive
--- config
    ratelimit limit=5/1d
    try_files $uri =404;
--- must_die
--- error_log
ratelimit: "try_files" is a directive: expected ";" before it
[config.conf:2]



=== ratelimit_api: after another content handler
--- config
    location /api { empty_gif; ratelimit_api; } # here
--- must_die
--- error_log
ratelimit_api: goes with no other content handler
expected a location of its own



=== ratelimit_metrics: before another content handler
--- config
    location /a {
        ratelimit_metrics; # here
        empty_gif;
    }
--- must_die
--- error_log
ratelimit_metrics: goes with no other content handler
expected a location of its own



=== ratelimit: what does nothing is warned of
--- config
    ratelimit_key $remote_user;
    location /a { return 204; ratelimit limit=5/1d; }
    location /b { if ($arg_x) { return 403; } ratelimit limit=5/1d; }
    location /c { auth_basic x; auth_basic_user_file x; ratelimit limit=5/1d; }
    location /d { return 200; }
    location /e { ratelimit_metrics; return 204; }
    location /f { ratelimit limit=5/1d key=remote_addr; }
    ratelimit limit=5/1d;
--- error_log
ratelimit: "return" stands in the same place, and answers every request before this [config.conf:2]
ratelimit: the key has $remote_user, which auth_basic verifies only after this rule [config.conf:4]
ratelimit_metrics: "return" stands in the same place, and answers every request before this [config.conf:6]
ratelimit: the key "remote_addr" has no variable [config.conf:7]
