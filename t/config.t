# What the configuration accepts. Wrong ones keep nginx from starting: one
# [emerg] line names the wrong word, says what would be right, and where it is.
# Odd but legal ones start. How blocks are read is told in
# lib/Configuration.pm; here, there is a zone "counters" unless they have a
# section http_config.

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



=== ratelimit_zone: no size
--- http_config
    ratelimit_zone zone=counters;
--- must_die
--- error_log
ratelimit_zone: no size in "zone=counters"
expected "zone=name:size"



=== ratelimit_zone: an empty size
--- http_config
    ratelimit_zone zone=counters:;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:"
a number of bytes, or of k, m or g



=== ratelimit_zone: a size with an unknown unit
--- http_config
    ratelimit_zone zone=counters:10x;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:10x"
a number of bytes, or of k, m or g



=== ratelimit_zone: a negative size
--- http_config
    ratelimit_zone zone=counters:-1m;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:-1m"
a number of bytes, or of k, m or g



=== ratelimit_zone: a size with a fraction
--- http_config
    ratelimit_zone zone=counters:1.5m;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:1.5m"
a number of bytes, or of k, m or g



=== ratelimit_zone: a zone of fewer than 8 pages
--- http_config
    ratelimit_zone zone=counters:31k;
--- must_die
--- error_log
ratelimit_zone: zone "counters" is too small
at least 8 pages, 32k



=== ratelimit_zone: a zone of no bytes
--- http_config
    ratelimit_zone zone=counters:0;
--- must_die
--- error_log
ratelimit_zone: zone "counters" is too small
at least 8 pages



=== ratelimit_zone: the name "off"
--- http_config
    ratelimit_zone zone=off:1m;
--- must_die
--- error_log
ratelimit_zone: invalid name "off" of a zone
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"
not "off"



=== ratelimit_zone: no name
--- http_config
    ratelimit_zone zone=:1m;
--- must_die
--- error_log
ratelimit_zone: invalid name "" of a zone
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"
not "off"



=== ratelimit_zone: a name with another character
--- http_config
    ratelimit_zone zone=a/b:1m;
--- must_die
--- error_log
ratelimit_zone: invalid name "a/b" of a zone
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"
not "off"



=== ratelimit_zone: a name of 65 characters
--- http_config
    ratelimit_zone zone=zone.of.more.than.64.characters.zone.of.more.than.64.characters.z:1m;
--- must_die
--- error_log
ratelimit_zone: invalid name "zone.of.more.than.64.characters.zone.of.more.than.64.characters.z" of a zone
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"
not "off"



=== ratelimit_zone: a name that is taken
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_zone zone=counters:1m; # here
--- must_die
--- error_log
ratelimit_zone: zone "counters" is duplicate



=== ratelimit_zone: a name that is taken with another size
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_zone zone=counters:2m; # here
--- must_die
--- error_log
ratelimit_zone: zone "counters" is duplicate



=== ratelimit_zone: in a server
--- config
    ratelimit_zone zone=other:1m;
--- must_die
--- error_log
"ratelimit_zone" directive is not allowed here



=== ratelimit_zone: no parameter
--- http_config
    ratelimit_zone;
--- must_die
--- error_log
ratelimit_zone: no parameter
expected "zone=name:size"



=== ratelimit_zone: two parameters
--- http_config
    ratelimit_zone zone=counters:1m zone=other:1m;
--- must_die
--- error_log
ratelimit_zone: one parameter too many, "zone=other:1m"
expected "zone=name:size"



=== ratelimit_zone: a size of too many digits
--- http_config
    ratelimit_zone zone=counters:99999999999999999999;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:99999999999999999999"
a number of bytes, or of k, m or g



=== ratelimit_zone: two sizes
--- http_config
    ratelimit_zone zone=counters:1m:2m;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:1m:2m"
a number of bytes, or of k, m or g



=== ratelimit_zone: a name that is very long
--- http_config eval
'ratelimit_zone zone=' . 'x' x 1200 . ':1m;'
--- must_die
--- error_log
ratelimit_zone: invalid name "xxxxxxxx
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"



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



=== ratelimit: no namespace, and a choice of zones
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
--- config
    ratelimit limit=5/10s;
--- must_die
--- error_log
namespace "default" has no zone, and there are 2
"zone name;" in "ratelimit_namespace default { ... }"



=== ratelimit: an unknown namespace
--- config
    ratelimit api limit=5/10s;
--- must_die
--- error_log
ratelimit: unknown namespace "api"
"ratelimit_namespace" block



=== ratelimit: a namespace that cannot be one
--- config
    ratelimit a:b limit=5/10s;
--- must_die
--- error_log
ratelimit: invalid name "a:b" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"



=== ratelimit: "off" as a namespace
--- config
    ratelimit off limit=5/10s;
--- must_die
--- error_log
ratelimit: invalid name "off" of a namespace
not "off"



=== ratelimit: no arguments
--- config
    ratelimit;
--- must_die
--- error_log
ratelimit: no limit: expected at least one "limit=hits/window"



=== ratelimit: a namespace and no limit
--- config
    ratelimit default;
--- must_die
--- error_log
ratelimit: no limit: expected at least one "limit=hits/window"



=== ratelimit: parameters and no limit
--- config
    ratelimit window=fixed;
--- must_die
--- error_log
ratelimit: no limit: expected at least one "limit=hits/window"



=== ratelimit: an empty limit
--- config
    ratelimit limit=;
--- must_die
--- error_log
ratelimit: invalid parameter "limit="
a limit is "hits/window", such as 5/10s



=== ratelimit: a limit without a window
--- config
    ratelimit limit=5;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5"
a limit is "hits/window", such as 5/10s



=== ratelimit: a limit without hits
--- config
    ratelimit limit=/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: hits that are no number
--- config
    ratelimit limit=five/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=five/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: negative hits
--- config
    ratelimit limit=-5/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=-5/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: hits with a sign
--- config
    ratelimit limit=+5/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=+5/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: hits with an exponent
--- config
    ratelimit limit=5e3/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5e3/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: hits with a point and nothing after it
--- config
    ratelimit limit=5./10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5./10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: no hits
--- config
    ratelimit limit=0/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=0/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: hits that round to none
--- config
    ratelimit limit=0.0004/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=0.0004/10s"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: more hits than can be counted
--- config
    ratelimit limit=1000000000000/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=1000000000000/10s"
larger than



=== ratelimit: a limit with an empty window
--- config
    ratelimit limit=5/;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a window with an unknown unit
--- config
    ratelimit limit=5/10x;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/10x"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a window of nothing
--- config
    ratelimit limit=5/0;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/0"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a window of less than a millisecond
--- config
    ratelimit limit=5/0.0005;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/0.0005"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a window of more than 366 days
--- config
    ratelimit limit=5/367d;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/367d"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a negative window
--- config
    ratelimit limit=5/-10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/-10s"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: a window with its units in the wrong order
--- config
    ratelimit limit=5/30m1h;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/30m1h"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: two windows
--- config
    ratelimit limit=5/10s/20s;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/10s/20s"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: the second of two limits
--- config
    ratelimit limit=5/10s limit=x/1m;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=x/1m"
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: an unknown window type
--- config
    ratelimit limit=5/10s window=round;
--- must_die
--- error_log
ratelimit: invalid parameter "window=round"
sliding
fixed



=== ratelimit: an empty window type
--- config
    ratelimit limit=5/10s window=;
--- must_die
--- error_log
ratelimit: invalid parameter "window="
sliding
fixed



=== ratelimit: two window types
--- config
    ratelimit limit=5/10s window=sliding window=fixed;
--- must_die
--- error_log
ratelimit: parameter "window=fixed" is duplicate



=== ratelimit: the same window type twice
--- config
    ratelimit limit=5/10s window=fixed window=fixed;
--- must_die
--- error_log
ratelimit: parameter "window=fixed" is duplicate



=== ratelimit: an unknown parameter
--- config
    ratelimit limits=5/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "limits=5/10s"
limit=hits/window
window=



=== ratelimit: a word that is no parameter
--- config
    ratelimit limit=5/10s fixed;
--- must_die
--- error_log
ratelimit: invalid parameter "fixed"
limit=hits/window
window=



=== ratelimit: a namespace that is not the first word
--- config
    ratelimit limit=5/10s default;
--- must_die
--- error_log
ratelimit: invalid parameter "default"
limit=hits/window
window=



=== ratelimit: "off" after a rule of its level
--- config
    ratelimit limit=5/10s;
    ratelimit off; # here
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: a rule after "off" on its level
--- config
    ratelimit off;
    ratelimit limit=5/10s; # here
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: "off" twice
--- config
    ratelimit off;
    ratelimit off; # here
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: within "if"
--- config
    location /t { if ($arg_k) { ratelimit limit=5/10s; } }
--- must_die
--- error_log
"ratelimit" directive is not allowed here



=== ratelimit: a limit of a variable without a window
--- config
    ratelimit limit=$arg_limit;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=$arg_limit"
a limit is "hits/window", such as 5/10s



=== ratelimit: a window that is a variable
--- config
    ratelimit limit=5/$arg_window;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=5/$arg_window"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: hits of a variable, and a window with an unknown unit
--- config
    ratelimit limit=$arg_limit/10x;
--- must_die
--- error_log
ratelimit: invalid parameter "limit=$arg_limit/10x"
a window is a time from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5



=== ratelimit: hits of a variable without a name
--- config
    ratelimit limit=$/1m;
--- must_die
--- error_log
ratelimit: invalid variable in "$"
expected $name or ${name}



=== ratelimit: hits of a variable with an open brace
--- config
    ratelimit limit=${/1m;
--- must_die
--- error_log
ratelimit: invalid variable in "${"
expected $name or ${name}



=== ratelimit: hits of a variable with another character
--- config
    ratelimit limit=${a-b}/1m;
--- must_die
--- error_log
ratelimit: invalid variable in "${a-b}"
expected $name or ${name}



=== ratelimit: hits of an unknown variable
--- config
    ratelimit limit=$nothing/1m;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: a limit whose word is very long
--- config eval
'ratelimit limit=' . 'x' x 1200 . '/1m;'
--- must_die
--- error_log
ratelimit: invalid parameter "limit=xxxxxxxx
the hits are a decimal of at least 0.001, such as 5 or 0.5



=== ratelimit: a parameter that is very long
--- config eval
'ratelimit limit=5/1m ' . 'x' x 1200 . ';'
--- must_die
--- error_log
ratelimit: invalid parameter "xxxxxxxx
limit=hits/window



=== ratelimit: a parameter that goes on in the next line
--- config
    ratelimit limit=5/1m "key
    1"; # here
--- must_die
--- error_log
ratelimit: invalid parameter "key
1"
limit=hits/window



=== ratelimit: a window type that is not in this build, moving
--- config
    ratelimit limit=5/10s window=moving;
--- must_die
--- error_log
ratelimit: parameter "window=moving" is not in this build
expected sliding or fixed



=== ratelimit: a window type that is not in this build, elastic
--- config
    ratelimit limit=5/10s window=elastic;
--- must_die
--- error_log
ratelimit: parameter "window=elastic" is not in this build
expected sliding or fixed



=== ratelimit: a window type in upper case
--- config
    ratelimit limit=5/10s window=Fixed;
--- must_die
--- error_log
ratelimit: invalid parameter "window=Fixed"
expected sliding or fixed



=== ratelimit: a window type that is a variable
--- config
    ratelimit limit=5/10s window=$arg_window;
--- must_die
--- error_log
ratelimit: invalid parameter "window=$arg_window"
expected sliding or fixed



=== ratelimit: two keys
--- config
    ratelimit limit=5/10s key=$arg_a key=$arg_b;
--- must_die
--- error_log
ratelimit: parameter "key=$arg_b" is duplicate
expected it once



=== ratelimit: a key without "="
--- config
    ratelimit limit=5/10s key $arg_a;
--- must_die
--- error_log
ratelimit: invalid parameter "key"
limit=hits/window
key=



=== ratelimit: a key with a variable without a name
--- config
    ratelimit limit=5/10s key=a$;
--- must_die
--- error_log
ratelimit: invalid variable in "a$"
expected $name or ${name}



=== ratelimit: a key with an open brace
--- config
    ratelimit limit=5/10s key=${arg_a;
--- must_die
--- error_log
ratelimit: invalid variable in "${arg_a"
expected $name or ${name}



=== ratelimit: a key with a variable of another character
--- config
    ratelimit limit=5/10s key=${a-b};
--- must_die
--- error_log
ratelimit: invalid variable in "${a-b}"
expected $name or ${name}



=== ratelimit: a key with an unknown variable
--- config
    ratelimit limit=5/10s key=$nothing;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: a cost that is no number
--- config
    ratelimit limit=5/10s cost=much;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=much"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: an empty cost
--- config
    ratelimit limit=5/10s cost=;
--- must_die
--- error_log
ratelimit: invalid parameter "cost="
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a negative cost
--- config
    ratelimit limit=5/10s cost=-1;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=-1"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a cost with an exponent
--- config
    ratelimit limit=5/10s cost=1e3;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=1e3"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a cost with a comma
--- config
    ratelimit limit=5/10s cost=1,5;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=1,5"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a cost of more than can be counted
--- config
    ratelimit limit=5/10s cost=1000000000000;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=1000000000000"
larger than



=== ratelimit: a cost with a variable without a name
--- config
    ratelimit limit=5/10s cost=$;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=$"
expected $name or ${name}



=== ratelimit: a cost with a variable of another character
--- config
    ratelimit limit=5/10s cost=${a-b};
--- must_die
--- error_log
ratelimit: invalid parameter "cost=${a-b}"
expected $name or ${name}



=== ratelimit: a cost with an unknown variable
--- config
    ratelimit limit=5/10s cost=$nothing;
--- must_die
--- error_log
unknown "nothing" variable
[no place]



=== ratelimit: two costs
--- config
    ratelimit limit=5/10s cost=1 cost=1;
--- must_die
--- error_log
ratelimit: parameter "cost=1" is duplicate
expected it once



=== ratelimit: a cost and a charge
--- config
    ratelimit limit=5/10s cost=1 charge=$bytes_sent;
--- must_die
--- error_log
ratelimit: parameter "charge=$bytes_sent" takes the place of "cost="
expected one of the two



=== ratelimit: a charge and a cost
--- config
    ratelimit limit=5/10s charge=$bytes_sent cost=0;
--- must_die
--- error_log
ratelimit: parameter "charge=$bytes_sent" takes the place of "cost="
expected one of the two



=== ratelimit: a charge that is no number
--- config
    ratelimit limit=5/10s charge=bytes_sent;
--- must_die
--- error_log
ratelimit: invalid parameter "charge=bytes_sent"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: an empty charge
--- config
    ratelimit limit=5/10s charge=;
--- must_die
--- error_log
ratelimit: invalid parameter "charge="
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a negative charge
--- config
    ratelimit limit=5/10s charge=-1;
--- must_die
--- error_log
ratelimit: invalid parameter "charge=-1"
expected a decimal, such as 1 or 0.5, or variables



=== ratelimit: a charge with an open brace
--- config
    ratelimit limit=5/10s charge=${;
--- must_die
--- error_log
ratelimit: invalid parameter "charge=${"
expected $name or ${name}



=== ratelimit: two charges
--- config
    ratelimit limit=5/10s charge=1 charge=2;
--- must_die
--- error_log
ratelimit: parameter "charge=2" is duplicate
expected it once



=== ratelimit: an empty policy name
--- config
    ratelimit limit=5/10s name=;
--- must_die
--- error_log
ratelimit: invalid parameter "name="
expected printable ASCII characters



=== ratelimit: a policy name with a quote
--- config
    ratelimit limit=5/10s 'name=a"b';
--- must_die
--- error_log
ratelimit: invalid parameter "name=a"b"
expected printable ASCII characters



=== ratelimit: a policy name with a backslash
--- config
    ratelimit limit=5/10s 'name=a\\b';
--- must_die
--- error_log
ratelimit: invalid parameter "name=a\b"
expected printable ASCII characters



=== ratelimit: a policy name that is not ASCII
--- config
    ratelimit limit=5/10s name=größe;
--- must_die
--- error_log
ratelimit: invalid parameter "name=größe"
expected printable ASCII characters



=== ratelimit: a policy name that is a variable
--- config
    ratelimit limit=5/10s name=$host;
--- must_die
--- error_log
ratelimit: invalid parameter "name=$host"
expected printable ASCII characters



=== ratelimit: a policy name for two limits
--- config
    ratelimit limit=5/10s limit=50/1m name=both;
--- must_die
--- error_log
ratelimit: the name "both" is for one limit, and there are 2
expected rules of their own



=== ratelimit: two policy names
--- config
    ratelimit limit=5/10s name=a name=b;
--- must_die
--- error_log
ratelimit: parameter "name=b" is duplicate
expected it once



=== ratelimit: quotes around half a parameter
--- config
    ratelimit limit=5/1d key="$remote_addr $uri";
--- must_die
--- error_log
ratelimit: invalid parameter "key="$remote_addr": quotes go around a whole parameter



=== ratelimit: what limit_req says
--- config
    ratelimit zone=one burst=5 nodelay;
--- must_die
--- error_log
ratelimit: parameter "zone=one" is of limit_req



=== ratelimit: a counter that cannot be one
--- config
    ratelimit limit=5/1d counter=$uri;
--- must_die
--- error_log
ratelimit: invalid name "$uri" of a counter
expected 1 to 64 of



=== ratelimit: one policy name for two rules of a level
--- config
    ratelimit limit=5/10s name=same;
    ratelimit limit=50/1m name=other;
    ratelimit limit=500/1h name=same; # here
--- must_die
--- error_log
ratelimit: the name "same" is duplicate
expected one that no other rule of this level has



=== ratelimit: two namespaces
--- config
    ratelimit default default limit=5/10s;
--- must_die
--- error_log
ratelimit: invalid parameter "default"
limit=hits/window



=== ratelimit: an empty namespace
--- config
    ratelimit "" limit=5/10s;
--- must_die
--- error_log
ratelimit: invalid name "" of a namespace
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-"



=== ratelimit: "off" with a parameter
--- config
    ratelimit off key=$arg_k;
--- must_die
--- error_log
ratelimit:
"off"



=== ratelimit: "off" after a limit
--- config
    ratelimit limit=5/10s off;
--- must_die
--- error_log
ratelimit: invalid parameter "off"
limit=hits/window



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



=== ratelimit_key: no key
--- config
    ratelimit_key;
--- must_die
--- error_log
ratelimit_key: no parameter
expected one string



=== ratelimit_key: two keys
--- config
    ratelimit_key $arg_a $arg_b;
--- must_die
--- error_log
ratelimit_key: one parameter too many, "$arg_b"
expected one string



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



=== ratelimit_key: a variable without a name
--- config
    ratelimit_key $;
--- must_die
--- error_log
ratelimit_key: invalid variable in "$"
expected $name or ${name}



=== ratelimit_key: a variable without a name, before a blank
--- config
    ratelimit_key "$ $arg_a";
--- must_die
--- error_log
ratelimit_key: invalid variable in "$ $arg_a"
expected $name or ${name}



=== ratelimit_key: two dollars
--- config
    ratelimit_key $$arg_a;
--- must_die
--- error_log
ratelimit_key: invalid variable in "$$arg_a"
expected $name or ${name}



=== ratelimit_key: an open brace
--- config
    ratelimit_key ${;
--- must_die
--- error_log
ratelimit_key: invalid variable in "${"
expected $name or ${name}



=== ratelimit_key: braces around nothing
--- config
    ratelimit_key ${};
--- must_die
--- error_log
ratelimit_key: invalid variable in "${}"
expected $name or ${name}



=== ratelimit_key: braces around another character
--- config
    ratelimit_key ${a-b};
--- must_die
--- error_log
ratelimit_key: invalid variable in "${a-b}"
expected $name or ${name}



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



=== ratelimit_headers: "off" with another kind
--- config
    ratelimit_headers off ietf;
--- must_die
--- error_log
ratelimit_headers: "off" goes with nothing else
off
ietf



=== ratelimit_headers: an unknown kind with a known one
--- config
    ratelimit_headers ietf none;
--- must_die
--- error_log
ratelimit_headers: invalid parameter "none"
off
ietf



=== ratelimit_headers: twice on a level
--- config
    ratelimit_headers ietf;
    ratelimit_headers off; # here
--- must_die
--- error_log
ratelimit_headers: is duplicate



=== ratelimit_headers: no argument
--- config
    ratelimit_headers;
--- must_die
--- error_log
ratelimit_headers: expected off
ietf



=== ratelimit_count_rejected: no word
--- config
    ratelimit_count_rejected;
--- must_die
--- error_log
ratelimit_count_rejected: no parameter
expected on or off



=== ratelimit_count_rejected: two words
--- config
    ratelimit_count_rejected on off;
--- must_die
--- error_log
ratelimit_count_rejected: one parameter too many, "off"
expected on or off



=== ratelimit_count_rejected: neither on nor off
--- config
    ratelimit_count_rejected yes;
--- must_die
--- error_log
ratelimit_count_rejected: invalid parameter "yes"
expected on or off



=== ratelimit_count_rejected: in upper case
--- config
    ratelimit_count_rejected ON;
--- must_die
--- error_log
ratelimit_count_rejected: invalid parameter "ON"
expected on or off



=== ratelimit_count_rejected: an empty word
--- config
    ratelimit_count_rejected "";
--- must_die
--- error_log
ratelimit_count_rejected: invalid parameter ""
expected on or off



=== ratelimit_count_rejected: twice on a level
--- config
    ratelimit_count_rejected on;
    ratelimit_count_rejected off; # here
--- must_die
--- error_log
ratelimit_count_rejected: is duplicate



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



=== ratelimit_status: two words
--- config
    ratelimit_status 429 503;
--- must_die
--- error_log
ratelimit_status: one parameter too many, "503"
expected a status from 400 to 599



=== ratelimit_status: less than 400
--- config
    ratelimit_status 399;
--- must_die
--- error_log
ratelimit_status: invalid status "399"
expected a status from 400 to 599



=== ratelimit_status: more than 599
--- config
    ratelimit_status 600;
--- must_die
--- error_log
ratelimit_status: invalid status "600"
expected a status from 400 to 599



=== ratelimit_status: a number with a letter
--- config
    ratelimit_status 42x;
--- must_die
--- error_log
ratelimit_status: invalid status "42x"
expected a status from 400 to 599



=== ratelimit_status: a negative number
--- config
    ratelimit_status -429;
--- must_die
--- error_log
ratelimit_status: invalid status "-429"
expected a status from 400 to 599



=== ratelimit_status: a number with a sign
--- config
    ratelimit_status +429;
--- must_die
--- error_log
ratelimit_status: invalid status "+429"
expected a status from 400 to 599



=== ratelimit_status: a fraction
--- config
    ratelimit_status 429.5;
--- must_die
--- error_log
ratelimit_status: invalid status "429.5"
expected a status from 400 to 599



=== ratelimit_status: an empty word
--- config
    ratelimit_status "";
--- must_die
--- error_log
ratelimit_status: invalid status ""
expected a status from 400 to 599



=== ratelimit_status: a number of many digits
--- config
    ratelimit_status 99999999999999999999;
--- must_die
--- error_log
ratelimit_status: invalid status "99999999999999999999"
expected a status from 400 to 599



=== ratelimit_status: "off"
--- config
    ratelimit_status off;
--- must_die
--- error_log
ratelimit_status: invalid status "off"
expected a status from 400 to 599



=== ratelimit_status: a variable
--- config
    ratelimit_status $arg_status;
--- must_die
--- error_log
ratelimit_status: invalid status "$arg_status"
expected a status from 400 to 599



=== ratelimit_status: twice on a level
--- config
    ratelimit_status 429;
    ratelimit_status 503; # here
--- must_die
--- error_log
ratelimit_status: is duplicate



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



=== ratelimit_dry_run: two words
--- config
    ratelimit_dry_run on on;
--- must_die
--- error_log
ratelimit_dry_run: one parameter too many, "on"
expected on or off



=== ratelimit_dry_run: neither on nor off
--- config
    ratelimit_dry_run 1;
--- must_die
--- error_log
ratelimit_dry_run: invalid parameter "1"
expected on or off



=== ratelimit_dry_run: a variable
--- config
    ratelimit_dry_run $arg_dry;
--- must_die
--- error_log
ratelimit_dry_run: invalid parameter "$arg_dry"
expected on or off



=== ratelimit_dry_run: twice on a level
--- config
    ratelimit_dry_run on;
    ratelimit_dry_run on; # here
--- must_die
--- error_log
ratelimit_dry_run: is duplicate



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



=== ratelimit_log_level: two words
--- config
    ratelimit_log_level info warn;
--- must_die
--- error_log
ratelimit_log_level: one parameter too many, "warn"
expected info, notice, warn, error or off



=== ratelimit_log_level: a level of nginx that rejections do not have
--- config
    ratelimit_log_level crit;
--- must_die
--- error_log
ratelimit_log_level: invalid parameter "crit"
expected info, notice, warn, error or off



=== ratelimit_log_level: debug
--- config
    ratelimit_log_level debug;
--- must_die
--- error_log
ratelimit_log_level: invalid parameter "debug"
expected info, notice, warn, error or off



=== ratelimit_log_level: twice on a level
--- config
    ratelimit_log_level info;
    ratelimit_log_level warn; # here
--- must_die
--- error_log
ratelimit_log_level: is duplicate



=== ratelimit_log_level: within "if"
--- config
    location /t { if ($arg_k) { ratelimit_log_level info; } }
--- must_die
--- error_log
"ratelimit_log_level" directive is not allowed here



=== ratelimit_headers: a kind twice
--- config
    ratelimit_headers ietf legacy ietf;
--- must_die
--- error_log
ratelimit_headers: parameter "ietf" is duplicate
off, or one or more of ietf, draft03 and legacy



=== ratelimit_headers: another kind with "off"
--- config
    ratelimit_headers legacy off;
--- must_die
--- error_log
ratelimit_headers: "off" goes with nothing else
off, or one or more of ietf, draft03 and legacy



=== ratelimit_headers: "off" twice
--- config
    ratelimit_headers off off;
--- must_die
--- error_log
ratelimit_headers: "off" goes with nothing else
off, or one or more of ietf, draft03 and legacy



=== ratelimit_headers: an empty word
--- config
    ratelimit_headers "";
--- must_die
--- error_log
ratelimit_headers: invalid parameter ""
off, or one or more of ietf, draft03 and legacy



=== ratelimit_headers: in upper case
--- config
    ratelimit_headers IETF;
--- must_die
--- error_log
ratelimit_headers: invalid parameter "IETF"
off, or one or more of ietf, draft03 and legacy



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



=== ratelimit_retry_after_jitter: two words
--- config
    ratelimit_retry_after_jitter 1s 2s;
--- must_die
--- error_log
ratelimit_retry_after_jitter: one parameter too many, "2s"
expected a time



=== ratelimit_retry_after_jitter: a word
--- config
    ratelimit_retry_after_jitter soon;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "soon"
expected a time



=== ratelimit_retry_after_jitter: a negative time
--- config
    ratelimit_retry_after_jitter -1s;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "-1s"
expected a time



=== ratelimit_retry_after_jitter: an unknown unit
--- config
    ratelimit_retry_after_jitter 1x;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "1x"
expected a time



=== ratelimit_retry_after_jitter: an empty word
--- config
    ratelimit_retry_after_jitter "";
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time ""
expected a time



=== ratelimit_retry_after_jitter: more than a day
--- config
    ratelimit_retry_after_jitter 25h;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "25h"
expected a time



=== ratelimit_retry_after_jitter: "off"
--- config
    ratelimit_retry_after_jitter off;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "off"
expected a time



=== ratelimit_retry_after_jitter: a variable
--- config
    ratelimit_retry_after_jitter $arg_jitter;
--- must_die
--- error_log
ratelimit_retry_after_jitter: invalid time "$arg_jitter"
expected a time



=== ratelimit_retry_after_jitter: twice on a level
--- config
    ratelimit_retry_after_jitter 1s;
    ratelimit_retry_after_jitter 2s; # here
--- must_die
--- error_log
ratelimit_retry_after_jitter: is duplicate



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



=== ratelimit_phase: two words
--- config
    ratelimit_phase preaccess precontent;
--- must_die
--- error_log
ratelimit_phase: one parameter too many, "precontent"
expected preaccess or precontent



=== ratelimit_phase: another phase of nginx
--- config
    ratelimit_phase access;
--- must_die
--- error_log
ratelimit_phase: invalid parameter "access"
expected preaccess or precontent



=== ratelimit_phase: in upper case
--- config
    ratelimit_phase Precontent;
--- must_die
--- error_log
ratelimit_phase: invalid parameter "Precontent"
expected preaccess or precontent



=== ratelimit_phase: an empty word
--- config
    ratelimit_phase "";
--- must_die
--- error_log
ratelimit_phase: invalid parameter ""
expected preaccess or precontent



=== ratelimit_phase: twice on a level
--- config
    ratelimit_phase preaccess;
    ratelimit_phase precontent; # here
--- must_die
--- error_log
ratelimit_phase: is duplicate



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



=== ratelimit: a cost that rounds to none
--- config
    ratelimit limit=5/10s cost=0.0004;
--- must_die
--- error_log
ratelimit: invalid parameter "cost=0.0004"
expected 0 or at least 0.001



=== no rules at all
--- http_config

--- config
    ratelimit off;
--- response_headers
!RateLimit-Policy



=== a zone that nothing uses
--- response_headers
!RateLimit-Policy



=== several zones that nothing uses
--- http_config
    ratelimit_zone zone=one:1m;
    ratelimit_zone zone=two:1m;
--- response_headers
!RateLimit-Policy



=== the smallest zone
--- http_config
    ratelimit_zone zone=counters:32k;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a zone with the longest name, of every kind of character
--- http_config
    ratelimit_zone zone=Zone_with-a.name_of-64.characters.Zone_with-a.name_of-64.charac0:1024K;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== a zone after its use
--- http_config
    ratelimit limit=5/1d;
    ratelimit_zone zone=counters:1m;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== the namespace "default" by its name
--- config
    ratelimit default limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== the smallest and the largest window
--- config
    ratelimit limit=5/1ms limit=6/366d;
--- response_headers
RateLimit-Policy: "default-1ms";q=5, "default-366d";q=6;w=31622400



=== windows of bare seconds
--- config
    ratelimit limit=5/10 limit=6/0.5 limit=7/1.0;
--- response_headers
RateLimit-Policy: "default-10";q=5;w=10, "default-0.5";q=6, "default-1.0";q=7;w=1



=== windows of several units
--- config
    ratelimit limit=5/1h30m limit=6/1d12h limit=7/1m30;
--- response_headers
RateLimit-Policy: "default-1h30m";q=5;w=5400, "default-1d12h";q=6;w=129600, "default-1m30";q=7;w=90



=== a minute, a month, a year
--- config
    ratelimit limit=5/1m limit=6/1M limit=7/1y;
--- error_log
ratelimit: in "1M", M is a month of 30 days: a minute is m [config.conf:1]
--- response_headers
RateLimit-Policy: "default-1m";q=5;w=60, "default-1M";q=6;w=2592000, "default-1y";q=7;w=31536000



=== the fewest and very many hits
--- config
    ratelimit limit=100000000000.999/1d;
    location /few { ratelimit limit=0.001/1d counter=few; }
--- response_headers
RateLimit-Policy: "default-1d";q=100000000000;w=86400



=== more decimals than are counted
--- config
    ratelimit limit=1.9996/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=2;w=86400



=== parameters in any order
--- config
    ratelimit limit=5/1d window=fixed limit=6/2d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400, "default-2d";q=6;w=172800



=== many rules
--- config
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
    ratelimit limit=50/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=50;w=86400, "default-1d-2";q=50;w=86400, "default-1d-3";q=50;w=86400, "default-1d-4";q=50;w=86400, "default-1d-5";q=50;w=86400, "default-1d-6";q=50;w=86400, "default-1d-7";q=50;w=86400, "default-1d-8";q=50;w=86400, "default-1d-9";q=50;w=86400, "default-1d-10";q=50;w=86400



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



=== directives without rules
--- http_config
    ratelimit_key $arg_k;
    ratelimit_headers ietf;
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



=== two limits with one window
--- config
    ratelimit limit=5/1d limit=6/1d limit=6/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400, "default-1d-2";q=6;w=86400, "default-1d-3";q=6;w=86400



=== a key, a cost, a window type and a name in one rule
--- config
    ratelimit default name=all cost=0.5 window=fixed key=$arg_k limit=5/1d;
--- request
GET /?k=1
--- response_headers
RateLimit-Policy: "all";q=5;w=86400



=== a key with "=" in it
--- config
    ratelimit limit=5/1d key=a=$arg_k=b;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== an empty key of a rule: the rule is not accounted
--- config
    ratelimit limit=5/1d key=;
    ratelimit limit=6/2d "key=";
--- response_headers
!RateLimit-Policy



=== a cost of nothing
--- config
    ratelimit limit=5/1d cost=0;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



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



=== names that are taken for granted: default ones give way
--- config
    ratelimit limit=5/1d;
    ratelimit limit=6/1d counter=default;
    ratelimit limit=7/1d name=default-1d counter=default;
    ratelimit limit=8/1d name=default-1d-3 counter=default;
--- response_headers
RateLimit-Policy: "default-1d-2";q=5;w=86400, "default-1d-4";q=6;w=86400, "default-1d";q=7;w=86400, "default-1d-3";q=8;w=86400



=== one name on two levels
--- config
    ratelimit limit=5/1d name=same;
    location /t {
        ratelimit limit=5/1d name=same;
        empty_gif;
    }
--- request
GET /t
--- response_headers
RateLimit-Policy: "same";q=5;w=86400



=== names that differ by case
--- config
    ratelimit limit=5/1d name=a;
    ratelimit limit=6/1d name=A counter=default;
--- response_headers
RateLimit-Policy: "a";q=5;w=86400, "A";q=6;w=86400



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



=== every status from the first to the last
--- config
    ratelimit_status 400;
    ratelimit limit=5/1d;
    location /a { ratelimit_status 599; }
    location /b { ratelimit_status 444; }
    location /c { ratelimit_status 499; }
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== every log level
--- config
    ratelimit_log_level info;
    ratelimit limit=5/1d;
    location /a { ratelimit_log_level notice; }
    location /b { ratelimit_log_level warn; }
    location /c { ratelimit_log_level error; }
    location /d { ratelimit_log_level off; }
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



=== no jitter, the shortest and the longest
--- config
    ratelimit_retry_after_jitter 0;
    ratelimit limit=5/1d;
    location /a { ratelimit_retry_after_jitter 0.001; }
    location /b { ratelimit_retry_after_jitter 1d; }
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== every directive, and no rule
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_key $arg_k;
    ratelimit_count_rejected on;
    ratelimit_status 503;
    ratelimit_dry_run on;
    ratelimit_log_level warn;
    ratelimit_headers legacy;
    ratelimit_retry_after_jitter 10s;
    ratelimit_phase precontent;
--- response_headers
!X-RateLimit-Limit-Day



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



=== a zone of bytes
--- http_config
    ratelimit_zone zone=counters:40961;
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== rules in a location that nothing reaches, and none elsewhere
--- config
    location /t { ratelimit limit=5/1d; }
--- response_headers
!RateLimit-Policy



=== "off" on a level with nothing to end
--- config
    ratelimit off;
    location /t {
        ratelimit off;
        empty_gif;
    }
--- request
GET /t
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
