# Tests nodes that share a Redis: the tests for any store (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm), and tests that only apply to Redis.
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ConvergenceTests;
use Node;
use RecoveryTests;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

$store = Redis->new(port => $port + 4);

convergence_tests();
recovery_tests();

subtest 'a database, a prefix, a socket' => sub {
    $store->be_empty;
    my ($a, $b) = @nodes;
    my $options = 'database 3; prefix my-limits;';
    $a->start(conf(store => $options));
    $b->start(conf(store => $options, server => 'server unix:' . $store->socket . ';'));
    $_->hit(hit => 'k') for @nodes;
    {
        local @$store{qw(database prefix)} = (3, 'my-limits');
        all_know(k => 2);
        my @names = @{$store->cli(KEYS => '*')};
        is_deeply([grep { !/^my-limits:\{api:0\}/ } @names], [], 'all keys begin with the prefix');
    }
    is_deeply($store->cli(KEYS => '*'), [], 'nothing is in the usual database');
    stop();
};

subtest 'keys that somebody else overwrites' => sub {
    $store->be_empty;
    $_->start(conf()) for @nodes;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    my $told  = sub { my ($line) = @_; my $sum = 0; $sum += $_->logged($line) for @nodes; return $sum };
    my $shard = 'rl:{api:0}';
    my $epoch = $store->epoch('api');
    for my $what ("$shard:$epoch:s", $shard) {
        my $before = $told->($lost);
        $store->cli(SET => $what, 'something else');
        $_->hit(hit => $what) for @nodes;
        all_know($what => 2);
        all_know(k => 2);
        is($told->($lost), $before + 1, "$what: one node tells it, once");
        eventually(sub { $told->($back) }, $before + 1, 'and that it goes on');
    }
    isnt($store->epoch('api'), $epoch, 'in another epoch, without that of before');
    stop(qr/$lost.*WRONGTYPE/);
};

done_testing();
