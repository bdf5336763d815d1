# What a ratelimit_namespace block accepts, and which namespace, zone and store
# names find each other, as far as nginx itself has a part in it, and one wrong
# use of each directive: all others are rows of src/conf/tests. How blocks are read is told in lib/Configuration.pm;
# here, http_config is what is in the block of the namespace "api" unless it
# has the directive itself, and there are a zone "counters" and a store "main"
# unless it speaks of these directives.

use Test::Nginx::Socket 'no_plan';

use FindBin;
use lib "$FindBin::Bin/lib";
use Configuration;

add_block_preprocessor(sub {
    my ($block) = @_;
    my @others = ('ratelimit_zone zone=counters:1m;', 'ratelimit_store main { strategy redis; }');
    wrap($block, 'ratelimit_namespace api', @others) if defined $block->http_config;
    configure($block, $others[0]);
});

no_long_string();
run_tests();

__DATA__

=== an unknown directive
--- http_config
    rate 5;
--- must_die
--- error_log
ratelimit_namespace "api": unknown directive "rate"
expected one of zone, store, sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss



=== a block in the block
--- http_config
    zone counters { }
--- must_die
--- error_log
unexpected "{"



=== the last directive without a semicolon
--- http_config
    ratelimit_namespace api {
        zone counters
    } # here
--- must_die
--- error_log
unexpected "}"



=== a block that does not end
--- http_config
    ratelimit_namespace api {
        zone counters;
--- must_die
--- error_log
unexpected end of file, expecting "}"
[http_config.conf:5]



=== zone: no name
--- http_config
    zone;
--- must_die
--- error_log
ratelimit_namespace "api": "zone" takes one word, not 0
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== zone: one that is not defined
--- http_config
    ratelimit_namespace api { zone other; }
--- must_die
--- error_log
ratelimit_namespace "api": unknown zone "other"
expected one that "ratelimit_zone zone=name:size;" defines



=== zone: one of another module
--- http_config
    ratelimit_namespace api { zone requests; } # here
    limit_req_zone $binary_remote_addr zone=requests:1m rate=1r/s;
--- must_die
--- error_log
ratelimit_namespace "api": unknown zone "requests"
expected one that "ratelimit_zone zone=name:size;" defines



=== store: no name
--- http_config
    store;
--- must_die
--- error_log
ratelimit_namespace "api": "store" takes one word, not 0
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== sync_rate: none
--- http_config
    sync_rate;
--- must_die
--- error_log
ratelimit_namespace "api": "sync_rate" takes one word, not 0
off or a negative number, 0, or a time from 1ms



=== window_sizes: none
--- http_config
    window_sizes;
--- must_die
--- error_log
ratelimit_namespace "api": "window_sizes" takes at least one word
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: a limit with another window
--- http_config
    window_sizes 1s 1m;
--- config
    ratelimit api limit=5/2s; # here
--- must_die
--- error_log
ratelimit: the window 2s is not one of the window_sizes of namespace "api"
expected 1s, 1m



=== on_error: none
--- http_config
    on_error;
--- must_die
--- error_log
ratelimit_namespace "api": "on_error" takes one word, not 0
local, allow or deny



=== timeout: none
--- http_config
    timeout;
--- must_die
--- error_log
ratelimit_namespace "api": "timeout" takes one word, not 0
a time from 1ms



=== include: a file that is not there
--- http_config
    include ../html/nothing.conf;
--- must_die
--- error_log
open()
nothing.conf" failed



=== include: no file
--- http_config
    include;
--- must_die
--- error_log
ratelimit_namespace "api": "include" takes one word, not 0



=== include: what is wrong in the file is found there
--- http_config
    include ../html/api.conf;
--- user_files
>>> api.conf
zone counters;
on_error ignore;
--- must_die
--- error_log
ratelimit_namespace "api": invalid on_error "ignore"
expected local, allow or deny
[api.conf:2]



=== include: a duplicate of what is in the file
--- http_config
    include ../html/api.conf;
    zone counters; # here
--- user_files
>>> api.conf
zone counters;
--- must_die
--- error_log
ratelimit_namespace "api": "zone" is duplicate



=== include: what is found at the end of http has its own line, in the file
--- http_config
    zone counters;
    include ../html/api.conf;
--- user_files
>>> api.conf
window_sizes 1d;
sync_rate 1;

store other;
--- must_die
--- error_log
ratelimit_namespace "api": unknown store "other"
[api.conf:4]



=== a name that is taken: the other place is named
--- http_config
    ratelimit_namespace api { }
    ratelimit_namespace other { }
    ratelimit_namespace api { zone counters; } # here
--- must_die
--- error_log
ratelimit_namespace: namespace "api" is duplicate
expected another name than in
/http_config.conf:3



=== a name that is taken in another file
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



=== no name
--- http_config
    ratelimit_namespace { }
--- must_die
--- error_log
ratelimit_namespace:
expected one name and a block: ratelimit_namespace name { ... }



=== ";" in place of a block
--- http_config
    ratelimit_namespace api;
--- must_die
--- error_log
directive "ratelimit_namespace" has no opening "{"



=== in a server
--- config
    ratelimit_namespace api { }
--- must_die
--- error_log
"ratelimit_namespace" directive is not allowed here



=== in a location
--- config
    location /t {
        ratelimit_namespace api { } # here
    }
--- must_die
--- error_log
"ratelimit_namespace" directive is not allowed here



=== outside of http
--- main_config
    ratelimit_namespace api { }
--- must_die
--- error_log
"ratelimit_namespace" directive is not allowed here



=== a rule in a namespace that is not defined, though another is
--- http_config
    zone counters;
--- config
    ratelimit apis limit=5/10s; # here
--- must_die
--- error_log
ratelimit: unknown namespace "apis"
"ratelimit_namespace" block



=== a namespace that is used before it is defined
--- http_config
    ratelimit api limit=5/1d;
    ratelimit_namespace api { window_sizes 24h; }
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== every directive
--- http_config
    timeout 20ms;
    on_error deny;
    window_sizes 1d 1h;
    sync_rate off;
    store main;
    zone counters;
--- config
    ratelimit api limit=5/1d;
--- error_log
ratelimit_namespace "api": on_error has no effect without "sync_rate 0;" [http_config.conf:5]
ratelimit_namespace "api": timeout has no effect without "sync_rate 0;" [http_config.conf:4]
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== directives in a file that is included
--- http_config
    include ../html/api.conf;
    timeout 1;
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



=== a mask that matches no file is included
--- http_config
    include ../html/*.nothing;
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== several zones and namespaces
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



=== sync_rate: a time, though the store is not there
--- http_config
    ratelimit_zone zone=counters:3m;
    ratelimit_store away { strategy redis; server 127.0.0.1:1; }
    ratelimit_namespace seconds { store away; sync_rate 0.5; }
    ratelimit_namespace minute { store away; sync_rate 1m; }
    ratelimit_namespace shortest { store away; sync_rate 1ms; }
--- config
    ratelimit seconds limit=5/1d;
--- response_headers
RateLimit-Policy: "seconds-1d";q=5;w=86400



=== sync_rate: 0 with a Redis Cluster, though it is not there
--- http_config
    ratelimit_zone zone=counters:5m;
    ratelimit_store away { strategy redis; server 127.0.0.1:1; cluster on; }
    ratelimit_namespace many { store away; sync_rate 0; }
--- config
    ratelimit many limit=5/1d;
--- response_headers
RateLimit-Policy: "many-1d";q=5;w=86400
