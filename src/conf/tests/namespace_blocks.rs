//! Tests of namespaces as blocks: their names, and included files.

use super::{check, check_in_namespace, check_with_files};

#[test]
fn a_block_has_a_name_and_known_directives() {
    check_in_namespace(&[
        (
            "an unknown directive",
            "rate 5;",
            "[emerg] ratelimit_namespace \"api\": unknown directive \"rate\": expected one of \
             zone, store, sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss in http.conf:1",
        ),
        (
            "an unknown directive that is very long",
            "<1200 x> 5;",
            "[emerg] ratelimit_namespace \"api\": unknown directive \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected one of zone, store, \
             sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss in http.conf:1",
        ),
        (
            "a directive of a store",
            "strategy redis;",
            "[emerg] ratelimit_namespace \"api\": unknown directive \"strategy\": expected one of \
             zone, store, sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss in http.conf:1",
        ),
        (
            "a directive in upper case",
            "Zone counters;",
            "[emerg] ratelimit_namespace \"api\": unknown directive \"Zone\": expected one of \
             zone, store, sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss in http.conf:1",
        ),
        (
            "a parameter in place of a directive",
            "zone=counters;",
            "[emerg] ratelimit_namespace \"api\": unknown directive \"zone...\": expected one of \
             zone, store, sync_rate, window_sizes, on_error, timeout, reserve, sync_early, on_loss in http.conf:1",
        ),
        (
            "a directive without a semicolon",
            "zone counters\n\
             store main;",
            "[emerg] ratelimit_namespace \"api\": \"zone\" takes one word, not 3: 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "include: no file",
            "include;",
            "[emerg] ratelimit_namespace \"api\": \"include\" takes one word, not 0: a file in \
             http.conf:1",
        ),
        (
            "include: two files",
            "include a.conf b.conf;",
            "[emerg] ratelimit_namespace \"api\": \"include\" takes one word, not 2: a file in \
             http.conf:1",
        ),
    ]);
    check_with_files(&[
        (
            "include: what is wrong in the file is found there",
            &[("api.conf", b"zone counters;\non_error ignore;\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis; } \
             ratelimit_namespace api { include api.conf;\n\
             }",
            "[emerg] ratelimit_namespace \"api\": invalid on_error \"ignore\": expected local, \
             allow or deny in api.conf:2",
        ),
        (
            "include: a duplicate of what is in the file",
            &[("api.conf", b"zone counters;\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis; } \
             ratelimit_namespace api { include api.conf;\n\
             zone counters;\n\
             }",
            "[emerg] ratelimit_namespace \"api\": \"zone\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "include: what is found at the end of http has its own line, in the file",
            &[("api.conf", b"window_sizes 1d;\nsync_rate 1;\n\nstore other;\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis; } \
             ratelimit_namespace api { zone counters;\n\
             include api.conf;\n\
             }",
            "[emerg] ratelimit_namespace \"api\": unknown store \"other\": expected one that a \
             \"ratelimit_store\" block defines in api.conf:4",
        ),
        (
            "a name that is taken in another file",
            &[("api.conf", b"ratelimit_namespace api { }\n")],
            "ratelimit_zone zone=counters:1m;\n\
             include api.conf;\n\
             ratelimit_namespace api { }",
            "[emerg] ratelimit_namespace: namespace \"api\" is duplicate: expected another name \
             than in api.conf:1 in http.conf:3",
        ),
    ]);
    check(&[
        (
            "a name that is taken: the other place is named",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { }\n\
             ratelimit_namespace other { }\n\
             ratelimit_namespace api { zone counters; }",
            "[emerg] ratelimit_namespace: namespace \"api\" is duplicate: expected another name \
             than in http.conf:2 in http.conf:4",
        ),
        (
            "the name \"default\" twice",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace default { }\n\
             ratelimit_namespace default { }",
            "[emerg] ratelimit_namespace: namespace \"default\" is duplicate: expected another \
             name than in http.conf:2 in http.conf:3",
        ),
        (
            "the name \"off\"",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace off { }",
            "[emerg] ratelimit_namespace: invalid name \"off\" of a namespace: expected 1 to 64 \
             of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "an empty name",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace \"\" { }",
            "[emerg] ratelimit_namespace: invalid name \"\" of a namespace: expected 1 to 64 of \
             A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "a name with another character",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace a:b { }",
            "[emerg] ratelimit_namespace: invalid name \"a:b\" of a namespace: expected 1 to 64 \
             of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "a name that is a variable",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace $host { }",
            "[emerg] ratelimit_namespace: invalid name \"$host\" of a namespace: expected 1 to 64 \
             of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "a name of 65 characters",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace \
             name.of.more.than.64.characters.name.of.more.than.64.characters.n { }",
            "[emerg] ratelimit_namespace: invalid name \
             \"name.of.more.than.64.characters.name.of.more.than.64.characters.n\" of a \
             namespace: expected 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" \
             in http.conf:2",
        ),
        (
            "no name",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace { }",
            "[emerg] ratelimit_namespace: no parameter: expected one name and a block: \
             ratelimit_namespace name { ... } in http.conf:2",
        ),
        (
            "two names",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api other { }",
            "[emerg] ratelimit_namespace: one parameter too many, \"other\": expected one name \
             and a block: ratelimit_namespace name { ... } in http.conf:2",
        ),
        (
            "a rule in a namespace that is not defined, though another is",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             zone counters;\n\
             }\n\
             server {\n\
             ratelimit apis limit=5/10s;\n\
             }",
            "[emerg] ratelimit: unknown namespace \"apis\": expected one that a \
             \"ratelimit_namespace\" block defines in http.conf:6",
        ),
        (
            "a rule in a store",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api {\n\
             zone counters;\n\
             }\n\
             server {\n\
             ratelimit main limit=5/10s;\n\
             }",
            "[emerg] ratelimit: unknown namespace \"main\": expected one that a \
             \"ratelimit_namespace\" block defines in http.conf:6",
        ),
    ]);
}
