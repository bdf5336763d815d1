//! Tests of calendar windows: `limit=hits/month`, `tz=` and `ratelimit_timezone`.

use super::nginx::TestLevel;
use super::{ZONE, check, check_in_namespace, check_in_server, resolved, told_of};

#[test]
fn a_limit_is_of_a_unit_of_the_calendar() {
    check_in_server(&[
        (
            "calendar: limits of each unit",
            "ratelimit limit=1/hour limit=20/day limit=300/week limit=4000/month;",
            "server: \"default-hour\";q=1, \"default-day\";q=20, \"default-week\";q=300, \
             \"default-month\";q=4000",
        ),
        (
            "calendar: beside a sliding limit",
            "ratelimit limit=1/1s limit=$plan/month tz=Europe/Berlin;",
            "server: \"default-1s\";q=1, \"default-month\";q=$plan",
        ),
        (
            "calendar: window=fixed",
            "ratelimit limit=1/day window=fixed;",
            "server: \"default-day\";q=1",
        ),
        (
            "calendar: window=sliding",
            "ratelimit limit=1/1s limit=1/day window=sliding;",
            "[emerg] ratelimit: parameter \"window=sliding\" does not go with the window day of the calendar, \
             which is fixed: expected window=fixed, or rules of their own in http.conf:1",
        ),
        (
            "calendar: in the default of a list",
            "ratelimit limits=$x default=1/day window=sliding;",
            "[emerg] ratelimit: parameter \"window=sliding\" does not go with the window day of the calendar, \
             which is fixed: expected window=fixed, or rules of their own in http.conf:1",
        ),
        (
            "calendar: window=moving",
            "ratelimit window=moving limit=1/month;",
            "[emerg] ratelimit: parameter \"window=moving\" does not go with the window month of the calendar, \
             which is fixed: expected window=fixed, or rules of their own in http.conf:1",
        ),
        (
            "calendar: a number of months",
            "ratelimit limit=10/1month;",
            "[emerg] ratelimit: invalid parameter \"limit=10/1month\": a window is a time from 1ms to 366d, such \
             as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month: did you mean 10/month? in http.conf:1",
        ),
        (
            "calendar: a unit in capitals",
            "ratelimit limit=10/Weeks;",
            "[emerg] ratelimit: invalid parameter \"limit=10/Weeks\": a window is a time from 1ms to 366d, such \
             as 500ms, 10s, 1m, 1h30m or 0.5, or hour, day, week or month: did you mean 10/week? in http.conf:1",
        ),
        (
            "calendar: a rate",
            "ratelimit rate=10/hour;",
            "[emerg] ratelimit: invalid parameter \"rate=10/hour\": the time is from 1ms to 366d, such as 1s, \
             1m, 1h30m or 0.5: did you mean 10/1h? in http.conf:1",
        ),
        (
            "calendar: a limit without a name",
            "ratelimit 10/day;",
            "[emerg] ratelimit: invalid parameter \"10/day\": did you mean limit=10/day? in http.conf:1",
        ),
    ]);
}

#[test]
fn a_time_zone_is_one_of_the_database() {
    check_in_server(&[
        (
            "tz: an unknown zone",
            "ratelimit limit=1/day tz=Europe/Berln;",
            "[emerg] ratelimit: invalid parameter \"tz=Europe/Berln\": expected a name of the IANA time zone \
             database, such as Europe/Berlin or UTC: did you mean Europe/Berlin? in http.conf:1",
        ),
        (
            "tz: an offset",
            "ratelimit limit=1/day tz=+02:00;",
            "[emerg] ratelimit: invalid parameter \"tz=+02:00\": expected a name of the IANA time zone \
             database, such as Europe/Berlin or UTC in http.conf:1",
        ),
        (
            "tz: a variable",
            "ratelimit limit=1/day tz=$arg_tz;",
            "[emerg] ratelimit: invalid parameter \"tz=$arg_tz\": expected a name of the IANA time zone \
             database, such as Europe/Berlin or UTC in http.conf:1",
        ),
        (
            "tz: twice",
            "ratelimit limit=1/day tz=UTC tz=Asia/Tokyo;",
            "[emerg] ratelimit: parameter \"tz=Asia/Tokyo\" is duplicate: expected it once in http.conf:1",
        ),
        (
            "tz: no window of the calendar",
            "ratelimit limit=1/1d tz=Asia/Tokyo;",
            "[emerg] ratelimit: parameter \"tz=Asia/Tokyo\" is of windows of the calendar: expected a limit per \
             hour, day, week or month beside it, such as \"limit=1000/day\" in http.conf:1",
        ),
        (
            "tz: a rate",
            "ratelimit rate=1/1s tz=Asia/Tokyo;",
            "[emerg] ratelimit: parameter \"tz=Asia/Tokyo\" is of windows of the calendar: expected a limit per \
             hour, day, week or month beside it, such as \"limit=1000/day\" in http.conf:1",
        ),
        (
            "ratelimit_timezone: an unknown zone",
            "ratelimit_timezone Tokio;",
            "[emerg] ratelimit_timezone: invalid zone \"Tokio\": expected a name of the IANA time zone \
             database, such as Europe/Berlin or UTC: did you mean Asia/Tokyo? in http.conf:1",
        ),
        (
            "ratelimit_timezone: nothing",
            "ratelimit_timezone;",
            "[emerg] ratelimit_timezone: no parameter: expected the name of a time zone, such as Europe/Berlin \
             in http.conf:1",
        ),
        (
            "ratelimit_timezone: twice",
            "ratelimit_timezone UTC;\nratelimit_timezone UTC;",
            "[emerg] ratelimit_timezone: is duplicate on this level: expected it once in http.conf:2",
        ),
    ]);
    check_in_namespace(&[
        (
            "window_sizes: an unknown zone",
            "window_sizes month tz=Berlin;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"tz=Berlin\": expected a name of the \
             IANA time zone database, such as Europe/Berlin or UTC: did you mean Europe/Berlin? in http.conf:1",
        ),
        (
            "window_sizes: a zone for no window",
            "window_sizes 1d tz=Europe/Berlin;",
            "[emerg] ratelimit_namespace \"api\": invalid window_sizes \"tz=Europe/Berlin\": expected hour, day, \
             week or month before it, whose time zone it is in http.conf:1",
        ),
    ]);
}

#[test]
fn a_limit_of_another_zone_is_of_another_window() {
    check(&[
        (
            "window_sizes: a limit in another zone",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_namespace api { window_sizes 1s month day tz=Europe/Berlin day tz=Asia/Tokyo week; }\n\
             ratelimit api limit=5/day tz=Asia/Tokyo;\n\
             ratelimit api limit=1/week;\n\
             ratelimit api limit=5/month;",
            "[emerg] ratelimit: the window month is not one of the window_sizes of namespace \"api\": expected \
             1s, month tz=Europe/Berlin, day tz=Europe/Berlin, day tz=Asia/Tokyo, week in http.conf:5",
        ),
        (
            "limits of a counter in one zone",
            "ratelimit_zone zone=counters:1m;\n\
             server {\n\
             location /a { ratelimit limit=1/day; }\n\
             location /b { ratelimit limit=2/day; }\n\
             location /c { ratelimit limit=3/day tz=Asia/Tokyo; }\n\
             location /d { ratelimit limit=4/1d; }\n\
             }",
            "[warn] ratelimit: this rule and that in http.conf:3 have different limits, and share the counter of \
             key \"$remote_addr\" and window day: expected counter=name for another counter, or counter=default if \
             this is meant, in http.conf:4\n\
             location /a: \"default-day\";q=1\n\
             location /b: \"default-day\";q=2\n\
             location /c: \"default-day\";q=3\n\
             location /d: \"default-1d\";q=4;w=86400",
        ),
        (
            "a sync_rate above a tenth of an hour",
            "ratelimit_zone zone=counters:1m;\n\
             ratelimit_store main { strategy redis; }\n\
             ratelimit_namespace api { store main; sync_rate 13m; }\n\
             ratelimit api limit=1/hour;",
            "[warn] ratelimit_namespace \"api\": sync_rate 780 is above a tenth of the smallest window, 3600s: \
             within it, nodes learn late of each other's hits in http.conf:3",
        ),
    ]);
}

/// Returns the windows of each level with rules, and of the namespaces.
fn windows(text: &str) -> Vec<String> {
    fn add(level: &TestLevel, to: &mut Vec<String>) {
        if let Some(rules) = level.conf.effective_rules() {
            let limits = rules.rules().iter().flat_map(|rule| &rule.limits);
            let sizes: Vec<_> = limits.map(|limit| limit.limit.size.to_string()).collect();
            to.push(format!("{}: {}", level.name, sizes.join(", ")));
        }
        level.levels.iter().for_each(|level| add(level, to));
    }
    let (configuration, level) = resolved(text);
    let mut found = Vec::new();
    add(&level, &mut found);
    for namespace in &configuration.namespaces {
        let mut sizes: Vec<_> = namespace.window_sizes.iter().map(ToString::to_string).collect();
        sizes.sort();
        found.push(format!("{}: {}", namespace.name, sizes.join(", ")));
    }
    found
}

#[test]
fn a_zone_is_inherited_wherever_it_is_written() {
    let text = format!(
        "{ZONE}
         ratelimit_namespace api {{ window_sizes month tz=UTC week; }}
         ratelimit limit=1/day;
         server {{
             ratelimit limit=2/day limit=2/1s;
             location /a {{ }}
             location /b {{
                 ratelimit limit=3/day;
                 ratelimit limit=4/day tz=Asia/Tokyo;
                 location /b/c {{ ratelimit limit=5/day; ratelimit_timezone Asia/Kathmandu; }}
                 ratelimit_timezone America/New_York;
             }}
             ratelimit_timezone Europe/Berlin;
         }}
         server {{ location /d {{ ratelimit api limit=6/month tz=UTC; }} location /e {{ ratelimit limit=7/day; }} }}
         ratelimit_timezone Pacific/Apia;"
    );
    assert_eq!(
        windows(&text),
        [
            "server: day tz=Europe/Berlin, 1s",
            "location /a: day tz=Europe/Berlin, 1s",
            "location /b: day tz=America/New_York, day tz=Asia/Tokyo",
            "location /b/c: day tz=Asia/Kathmandu",
            "server: day tz=Pacific/Apia",
            "location /d: month",
            "location /e: day tz=Pacific/Apia",
            "api: month, week tz=Pacific/Apia",
            "default: 1s, day tz=America/New_York, day tz=Asia/Kathmandu, day tz=Asia/Tokyo, day tz=Europe/Berlin, \
             day tz=Pacific/Apia",
        ]
    );
}

#[test]
fn a_list_of_limits_has_windows_of_the_calendar() {
    let text = format!(
        "{ZONE} ratelimit_namespace api {{ window_sizes 1s month tz=Asia/Tokyo; }}
         server {{ location /a {{ ratelimit api limits=$arg_a tz=Asia/Tokyo 'default=5/month 1/1s'; }} }}"
    );
    assert_eq!(told_of(&text, &[]), "location /a: \"api-1s\";q=$arg_a, \"api-month\";q=$arg_a");
    let other = text.replace("tz=Asia/Tokyo 'default", "'default");
    assert_eq!(
        told_of(&other, &[]),
        "[emerg] ratelimit: default=: the namespace has no window month: expected 1s, month tz=Asia/Tokyo in \
         http.conf:2"
    );
}
