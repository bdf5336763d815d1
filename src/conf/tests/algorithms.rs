//! Tests of combinations of algorithms and sync modes, and of counters shared by rules of different algorithms.

use super::{check, check_in_server};

/// A namespace with a `sync_rate`, and rules that count in it.
macro_rules! namespace {
    ($sync_rate:literal, $rules:literal) => {
        concat!(
            "ratelimit_zone zone=counters:1m;\nratelimit_store main { strategy redis; }\n",
            "ratelimit_namespace api { store main; sync_rate ",
            $sync_rate,
            "; }\nserver {\n",
            $rules,
            "\n}"
        )
    };
}

#[test]
fn an_elastic_window_is_local_or_synchronous() {
    check(&[
        (
            "a periodic namespace",
            namespace!("0.5", "ratelimit api limit=5/10s window=elastic;"),
            "[emerg] ratelimit: window=elastic does not go with \"sync_rate 0.5\" of namespace \
             \"api\": expected \"sync_rate off;\" or \"sync_rate 0;\" there in http.conf:5",
        ),
        (
            "a periodic namespace, and a rule that goes with it",
            namespace!(
                "1m",
                "ratelimit api limit=5/10s;\nratelimit api limit=5/10s window=elastic;"
            ),
            "[emerg] ratelimit: window=elastic does not go with \"sync_rate 60\" of namespace \
             \"api\": expected \"sync_rate off;\" or \"sync_rate 0;\" there in http.conf:6",
        ),
        (
            "a synchronous namespace",
            namespace!("0", "ratelimit api limit=5/10s window=elastic;"),
            "server: \"api-10s\";q=5;w=10",
        ),
        (
            "a local namespace",
            namespace!("off", "ratelimit api limit=5/10s window=elastic;"),
            "server: \"api-10s\";q=5;w=10",
        ),
    ]);
}

#[test]
fn a_moving_window_is_local_or_synchronous() {
    check(&[
        (
            "a moving window in a periodic namespace",
            namespace!("0.5", "ratelimit api limit=5/10s window=moving;"),
            "[emerg] ratelimit: window=moving does not go with \"sync_rate 0.5\" of namespace \
             \"api\": expected \"sync_rate off;\" or \"sync_rate 0;\" there in http.conf:5",
        ),
        (
            "a moving window in a synchronous namespace",
            namespace!("0", "ratelimit api limit=5/10s;\nratelimit api limit=5/10s window=moving;"),
            "server: \"api-10s\";q=5;w=10, \"api-10s-2\";q=5;w=10",
        ),
        (
            "a moving window in a local namespace, with the largest limit",
            namespace!("off", "ratelimit api limit=100000/10s window=moving;"),
            "server: \"api-10s\";q=100000;w=10",
        ),
        (
            "a larger limit of another window, and one that varies",
            namespace!(
                "off",
                "ratelimit api limit=100001/10s window=elastic;\n\
                 ratelimit api limit=$arg_l/10s window=moving name=b;"
            ),
            "server: \"api-10s\";q=100001, \"b\";q=$arg_l",
        ),
        (
            "window_sizes of moving windows",
            "ratelimit_zone zone=counters:1m;\nratelimit_namespace api { window_sizes 1m; }\n\
             server {\nratelimit api limit=5/1s window=moving;\n}",
            "[emerg] ratelimit: the window 1s is not one of the window_sizes of namespace \"api\": \
             expected 1m in http.conf:4",
        ),
    ]);
}

#[test]
fn a_rate_is_local_or_synchronous() {
    check(&[
        (
            "a rate in a periodic namespace",
            namespace!("0.5", "ratelimit api rate=10/1s burst=5;"),
            "[emerg] ratelimit: rate= does not go with \"sync_rate 0.5\" of namespace \"api\": \
             expected \"sync_rate off;\" or \"sync_rate 0;\" there in http.conf:5",
        ),
        (
            "a rate in a synchronous namespace",
            namespace!("0", "ratelimit api limit=5/1s;\nratelimit api rate=10/1s;"),
            "server: \"api-1s\";q=5;w=1, \"api-rate\";q=1",
        ),
        (
            "a rate in a local namespace",
            namespace!("off", "ratelimit api rate=10/1s burst=19;"),
            "server: \"api-rate\";q=20;w=2",
        ),
        (
            "the time of a rate is none of window_sizes",
            "ratelimit_zone zone=counters:1m;\nratelimit_namespace api { window_sizes 1m; }\n\
             server {\nratelimit api rate=10/1s;\n}",
            "server: \"api-rate\";q=1",
        ),
    ]);
}

/// Rules of all algorithms in a synchronous namespace.
macro_rules! all_algorithms {
    ($store:literal) => {
        (
            $store,
            concat!(
                "ratelimit_zone zone=counters:1m;\nratelimit_store main { strategy ",
                $store,
                "; }\nratelimit_namespace api { store main; sync_rate 0; }\nserver {\n\
                 ratelimit api limit=5/1s window=moving;\nratelimit api limit=5/2s window=elastic;\n\
                 ratelimit api rate=$arg_r/1s burst=5 delay=all;\n}"
            ),
            "server: \"api-1s\";q=5, \"api-2s\";q=5, \"api-rate\";q=$arg_r",
        )
    };
}

/// A rule whose algorithm Cassandra does not support.
#[cfg(feature = "cassandra")]
macro_rules! synchronous_cassandra {
    ($rule:literal, $word:literal) => {
        (
            $rule,
            concat!(
                "ratelimit_zone zone=counters:1m;\nratelimit_store main { strategy cassandra; }\n\
                 ratelimit_namespace api { store main; sync_rate 0; }\nserver {\nratelimit api ",
                $rule,
                ";\n}"
            ),
            concat!(
                "[emerg] ratelimit: ",
                $word,
                " does not go with \"sync_rate 0;\" of namespace \"api\", whose strategy \
                 cassandra cannot count so exactly: expected a sliding or fixed window, or \
                 \"sync_rate off;\" there in http.conf:5"
            ),
        )
    };
}

#[test]
fn each_store_decides_by_all_algorithms() {
    check(&[all_algorithms!("redis"), all_algorithms!("postgres")]);
}

#[cfg(feature = "cassandra")]
#[test]
fn cassandra_decides_by_sliding_and_fixed_windows() {
    check(&[
        synchronous_cassandra!("limit=5/1s window=elastic", "window=elastic"),
        synchronous_cassandra!("limit=5/1s window=moving", "window=moving"),
        synchronous_cassandra!("rate=5/1s", "rate="),
        (
            "windows",
            "ratelimit_zone zone=counters:1m;\nratelimit_store main { strategy cassandra; }\n\
             ratelimit_namespace api { store main; sync_rate 0; }\nserver {\n\
             ratelimit api limit=5/1s limit=9/2s window=fixed;\n}",
            "server: \"api-1s\";q=5;w=1, \"api-2s\";q=9;w=2",
        ),
    ]);
}

#[test]
fn a_rate_has_a_policy_and_a_counter_of_its_own() {
    check_in_server(&[
        (
            "a burst with a fraction, and what refills in no whole second",
            "ratelimit rate=10/1s burst=20.5;",
            "server: \"default-rate\";q=21",
        ),
        (
            "a rate for a minute",
            "ratelimit rate=100/1m burst=99 delay=all name=x;",
            "server: \"x\";q=100;w=60",
        ),
        (
            "a variable rate",
            "ratelimit rate=$arg_r/1s burst=9;",
            "server: \"default-rate\";q=$arg_r",
        ),
        (
            "rates with other times, and windows",
            "ratelimit rate=1/1s;\nratelimit rate=1/2s;\nratelimit limit=5/1s;",
            "server: \"default-rate\";q=1;w=1, \"default-rate-2\";q=1;w=2, \"default-1s\";q=5;w=1",
        ),
        (
            "rates with one time, and different bursts",
            "ratelimit rate=1/1s;\nratelimit rate=1/1s burst=1;",
            "[warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 1s: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:2\nserver: \
             \"default-rate\";q=1;w=1, \"default-rate-2\";q=2;w=2",
        ),
    ]);
}

#[test]
fn sliding_and_fixed_windows_share_a_counter_and_others_have_their_own() {
    check_in_server(&[
        (
            "sliding and fixed",
            "ratelimit limit=5/10s;\nratelimit limit=9/10s window=fixed;",
            "[warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 10s: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:2\nserver: \
             \"default-10s\";q=5;w=10, \"default-10s-2\";q=9;w=10",
        ),
        (
            "sliding and elastic",
            "ratelimit limit=5/10s;\nratelimit limit=9/10s window=elastic;",
            "server: \"default-10s\";q=5;w=10, \"default-10s-2\";q=9;w=10",
        ),
        (
            "elastic and moving",
            "ratelimit limit=5/10s window=elastic;\nratelimit limit=9/10s window=moving;",
            "server: \"default-10s\";q=5;w=10, \"default-10s-2\";q=9;w=10",
        ),
        (
            "two elastic ones",
            "ratelimit limit=5/10s window=elastic;\nratelimit limit=9/10s window=elastic;",
            "[warn] ratelimit: this rule and that in http.conf:1 have different limits, and share \
             the counter of key \"$remote_addr\" and window 10s: expected counter=name for another \
             counter, or counter=default if this is meant, in http.conf:2\nserver: \
             \"default-10s\";q=5;w=10, \"default-10s-2\";q=9;w=10",
        ),
    ]);
}

#[test]
fn requests_under_way_are_known_to_no_store() {
    check(&[
        (
            "a synchronous namespace",
            namespace!("0", "ratelimit api concurrent=5;"),
            "[emerg] ratelimit: concurrent= does not go with \"sync_rate 0;\" of namespace \"api\", since no store \
             knows which requests are under way: expected \"sync_rate off;\" or a period there in http.conf:5",
        ),
        (
            "a periodic namespace",
            namespace!("0.5", "ratelimit api concurrent=5;"),
            "server: \"api-concurrent\";q=5",
        ),
        (
            "a local namespace, in which a number of requests is no policy",
            namespace!("off", "ratelimit api concurrent=5; ratelimit api limit=9/1s;"),
            "server: \"api-1s\";q=9;w=1",
        ),
    ]);
}

#[test]
fn different_numbers_of_requests_under_way_share_a_counter() {
    check_in_server(&[(
        "two numbers of one key",
        "ratelimit concurrent=5;\nlocation /a {\nratelimit concurrent=6;\n}",
        "[warn] ratelimit: this rule and that in http.conf:1 have different limits, and share the counter of key \
             \"$remote_addr\": expected counter=name for another counter, or counter=default if this is meant, in \
             http.conf:3\n\
         server: \"default-concurrent\";q=5\n\
         location /a: \"default-concurrent\";q=6",
    )]);
}
