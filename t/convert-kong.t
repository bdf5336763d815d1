# Runs configurations that ratelimit-convert makes of Kong's, and compares what they do with what Kong's public
# documentation says. Kong itself is not run. The same program refuses what is not Kong's, or is hostile.
#
# This is a plain Perl test; it uses the ports TEST_NGINX_PORT + 1, + 2 and + 4. lib/set_clock.c stops the clock of
# nginx, so that no window ends during a test.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Convert qw(convert directory_of read_text);
use OwnNginx ();
use Preload;
use Redis;

die "redis-server is not installed\n" if !Redis::is_there();

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $nginx = Converted->new(port => $port + 1);
my $clock = Preload->new('set_clock');
# nginx starts at the beginning of an hour.
my $hour  = (3600 - time % 3600) * 1000;

# Plugins that apply to all requests of two routes, where $services says nothing else.
sub yaml {
    my ($plugins, $route) = @_;
    $route //= '';
    return <<"END";
_format_version: "3.0"
services:
- name: backend
  url: http://127.0.0.1:@{[$port + 2]}/base
  routes:
  - name: a
    paths: [/a]
$route
  - name: all
plugins:
$plugins
END
}

sub run {
    my ($yaml, %more) = @_;
    my $directory = directory_of('kong.yaml' => $yaml);
    my ($code, $output, $errors) = convert('-o', "$directory/kong.conf", "$directory/kong.yaml");
    is($code, $more{code} // 0, 'converted') or diag($errors);
    $clock->order($hour);
    $output = read_text("$directory/kong.conf");
    $output =~ s/listen 8000;/listen 127.0.0.1:$nginx->{port};/g;
    $nginx->start(kong => $output, environment => $more{environment} // {$clock->environment});
    return ($output, $errors);
}

# Returns the statuses of requests, and the last answer.
sub statuses {
    my ($count, $path, @headers) = @_;
    my ($answer, @statuses);
    for (1 .. $count) {
        my $socket = $nginx->connection or die "no connection: $!\n";
        print $socket join "\r\n", "GET $path HTTP/1.0", 'Host: localhost', @headers, '', '';
        $answer = do { local $/; <$socket> // '' };
        push @statuses, $answer =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'none';
    }
    return ("@statuses", $answer);
}

subtest 'rate-limiting: fixed windows, all of which must admit a request' => sub {
    run(yaml('- { name: rate-limiting, config: { minute: 3, hour: 5, policy: local, limit_by: ip } }'));
    my ($statuses, $answer) = statuses(4, '/a/b');
    is($statuses, '200 200 200 429', 'three in a minute');
    like($answer, qr/\r\n$_\r\n/, $_) for 'X-RateLimit-Limit-Minute: 3', 'X-RateLimit-Remaining-Minute: 0',
        'X-RateLimit-Limit-Hour: 5', 'X-RateLimit-Remaining-Hour: 2', 'RateLimit-Limit: 3', 'RateLimit-Remaining: 0';
    like($answer, qr/\r\nRetry-After: ([1-9]|[1-5]\d|60)\r\n/, 'and when to come back');
    my ($minutes) = statuses(1, '/other');
    is($minutes, '429', 'a global plugin has one counter for all routes');
    # Rejected requests are not counted: two of the hour's five are left.
    $clock->order($hour + 60_000);
    ($statuses, $answer) = statuses(3, '/other');
    is($statuses, '200 200 429', 'the next minute has what the hour leaves');
    like($answer, qr/\r\nX-RateLimit-Remaining-Hour: 0\r\n/, 'which is nothing');
    $nginx->end;
};

subtest 'rate-limiting: by a header, and by the address without it' => sub {
    run(yaml('- { name: rate-limiting, config: { year: 2, policy: local, limit_by: header, header_name: X-Api-Key,'
        . ' hide_client_headers: true, error_code: 420, error_message: "slow \"down\"" } }'));
    is((statuses(3, '/', 'X-Api-Key: one'))[0], '200 200 420', 'one');
    is((statuses(3, '/', 'X-Api-Key: two'))[0], '200 200 420', 'two');
    my ($statuses, $answer) = statuses(3, '/');
    is($statuses, '200 200 420', 'none');
    unlike($answer, qr/RateLimit-/, 'no headers');
    like($answer, qr/\r\nContent-Type: application\/json\r\n.*\r\n\r\n\{"message":"slow \\"down\\""\}$/s, 'the message');
    $nginx->end;
};

subtest 'the plugin of a route in place of the global one; the path that is counted' => sub {
    run(yaml('- { name: rate-limiting, config: { year: 1, policy: local, limit_by: path, path: /shared } }', <<'END'));
    plugins:
    - { name: rate-limiting, config: { year: 3, policy: local, limit_by: service } }
END
    is((statuses(4, '/a'))[0], '200 200 200 429', 'the plugin of the route');
    is((statuses(2, '/shared?x'))[0], '200 429', 'the path');
    is((statuses(2, '/b'))[0], '200 429', 'others by address');
    $nginx->end;
};

subtest 'rate-limiting-advanced: sliding windows, in which rejected requests count' => sub {
    my ($output) = run(yaml('- { name: rate-limiting-advanced, config: { limit: [2, 100], window_size: [86400, 31536000],'
        . ' window_type: sliding, identifier: ip, strategy: local, sync_rate: -1, namespace: api } }'));
    my ($statuses, $answer) = statuses(5, '/');
    is($statuses, '200 200 429 429 429', 'two in a day');
    like($answer, qr/\r\nX-RateLimit-Remaining-31536000: 95\r\n/, 'rejected requests count');
    $nginx->end;
};

subtest 'response-ratelimiting: the backend says the cost' => sub {
    run(yaml('- { name: response-ratelimiting, config: { limits: { video: { year: 5 }, image: { year: 100 } },'
        . ' limit_by: ip, policy: local } }'));
    my ($statuses, $answer) = statuses(2, '/', 'X-Cost: video=2, image=1');
    is($statuses, '200 200', 'four of five');
    unlike($answer, qr/X-Kong-Limit/, 'clients do not see the cost');
    is((statuses(1, '/', 'X-Cost: none'))[0], '200', 'no cost');
    is((statuses(2, '/', 'X-Cost: video=1'))[0], '200 429', 'the limit is used up');
    $nginx->end;
};

subtest 'policy redis: the counts outlive nginx' => sub {
    my $redis = Redis->new(port => $port + 4);
    $redis->be_empty;
    my $yaml = yaml("- { name: rate-limiting, config: { year: 3, limit_by: ip, policy: redis, fault_tolerant: false,"
        . " redis: { host: 127.0.0.1, port: @{[$port + 4]}, timeout: 5000 } } }");
    for my $expected ('200 200', '200 429') {
        run($yaml, environment => {});
        is((statuses(2, '/'))[0], $expected, 'counted in Redis');
        $nginx->end;
    }
    $redis->stop if $redis->can('stop');
};

subtest 'nothing is dropped in silence' => sub {
    my ($output, $errors) = run(yaml(<<'END'), code => 3);
- { name: rate-limiting, config: { year: 1, odd: 2 } }
- { name: cors }
- { name: rate-limiting, consumer: bob, config: { minute: 7 } }
END
    for ('line 11: work by hand: config.odd has no counterpart', 'line 12: work by hand: plugin cors is no limiter',
        'line 13: work by hand: plugin rate-limiting of consumer bob (limit=7/1m) is not converted') {
        like($output, qr/^# ratelimit-convert: \Q$_\E/m, $_);
        my ($line, $remark) = /^line (\d+): (.*)/;
        like($errors, qr/kong\.yaml:$line: \Q$remark\E/, 'on the error output, too');
    }
    $nginx->end;
};

my $bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" . join '',
    map { "a$_: &a$_ [" . join(', ', ('*a' . ($_ - 1)) x 10) . "]\n" } 1 .. 30;
my $valid = yaml('- { name: rate-limiting, config: { minute: 3 } }');
for (
    ['truncated',        qr/:12: /,                                   "$valid  config: [1, 2"],
    ['not YAML',         qr/:\d+: /,                                     "a: b: c\n\t- {"],
    ['not UTF-8',        qr/:\d+: not UTF-8/,                            "$valid# \xff\n"],
    ['of another kind',  qr/:1: the document: expected Kong's/,          "kind: KongPlugin\n"],
    ['without a limiter', qr/: nothing to convert/,                      yaml('- { name: cors }')],
    ['with many aliases', qr/:6: more than 200000 values/,               $bomb],
    ['that is deep',     qr/:1: /,                                       '[' x 100_000],
    ['with a wrong type', qr/:11: config: expected a map/,               yaml('- { name: rate-limiting, config: [] }')],
    ['with a huge number', qr/:11: a limit: expected a number/,          yaml('- { name: rate-limiting, config: { day: 1e99 } }')],
) {
    my ($title, $message, $yaml) = @$_;
    subtest "a file $title" => sub {
        my $directory = directory_of('kong.yaml' => $yaml);
        for my $option ([], ['-o', "$directory/result"]) {
            my ($code, $output, $errors) = convert(@$option, "$directory/kong.yaml");
            is($code, 1, "exit status 1 @$option");
            is($output, '', 'nothing is written');
            like($errors, qr/^ratelimit-convert: \Q$directory\E\/kong\.yaml$message/, 'says why');
        }
        is_deeply([glob "$directory/*"], ["$directory/kong.yaml"], 'no file is left');
    };
}

done_testing();

# An nginx with a converted configuration, and a backend that answers with the cost that a request names.
package Converted;

use parent -norequire, 'OwnNginx::Server';

sub http {
    my ($self) = @_;
    return <<"END";
    $self->{conf}{kong}
    server {
        listen 127.0.0.1:@{[$port + 2]};
        location /base/ { add_header X-Kong-Limit \$http_x_cost; empty_gif; }
    }
END
}
