# What a ratelimit_store block accepts, as far as nginx itself and files have a
# part in it, and one wrong use of each directive: all others are rows of
# src/conf/tests. And that no log line tells a password, which are all called "s3cret" here, as are users where a message could show
# them. How blocks are read is told in lib/Configuration.pm; here, http_config
# is what is in the block of the store "main" unless it has the directive
# itself.

use Test::Nginx::Socket 'no_plan';

use FindBin;
use File::Temp qw(tempdir);
use lib "$FindBin::Bin/lib";
use Certificate;
use Configuration;

# What is PEM/ in a block: a directory with a key and its certificate.
my $pem = tempdir('certificate-XXXXXX', TMPDIR => 1, CLEANUP => 1);
certificate($pem);

add_block_preprocessor(sub {
    my ($block) = @_;
    if (my $conf = $block->http_config) {
        $block->set_value(http_config => $conf =~ s{PEM/}{$pem/}gr);
    }
    my $zone = 'ratelimit_zone zone=counters:1m;';
    wrap($block, 'ratelimit_store main', $zone) if defined $block->http_config;
    configure($block, $zone);
});

no_long_string();
run_tests();

__DATA__

=== no directive at all
--- http_config
    ratelimit_store main { }
--- must_die
--- error_log
ratelimit_store "main": no strategy
"strategy redis;" or "strategy postgres;"



=== an unknown directive
--- http_config
    host 127.0.0.1;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "host"
expected one of strategy, server, username, password, password_file, database, connect_timeout, timeout, tls, tls_verify, tls_name, tls_trusted_certificate, tls_certificate, tls_certificate_key, cluster, sentinel_master, sentinel_username, sentinel_password, prefix, table



=== a block in the block
--- http_config
    tls { verify on; }
--- must_die
--- error_log
unexpected "{"



=== strategy: none
--- http_config
    strategy;
--- must_die
--- error_log
ratelimit_store "main": "strategy" takes one word, not 0
redis



=== server: none
--- http_config
    server;
--- must_die
--- error_log
ratelimit_store "main": "server" takes one word, not 0
host[:port], [v6][:port] or unix:/path



=== cluster: none
--- http_config
    cluster;
--- must_die
--- error_log
ratelimit_store "main": "cluster" takes one word, not 0
on or off



=== sentinel_master: none
--- http_config
    sentinel_master;
--- must_die
--- error_log
ratelimit_store "main": "sentinel_master" takes one word, not 0
such as mymaster



=== sentinel_username: without sentinels
--- http_config
    ratelimit_store main {
        strategy redis;
        sentinel_username s3cret; # here
    }
--- must_die
--- error_log
ratelimit_store "main": "sentinel_username" needs another option
"sentinel_master name;"



=== sentinel_password: without sentinels
--- http_config
    ratelimit_store main {
        strategy redis;
        sentinel_password s3cret; # here
    }
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" needs another option
"sentinel_master name;"



=== username: none
--- http_config
    username;
--- must_die
--- error_log
ratelimit_store "main": "username" takes one word, not 0
a name of at least one character



=== password: none
--- http_config
    password;
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 0
a password of at least one character



=== password: without a semicolon at the block's end
--- http_config
    ratelimit_store main {
        strategy redis;
        password s3cret
    } # here
--- must_die
--- error_log
unexpected "}"



=== password: with a quote too few
--- http_config
    password "s3cret;
--- must_die
--- error_log
unexpected end of file
[http_config.conf:5]



=== password: quoted in part
--- http_config
    password "s3"cret;
--- must_die
--- error_log
unexpected "c"



=== password: with a brace
--- http_config
    password s3cret{};
--- must_die
--- error_log
unexpected "{"



=== password: in which a semicolon ends the directive
--- http_config
    password first;s3cret;
--- must_die
--- error_log
ratelimit_store "main": unknown directive
expected one of strategy, server,



=== password: outside of the block
--- http_config
    # no ratelimit_store
    password s3cret; # here
--- must_die
--- error_log
unknown directive "password"



=== password: in place of a file
--- http_config
    password_file s3cret;
--- must_die
--- error_log
ratelimit_store "main": password_file cannot be read
No such file or directory



=== password_file: none
--- http_config
    password_file;
--- must_die
--- error_log
ratelimit_store "main": "password_file" takes one word, not 0
the path of a file



=== password_file: a directory
--- http_config
    password_file ../html;
--- must_die
--- error_log
ratelimit_store "main": password_file cannot be read
Is a directory



=== password_file: a path through a file
--- http_config
    password_file nginx.conf/password;
--- must_die
--- error_log
ratelimit_store "main": password_file cannot be read
Not a directory



=== password_file: an empty file
--- http_config
    password_file /dev/null;
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
expected a file with a password of at least one character



=== database: none
--- http_config
    database;
--- must_die
--- error_log
ratelimit_store "main": "database" takes one word, not 0
the number of a Redis database or the name of a Postgres database



=== prefix: none
--- http_config
    prefix;
--- must_die
--- error_log
ratelimit_store "main": "prefix" takes one word, not 0
1 to 64 printable ASCII characters without blanks and braces



=== table: none
--- http_config
    table;
--- must_die
--- error_log
ratelimit_store "main": "table" takes one word, not 0
name or schema.name



=== connect_timeout: none
--- http_config
    connect_timeout;
--- must_die
--- error_log
ratelimit_store "main": "connect_timeout" takes one word, not 0
a time from 1ms



=== timeout: two
--- http_config
    timeout 250 ms;
--- must_die
--- error_log
ratelimit_store "main": "timeout" takes one word, not 2
a time from 1ms



=== tls: none
--- http_config
    tls;
--- must_die
--- error_log
ratelimit_store "main": "tls" takes one word, not 0
on or off



=== tls_verify: neither on nor off
--- http_config
    tls_verify optional;
--- must_die
--- error_log
ratelimit_store "main": invalid tls_verify "optional"
expected on or off



=== tls_name: none
--- http_config
    tls_name;
--- must_die
--- error_log
ratelimit_store "main": "tls_name" takes one word, not 0
a host's name or an IP address



=== tls_trusted_certificate: none
--- http_config
    tls_trusted_certificate;
--- must_die
--- error_log
ratelimit_store "main": "tls_trusted_certificate" takes one word, not 0
the path of a file



=== tls_trusted_certificate: a file that is not there
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_trusted_certificate nothing.pem; }
--- must_die
--- error_log
ratelimit_store "main": cannot read the file
nothing.pem" of tls_trusted_certificate (No such file or directory



=== tls_trusted_certificate: a directory
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_trusted_certificate ../html; }
--- must_die
--- error_log
ratelimit_store "main": cannot read the file
html" of tls_trusted_certificate (Is a directory



=== tls_certificate: a file without one
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_certificate PEM/key.pem; tls_certificate_key PEM/key.pem; } # here
--- must_die
--- error_log
ratelimit_store "main": tls_certificate
key.pem" holds no certificate in PEM format



=== tls_certificate_key: a file without one
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_certificate PEM/certificate.pem; tls_certificate_key PEM/certificate.pem; } # here
--- must_die
--- error_log
ratelimit_store "main": tls_certificate_key
certificate.pem" holds no private key in PEM format



=== include: a file that is not there
--- http_config
    include ../html/nothing.conf;
--- must_die
--- error_log
open()
nothing.conf" failed



=== include: a password without a semicolon after the file
--- http_config
    include ../html/main.conf
    password s3cret; # here
--- user_files
>>> main.conf
strategy redis;
--- must_die
--- error_log
ratelimit_store "main": "include" takes one word, not 3



=== include: what is wrong in the file is found there
--- http_config
    strategy redis;
    include ../html/main.conf;
--- user_files
>>> main.conf
username joe;
password s3cret s3cret;
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 2
[main.conf:2]



=== a name that is taken: the other place is named
--- http_config
    ratelimit_store main { strategy redis; }
    ratelimit_store other { strategy redis; }
    ratelimit_store main { strategy postgres; } # here
--- must_die
--- error_log
ratelimit_store: store "main" is duplicate
expected another name than in
/http_config.conf:2



=== no name
--- http_config
    ratelimit_store { strategy redis; }
--- must_die
--- error_log
ratelimit_store:
expected one name and a block: ratelimit_store name { ... }



=== ";" in place of a block
--- http_config
    ratelimit_store main;
--- must_die
--- error_log
directive "ratelimit_store" has no opening "{"



=== a block that does not end
--- http_config
    ratelimit_store main {
        strategy redis;
        password s3cret;
--- must_die
--- error_log
unexpected end of file, expecting "}"
[http_config.conf:5]



=== in a server
--- config
    ratelimit_store main { strategy redis; }
--- must_die
--- error_log
"ratelimit_store" directive is not allowed here



=== in a location
--- config
    location /t {
        ratelimit_store main { strategy redis; } # here
    }
--- must_die
--- error_log
"ratelimit_store" directive is not allowed here



=== outside of http
--- main_config
    ratelimit_store main { strategy redis; }
--- must_die
--- error_log
"ratelimit_store" directive is not allowed here



=== every directive that Redis has
--- http_config
    tls_certificate_key PEM/key.pem;
    tls_certificate PEM/certificate.pem;
    tls_trusted_certificate PEM/certificate.pem;
    tls_name redis.example;
    tls_verify off;
    tls on;
    timeout 1m;
    connect_timeout 1ms;
    prefix rl:2;
    database 5;
    password s3cret;
    username joe;
    sentinel_password s3cret;
    sentinel_username joe;
    sentinel_master mymaster;
    cluster off;
    server redis-1.example.:26379;
    server [2001:db8::1]:26379;
    strategy redis;



=== every directive that Postgres has
--- http_config
    strategy postgres;
    server unix:/run/postgresql;
    server unix:/run/postgresql/.s.PGSQL.5433;
    server db.example:5432;
    server 127.0.0.1:5432;
    server [::1]:5432;
    username joe;
    password s3cret;
    database "a database";
    table Rate.counters_1;
    connect_timeout 0.5;
    timeout 250ms;
    tls off;



=== a Postgres with TLS
--- http_config
    strategy postgres;
    server db.example:5432;
    tls on;
    tls_verify on;
    tls_name db.example;
    tls_trusted_certificate PEM/certificate.pem;
    tls_certificate PEM/certificate.pem;
    tls_certificate_key PEM/key.pem;



=== stores that nobody listens for, and a rule
--- http_config
    ratelimit_store one { strategy redis; server 127.0.0.1:1; }
    ratelimit_store two { strategy postgres; server unix:/nowhere; }
--- config
    ratelimit limit=5/1d;
--- response_headers
RateLimit-Policy: "default-1d";q=5;w=86400



=== directives in a file that is included
--- http_config
    strategy redis;
    include ../html/main.conf;
--- user_files
>>> main.conf
server 127.0.0.1:6379;
password s3cret;



=== a password of any printable characters
--- http_config
    strategy redis;
    password "s3cret; #{}$x\"'\\ =ü";



=== a password of one character
--- http_config
    strategy redis;
    password $;



=== password_file: relative to the directory of nginx.conf, in an included file of another directory too
--- http_config
    include ../html/ratelimit_store.conf;
--- user_files
>>> ratelimit_store.conf
ratelimit_store main { strategy redis; password_file ../html/password; }
>>> password
s3cret



=== password_file: an absolute path
--- http_config
    strategy redis;
    password_file $TEST_NGINX_SERVER_ROOT/html/password;
--- user_files
>>> password
s3cret



=== password_file: a newline of Windows at the end
--- http_config
    strategy redis;
    password_file ../html/password;
--- user_files eval
[[password => "s3cret\r\n"]]
