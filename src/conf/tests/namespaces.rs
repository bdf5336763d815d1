//! Tests of invalid directives of a namespace.

use super::{check, check_in_namespace};

#[test]
fn a_zone_is_named() {
    check_in_namespace(&[
        (
            "zone: no name",
            "zone;",
            "[emerg] ratelimit_namespace \"api\": \"zone\" takes one word, not 0: 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "zone: two names",
            "zone counters others;",
            "[emerg] ratelimit_namespace \"api\": \"zone\" takes one word, not 2: 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "zone: twice",
            "zone counters;\n\
             zone counters;",
            "[emerg] ratelimit_namespace \"api\": \"zone\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "zone: a name that cannot be one",
            "zone a/b;",
            "[emerg] ratelimit_namespace \"api\": invalid zone \"a/b\": expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "zone: \"off\"",
            "zone off;",
            "[emerg] ratelimit_namespace \"api\": invalid zone \"off\": expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "zone: a name that is very long",
            "zone <1200 x>;",
            "[emerg] ratelimit_namespace \"api\": invalid zone \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected 1 to 64 of A-Z, a-z, \
             0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "zone: a name that goes on in the next line",
            "zone \"a\n\
             b\";",
            "[emerg] ratelimit_namespace \"api\": invalid zone \"a b\": expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
    ]);
    check(&[
        (
            "zone: one that is not defined",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { zone other; }",
            "[emerg] ratelimit_namespace \"api\": unknown zone \"other\": expected one that \
             \"ratelimit_zone zone=name:size;\" defines in http.conf:2",
        ),
        (
            "zone: one of another module",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { zone requests; }\n\
             limit_req_zone $binary_remote_addr zone=requests:1m rate=1r/s;",
            "[emerg] ratelimit_namespace \"api\": unknown zone \"requests\": expected one that \
             \"ratelimit_zone zone=name:size;\" defines in http.conf:2",
        ),
        (
            "no zone, though there are several",
            "ratelimit_zone zone=one:1m;\n\
             ratelimit_zone zone=two:1m;\n\
             ratelimit_namespace api { }",
            "[emerg] namespace \"api\" has no zone, and there are 2: expected \"zone name;\" in \
             \"ratelimit_namespace api { ... }\" in http.conf:3",
        ),
        (
            "no zone, since there is none",
            "# no ratelimit_zone\n\
             ratelimit_namespace api { }",
            "[emerg] namespace \"api\" has no zone for its counters: expected \"ratelimit_zone \
             zone=name:size;\" in http in http.conf:2",
        ),
    ]);
}

#[test]
fn a_store_is_named() {
    check_in_namespace(&[
        (
            "store: no name",
            "store;",
            "[emerg] ratelimit_namespace \"api\": \"store\" takes one word, not 0: 1 to 64 of \
             A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "store: two names",
            "store main other;",
            "[emerg] ratelimit_namespace \"api\": \"store\" takes one word, not 2: 1 to 64 of \
             A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "store: twice",
            "store main;\n\
             store main;",
            "[emerg] ratelimit_namespace \"api\": \"store\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "store: \"off\", which is no name",
            "store off;",
            "[emerg] ratelimit_namespace \"api\": invalid store \"off\": expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "store: an address in place of a name",
            "store 127.0.0.1:6379;",
            "[emerg] ratelimit_namespace \"api\": invalid store \"127.0.0.1:6379\": expected 1 to \
             64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
    ]);
    check(&[
        (
            "store: one that is not defined",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api { store other; }",
            "[warn] ratelimit_namespace \"api\": store \"other\" is not used without a sync_rate: \
             add \"sync_rate time;\", or \"sync_rate 0;\", or \"sync_rate off;\" if that is meant \
             in http.conf:3\n\
             [emerg] ratelimit_namespace \"api\": unknown store \"other\": expected one that a \
             \"ratelimit_store\" block defines in http.conf:3",
        ),
        (
            "store: one that is not defined, in a local namespace that nothing uses",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api { store other; sync_rate off; }",
            "[emerg] ratelimit_namespace \"api\": unknown store \"other\": expected one that a \
             \"ratelimit_store\" block defines in http.conf:3",
        ),
    ]);
}

#[test]
fn a_sync_rate_is_off_or_a_time() {
    check_in_namespace(&[
        (
            "sync_rate: none",
            "sync_rate;",
            "[emerg] ratelimit_namespace \"api\": \"sync_rate\" takes one word, not 0: off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: two",
            "sync_rate 0 off;",
            "[emerg] ratelimit_namespace \"api\": \"sync_rate\" takes one word, not 2: off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: twice",
            "sync_rate off;\n\
             sync_rate off;",
            "[emerg] ratelimit_namespace \"api\": \"sync_rate\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "sync_rate: a word",
            "sync_rate abc;",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"abc\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: \"on\"",
            "sync_rate on;",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"on\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: an empty word",
            "sync_rate \"\";",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: less than a millisecond",
            "sync_rate 0.0001;",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"0.0001\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: an unknown unit",
            "sync_rate 1x;",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"1x\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
        (
            "sync_rate: a negative word that is no number",
            "sync_rate -off;",
            "[emerg] ratelimit_namespace \"api\": invalid sync_rate \"-off\": expected off or a \
             negative number, 0, or a time from 1ms to 366d, such as 500ms or 0.5 in http.conf:1",
        ),
    ]);
    check(&[
        (
            "sync_rate: 0 needs a store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { sync_rate 0; }",
            "[emerg] ratelimit_namespace \"api\": sync_rate 0 needs a store: add \"store name;\", \
             or set \"sync_rate off;\" in http.conf:2",
        ),
        (
            "sync_rate: a time needs a store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { sync_rate 0.5; }",
            "[emerg] ratelimit_namespace \"api\": sync_rate 0.5 needs a store: add \"store \
             name;\", or set \"sync_rate off;\" in http.conf:2",
        ),
        (
            "sync_rate: a time with a unit needs a store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { sync_rate 1h; }",
            "[emerg] ratelimit_namespace \"api\": sync_rate 3600 needs a store: add \"store \
             name;\", or set \"sync_rate off;\" in http.conf:2",
        ),
    ]);
}

#[test]
fn windows_are_listed_or_any() {
    check_in_namespace(&[
        (
            "window_sizes: none",
            "window_sizes;",
            "[emerg] ratelimit_namespace \"api\": \"window_sizes\" takes at least one word: times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: twice",
            "window_sizes 1s;\n\
             window_sizes 1m;",
            "[emerg] ratelimit_namespace \"api\": \"window_sizes\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "window_sizes: 0",
            "window_sizes 0;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"0\": expected times from \
             1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: less than a millisecond",
            "window_sizes 1s 0.0005;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"0.0005\": expected times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: more than 366 days",
            "window_sizes 1s 367d;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"367d\": expected times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: a negative one",
            "window_sizes -1s 1m;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"-1s\": expected times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: a list with commas",
            "window_sizes 1s,1m;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"1s,1m\": expected times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
        (
            "window_sizes: \"off\"",
            "window_sizes off;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"off\": expected times \
             from 1ms to 366d, such as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month, and tz=name behind these in http.conf:1",
        ),
    ]);
    check(&[
        (
            "window_sizes: a limit with another window",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1s 1m;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/2s;\n\
             }",
            "[emerg] ratelimit: the window 2s is not one of the window_sizes of namespace \
             \"api\": expected 1s, 1m in http.conf:6",
        ),
        (
            "window_sizes: a limit with another window before the namespace is defined",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit api limit=5/1h;\n\
             ratelimit_namespace api { window_sizes 1s 1m; }",
            "[emerg] ratelimit: the window 1h is not one of the window_sizes of namespace \
             \"api\": expected 1s, 1m in http.conf:2",
        ),
        (
            "window_sizes: another window in the second limit of the second rule",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1s 1m;\n\
             }\n\
             server {\n\
             location /t {\n\
             ratelimit api limit=5/1s limit=5/1m;\n\
             ratelimit api limit=5/1s limit=5/1d;\n\
             }\n\
             }",
            "[emerg] ratelimit: the window 1d is not one of the window_sizes of namespace \
             \"api\": expected 1s, 1m in http.conf:8",
        ),
        (
            "window_sizes: another window of a limit with variable hits",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1s 1m;\n\
             }\n\
             server {\n\
             ratelimit api limit=$arg_limit/2s;\n\
             }",
            "[emerg] ratelimit: the window 2s is not one of the window_sizes of namespace \
             \"api\": expected 1s, 1m in http.conf:6",
        ),
        (
            "window_sizes: another window is named as it is written",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1s 1m;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/120;\n\
             }",
            "[emerg] ratelimit: the window 120 is not one of the window_sizes of namespace \
             \"api\": expected 1s, 1m in http.conf:6",
        ),
        (
            "window_sizes: another window in the namespace \"default\"",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace default { window_sizes 1s; }\n\
             server {\n\
             ratelimit limit=5/1m;\n\
             }",
            "[emerg] ratelimit: the window 1m is not one of the window_sizes of namespace \
             \"default\": expected 1s in http.conf:4",
        ),
    ]);
}

#[test]
fn on_error_is_one_of_three_words() {
    check_in_namespace(&[
        (
            "on_error: none",
            "on_error;",
            "[emerg] ratelimit_namespace \"api\": \"on_error\" takes one word, not 0: local, \
             allow or deny in http.conf:1",
        ),
        (
            "on_error: two",
            "on_error allow deny;",
            "[emerg] ratelimit_namespace \"api\": \"on_error\" takes one word, not 2: local, \
             allow or deny in http.conf:1",
        ),
        (
            "on_error: twice",
            "on_error allow;\n\
             on_error deny;",
            "[emerg] ratelimit_namespace \"api\": \"on_error\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "on_error: an unknown one",
            "on_error ignore;",
            "[emerg] ratelimit_namespace \"api\": invalid on_error \"ignore\": expected local, \
             allow or deny in http.conf:1",
        ),
        (
            "on_error: in upper case",
            "on_error Deny;",
            "[emerg] ratelimit_namespace \"api\": invalid on_error \"Deny\": expected local, \
             allow or deny in http.conf:1",
        ),
        (
            "timeout: none",
            "timeout;",
            "[emerg] ratelimit_namespace \"api\": \"timeout\" takes one word, not 0: a time from \
             1ms to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
        (
            "timeout: two",
            "timeout 10ms 20ms;",
            "[emerg] ratelimit_namespace \"api\": \"timeout\" takes one word, not 2: a time from \
             1ms to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
        (
            "timeout: twice",
            "timeout 10ms;\n\
             timeout 10ms;",
            "[emerg] ratelimit_namespace \"api\": \"timeout\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "timeout: 0",
            "timeout 0;",
            "[emerg] ratelimit_namespace \"api\": invalid timeout \"0\": expected a time from 1ms \
             to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
        (
            "timeout: a negative one",
            "timeout -1;",
            "[emerg] ratelimit_namespace \"api\": invalid timeout \"-1\": expected a time from \
             1ms to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
        (
            "timeout: a word",
            "timeout soon;",
            "[emerg] ratelimit_namespace \"api\": invalid timeout \"soon\": expected a time from \
             1ms to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
        (
            "timeout: more than a minute",
            "timeout 61;",
            "[emerg] ratelimit_namespace \"api\": invalid timeout \"61\": expected a time from \
             1ms to 1m, such as 50ms or 0.05 in http.conf:1",
        ),
    ]);
}

#[test]
fn a_directive_may_go_with_one_kind_of_sync_alone() {
    check_in_namespace(&[
        (
            "sync_early: none",
            "sync_early;",
            "[emerg] ratelimit_namespace \"api\": \"sync_early\" takes one word, not 0: off, or a \
             share of the limit from 0.1% to 50%, such as 2% in http.conf:1",
        ),
        (
            "sync_early: without a period",
            "store main;\n\
             sync_early 5%;\n\
             sync_rate 0;",
            "[emerg] ratelimit_namespace \"api\": sync_early does not go with sync_rate 0: expected \
             a sync_rate above 0, such as \"sync_rate 0.5;\", or no sync_early in http.conf:2",
        ),
        (
            "on_loss: none",
            "on_loss;",
            "[emerg] ratelimit_namespace \"api\": \"on_loss\" takes one word, not 0: local or share \
             in http.conf:1",
        ),
        (
            "on_loss: without a period",
            "sync_rate off;\n\
             on_loss share;",
            "[emerg] ratelimit_namespace \"api\": on_loss does not go with sync_rate off: expected a \
             sync_rate above 0, such as \"sync_rate 0.5;\", or no on_loss in http.conf:2",
        ),
        (
            "reserve: none",
            "reserve;",
            "[emerg] ratelimit_namespace \"api\": \"reserve\" takes one word, not 0: on or off in \
             http.conf:1",
        ),
        (
            "reserve: with a period",
            "store main; sync_rate 1;\n\
             reserve on;",
            "[emerg] ratelimit_namespace \"api\": reserve needs \"sync_rate 0;\", and it is 1: hits \
             are charged ahead only where each is asked for in http.conf:2",
        ),
    ]);
}
