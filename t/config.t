# What the configuration accepts. Wrong ones keep nginx from starting: one
# [emerg] line names the wrong word, says what would be right, and where it is.
# Odd but legal ones start.
#
# In a block that must die, the section error_log lists the parts of that line,
# in their order; `[no place]` stands for nginx's own messages that have none.

use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub {
    my ($block) = @_;
    $block->set_value(http_config => 'ratelimit_zone zone=counters:1m;')
        if !defined $block->http_config;
    $block->set_value(config => '') if !defined $block->config;

    if (defined $block->must_die) {
        my @parts = split /\n/, $block->error_log;
        my $place = ' in \S+/nginx\.conf:\d+$';
        ($place) = ('', pop @parts) if $parts[-1] eq '[no place]';
        my $line = join '.*', '\[emerg\]', map { quotemeta } @parts;
        $block->set_value(error_log          => qr/$line.*$place/);
        $block->set_value(grep_error_log     => '[emerg]');
        $block->set_value(grep_error_log_out => "[emerg]\n");
        $block->set_value(suppress_stderr    => 1);
    }
    else {
        $block->set_value(request      => 'GET /') if !defined $block->request;
        $block->set_value(no_error_log => [qr/\[(?:emerg|alert|crit|warn)\]/]);
    }
});

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
a number of bytes, or of k or m



=== ratelimit_zone: a size with an unknown unit
--- http_config
    ratelimit_zone zone=counters:10x;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:10x"
a number of bytes, or of k or m



=== ratelimit_zone: a negative size
--- http_config
    ratelimit_zone zone=counters:-1m;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:-1m"
a number of bytes, or of k or m



=== ratelimit_zone: a size with a fraction
--- http_config
    ratelimit_zone zone=counters:1.5m;
--- must_die
--- error_log
ratelimit_zone: invalid size in "zone=counters:1.5m"
a number of bytes, or of k or m



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
    ratelimit_zone zone=counters:1m;
--- must_die
--- error_log
ratelimit_zone: zone "counters" is duplicate



=== ratelimit_zone: a name that is taken with another size
--- http_config
    ratelimit_zone zone=counters:1m;
    ratelimit_zone zone=counters:2m;
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
    ratelimit off;
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: a rule after "off" on its level
--- config
    ratelimit off;
    ratelimit limit=5/10s;
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: "off" twice
--- config
    ratelimit off;
    ratelimit off;
--- must_die
--- error_log
ratelimit: "off" goes with no other "ratelimit" on its level



=== ratelimit: within "if"
--- config
    location /t { if ($arg_k) { ratelimit limit=5/10s; } }
--- must_die
--- error_log
"ratelimit" directive is not allowed here



=== ratelimit_key: twice on a level
--- config
    ratelimit_key $arg_a;
    ratelimit_key $arg_b;
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
    ratelimit_headers off;
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
--- response_headers
RateLimit-Policy: "default-1m";q=5;w=60, "default-1M";q=6;w=2592000, "default-1y";q=7;w=31536000



=== the fewest and very many hits
--- config
    ratelimit limit=100000000000.999/1d;
    location /few { ratelimit limit=0.001/1d; }
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
