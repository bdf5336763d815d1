//! Tests of odd rules and options that are accepted.

use super::{check, check_in_server};

#[test]
fn an_odd_configuration_is_accepted() {
    check(&[
        (
            "no rules at all",
            "server {\n\
             ratelimit off;\n\
             }",
            "",
        ),
        (
            "a zone that nothing uses",
            "ratelimit_zone zone=counters:1m;\n\
             server { }",
            "",
        ),
        (
            "several zones that nothing uses",
            "ratelimit_zone zone=one:1m;\n\
             ratelimit_zone zone=two:1m;\n\
             server { }",
            "",
        ),
        (
            "the smallest zone",
            "ratelimit_zone zone=counters:32k;\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a zone with the longest name, of every kind of character",
            "ratelimit_zone \
             zone=Zone_with-a.name_of-64.characters.Zone_with-a.name_of-64.charac0:1024K;\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a zone after its use",
            "ratelimit limit=5/1d;\n\
             ratelimit_zone zone=counters:1m;\n\
             server { }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "directives without rules",
            "ratelimit_key $arg_k;\n\
             ratelimit_headers ietf;\n\
             server { }",
            "",
        ),
        (
            "directives on every level",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_key $arg_a;\n\
             ratelimit_headers off;\n\
             ratelimit limit=5/1d;\n\
             server {\n\
             ratelimit_key $arg_b;\n\
             ratelimit_headers off;\n\
             ratelimit limit=5/2d;\n\
             location /t {\n\
             ratelimit_key $arg_c;\n\
             ratelimit_headers ietf;\n\
             ratelimit limit=5/3d;\n\
             empty_gif;\n\
             }\n\
             }",
            "server: \"default-2d\";q=5;w=172800\n\
             location /t: \"default-3d\";q=5;w=259200",
        ),
        (
            "every directive, and no rule",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_key $arg_k;\n\
             ratelimit_count_rejected on;\n\
             ratelimit_status 503;\n\
             ratelimit_dry_run on;\n\
             ratelimit_log_level warn;\n\
             ratelimit_headers legacy;\n\
             ratelimit_retry_after_jitter 10s;\n\
             ratelimit_phase precontent;\n\
             server { }",
            "",
        ),
        (
            "every directive on every level",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_count_rejected on;\n\
             ratelimit_status 503;\n\
             ratelimit_dry_run on;\n\
             ratelimit_log_level warn;\n\
             ratelimit_retry_after_jitter 10s;\n\
             ratelimit_phase precontent;\n\
             ratelimit limit=5/1d;\n\
             server {\n\
             ratelimit_count_rejected off;\n\
             ratelimit_status 500;\n\
             ratelimit_dry_run off;\n\
             ratelimit_log_level info;\n\
             ratelimit_retry_after_jitter 0.5;\n\
             ratelimit_phase preaccess;\n\
             location /t {\n\
             ratelimit_count_rejected on;\n\
             ratelimit_status 429;\n\
             ratelimit_dry_run on;\n\
             ratelimit_log_level error;\n\
             ratelimit_retry_after_jitter 0;\n\
             ratelimit_phase precontent;\n\
             empty_gif;\n\
             }\n\
             }",
            "server: \"default-1d\";q=5;w=86400\n\
             location /t: \"default-1d\";q=5;w=86400",
        ),
        (
            "a zone beside another module's zone",
            "limit_req_zone $binary_remote_addr zone=requests:1m rate=1000r/s;\n\
             ratelimit_zone zone=counters:1m;\n\
             limit_conn_zone $binary_remote_addr zone=connections:1m;\n\
             server {\n\
             limit_req zone=requests;\n\
             limit_conn connections 10;\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a zone of bytes",
            "ratelimit_zone zone=counters:40961;\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
    ]);
    check_in_server(&[
        (
            "the namespace \"default\" by its name",
            "ratelimit default limit=5/1d;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "the smallest and the largest window",
            "ratelimit limit=5/1ms limit=6/366d;",
            "server: \"default-1ms\";q=5, \"default-366d\";q=6;w=31622400",
        ),
        (
            "windows of bare seconds",
            "ratelimit limit=5/10 limit=6/0.5 limit=7/1.0;",
            "server: \"default-10\";q=5;w=10, \"default-0.5\";q=6, \"default-1.0\";q=7;w=1",
        ),
        (
            "windows of several units",
            "ratelimit limit=5/1h30m limit=6/1d12h limit=7/1m30;",
            "server: \"default-1h30m\";q=5;w=5400, \"default-1d12h\";q=6;w=129600, \
             \"default-1m30\";q=7;w=90",
        ),
        (
            "a minute, a month, a year",
            "ratelimit limit=5/1m limit=6/1M limit=7/1y;",
            "[warn] ratelimit: in \"1M\", M is a month of 30 days: a minute is m, as in 1m in \
             http.conf:1\n\
             server: \"default-1m\";q=5;w=60, \"default-1M\";q=6;w=2592000, \
             \"default-1y\";q=7;w=31536000",
        ),
        (
            "the fewest and very many hits",
            "ratelimit limit=100000000000.999/1d;\n\
             location /few { ratelimit limit=0.001/1d counter=few cost=0.001; }",
            "server: \"default-1d\";q=100000000000;w=86400\n\
             location /few: \"default-1d\";q=0;w=86400",
        ),
        (
            "more decimals than are counted",
            "ratelimit limit=1.9996/1d;",
            "server: \"default-1d\";q=2;w=86400",
        ),
        (
            "parameters in any order",
            "ratelimit limit=5/1d window=fixed limit=6/2d;",
            "server: \"default-1d\";q=5;w=86400, \"default-2d\";q=6;w=172800",
        ),
        (
            "many rules",
            "ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;\n\
             ratelimit limit=50/1d;",
            "server: \"default-1d\";q=50;w=86400, \"default-1d-2\";q=50;w=86400, \
             \"default-1d-3\";q=50;w=86400, \"default-1d-4\";q=50;w=86400, \
             \"default-1d-5\";q=50;w=86400, \"default-1d-6\";q=50;w=86400, \
             \"default-1d-7\";q=50;w=86400, \"default-1d-8\";q=50;w=86400, \
             \"default-1d-9\";q=50;w=86400, \"default-1d-10\";q=50;w=86400",
        ),
        (
            "a key of text and variables",
            "ratelimit_key \"a key: ${remote_addr}_$uri\";\n\
             ratelimit limit=5/1d;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a key that is a variable in braces",
            "ratelimit_key ${arg_k};\n\
             ratelimit limit=5/1d;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a key that is a capture",
            "location ~ ^/(\\w+) {\n\
             ratelimit_key $1;\n\
             ratelimit limit=5/1d;\n\
             empty_gif;\n\
             }",
            "location ~ ^/(\\w+): \"default-1d\";q=5;w=86400",
        ),
        (
            "a limit below a hit, with variable costs",
            "ratelimit limit=0.5/1d cost=$arg_c;",
            "server: \"default-1d\";q=0;w=86400",
        ),
        (
            "hits of a variable",
            "ratelimit limit=$arg_limit/1d;",
            "server: \"default-1d\";q=$arg_limit",
        ),
        (
            "hits of text and variables",
            "ratelimit limit=${arg_limit}0.5/1d limit=1$arg_limit/2d;",
            "server: \"default-1d\";q=${arg_limit}0.5, \"default-2d\";q=1$arg_limit",
        ),
        (
            "hits of a capture",
            "location ~ ^/(\\d)(\\d) {\n\
             ratelimit limit=$2$1/1d;\n\
             empty_gif;\n\
             }",
            "location ~ ^/(\\d)(\\d): \"default-1d\";q=$2$1",
        ),
        (
            "two limits with one window",
            "ratelimit limit=5/1d limit=6/1d limit=6/1d;",
            "server: \"default-1d\";q=5;w=86400, \"default-1d-2\";q=6;w=86400, \
             \"default-1d-3\";q=6;w=86400",
        ),
        (
            "a key, a cost, a window type and a name in one rule",
            "ratelimit default name=all cost=0.5 window=fixed key=$arg_k limit=5/1d;",
            "server: \"all\";q=5;w=86400",
        ),
        (
            "a key with \"=\" in it",
            "ratelimit limit=5/1d key=a=$arg_k=b;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        ("a cost of nothing", "ratelimit limit=5/1d cost=0;", "server: \"default-1d\";q=5;w=86400"),
        (
            "a cost that is the limit",
            "ratelimit limit=100000000000/1d cost=100000000000;",
            "server: \"default-1d\";q=100000000000;w=86400",
        ),
        (
            "a cost of text and variables",
            "ratelimit limit=5/1d cost=${arg_c}.5;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "a charge of a number, and one of a variable",
            "ratelimit limit=5/1d charge=0.5;\n\
             ratelimit limit=6/2d charge=$request_time;",
            "server: \"default-1d\";q=5;w=86400, \"default-2d\";q=6;w=172800",
        ),
        (
            "an estimate and its charge",
            "ratelimit limit=5/1d cost=2 charge=$request_time;\n\
             ratelimit limit=6/2d charge=0.5 cost=$arg_c;",
            "server: \"default-1d\";q=5;w=86400, \"default-2d\";q=6;w=172800",
        ),
        (
            "names of any printable characters",
            "ratelimit limit=5/1d \"name=a b; #{}'(,)=/\";",
            "server: \"a b; #{}'(,)=/\";q=5;w=86400",
        ),
        (
            "names that are taken for granted: default ones give way",
            "ratelimit limit=5/1d;\n\
             ratelimit limit=6/1d counter=default;\n\
             ratelimit limit=7/1d name=default-1d counter=default;\n\
             ratelimit limit=8/1d name=default-1d-3 counter=default;",
            "server: \"default-1d-2\";q=5;w=86400, \"default-1d-4\";q=6;w=86400, \
             \"default-1d\";q=7;w=86400, \"default-1d-3\";q=8;w=86400",
        ),
        (
            "one name on two levels",
            "ratelimit limit=5/1d name=same;\n\
             location /t {\n\
             ratelimit limit=5/1d name=same;\n\
             empty_gif;\n\
             }",
            "server: \"same\";q=5;w=86400\n\
             location /t: \"same\";q=5;w=86400",
        ),
        (
            "names that differ by case",
            "ratelimit limit=5/1d name=a;\n\
             ratelimit limit=6/1d name=A counter=default;",
            "server: \"a\";q=5;w=86400, \"A\";q=6;w=86400",
        ),
        (
            "a rule over several lines, with comments",
            "ratelimit # the namespace is \"default\"\n\
             limit=5/1d\n\
             limit=6/2d # a day more\n\
             window=fixed\n\
             ;",
            "server: \"default-1d\";q=5;w=86400, \"default-2d\";q=6;w=172800",
        ),
        (
            "a rule in quotes",
            "\"ratelimit\" \"limit=5/1d\" 'window=sliding';",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "every status from the first to the last",
            "ratelimit_status 400;\n\
             ratelimit limit=5/1d;\n\
             location /a { ratelimit_status 599; }\n\
             location /b { ratelimit_status 444; }\n\
             location /c { ratelimit_status 499; }",
            "server: \"default-1d\";q=5;w=86400\n\
             location /a: \"default-1d\";q=5;w=86400\n\
             location /b: \"default-1d\";q=5;w=86400\n\
             location /c: \"default-1d\";q=5;w=86400",
        ),
        (
            "every log level",
            "ratelimit_log_level info;\n\
             ratelimit limit=5/1d;\n\
             location /a { ratelimit_log_level notice; }\n\
             location /b { ratelimit_log_level warn; }\n\
             location /c { ratelimit_log_level error; }\n\
             location /d { ratelimit_log_level off; }",
            "server: \"default-1d\";q=5;w=86400\n\
             location /a: \"default-1d\";q=5;w=86400\n\
             location /b: \"default-1d\";q=5;w=86400\n\
             location /c: \"default-1d\";q=5;w=86400\n\
             location /d: \"default-1d\";q=5;w=86400",
        ),
        (
            "all headers, in any order",
            "ratelimit_headers legacy ietf draft03;\n\
             ratelimit limit=5/1d;",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "no jitter, the shortest and the longest",
            "ratelimit_retry_after_jitter 0;\n\
             ratelimit limit=5/1d;\n\
             location /a { ratelimit_retry_after_jitter 0.001; }\n\
             location /b { ratelimit_retry_after_jitter 1d; }",
            "server: \"default-1d\";q=5;w=86400\n\
             location /a: \"default-1d\";q=5;w=86400\n\
             location /b: \"default-1d\";q=5;w=86400",
        ),
        (
            "rules in a location that nothing reaches, and none elsewhere",
            "location /t { ratelimit limit=5/1d; }",
            "location /t: \"default-1d\";q=5;w=86400",
        ),
        (
            "\"off\" on a level with nothing to end",
            "ratelimit off;\n\
             location /t {\n\
             ratelimit off;\n\
             empty_gif;\n\
             }",
            "",
        ),
        (
            "rules of different limits that share a counter are warned of, once each, with both places",
            "ratelimit limit=5/1d;\n\
             location /a { ratelimit limit=6/1d; location /a/a { } if ($arg_x) { } }\n\
             location /b { ratelimit limit=7/1d counter=default; }\n\
             location /c { ratelimit limit=7/1d counter=c; }\n\
             location /d { ratelimit limit=5/24h window=fixed; }\n\
             location /e { ratelimit_key $uri; ratelimit limit=9/1d; }\n\
             location /f { ratelimit limit=9/1d key=$remote_addr; }\n\
             location /g { ratelimit limit=9/1d limit=5/1d; }\n\
             location /h { ratelimit_metrics; }",
            "[warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 1d: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:2\n\
             [warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 1d: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:7\n\
             [warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 1d: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:8\n\
             server: \"default-1d\";q=5;w=86400\n\
             location /a: \"default-1d\";q=6;w=86400\n\
             location /a/a: \"default-1d\";q=6;w=86400\n\
             if ($arg_x): \"default-1d\";q=6;w=86400\n\
             location /b: \"default-1d\";q=7;w=86400\n\
             location /c: \"default-1d\";q=7;w=86400\n\
             location /d: \"default-24h\";q=5;w=86400\n\
             location /e: \"default-1d\";q=9;w=86400\n\
             location /f: \"default-1d\";q=9;w=86400\n\
             location /g: \"default-1d\";q=9;w=86400, \"default-1d-2\";q=5;w=86400",
        ),
    ]);
}
