# Tests ratelimit_api: zones, namespaces and counters, in JSON.
#
# Windows have about a year, so that none ends during a test (see limit.t).

use FindBin;
use lib "$FindBin::Bin/lib";
use Blocks;
use Test::Nginx::Socket 'no_plan';

add_block_preprocessor(sub { complete($_[0], http_config => <<'HTTP', config => <<'SERVER') });
    ratelimit_zone zone=counters:1m;
    ratelimit_namespace api { window_sizes 366d; }
    ratelimit_namespace two { window_sizes 366d 1h; }
HTTP
    location /t {
        ratelimit api limit=2/366d window=fixed key=$arg_key;
        empty_gif;
    }
    location /ro {
        ratelimit_api;
    }
    location /rw/ {
        ratelimit_api write=on;
    }
    location ~ ^/re(ad)? {
        ratelimit_api write=off;
    }
    location /rewritten/ {
        rewrite ^/rewritten/(.*) /ro/namespaces/api/keys/$1 last;
    }
SERVER

no_long_string();
run_tests();

__DATA__

=== what there is
--- request eval
["GET /ro", "GET /ro/", "GET /rw/", "GET /read"]
--- response_headers eval
[("Content-Type: application/json\nCache-Control: no-store") x 4]
--- response_body_like eval
my $zone = qr/"zones":\[\{"name":"counters","size":1048576,"keys":0,"evicted":\{"ended":0,"sent":0,"unsent":0\}\}\]/;
my $api = qr/\{"name":"api","zone":"counters","store":null\}/;
[(qr/^\{"version":"[\d.]+",$zone,"namespaces":\[(?=[^]]*$api)[^]]*\],"stores":\[\]\}$/) x 4]



=== everything about the node
--- request eval
["GET /ro?all=1", "GET /rw/?all=1", "GET /ro?all=2"]
--- more_headers
Accept: application/json, text/html;q=0.9
--- error_code eval
[200, 200, 400]
--- response_body_like eval
my $node = qr/^\{"version":"[\d.]+","nginx":"[\d.]+","time":\d+(?:\.\d+)?,"loaded_at":\d+(?:\.\d+)?/;
my $zone = qr/\{"name":"counters","size":1048576,"keys":0,"evicted":\{"ended":0,"sent":0,"unsent":0\},"capacity":\d{5}\}/;
my $api = qr/\{"name":"api","zone":"counters","store":null,"sync_rate":"off","window_sizes":\[31622400\],"keys":0,.*?"last_success":null\}/;
[(map {qr/$node,"write":$_,"zones":\[$zone\],"namespaces":\[$api,.*\],"stores":\[\]\}$/} qw(false true)), qr/"invalid parameter .*"all/]



=== a page for a browser, at the root only
--- request eval
["GET /ro", "GET /rw/?all=1", "HEAD /read", "GET /ro/namespaces", "POST /ro"]
--- more_headers
Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8
--- error_code eval
[200, 200, 200, 200, 405]
--- response_headers eval
[("Content-Type: text/html; charset=utf-8\nVary: Accept\nX-Content-Type-Options: nosniff\nCache-Control: no-store") x 3,
 ("Content-Type: application/json\nVary: ") x 2]
--- response_body_like eval
[(qr/^<!doctype html>.*<\/script>$/s) x 2, qr/^$/, qr/^\{"namespaces":/, qr/^\{"error":/]



=== the names of namespaces; whether stores answer
--- request eval
["GET /ro/namespaces", "GET /rw/namespaces/", "GET /re/namespaces", "GET /ro/health", "GET /read/health/", "HEAD /ro/health"]
--- error_code eval
[(200) x 6]
--- response_body_like eval
[(qr/^\{"namespaces":\["api","two"(,"default")?\]\}$/) x 3, (qr/^\{"status":"ok"\}$/) x 2, qr/^$/]



=== a page of another site must not write
--- request eval
[("POST /rw/namespaces/api/keys/k") x 6, "GET /rw/namespaces/api/keys/k?window_type=fixed"]
--- more_headers eval
["Origin: http://evil.example", "Sec-Fetch-Site: cross-site", "sec-fetch-site: same-site", "Origin: null",
 "Origin: http://localhost\nSec-Fetch-Site: same-origin", "Sec-Fetch-Site: none", "Origin: http://evil.example"]
--- error_code eval
[403, 403, 403, 403, 200, 200, 200]
--- response_body_like eval
[(qr/^\{"error":"a page of another site must not write"\}$/) x 4, (qr/"current":[12],/) x 3]



=== a namespace
--- request eval
["GET /t?key=a", "GET /t?key=a", "GET /t?key=a", "GET /ro/namespaces/api", "GET /read/namespaces/two"]
--- error_code eval
[200, 200, 429, 200, 200]
--- response_body_like eval
[qr//, qr//, qr//,
 qr/^\{"name":"api","zone":"counters","store":null,"sync_rate":"off","window_sizes":\[31622400\],"keys":1,"hits":2,"requests":\{"passed":2,"rejected":1,"rejected_dry_run":0,"error":0\},"sync":\{"last_at":null,.*\},"clock_offset":null\}$/,
 qr/"window_sizes":\[3600,31622400\]/]



=== a counter, by its key in the path or in the query
--- request eval
["GET /t?key=a%2F%2Fb", "GET /ro/namespaces/api/keys/a%2F%2fb?limit=5&window_type=fixed",
 "GET /ro/namespaces/api/keys/a//b", "GET /rw/namespaces/api/keys?key=a//b&window=366d",
 "GET /re/namespaces/api/keys/a%2F%2Fb", "GET /ro/namespaces/api/keys/unseen?limit=1.5"]
--- response_body_like eval
[qr//, qr/^\{"rate":[01],"current":[01],"previous":0,"diff":[01],"sync":0,"window_start":\d+,"remaining":[45]\}$/,
 (qr/"remaining":null/) x 3,
 qr/^\{"rate":0,"current":0,"previous":0,"diff":0,"sync":0,"window_start":\d+,"remaining":1\}$/]



=== a key that was counted under its decoded bytes
--- config
    location /t {
        ratelimit api limit=2/366d window=fixed key=x//y;
        empty_gif;
    }
    location /ro {
        ratelimit_api;
    }
    location /rewritten/ {
        rewrite ^/rewritten/(.*) /ro/namespaces/api/keys/$1 last;
    }
--- request eval
["GET /t", "GET /ro/namespaces/api/keys/x%2F%2Fy", "GET /ro/namespaces/api/keys/x//y?window_type=fixed",
 "GET /ro/namespaces/api/keys?key=x%2F%2Fy&limit=5", "GET /ro/namespaces/api/keys/x%2Fy", "GET /rewritten/x"]
--- response_body_like eval
[qr//, qr/"current":1,"previous":0,"diff":1,/, qr/^\{"rate":1,"current":1,/, qr/"remaining":4\}/,
 qr/^\{"rate":0,/, qr/^\{"rate":0,/]



=== a key of which nginx leaves nothing in a path
--- request eval
my @keys = ('%2F', '%2f%2F', '.', '%2E', '%2E%2F', 'a%2F', 'a/..');
[(map {"POST /rw/namespaces/api/keys/$_?window_type=fixed"} @keys), (map {"GET /ro/namespaces/api/keys?window_type=fixed&key=$_"} '%2F', '%2F%2F', '.', '.%2F', 'a%2F', 'a/..'),
 "GET /ro/namespaces/api/keys/%2F/?window_type=fixed", "GET /ro/namespaces/api/keys/a%2F/?window_type=fixed", "GET /ro/namespaces/api/keys/a/"]
--- response_body_like eval
[map { qr/^\{"rate":$_,/ } 1, 1, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 0]



=== HEAD is answered without a body
--- request
HEAD /ro/namespaces/api
--- response_headers_like
Content-Length: [1-9]\d+
--- response_body:



=== what is wrong is told in JSON
--- request eval
["GET /rox", "GET /ro/x", "GET /ro/namespaces/none", "GET /ro/namespaces/none/keys/k",
 "PUT /ro/", "GET /ro/namespaces/api/sync", "POST /ro/namespaces/api/keys/k",
 "DELETE /ro/namespaces/api/keys/k", "DELETE /rw/namespaces/api/keys/", "POST /rw/namespaces/api/sync",
 "GET /ro/namespaces/api/keys", "GET /ro/namespaces/two/keys/k", "GET /ro/namespaces/api/keys/k?window=1m",
 "GET /ro/namespaces/api/keys/k?window=x", "GET /ro/namespaces/api/keys/k?window_type=x",
 "GET /ro/namespaces/api/keys?key="]
--- error_code eval
[404, 404, 404, 404, 405, 405, 403, 403, 400, 400, 400, 400, 400, 400, 400, 400]
--- response_headers eval
[("Content-Type: application/json") x 4, "Allow: GET, HEAD", "Allow: POST", ("Content-Type: application/json") x 10]
--- response_body_like eval
[(qr/^\{"error":"[^"].*"\}$/) x 16]



=== POST counts
--- request eval
["POST /rw/namespaces/api/keys/k?value=2.5", "POST /rw/namespaces/api/keys/k", "POST /rw/namespaces/api/keys/k?value=0&limit=10",
 "GET /ro/namespaces/api/keys/k", "GET /t?key=k"]
--- error_code eval
[200, 200, 200, 200, 429]
--- response_body_like eval
[qr/^\{"rate":2\.5,/, qr/^\{"rate":3\.5,/, qr/^\{"rate":3\.5,.*"remaining":6,"admitted":true,"reset":[\d.]+\}$/, qr/^\{"rate":3\.5,/, qr//]



=== POST with a limit counts what that admits, and shares the counter with rules
--- request eval
["POST /rw/namespaces/api/keys/l?limit=2&window_type=fixed", "GET /t?key=l", "GET /t?key=l",
 "POST /rw/namespaces/api/keys/l?limit=2&window_type=fixed", "POST /rw/namespaces/api/keys/l?limit=2&window_type=fixed&value=3",
 "POST /rw/namespaces/api/keys/l?limit=1e9", "POST /rw/namespaces/api/keys/l?rate=1/1s&burst=1&value=2",
 "POST /rw/namespaces/api/keys/l?rate=1/366d&burst=1&value=2", "GET /ro/namespaces/api/keys/l?window_type=fixed",
 "GET /ro/namespaces/api"]
--- error_code eval
[200, 200, 429, 200, 200, 400, 200, 200, 200, 200]
--- response_body_like eval
[qr/^\{"rate":1,.*"remaining":1,"admitted":true,"reset":\d+(\.\d+)?\}$/, qr//, qr//,
 qr/^\{"rate":2,.*"remaining":0,"admitted":false,"reset":\d+(\.\d+)?\}$/,
 qr/^\{"rate":2,.*"remaining":0,"admitted":false,"reset":null\}$/, qr/^\{"error":"invalid parameter \\"limit\\"/,
 qr/"remaining":0,"admitted":true,"reset":[\d.]+\}$/, qr/"admitted":true,"reset":[\d.]+\}$/,
 qr/^\{"rate":2,"current":2,/, qr/"requests":\{"passed":4,"rejected":3,/]



=== DELETE sets a key to zero, in all windows or those that are named
--- request eval
["GET /t?key=d", "GET /t?key=d", "GET /t?key=d", "DELETE /rw/namespaces/api/keys/d", "GET /t?key=d",
 "POST /rw/namespaces/two/keys/d?window=1h&value=3", "POST /rw/namespaces/two/keys/d?window=366d&window_type=moving&value=5",
 "DELETE /rw/namespaces/two/keys/d?window=1h", "GET /ro/namespaces/two/keys/d?window=366d&window_type=moving",
 "DELETE /rw/namespaces/two/keys/d?limit=4", "GET /ro/namespaces/two/keys/d?window=366d&window_type=moving",
 "DELETE /rw/namespaces/two/keys/unseen", "DELETE /rw/namespaces/two/keys/d?window=1m", "DELETE /rw/namespaces/none/keys/d",
 "GET /ro/namespaces/two"]
--- error_code eval
[200, 200, 429, 200, 200, (200) x 7, 400, 404, 200]
--- response_body_like eval
my $reset = sub { qr/^\{"reset":\[\{"window":$_[0],"window_type":"$_[1]","counter":null,"rate":$_[2]\}\]\}$/ };
[qr//, qr//, qr//, $reset->(31622400, 'sliding', 2), qr//, qr/^\{"rate":3,/, qr/^\{"rate":5,/, $reset->(3600, 'sliding', 3), qr/^\{"rate":5,/,
 $reset->(31622400, 'moving', 5), qr/^\{"rate":0,/, qr/^\{"reset":\[\]\}$/, qr/the window 1m is not one/, qr/no such namespace/, qr/"keys":0,/]



=== without a rule and a namespace, there is the default one; DELETE finds whatever windows were counted in
--- http_config
    ratelimit_zone zone=counters:1m;
--- request eval
["GET /rw/namespaces", "POST /rw/namespaces/default/keys/a?window=366d&value=3", "POST /rw/namespaces/default/keys/a?window=1h&window_type=moving",
 "POST /rw/namespaces/default/keys/a?rate=1/366d&burst=9", "DELETE /rw/namespaces/default/keys/a",
 "GET /rw/namespaces/default/keys/a?window=366d", "GET /rw/namespaces/default/keys/a?window=1h&window_type=moving",
 "GET /rw/namespaces/default/keys/a?rate=1/366d&burst=9"]
--- config
    location /rw/ {
        ratelimit_api write=on;
    }
--- response_body_like eval
[qr/^\{"namespaces":\["default"\]\}$/, qr/^\{"rate":3,/, qr/^\{"rate":1,/, qr/^\{"rate":1,/,
 qr/^\{"reset":\[\{"window":\d+,.*,\{.*"leak":"1\/\w+"\}\]\}$/, (qr/^\{"rate":0,/) x 3]



=== the keys that are rejected most, and the rules that refuse them
--- request eval
[("GET /t?key=a") x 8, ("GET /t?key=b%2Fc") x 4,
 "GET /ro/namespaces/api/top", "GET /ro/namespaces/api/top/?limit=1", "GET /ro/namespaces/two/top", "HEAD /ro/namespaces/api/top",
 "DELETE /rw/namespaces/api/keys/a", "GET /ro/namespaces/api/top",
 "GET /ro/namespaces/none/top", "GET /ro/namespaces/api/top?limit=x", "POST /rw/namespaces/api/top"]
--- error_code eval
[200, 200, (429) x 6, 200, 200, 429, 429, (200) x 6, 404, 400, 405]
--- response_body_like eval
# A minute may have ended meanwhile.
my $top = sub { my ($a, $b) = @_; qr/^\{"keys":\[\{"key":"a","counter":null,"rejected":[3-6],"error":0,$a\},\{"key":"b%252Fc","counter":null,"rejected":[0-2],"error":0,$b\}\],"missed":0,"followed":37\}$/ };
my $refused = qr/"rule":"nginx.conf:\d+","name":"api-366d","until":\d+,"dry_run":false/;
my $free = qr/"rule":null,"name":null,"until":null,"dry_run":null/;
[(qr//) x 12, $top->($refused, $refused),
 qr/^\{"keys":\[\{"key":"a",[^{]*\}\],"missed"/, qr/^\{"keys":\[\],"missed":0,"followed":37\}$/, qr/^$/,
 qr/^\{"reset":/, $top->($free, $refused), (qr/"error"/) x 3]



=== a rule that refuses a key in a dry run
--- config
    location /api { ratelimit_api; }
    location /dry {
        ratelimit_dry_run on;
        ratelimit api limit=1/366d window=fixed counter=dry key=$arg_key;
        empty_gif;
    }
--- request eval
[("GET /dry?key=a") x 2, "GET /api/namespaces/api/top"]
--- error_code eval
[200, 200, 200]
--- response_body_like eval
[qr//, qr//, qr/^\{"keys":\[\{"key":"a","counter":"dry","rejected":[01],"error":0,"rule":"nginx.conf:\d+","name":"api-366d","until":\d+,"dry_run":true\}\],/]



=== a wrong parameter
--- config
    location /a {
        ratelimit_api write=yes;
    }
--- must_die
--- error_log
ratelimit_api: invalid parameter "write=yes": expected write=on, write=off or nothing in



=== a location has one of the two
--- config
    location /a {
        ratelimit_api;
        ratelimit_metrics;
    }
--- must_die
--- error_log
ratelimit_metrics: stands beside "ratelimit_api", which answers every request: expected a location of its own in



=== what each rule says about a key
--- config
    location /api { ratelimit_api; }
    location /t {
        ratelimit_key $arg_k;
        ratelimit api limit=2/366d window=fixed;
        ratelimit api limit=$arg_l/366d window=moving counter=own cost=$arg_c;
        ratelimit two rate=1/1s burst=1 key=$arg_user;
        location /t/dry {
            ratelimit_dry_run on;
            ratelimit_phase precontent;
            empty_gif;
        }
        empty_gif;
    }
--- request eval
["GET /api/namespaces/api/rules", "GET /api/namespaces/two/rules/", "GET /api/namespaces/api/keys/k/explain",
 "GET /t?k=k&l=5&c=2", "GET /t?k=k&l=5&c=2", "GET /t?k=k&l=5&c=2",
 "GET /api/namespaces/api/keys/k/explain", "GET /api/namespaces/api/keys/explain?key=k&limit=5&cost=1",
 "GET /api/namespaces/two/keys/u%2Fv/explain?all=1", "GET /api/namespaces/none/rules",
 "GET /api/namespaces/api/keys/explain"]
--- error_code eval
[200, 200, 200, 200, 200, 429, 200, 200, 200, 404, 200]
--- response_body_like eval
my $own = sub { my ($phase, $dry) = @_; my $setting = qq("phase":"$phase","dry_run":$dry); 
    my $one = qr/\{"place":"nginx.conf:\d+","limits":\[\{"name":"api-366d","limit":2,"window":31622400,"window_type":"fixed","burst":null,"delay":null\}\],"key":"\$arg_k","counter":null,"cost":1,$setting\}/;
    my $two = qr/\{"place":"nginx.conf:\d+","limits":\[\{"name":"api-366d-2","limit":null,"window":31622400,"window_type":"moving","burst":null,"delay":null\}\],"key":"\$arg_k","counter":"own","cost":null,$setting\}/;
    ($one, $two) };
my ($a, $b) = $own->('preaccess', 'false');
my ($c, $d) = $own->('precontent', 'true');
my $limit = sub { my ($name, @rest) = @_; my $rest = sprintf '"limit":%s,"rate":%s,"remaining":%s,"reset":%s,"admitted":%s,"until":%s', @rest; qr/\{"name":"$name",$rest\}/ };
my $first = $limit->('api-366d', 2, 2, 0, '[\d.]+', 'false', '[\d.]+');
my $second = $limit->('api-366d-2', 'null', 4, 'null', 'null', 'null', 'null');
my $given = $limit->('api-366d-2', 5, 4, 1, '[\d.]+', 'true', 'null');
[qr/^\{"rules":\[$a,$c,$b,$d\]\}$/, qr/^\{"rules":\[\{"place":"nginx.conf:\d+","limits":\[\{"name":"two-rate","limit":1,"window":1,"window_type":"rate","burst":1,"delay":null\}\],"key":"\$arg_user",.*"dry_run":false\},.*"dry_run":true\}\]\}$/,
 qr/^\{"rules":\[\]\}$/, (qr/./) x 3,
 qr/^\{"rules":\[\{"place":"nginx.conf:(\d+)","name":"api-366d","counter":null,"cost":1,"dry_run":false,"limits":\[$first\]\},.*"counter":"own","cost":1,"dry_run":false,"limits":\[$second\]\}/,
 qr/"limits":\[$given\]/, qr/^\{"rules":\[\{"place":"nginx.conf:\d+","name":"two-rate",.*"limits":\[\{"name":"two-rate","limit":2,"rate":0,"remaining":2,/,
 qr/no such namespace/, qr/^\{"rate":0,/]
