# Tests that nodes receive each other's pushes through the channel of a store: see lib/ChannelTests.pm.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ChannelTests;
use Node;
use Postgres;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;

$store = Redis->new(port => $port + 4);

channel_tests();

subtest 'sync_early off is the plain period' => sub {
    $store->be_empty;
    $_->start(channel_conf(namespace => 'sync_early off;')) for @nodes;
    $_->wait_for_first_sync for @nodes;
    $a->hit(hit => 'k');
    pushes($a);
    is_deeply($store->cli(KEYS => '*:n'), [], 'nothing is told');
    is($store->listeners, 0, 'and none listens');
    pushes($b);
    is($b->rate(ask => 'k'), 1, 'the next sync tells');
    stop();
};

subtest 'a user who may not listen' => sub {
    $store->be_empty;
    $store->cli(qw(ACL SETUSER deaf on >secret ~* +@all -xread));
    $_->start(channel_conf(store => 'username deaf; password secret;')) for @nodes;
    $_->wait_for_first_sync for @nodes;
    my $deaf = qr/\[warn\] .*ratelimit_store "main" has no channel, .*NOPERM/;
    for my $node (@nodes) {
        $node->wait_for('the line in the log', sub { $node->logged($deaf) });
    }
    $a->hit(hit => 'k');
    pushes($a);
    pushes($b);
    is($b->rate(ask => 'k'), 1, 'it is told with its own sync');
    is($_->logged($deaf), 1, "$_->{name} said so once") for @nodes;
    stop($deaf);
};

$store->stop;

$store = Postgres->new(port => $port + 4);

channel_tests();

done_testing();
