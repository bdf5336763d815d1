//! Tests of the directives of a Cassandra store.

use crate::conf::tests::{check_in_store, check_with_files};

#[test]
fn a_cassandra_is_accepted() {
    check_in_store(&[
        ("a strategy is all that it needs", "strategy cassandra;", ""),
        (
            "every directive that it has",
            "replication east:3 west:3;\n\
             consistency quorum;\n\
             datacenter east;\n\
             table Limits_1;\n\
             database Limits;\n\
             username joe;\n\
             password s3cret;\n\
             connect_timeout 0.5;\n\
             timeout 500ms;\n\
             tls on;\n\
             tls_verify on;\n\
             tls_name cassandra.example;\n\
             tls_trusted_certificate pem/certificate.pem;\n\
             tls_certificate pem/certificate.pem;\n\
             tls_certificate_key pem/key.pem;\n\
             server cassandra-1.example;\n\
             server cassandra-2.example:9142;\n\
             server [2001:db8::1];\n\
             strategy cassandra;",
            "",
        ),
        (
            "replicas wherever",
            "strategy cassandra;\n\
             replication 255;\n\
             consistency all;",
            "",
        ),
        (
            "a consistency level as Cassandra writes it",
            "strategy cassandra;\n\
             consistency LOCAL_QUORUM;",
            "",
        ),
        (
            "the longest names, which a table of Postgres could not have both",
            "strategy cassandra;\n\
             database keyspace_of_48_characters_keyspace_of_48_chara_0;\n\
             table table_of_38_characters_table_of_38_c_0;",
            "",
        ),
    ]);
    check_with_files(&[(
        "the password in a file",
        &[("password", b"s3cret\n")],
        "ratelimit_zone zone=counters:1m;\n\
         ratelimit_store main { strategy cassandra; username joe; password_file password; }",
        "",
    )]);
}

#[test]
fn wrong_options_of_cassandra() {
    check_in_store(&[
        (
            "datacenter: none",
            "datacenter;",
            "[emerg] ratelimit_store \"main\": \"datacenter\" takes one word, not 0: the name \
             of a datacenter, such as datacenter1 in http.conf:1",
        ),
        (
            "datacenter: an empty word",
            "datacenter \"\";",
            "[emerg] ratelimit_store \"main\": invalid datacenter \"\": expected the name of a \
             datacenter, such as datacenter1 in http.conf:1",
        ),
        (
            "datacenter: twice",
            "datacenter east;\n\
             datacenter east;",
            "[emerg] ratelimit_store \"main\": \"datacenter\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "consistency: none",
            "consistency;",
            "[emerg] ratelimit_store \"main\": \"consistency\" takes one word, not 0: \
             local_quorum, quorum or all in http.conf:1",
        ),
        (
            "consistency: one that would lose what others counted",
            "consistency one;",
            "[emerg] ratelimit_store \"main\": invalid consistency \"one\": expected \
             local_quorum, quorum or all in http.conf:1",
        ),
        (
            "consistency: twice",
            "consistency all;\n\
             consistency all;",
            "[emerg] ratelimit_store \"main\": \"consistency\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "replication: none",
            "replication;",
            "[emerg] ratelimit_store \"main\": \"replication\" takes at least one word: a \
             number of replicas from 1 to 255, or one for each datacenter, such as east:3 \
             west:3 in http.conf:1",
        ),
        (
            "replication: 0",
            "replication 0;",
            "[emerg] ratelimit_store \"main\": invalid replication \"0\": expected a number of \
             replicas from 1 to 255, or one for each datacenter, such as east:3 west:3 in \
             http.conf:1",
        ),
        (
            "replication: a fraction",
            "replication 1.5;",
            "[emerg] ratelimit_store \"main\": invalid replication \"1.5\": expected a number \
             of replicas from 1 to 255, or one for each datacenter, such as east:3 west:3 in \
             http.conf:1",
        ),
        (
            "replication: two numbers",
            "replication 3 3;",
            "[emerg] ratelimit_store \"main\": invalid replication: expected a number of \
             replicas from 1 to 255, or one for each datacenter, such as east:3 west:3 in \
             http.conf:1",
        ),
        (
            "replication: a datacenter twice",
            "replication east:3 east:3;",
            "[emerg] ratelimit_store \"main\": invalid replication: expected a number of \
             replicas from 1 to 255, or one for each datacenter, such as east:3 west:3 in \
             http.conf:1",
        ),
        (
            "replication: a datacenter without a number",
            "replication east;",
            "[emerg] ratelimit_store \"main\": invalid replication \"east\": expected a number \
             of replicas from 1 to 255, or one for each datacenter, such as east:3 west:3 in \
             http.conf:1",
        ),
        (
            "replication: twice",
            "replication 1;\n\
             replication 3;",
            "[emerg] ratelimit_store \"main\": \"replication\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "database: a name that keyspaces do not have",
            "strategy cassandra;\n\
             database rate-limits;",
            "[emerg] ratelimit_store \"main\": invalid database \"rate-limits\": expected the \
             name of a Cassandra keyspace, of 1 to 48 A-Z, a-z, 0-9, \"_\", no digit first in \
             http.conf:2",
        ),
        (
            "database: the same, before the strategy",
            "database rate-limits;\n\
             strategy cassandra;",
            "[emerg] ratelimit_store \"main\": invalid database \"rate-limits\": expected the \
             name of a Cassandra keyspace, of 1 to 48 A-Z, a-z, 0-9, \"_\", no digit first in \
             http.conf:1",
        ),
        (
            "table: a schema, as only Postgres has it",
            "strategy cassandra;\n\
             table limits.counters;",
            "[emerg] ratelimit_store \"main\": invalid table \"limits.counters\": expected name \
             of 1 to 38 A-Z, a-z, 0-9, \"_\", no digit first in http.conf:2",
        ),
        (
            "table: too long for the names that begin with it",
            "strategy cassandra;\n\
             table table_of_39_characters_table_of_39_ch_0;",
            "[emerg] ratelimit_store \"main\": invalid table \
             \"table_of_39_characters_table_of_39_ch_0\": expected name of 1 to 38 A-Z, a-z, 0-9, \
             \"_\", no digit first in http.conf:2",
        ),
        (
            "server: a socket",
            "server unix:/run/cassandra;\n\
             strategy cassandra;",
            "[emerg] ratelimit_store \"main\": \"strategy cassandra\" goes with no server \
             \"unix:/run/cassandra\": expected host[:port] or [v6][:port] in http.conf:2",
        ),
        (
            "server: the usual port, said and not said",
            "strategy cassandra;\n\
             server 127.0.0.1;\n\
             server 127.0.0.1:9042;",
            "[emerg] ratelimit_store \"main\": server \"127.0.0.1:9042\" is duplicate: expected it once in \
             http.conf:3",
        ),
        (
            "username: without a password",
            "strategy cassandra;\n\
             username s3cret;",
            "[emerg] ratelimit_store \"main\": \"username\" needs another option: add \
             \"password word;\" in http.conf:2",
        ),
    ]);
}

#[test]
fn options_of_others_are_none_of_cassandra() {
    check_in_store(&[
        (
            "prefix: an option of redis",
            "strategy cassandra;\n\
             prefix rl;",
            "[emerg] ratelimit_store \"main\": \"prefix\" is an option of strategy <with prefixes>, not \
             of cassandra in http.conf:2",
        ),
        (
            "cluster: an option of redis, off too",
            "cluster off;\n\
             strategy cassandra;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is an option of strategy redis, not \
             of cassandra in http.conf:1",
        ),
        (
            "sentinel_master: an option of redis",
            "strategy cassandra;\n\
             sentinel_master mymaster;",
            "[emerg] ratelimit_store \"main\": \"sentinel_master\" is an option of strategy \
             redis, not of cassandra in http.conf:2",
        ),
        (
            "datacenter: of redis",
            "strategy redis;\n\
             datacenter east;",
            "[emerg] ratelimit_store \"main\": \"datacenter\" is an option of strategy \
             cassandra, not of redis in http.conf:2",
        ),
        (
            "consistency: of postgres, before the strategy",
            "consistency quorum;\n\
             strategy postgres;",
            "[emerg] ratelimit_store \"main\": \"consistency\" is an option of strategy \
             cassandra, not of postgres in http.conf:1",
        ),
        (
            "replication: of postgres",
            "strategy postgres;\n\
             replication 3;",
            "[emerg] ratelimit_store \"main\": \"replication\" is an option of strategy \
             cassandra, not of postgres in http.conf:2",
        ),
    ]);
}
