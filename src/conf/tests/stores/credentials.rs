//! Tests that no log line contains a user or a password.

use crate::conf::tests::{check, check_in_store, check_with_files};

#[test]
fn no_error_contains_a_user() {
    check(&[
        (
            "sentinel_username: without sentinels",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main {\n\
             strategy redis;\n\
             sentinel_username s3cret;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"sentinel_username\" needs another option: add \
             \"sentinel_master name;\" in http.conf:4",
        ),
        (
            "sentinel_password: without sentinels",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main {\n\
             strategy redis;\n\
             sentinel_password s3cret;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" needs another option: add \
             \"sentinel_master name;\" in http.conf:4",
        ),
    ]);
    check_in_store(&[
        (
            "sentinel_username: an option of redis alone",
            "strategy postgres;\n\
             sentinel_username s3cret;",
            "[emerg] ratelimit_store \"main\": \"sentinel_username\" is an option of strategy \
             redis, not of postgres in http.conf:2",
        ),
        (
            "sentinel_password: an option of redis alone",
            "sentinel_password s3cret;\n\
             strategy postgres;",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" is an option of strategy \
             redis, not of postgres in http.conf:1",
        ),
        (
            "sentinel_password: none",
            "sentinel_password;",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" takes one word, not 0: a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "sentinel_password: two",
            "sentinel_password s3cret s3cret;",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" takes one word, not 2: a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "sentinel_password: an empty word",
            "sentinel_password \"\";",
            "[emerg] ratelimit_store \"main\": invalid sentinel_password: expected a password of \
             at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "sentinel_password: twice",
            "sentinel_password s3cret;\n\
             sentinel_password s3cret;",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "sentinel_password: without a semicolon",
            "sentinel_password s3cret\n\
             sentinel_master mymaster;",
            "[emerg] ratelimit_store \"main\": \"sentinel_password\" takes one word, not 3: a \
             password of at least one character, in UTF-8 in http.conf:2",
        ),
        (
            "username: none",
            "username;",
            "[emerg] ratelimit_store \"main\": \"username\" takes one word, not 0: a name of at \
             least one character, in UTF-8 in http.conf:1",
        ),
        (
            "username: an empty word",
            "username \"\";",
            "[emerg] ratelimit_store \"main\": invalid username: expected a name of at least one \
             character, in UTF-8 in http.conf:1",
        ),
        (
            "username: twice",
            "username joe;\n\
             username joe;",
            "[emerg] ratelimit_store \"main\": \"username\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "username: with the password",
            "username joe s3cret;",
            "[emerg] ratelimit_store \"main\": \"username\" takes one word, not 2: a name of at \
             least one character, in UTF-8 in http.conf:1",
        ),
        (
            "username: without a semicolon before the password",
            "username joe\n\
             password s3cret;",
            "[emerg] ratelimit_store \"main\": \"username\" takes one word, not 3: a name of at \
             least one character, in UTF-8 in http.conf:2",
        ),
        (
            "sentinel_password: in which a semicolon ends the directive",
            "sentinel_password first;s3cret;",
            "[emerg] ratelimit_store \"main\": unknown directive \"...\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
    ]);
}

#[test]
fn no_error_contains_a_password() {
    check_in_store(&[
        (
            "password: none",
            "password;",
            "[emerg] ratelimit_store \"main\": \"password\" takes one word, not 0: a password of \
             at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password: two",
            "password s3cret s3cret;",
            "[emerg] ratelimit_store \"main\": \"password\" takes one word, not 2: a password of \
             at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password: an empty word",
            "password \"\";",
            "[emerg] ratelimit_store \"main\": invalid password: expected a password of at least \
             one character, in UTF-8 in http.conf:1",
        ),
        (
            "password: twice",
            "password s3cret;\n\
             password s3cret;",
            "[emerg] ratelimit_store \"main\": \"password\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "password: without a semicolon",
            "password s3cret\n\
             database 1;",
            "[emerg] ratelimit_store \"main\": \"password\" takes one word, not 3: a password of \
             at least one character, in UTF-8 in http.conf:2",
        ),
        (
            "password: without a semicolon before it",
            "server 127.0.0.1:6379\n\
             password s3cret;",
            "[emerg] ratelimit_store \"main\": \"server\" takes one word, not 3: host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:2",
        ),
        (
            "password: without a semicolon before it, after an option with a fixed set of words",
            "tls on password s3cret;",
            "[emerg] ratelimit_store \"main\": \"tls\" takes one word, not 3: on or off in \
             http.conf:1",
        ),
        (
            "password: in which a semicolon ends the directive",
            "password first;s3cret;",
            "[emerg] ratelimit_store \"main\": unknown directive \"...\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "password: with \"=\" in place of a blank",
            "password=s3cret;",
            "[emerg] ratelimit_store \"main\": unknown directive \"password...\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "password: with \":\" in place of a blank",
            "password:s3cret;",
            "[emerg] ratelimit_store \"main\": unknown directive \"password...\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "password: in quotes that are too wide",
            "\"password s3cret\";",
            "[emerg] ratelimit_store \"main\": unknown directive \"password...\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "password: a misspelt directive",
            "passwort s3cret;",
            "[emerg] ratelimit_store \"main\": unknown directive \"passwort\": expected one of \
             strategy, server, username, password, password_file, database, connect_timeout, \
             timeout, exchanges, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, \
             tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, \
             prefix, table<more> in http.conf:1",
        ),
        (
            "password: in the address of a server",
            "server redis://joe:s3cret@127.0.0.1:6379;",
            "[emerg] ratelimit_store \"main\": invalid server \"redis...\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379: the parts of a URL are directives of \
             their own in http.conf:1",
        ),
        (
            "password: in the query of a server",
            "server 127.0.0.1:5432?password=s3cret;",
            "[emerg] ratelimit_store \"main\": invalid server \"127.0.0.1...\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "password: in the name of a Redis database",
            "strategy redis;\n\
             database redis://:s3cret@127.0.0.1/0;",
            "[emerg] ratelimit_store \"main\": invalid database \"redis...\": expected the number \
             of a Redis database, such as 0 in http.conf:2",
        ),
        (
            "password: in place of a file",
            "password_file s3cret;",
            "[emerg] ratelimit_store \"main\": password_file cannot be read (No such file or \
             directory (os error 2)) in http.conf:1",
        ),
    ]);
    check(&[(
        "password: after the name of the store",
        "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main password s3cret { }",
        "[emerg] ratelimit_store: one parameter too many, \"password\": expected one name and \
             a block: ratelimit_store name { ... } in http.conf:2",
    )]);
}

#[test]
fn a_file_has_a_password() {
    check_in_store(&[
        (
            "password_file: none",
            "password_file;",
            "[emerg] ratelimit_store \"main\": \"password_file\" takes one word, not 0: the path \
             of a file in http.conf:1",
        ),
        (
            "password_file: two",
            "password_file s3cret s3cret;",
            "[emerg] ratelimit_store \"main\": \"password_file\" takes one word, not 2: the path \
             of a file in http.conf:1",
        ),
        (
            "password_file: an empty word",
            "password_file \"\";",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected the path of a file \
             in http.conf:1",
        ),
        (
            "password_file: in a directory, and not there",
            "password_file secrets/redis;",
            "[emerg] ratelimit_store \"main\": password_file cannot be read (\"secrets/redis\": No \
             such file or directory (os error 2)) in http.conf:1",
        ),
        (
            "password_file: with an extension, and not there",
            "password_file redis.secret;",
            "[emerg] ratelimit_store \"main\": password_file cannot be read (\"redis.secret\": No \
             such file or directory (os error 2)) in http.conf:1",
        ),
    ]);
    check_with_files(&[
        (
            "password_file: twice",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"password_file\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "password_file: with a password",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             password s3cret;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"password\" goes with no \"password_file\": \
             expected one of them in http.conf:2",
        ),
        (
            "password_file: with a password, the other way round",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password s3cret;\n\
             password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"password\" goes with no \"password_file\": \
             expected one of them in http.conf:2",
        ),
        (
            "password_file: without a semicolon",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password\n\
             database 1;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"password_file\" takes one word, not 3: the path \
             of a file in http.conf:2",
        ),
        (
            "password_file: an empty file",
            &[("empty", b"")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file empty;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected a file with a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password_file: a file with nothing but a newline",
            &[("password", b"\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected a file with a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password_file: a file with nothing but a newline of Windows",
            &[("password", b"\r\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected a file with a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password_file: a file that is not UTF-8",
            &[("password", b"s3cret\xe8\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected a file with a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password_file: a file with a zero byte",
            &[("password", b"s3cret\x00\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid password_file: expected a file with a \
             password of at least one character, in UTF-8 in http.conf:1",
        ),
        (
            "password_file: a store that is wrong otherwise",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { password_file password;\n\
             tls maybe;\n\
             }",
            "[emerg] ratelimit_store \"main\": invalid tls \"maybe\": expected on or off in \
             http.conf:2",
        ),
        (
            "password_file: relative to the directory of nginx.conf, in an included file of another directory too",
            &[
                (
                    "ratelimit_store.conf",
                    b"ratelimit_store main { strategy redis; password_file password; }\n",
                ),
                ("password", b"s3cret\n"),
            ],
            "ratelimit_zone zone=counters:1m;\n\
             include ratelimit_store.conf;\n\
             server { }",
            "",
        ),
        (
            "password_file: an absolute path",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             password_file /etc/nginx/password;\n\
             }",
            "",
        ),
        (
            "password_file: no newline at the end",
            &[("password", b"s3cret")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             password_file password;\n\
             }",
            "",
        ),
        (
            "password_file: a newline of Windows at the end",
            &[("password", b"s3cret\r\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             password_file password;\n\
             }",
            "",
        ),
        (
            "password_file: only the last of two newlines is dropped",
            &[("password", b"\n\n")],
            "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis;\n\
             password_file password;\n\
             }",
            "",
        ),
        (
            "password_file: one file for two stores",
            &[("password", b"s3cret\n")],
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store one { strategy redis; password_file password; }\n\
             ratelimit_store two { strategy postgres; password_file password; }\n\
             server { }",
            "",
        ),
    ]);
}
