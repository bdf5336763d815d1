//! Tests of stores as blocks: their names, included files, and odd ones that are accepted.

use crate::conf::tests::{check, check_in_store, check_with_files};

#[test]
fn a_block_has_a_name_and_known_directives() {
    check_in_store(&[
        (
            "an unknown directive",
            "host 127.0.0.1;",
            "[emerg] ratelimit_store \"main\": unknown directive \"host\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more>: did you mean server? in http.conf:1",
        ),
        (
            "a directive of another program, where the strategy is known",
            "strategy redis; sentinel_nodes 127.0.0.1:26379;",
            "[emerg] ratelimit_store \"main\": unknown directive \"sentinel_nodes\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix: did you mean server? in http.conf:1",
        ),
        (
            "a directive of a namespace",
            "sync_rate 1;",
            "[emerg] ratelimit_store \"main\": unknown directive \"sync_rate\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "a directive in upper case",
            "Strategy redis;",
            "[emerg] ratelimit_store \"main\": unknown directive \"Strategy\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "an unknown directive that is very long",
            "<1200 x> 5;",
            "[emerg] ratelimit_store \"main\": unknown directive \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected one of strategy, \
             server, username, password, password_file, database, connect_timeout, timeout, exchanges, tls, \
             tls_verify, tls_name, tls_trusted_certificate, tls_certificate, tls_certificate_key, \
             cluster, sentinel_master, sentinel_username, sentinel_password, prefix, table<more> in \
             http.conf:1",
        ),
    ]);
    check_with_files(&[
        (
            "include: a password without a semicolon after the file",
            &[("main.conf", b"strategy redis;\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { include main.conf\n\
             password s3cret;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"include\" takes one word, not 3: a file in \
             http.conf:2",
        ),
        (
            "include: what is wrong in the file is found there",
            &[("main.conf", b"username joe;\npassword s3cret s3cret;\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             include main.conf;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"password\" takes one word, not 2: a password of \
             at least one character, in UTF-8 in main.conf:2",
        ),
    ]);
    check(&[
        (
            "a name that is taken: the other place is named",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_store other { strategy redis; }\n\
             ratelimit_store main { strategy postgres; }",
            "[emerg] ratelimit_store: store \"main\" is duplicate: expected another name than in \
             http.conf:2 in http.conf:4",
        ),
        (
            "the name \"off\"",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store off { strategy redis; }",
            "[emerg] ratelimit_store: invalid name \"off\" of a store: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "an empty name",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store \"\" { strategy redis; }",
            "[emerg] ratelimit_store: invalid name \"\" of a store: expected 1 to 64 of A-Z, a-z, \
             0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "a name with another character",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store a/b { strategy redis; }",
            "[emerg] ratelimit_store: invalid name \"a/b\" of a store: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:2",
        ),
        (
            "a name of 65 characters",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store name.of.more.than.64.characters.name.of.more.than.64.characters.n { \
             }",
            "[emerg] ratelimit_store: invalid name \
             \"name.of.more.than.64.characters.name.of.more.than.64.characters.n\" of a store: \
             expected 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in \
             http.conf:2",
        ),
        (
            "no name",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store { strategy redis; }",
            "[emerg] ratelimit_store: no parameter: expected one name and a block: \
             ratelimit_store name { ... } in http.conf:2",
        ),
        (
            "two names",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main other { strategy redis; }",
            "[emerg] ratelimit_store: one parameter too many, \"other\": expected one name and a \
             block: ratelimit_store name { ... } in http.conf:2",
        ),
    ]);
}

#[test]
fn a_store_is_accepted() {
    check(&[
        (
            "a strategy is all that a store needs",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store one { strategy redis; }\n\
             ratelimit_store two { strategy postgres; }\n\
             server { }",
            "",
        ),
        (
            "stores that nobody listens for, and a rule",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store one { strategy redis; server 127.0.0.1:1; }\n\
             ratelimit_store two { strategy postgres; server unix:/nowhere; }\n\
             server {\n\
             ratelimit limit=5/1d;\n\
             }",
            "server: \"default-1d\";q=5;w=86400",
        ),
        (
            "the longest name, of every kind of character",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store Store_with-a.name_of-64.characters.Store_with-a.name_of-64.chara { \
             strategy redis; }\n\
             server { }",
            "",
        ),
        (
            "names that differ by case",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_store MAIN { strategy redis; }\n\
             server { }",
            "",
        ),
    ]);
    check_in_store(&[
        (
            "every directive that Redis has",
            "tls_certificate_key pem/key.pem;\n\
             tls_certificate pem/certificate.pem;\n\
             tls_trusted_certificate pem/certificate.pem;\n\
             tls_name redis.example;\n\
             tls_verify off;\n\
             tls on;\n\
             timeout 1m;\n\
             connect_timeout 1ms;\n\
             prefix rl:2;\n\
             database 5;\n\
             password s3cret;\n\
             username joe;\n\
             sentinel_password s3cret;\n\
             sentinel_username joe;\n\
             sentinel_master mymaster;\n\
             cluster off;\n\
             server redis-1.example.:26379;\n\
             server [2001:db8::1]:26379;\n\
             strategy redis;",
            "",
        ),
        (
            "every directive that Postgres has",
            "strategy postgres;\n\
             server unix:/run/postgresql;\n\
             server unix:/run/postgresql/.s.PGSQL.5433;\n\
             server db.example:5432;\n\
             server 127.0.0.1:5432;\n\
             server [::1]:5432;\n\
             username joe;\n\
             password s3cret;\n\
             database \"a database\";\n\
             table Rate.counters_1;\n\
             connect_timeout 0.5;\n\
             timeout 250ms;\n\
             tls off;",
            "",
        ),
        (
            "a Postgres with TLS",
            "strategy postgres;\n\
             server db.example:5432;\n\
             tls on;\n\
             tls_verify on;\n\
             tls_name db.example;\n\
             tls_trusted_certificate pem/certificate.pem;\n\
             tls_certificate pem/certificate.pem;\n\
             tls_certificate_key pem/key.pem;",
            "",
        ),
        (
            "a Redis Cluster",
            "strategy redis;\n\
             cluster on;\n\
             database 0;\n\
             server 127.0.0.1:7000;\n\
             server 127.0.0.1:7001;",
            "",
        ),
        (
            "sentinels at their usual port, and no user",
            "strategy redis;\n\
             sentinel_master mymaster;",
            "",
        ),
        (
            "a socket",
            "strategy redis;\n\
             server unix:/run/redis.sock;",
            "",
        ),
        (
            "a password of any printable characters",
            "strategy redis;\n\
             password \"s3cret; #{}$x\\\"'\\\\ =ü\";",
            "",
        ),
        (
            "a password of one character",
            "strategy redis;\n\
             password $;",
            "",
        ),
        (
            "tls_name: an IP address",
            "strategy redis;\n\
             tls on;\n\
             tls_name ::1;",
            "",
        ),
        (
            "the longest prefix",
            "strategy redis;\n\
             prefix prefix.of.exactly.64.characters.prefix.of.exactly.64.characters;",
            "",
        ),
    ]);
    check_with_files(&[(
        "directives in a file that is included",
        &[("main.conf", b"server 127.0.0.1:6379;\npassword s3cret;\n")],
        "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             include main.conf;\n\
             }",
        "",
    )]);
}
