//! Tests of invalid options and content of levels.

use super::check_in_server;

#[test]
fn a_message_has_a_type_and_a_text() {
    check_in_server(&[
        (
            "ratelimit_message: none",
            "ratelimit_message;",
            "[emerg] ratelimit_message: too few parameters: expected a media type and a text, such as \
             application/json '{\"error\": \"limited\"}' in http.conf:1",
        ),
        (
            "ratelimit_message: one word",
            "ratelimit_message text;",
            "[emerg] ratelimit_message: too few parameters: expected a media type and a text, such as \
             application/json '{\"error\": \"limited\"}' in http.conf:1",
        ),
        (
            "ratelimit_message: three words",
            "ratelimit_message text/plain too many;",
            "[emerg] ratelimit_message: one parameter too many, \"many\": expected a media type and a text, such as \
             application/json '{\"error\": \"limited\"}' in http.conf:1",
        ),
        (
            "ratelimit_message: a type that is none",
            "ratelimit_message limited text/plain;",
            "[emerg] ratelimit_message: invalid media type \"limited\": expected a media type and a text, such as \
             application/json '{\"error\": \"limited\"}' in http.conf:1",
        ),
        (
            "ratelimit_message: twice on a level",
            "ratelimit_message text/plain a;\nratelimit_message text/plain b;",
            "[emerg] ratelimit_message: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_message: a variable without a name",
            "ratelimit_message text/plain 'a $ b';",
            "[emerg] ratelimit_message: invalid variable in \"$\": expected $name or ${name} after every \"$\" in \
             http.conf:1",
        ),
    ]);
}

#[test]
fn headers_are_of_kinds() {
    check_in_server(&[
        (
            "ratelimit_headers: an unknown kind",
            "ratelimit_headers none;",
            "[emerg] ratelimit_headers: invalid parameter \"none\": expected off, or one or more \
             of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: \"off\" with another kind",
            "ratelimit_headers off ietf;",
            "[emerg] ratelimit_headers: \"off\" goes with nothing else: expected off, or one or \
             more of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: an unknown kind with a known one",
            "ratelimit_headers ietf none;",
            "[emerg] ratelimit_headers: invalid parameter \"none\": expected off, or one or more \
             of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: twice on a level",
            "ratelimit_headers ietf;\n\
             ratelimit_headers off;",
            "[emerg] ratelimit_headers: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_headers: no argument",
            "ratelimit_headers;",
            "[emerg] ratelimit_headers: expected off, or one or more of ietf, draft03 and legacy \
             in http.conf:1",
        ),
        (
            "ratelimit_headers: a kind twice",
            "ratelimit_headers ietf legacy ietf;",
            "[emerg] ratelimit_headers: parameter \"ietf\" is duplicate: expected off, or one or \
             more of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: another kind with \"off\"",
            "ratelimit_headers legacy off;",
            "[emerg] ratelimit_headers: \"off\" goes with nothing else: expected off, or one or \
             more of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: \"off\" twice",
            "ratelimit_headers off off;",
            "[emerg] ratelimit_headers: \"off\" goes with nothing else: expected off, or one or \
             more of ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: an empty word",
            "ratelimit_headers \"\";",
            "[emerg] ratelimit_headers: invalid parameter \"\": expected off, or one or more of \
             ietf, draft03 and legacy in http.conf:1",
        ),
        (
            "ratelimit_headers: in upper case",
            "ratelimit_headers IETF;",
            "[emerg] ratelimit_headers: invalid parameter \"IETF\": expected off, or one or more \
             of ietf, draft03 and legacy in http.conf:1",
        ),
    ]);
}

#[test]
fn an_option_is_one_of_a_few_words() {
    check_in_server(&[
        (
            "ratelimit_count_rejected: no word",
            "ratelimit_count_rejected;",
            "[emerg] ratelimit_count_rejected: no parameter: expected on or off in http.conf:1",
        ),
        (
            "ratelimit_count_rejected: two words",
            "ratelimit_count_rejected on off;",
            "[emerg] ratelimit_count_rejected: one parameter too many, \"off\": expected on or \
             off in http.conf:1",
        ),
        (
            "ratelimit_count_rejected: neither on nor off",
            "ratelimit_count_rejected yes;",
            "[emerg] ratelimit_count_rejected: invalid parameter \"yes\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_count_rejected: in upper case",
            "ratelimit_count_rejected ON;",
            "[emerg] ratelimit_count_rejected: invalid parameter \"ON\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_count_rejected: an empty word",
            "ratelimit_count_rejected \"\";",
            "[emerg] ratelimit_count_rejected: invalid parameter \"\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_count_rejected: twice on a level",
            "ratelimit_count_rejected on;\n\
             ratelimit_count_rejected off;",
            "[emerg] ratelimit_count_rejected: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_dry_run: no word",
            "ratelimit_dry_run;",
            "[emerg] ratelimit_dry_run: no parameter: expected on or off in http.conf:1",
        ),
        (
            "ratelimit_dry_run: two words",
            "ratelimit_dry_run on on;",
            "[emerg] ratelimit_dry_run: one parameter too many, \"on\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_dry_run: neither on nor off",
            "ratelimit_dry_run 1;",
            "[emerg] ratelimit_dry_run: invalid parameter \"1\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_dry_run: a variable",
            "ratelimit_dry_run $arg_dry;",
            "[emerg] ratelimit_dry_run: invalid parameter \"$arg_dry\": expected on or off in \
             http.conf:1",
        ),
        (
            "ratelimit_dry_run: twice on a level",
            "ratelimit_dry_run on;\n\
             ratelimit_dry_run on;",
            "[emerg] ratelimit_dry_run: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_log_level: no word",
            "ratelimit_log_level;",
            "[emerg] ratelimit_log_level: no parameter: expected info, notice, warn, error or off \
             in http.conf:1",
        ),
        (
            "ratelimit_log_level: two words",
            "ratelimit_log_level info warn;",
            "[emerg] ratelimit_log_level: one parameter too many, \"warn\": expected info, \
             notice, warn, error or off in http.conf:1",
        ),
        (
            "ratelimit_log_level: a level of nginx that rejections do not have",
            "ratelimit_log_level crit;",
            "[emerg] ratelimit_log_level: invalid parameter \"crit\": expected info, notice, \
             warn, error or off in http.conf:1",
        ),
        (
            "ratelimit_log_level: debug",
            "ratelimit_log_level debug;",
            "[emerg] ratelimit_log_level: invalid parameter \"debug\": expected info, notice, \
             warn, error or off in http.conf:1",
        ),
        (
            "ratelimit_log_level: twice on a level",
            "ratelimit_log_level info;\n\
             ratelimit_log_level warn;",
            "[emerg] ratelimit_log_level: is duplicate on this level: expected it once in http.conf:2",
        ),
        (
            "ratelimit_phase: no word",
            "ratelimit_phase;",
            "[emerg] ratelimit_phase: no parameter: expected preaccess or precontent in \
             http.conf:1",
        ),
        (
            "ratelimit_phase: two words",
            "ratelimit_phase preaccess precontent;",
            "[emerg] ratelimit_phase: one parameter too many, \"precontent\": expected preaccess \
             or precontent in http.conf:1",
        ),
        (
            "ratelimit_phase: another phase of nginx",
            "ratelimit_phase access;",
            "[emerg] ratelimit_phase: invalid parameter \"access\": expected preaccess or \
             precontent in http.conf:1",
        ),
        (
            "ratelimit_phase: in upper case",
            "ratelimit_phase Precontent;",
            "[emerg] ratelimit_phase: invalid parameter \"Precontent\": expected preaccess or \
             precontent in http.conf:1",
        ),
        (
            "ratelimit_phase: an empty word",
            "ratelimit_phase \"\";",
            "[emerg] ratelimit_phase: invalid parameter \"\": expected preaccess or precontent in \
             http.conf:1",
        ),
        (
            "ratelimit_phase: twice on a level",
            "ratelimit_phase preaccess;\n\
             ratelimit_phase precontent;",
            "[emerg] ratelimit_phase: is duplicate on this level: expected it once in http.conf:2",
        ),
    ]);
}

#[test]
fn a_status_is_one_of_a_rejection() {
    check_in_server(&[
        (
            "ratelimit_status: no word",
            "ratelimit_status;",
            "[emerg] ratelimit_status: no parameter: expected a status from 400 to 599 in \
             http.conf:1",
        ),
        (
            "ratelimit_status: two words",
            "ratelimit_status 429 503;",
            "[emerg] ratelimit_status: one parameter too many, \"503\": expected a status from \
             400 to 599 in http.conf:1",
        ),
        (
            "ratelimit_status: less than 400",
            "ratelimit_status 399;",
            "[emerg] ratelimit_status: invalid status \"399\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: more than 599",
            "ratelimit_status 600;",
            "[emerg] ratelimit_status: invalid status \"600\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: a number with a letter",
            "ratelimit_status 42x;",
            "[emerg] ratelimit_status: invalid status \"42x\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: a negative number",
            "ratelimit_status -429;",
            "[emerg] ratelimit_status: invalid status \"-429\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: a number with a sign",
            "ratelimit_status +429;",
            "[emerg] ratelimit_status: invalid status \"+429\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: a fraction",
            "ratelimit_status 429.5;",
            "[emerg] ratelimit_status: invalid status \"429.5\": expected a status from 400 to \
             599 in http.conf:1",
        ),
        (
            "ratelimit_status: an empty word",
            "ratelimit_status \"\";",
            "[emerg] ratelimit_status: invalid status \"\": expected a status from 400 to 599 in \
             http.conf:1",
        ),
        (
            "ratelimit_status: a number of many digits",
            "ratelimit_status 99999999999999999999;",
            "[emerg] ratelimit_status: invalid status \"99999999999999999999\": expected a status \
             from 400 to 599 in http.conf:1",
        ),
        (
            "ratelimit_status: \"off\"",
            "ratelimit_status off;",
            "[emerg] ratelimit_status: invalid status \"off\": expected a status from 400 to 599 \
             in http.conf:1",
        ),
        (
            "ratelimit_status: a variable",
            "ratelimit_status $arg_status;",
            "[emerg] ratelimit_status: invalid status \"$arg_status\": expected a status from 400 \
             to 599 in http.conf:1",
        ),
        (
            "ratelimit_status: twice on a level",
            "ratelimit_status 429;\n\
             ratelimit_status 503;",
            "[emerg] ratelimit_status: is duplicate on this level: expected it once in http.conf:2",
        ),
    ]);
}

#[test]
fn a_jitter_is_a_time() {
    check_in_server(&[
        (
            "ratelimit_retry_after_jitter: no word",
            "ratelimit_retry_after_jitter;",
            "[emerg] ratelimit_retry_after_jitter: no parameter: expected a time of at most 1d, \
             such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: two words",
            "ratelimit_retry_after_jitter 1s 2s;",
            "[emerg] ratelimit_retry_after_jitter: one parameter too many, \"2s\": expected a \
             time of at most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: a word",
            "ratelimit_retry_after_jitter soon;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"soon\": expected a time of at \
             most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: a negative time",
            "ratelimit_retry_after_jitter -1s;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"-1s\": expected a time of at \
             most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: an unknown unit",
            "ratelimit_retry_after_jitter 1x;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"1x\": expected a time of at \
             most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: an empty word",
            "ratelimit_retry_after_jitter \"\";",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"\": expected a time of at most \
             1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: more than a day",
            "ratelimit_retry_after_jitter 25h;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"25h\": expected a time of at \
             most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: \"off\"",
            "ratelimit_retry_after_jitter off;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"off\": expected a time of at \
             most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: a variable",
            "ratelimit_retry_after_jitter $arg_jitter;",
            "[emerg] ratelimit_retry_after_jitter: invalid time \"$arg_jitter\": expected a time \
             of at most 1d, such as 10s or 0.5 in http.conf:1",
        ),
        (
            "ratelimit_retry_after_jitter: twice on a level",
            "ratelimit_retry_after_jitter 1s;\n\
             ratelimit_retry_after_jitter 2s;",
            "[emerg] ratelimit_retry_after_jitter: is duplicate on this level: expected it once in http.conf:2",
        ),
    ]);
}

#[test]
fn a_location_answers_with_one_thing() {
    check_in_server(&[
        (
            "a wrong parameter of the API",
            "location /t { ratelimit_api write=yes; }",
            "[emerg] ratelimit_api: invalid parameter \"write=yes\": expected write=on, write=off \
             or nothing in http.conf:1",
        ),
        (
            "two parameters of the API",
            "location /t { ratelimit_api write=on write=off; }",
            "[emerg] ratelimit_api: one parameter too many, \"write=off\": expected write=on, \
             write=off or nothing in http.conf:1",
        ),
        (
            "the API twice",
            "location /t { ratelimit_api; ratelimit_api write=off; }",
            "[emerg] ratelimit_api: is duplicate on this level: expected it once in http.conf:1",
        ),
        (
            "the API and metrics",
            "location /t { ratelimit_api; ratelimit_metrics; }",
            "[emerg] ratelimit_metrics: stands beside \"ratelimit_api\", which answers every request: \
             expected a location of its own in http.conf:1",
        ),
        (
            "a parameter of the metrics",
            "location /t { ratelimit_metrics on; }",
            "[emerg] ratelimit_metrics: invalid parameter \"on\": expected none in http.conf:1",
        ),
    ]);
}
