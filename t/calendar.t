# Tests calendar windows: limits per hour, day, week and month of a time zone, their headers, variables and errors.
# src/policy/calendar/tests.rs tests their boundaries, with a clock as an argument.
#
# No window ends during a test: its zone is UTC, or Tokyo's while a window of UTC is about to end. Its offset is 9
# hours, without changes.

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Time::Local qw(timegm);
use Test::Nginx::Socket 'no_plan';

# Returns the seconds to the end of a window, of the zone's clock.
sub left {
    my ($unit, $now) = @_;
    my (undef, undef, undef, $day, $month, $year, $weekday) = gmtime $now;
    my $midnight = timegm(0, 0, 0, $day, $month, $year);
    return 3600 - $now % 3600 if $unit eq 'hour';
    return $midnight + 86400 - $now if $unit eq 'day';
    return $midnight + 86400 * (7 - ($weekday + 6) % 7) - $now if $unit eq 'week';
    return timegm(0, 0, 0, 1, ($month + 1) % 12, $year + int($month / 11)) - $now;
}

my $is_late = left(day => time) < 1800;
our $zone = $is_late ? 'Asia/Tokyo' : 'UTC';

# Returns a pattern of the seconds that are left now, or were in the last minutes.
sub seconds {
    my ($unit) = @_;
    my $left = left($unit, time + ($is_late ? 9 * 3600 : 0));
    return '(?:' . join('|', map { $left - $_ } -2 .. 300) . ')';
}

add_block_preprocessor(sub {
    my ($block) = @_;
    my $conf = ($block->http_config // '') . "\nratelimit_zone zone=counters:1m;\nratelimit_timezone $main::zone;\n";
    $block->set_value(http_config => $conf);
    complete($block);
});

no_long_string();
run_tests();

__DATA__

=== a window of the calendar is fixed, and its headers have no length, but the time to its end
--- config
    location /t {
        ratelimit limit=2/month;
        add_header Window "<$ratelimit_window>" always;
        add_header Reset  "<$ratelimit_reset>"  always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 200, 429]
--- response_headers_like eval
my $left = main::seconds('month');
my $same = qq(RateLimit-Policy: "default-month";q=2\nWindow: <month>\nReset: <$left(?:\\.\\d{1,3})?>\n);
[$same . qq(RateLimit: "default-month";r=1;t=$left),
 $same . qq(RateLimit: "default-month";r=0;t=$left),
 $same . qq(RateLimit: "default-month";r=0;t=$left\nRetry-After: $left)]



=== each unit ends where the calendar says, beside a sliding window
--- config
    location /t {
        ratelimit limit=9/day limit=9/week limit=9/month limit=10/366d;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
my ($day, $week, $month) = map { main::seconds($_) } qw(day week month);
qq(RateLimit-Policy: "default-day";q=9, "default-week";q=9, "default-month";q=9, "default-366d";q=10;w=31622400\n)
 . qq(RateLimit: "default-day";r=8;t=$day, "default-week";r=8;t=$week, "default-month";r=8;t=$month, "default-366d";r=9;t=\\d+)



=== the older headers name the unit
--- config
    location /t {
        ratelimit limit=5/month limit=7/week;
        ratelimit_headers draft03 legacy;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
my $month = main::seconds('month');
"RateLimit-Limit: 5\nRateLimit-Remaining: 4\nRateLimit-Reset: $month\nX-RateLimit-Limit-Month: 5\n"
 . "X-RateLimit-Remaining-Month: 4\nX-RateLimit-Limit-Week: 7\nX-RateLimit-Remaining-Week: 6"



=== an hour of Kathmandu begins a quarter past one of UTC
--- config
    location /t {
        ratelimit limit=5/hour tz=Asia/Kathmandu;
        empty_gif;
    }
--- request
GET /t
--- response_headers_like eval
my $left = (900 - time) % 3600;
'RateLimit: "default-hour";r=4;t=(?:' . join('|', map { ($left - $_) % 3600 || 3600 } -2 .. 300) . ')'



=== windows of two zones, and one of 24 hours, have counters of their own
--- config
    location /one   { ratelimit limit=9/day tz=Asia/Tokyo;    add_header X-Rate $ratelimit_rate; empty_gif; }
    location /other { ratelimit limit=9/day tz=Europe/Berlin; add_header X-Rate $ratelimit_rate; empty_gif; }
    location /1d    { ratelimit limit=9/1d window=fixed;      add_header X-Rate $ratelimit_rate; empty_gif; }
    location /again { ratelimit limit=9/day tz=asia/tokyo;    add_header X-Rate $ratelimit_rate; empty_gif; }
--- request eval
["GET /one", "GET /other", "GET /1d", "GET /again"]
--- response_headers eval
["X-Rate: 1", "X-Rate: 1", "X-Rate: 1", "X-Rate: 2"]



=== a level inherits the zone of the level around it, wherever that is written
--- http_config
    ratelimit_namespace local {
        window_sizes week tz=Pacific/Apia week tz=Europe/Berlin;
    }
--- config
    location /a {
        location /a/b { ratelimit local limit=9/week; empty_gif; }
        ratelimit_timezone Pacific/Apia;
    }
    location /c { ratelimit local limit=9/week; empty_gif; }
    if ($arg_x) { set $y 1; }
    ratelimit_timezone Europe/Berlin;
--- request eval
["GET /a/b", "GET /c"]
--- error_code eval
[200, 200]



=== a list of limits may have windows of the calendar
--- http_config
    ratelimit_namespace local { window_sizes 366d month; }
--- config
    location /t {
        set $limits "1/month 5/366d";
        ratelimit local limits=$limits;
        add_header X-Window $ratelimit_window always;
        empty_gif;
    }
--- request eval
["GET /t", "GET /t"]
--- error_code eval
[200, 429]
--- response_headers eval
["X-Window: month", "X-Window: month"]



=== rejected hits count if they are to, and counters are shared within a request
--- config
    ratelimit_count_rejected on;
    location /t {
        ratelimit limit=1/month;
        ratelimit limit=2/month counter=default;
        add_header X-Rate $ratelimit_rate always;
        empty_gif;
    }
--- request eval
[("GET /t") x 3]
--- error_code eval
[200, 429, 429]
--- response_headers eval
["X-Rate: 1", "X-Rate: 2", "X-Rate: 3"]



=== a request that a later limit rejects is given back
--- config
    location /t {
        ratelimit limit=9/month key=first;
        ratelimit limit=1/month key=second;
        empty_gif;
    }
    location /first { ratelimit limit=9/month key=first; add_header X-Rate $ratelimit_rate; empty_gif; }
--- request eval
["GET /t", "GET /t", "GET /t", "GET /first"]
--- error_code eval
[200, 429, 429, 200]
--- response_headers eval
["", "", "", "X-Rate: 2"]



=== the API names windows of the calendar, reads them, counts in them, and resets them
--- http_config
    ratelimit_namespace local { window_sizes 1m month tz=Asia/Tokyo day tz=Europe/Berlin; }
--- config
    location /t {
        ratelimit_key $arg_k;
        ratelimit local limit=2/day tz=Europe/Berlin;
        empty_gif;
    }
    location /api/ { ratelimit_api write=on; }
--- request eval
["GET /t?k=k",
 "GET /api/namespaces/local/keys/k?window=day&tz=Europe/Berlin&limit=2",
 "POST /api/namespaces/local/keys/k?window=day%20tz=Europe/Berlin&value=1&limit=2",
 "POST /api/namespaces/local/keys/k?window=day&tz=Europe/Berlin&value=1&limit=2",
 "GET /t?k=k",
 "GET /api/namespaces/local/rules",
 "GET /api/namespaces/local/keys/k/explain",
 "GET /api/namespaces/local/keys/k?all=1",
 "DELETE /api/namespaces/local/keys/k",
 "GET /t?k=k",
 "GET /api/namespaces/local"]
--- error_code eval
[200, 200, 200, 200, 429, 200, 200, 200, 200, 200, 200]
--- response_body_like eval
['^GIF',
 '^\{"rate":1,"current":1,"previous":0,"diff":1,"sync":0,"window_start":\d+,"remaining":1\}',
 '"remaining":0,"admitted":true,"reset":[\d.]+',
 '"rate":2,.*"admitted":false,"reset":[\d.]+',
 '429',
 '"limits":\[\{"name":"local-day","limit":2,"window":"day tz=Europe/Berlin","window_type":"fixed"',
 '"name":"local-day","limit":2,"rate":2,"remaining":0,"reset":[\d.]+,"admitted":false,"until":\d+',
 '\[\{"window":"day tz=Europe/Berlin","window_type":"fixed","counter":null,"rate":2\}\]',
 '"reset":\[\{"window":"day tz=Europe/Berlin","window_type":"fixed","counter":null,"rate":2\}\]',
 '^GIF',
 '"window_sizes":\[60,"day tz=Europe/Berlin","month tz=Asia/Tokyo"\]']



=== the API says what it expects of a window of the calendar
--- config
    location /t { ratelimit limit=2/day; empty_gif; }
    location /api/ { ratelimit_api; }
--- request eval
["GET /api/namespaces/default/keys/k?window=day&tz=Europe/Berln",
 "GET /api/namespaces/default/keys/k?window=60&tz=Europe/Berlin",
 "GET /api/namespaces/default/keys/k?window=day&window_type=sliding",
 "GET /api/namespaces/default/keys/k?window=1d%20tz=UTC",
 "GET /api/namespaces/default/keys/k?rate=5/day"]
--- error_code eval
[400, 400, 400, 400, 400]
--- response_body eval
['{"error":"invalid parameter \"tz\": expected a name of the IANA time zone database, such as Europe/Berlin or UTC: did you mean Europe/Berlin?"}',
 '{"error":"invalid parameter \"tz\": expected window=hour, day, week or month beside it"}',
 '{"error":"invalid parameter \"window_type\": expected fixed, which a window of the calendar is"}',
 '{"error":"invalid parameter \"window\": a time zone is of an hour, day, week or month, such as \"day tz=Europe/Berlin\""}',
 '{"error":"invalid parameter \"rate\": expected hits and a time, such as 10/1s or 0.5/1m"}']



=== an unknown zone is refused
--- config
    location /t { ratelimit limit=1/month tz=Europe/Berln; }
--- must_die
--- error_log
invalid parameter "tz=Europe/Berln": expected a name of the IANA time zone database, such as Europe/Berlin or UTC: did you mean Europe/Berlin?



=== another algorithm is refused
--- config
    location /t { ratelimit limit=1/month window=moving; }
--- must_die
--- error_log
parameter "window=moving" does not go with the window month of the calendar



=== a zone without a window of the calendar is refused
--- config
    location /t { ratelimit limit=1/1M tz=UTC; }
--- must_die
--- error_log
parameter "tz=UTC" is of windows of the calendar
