//! Tests of odd namespaces that are accepted.

use super::{check, check_with_files};

#[test]
fn a_namespace_is_accepted() {
    check(&[
        (
            "an empty block",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "a namespace that is used before it is defined",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit api limit=5/1d;\n\
             ratelimit_namespace api { window_sizes 24h; }\n\
             server { }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "a zone and a store that are defined after the namespace",
            "ratelimit_namespace api { zone counters; store main; sync_rate -1; }\n\
             ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "directives, of which two have no effect",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api {\n\
             timeout 20ms;\n\
             on_error deny;\n\
             window_sizes 1d 1h;\n\
             sync_rate off;\n\
             store main;\n\
             zone counters;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "[warn] ratelimit_namespace \"api\": on_error has no effect without \"sync_rate 0;\" \
             in http.conf:5\n\
             [warn] ratelimit_namespace \"api\": timeout has no effect without \"sync_rate 0;\" \
             in http.conf:4\n\
             server: \"api-1d\";q=5;w=86400",
        ),
        (
            "a namespace that nothing uses",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api {\n\
             store main; sync_rate off; window_sizes 1s;\n\
             }\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "sync_rate: off with a store that nobody listens for",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; server 127.0.0.1:1; }\n\
             ratelimit_namespace api { store main; sync_rate off; }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "sync_rate: -1 needs no store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             sync_rate -1;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "sync_rate: any negative number needs no store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { sync_rate -0.5; }\n\
             ratelimit_namespace b { sync_rate -1000000; }\n\
             ratelimit_namespace c { sync_rate -0.0000001; }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "window_sizes: the same size twice",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1d 24h 86400 1d;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400",
        ),
        (
            "window_sizes: the smallest and the largest",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 1ms 366d;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/0.001 limit=6/366d;\n\
             }",
            "server: \"api-0.001\";q=5, \"api-366d\";q=6;w=31622400",
        ),
        (
            "window_sizes: a limit writes its window in its own way",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             window_sizes 90 1h;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/60m limit=6/1m30s;\n\
             }",
            "server: \"api-60m\";q=5;w=3600, \"api-1m30s\";q=6;w=90",
        ),
        (
            "timeout: the shortest and the longest",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api { timeout 0.001; }\n\
             ratelimit_namespace b { timeout 1m; sync_rate 0; store main; }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
            "[warn] ratelimit_namespace \"api\": timeout has no effect without \"sync_rate 0;\" \
             in http.conf:3\n\
             server: \"api-1d\";q=5;w=86400",
        ),
        (
            "several zones and namespaces",
            "ratelimit_zone zone=one:1m;\n\
             ratelimit_zone zone=two:1m;\n\
             ratelimit_namespace a { zone one; }\n\
             ratelimit_namespace b { zone two; }\n\
             ratelimit_namespace c { zone two; }\n\
             server {\n\
             ratelimit a limit=5/1d;\n\
             ratelimit b limit=6/1d;\n\
             ratelimit c limit=7/1d;\n\
             }",
            "server: \"a-1d\";q=5;w=86400, \"b-1d\";q=6;w=86400, \"c-1d\";q=7;w=86400",
        ),
        (
            "the namespace \"default\", defined",
            "ratelimit_zone zone=one:1m;\n\
             ratelimit_zone zone=two:1m;\n\
             ratelimit_namespace default { zone two; window_sizes 1d; }\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             ratelimit default limit=6/1d counter=default;\n\
             }",
            "server: \"default-1d\";q=5;w=86400, \"default-1d-2\";q=6;w=86400",
        ),
        (
            "a zone, a store and a namespace of one name",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store counters { strategy redis; }\n\
             ratelimit_namespace counters { zone counters; store counters; sync_rate off; }\n\
             server {\n\
             ratelimit counters limit=5/1d;\n\
             }",
            "server: \"counters-1d\";q=5;w=86400",
        ),
        (
            "the longest name, of every kind of character",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara \
             { }\n\
             server {\n\
             ratelimit Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara \
             limit=5/1d;\n\
             }",
            "server: \
             \"Space_with-a.name_of-64.characters.Space_with-a.name_of-64.chara-1d\";q=5;w=86400",
        ),
        (
            "names that differ by case",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { }\n\
             ratelimit_namespace API { }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             ratelimit API limit=6/1d;\n\
             }",
            "server: \"api-1d\";q=5;w=86400, \"API-1d\";q=6;w=86400",
        ),
        (
            "names that are words of other directives",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace zone { zone counters; }\n\
             ratelimit_namespace on { }\n\
             ratelimit_namespace 0 { }\n\
             server {\n\
             ratelimit zone limit=5/1d;\n\
             ratelimit on limit=6/1d;\n\
             ratelimit 0 limit=7/1d;\n\
             }",
            "server: \"zone-1d\";q=5;w=86400, \"on-1d\";q=6;w=86400, \"0-1d\";q=7;w=86400",
        ),
        (
            "sync_rate: a time, though the store is not there",
            "ratelimit_zone zone=counters:3m;\n\
             ratelimit_store away { strategy redis; server 127.0.0.1:1; }\n\
             ratelimit_namespace seconds { store away; sync_rate 0.5; sync_early 5%; on_loss share; }\n\
             ratelimit_namespace minute { store away; sync_rate 1m; }\n\
             ratelimit_namespace shortest { store away; sync_rate 1ms; }\n\
             server {\n\
             ratelimit seconds limit=5/1d;\n\
             }",
            "server: \"seconds-1d\";q=5;w=86400",
        ),
        (
            "sync_rate: 0 with a Redis Cluster, though it is not there",
            "ratelimit_zone zone=counters:5m;\n\
             ratelimit_store away { strategy redis; server 127.0.0.1:1; cluster on; }\n\
             ratelimit_namespace many { store away; sync_rate 0; reserve on; }\n\
             server {\n\
             ratelimit many limit=5/1d;\n\
             }",
            "server: \"many-1d\";q=5;w=86400",
        ),
        (
            "sync_rate: a time above a tenth of the smallest window",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api { store main;\n\
             sync_rate 1s;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/10s limit=6/9s;\n\
             }",
            "[warn] ratelimit_namespace \"api\": sync_rate 1 is above a tenth of the smallest \
             window, 9s: within it, nodes learn late of each other's hits in http.conf:4\n\
             server: \"api-10s\";q=5;w=10, \"api-9s\";q=6;w=9",
        ),
    ]);
    check_with_files(&[(
        "directives in a file that is included",
        &[
            ("api.conf", b"zone counters;\ninclude windows.conf;\n"),
            ("windows.conf", b"window_sizes 1d;\nstore main;\n"),
        ],
        "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api {\n\
             include api.conf;\n\
             timeout 1;\n\
             }\n\
             server {\n\
             ratelimit api limit=5/1d;\n\
             }",
        "[warn] ratelimit_namespace \"api\": store \"main\" is not used without a sync_rate: \
             add \"sync_rate time;\", or \"sync_rate 0;\", or \"sync_rate off;\" if that is meant \
             in windows.conf:2\n\
             [warn] ratelimit_namespace \"api\": timeout has no effect without \"sync_rate 0;\" \
             in http.conf:5\n\
             server: \"api-1d\";q=5;w=86400",
    )]);
}
