//! Tests of the directives of only one kind of store.

use crate::conf::tests::check_in_store;

#[test]
fn a_cluster_is_no_other_redis() {
    check_in_store(&[
        (
            "cluster: none",
            "cluster;",
            "[emerg] ratelimit_store \"main\": \"cluster\" takes one word, not 0: on or off in \
             http.conf:1",
        ),
        (
            "cluster: neither on nor off",
            "cluster yes;",
            "[emerg] ratelimit_store \"main\": invalid cluster \"yes\": expected on or off in \
             http.conf:1",
        ),
        (
            "cluster: twice",
            "cluster on;\n\
             cluster off;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "cluster: with sentinels",
            "strategy redis;\n\
             cluster on;\n\
             sentinel_master mymaster;",
            "[emerg] ratelimit_store \"main\": \"cluster on\" goes with no \"sentinel_master\": \
             expected one of them in http.conf:3",
        ),
        (
            "cluster: with sentinels, the other way round",
            "sentinel_master mymaster;\n\
             cluster on;\n\
             strategy redis;",
            "[emerg] ratelimit_store \"main\": \"cluster on\" goes with no \"sentinel_master\": \
             expected one of them in http.conf:2",
        ),
        (
            "cluster: with another database than 0",
            "strategy redis;\n\
             database 1;\n\
             cluster on;",
            "[emerg] ratelimit_store \"main\": \"cluster on\" goes with no other database than 0: \
             expected \"database 0\" or none in http.conf:3",
        ),
        (
            "cluster: with a socket",
            "strategy redis;\n\
             cluster on;\n\
             server unix:/run/redis.sock;",
            "[emerg] ratelimit_store \"main\": \"cluster on\" goes with no server \
             \"unix:/run/redis.sock\": expected host[:port] or [v6][:port] in http.conf:3",
        ),
        (
            "cluster: with a socket whose name has several lines",
            "strategy redis;\n\
             cluster on;\n\
             server \"unix:/run/redis\n\u{1b}\";",
            "[emerg] ratelimit_store \"main\": \"cluster on\" goes with no server \
             \"unix:/run/redis  \": expected host[:port] or [v6][:port] in http.conf:4",
        ),
        (
            "cluster: an option of redis alone",
            "strategy postgres;\n\
             cluster on;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is an option of strategy redis, not of \
             postgres in http.conf:2",
        ),
        (
            "cluster: an option of redis alone, off too",
            "cluster off;\n\
             strategy postgres;",
            "[emerg] ratelimit_store \"main\": \"cluster\" is an option of strategy redis, not of \
             postgres in http.conf:1",
        ),
        (
            "sentinel_master: none",
            "sentinel_master;",
            "[emerg] ratelimit_store \"main\": \"sentinel_master\" takes one word, not 0: the \
             name by which the sentinels know the primary, such as mymaster in http.conf:1",
        ),
        (
            "sentinel_master: an empty word",
            "sentinel_master \"\";",
            "[emerg] ratelimit_store \"main\": invalid sentinel_master \"\": expected the name by \
             which the sentinels know the primary, such as mymaster in http.conf:1",
        ),
        (
            "sentinel_master: twice",
            "sentinel_master one;\n\
             sentinel_master two;",
            "[emerg] ratelimit_store \"main\": \"sentinel_master\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "sentinel_master: with a socket",
            "strategy redis;\n\
             sentinel_master mymaster;\n\
             server unix:/run/redis.sock;",
            "[emerg] ratelimit_store \"main\": \"sentinel_master\" goes with no server \
             \"unix:/run/redis.sock\": expected host[:port] or [v6][:port] in http.conf:3",
        ),
        (
            "sentinel_master: an option of redis alone",
            "strategy postgres;\n\
             sentinel_master mymaster;",
            "[emerg] ratelimit_store \"main\": \"sentinel_master\" is an option of strategy \
             redis, not of postgres in http.conf:2",
        ),
    ]);
}

#[test]
fn databases_prefixes_and_tables_have_names() {
    check_in_store(&[
        (
            "database: none",
            "database;",
            "[emerg] ratelimit_store \"main\": \"database\" takes one word, not 0: the number of \
             a Redis database or the name of a Postgres database in http.conf:1",
        ),
        (
            "database: an empty word",
            "database \"\";",
            "[emerg] ratelimit_store \"main\": invalid database \"\": expected the number of a \
             Redis database or the name of a Postgres database in http.conf:1",
        ),
        (
            "database: twice",
            "database 0;\n\
             database 0;",
            "[emerg] ratelimit_store \"main\": \"database\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "database: a name for Redis",
            "strategy redis;\n\
             database main;",
            "[emerg] ratelimit_store \"main\": invalid database \"main\": expected the number of \
             a Redis database, such as 0 in http.conf:2",
        ),
        (
            "database: a name before the strategy that has none",
            "database main;\n\
             strategy redis;",
            "[emerg] ratelimit_store \"main\": invalid database \"main\": expected the number of \
             a Redis database, such as 0 in http.conf:1",
        ),
        (
            "database: a negative number for Redis",
            "strategy redis;\n\
             database -1;",
            "[emerg] ratelimit_store \"main\": invalid database \"-1\": expected the number of a \
             Redis database, such as 0 in http.conf:2",
        ),
        (
            "database: a fraction for Redis",
            "strategy redis;\n\
             database 1.5;",
            "[emerg] ratelimit_store \"main\": invalid database \"1.5\": expected the number of a \
             Redis database, such as 0 in http.conf:2",
        ),
        (
            "database: too large a number for Redis",
            "strategy redis;\n\
             database 99999999999;",
            "[emerg] ratelimit_store \"main\": invalid database \"99999999999\": expected the \
             number of a Redis database, such as 0 in http.conf:2",
        ),
        (
            "prefix: none",
            "prefix;",
            "[emerg] ratelimit_store \"main\": \"prefix\" takes one word, not 0: 1 to 64 \
             printable ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
        (
            "prefix: an empty word",
            "prefix \"\";",
            "[emerg] ratelimit_store \"main\": invalid prefix \"\": expected 1 to 64 printable \
             ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
        (
            "prefix: twice",
            "prefix a;\n\
             prefix a;",
            "[emerg] ratelimit_store \"main\": \"prefix\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "prefix: with a blank",
            "prefix \"a b\";",
            "[emerg] ratelimit_store \"main\": invalid prefix \"a b\": expected 1 to 64 printable \
             ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
        (
            "prefix: with a brace, which would decide on the slot of a cluster",
            "prefix \"{rl}\";",
            "[emerg] ratelimit_store \"main\": invalid prefix \"{rl}\": expected 1 to 64 \
             printable ASCII characters without blanks and braces, such as rl in http.conf:1",
        ),
        (
            "prefix: of 65 characters",
            "prefix prefix.of.more.than.64.characters.prefix.of.more.than.64.characters;",
            "[emerg] ratelimit_store \"main\": invalid prefix \
             \"prefix.of.more.than.64.characters.prefix.of.more.than.64.characters\": expected 1 \
             to 64 printable ASCII characters without blanks and braces, such as rl in \
             http.conf:1",
        ),
        (
            "prefix: an option of redis alone",
            "strategy postgres;\n\
             prefix rl;",
            "[emerg] ratelimit_store \"main\": \"prefix\" is an option of strategy <with prefixes>, not of \
             postgres in http.conf:2",
        ),
        (
            "table: none",
            "table;",
            "[emerg] ratelimit_store \"main\": \"table\" takes one word, not 0: name or \
             schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of \
             1 to 55 in http.conf:1",
        ),
        (
            "table: an empty word",
            "table \"\";",
            "[emerg] ratelimit_store \"main\": invalid table \"\": expected name or schema.name, \
             of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of 1 to 55 in \
             http.conf:1",
        ),
        (
            "table: twice",
            "table a;\n\
             table a;",
            "[emerg] ratelimit_store \"main\": \"table\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "table: with a character that names do not have",
            "strategy postgres;\n\
             table \"counters; drop\";",
            "[emerg] ratelimit_store \"main\": invalid table \"counters; drop\": expected name or \
             schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of \
             1 to 55 in http.conf:2",
        ),
        (
            "table: a schema without a name",
            "strategy postgres;\n\
             table public.;",
            "[emerg] ratelimit_store \"main\": invalid table \"public.\": expected name or \
             schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of \
             1 to 55 in http.conf:2",
        ),
        (
            "table: more than a schema and a name",
            "strategy postgres;\n\
             table main.public.counters;",
            "[emerg] ratelimit_store \"main\": invalid table \"main.public.counters\": expected \
             name or schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a \
             name of 1 to 55 in http.conf:2",
        ),
        (
            "table: too long for the names that begin with it",
            "strategy postgres;\n\
             table xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx;",
            "[emerg] ratelimit_store \"main\": invalid table \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\": expected name or \
             schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of \
             1 to 55 in http.conf:2",
        ),
        (
            "table: a digit first",
            "strategy postgres;\n\
             table 1counters;",
            "[emerg] ratelimit_store \"main\": invalid table \"1counters\": expected name or \
             schema.name, of A-Z, a-z, 0-9, \"_\", no digit first: a schema of 1 to 63, a name of \
             1 to 55 in http.conf:2",
        ),
        (
            "table: an option that redis lacks",
            "strategy redis;\n\
             table counters;",
            "[emerg] ratelimit_store \"main\": \"table\" is an option of strategy \
             <with tables>, not of redis in http.conf:2",
        ),
        (
            "table: an option that redis lacks, before the strategy",
            "table counters;\n\
             strategy redis;",
            "[emerg] ratelimit_store \"main\": \"table\" is an option of strategy \
             <with tables>, not of redis in http.conf:1",
        ),
    ]);
}
