# Tests that clients get complete responses from the module, over HTTP/1 and HTTP/2, also if they read
# slowly (a full socket, a window of a few bytes), or if a response is so long that it takes several
# iterations of the event loop.
#
# This is a plain Perl test, like topologies.t. It uses the ports TEST_NGINX_PORT + 2 and + 3.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;

use lib "$FindBin::Bin/lib";
use Http2Client;
use Nginx qw(http2);
use Node;

my $port = $ENV{TEST_NGINX_PORT} || 1984;
my $a    = Node->new(a => $port + 2);

my ($parameter, $directive) = http2();

# This size exceeds the socket buffers.
my $size = 8_000_000;

start_node();
my @paths = ('/api/', '/api/namespaces/default', '/api/namespaces/none', '/metrics', '/hit/k');

subtest 'HTTP/2: a socket that is full' => sub {
    my $client = http2_client(window => 2**30);
    # The first stream fills the socket before the others are processed.
    my @streams = map { $client->ask($_) } '/large', @paths;
    push @streams, $client->ask('/call', 'application/grpc');
    my $got     = $client->answers(0, @streams);
    is(length $got->{shift @streams}{body}, $size, 'the responses that filled it');
    compare($got, @streams);
    is($got->{$streams[-1]}{ended}, 1, 'a rejected call is answered');
};

subtest 'HTTP/2: a window of a few bytes' => sub {
    my $client  = http2_client(window => 7);
    my @streams = map { $client->ask($_) } @paths;
    compare($client->answers(50, @streams), @streams);
};

subtest 'HTTP/1: a socket that is full' => sub {
    for my $path (@paths[0 .. 3]) {
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 2) or die;
        # The pipelined requests follow one whose response the client does not read.
        syswrite $client, join '', map {"GET $_ HTTP/1.1\r\nHost: localhost\r\n\r\n"} '/large', ($path) x 20;
        syswrite $client, "GET $path HTTP/1.0\r\n\r\n";
        my $text = '';
        while (IO::Select->new($client)->can_read(10)) { sysread $client, $text, 65536, length $text or last }
        my $whole = 0;
        while ($text =~ s/\AHTTP.1\.1 \d+ .*?\r\nContent-Length: (\d+)\r\n.*?\r\n\r\n//s) {
            my $length = $1;
            $whole++ if length $text >= $length;
            substr($text, 0, $length) = '';
        }
        is($whole, 22, "$path: all are whole");
        is($text, '', 'and there is nothing else');
    }
};

subtest 'a response of which a client takes only a part is charged by that part' => sub {
    my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 2) or die;
    syswrite $client, "GET /charged?key=reset HTTP/1.1\r\nHost: localhost\r\n\r\n";
    sysread $client, my $part, 1000;
    is($a->rate(ask => 'reset'), 5, 'the estimate, while it is sent');
    setsockopt $client, SOL_SOCKET, SO_LINGER, pack 'II', 1, 0;
    close $client;
    $client = http2_client(window => 2000);
    my $stream = $client->ask('/charged?key=stream');
    $a->wait_for('the window to be full', sub { $a->rate(ask => 'stream') == 5 });
    $client->reset($stream);
    $a->wait_for('its end', sub { $a->rate(ask => $_) > 5 }) for qw(reset stream);
    cmp_ok($a->rate(ask => 'reset'), '<', $size, 'HTTP/1');
    is($a->rate(ask => 'stream'), 2000, 'HTTP/2');
};

$a->stop;

# With this many namespaces, no machine writes all of them in one iteration of the event loop.
my $many = 1000;
start_node(zone => '64m', http => join '', map {"ratelimit_namespace n$_ { zone counters; }\n"} 1 .. $many);
@paths = ('/metrics', '/api/');

subtest 'several turns: the answer is whole' => sub {
    my $held = qr/^ratelimit_event_loop_hold_seconds_count (\d+)$/m;
    my ($before, $after) = map { $a->body('/metrics') =~ $held } 1, 2;
    cmp_ok($after - $before, '>', 2, 'so many callbacks a page has');
    my $page = $a->body('/metrics');
    for my $sample ('requests_total{namespace="%s",result="passed"}', 'hits_total{namespace="%s"}') {
        my @missing = grep { index($page, "\nratelimit_" . sprintf($sample, "n$_") . " 0\n") < 0 } 1 .. $many;
        is_deeply(\@missing, [], $sample);
    }
    is(() = $page =~ /^# TYPE ratelimit_requests_total /mg, 1, 'each family is described once');
    like($page, qr/\nratelimit_zone_evicted_total\{zone="counters",state="unsent"\} 0\n\z/, 'up to the end');
    my @names = $a->body('/api/') =~ /\{"name":"(n\d+)","zone":"counters","store":null\}/g;
    is_deeply(\@names, [map {"n$_"} 1 .. $many], 'the API names all, in their order');
};

subtest 'several turns: HTTP/2, two at a time' => sub {
    my $client  = http2_client(window => 2**30);
    my @streams = map { $client->ask($_) } @paths;
    compare($client->answers(0, @streams), @streams);
};

subtest 'several turns: clients that leave' => sub {
    my @workers = $a->workers;
    for (1 .. 20) {
        my $client = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 2) or die;
        syswrite $client, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        # Every second connection is reset instead of closed.
        setsockopt $client, SOL_SOCKET, SO_LINGER, pack 'II', 1, 0 if $_ % 2;
        close $client;
        $client = http2_client(window => 2**30);
        my $stream = $client->ask('/metrics');
        $client->reset($stream) if $_ % 2;
    }
    my $client  = http2_client(window => 2**30);
    my @streams = map { $client->ask($_) } @paths;
    compare($client->answers(0, @streams), @streams);
    is_deeply([$a->workers], \@workers, 'the worker lives');
};

subtest 'several turns: a worker that is to end' => sub {
    my @clients = map { IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 2) or die } 1 .. 20;
    syswrite $_, "GET /metrics HTTP/1.0\r\n\r\n" for @clients;
    # When the first client has its response, those of the others are being written.
    IO::Select->new(@clients)->can_read(10);
    kill QUIT => $a->workers;
    my $whole = 0;
    for my $client (@clients) {
        my $text = do { local $/; <$client> } // '';
        $whole++ if $text =~ /\r\nContent-Length: (\d+)\r\n.*?\r\n\r\n(.*)\z/s && length $2 == $1;
    }
    is($whole, 20, 'all have the whole of it');
};

# No request of a client that left remains: nginx would wait for it in a graceful shutdown, or log it.
$a->stop(undef, 'QUIT');
done_testing();

sub start_node {
    my (%given) = @_;
    mkdir "$a->{root}/pages";
    open my $file, '>', "$a->{root}/pages/large" or die "cannot write: $!\n";
    print $file 'x' x $size;
    close $file or die "cannot write: $!\n";
    my %rules = (hit => 'limit=9/366d', ask => 'limit=1000000000/366d counter=charged cost=0');
    $a->start(%given, workers => 1, rules => \%rules, server => <<"    END");
        listen 127.0.0.1:@{[$port + 3]} $parameter sndbuf=16k;
        $directive
        http2_max_concurrent_streams 128;
        root $a->{root}/pages;
        location = /charged {
            alias         $a->{root}/pages/large;
            ratelimit_key \$arg_key;
            ratelimit     limit=1000000000/366d counter=charged cost=5 charge=\$body_bytes_sent;
        }
        location = /call { ratelimit_key k; ratelimit limit=0.5/366d; empty_gif; }
    END
}

# Tests that the streams have the responses to @paths, in order: the same as over HTTP/1, except for numbers.
sub compare {
    my ($got, @streams) = @_;
    for my $path (@paths) {
        my $stream = $got->{shift @streams};
        my ($is, $expected) = map { s/\d+(?:\.\d+)?/0/gr } $stream->{body}, $a->body($path);
        is($stream->{ended} && $is, $expected, "$path: whole");
    }
}

sub http2_client { return Http2Client->new(port => $port + 3, @_) }
