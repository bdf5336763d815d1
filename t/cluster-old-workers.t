# Tests that old workers, which only wait for open responses after reloads, keep no connection to the store, open one
# again for what they still ask it, and that each of their hits is counted once.
#
# This is a plain Perl test, because it needs several configurations of one nginx at once. It uses the ports
# TEST_NGINX_PORT + 2, + 4 and + 5.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Postgres;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n"     if !Postgres::is_there();

my ($node) = @nodes;

# Responses that stay open: the server keeps these connections.
my $upstream = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $port + 5, Listen => 128, ReuseAddr => 1)
    or die "cannot listen: $!\n";
my @open;

my $reloads = 5;
# A connection of each of two workers for each of three namespaces, one for the channel, and one to ask for all workers.
my $needed = 2 * 3 + 2;

for my $class ('Redis', 'Postgres') {
    $store = $class->new(port => $port + 4);
    subtest "old workers with open responses, and $class" => sub { old_workers_leave() };
    $store->stop;
}

done_testing();

sub old_workers_leave {
    $store->be_empty;
    $node->start(conf_of_all());
    my (@streams, @late, @old);
    my ($streamed, $asked) = (0, 0);
    is($node->hit(refund => 'other'), 200, 'the local limit admits a request');
    for my $reload (1 .. $reloads) {
        my @before = $node->workers;
        @before = grep { $node->listens($_) } @before;
        my (%late, %stream);
        until (keys %stream == @before) {
            my ($socket, $pid) = ask('hit');
            $asked++;
            # The first half of another request, which the worker gets before the request below.
            if (!$late{$pid}) { $late{$pid} = $socket; syswrite $socket, "HEAD " }
            ($socket, $pid) = ask('stream');
            $streamed++;
            if ($late{$pid} && !$stream{$pid}) { $stream{$pid} = $socket }
        }
        push @streams, values %stream;
        push @late,    values %late;
        push @old,     @before;
        $node->begin_reload;
        $node->wait_for('new workers', sub {
            my %is_old = map { $_ => 1 } @old;
            my @new = grep { !$is_old{$_} && $node->listens($_) } $node->workers;
            return @new == 2 && !grep { $node->listens($_) } @old;
        });
    }
    my $few = sub { $_[0] <= $needed };
    eventually(sub { $store->connections }, $few, 'few connections are left');
    my %runs = map { $_ => 1 } $node->workers;
    is_deeply([grep { !$runs{$_} } @old], [], scalar(@old) . ' old workers still run');

    # The charges of the responses, which end now. The half requests keep the workers.
    syswrite $_, 'the body.' for @open;
    @open = ();
    answer($_) for @streams;
    eventually(sub { $store->total(exact => 'charged') }, 2 * $streamed, 'each charge after a response is counted');
    eventually(sub { $store->connections }, $few, 'few connections are left again');

    my $is_refunded = 0;
    for my $socket (@late) {
        my $path = $is_refunded ? 'refund' : 'hit';
        syswrite $socket, "/$path/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        my $answer = answer($socket);
        like($answer, $is_refunded ? qr/^HTTP\S+ 429 .*\r\nStatus: REJECTED\r/s : qr/^HTTP\S+ 200 .*\r\nStatus: PASSED\r/s,
            "an old worker asks the store: $path");
        $asked++ if !$is_refunded;
        $is_refunded = !$is_refunded;
    }
    eventually(sub { $store->total(exact => 'k') }, $asked, 'the store has what was asked, and no refunded hit');
    eventually(sub { $store->total(api => 'k') }, $asked + $streamed, 'the new workers push the hits of the old ones');

    $node->wait_for('the end of the old workers', sub { $node->settled(@old) });
    $node->stop;
    is($store->total(exact => 'k'), $asked, 'no hit is pushed twice: exact');
    is($store->total(api => 'k'), $asked + $streamed, 'no hit is pushed twice: api');
    is($store->total(long => 'k'), $asked + $streamed, 'no hit is pushed twice: long');
    is($store->total(exact => 'charged'), 2 * $streamed, 'no charge is counted twice');
}

# Returns a configuration with a namespace of each kind.
sub conf_of_all {
    my $strategy = $store->strategy;
    my $limit    = 'limit=1000000/366d window=fixed';
    my $periodic = "ratelimit api $limit; ratelimit long $limit;";
    my $upstream = 'proxy_pass http://127.0.0.1:' . ($port + 5) . ';';
    return (
        workers => 2,
        http    => <<"        END",
        ratelimit_store main { strategy $strategy; server 127.0.0.1:$store->{port}; timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api   { store main; sync_rate 0.1; }
        ratelimit_namespace long  { store main; sync_rate 1h; }
        ratelimit_namespace exact { store main; sync_rate 0; timeout 5s; on_error deny; }
        ratelimit_namespace local { sync_rate off; }
        END
        server => <<"        END",
        add_header Pid \$pid always;
        ratelimit_log_level off;
        postpone_output 0;
        client_header_timeout 10m;
        proxy_read_timeout 10m;
        location ~ ^/hit/(?<key>.*)    { $periodic ratelimit exact $limit; empty_gif; }
        location ~ ^/refund/(?<key>.*) { ratelimit exact $limit; ratelimit local limit=1/366d key=all; empty_gif; }
        location ~ ^/stream/(?<key>.*) { $periodic ratelimit exact $limit key=charged charge=\$upstream_http_hits; $upstream }
        END
    );
}

# Makes a request, and begins its response if it is a stream. Returns the connection, which stays open, and the process
# that answers.
sub ask {
    my ($location) = @_;
    my $socket = $node->connection or die "no connection: $!\n";
    my $method = $location eq 'stream' ? 'GET' : 'HEAD';
    syswrite $socket, "$method /$location/k HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if ($location eq 'stream') {
        my $begun = $upstream->accept;
        answer($begun);
        syswrite $begun, "HTTP/1.1 200 OK\r\nHits: 2\r\nContent-Length: 9\r\n\r\n";
        push @open, $begun;
    }
    my ($pid) = answer($socket) =~ /\r\nPid: (\d+)/ or die "no process\n";
    return ($socket, $pid);
}

# Returns the head of a request or response, or the rest of a response that has begun.
sub answer {
    my ($socket) = @_;
    my $text = '';
    while ($text !~ /\r\n\r\n/) {
        IO::Select->new($socket)->can_read(30) or die "no answer in time\n";
        sysread $socket, $text, 65536, length $text or last;
    }
    return $text;
}
