//! Tests of invalid rules.

use super::{check, check_in_server};

#[test]
fn a_rule_is_a_namespace_and_limits() {
    check(&[
        (
            "ratelimit: no zone to count in",
            "server {\n\
             ratelimit limit=5/10s;\n\
             }",
            "[emerg] namespace \"default\" has no zone for its counters: expected \
             \"ratelimit_zone zone=name:size;\" in http in http.conf:2",
        ),
        (
            "ratelimit: no namespace, and a choice of zones",
            "ratelimit_zone zone=one:1m;\n\
             ratelimit_zone zone=two:1m;\n\
             server {\n\
             ratelimit limit=5/10s;\n\
             }",
            "[emerg] namespace \"default\" has no zone, and there are 2: expected \"zone name;\" \
             in \"ratelimit_namespace default { ... }\" in http.conf:4",
        ),
    ]);
    check_in_server(&[
        (
            "ratelimit: an unknown namespace",
            "ratelimit api limit=5/10s;",
            "[emerg] ratelimit: unknown namespace \"api\": expected one that a \
             \"ratelimit_namespace\" block defines in http.conf:1",
        ),
        (
            "ratelimit: a namespace that cannot be one",
            "ratelimit a:b limit=5/10s;",
            "[emerg] ratelimit: invalid name \"a:b\" of a namespace: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit: \"off\" as a namespace",
            "ratelimit off limit=5/10s;",
            "[emerg] ratelimit: invalid name \"off\" of a namespace: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit: no arguments",
            "ratelimit;",
            "[emerg] ratelimit: no limit: expected at least one \"limit=hits/window\" in \
             http.conf:1",
        ),
        (
            "ratelimit: a namespace and no limit",
            "ratelimit default;",
            "[emerg] ratelimit: no limit: expected at least one \"limit=hits/window\" in \
             http.conf:1",
        ),
        (
            "ratelimit: parameters and no limit",
            "ratelimit window=fixed;",
            "[emerg] ratelimit: no limit: expected at least one \"limit=hits/window\" in \
             http.conf:1",
        ),
        (
            "ratelimit: an empty limit",
            "ratelimit limit=;",
            "[emerg] ratelimit: invalid parameter \"limit=\": a limit is \"hits/window\", such as \
             5/10s in http.conf:1",
        ),
        (
            "ratelimit: a limit without a window",
            "ratelimit limit=5;",
            "[emerg] ratelimit: invalid parameter \"limit=5\": a limit is \"hits/window\", such \
             as 5/10s in http.conf:1",
        ),
        (
            "ratelimit: a limit without hits",
            "ratelimit limit=/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=/10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: hits that are no number",
            "ratelimit limit=five/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=five/10s\": the hits are a decimal of \
             at least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: negative hits",
            "ratelimit limit=-5/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=-5/10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: hits with a sign",
            "ratelimit limit=+5/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=+5/10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: hits with an exponent",
            "ratelimit limit=5e3/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=5e3/10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal): did you mean \
             5000/10s? in http.conf:1",
        ),
        (
            "ratelimit: hits in groups of three digits",
            "ratelimit limit=1,000/1d;",
            "[emerg] ratelimit: invalid parameter \"limit=1,000/1d\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal): did you mean \
             1000/1d? in http.conf:1",
        ),
        (
            "ratelimit: a limit without its name",
            "ratelimit 10/1s;",
            "[emerg] ratelimit: invalid parameter \"10/1s\": did you mean limit=10/1s? in http.conf:1",
        ),
        (
            "ratelimit: a variable limit without its name, after a namespace",
            "ratelimit default $arg_limit/1m;",
            "[emerg] ratelimit: invalid parameter \"$arg_limit/1m\": did you mean \
             limit=$arg_limit/1m? in http.conf:1",
        ),
        (
            "ratelimit: a rate of limit_req without its name",
            "ratelimit 10r/s burst=5;",
            "[emerg] ratelimit: invalid parameter \"10r/s\": did you mean rate=10/1s? in http.conf:1",
        ),
        (
            "ratelimit: no end of the directive",
            "ratelimit limit=10/1s\n\
             try_files $uri =404;",
            "[emerg] ratelimit: \"try_files\" is a directive: expected \";\" before it in http.conf:2",
        ),
        (
            "ratelimit: hits with a point and nothing after it",
            "ratelimit limit=5./10s;",
            "[emerg] ratelimit: invalid parameter \"limit=5./10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal): did you mean 5/10s? \
             in http.conf:1",
        ),
        (
            "ratelimit: no hits",
            "ratelimit limit=0/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=0/10s\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable in http.conf:1",
        ),
        (
            "ratelimit: hits that round to none",
            "ratelimit limit=0.0004/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=0.0004/10s\": the hits are a decimal of \
             at least 0.001, such as 5 or 0.5, or a variable in http.conf:1",
        ),
        (
            "ratelimit: more hits than can be counted",
            "ratelimit limit=1000000000000/10s;",
            "[emerg] ratelimit: invalid parameter \"limit=1000000000000/10s\": the hits are a \
             decimal of at least 0.001, such as 5 or 0.5, or a variable (larger than \
             140737488355.327) in http.conf:1",
        ),
        (
            "ratelimit: a limit with an empty window",
            "ratelimit limit=5/;",
            "[emerg] ratelimit: invalid parameter \"limit=5/\": a window is a time from 1ms to \
             366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a window with an unknown unit",
            "ratelimit limit=5/10x;",
            "[emerg] ratelimit: invalid parameter \"limit=5/10x\": a window is a time from 1ms to \
             366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a window of nothing",
            "ratelimit limit=5/0;",
            "[emerg] ratelimit: invalid parameter \"limit=5/0\": a window is a time from 1ms to \
             366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a window of less than a millisecond",
            "ratelimit limit=5/0.0005;",
            "[emerg] ratelimit: invalid parameter \"limit=5/0.0005\": a window is a time from 1ms \
             to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a window of more than 366 days",
            "ratelimit limit=5/367d;",
            "[emerg] ratelimit: invalid parameter \"limit=5/367d\": a window is a time from 1ms \
             to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a negative window",
            "ratelimit limit=5/-10s;",
            "[emerg] ratelimit: invalid parameter \"limit=5/-10s\": a window is a time from 1ms \
             to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: a window with its units in the wrong order",
            "ratelimit limit=5/30m1h;",
            "[emerg] ratelimit: invalid parameter \"limit=5/30m1h\": a window is a time from 1ms \
             to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: two windows",
            "ratelimit limit=5/10s/20s;",
            "[emerg] ratelimit: invalid parameter \"limit=5/10s/20s\": a window is a time from \
             1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: the second of two limits",
            "ratelimit limit=5/10s limit=x/1m;",
            "[emerg] ratelimit: invalid parameter \"limit=x/1m\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: an unknown parameter",
            "ratelimit requests=5/10s;",
            "[emerg] ratelimit: invalid parameter \"requests=5/10s\": expected limit=hits/window, limits=, default=, \
             window=, tz=, rate=hits/time, burst=, delay=, concurrent=, key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name= in http.conf:1",
        ),
        (
            "ratelimit: a word that is no parameter",
            "ratelimit limit=5/10s fixed;",
            "[emerg] ratelimit: invalid parameter \"fixed\": expected limit=hits/window, limits=, default=, window=, tz=, rate=hits/time, burst=, delay=, concurrent=, \
             key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name=; or as the first word, and no other, a \
             namespace: \"ratelimit fixed limit=...\" in http.conf:1",
        ),
        (
            "ratelimit: a namespace that is not the first word",
            "ratelimit limit=5/10s default;",
            "[emerg] ratelimit: invalid parameter \"default\": expected limit=hits/window, limits=, default=, \
             window=, tz=, rate=hits/time, burst=, delay=, concurrent=, key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name=; or as the first word, and no \
             other, a namespace: \"ratelimit default limit=...\" in http.conf:1",
        ),
        (
            "ratelimit: \"off\" after a rule of its level",
            "ratelimit limit=5/10s;\n\
             ratelimit off;",
            "[emerg] ratelimit: \"off\" goes with no other \"ratelimit\" on its level in \
             http.conf:2",
        ),
        (
            "ratelimit: a rule after \"off\" on its level",
            "ratelimit off;\n\
             ratelimit limit=5/10s;",
            "[emerg] ratelimit: \"off\" goes with no other \"ratelimit\" on its level in \
             http.conf:2",
        ),
        (
            "ratelimit: \"off\" twice",
            "ratelimit off;\n\
             ratelimit off;",
            "[emerg] ratelimit: \"off\" goes with no other \"ratelimit\" on its level in \
             http.conf:2",
        ),
        (
            "ratelimit: a limit of a variable without a window",
            "ratelimit limit=$arg_limit;",
            "[emerg] ratelimit: invalid parameter \"limit=$arg_limit\": a limit is \
             \"hits/window\", such as 5/10s in http.conf:1",
        ),
        (
            "ratelimit: a window that is a variable",
            "ratelimit limit=5/$arg_window;",
            "[emerg] ratelimit: invalid parameter \"limit=5/$arg_window\": a window is a time \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: hits of a variable, and a window with an unknown unit",
            "ratelimit limit=$arg_limit/10x;",
            "[emerg] ratelimit: invalid parameter \"limit=$arg_limit/10x\": a window is a time \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month in http.conf:1",
        ),
        (
            "ratelimit: hits of a variable without a name",
            "ratelimit limit=$/1m;",
            "[emerg] ratelimit: invalid variable in \"$\": expected $name or ${name} after every \
             \"$\" in http.conf:1",
        ),
        (
            "ratelimit: hits of a variable with an open brace",
            "ratelimit limit=${/1m;",
            "[emerg] ratelimit: invalid variable in \"${\": expected $name or ${name} after every \
             \"$\" in http.conf:1",
        ),
        (
            "ratelimit: hits of a variable with another character",
            "ratelimit limit=${a-b}/1m;",
            "[emerg] ratelimit: invalid variable in \"${a-b}\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a limit whose word is very long",
            "ratelimit limit=<1200 x>/1m;",
            "[emerg] ratelimit: invalid parameter \
             \"limit=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": the hits are a decimal of at \
             least 0.001, such as 5 or 0.5, or a variable (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: a parameter that is very long",
            "ratelimit limit=5/1m <1200 x>;",
            "[emerg] ratelimit: invalid parameter \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected limit=hits/window, limits=, default=, \
             window=, tz=, rate=hits/time, burst=, delay=, concurrent=, key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name= in http.conf:1",
        ),
        (
            "ratelimit: a parameter that goes on in the next line",
            "ratelimit limit=5/1m \"key\n\
             1\";",
            "[emerg] ratelimit: invalid parameter \"key 1\": expected limit=hits/window, limits=, default=, window=, tz=, rate=hits/time, burst=, delay=, concurrent=, \
             key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name= in http.conf:2",
        ),
        (
            "ratelimit: quotes around half a parameter",
            "ratelimit limit=5/1d key=\"$remote_addr $uri\";",
            "[emerg] ratelimit: invalid parameter \"key=\"$remote_addr\": quotes go around a \
             whole parameter, as in \"key=a b\" in http.conf:1",
        ),
        (
            "ratelimit: what limit_req says",
            "ratelimit zone=one burst=5 nodelay;",
            "[emerg] ratelimit: parameter \"zone=one\" is of limit_req: expected \"zone name;\" \
             in a \"ratelimit_namespace\" block, whose name is the first word here in http.conf:1",
        ),
        (
            "ratelimit: two namespaces",
            "ratelimit default default limit=5/10s;",
            "[emerg] ratelimit: invalid parameter \"default\": expected limit=hits/window, limits=, default=, \
             window=, tz=, rate=hits/time, burst=, delay=, concurrent=, key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name=; or as the first word, and no \
             other, a namespace: \"ratelimit default limit=...\" in http.conf:1",
        ),
        (
            "ratelimit: an empty namespace",
            "ratelimit \"\" limit=5/10s;",
            "[emerg] ratelimit: invalid name \"\" of a namespace: expected 1 to 64 of A-Z, a-z, \
             0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit: \"off\" with a parameter",
            "ratelimit off key=$arg_k;",
            "[emerg] ratelimit: invalid name \"off\" of a namespace: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit: \"off\" after a limit",
            "ratelimit limit=5/10s off;",
            "[emerg] ratelimit: invalid parameter \"off\": expected limit=hits/window, limits=, default=, window=, tz=, rate=hits/time, burst=, delay=, concurrent=, \
             key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name= in http.conf:1",
        ),
    ]);
}
