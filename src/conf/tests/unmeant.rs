//! Tests of warnings about legal directives that are probably mistakes.

use super::{ZONE, check, check_in_server, told_of, told_without_callers};

const POLICY: &str = "\nserver: \"default-1d\";q=5;w=86400";

/// Texts in a server that end with a rule `limit=5/1d`, and the warnings before its policy.
fn check_warnings(rows: &[(&str, &str, &str)]) {
    for (title, text, warnings) in rows {
        let text = format!("{ZONE} server {{ {text} }}");
        let told = format!("{warnings}{POLICY}");
        assert_eq!(told_of(&text, &[]), told.trim_start(), "{title}");
    }
}

#[test]
fn a_key_has_a_variable_or_is_a_word_that_is_none() {
    check_warnings(&[
        (
            "the name of a variable",
            "ratelimit_key remote_addr;\n ratelimit limit=5/1d;",
            "[warn] ratelimit_key: the key \"remote_addr\" has no variable, so that all requests \
             count together: did you mean $remote_addr? in http.conf:1",
        ),
        (
            "the name of one of a family, in a rule, beside a word",
            "ratelimit limit=5/1d key=login:http_x_api_key;",
            "[warn] ratelimit: the key \"login:http_x_api_key\" has no variable, so that all requests \
             count together: did you mean $http_x_api_key? in http.conf:1",
        ),
        (
            "in braces",
            "ratelimit_key \"{remote_addr}\"; ratelimit limit=5/1d;",
            "[warn] ratelimit_key: the key \"{remote_addr}\" has no variable, so that all requests \
             count together: did you mean $remote_addr? in http.conf:1",
        ),
        (
            "a word that is a variable's name, too",
            "ratelimit_key uri; ratelimit limit=5/1d;",
            "[warn] ratelimit_key: the key \"uri\" has no variable, so that all requests count \
             together: did you mean $uri? in http.conf:1",
        ),
        (
            "an empty key",
            "ratelimit_key \"\"; ratelimit limit=5/1d;",
            "[warn] ratelimit_key: the key is empty, and requests with an empty key are not \
             accounted: expected a variable, or \"ratelimit off;\" if that is meant, in http.conf:1",
        ),
        (
            "an empty key of a rule",
            "ratelimit limit=5/1d\n key=;",
            "[warn] ratelimit: the key is empty, and requests with an empty key are not accounted: \
             expected a variable, or \"ratelimit off;\" if that is meant, in http.conf:2",
        ),
        ("a constant", "ratelimit_key all; ratelimit limit=5/1d;", ""),
        ("a constant of words", "ratelimit_key all_of_us; ratelimit limit=5/1d;", ""),
        ("text beside a variable", "ratelimit_key remote_addr=$arg_k; ratelimit limit=5/1d;", ""),
        ("a word beside others", "ratelimit limit=5/1d key=login-uri;", ""),
    ]);
}

#[test]
fn a_limit_compares_the_cost_of_a_request() {
    check_in_server(&[
        (
            "a limit below a hit",
            "ratelimit limit=0.5/10s;",
            "[warn] ratelimit: \"limit=0.5/10s\" never admits a request, which costs 1: expected at \
             least that, or a lower cost= in http.conf:1\n\
             server: \"default-10s\";q=0;w=10",
        ),
        (
            "a cost above one of two limits",
            "ratelimit limit=100/1m limit=5/1s cost=6;",
            "[warn] ratelimit: \"limit=5/1s\" never admits a request, which costs 6: expected at \
             least that, or a lower cost= in http.conf:1\n\
             server: \"default-1m\";q=100;w=60, \"default-1s\";q=5;w=1",
        ),
        (
            "a cost above the burst",
            "ratelimit rate=10/1s burst=4 cost=6;",
            "[warn] ratelimit: \"rate=10/1s\" never admits a request, which costs 6: expected burst=5 \
             at least in http.conf:1\n\
             server: \"default-rate\";q=5",
        ),
        (
            "a delay without a burst",
            "ratelimit rate=1/1s delay=all;",
            "[warn] ratelimit: delay= has no effect without a burst, since what is above the rate is \
             rejected: expected burst=hits beside it in http.conf:1\n\
             server: \"default-rate\";q=1;w=1",
        ),
        (
            "a delay of some hits without a burst",
            "ratelimit rate=1/1s delay=5;",
            "[warn] ratelimit: delay= has no effect without a burst, since what is above the rate is \
             rejected: expected burst=hits beside it in http.conf:1\n\
             server: \"default-rate\";q=1;w=1",
        ),
        (
            "a cost that is as high, hits that are told later, and a slow rate",
            "ratelimit limit=0.5/1s cost=0.5; ratelimit limit=0.5/1m charge=9; \
             ratelimit rate=0.5/1s name=slow;",
            "server: \"default-1s\";q=0;w=1, \"default-1m\";q=0;w=60, \"slow\";q=1;w=2",
        ),
    ]);
}

#[test]
fn a_return_answers_before_rules() {
    check(&[(
        "returns, and what stands before them",
        "ratelimit_zone zone=counters:1m; server {\n\
         ratelimit limit=5/1d;\n\
         location /a { return 200; ratelimit limit=6/2d; ratelimit limit=7/3d; }\n\
         location /b { ratelimit limit=8/4d; rewrite ^/b/ /c break; return 404; }\n\
         location /c { ratelimit limit=9/5d; if ($arg_x) { return 403; } }\n\
         location /d { return 200; }\n\
         location /e { return 200; ratelimit off; }\n\
         location /f { ratelimit_api; return 200; }\n\
         location /g { ratelimit limit=1/7d; if ($arg_x) { set $a 1; } rewrite ^/g /h; return 200; }\n\
         location /i { ratelimit limit=1/8d; if ($arg_x) { break; } return 200; }\n\
         } server { return 301;\n\
         ratelimit limit=1/6d; location / { } }",
        "[warn] ratelimit_api: \"return\" stands in the same place, and answers every request before \
         this: expected it in a location of its own, in http.conf:8\n\
         [warn] ratelimit: \"return\" stands in the same place, and answers every request before this: \
         expected it in a location of its own, in http.conf:3\n\
         [warn] ratelimit: \"return\" stands in the same place, and answers every request before this: \
         expected it in a location of its own, in http.conf:9\n\
         [warn] ratelimit: \"return\" stands in the same place, and answers every request before this: \
         expected it in a location of its own, in http.conf:12\n\
         server: \"default-1d\";q=5;w=86400\n\
         location /a: \"default-2d\";q=6;w=172800, \"default-3d\";q=7;w=259200\n\
         location /b: \"default-4d\";q=8;w=345600\n\
         location /c: \"default-5d\";q=9;w=432000\n\
         if ($arg_x): \"default-5d\";q=9;w=432000\n\
         location /d: \"default-1d\";q=5;w=86400\n\
         location /g: \"default-7d\";q=1;w=604800\n\
         if ($arg_x): \"default-7d\";q=1;w=604800\n\
         location /i: \"default-8d\";q=1;w=691200\n\
         if ($arg_x): \"default-8d\";q=1;w=691200\n\
         server: \"default-6d\";q=1;w=518400\n\
         location /: \"default-6d\";q=1;w=518400",
    )]);
}

#[test]
fn a_user_is_counted_by_once_verified() {
    check(&[(
        "rules before and after auth_basic",
        "ratelimit_zone zone=counters:1m; ratelimit_key $remote_user;\n\
         server { auth_basic on;\n\
         ratelimit limit=1/1d;\n\
         location /a { }\n\
         location /b { ratelimit_phase precontent; ratelimit limit=2/2d; }\n\
         location /c { auth_basic off; ratelimit limit=3/3d; }\n\
         location /d { ratelimit limit=4/4d key=$arg_k; ratelimit limit=5/5d \"key=user ${remote_user}\"; }\n\
         }",
        "[warn] ratelimit: the key has $remote_user, which auth_basic verifies only after this rule: \
         expected \"ratelimit_phase precontent;\" in http.conf:3\n\
         [warn] ratelimit: the key has $remote_user, which auth_basic verifies only after this rule: \
         expected \"ratelimit_phase precontent;\" in http.conf:7\n\
         server: \"default-1d\";q=1;w=86400\n\
         location /a: \"default-1d\";q=1;w=86400\n\
         location /b: \"default-2d\";q=2;w=172800\n\
         location /c: \"default-3d\";q=3;w=259200\n\
         location /d: \"default-4d\";q=4;w=345600, \"default-5d\";q=5;w=432000",
    )]);
}

#[test]
fn a_namespace_that_is_synced_has_rules_or_callers() {
    const STORE: &str =
        "ratelimit_zone zone=counters:1m; ratelimit_store main { strategy redis; }\n";
    let unused = "[warn] ratelimit_namespace \"api\": no rule counts in it: expected \"ratelimit api \
                  limit=hits/window;\", or no such namespace in http.conf:2";
    for (namespace, more, told) in [
        ("store main; sync_rate 1s;", "", unused),
        (
            "store main; sync_rate 0;",
            "ratelimit_namespace default { zone counters; } server { ratelimit limit=5/1m; }",
            unused,
        ),
        ("store main; sync_rate 0;", "server { location / { ratelimit_api; } }", unused),
        ("store main; sync_rate 1s;", "server { ratelimit api limit=5/1m; }", ""),
        ("store main; sync_rate 0;", "server { location / { ratelimit_api write=on; } }", ""),
        ("store main; sync_rate off;", "", unused),
        ("", "", ""),
    ] {
        let text = format!("{STORE}ratelimit_namespace api {{ {namespace} }}\n{more}");
        assert_eq!(told_without_callers(&text), told, "{namespace} {more}");
    }
}

#[test]
fn variables_are_there() {
    check_in_server(&[
        (
            "an unknown variable of a key",
            "ratelimit_key $missing;\n ratelimit limit=5/1d;",
            "[emerg] ratelimit_key: unknown \"missing\" variable in http.conf:1",
        ),
        (
            "an unknown variable of a limit, in braces, beside captures",
            "ratelimit limit=5/1m\n limit=$1${missing_limit}0/1d;",
            "[emerg] ratelimit: unknown \"missing_limit\" variable in http.conf:2",
        ),
    ]);
}

#[test]
fn many_rules_of_two_limits_that_share_a_counter_are_one_pair() {
    let rules =
        |limit: &str| format!("location /x {{ ratelimit limit={limit}/1d; }}\n").repeat(2500);
    let text =
        format!("ratelimit_zone zone=counters:1m; server {{\n{}{}}}", rules("5"), rules("6"));
    assert_eq!(
        told_without_callers(&text),
        "[warn] ratelimit: this rule (in 2500 places) and that in http.conf:2 have different limits, and \
         share the counter of key \"$remote_addr\" and window 1d: expected counter=name for another \
         counter, or counter=default if this is meant, in http.conf:2502"
    );
    let rules: String =
        (1..=100).map(|limit| format!("location /x {{ ratelimit limit={limit}/1d; }}\n")).collect();
    let told =
        told_without_callers(&format!("ratelimit_zone zone=counters:1m; server {{\n{rules}}}"));
    assert_eq!(told.lines().count(), 21);
    assert!(told.ends_with("ratelimit: 79 more pairs of different limits share counters, the first of them in http.conf:23"), "{told}");
}
