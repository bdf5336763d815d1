# What a ratelimit_namespace block accepts, and which namespace, zone and store
# names find each other. How blocks are read is told in lib/Configuration.pm;
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
expected one of zone, store, sync_rate, window_sizes, on_error, timeout



=== an unknown directive that is very long
--- http_config eval
'' . 'x' x 1200 . ' 5;'
--- must_die
--- error_log
ratelimit_namespace "api": unknown directive "xxxxxxxx
expected one of zone, store, sync_rate, window_sizes, on_error, timeout



=== a directive of a store
--- http_config
    strategy redis;
--- must_die
--- error_log
ratelimit_namespace "api": unknown directive "strategy"
expected one of zone, store, sync_rate, window_sizes, on_error, timeout



=== a directive in upper case
--- http_config
    Zone counters;
--- must_die
--- error_log
ratelimit_namespace "api": unknown directive "Zone"
expected one of zone, store, sync_rate, window_sizes, on_error, timeout



=== a parameter in place of a directive
--- http_config
    zone=counters;
--- must_die
--- error_log
ratelimit_namespace "api": unknown directive "zone..."
expected one of zone, store, sync_rate, window_sizes, on_error, timeout



=== a block in the block
--- http_config
    zone counters { }
--- must_die
--- error_log
unexpected "{"



=== a directive without a semicolon
--- http_config
    zone counters
    store main; # here
--- must_die
--- error_log
ratelimit_namespace "api": "zone" takes one word, not 3



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



=== zone: two names
--- http_config
    zone counters others;
--- must_die
--- error_log
ratelimit_namespace "api": "zone" takes one word, not 2
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== zone: twice
--- http_config
    zone counters;
    zone counters; # here
--- must_die
--- error_log
ratelimit_namespace "api": "zone" is duplicate



=== zone: a name that cannot be one
--- http_config
    zone a/b;
--- must_die
--- error_log
ratelimit_namespace "api": invalid zone "a/b"
expected 1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== zone: "off"
--- http_config
    zone off;
--- must_die
--- error_log
ratelimit_namespace "api": invalid zone "off"
and not "off"



=== zone: a name that is very long
--- http_config eval
'zone ' . 'x' x 1200 . ';'
--- must_die
--- error_log
ratelimit_namespace "api": invalid zone "xxxxxxxx
expected 1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== zone: a name that goes on in the next line
--- http_config
    zone "a
    b"; # here
--- must_die
--- error_log
ratelimit_namespace "api": invalid zone "a
b"
expected 1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



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



=== no zone, though there are several
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace api { } # here
--- must_die
--- error_log
namespace "api" has no zone, and there are 2
"zone name;" in "ratelimit_namespace api { ... }"



=== no zone, since there is none
--- http_config
    # no ratelimit_zone
    ratelimit_namespace api { } # here
--- must_die
--- error_log
namespace "api" has no zone for its counters
"ratelimit_zone zone=name:size;" in http



=== store: no name
--- http_config
    store;
--- must_die
--- error_log
ratelimit_namespace "api": "store" takes one word, not 0
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== store: two names
--- http_config
    store main other;
--- must_die
--- error_log
ratelimit_namespace "api": "store" takes one word, not 2
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== store: twice
--- http_config
    store main;
    store main; # here
--- must_die
--- error_log
ratelimit_namespace "api": "store" is duplicate



=== store: "off", which is no name
--- http_config
    store off;
--- must_die
--- error_log
ratelimit_namespace "api": invalid store "off"
and not "off"



=== store: an address in place of a name
--- http_config
    store 127.0.0.1:6379;
--- must_die
--- error_log
ratelimit_namespace "api": invalid store "127.0.0.1:6379"
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"



=== store: one that is not defined
--- http_config
    ratelimit_namespace api { store other; }
--- must_die
--- error_log
ratelimit_namespace "api": unknown store "other"
expected one that a "ratelimit_store" block defines



=== store: one that is not defined, in a local namespace that nothing uses
--- http_config
    ratelimit_namespace api { store other; sync_rate off; }
--- must_die
--- error_log
ratelimit_namespace "api": unknown store "other"
expected one that a "ratelimit_store" block defines



=== sync_rate: none
--- http_config
    sync_rate;
--- must_die
--- error_log
ratelimit_namespace "api": "sync_rate" takes one word, not 0
off or a negative number, 0, or a time from 1ms



=== sync_rate: two
--- http_config
    sync_rate 0 off;
--- must_die
--- error_log
ratelimit_namespace "api": "sync_rate" takes one word, not 2
off or a negative number, 0, or a time from 1ms



=== sync_rate: twice
--- http_config
    sync_rate off;
    sync_rate off; # here
--- must_die
--- error_log
ratelimit_namespace "api": "sync_rate" is duplicate



=== sync_rate: a word
--- http_config
    sync_rate abc;
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate "abc"
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: "on"
--- http_config
    sync_rate on;
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate "on"
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: an empty word
--- http_config
    sync_rate "";
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate ""
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: less than a millisecond
--- http_config
    sync_rate 0.0001;
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate "0.0001"
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: an unknown unit
--- http_config
    sync_rate 1x;
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate "1x"
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: a negative word that is no number
--- http_config
    sync_rate -off;
--- must_die
--- error_log
ratelimit_namespace "api": invalid sync_rate "-off"
expected off or a negative number, 0, or a time from 1ms



=== sync_rate: 0 needs a store
--- http_config
    ratelimit_namespace api { sync_rate 0; }
--- must_die
--- error_log
ratelimit_namespace "api": sync_rate 0 needs a store
"store name;"
"sync_rate off;"



=== sync_rate: a time needs a store
--- http_config
    ratelimit_namespace api { sync_rate 0.5; }
--- must_die
--- error_log
ratelimit_namespace "api": sync_rate 0.5 needs a store
"store name;"
"sync_rate off;"



=== sync_rate: a time with a unit needs a store
--- http_config
    ratelimit_namespace api { sync_rate 1h; }
--- must_die
--- error_log
ratelimit_namespace "api": sync_rate
needs a store
"store name;"
"sync_rate off;"



=== sync_rate: 0 needs a store
--- http_config
    ratelimit_namespace api { sync_rate 0; }
--- must_die
--- error_log
ratelimit_namespace "api": sync_rate 0 needs a store



=== window_sizes: none
--- http_config
    window_sizes;
--- must_die
--- error_log
ratelimit_namespace "api": "window_sizes" takes at least one word
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: twice
--- http_config
    window_sizes 1s;
    window_sizes 1m; # here
--- must_die
--- error_log
ratelimit_namespace "api": "window_sizes" is duplicate



=== window_sizes: 0
--- http_config
    window_sizes 0;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "0"
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: less than a millisecond
--- http_config
    window_sizes 1s 0.0005;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "0.0005"
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: more than 366 days
--- http_config
    window_sizes 1s 367d;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "367d"
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: a negative one
--- http_config
    window_sizes -1s 1m;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "-1s"
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: a list with commas
--- http_config
    window_sizes 1s,1m;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "1s,1m"
times from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== window_sizes: "off"
--- http_config
    window_sizes off;
--- must_die
--- error_log
ratelimit_namespace "api": invalid window_sizes "off"
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



=== window_sizes: a limit with another window before the namespace is defined
--- http_config
    ratelimit api limit=5/1h; # here
    ratelimit_namespace api { window_sizes 1s 1m; }
--- must_die
--- error_log
ratelimit: the window 1h is not one of the window_sizes of namespace "api"
expected 1s, 1m



=== window_sizes: another window in the second limit of the second rule
--- http_config
    window_sizes 1s 1m;
--- config
    location /t {
        ratelimit api limit=5/1s limit=5/1m;
        ratelimit api limit=5/1s limit=5/1d; # here
    }
--- must_die
--- error_log
ratelimit: the window 1d is not one of the window_sizes of namespace "api"
expected 1s, 1m



=== window_sizes: another window of a limit with variable hits
--- http_config
    window_sizes 1s 1m;
--- config
    ratelimit api limit=$arg_limit/2s; # here
--- must_die
--- error_log
ratelimit: the window 2s is not one of the window_sizes of namespace "api"
expected 1s, 1m



=== window_sizes: another window is named as it is written
--- http_config
    window_sizes 1s 1m;
--- config
    ratelimit api limit=5/120; # here
--- must_die
--- error_log
ratelimit: the window 120 is not one of the window_sizes of namespace "api"
expected 1s, 1m



=== window_sizes: another window in the namespace "default"
--- http_config
    ratelimit_namespace default { window_sizes 1s; }
--- config
    ratelimit limit=5/1m; # here
--- must_die
--- error_log
ratelimit: the window 1m is not one of the window_sizes of namespace "default"
expected 1s



=== on_error: none
--- http_config
    on_error;
--- must_die
--- error_log
ratelimit_namespace "api": "on_error" takes one word, not 0
local, allow or deny



=== on_error: two
--- http_config
    on_error allow deny;
--- must_die
--- error_log
ratelimit_namespace "api": "on_error" takes one word, not 2
local, allow or deny



=== on_error: twice
--- http_config
    on_error allow;
    on_error deny; # here
--- must_die
--- error_log
ratelimit_namespace "api": "on_error" is duplicate



=== on_error: an unknown one
--- http_config
    on_error ignore;
--- must_die
--- error_log
ratelimit_namespace "api": invalid on_error "ignore"
expected local, allow or deny



=== on_error: in upper case
--- http_config
    on_error Deny;
--- must_die
--- error_log
ratelimit_namespace "api": invalid on_error "Deny"
expected local, allow or deny



=== timeout: none
--- http_config
    timeout;
--- must_die
--- error_log
ratelimit_namespace "api": "timeout" takes one word, not 0
a time from 1ms



=== timeout: two
--- http_config
    timeout 10ms 20ms;
--- must_die
--- error_log
ratelimit_namespace "api": "timeout" takes one word, not 2
a time from 1ms



=== timeout: twice
--- http_config
    timeout 10ms;
    timeout 10ms; # here
--- must_die
--- error_log
ratelimit_namespace "api": "timeout" is duplicate



=== timeout: 0
--- http_config
    timeout 0;
--- must_die
--- error_log
ratelimit_namespace "api": invalid timeout "0"
expected a time from 1ms



=== timeout: a negative one
--- http_config
    timeout -1;
--- must_die
--- error_log
ratelimit_namespace "api": invalid timeout "-1"
expected a time from 1ms



=== timeout: a word
--- http_config
    timeout soon;
--- must_die
--- error_log
ratelimit_namespace "api": invalid timeout "soon"
expected a time from 1ms



=== timeout: more than a minute
--- http_config
    timeout 61;
--- must_die
--- error_log
ratelimit_namespace "api": invalid timeout "61"
expected a time from 1ms to 1m



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



=== include: two files
--- http_config
    include a.conf b.conf;
--- must_die
--- error_log
ratelimit_namespace "api": "include" takes one word, not 2



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



=== the name "default" twice
--- http_config
    ratelimit_namespace default { }
    ratelimit_namespace default { } # here
--- must_die
--- error_log
ratelimit_namespace: namespace "default" is duplicate
expected another name than in
/http_config.conf:3



=== the name "off"
--- http_config
    ratelimit_namespace off { }
--- must_die
--- error_log
ratelimit_namespace: invalid name "off" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== an empty name
--- http_config
    ratelimit_namespace "" { }
--- must_die
--- error_log
ratelimit_namespace: invalid name "" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== a name with another character
--- http_config
    ratelimit_namespace a:b { }
--- must_die
--- error_log
ratelimit_namespace: invalid name "a:b" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== a name that is a variable
--- http_config
    ratelimit_namespace $host { }
--- must_die
--- error_log
ratelimit_namespace: invalid name "$host" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== a name of 65 characters
--- http_config
    ratelimit_namespace name.of.more.than.64.characters.name.of.more.than.64.characters.n { }
--- must_die
--- error_log
ratelimit_namespace: invalid name "name.of.more.than.64.characters.name.of.more.than.64.characters.n" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== no name
--- http_config
    ratelimit_namespace { }
--- must_die
--- error_log
ratelimit_namespace:
expected one name and a block: ratelimit_namespace name { ... }



=== two names
--- http_config
    ratelimit_namespace api other { }
--- must_die
--- error_log
ratelimit_namespace:
"other"
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



=== a rule in a store
--- http_config
    zone counters;
--- config
    ratelimit main limit=5/10s; # here
--- must_die
--- error_log
ratelimit: unknown namespace "main"
"ratelimit_namespace" block



=== an empty block
--- http_config
    ratelimit_namespace api { }
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== a namespace that is used before it is defined
--- http_config
    ratelimit api limit=5/1d;
    ratelimit_namespace api { window_sizes 24h; }
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== a zone and a store that are defined after the namespace
--- http_config
    ratelimit_namespace api { zone counters; store main; sync_rate -1; }
    ratelimit_zone zone=counters:1m;
    ratelimit_store main { strategy redis; }
--- config
    ratelimit api limit=5/1d;
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



=== a namespace that nothing uses
--- http_config
    store main; sync_rate off; window_sizes 1s;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== sync_rate: off with a store that nobody listens for
--- http_config
    ratelimit_store main { strategy redis; server 127.0.0.1:1; }
    ratelimit_namespace api { store main; sync_rate off; }
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== sync_rate: -1 needs no store
--- http_config
    sync_rate -1;
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== sync_rate: any negative number needs no store
--- http_config
    ratelimit_namespace api { sync_rate -0.5; }
    ratelimit_namespace b { sync_rate -1000000; }
    ratelimit_namespace c { sync_rate -0.0000001; }
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== window_sizes: the same size twice
--- http_config
    window_sizes 1d 24h 86400 1d;
--- config
    ratelimit api limit=5/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400



=== window_sizes: the smallest and the largest
--- http_config
    window_sizes 1ms 366d;
--- config
    ratelimit api limit=5/0.001 limit=6/366d;
--- response_headers
RateLimit-Policy: "api-0.001";q=5, "api-366d";q=6;w=31622400



=== window_sizes: a limit writes its window in its own way
--- http_config
    window_sizes 90 1h;
--- config
    ratelimit api limit=5/60m limit=6/1m30s;
--- response_headers
RateLimit-Policy: "api-60m";q=5;w=3600, "api-1m30s";q=6;w=90



=== timeout: the shortest and the longest
--- http_config
    ratelimit_store main { strategy redis; }
    ratelimit_namespace api { timeout 0.001; }
    ratelimit_namespace b { timeout 1m; sync_rate 0; store main; }
--- config
    ratelimit api limit=5/1d;
--- error_log
ratelimit_namespace "api": timeout has no effect without "sync_rate 0;" [http_config.conf:3]
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



=== the namespace "default", defined
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
    ratelimit_namespace default { zone two; window_sizes 1d; }
--- config
    ratelimit limit=5/1d;
    ratelimit default limit=6/1d counter=default;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400, "default-1d-2";q=6;w=86400



=== a zone, a store and a namespace of one name
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_store counters { strategy redis; }
    ratelimit_namespace counters { zone counters; store counters; sync_rate off; }
--- config
    ratelimit counters limit=5/1d;
--- response_headers
RateLimit-Policy: "counters-1d";q=5;w=86400



=== the longest name, of every kind of character
--- http_config
    ratelimit_namespace Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara { }
--- config
    ratelimit Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara limit=5/1d;
--- response_headers
RateLimit-Policy: "Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara-1d";q=5;w=86400



=== names that differ by case
--- http_config
    ratelimit_namespace api { }
    ratelimit_namespace API { }
--- config
    ratelimit api limit=5/1d;
    ratelimit API limit=6/1d;
--- response_headers
RateLimit-Policy: "api-1d";q=5;w=86400, "API-1d";q=6;w=86400



=== names that are words of other directives
--- http_config
    ratelimit_namespace zone { zone counters; }
    ratelimit_namespace on { }
    ratelimit_namespace 0 { }
--- config
    ratelimit zone limit=5/1d;
    ratelimit on limit=6/1d;
    ratelimit 0 limit=7/1d;
--- response_headers
RateLimit-Policy: "zone-1d";q=5;w=86400, "on-1d";q=6;w=86400, "0-1d";q=7;w=86400



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
