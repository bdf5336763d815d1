//! Tests of invalid parameters of rules.

use super::check_in_server;

#[test]
fn a_rule_may_differ_from_its_level() {
    check_in_server(&[
        (
            "ratelimit: what differs",
            "ratelimit limit=5/10s dry_run=on status=403 unless=$arg_a; ratelimit limit=5/1m dry_run=off;",
            "server: \"default-10s\";q=5;w=10, \"default-1m\";q=5;w=60",
        ),
        (
            "ratelimit: a dry run that is neither on nor off",
            "ratelimit limit=5/10s dry_run=yes;",
            "[emerg] ratelimit: invalid parameter \"dry_run=yes\": expected on or off in http.conf:1",
        ),
        (
            "ratelimit: two dry runs",
            "ratelimit limit=5/10s dry_run=on dry_run=off;",
            "[emerg] ratelimit: parameter \"dry_run=off\" is duplicate: expected it once in http.conf:1",
        ),
        (
            "ratelimit: a status that is no error",
            "ratelimit limit=5/10s status=200;",
            "[emerg] ratelimit: invalid parameter \"status=200\": expected a status from 400 to 599 in http.conf:1",
        ),
        (
            "ratelimit: a status that is a variable",
            "ratelimit limit=5/10s status=$arg_a;",
            "[emerg] ratelimit: invalid parameter \"status=$arg_a\": expected a status from 400 to 599 in http.conf:1",
        ),
        (
            "ratelimit: an exception with a variable without a name",
            "ratelimit limit=5/10s unless=$;",
            "[emerg] ratelimit: invalid variable in \"$\": expected $name or ${name} after every \"$\" in http.conf:1",
        ),
    ]);
}

#[test]
fn limits_may_be_a_list() {
    let beside = |other: &str| {
        format!(
            "[emerg] ratelimit: parameter \"limits=$x\" takes the place of \"{other}\": expected one of the two, or rules of \
             their own in http.conf:1"
        )
    };
    for other in ["limit=5/10s", "rate=5/10s", "name=a"] {
        let text = format!("{} server {{ ratelimit limits=$x {other};\n}}", super::ZONE);
        assert_eq!(super::told_of(&text, &[]), beside(other));
    }
    check_in_server(&[
        (
            "ratelimit: a list without a variable",
            "ratelimit limits=5/10s;",
            "[emerg] ratelimit: invalid parameter \"limits=5/10s\": expected a variable with a list, such as 10/1s \
             1000/1d in http.conf:1",
        ),
        (
            "ratelimit: a default without a list",
            "ratelimit limit=5/10s default=5/10s;",
            "[emerg] ratelimit: parameter \"default=5/10s\" is of a list: expected \"limits=$variable\" beside it in \
             http.conf:1",
        ),
        (
            "ratelimit: a default that is no list",
            "ratelimit limits=$arg_a default=x;",
            "[emerg] ratelimit: invalid parameter \"default=x\": \"x\" is no limit: expected hits/window, such as 10/1s \
             in http.conf:1",
        ),
        (
            "ratelimit: a list in a namespace without windows",
            "ratelimit limits=$arg_a;",
            "[emerg] ratelimit: limits= has limits of the windows of namespace \"default\", which has none: expected \
             \"window_sizes\" in its block in http.conf:1",
        ),
        (
            "ratelimit: a default of another window",
            "ratelimit limits=$arg_a default=5/1h; ratelimit limit=5/10s;",
            "[emerg] ratelimit: default=: the namespace has no window 1h: expected 10s in http.conf:1",
        ),
        (
            "ratelimit: a list beside a limit",
            "ratelimit limits=$arg_a default=9/10s; ratelimit limit=5/10s;",
            "server: \"default-10s\";q=$arg_a, \"default-10s-2\";q=5",
        ),
    ]);
}

#[test]
fn a_rule_has_parameters() {
    check_in_server(&[
        (
            "ratelimit: an unknown window type",
            "ratelimit limit=5/10s window=round;",
            "[emerg] ratelimit: invalid parameter \"window=round\": expected sliding, fixed, elastic \
             or moving in http.conf:1",
        ),
        (
            "ratelimit: an empty window type",
            "ratelimit limit=5/10s window=;",
            "[emerg] ratelimit: invalid parameter \"window=\": expected sliding, fixed, elastic or moving in \
             http.conf:1",
        ),
        (
            "ratelimit: two window types",
            "ratelimit limit=5/10s window=sliding window=fixed;",
            "[emerg] ratelimit: parameter \"window=fixed\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: the same window type twice",
            "ratelimit limit=5/10s window=fixed window=fixed;",
            "[emerg] ratelimit: parameter \"window=fixed\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: more than a moving window counts",
            "ratelimit limit=5/10s limit=100001/1d window=moving;",
            "[emerg] ratelimit: invalid parameter \"limit=100001/1d\": expected at most 100000 \
             hits with window=moving in http.conf:1",
        ),
        (
            "ratelimit: a window type in upper case",
            "ratelimit limit=5/10s window=Fixed;",
            "[emerg] ratelimit: invalid parameter \"window=Fixed\": expected sliding, fixed, elastic or moving in \
             http.conf:1",
        ),
        (
            "ratelimit: a window type that is a variable",
            "ratelimit limit=5/10s window=$arg_window;",
            "[emerg] ratelimit: invalid parameter \"window=$arg_window\": expected sliding, fixed, \
             elastic or moving in http.conf:1",
        ),
        (
            "ratelimit: two keys",
            "ratelimit limit=5/10s key=$arg_a key=$arg_b;",
            "[emerg] ratelimit: parameter \"key=$arg_b\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: a key without \"=\"",
            "ratelimit limit=5/10s key $arg_a;",
            "[emerg] ratelimit: invalid parameter \"key\": expected limit=hits/window, limits=, default=, window=, tz=, rate=hits/time, burst=, delay=, concurrent=, \
             key=, counter=, cost=, charge=, dry_run=, status=, unless=, ban=, ban_after= or name=; or as the first word, and no other, a \
             namespace: \"ratelimit key limit=...\" in http.conf:1",
        ),
        (
            "ratelimit: a key with a variable without a name",
            "ratelimit limit=5/10s key=a$;",
            "[emerg] ratelimit: invalid variable in \"a$\": expected $name or ${name} after every \
             \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a key with an open brace",
            "ratelimit limit=5/10s key=${arg_a;",
            "[emerg] ratelimit: invalid variable in \"${arg_a\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a key with a variable of another character",
            "ratelimit limit=5/10s key=${a-b};",
            "[emerg] ratelimit: invalid variable in \"${a-b}\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a cost that is no number",
            "ratelimit limit=5/10s cost=much;",
            "[emerg] ratelimit: invalid parameter \"cost=much\": invalid number \"much\": \
             expected a decimal, such as 1 or 0.5, or variables (not a plain decimal) in \
             http.conf:1",
        ),
        (
            "ratelimit: an empty cost",
            "ratelimit limit=5/10s cost=;",
            "[emerg] ratelimit: invalid parameter \"cost=\": invalid number \"\": expected a \
             decimal, such as 1 or 0.5, or variables (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: a negative cost",
            "ratelimit limit=5/10s cost=-1;",
            "[emerg] ratelimit: invalid parameter \"cost=-1\": invalid number \"-1\": expected a \
             decimal, such as 1 or 0.5, or variables (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: a cost with an exponent",
            "ratelimit limit=5/10s cost=1e3;",
            "[emerg] ratelimit: invalid parameter \"cost=1e3\": invalid number \"1e3\": expected \
             a decimal, such as 1 or 0.5, or variables (not a plain decimal): did you mean 1000? in \
             http.conf:1",
        ),
        (
            "ratelimit: a cost with a comma",
            "ratelimit limit=5/10s cost=1,5;",
            "[emerg] ratelimit: invalid parameter \"cost=1,5\": invalid number \"1,5\": expected \
             a decimal, such as 1 or 0.5, or variables (not a plain decimal): did you mean 1.5? in \
             http.conf:1",
        ),
        (
            "ratelimit: a cost of more than can be counted",
            "ratelimit limit=5/10s cost=1000000000000;",
            "[emerg] ratelimit: invalid parameter \"cost=1000000000000\": invalid number \
             \"1000000000000\": expected a decimal, such as 1 or 0.5, or variables (larger than \
             140737488355.327) in http.conf:1",
        ),
        (
            "ratelimit: a cost with a variable without a name",
            "ratelimit limit=5/10s cost=$;",
            "[emerg] ratelimit: invalid parameter \"cost=$\": invalid variable in \"$\": expected \
             $name or ${name} after every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a cost with a variable of another character",
            "ratelimit limit=5/10s cost=${a-b};",
            "[emerg] ratelimit: invalid parameter \"cost=${a-b}\": invalid variable in \
             \"${a-b}\": expected $name or ${name} after every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: two costs",
            "ratelimit limit=5/10s cost=1 cost=1;",
            "[emerg] ratelimit: parameter \"cost=1\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: a charge that is no number",
            "ratelimit limit=5/10s charge=bytes_sent;",
            "[emerg] ratelimit: invalid parameter \"charge=bytes_sent\": invalid number \
             \"bytes_sent\": expected a decimal, such as 1 or 0.5, or variables (not a plain \
             decimal) in http.conf:1",
        ),
        (
            "ratelimit: an empty charge",
            "ratelimit limit=5/10s charge=;",
            "[emerg] ratelimit: invalid parameter \"charge=\": invalid number \"\": expected a \
             decimal, such as 1 or 0.5, or variables (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: a negative charge",
            "ratelimit limit=5/10s charge=-1;",
            "[emerg] ratelimit: invalid parameter \"charge=-1\": invalid number \"-1\": expected \
             a decimal, such as 1 or 0.5, or variables (not a plain decimal) in http.conf:1",
        ),
        (
            "ratelimit: a charge with an open brace",
            "ratelimit limit=5/10s charge=${;",
            "[emerg] ratelimit: invalid parameter \"charge=${\": invalid variable in \"${\": \
             expected $name or ${name} after every \"$\" in http.conf:1",
        ),
        (
            "ratelimit: two charges",
            "ratelimit limit=5/10s charge=1 charge=2;",
            "[emerg] ratelimit: parameter \"charge=2\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: an empty policy name",
            "ratelimit limit=5/10s name=;",
            "[emerg] ratelimit: invalid parameter \"name=\": expected printable ASCII characters \
             but for \"\\\"\", \"\\\" and \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a policy name with a quote",
            "ratelimit limit=5/10s 'name=a\"b';",
            "[emerg] ratelimit: invalid parameter \"name=a\"b\": expected printable ASCII \
             characters but for \"\\\"\", \"\\\" and \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a policy name with a backslash",
            "ratelimit limit=5/10s 'name=a\\\\b';",
            "[emerg] ratelimit: invalid parameter \"name=a\\b\": expected printable ASCII \
             characters but for \"\\\"\", \"\\\" and \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a policy name that is not ASCII",
            "ratelimit limit=5/10s name=größe;",
            "[emerg] ratelimit: invalid parameter \"name=größe\": expected printable ASCII \
             characters but for \"\\\"\", \"\\\" and \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a policy name that is a variable",
            "ratelimit limit=5/10s name=$host;",
            "[emerg] ratelimit: invalid parameter \"name=$host\": expected printable ASCII \
             characters but for \"\\\"\", \"\\\" and \"$\" in http.conf:1",
        ),
        (
            "ratelimit: a policy name for two limits",
            "ratelimit limit=5/10s limit=50/1m name=both;",
            "[emerg] ratelimit: the name \"both\" is for one limit, and there are 2: expected \
             rules of their own in http.conf:1",
        ),
        (
            "ratelimit: two policy names",
            "ratelimit limit=5/10s name=a name=b;",
            "[emerg] ratelimit: parameter \"name=b\" is duplicate: expected it once in \
             http.conf:1",
        ),
        (
            "ratelimit: a counter that cannot be one",
            "ratelimit limit=5/1d counter=$uri;",
            "[emerg] ratelimit: invalid name \"$uri\" of a counter: expected 1 to 64 of A-Z, a-z, \
             0-9, \"_\", \".\", \"-\", and not \"off\" in http.conf:1",
        ),
        (
            "ratelimit: one policy name for two rules of a level",
            "ratelimit limit=5/10s name=same;\n\
             ratelimit limit=50/1m name=other;\n\
             ratelimit limit=500/1h name=same;",
            "[emerg] ratelimit: the name \"same\" is duplicate: expected one that no other rule \
             of this level has in http.conf:3",
        ),
        (
            "ratelimit: a cost that rounds to none",
            "ratelimit limit=5/10s cost=0.0004;",
            "[emerg] ratelimit: invalid parameter \"cost=0.0004\": invalid number \"0.0004\": \
             expected 0 or at least 0.001 in http.conf:1",
        ),
    ]);
}
