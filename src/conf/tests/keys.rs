//! Tests of invalid keys.

use super::check_in_server;

#[test]
fn a_key_is_a_text() {
    check_in_server(&[
        (
            "ratelimit_key: twice on a level",
            "ratelimit_key $arg_a;\n\
             ratelimit_key $arg_b;",
            "[emerg] ratelimit_key: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_key: no key",
            "ratelimit_key;",
            "[emerg] ratelimit_key: no parameter: expected one string, such as $remote_addr in \
             http.conf:1",
        ),
        (
            "ratelimit_key: two keys",
            "ratelimit_key $arg_a $arg_b;",
            "[emerg] ratelimit_key: one parameter too many, \"$arg_b\": expected one string, such \
             as $remote_addr in http.conf:1",
        ),
        (
            "ratelimit_key: a variable without a name",
            "ratelimit_key $;",
            "[emerg] ratelimit_key: invalid variable in \"$\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit_key: a variable without a name, before a blank",
            "ratelimit_key \"$ $arg_a\";",
            "[emerg] ratelimit_key: invalid variable in \"$ $arg_a\": expected $name or ${name} \
             after every \"$\" in http.conf:1",
        ),
        (
            "ratelimit_key: two dollars",
            "ratelimit_key $$arg_a;",
            "[emerg] ratelimit_key: invalid variable in \"$$arg_a\": expected $name or ${name} \
             after every \"$\" in http.conf:1",
        ),
        (
            "ratelimit_key: an open brace",
            "ratelimit_key ${;",
            "[emerg] ratelimit_key: invalid variable in \"${\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit_key: braces around nothing",
            "ratelimit_key ${};",
            "[emerg] ratelimit_key: invalid variable in \"${}\": expected $name or ${name} after \
             every \"$\" in http.conf:1",
        ),
        (
            "ratelimit_key: braces around another character",
            "ratelimit_key ${a-b};",
            "[emerg] ratelimit_key: invalid variable in \"${a-b}\": expected $name or ${name} \
             after every \"$\" in http.conf:1",
        ),
    ]);
}
