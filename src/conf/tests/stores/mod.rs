//! Tests of the directives that all stores have.

mod blocks;
#[cfg(feature = "cassandra")]
mod cassandra;
mod credentials;
mod redis_and_postgres;
mod tls;
#[cfg(any(feature = "etcd", feature = "memcached"))]
mod values;

use super::{check_in_store, kinds, told_of};

#[test]
fn a_strategy_is_a_kind_of_store() {
    let all = kinds().into_iter().map(|name| format!("\"strategy {name};\""));
    let all = all.collect::<Vec<_>>().join(" or ");
    for (title, block) in
        [("no directive at all", "{ }"), ("no strategy", "{ server 127.0.0.1:6379; }")]
    {
        let text = format!("ratelimit_zone zone=counters:1m;\nratelimit_store main {block}");
        let told =
            format!("[emerg] ratelimit_store \"main\": no strategy: add {all} in http.conf:2");
        assert_eq!(told_of(&text, &[]), told, "{title}");
    }
    check_in_store(&[
        (
            "strategy: none",
            "strategy;",
            "[emerg] ratelimit_store \"main\": \"strategy\" takes one word, not 0: <strategies> \
             in http.conf:1",
        ),
        (
            "strategy: two",
            "strategy redis postgres;",
            "[emerg] ratelimit_store \"main\": \"strategy\" takes one word, not 2: <strategies> \
             in http.conf:1",
        ),
        (
            "strategy: twice",
            "strategy redis;\n\
             strategy redis;",
            "[emerg] ratelimit_store \"main\": \"strategy\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "strategy: an unknown one",
            "strategy mysql;",
            "[emerg] ratelimit_store \"main\": invalid strategy \"mysql\": expected <strategies> \
             in http.conf:1",
        ),
        (
            "strategy: another name of one",
            "strategy postgresql;",
            "[emerg] ratelimit_store \"main\": invalid strategy \"postgresql\": expected \
             <strategies>: did you mean postgres? in http.conf:1",
        ),
        (
            "strategy: one in capitals",
            "strategy Redis;",
            "[emerg] ratelimit_store \"main\": invalid strategy \"Redis\": expected <strategies>: \
             did you mean redis? in http.conf:1",
        ),
        (
            "strategy: an empty word",
            "strategy \"\";",
            "[emerg] ratelimit_store \"main\": invalid strategy \"\": expected <strategies> \
             in http.conf:1",
        ),
    ]);
}

#[test]
fn a_server_has_an_address() {
    check_in_store(&[
        (
            "server: none",
            "server;",
            "[emerg] ratelimit_store \"main\": \"server\" takes one word, not 0: host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: two in one directive",
            "server 127.0.0.1:6379 127.0.0.1:6380;",
            "[emerg] ratelimit_store \"main\": \"server\" takes one word, not 2: host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: twice the same",
            "server 127.0.0.1:6379;\n\
             server 127.0.0.1:6380;\n\
             server 127.0.0.1:6379;",
            "[emerg] ratelimit_store \"main\": server \"127.0.0.1:6379\" is duplicate: expected it once in \
             http.conf:3",
        ),
        (
            "server: a port without a host",
            "server :6379;",
            "[emerg] ratelimit_store \"main\": invalid server \":6379\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: an empty word",
            "server \"\";",
            "[emerg] ratelimit_store \"main\": invalid server \"\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: an empty port",
            "server localhost:;",
            "[emerg] ratelimit_store \"main\": invalid server \"localhost:\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: port 0",
            "server localhost:0;",
            "[emerg] ratelimit_store \"main\": invalid server \"localhost:0\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: a port that is too large",
            "server localhost:65536;",
            "[emerg] ratelimit_store \"main\": invalid server \"localhost:65536\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: a port that is a name",
            "server localhost:redis;",
            "[emerg] ratelimit_store \"main\": invalid server \"localhost:redis\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: IPv6 without brackets",
            "server ::1:6379;",
            "[emerg] ratelimit_store \"main\": invalid server \"::1:6379\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: an address that cannot be one",
            "server 127.0.0.256:6379;",
            "[emerg] ratelimit_store \"main\": invalid server \"127.0.0.256:6379\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: a name with a character that names do not have",
            "server a/b:6379;",
            "[emerg] ratelimit_store \"main\": invalid server \"a/b:6379\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: a URL",
            "server redis://127.0.0.1:6379;",
            "[emerg] ratelimit_store \"main\": invalid server \"redis://127.0.0.1:6379\": \
             expected host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379: did you mean \
             \"server 127.0.0.1:6379;\"? in http.conf:1",
        ),
        (
            "server: a URL with a database",
            "server rediss://[2001:db8::1]/0;",
            "[emerg] ratelimit_store \"main\": invalid server \"rediss://[2001:db8::1]/0\": \
             expected host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379: did you mean \
             \"server [2001:db8::1];\"? in http.conf:1",
        ),
        (
            "server: a relative path",
            "server unix:redis.sock;",
            "[emerg] ratelimit_store \"main\": invalid server \"unix:redis.sock\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: no path",
            "server unix:;",
            "[emerg] ratelimit_store \"main\": invalid server \"unix:\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: a path alone",
            "server /run/redis.sock;",
            "[emerg] ratelimit_store \"main\": invalid server \"/run/redis.sock\": expected \
             host[:port], [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
        (
            "server: an address that is very long",
            "server <1200 x>;",
            "[emerg] ratelimit_store \"main\": invalid server \
             \"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\": expected host[:port], \
             [v6][:port] or unix:/path, such as 127.0.0.1:6379 in http.conf:1",
        ),
    ]);
}

#[test]
fn exchanges_are_bounded() {
    check_in_store(&[
        (
            "none in a second",
            "exchanges 0;",
            "[emerg] ratelimit_store \"main\": invalid exchanges \"0\": expected a number from 1 \
             to 1000000 in http.conf:1",
        ),
        (
            "too many",
            "exchanges 1000001;",
            "[emerg] ratelimit_store \"main\": invalid exchanges \"1000001\": expected a number \
             from 1 to 1000000 in http.conf:1",
        ),
        (
            "a rate",
            "exchanges 5000r/s;",
            "[emerg] ratelimit_store \"main\": invalid exchanges \"5000r/s\": expected a number \
             from 1 to 1000000 in http.conf:1",
        ),
    ]);
}

#[test]
fn times_are_bounded() {
    check_in_store(&[
        (
            "connect_timeout: none",
            "connect_timeout;",
            "[emerg] ratelimit_store \"main\": \"connect_timeout\" takes one word, not 0: a time \
             from 1ms to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "connect_timeout: 0",
            "connect_timeout 0;",
            "[emerg] ratelimit_store \"main\": invalid connect_timeout \"0\": expected a time \
             from 1ms to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "connect_timeout: a word",
            "connect_timeout never;",
            "[emerg] ratelimit_store \"main\": invalid connect_timeout \"never\": expected a time \
             from 1ms to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "connect_timeout: twice",
            "connect_timeout 1;\n\
             connect_timeout 1;",
            "[emerg] ratelimit_store \"main\": \"connect_timeout\" is duplicate: expected it once in http.conf:2",
        ),
        (
            "timeout: two",
            "timeout 250 ms;",
            "[emerg] ratelimit_store \"main\": \"timeout\" takes one word, not 2: a time from 1ms \
             to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "timeout: a negative one",
            "timeout -1s;",
            "[emerg] ratelimit_store \"main\": invalid timeout \"-1s\": expected a time from 1ms \
             to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "timeout: less than a millisecond",
            "timeout 0.0005;",
            "[emerg] ratelimit_store \"main\": invalid timeout \"0.0005\": expected a time from \
             1ms to 1d, such as 250ms or 0.25 in http.conf:1",
        ),
        (
            "timeout: twice",
            "timeout 1;\n\
             timeout 1;",
            "[emerg] ratelimit_store \"main\": \"timeout\" is duplicate: expected it once in http.conf:2",
        ),
    ]);
}
