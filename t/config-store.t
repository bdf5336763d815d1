# What a ratelimit_store block accepts; and that no log line tells a password,
# which are all called "s3cret" here, as are users where a message could show
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



=== no strategy
--- http_config
    ratelimit_store main { # here
        server 127.0.0.1:6379;
    }
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



=== a directive of a namespace
--- http_config
    sync_rate 1;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "sync_rate"
expected one of strategy, server,



=== a directive in upper case
--- http_config
    Strategy redis;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "Strategy"
expected one of strategy, server,



=== an unknown directive that is very long
--- http_config eval
'' . 'x' x 1200 . ' 5;'
--- must_die
--- error_log
ratelimit_store "main": unknown directive "xxxxxxxx
expected one of strategy, server,



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
redis or postgres



=== strategy: two
--- http_config
    strategy redis postgres;
--- must_die
--- error_log
ratelimit_store "main": "strategy" takes one word, not 2
redis or postgres



=== strategy: twice
--- http_config
    strategy redis;
    strategy redis; # here
--- must_die
--- error_log
ratelimit_store "main": "strategy" is duplicate



=== strategy: an unknown one
--- http_config
    strategy mysql;
--- must_die
--- error_log
ratelimit_store "main": invalid strategy "mysql"
expected redis or postgres



=== strategy: an empty word
--- http_config
    strategy "";
--- must_die
--- error_log
ratelimit_store "main": invalid strategy ""
expected redis or postgres



=== strategy: one that this build lacks
--- http_config
    strategy cassandra;
--- must_die
--- error_log
ratelimit_store "main": strategy "cassandra" is not in this build
expected redis or postgres



=== server: none
--- http_config
    server;
--- must_die
--- error_log
ratelimit_store "main": "server" takes one word, not 0
host[:port], [v6][:port] or unix:/path



=== server: two in one directive
--- http_config
    server 127.0.0.1:6379 127.0.0.1:6380;
--- must_die
--- error_log
ratelimit_store "main": "server" takes one word, not 2
host[:port], [v6][:port] or unix:/path



=== server: twice the same
--- http_config
    server 127.0.0.1:6379;
    server 127.0.0.1:6380;
    server 127.0.0.1:6379; # here
--- must_die
--- error_log
ratelimit_store "main": server "127.0.0.1:6379" is duplicate



=== server: a port without a host
--- http_config
    server :6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server ":6379"
expected host[:port], [v6][:port] or unix:/path



=== server: an empty word
--- http_config
    server "";
--- must_die
--- error_log
ratelimit_store "main": invalid server ""
expected host[:port], [v6][:port] or unix:/path



=== server: an empty port
--- http_config
    server localhost:;
--- must_die
--- error_log
ratelimit_store "main": invalid server "localhost:"
expected host[:port], [v6][:port] or unix:/path



=== server: port 0
--- http_config
    server localhost:0;
--- must_die
--- error_log
ratelimit_store "main": invalid server "localhost:0"
expected host[:port], [v6][:port] or unix:/path



=== server: a port that is too large
--- http_config
    server localhost:65536;
--- must_die
--- error_log
ratelimit_store "main": invalid server "localhost:65536"
expected host[:port], [v6][:port] or unix:/path



=== server: a port that is a name
--- http_config
    server localhost:redis;
--- must_die
--- error_log
ratelimit_store "main": invalid server "localhost:redis"
expected host[:port], [v6][:port] or unix:/path



=== server: IPv6 without brackets
--- http_config
    server ::1:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server "::1:6379"
expected host[:port], [v6][:port] or unix:/path



=== server: an address that cannot be one
--- http_config
    server 127.0.0.256:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server "127.0.0.256:6379"
expected host[:port], [v6][:port] or unix:/path



=== server: a name with a character that names do not have
--- http_config
    server a/b:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server "a/b:6379"
expected host[:port], [v6][:port] or unix:/path



=== server: a URL
--- http_config
    server redis://127.0.0.1:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server "redis://127.0.0.1:6379"
expected host[:port], [v6][:port] or unix:/path



=== server: a relative path
--- http_config
    server unix:redis.sock;
--- must_die
--- error_log
ratelimit_store "main": invalid server "unix:redis.sock"
expected host[:port], [v6][:port] or unix:/path



=== server: no path
--- http_config
    server unix:;
--- must_die
--- error_log
ratelimit_store "main": invalid server "unix:"
expected host[:port], [v6][:port] or unix:/path



=== server: a path alone
--- http_config
    server /run/redis.sock;
--- must_die
--- error_log
ratelimit_store "main": invalid server "/run/redis.sock"
expected host[:port], [v6][:port] or unix:/path



=== server: an address that is very long
--- http_config eval
'server ' . 'x' x 1200 . ';'
--- must_die
--- error_log
ratelimit_store "main": invalid server "xxxxxxxx
expected host[:port], [v6][:port] or unix:/path



=== cluster: none
--- http_config
    cluster;
--- must_die
--- error_log
ratelimit_store "main": "cluster" takes one word, not 0
on or off



=== cluster: neither on nor off
--- http_config
    cluster yes;
--- must_die
--- error_log
ratelimit_store "main": invalid cluster "yes"
expected on or off



=== cluster: twice
--- http_config
    cluster on;
    cluster off; # here
--- must_die
--- error_log
ratelimit_store "main": "cluster" is duplicate



=== cluster: with sentinels
--- http_config
    strategy redis;
    cluster on;
    sentinel_master mymaster; # here
--- must_die
--- error_log
ratelimit_store "main": "cluster on" goes with no "sentinel_master"
expected one of them



=== cluster: with sentinels, the other way round
--- http_config
    sentinel_master mymaster;
    cluster on; # here
    strategy redis;
--- must_die
--- error_log
ratelimit_store "main": "cluster on" goes with no "sentinel_master"
expected one of them



=== cluster: with another database than 0
--- http_config
    strategy redis;
    database 1;
    cluster on; # here
--- must_die
--- error_log
ratelimit_store "main": "cluster on" goes with no other database than 0
expected "database 0" or none



=== cluster: with a socket
--- http_config
    strategy redis;
    cluster on;
    server unix:/run/redis.sock; # here
--- must_die
--- error_log
ratelimit_store "main": "cluster on" goes with no server "unix:/run/redis.sock"
expected host[:port] or [v6][:port]



=== cluster: an option of redis alone
--- http_config
    strategy postgres;
    cluster on; # here
--- must_die
--- error_log
ratelimit_store "main": "cluster" is an option of strategy redis, not of postgres



=== cluster: an option of redis alone, off too
--- http_config
    cluster off; # here
    strategy postgres;
--- must_die
--- error_log
ratelimit_store "main": "cluster" is an option of strategy redis, not of postgres



=== sentinel_master: none
--- http_config
    sentinel_master;
--- must_die
--- error_log
ratelimit_store "main": "sentinel_master" takes one word, not 0
such as mymaster



=== sentinel_master: an empty word
--- http_config
    sentinel_master "";
--- must_die
--- error_log
ratelimit_store "main": invalid sentinel_master ""
such as mymaster



=== sentinel_master: twice
--- http_config
    sentinel_master one;
    sentinel_master two; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_master" is duplicate



=== sentinel_master: with a socket
--- http_config
    strategy redis;
    sentinel_master mymaster;
    server unix:/run/redis.sock; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_master" goes with no server "unix:/run/redis.sock"
expected host[:port] or [v6][:port]



=== sentinel_master: an option of redis alone
--- http_config
    strategy postgres;
    sentinel_master mymaster; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_master" is an option of strategy redis, not of postgres



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



=== sentinel_username: an option of redis alone
--- http_config
    strategy postgres;
    sentinel_username s3cret; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_username" is an option of strategy redis, not of postgres



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



=== sentinel_password: an option of redis alone
--- http_config
    sentinel_password s3cret; # here
    strategy postgres;
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" is an option of strategy redis, not of postgres



=== sentinel_password: none
--- http_config
    sentinel_password;
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" takes one word, not 0
a password of at least one character



=== sentinel_password: two
--- http_config
    sentinel_password s3cret s3cret;
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" takes one word, not 2
a password of at least one character



=== sentinel_password: an empty word
--- http_config
    sentinel_password "";
--- must_die
--- error_log
ratelimit_store "main": invalid sentinel_password
expected a password of at least one character



=== sentinel_password: twice
--- http_config
    sentinel_password s3cret;
    sentinel_password s3cret; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" is duplicate



=== sentinel_password: without a semicolon
--- http_config
    sentinel_password s3cret
    sentinel_master mymaster; # here
--- must_die
--- error_log
ratelimit_store "main": "sentinel_password" takes one word, not 3



=== username: none
--- http_config
    username;
--- must_die
--- error_log
ratelimit_store "main": "username" takes one word, not 0
a name of at least one character



=== username: an empty word
--- http_config
    username "";
--- must_die
--- error_log
ratelimit_store "main": invalid username
expected a name of at least one character



=== username: twice
--- http_config
    username joe;
    username joe; # here
--- must_die
--- error_log
ratelimit_store "main": "username" is duplicate



=== username: with the password
--- http_config
    username joe s3cret;
--- must_die
--- error_log
ratelimit_store "main": "username" takes one word, not 2
a name of at least one character



=== username: without a semicolon before the password
--- http_config
    username joe
    password s3cret; # here
--- must_die
--- error_log
ratelimit_store "main": "username" takes one word, not 3
a name of at least one character



=== password: none
--- http_config
    password;
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 0
a password of at least one character



=== password: two
--- http_config
    password s3cret s3cret;
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 2
a password of at least one character



=== password: an empty word
--- http_config
    password "";
--- must_die
--- error_log
ratelimit_store "main": invalid password
expected a password of at least one character



=== password: twice
--- http_config
    password s3cret;
    password s3cret; # here
--- must_die
--- error_log
ratelimit_store "main": "password" is duplicate



=== password: without a semicolon
--- http_config
    password s3cret
    database 1; # here
--- must_die
--- error_log
ratelimit_store "main": "password" takes one word, not 3



=== password: without a semicolon at the block's end
--- http_config
    ratelimit_store main {
        strategy redis;
        password s3cret
    } # here
--- must_die
--- error_log
unexpected "}"



=== password: without a semicolon before it
--- http_config
    server 127.0.0.1:6379
    password s3cret; # here
--- must_die
--- error_log
ratelimit_store "main": "server" takes one word, not 3
host[:port], [v6][:port] or unix:/path



=== password: without a semicolon before it, after an option with a fixed set of words
--- http_config
    tls on password s3cret;
--- must_die
--- error_log
ratelimit_store "main": "tls" takes one word, not 3
on or off



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



=== sentinel_password: in which a semicolon ends the directive
--- http_config
    sentinel_password first;s3cret;
--- must_die
--- error_log
ratelimit_store "main": unknown directive
expected one of strategy, server,



=== password: with "=" in place of a blank
--- http_config
    password=s3cret;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "password..."
expected one of strategy, server,



=== password: with ":" in place of a blank
--- http_config
    password:s3cret;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "password..."
expected one of strategy, server,



=== password: in quotes that are too wide
--- http_config
    "password s3cret";
--- must_die
--- error_log
ratelimit_store "main": unknown directive "password..."
expected one of strategy, server,



=== password: a misspelt directive
--- http_config
    passwort s3cret;
--- must_die
--- error_log
ratelimit_store "main": unknown directive "passwort"
expected one of strategy, server,



=== password: in the address of a server
--- http_config
    server redis://joe:s3cret@127.0.0.1:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid server "redis..."
expected host[:port], [v6][:port] or unix:/path



=== password: in the query of a server
--- http_config
    server 127.0.0.1:5432?password=s3cret;
--- must_die
--- error_log
ratelimit_store "main": invalid server "127.0.0.1..."
expected host[:port], [v6][:port] or unix:/path



=== password: in the name of a Redis database
--- http_config
    strategy redis;
    database redis://:s3cret@127.0.0.1/0; # here
--- must_die
--- error_log
ratelimit_store "main": invalid database "redis..."
expected the number of a Redis database



=== password: after the name of the store
--- http_config
    ratelimit_store main password s3cret { } # here
--- must_die
--- error_log
ratelimit_store:
expected one name and a block: ratelimit_store name { ... }



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



=== password_file: two
--- http_config
    password_file s3cret s3cret;
--- must_die
--- error_log
ratelimit_store "main": "password_file" takes one word, not 2
the path of a file



=== password_file: an empty word
--- http_config
    password_file "";
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
expected the path of a file



=== password_file: twice
--- http_config
    password_file ../html/password;
    password_file ../html/password; # here
--- user_files
>>> password
s3cret
--- must_die
--- error_log
ratelimit_store "main": "password_file" is duplicate



=== password_file: with a password
--- http_config
    password_file ../html/password;
    password s3cret; # here
--- user_files
>>> password
s3cret
--- must_die
--- error_log
ratelimit_store "main": "password" goes with no "password_file"
expected one of them



=== password_file: with a password, the other way round
--- http_config
    password s3cret;
    password_file ../html/password; # here
--- user_files
>>> password
s3cret
--- must_die
--- error_log
ratelimit_store "main": "password" goes with no "password_file"
expected one of them



=== password_file: without a semicolon
--- http_config
    password_file ../html/password
    database 1; # here
--- user_files
>>> password
s3cret
--- must_die
--- error_log
ratelimit_store "main": "password_file" takes one word, not 3



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



=== password_file: a file with nothing but a newline
--- http_config
    password_file ../html/password;
--- user_files eval
[[password => "\n"]]
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
expected a file with a password of at least one character



=== password_file: a file with nothing but a newline of Windows
--- http_config
    password_file ../html/password;
--- user_files eval
[[password => "\r\n"]]
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
expected a file with a password of at least one character



=== password_file: a file that is not UTF-8
--- http_config
    password_file ../html/password;
--- user_files eval
[[password => "s3cret\xe8\n"]]
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
a password of at least one character, in UTF-8



=== password_file: a file with a zero byte
--- http_config
    password_file ../html/password;
--- user_files eval
[[password => "s3cret\0\n"]]
--- must_die
--- error_log
ratelimit_store "main": invalid password_file
expected a file with a password



=== password_file: a store that is wrong otherwise
--- http_config
    password_file ../html/password;
    tls maybe; # here
--- user_files
>>> password
s3cret
--- must_die
--- error_log
ratelimit_store "main": invalid tls "maybe"
expected on or off



=== database: none
--- http_config
    database;
--- must_die
--- error_log
ratelimit_store "main": "database" takes one word, not 0
the number of a Redis database or the name of a Postgres database



=== database: an empty word
--- http_config
    database "";
--- must_die
--- error_log
ratelimit_store "main": invalid database ""
the number of a Redis database or the name of a Postgres database



=== database: twice
--- http_config
    database 0;
    database 0; # here
--- must_die
--- error_log
ratelimit_store "main": "database" is duplicate



=== database: a name for Redis
--- http_config
    strategy redis;
    database main; # here
--- must_die
--- error_log
ratelimit_store "main": invalid database "main"
expected the number of a Redis database



=== database: a name before the strategy that has none
--- http_config
    database main; # here
    strategy redis;
--- must_die
--- error_log
ratelimit_store "main": invalid database "main"
expected the number of a Redis database



=== database: a negative number for Redis
--- http_config
    strategy redis;
    database -1; # here
--- must_die
--- error_log
ratelimit_store "main": invalid database "-1"
expected the number of a Redis database



=== database: a fraction for Redis
--- http_config
    strategy redis;
    database 1.5; # here
--- must_die
--- error_log
ratelimit_store "main": invalid database "1.5"
expected the number of a Redis database



=== database: too large a number for Redis
--- http_config
    strategy redis;
    database 99999999999; # here
--- must_die
--- error_log
ratelimit_store "main": invalid database "99999999999"
expected the number of a Redis database



=== prefix: none
--- http_config
    prefix;
--- must_die
--- error_log
ratelimit_store "main": "prefix" takes one word, not 0
1 to 64 printable ASCII characters without blanks and braces



=== prefix: an empty word
--- http_config
    prefix "";
--- must_die
--- error_log
ratelimit_store "main": invalid prefix ""
expected 1 to 64 printable ASCII characters without blanks and braces



=== prefix: twice
--- http_config
    prefix a;
    prefix a; # here
--- must_die
--- error_log
ratelimit_store "main": "prefix" is duplicate



=== prefix: with a blank
--- http_config
    prefix "a b";
--- must_die
--- error_log
ratelimit_store "main": invalid prefix "a b"
expected 1 to 64 printable ASCII characters without blanks and braces



=== prefix: with a brace, which would decide on the slot of a cluster
--- http_config
    prefix "{rl}";
--- must_die
--- error_log
ratelimit_store "main": invalid prefix "{rl}"
expected 1 to 64 printable ASCII characters without blanks and braces



=== prefix: of 65 characters
--- http_config
    prefix prefix.of.more.than.64.characters.prefix.of.more.than.64.characters;
--- must_die
--- error_log
ratelimit_store "main": invalid prefix "prefix.of.more.than.64.characters.prefix.of.more.than.64.characters"
expected 1 to 64 printable ASCII characters without blanks and braces



=== prefix: an option of redis alone
--- http_config
    strategy postgres;
    prefix rl; # here
--- must_die
--- error_log
ratelimit_store "main": "prefix" is an option of strategy redis, not of postgres



=== table: none
--- http_config
    table;
--- must_die
--- error_log
ratelimit_store "main": "table" takes one word, not 0
name or schema.name



=== table: an empty word
--- http_config
    table "";
--- must_die
--- error_log
ratelimit_store "main": invalid table ""
expected name or schema.name



=== table: twice
--- http_config
    table a;
    table a; # here
--- must_die
--- error_log
ratelimit_store "main": "table" is duplicate



=== table: with a character that names do not have
--- http_config
    table "counters; drop";
--- must_die
--- error_log
ratelimit_store "main": invalid table "counters; drop"
expected name or schema.name, of A-Z, a-z, 0-9, "_", no digit first: a schema of 1 to 63, a name of 1 to 55



=== table: a schema without a name
--- http_config
    table public.;
--- must_die
--- error_log
ratelimit_store "main": invalid table "public."
expected name or schema.name



=== table: more than a schema and a name
--- http_config
    table main.public.counters;
--- must_die
--- error_log
ratelimit_store "main": invalid table "main.public.counters"
expected name or schema.name



=== table: too long for the names that begin with it
--- http_config eval
'table ' . 'x' x 56 . ';'
--- must_die
--- error_log
a name of 1 to 55



=== table: a digit first
--- http_config
    table 1counters;
--- must_die
--- error_log
ratelimit_store "main": invalid table "1counters"
no digit first



=== table: an option of postgres alone
--- http_config
    strategy redis;
    table counters; # here
--- must_die
--- error_log
ratelimit_store "main": "table" is an option of strategy postgres, not of redis



=== table: an option of postgres alone, before the strategy
--- http_config
    table counters; # here
    strategy redis;
--- must_die
--- error_log
ratelimit_store "main": "table" is an option of strategy postgres, not of redis



=== connect_timeout: none
--- http_config
    connect_timeout;
--- must_die
--- error_log
ratelimit_store "main": "connect_timeout" takes one word, not 0
a time from 1ms



=== connect_timeout: 0
--- http_config
    connect_timeout 0;
--- must_die
--- error_log
ratelimit_store "main": invalid connect_timeout "0"
expected a time from 1ms



=== connect_timeout: a word
--- http_config
    connect_timeout never;
--- must_die
--- error_log
ratelimit_store "main": invalid connect_timeout "never"
expected a time from 1ms



=== connect_timeout: twice
--- http_config
    connect_timeout 1;
    connect_timeout 1; # here
--- must_die
--- error_log
ratelimit_store "main": "connect_timeout" is duplicate



=== timeout: two
--- http_config
    timeout 250 ms;
--- must_die
--- error_log
ratelimit_store "main": "timeout" takes one word, not 2
a time from 1ms



=== timeout: a negative one
--- http_config
    timeout -1s;
--- must_die
--- error_log
ratelimit_store "main": invalid timeout "-1s"
expected a time from 1ms



=== timeout: less than a millisecond
--- http_config
    timeout 0.0005;
--- must_die
--- error_log
ratelimit_store "main": invalid timeout "0.0005"
expected a time from 1ms



=== timeout: twice
--- http_config
    timeout 1;
    timeout 1; # here
--- must_die
--- error_log
ratelimit_store "main": "timeout" is duplicate



=== tls: none
--- http_config
    tls;
--- must_die
--- error_log
ratelimit_store "main": "tls" takes one word, not 0
on or off



=== tls: neither on nor off
--- http_config
    tls 1.3;
--- must_die
--- error_log
ratelimit_store "main": invalid tls "1.3"
expected on or off



=== tls: twice
--- http_config
    tls on;
    tls on; # here
--- must_die
--- error_log
ratelimit_store "main": "tls" is duplicate



=== tls: over a socket
--- http_config
    strategy redis;
    server unix:/run/redis.sock;
    tls on; # here
--- must_die
--- error_log
ratelimit_store "main": "tls on" goes with no server "unix:/run/redis.sock"
expected host[:port] or [v6][:port]



=== tls: over the socket of Postgres
--- http_config
    strategy postgres;
    server unix:/run/postgresql;
    tls on; # here
--- must_die
--- error_log
ratelimit_store "main": "tls on" goes with no server "unix:/run/postgresql"
expected host[:port] or [v6][:port]



=== tls_verify: neither on nor off
--- http_config
    tls_verify optional;
--- must_die
--- error_log
ratelimit_store "main": invalid tls_verify "optional"
expected on or off



=== tls_verify: twice
--- http_config
    tls_verify on;
    tls_verify off; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_verify" is duplicate



=== tls_name: none
--- http_config
    tls_name;
--- must_die
--- error_log
ratelimit_store "main": "tls_name" takes one word, not 0
a host's name or an IP address



=== tls_name: a host and a port
--- http_config
    tls_name redis.example:6379;
--- must_die
--- error_log
ratelimit_store "main": invalid tls_name "redis.example:6379"
expected a host's name or an IP address



=== tls_name: a name with a blank
--- http_config
    tls_name "redis example";
--- must_die
--- error_log
ratelimit_store "main": invalid tls_name "redis example"
expected a host's name or an IP address



=== tls_name: twice
--- http_config
    tls_name a;
    tls_name a; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_name" is duplicate



=== tls_trusted_certificate: none
--- http_config
    tls_trusted_certificate;
--- must_die
--- error_log
ratelimit_store "main": "tls_trusted_certificate" takes one word, not 0
the path of a file



=== tls_trusted_certificate: an empty word
--- http_config
    tls_trusted_certificate "";
--- must_die
--- error_log
ratelimit_store "main": invalid tls_trusted_certificate ""
expected the path of a file



=== tls_trusted_certificate: twice
--- http_config
    tls_trusted_certificate a;
    tls_trusted_certificate a; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_trusted_certificate" is duplicate



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



=== tls_trusted_certificate: a file without a certificate
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_trusted_certificate PEM/key.pem; } # here
--- must_die
--- error_log
ratelimit_store "main": tls_trusted_certificate
key.pem" holds no certificate in PEM format



=== tls_trusted_certificate: a file without a certificate, even if nobody is verified
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_verify off; tls_trusted_certificate nginx.conf; } # here
--- must_die
--- error_log
nginx.conf" holds no certificate in PEM format



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



=== tls_certificate: a file without one, for Postgres
--- http_config
    ratelimit_store main { strategy postgres; tls on; tls_certificate PEM/key.pem; tls_certificate_key PEM/key.pem; } # here
--- must_die
--- error_log
ratelimit_store "main": tls_certificate
key.pem" holds no certificate in PEM format



=== tls_certificate: a file that is not there
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_certificate nothing.pem; tls_certificate_key nginx.conf; }
--- must_die
--- error_log
ratelimit_store "main": cannot read the file
nothing.pem" of tls_certificate (No such file or directory



=== tls_certificate: twice
--- http_config
    tls_certificate a;
    tls_certificate a; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_certificate" is duplicate



=== tls_certificate: without its key
--- http_config
    ratelimit_store main {
        strategy redis;
        tls on;
        tls_certificate nginx.conf; # here
    }
--- must_die
--- error_log
ratelimit_store "main": "tls_certificate" needs another option
"tls_certificate_key file;"



=== tls_certificate_key: a file that is not there
--- http_config
    ratelimit_store main { strategy redis; tls on; tls_certificate nginx.conf; tls_certificate_key nothing.pem; }
--- must_die
--- error_log
ratelimit_store "main": cannot read the file
nothing.pem" of tls_certificate_key (No such file or directory



=== tls_certificate_key: twice
--- http_config
    tls_certificate_key a;
    tls_certificate_key a; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_certificate_key" is duplicate



=== tls_certificate_key: without its certificate
--- http_config
    ratelimit_store main {
        strategy redis;
        tls on;
        tls_certificate_key nginx.conf; # here
    }
--- must_die
--- error_log
ratelimit_store "main": "tls_certificate_key" needs another option
"tls_certificate file;"



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



=== the name "off"
--- http_config
    ratelimit_store off { strategy redis; }
--- must_die
--- error_log
ratelimit_store: invalid name "off" of a store
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== an empty name
--- http_config
    ratelimit_store "" { strategy redis; }
--- must_die
--- error_log
ratelimit_store: invalid name "" of a store
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== a name with another character
--- http_config
    ratelimit_store a/b { strategy redis; }
--- must_die
--- error_log
ratelimit_store: invalid name "a/b" of a store
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== a name of 65 characters
--- http_config
    ratelimit_store name.of.more.than.64.characters.name.of.more.than.64.characters.n { }
--- must_die
--- error_log
ratelimit_store: invalid name "name.of.more.than.64.characters.name.of.more.than.64.characters.n" of a store
1 to 64 of A-Z, a-z, 0-9, "_", ".", "-", and not "off"



=== no name
--- http_config
    ratelimit_store { strategy redis; }
--- must_die
--- error_log
ratelimit_store:
expected one name and a block: ratelimit_store name { ... }



=== two names
--- http_config
    ratelimit_store main other { strategy redis; }
--- must_die
--- error_log
ratelimit_store:
"other"
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



=== a strategy is all that a store needs
--- http_config
    ratelimit_store one { strategy redis; }
    ratelimit_store two { strategy postgres; }



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



=== a Redis Cluster
--- http_config
    strategy redis;
    cluster on;
    database 0;
    server 127.0.0.1:7000;
    server 127.0.0.1:7001;



=== sentinels at their usual port, and no user
--- http_config
    strategy redis;
    sentinel_master mymaster;



=== a socket
--- http_config
    strategy redis;
    server unix:/run/redis.sock;



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



=== password_file: no newline at the end
--- http_config
    strategy redis;
    password_file ../html/password;
--- user_files eval
[[password => 's3cret']]



=== password_file: a newline of Windows at the end
--- http_config
    strategy redis;
    password_file ../html/password;
--- user_files eval
[[password => "s3cret\r\n"]]



=== password_file: only the last of two newlines is dropped
--- http_config
    strategy redis;
    password_file ../html/password;
--- user_files eval
[[password => "\n\n"]]



=== password_file: one file for two stores
--- http_config
    ratelimit_store one { strategy redis; password_file ../html/password; }
    ratelimit_store two { strategy postgres; password_file ../html/password; }
--- user_files
>>> password
s3cret



=== tls off: no other option of TLS has an effect
--- http_config
    strategy redis;
    tls off;
    tls_trusted_certificate nothing.pem; # here
--- must_die
--- error_log
ratelimit_store "main": "tls_trusted_certificate" has no effect without TLS: add "tls on;"



=== tls_name: an IP address
--- http_config
    strategy redis;
    tls on;
    tls_name ::1;



=== the longest prefix
--- http_config
    strategy redis;
    prefix prefix.of.exactly.64.characters.prefix.of.exactly.64.characters;



=== the longest name, of every kind of character
--- http_config
    ratelimit_store Store_with-a.name_of-64.characters.Store_with-a.name_of-64.chara { strategy redis; }



=== names that differ by case
--- http_config
    ratelimit_store main { strategy redis; }
    ratelimit_store MAIN { strategy redis; }
