//! Tests of zones.

use super::{check, check_with_files};

#[test]
fn a_zone_has_a_name_and_a_size() {
    check(&[
        (
            "ratelimit_zone: a parameter that is no zone",
            "ratelimit_zone name=counters:1m;",
            "[emerg] ratelimit_zone: invalid parameter \"name=counters:1m\": expected \
             \"zone=name:size\", such as zone=counters:10m in http.conf:1",
        ),
        (
            "ratelimit_zone: no size",
            "ratelimit_zone zone=counters;",
            "[emerg] ratelimit_zone: no size in \"zone=counters\": expected \"zone=name:size\", \
             such as zone=counters:10m in http.conf:1",
        ),
        (
            "ratelimit_zone: an empty size",
            "ratelimit_zone zone=counters:;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:\": a size is a number of \
             bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a size with an unknown unit",
            "ratelimit_zone zone=counters:10x;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:10x\": a size is a number of \
             bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a negative size",
            "ratelimit_zone zone=counters:-1m;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:-1m\": a size is a number of \
             bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a size with a fraction",
            "ratelimit_zone zone=counters:1.5m;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:1.5m\": a size is a number \
             of bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a zone of fewer than 8 pages",
            "ratelimit_zone zone=counters:31k;",
            "[emerg] ratelimit_zone: zone \"counters\" is too small: at least 8 pages, 32k in \
             http.conf:1",
        ),
        (
            "ratelimit_zone: a zone of no bytes",
            "ratelimit_zone zone=counters:0;",
            "[emerg] ratelimit_zone: zone \"counters\" is too small: at least 8 pages, 32k in \
             http.conf:1",
        ),
        (
            "ratelimit_zone: the name \"off\"",
            "ratelimit_zone zone=off:1m;",
            "[emerg] ratelimit_zone: invalid name \"off\" of a zone: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit_zone: no name",
            "ratelimit_zone zone=:1m;",
            "[emerg] ratelimit_zone: invalid name \"\" of a zone: expected 1 to 64 of A-Z, a-z, \
             0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit_zone: a name with another character",
            "ratelimit_zone zone=a/b:1m;",
            "[emerg] ratelimit_zone: invalid name \"a/b\" of a zone: expected 1 to 64 of A-Z, \
             a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit_zone: a name of 65 characters",
            "ratelimit_zone \
             zone=zone.of.more.than.64.characters.zone.of.more.than.64.characters.z:1m;",
            "[emerg] ratelimit_zone: invalid name \
             \"zone.of.more.than.64.characters.zone.of.more.than.64.characters.z\" of a zone: \
             expected 1 to 64 of A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in \
             http.conf:1",
        ),
        (
            "ratelimit_zone: a name that is taken",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_zone zone=counters:1m;",
            "[emerg] ratelimit_zone: zone \"counters\" is duplicate: expected another name in \
             http.conf:2",
        ),
        (
            "ratelimit_zone: a name that is taken with another size",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_zone zone=counters:2m;",
            "[emerg] ratelimit_zone: zone \"counters\" is duplicate: expected another name in \
             http.conf:2",
        ),
        (
            "ratelimit_zone: no parameter",
            "ratelimit_zone;",
            "[emerg] ratelimit_zone: no parameter: expected \"zone=name:size\", such as \
             zone=counters:10m in http.conf:1",
        ),
        (
            "ratelimit_zone: two parameters",
            "ratelimit_zone zone=counters:1m zone=other:1m;",
            "[emerg] ratelimit_zone: one parameter too many, \"zone=other:1m\": expected \
             \"zone=name:size\", such as zone=counters:10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a key, as limit_req_zone has",
            "ratelimit_zone $binary_remote_addr zone=counters:1m rate=10r/s;",
            "[emerg] ratelimit_zone: parameter \"$binary_remote_addr\" is of limit_req_zone: expected \
             it as \"ratelimit_key $binary_remote_addr;\", and \"zone=name:size\" alone here in \
             http.conf:1",
        ),
        (
            "ratelimit_zone: a rate",
            "ratelimit_zone zone=counters:1m rate=10r/s;",
            "[emerg] ratelimit_zone: parameter \"rate=10r/s\" is of limit_req_zone: expected \
             \"rate=hits/time\" in a rule, and \"zone=name:size\" alone here in http.conf:1",
        ),
        (
            "ratelimit_zone: a size of too many digits",
            "ratelimit_zone zone=counters:99999999999999999999;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:99999999999999999999\": a \
             size is a number of bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: two sizes",
            "ratelimit_zone zone=counters:1m:2m;",
            "[emerg] ratelimit_zone: invalid size in \"zone=counters:1m:2m\": a size is a number \
             of bytes, or of k, m or g, such as 10m in http.conf:1",
        ),
        (
            "ratelimit_zone: a name that is very long",
            "ratelimit_zone zone=<1200 x>:1m;",
            "[emerg] ratelimit_zone: invalid name \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" of a zone: expected 1 to 64 of \
             A-Z, a-z, 0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit_zone: a name that another module has taken",
            "limit_req_zone $binary_remote_addr zone=counters:1m rate=1r/s;\n\
             ratelimit_zone zone=counters:1m;",
            "[emerg] ratelimit_zone: zone \"counters\" is already used by another module: \
             expected another name in http.conf:2",
        ),
        (
            "ratelimit_zone: a name that another module uses, and did not define",
            "server { listen unix:/tmp/ratelimit-test.sock; limit_conn counters 1; }\n\
             ratelimit_zone zone=counters:1m;",
            "[emerg] ratelimit_zone: zone \"counters\" is already used by another module: \
             expected another name in http.conf:2",
        ),
    ]);
    check_with_files(&[(
        "ratelimit_zone: in a file that is included",
        &[("zones.conf", b"ratelimit_zone zone=counters:1m;\nratelimit_zone zone=counters:1x;\n")],
        "include zones.conf;",
        "[emerg] ratelimit_zone: invalid size in \"zone=counters:1x\": a size is a number of \
             bytes, or of k, m or g, such as 10m in zones.conf:2",
    )]);
}
