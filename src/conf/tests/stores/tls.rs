//! Tests of the options of TLS, and of their files.

use crate::conf::tests::{check, check_in_store};

#[test]
fn tls_is_on_or_off() {
    check_in_store(&[
        (
            "tls: none",
            "tls;",
            "[emerg] ratelimit_store \"main\": \"tls\" takes one word, not 0: on or off in \
             http.conf:1",
        ),
        (
            "tls: neither on nor off",
            "tls 1.3;",
            "[emerg] ratelimit_store \"main\": invalid tls \"1.3\": expected on or off in \
             http.conf:1",
        ),
        (
            "tls: twice",
            "tls on;\n\
             tls on;",
            "[emerg] ratelimit_store \"main\": \"tls\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "tls: over a socket",
            "strategy redis;\n\
             server unix:/run/redis.sock;\n\
             tls on;",
            "[emerg] ratelimit_store \"main\": \"tls on\" goes with no server \
             \"unix:/run/redis.sock\": expected host[:port] or [v6][:port] in http.conf:3",
        ),
        (
            "tls: over the socket of Postgres",
            "strategy postgres;\n\
             server unix:/run/postgresql;\n\
             tls on;",
            "[emerg] ratelimit_store \"main\": \"tls on\" goes with no server \
             \"unix:/run/postgresql\": expected host[:port] or [v6][:port] in http.conf:3",
        ),
        (
            "tls_verify: neither on nor off",
            "tls_verify optional;",
            "[emerg] ratelimit_store \"main\": invalid tls_verify \"optional\": expected on or \
             off in http.conf:1",
        ),
        (
            "tls_verify: twice",
            "tls_verify on;\n\
             tls_verify off;",
            "[emerg] ratelimit_store \"main\": \"tls_verify\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "tls_name: none",
            "tls_name;",
            "[emerg] ratelimit_store \"main\": \"tls_name\" takes one word, not 0: a host's name \
             or an IP address in http.conf:1",
        ),
        (
            "tls_name: a host and a port",
            "tls_name redis.example:6379;",
            "[emerg] ratelimit_store \"main\": invalid tls_name \"redis.example:6379\": expected \
             a host's name or an IP address in http.conf:1",
        ),
        (
            "tls_name: a name with a blank",
            "tls_name \"redis example\";",
            "[emerg] ratelimit_store \"main\": invalid tls_name \"redis example\": expected a \
             host's name or an IP address in http.conf:1",
        ),
        (
            "tls_name: twice",
            "tls_name a;\n\
             tls_name a;",
            "[emerg] ratelimit_store \"main\": \"tls_name\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "tls_trusted_certificate: none",
            "tls_trusted_certificate;",
            "[emerg] ratelimit_store \"main\": \"tls_trusted_certificate\" takes one word, not 0: \
             the path of a file in http.conf:1",
        ),
        (
            "tls_trusted_certificate: an empty word",
            "tls_trusted_certificate \"\";",
            "[emerg] ratelimit_store \"main\": invalid tls_trusted_certificate \"\": expected the \
             path of a file in http.conf:1",
        ),
        (
            "tls_trusted_certificate: twice",
            "tls_trusted_certificate a;\n\
             tls_trusted_certificate a;",
            "[emerg] ratelimit_store \"main\": \"tls_trusted_certificate\" is duplicate: expected it once in \
             http.conf:2",
        ),
        (
            "tls_certificate: twice",
            "tls_certificate a;\n\
             tls_certificate a;",
            "[emerg] ratelimit_store \"main\": \"tls_certificate\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "tls_certificate_key: twice",
            "tls_certificate_key a;\n\
             tls_certificate_key a;",
            "[emerg] ratelimit_store \"main\": \"tls_certificate_key\" is duplicate: expected it once in \
             http.conf:2",
        ),
        (
            "tls off: no other option of TLS has an effect",
            "strategy redis;\n\
             tls off;\n\
             tls_trusted_certificate nothing.pem;",
            "[emerg] ratelimit_store \"main\": \"tls_trusted_certificate\" has no effect without \
             TLS: add \"tls on;\" in http.conf:3",
        ),
    ]);
    check(&[
        (
            "tls_trusted_certificate: a file that is not there",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_trusted_certificate nothing.pem; \
             }",
            "[emerg] ratelimit_store \"main\": cannot read the file \"/etc/nginx/nothing.pem\" of \
             tls_trusted_certificate (No such file or directory (os error 2)) in http.conf:2",
        ),
        (
            "tls_trusted_certificate: a file without a certificate",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_trusted_certificate pem/key.pem; \
             }",
            "[emerg] ratelimit_store \"main\": tls_trusted_certificate \"/etc/nginx/pem/key.pem\" \
             holds no certificate in PEM format in http.conf:2",
        ),
        (
            "tls_trusted_certificate: a file without a certificate, even if nobody is verified",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_verify off; \
             tls_trusted_certificate nginx.conf; }",
            "[emerg] ratelimit_store \"main\": tls_trusted_certificate \"/etc/nginx/nginx.conf\" \
             holds no certificate in PEM format in http.conf:2",
        ),
        (
            "tls_certificate: a file without one",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_certificate pem/key.pem; \
             tls_certificate_key pem/key.pem; }",
            "[emerg] ratelimit_store \"main\": tls_certificate \"/etc/nginx/pem/key.pem\" holds \
             no certificate in PEM format in http.conf:2",
        ),
        (
            "tls_certificate_key: a file without one",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_certificate pem/certificate.pem; \
             tls_certificate_key pem/certificate.pem; }",
            "[emerg] ratelimit_store \"main\": tls_certificate_key \
             \"/etc/nginx/pem/certificate.pem\" holds no private key in PEM format, without a \
             passphrase in http.conf:2",
        ),
        (
            "tls_certificate: a file without one, for Postgres",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy postgres; tls on; tls_certificate pem/key.pem; \
             tls_certificate_key pem/key.pem; }",
            "[emerg] ratelimit_store \"main\": tls_certificate \"/etc/nginx/pem/key.pem\" holds \
             no certificate in PEM format in http.conf:2",
        ),
        (
            "tls_certificate: a file that is not there",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_certificate nothing.pem; \
             tls_certificate_key nginx.conf; }",
            "[emerg] ratelimit_store \"main\": cannot read the file \"/etc/nginx/nothing.pem\" of \
             tls_certificate (No such file or directory (os error 2)) in http.conf:2",
        ),
        (
            "tls_certificate: without its key",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main {\n\
             strategy redis;\n\
             tls on;\n\
             tls_certificate nginx.conf;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"tls_certificate\" needs another option: add \
             \"tls_certificate_key file;\" in http.conf:5",
        ),
        (
            "tls_certificate_key: a file that is not there",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; tls on; tls_certificate nginx.conf; \
             tls_certificate_key nothing.pem; }",
            "[emerg] ratelimit_store \"main\": cannot read the file \"/etc/nginx/nothing.pem\" of \
             tls_certificate_key (No such file or directory (os error 2)) in http.conf:2",
        ),
        (
            "tls_certificate_key: without its certificate",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main {\n\
             strategy redis;\n\
             tls on;\n\
             tls_certificate_key nginx.conf;\n\
             }",
            "[emerg] ratelimit_store \"main\": \"tls_certificate_key\" needs another option: add \
             \"tls_certificate file;\" in http.conf:5",
        ),
    ]);
}
