# Tests gRPC: admitted calls of every kind work; rejected calls get the gRPC status
# RESOURCE_EXHAUSTED (8) in a response with HTTP status 200.
#
# This is a plain Perl test. Its client and its upstream use gRPC for Python, with
# /usr/bin/python3, because Debian's package is for it. lib/OwnNginx.pm describes its
# environment.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use IO::Socket::UNIX;
use IPC::Open2;
use JSON::PP;
use Test::More;

use lib "$FindBin::Bin/lib";
use Nginx qw(http2);
use OwnNginx;

my ($OK, $RESOURCE_EXHAUSTED, $UNAVAILABLE) = (0, 8, 14);

my @python = ('/usr/bin/python3', '-B');

# The upstream. It exits when its standard input is closed.
my $upstream = "unix:$root/upstream.sock";
my $upstream_pid = open2(my $from_upstream, my $to_upstream,
    @python, "$FindBin::Bin/lib/grpc_server.py", $upstream);
like(<$from_upstream>, qr/^listening$/, 'the upstream listens');

my @kinds = qw(Unary ServerStream ClientStream Both Open);
my %echo  = (
    Unary        => ['one'],
    ServerStream => [('one') x 3],
    ClientStream => ['three'],
    Both         => [qw(one two three)],
    Open         => ['one'],
);

for my $phase (qw(preaccess precontent)) {
    for my $kind (@kinds) {
        subtest "$phase, $kind: calls up to the limit work, the next is rejected" => sub {
            begin("limit=2/366d; ratelimit_phase $phase");
            my @calls = calls(("$kind:a") x 4);
            is_deeply([map { $_->{code} } @calls], [$OK, $OK, ($RESOURCE_EXHAUSTED) x 2], 'statuses');
            is_deeply([map { $_->{messages} } @calls], [($echo{$kind}) x 2, [], []], 'messages');
            is_deeply([map { left($_) } @calls], [1, 0, 0, 0], 'a call is one hit');
            is($_->{details}, 'rate limit exceeded', 'a rejected one has a message') for @calls[2, 3];
            is($_->{metadata}{'ratelimit-policy'}, '"default-366d";q=2;w=31622400', 'policy') for @calls;
            like($_->{metadata}{'retry-after'}, qr/^[1-9]\d*$/, 'when to try again') for @calls[2, 3];
            ok(!exists $_->{metadata}{'retry-after'}, 'no Retry-After') for @calls[0, 1];
            finish();
        };
    }
}

subtest 'calls of a channel are decided on by their keys' => sub {
    begin('limit=1/366d');
    my @calls = calls(qw(Unary:a Both:a Unary:b ServerStream:b Both:c));
    is_deeply([map { $_->{code} } @calls], [$OK, $RESOURCE_EXHAUSTED, $OK, $RESOURCE_EXHAUSTED, $OK], 'statuses');
    finish();
};

subtest 'calls at the same time are admitted exactly up to the limit' => sub {
    begin('limit=20/366d');
    my @calls = calls('--at-once', ('Unary:a') x 40);
    my %count;
    $count{ $_->{code} }++ for @calls;
    is_deeply(\%count, { $OK => 20, $RESOURCE_EXHAUSTED => 20 }, 'half of them');
    finish();
};

subtest 'a dry run admits' => sub {
    begin('limit=1/366d; ratelimit_dry_run on');
    my @calls = calls(('Unary:a') x 3);
    is_deeply([map { $_->{code} } @calls], [($OK) x 3], 'statuses');
    is(scalar(grep {/ratelimit: would be rejected by /} log_lines()), 2, 'and logs');
    finish();
};

subtest 'the status 444 ends a call without an answer' => sub {
    begin('limit=1/366d; ratelimit_status 444');
    my @calls = calls(qw(Unary:a Unary:a Unary:b));
    is($calls[0]{code}, $OK, 'admitted');
    isnt($calls[1]{code}, $_, "not the status $_") for $OK, $RESOURCE_EXHAUSTED;
    is($calls[1]{metadata}{ratelimit}, undef, 'no headers');
    is($calls[2]{code}, $OK, 'another key is admitted');
    finish();
};

subtest 'another status of HTTP, and a page for it, are not for gRPC' => sub {
    begin('limit=1/366d; ratelimit_status 503; error_page 503 429 =200 /page');
    my @calls = calls(('Unary:a') x 2);
    is_deeply([map { $_->{code} } @calls], [$OK, $RESOURCE_EXHAUSTED], 'statuses');
    finish();
};

subtest 'a limit that never admits does not tell when to try again' => sub {
    begin('limit=0.5/366d');
    my ($call) = calls('Unary:a');
    is($call->{code}, $RESOURCE_EXHAUSTED, 'rejected');
    is($call->{metadata}{'retry-after'}, undef, 'no Retry-After');
    finish();
};

subtest 'without headers, a rejection still has its status' => sub {
    begin('limit=1/366d; ratelimit_headers off');
    my @calls = calls(('Unary:a') x 2);
    is_deeply([map { $_->{code} } @calls], [$OK, $RESOURCE_EXHAUSTED], 'statuses');
    ok(!exists $_->{metadata}{ratelimit}, 'no header') for @calls;
    like($calls[1]{metadata}{'retry-after'}, qr/^[1-9]\d*$/, 'Retry-After');
    finish();
};

subtest 'an upstream that is away is not a rejection' => sub {
    begin('limit=2/366d; error_page 502 = @away', "unix:$root/none.sock",
        'location @away { default_type application/grpc; add_header grpc-status 14 always; return 204; }');
    my @calls = calls(('Unary:a') x 3);
    is_deeply([map { $_->{code} } @calls], [($UNAVAILABLE) x 2, $RESOURCE_EXHAUSTED], 'statuses');
    finish(qr/connect\(\) to unix:\S*none\.sock failed/);
};

subtest 'by HTTP/1.1, the content type makes a call' => sub {
    begin('limit=0.5/366d');
    my $raw = raw('application/grpc');
    like($raw, qr{^HTTP/1\.1 200 OK\r\n}, 'the status of HTTP');
    like($raw, qr{\r\nContent-Type: application/grpc\r\n}, 'the content type');
    like($raw, qr{\r\ngrpc-status: 8\r\n}i, 'the status of gRPC');
    like($raw, qr{\r\ngrpc-message: rate limit exceeded\r\n}i, 'the message');
    like($raw, qr{\r\nRateLimit: "default-366d";r=0\r\n}, 'our headers');
    like($raw, qr{\r\n\r\n\z}, 'no body');
    for my $type ('application/grpc+proto', 'application/grpc-web', 'application/grpc-web-text+proto',
        'application/grpc;x=y', 'application/grpcx', 'Application/GRPC')
    {
        my $raw = raw($type);
        like($raw, qr{^HTTP/1\.1 200 .*\r\ngrpc-status: 8\r\n}si, "$type: a call");
        like($raw, qr{\r\nContent-Type: \Q$type\E\r\n}, "$type: answered as such");
    }
    for my $type ('text/plain', 'application/json', 'application/grp', 'text/application/grpc', '') {
        my $raw = raw($type);
        like($raw, qr{^HTTP/1\.1 429 }, "<$type>: no call");
        unlike($raw, qr{grpc-}i, "<$type>: no status of gRPC");
    }
    finish();
};

subtest 'by HTTP/1.1, the status 444 closes the connection' => sub {
    begin('limit=0.5/366d; ratelimit_status 444');
    is(raw('application/grpc'), '', 'without an answer');
    finish();
};

subtest 'by HTTP/1.1, the body of a rejected call is not taken for the next request' => sub {
    begin('limit=0.5/366d');
    my $call = "POST /test.Echo/Unary HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/grpc\r\n";
    my $inner = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    my $answers = send_raw("${call}Content-Length: " . length($inner) . "\r\n\r\n$inner"
            . "${call}Connection: close\r\nContent-Length: 0\r\n\r\n");
    is(join(' ', $answers =~ m{^HTTP/1\.1 (\d+)}mg), '200 200', 'two answers');
    is(join(' ', $answers =~ m{^grpc-status: (\d+)}mgi), '8 8', 'rejections both');
    finish();
};

subtest 'a call that a redirect brings to the rules is rejected as any' => sub {
    begin('off; error_page 418 = @limited; return 418', $upstream,
        'location @limited { ratelimit_key all; ratelimit limit=1/366d; grpc_pass grpc://' . $upstream . '; }');
    my @calls = calls(qw(Unary:a Both:a Open:a Unary:a));
    is_deeply([map { $_->{code} } @calls], [$OK, ($RESOURCE_EXHAUSTED) x 3], 'statuses');
    finish();
};

subtest 'a log shows a rejected call as such' => sub {
    begin('limit=1/366d; access_log ' . $log . ' calls', $upstream, '',
        'log_format calls "logged $status <$ratelimit_status>";');
    calls(('Unary:a') x 2);
    is_deeply([grep {s/^(logged .*)\n/$1/} log_lines()], ['logged 200 <PASSED>', 'logged 200 <REJECTED>'], 'both');
    finish();
};

close $to_upstream;
waitpid $upstream_pid, 0;
is($?, 0, 'the upstream ends cleanly');
done_testing();

# Starts an nginx with this rule for its gRPC service. For HTTP/1.1, it listens on a Unix socket.
sub begin {
    my ($rule, $address, $server, $http) = @_;
    $address //= $upstream;
    my ($parameter, $directive) = http2();
    start(
        rule   => 'off',
        listen => $parameter,
        http   => $http // '',
        server => $directive . ($server // '') . qq[
            listen unix:$root/http1.sock;
            location /test.Echo/ {
                ratelimit_key "key \$http_x_key"; # never empty
                ratelimit     $rule;
                grpc_pass     grpc://$address;
            }],
    );
}

sub finish {
    stop(@_);
    unlink "$root/http1.sock";
}

sub calls {
    open my $client, '-|', @python, "$FindBin::Bin/lib/grpc_client.py", "127.0.0.1:$port", @_
        or die "cannot run the client: $!\n";
    return map { decode_json($_) } <$client>;
}

# Returns the remaining hits from the header RateLimit.
sub left {
    my ($call) = @_;
    my ($left) = ($call->{metadata}{ratelimit} // '') =~ /;r=(\d+)/;
    return $left;
}

# Makes a call over HTTP/1.1 with a content type, or without one; returns the response.
sub raw {
    my ($type) = @_;
    my $header = $type eq '' ? '' : "Content-Type: $type\r\n";
    return send_raw("POST /test.Echo/Unary HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            . "${header}Content-Length: 5\r\n\r\n\0\0\0\0\0");
}

sub send_raw {
    my ($bytes) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => "$root/http1.sock") or die "cannot connect: $!\n";
    print $socket $bytes;
    my $answer = '';
    while (IO::Select->new($socket)->can_read(20)) {
        sysread $socket, $answer, 65536, length $answer or return $answer;
    }
    return "no end in time: $answer";
}
