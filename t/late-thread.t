# Tests a sync thread for which an exiting worker no longer waits. The thread continues with its own data
# after nginx has destroyed the configuration.
#
# This is a plain Perl test with a library that is preloaded into nginx (see lib/late_thread.c). It uses the
# ports TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Preload;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($node) = @nodes;
my $late = Preload->new('late_thread');
$store = Redis->new(port => $port + 4);
$store->be_empty;

$node->start(
    conf(sync_rate => '30s'),
    workers => 1,
    # Freed memory is overwritten.
    environment => {$late->environment, MALLOC_PERTURB_ => 165},
);
$node->wait_for_first_sync;
# There are more keys than fit into one batch, so that the thread has more to push after a response.
$node->hit(hit => "key-$_") for 1 .. 1200;
$late->order(1);
$node->stop;
my (undef, $was_held, $went_on) = $late->numbers;
is($was_held, 1, 'the thread was kept from the answer to what it pushed');
is($went_on, 1, 'and went on when there was no configuration any more');
cmp_ok(scalar keys %{$store->totals('api')}, '>', 0, 'Redis has what it pushed');

$store->kill;
done_testing();
