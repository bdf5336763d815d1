# Nodes that share a Redis: what nodes with any store do (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm), and what only Redis has.
#
# This is a plain Perl test: it needs several nginx at once, and signals. It takes the ports
# TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ConvergenceTests;
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

done_testing();
