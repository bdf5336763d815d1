# Runs each file of nginx-conf/ in a real nginx, and the commands of its comment, and tests the responses. A file
# without an entry here fails the test. cassandra.conf is in recipes-cassandra.t.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2 to + 7. Without Debian's lua-nginx-module for this
# nginx, the files that load it are not run.

use strict;
use warnings;

use File::Basename qw(basename);
use FindBin;
use JSON::PP qw(decode_json);
use List::Util qw(min);
use Test::More;

use lib "$FindBin::Bin/lib";

my $has_lua;

BEGIN {
    require LuaNode;
    $has_lua = LuaNode::is_there();
}
use Certificate;
use Node qw(eventually);
use Recipe;
use Redis;

die "$_ is not installed\n" for grep { system("$_ --version >/dev/null 2>&1") } qw(curl redis-server);

my $port = $ENV{TEST_NGINX_PORT} || 1984;

# The ports of the files, and those of this test. Stores may take as long as they do on a busy machine.
my %ports   = (8080 => $port + 2, 8081 => $port + 3, 6379 => $port + 4, 26379 => $port + 6);
my $patient = 'timeout 10s; connect_timeout 10s;';
my %changes = (
    %ports,
    'strategy redis;'        => "strategy redis; $patient",
    'strategy        redis;' => "strategy redis; $patient",
    'timeout   50ms;'        => 'timeout 10s;',
);

# For each file: the responses to its commands, in their order, each with a pattern for the last response if there is
# one; or a function that tests it.
my %recipes = (
    'first.conf' => [['200 x 5, 429', qr/\r\nRetry-After: \d+\r\n/]],
    'per-key.conf' => [
        ['429 after 200'],
        ['429 after 404'],
        ['429 in the end'],
        ['404 x 3', qr/\A(?!.*RateLimit)/s],
        ['404 x 30', qr/\A(?!.*RateLimit)/s],
    ],
    'several-limits.conf'  => [['429 after 200'], ['429 after 404']],
    'monthly-quota.conf'   => [['200 x 5, 429'], ['200 x 20, 429']],
    'tiers.conf'           => [['200 x 5, 429'], ['200 x 20, 429'], ['200 x 30', qr/\A(?!.*RateLimit)/s], ['429']],
    'exemptions.conf'      => [
        ['200 x 10', qr/\A(?!.*RateLimit)/s], ['200 x 10'], ['200 x 3, 429'], ['200 x 10', qr/\A(?!.*RateLimit)/s], ['429'],
    ],
    'ban.conf'             => [
        ['200 x 5, 429'], ['429 x 5', qr/\r\nRetry-After: (?:600|599)\r\n/], ['200', qr/"key":"127\.0\.0\.1"/], ['200', qr/"lifted":\[\{/],
    ],
    'login.conf'           => [['204 x 3'], ['401 x 5, 429'], ['429']],
    'login-burst.conf'     => [['401 x 5, 429', qr/\r\nRetry-After: \d+\r\n/]],
    'cost-and-charge.conf' => [
        ['200 x 3', qr/;r=17/], ['200', qr/;r=15/], ['200 x 3', qr/;r=15/], ['200 x 3, 429'], ['200 x 3, 429'], ['200 x 5, 429'],
    ],
    'llm-tokens.conf'          => [['200'], ['200 x 2, 429']],
    'llm-tokens-streamed.conf' => [['429'], ['200', qr/"tokens";r=997;.*"total_tokens": 0\}/s], ['200 x 3, 429']],
    'after-authentication.conf' => [['401 x 9'], ['200 x 3, 429'], ['200 x 3, 429']],
    'jwt-claims.conf' => [
        ['401 x 9'], ['200 x 20, 429'], ['200 x 5, 429'], ['200 x 5, 429'], ['200 x 30', qr/\A(?!.*RateLimit)/s], ['200 x 5, 429'],
    ],
    'limits-from-a-service.conf' => [
        ['401 x 9'], ['200 x 3, 429'], ['429 after 200'], ['200 x 30', qr/\A(?!.*RateLimit)/s],
    ],
    'error-page.conf'     => [['200 x 3, 429', qr/\{"error": "too many requests", "retry_after": "[\d.]+"\}\s+\z/]],
    'behind-a-proxy.conf' => [['200 x 2'], ['200 x 3, 429'], ['200 x 2'], ['200, 429'], ['200, 429']],
    'namespaces.conf'     => [['200 x 20, 429'], ['429 after 200'], ['200 x 5, 429']],
    'grpc.conf'           => sub {
        my ($recipe) = @_;
        $recipe->{expected} = qr/"listen ... http2" directive is deprecated/;
        my ($command) = $recipe->commands;
        # curl 7.88 makes a second such request on a connection wrong.
        my @responses = map { $recipe->run($command, 1) } 1 .. 6;
        is(join(' ', map { /^grpc-status: (\d+)/m ? $1 : 'none' } @responses), '0 0 0 0 0 8', 'five calls in ten seconds');
    },
    'dry-run.conf' => sub {
        my ($recipe) = @_;
        my ($dry, $not_dry) = $recipe->commands;
        $recipe->tried($dry, '200 x 5', qr/;r=0/);
        $recipe->tried($not_dry, '429');
        my $statuses = sub {
            open my $log, '<', "$recipe->{root}/access.log" or return '';
            return join ' ', map { / \d+ (\w+) / } <$log>;
        };
        # A request is logged after its response.
        eventually($statuses, 'PASSED PASSED PASSED REJECTED_DRY_RUN REJECTED_DRY_RUN REJECTED', 'the access log');
        is(scalar(grep {/would be rejected by/} $recipe->log_lines), 2, 'the error log');
    },
    'bandwidth.conf' => sub {
        my ($recipe) = @_;
        my (undef, $download, $other) = $recipe->commands;
        my @slow = map { slow_download($recipe) } 1, 2;
        $recipe->tried($download, '503');
        close $_ for @slow;
        eventually(sub { Recipe::status_of($recipe->run($download =~ s/-i/-I/r, 1)) }, 200, 'a connection is free again');
        $recipe->tried($download =~ s/-i/-I/r, '429 after 200');
        $recipe->tried($other, '200 x 10');
    },
    'cluster.conf' => sub {
        my ($one) = @_;
        my $two = another('cluster.conf');
        my ($first, $second, $status) = $one->commands;
        $one->tried($first, '200', qr/;r=19/);
        my $hits = sub { ($one->run($_[0], 1))[0] =~ /^X-Hits: (.*)\r$/m ? $1 : 'none' };
        my $known = sub {
            # If the minute has ended, the hit is not one of this minute any more.
            $one->run($first, 1) if $hits->($status =~ s/:$two->{port}/:$one->{port}/r) eq '0 of 20';
            return $hits->($status);
        };
        eventually($known, sub { $_[0] =~ /^[1-9]\d* of 20/ }, 'the other node knows the hit');
        $two->tried($second, '429 after 200');
        $two->stop;
    },
    'synchronous.conf' => sub {
        my ($one) = @_;
        my $two = another('synchronous.conf');
        my ($first, $second) = $one->commands;
        $one->tried($first, '429 after 200');
        $two->tried($second, '429');
        $two->stop;
    },
    'survive-restart.conf' => sub {
        my ($recipe) = @_;
        my ($command) = $recipe->commands;
        $recipe->tried($command, '200 x 5, 429');
        $recipe->stop;
        $recipe->start;
        eventually(sub { synced($recipe) }, 'ok', 'the first sync after the start');
        $recipe->tried($command, '429');
    },
    'sentinel-tls.conf' => \&with_sentinel,
);

# What a file needs before nginx starts; returns the servers.
my %needs = (
    'cluster.conf'     => sub { redis() },
    'synchronous.conf' => sub { redis() },
    'survive-restart.conf' => sub {
        my ($recipe) = @_;
        my $redis = redis('--unixsocketperm', '777');
        chmod 0755, $redis->{dir};
        $recipe->{changes}{'/var/run/redis/redis-server.sock'} = $redis->socket;
        return $redis;
    },
    'sentinel-tls.conf' => \&sentinel,
    'bandwidth.conf'           => sub { $_[0]->write('html/download', 'x' x 1_000_000); () },
    'llm-tokens-streamed.conf' => sub { $_[0]->write('prompt', 'x' x 5000); () },
);

sub redis {
    my $redis = Redis->new(port => $ports{6379}, args => \@_);
    $redis->start;
    return $redis;
}

# Starts another nginx with the file, on port 8081 of the file's commands.
sub another {
    my ($file, %files) = @_;
    my $recipe = Recipe->new(file => $file, port => $ports{8081}, changes => {%changes, 8080 => $ports{8081}});
    $recipe->write($_, $files{$_}) for keys %files;
    return $recipe->start;
}

# Returns the result of the last sync, from the API.
sub synced {
    my ($recipe) = @_;
    my ($answer) = $recipe->run("curl -i http://127.0.0.1:$recipe->{port}/ratelimit/namespaces/default", 1);
    my ($body) = $answer =~ /\r\n\r\n(.*)/s;
    return decode_json($body)->{sync}{last_result};
}

# Begins a download, whose response has begun when this returns.
sub slow_download {
    my ($recipe) = @_;
    my $socket = $recipe->connection or die "no connection: $!\n";
    print $socket "GET /download HTTP/1.0\r\n\r\n";
    sysread $socket, my $some, 1024;
    is(Recipe::status_of($some), 200, 'a download');
    return $socket;
}

# Starts a Redis and a sentinel, with TLS and passwords.
sub sentinel {
    my ($recipe) = @_;
    my $root = $recipe->{root};
    issued_certificate($root, '127.0.0.1');
    my @tls = ('--tls-ca-cert-file', "$root/roots.pem", '--tls-cert-file', "$root/127.0.0.1.pem",
        '--tls-key-file', "$root/127.0.0.1.key", '--tls-auth-clients', 'no', '--tls-replication', 'yes');
    my $server = sub {
        my ($port, @more) = @_;
        my $redis = Redis->new(port => $port, password => 'secret', args => ['--port', 0, '--tls-port', $port,
            '--requirepass', 'secret', '--masterauth', 'secret', @tls, @more]);
        $redis->start;
        return $redis;
    };
    my $primary = $server->($ports{6379});
    my $replica = $server->($ports{6379} + 1, '--replicaof', "127.0.0.1 $ports{6379}");
    my $conf = "$root/sentinel.conf";
    $recipe->write('sentinel.conf', <<"    END");
        sentinel monitor mymaster 127.0.0.1 $ports{6379} 1
        sentinel auth-pass mymaster secret
        sentinel down-after-milliseconds mymaster 60000
    END
    my $sentinel = Redis->new(port => $ports{26379}, config => $conf,
        args => ['--sentinel', '--port', 0, '--tls-port', $ports{26379}, @tls]);
    $sentinel->start;
    rename "$root/roots.pem", "$root/redis-ca.pem" or die "no certificate: $!\n";
    $recipe->write('redis-password', "secret\n");
    return ($sentinel, $replica, $primary);
}

sub with_sentinel {
    my ($one, $sentinel, $replica) = @_;
    my $of_store = sub {
        open my $file, '<', "$one->{root}/$_[0]" or die "no $_[0]: $!\n";
        local $/;
        return <$file>;
    };
    my $two = another('sentinel-tls.conf', map { $_ => $of_store->($_) } 'redis-ca.pem', 'redis-password');
    my ($first, $second) = $one->commands;
    $one->tried($first, '200 x 5, 429');
    eventually(sub { Recipe::status_of($two->run($second, 1)) }, 429, 'the other node knows');
    eventually(sub { eval { $sentinel->cli(SENTINEL => FAILOVER => 'mymaster') } }, 'OK', 'a failover');
    eventually(sub { $replica->cli('ROLE')->[0] }, 'master', 'the replica has taken over');
    $two->stop(qr/ratelimit_store "main" is lost|\[error\].*ratelimit_store/);
}

my @files = map { basename($_) } glob "$FindBin::Bin/../nginx-conf/*.conf";
is_deeply([sort keys %recipes, 'cassandra.conf'], [sort @files], 'each file has an entry');

for my $file (sort keys %recipes) {
    my $recipe = Recipe->new(file => $file, port => $ports{8080}, changes => {%changes});
    next if $recipe->text =~ /http_lua_module/ && !$has_lua;
    subtest $file => sub {
        my @servers = ($needs{$file} // sub { })->($recipe);
        $recipe->start;
        my ($tests, @commands) = ($recipes{$file}, $recipe->commands);
        if (ref $tests eq 'CODE') {
            $tests->($recipe, @servers);
        }
        else {
            is(scalar @commands, scalar @$tests, 'commands');
            $recipe->tried($commands[$_], @{$tests->[$_]}) for 0 .. min($#commands, $#$tests);
        }
        $recipe->stop($recipe->{expected} // qr/ \(2: No such file or directory\)/);
        $_->kill for @servers;
    };
}
done_testing();
