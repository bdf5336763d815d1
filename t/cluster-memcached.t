# Tests nodes that share a memcached: the tests for any store (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm).
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 5.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ConvergenceTests;
use Memcached;
use Node;
use Processes;
use RecoveryTests;
use TwoNodes;

die "memcached is not installed\n" if !Memcached::is_there();

$store = Memcached->new(port => $port + 4);

convergence_tests();
recovery_tests();

subtest 'an outage is told once, also if a worker was stopped while it lasted' => sub {
    my ($node) = @nodes;
    $store->be_empty;
    $node->start(conf(sync_rate => 0.02), workers => 2);
    $node->wait_for('the first connection', sub { $node->logged(connected()) });
    my @workers = $node->workers;
    for my $time (1 .. 4) {
        # The other worker syncs at once, or when the lease of this one ends.
        my $stopped = $workers[$time % 2];
        stop_processes($stopped);
        $store->kill;
        eventually(sub { $node->logged($lost) }, $time, 'lost');
        $store->start;
        eventually(sub { $node->logged($back) }, $time, 'back');
        kill CONT => $stopped;
        $node->hit(hit => "k$time");
        eventually(sub { $store->total(api => "k$time") }, 1, 'it syncs');
        is($node->logged($lost), $time, 'the loss is told once');
    }
    $node->stop($lost);
};

done_testing();
