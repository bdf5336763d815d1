# Tests one worker, and 64, and workers that end before their requests do (worker_shutdown_timeout).
#
# This is a plain Perl test, because it needs several configurations and signals. It uses the ports TEST_NGINX_PORT + 2
# and + 4.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($node) = @nodes;
$store = Redis->new(port => $port + 4);

for my $workers (1, 64) {
    subtest "workers: $workers" => sub {
        $store->be_empty;
        $node->start(conf(limit => 500), workers => $workers);
        my @loads = map { $node->load('k') } 1 .. 4;
        my @sums  = map { $_->(300) } @loads;
        is(sum0(map { $_->{200} } @sums), 500, 'admit what the limit is');
        is(sum0(map { $_->{lost} } @sums), 0, 'and answer all');
        eventually(sub { $store->total(api => 'k') }, 500, 'and push it once');
        my @before = $node->workers;
        kill KILL => @before;
        $node->wait_for('new workers', sub { $node->settled(@before) });
        is($node->hit(hit => $_ % 2 ? 'k' : 'other'), $_ % 2 ? 429 : 200, "new workers go on: $_") for 1 .. 10;
        eventually(sub { $store->total(api => 'other') }, 5, 'and push');
        $node->stop($killed);
    };
}

subtest 'workers that end before their requests' => sub {
    $store->be_empty;
    my $held = <<"    END";
        location = /held { ratelimit_key held; ratelimit api limit=1000000/366d; proxy_pass http://127.0.0.1:$node->{port}/end; }
        location = /end { ratelimit off; return 200; }
    END
    $node->start(conf(sync_rate => '10m'), main => 'worker_shutdown_timeout 500ms;', server => $held);
    $node->wait_for_first_sync;
    # nginx waits for a body that does not come.
    my $hold = sub {
        my $socket = $node->connection or die "no connection: $!";
        print $socket "POST /held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n";
        return $socket;
    };
    for my $count (1, 2) {
        my $socket = $hold->();
        $node->hit(hit => 'k') for 1 .. 10;
        eventually(sub { $node->rate(ask => 'held') }, $count, 'a request is held, and counted');
        if ($count == 1) {
            $node->reload;
            pass('a reload does not wait for it');
        }
        else {
            cmp_ok($node->stop(undef, 'QUIT'), '<', 5, 'an end does not wait for it');
        }
    }
    is_deeply($store->totals('api'), {k => 20, held => 2}, 'and all is pushed');
};

done_testing();
