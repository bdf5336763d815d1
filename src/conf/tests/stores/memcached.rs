//! Tests of the directives of a memcached store, and of what it decides.

use crate::conf::tests::{check_in_store, told_of};

#[test]
fn a_memcached_is_accepted() {
    check_in_store(&[
        ("a strategy is all that it needs", "strategy memcached;", ""),
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
             tls_name cache.example;\n\
             tls_trusted_certificate pem/certificate.pem;\n\
             tls_certificate pem/certificate.pem;\n\
             tls_certificate_key pem/key.pem;\n\
             server cache-1.example;\n\
             server cache-2.example:11212;\n\
             server [2001:db8::1];\n\
             strategy memcached;",
            "",
        ),
        ("a socket", "strategy memcached; server unix:/run/memcached.sock;", ""),
    ]);
}

#[test]
fn a_memcached_has_no_options_of_others() {
    check_in_store(&[
        (
            "of redis",
            "strategy memcached; cluster on;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is an option of strategy redis, not of \
             memcached in http.conf:1",
        ),
        (
            "of postgres",
            "table counts; strategy memcached;",
            "[emerg] ratelimit_store \"main\": \"table\" is an option of strategy <with tables>, \
             not of memcached in http.conf:1",
        ),
        (
            "a database",
            "strategy memcached; database 1;",
            "[emerg] ratelimit_store \"main\": \"database\" goes with no strategy memcached: expected \
             \"prefix\" in http.conf:1",
        ),
        (
            "a user without a password",
            "strategy memcached; username joe;",
            "[emerg] ratelimit_store \"main\": \"username\" needs another option: add \"password \
             word;\" in http.conf:1",
        ),
        (
            "an invalid prefix",
            "strategy memcached; prefix \"a b\";",
            "[emerg] ratelimit_store \"main\": invalid prefix \"a b\": expected 1 to 64 printable \
             ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
    ]);
}

#[test]
fn a_memcached_decides_by_all_but_moving_windows() {
    let with = |rule: &str| {
        format!(
            "ratelimit_zone zone=counters:1m;\nratelimit_store main {{ strategy memcached; }}\n\
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
    let told = "[emerg] ratelimit: window=moving does not go with \"sync_rate 0;\" of namespace \
                \"api\", whose strategy memcached cannot count so exactly: expected a sliding, fixed or \
                elastic window, or \"sync_rate off;\" there in http.conf:5";
    assert_eq!(told_of(&refused, &[]), told);
}
