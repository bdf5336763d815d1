//! Tests of the directives of stores that only keep values of keys, memcached and etcd, and of what they decide.

use crate::conf::tests::{check_in_store, kinds, told_of};

/// Returns these kinds in this build.
fn present() -> impl Iterator<Item = &'static str> {
    kinds().into_iter().filter(|kind| ["memcached", "etcd"].contains(kind))
}

/// Checks rows in which `<kind>` stands for each of the kinds.
fn check_each(rows: &[(&str, &str, &str)]) {
    for kind in present() {
        let of_kind = |text: &str| text.replace("<kind>", kind);
        for (title, text, told) in rows {
            check_in_store(&[(title, &of_kind(text), &of_kind(told))]);
        }
    }
}

#[test]
fn a_store_of_values_is_accepted() {
    check_each(&[
        ("a strategy is all that it needs", "strategy <kind>;", ""),
        (
            "every directive that it has",
            "prefix limits;\n\
             username joe;\n\
             password s3cret;\n\
             connect_timeout 0.5;\n\
             timeout 500ms;\n\
             exchanges 100;\n\
             tls on;\n\
             tls_verify on;\n\
             tls_name store.example;\n\
             tls_trusted_certificate pem/certificate.pem;\n\
             tls_certificate pem/certificate.pem;\n\
             tls_certificate_key pem/key.pem;\n\
             server store-1.example;\n\
             server store-2.example:2380;\n\
             server [2001:db8::1];\n\
             strategy <kind>;",
            "",
        ),
        ("a socket", "strategy <kind>; server unix:/run/store.sock;", ""),
    ]);
}

#[test]
fn a_store_of_values_has_no_options_of_others() {
    check_each(&[
        (
            "of redis",
            "strategy <kind>; cluster on;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is an option of strategy redis, not of \
             <kind> in http.conf:1",
        ),
        (
            "of postgres",
            "table counts; strategy <kind>;",
            "[emerg] ratelimit_store \"main\": \"table\" is an option of strategy <with tables>, \
             not of <kind> in http.conf:1",
        ),
        (
            "a database",
            "strategy <kind>; database 1;",
            "[emerg] ratelimit_store \"main\": \"database\" goes with no strategy <kind>: expected \
             \"prefix\" in http.conf:1",
        ),
        (
            "a user without a password",
            "strategy <kind>; username joe;",
            "[emerg] ratelimit_store \"main\": \"username\" needs another option: add \"password \
             word;\" in http.conf:1",
        ),
        (
            "an invalid prefix",
            "strategy <kind>; prefix \"a b\";",
            "[emerg] ratelimit_store \"main\": invalid prefix \"a b\": expected 1 to 64 printable \
             ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
    ]);
}

#[test]
fn a_store_of_values_decides_by_all_but_moving_windows() {
    for kind in present() {
        let with = |rule: &str| {
            format!(
                "ratelimit_zone zone=counters:1m;\nratelimit_store main {{ strategy {kind}; }}\n\
                 ratelimit_namespace api {{ store main; sync_rate 0; }}\nserver {{\n{rule}\n}}"
            )
        };
        for rule in [
            "ratelimit api limit=5/1s limit=9/2s;",
            "ratelimit api limit=5/1s window=fixed;",
            "ratelimit api limit=5/2s window=elastic;",
            "ratelimit api rate=5/1s burst=5 delay=all;",
            "ratelimit api limit=100/day ban=10m;",
        ] {
            let told = told_of(&with(rule), &[]);
            assert!(told.starts_with("server: \"api-"), "{rule}: {told}");
        }
        let refused = with("ratelimit api limit=5/1s window=moving;");
        let told = format!(
            "[emerg] ratelimit: window=moving does not go with \"sync_rate 0;\" of namespace \
                    \"api\", whose strategy {kind} cannot count so exactly: expected a sliding, fixed or \
                    elastic window, or \"sync_rate off;\" there in http.conf:5"
        );
        assert_eq!(told_of(&refused, &[]), told);
    }
}
