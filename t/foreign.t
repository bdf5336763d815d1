# Tests interference of other programs: foreign data in the store, foreign messages, and other programs between a node
# and its store. Nodes continue, or report the problem in one log line.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports TEST_NGINX_PORT + 2 to + 5.

use strict;
use warnings;

use FindBin;
use Test::More;
use Time::HiRes qw(sleep time);

use lib "$FindBin::Bin/lib";
use ChannelTests;
use Node;
use Pooler;
use Postgres;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;

$store = Redis->new(port => $port + 4);

# Returns the number of times that the store ran this command.
sub asked {
    my ($command) = @_;
    my ($calls) = $store->cli(INFO => 'commandstats') =~ /^cmdstat_$command:calls=(\d+)/m;
    return $calls // 0;
}

# Returns the health report of a node.
sub health { my ($node) = @_; return $node->body('/api/health') }

subtest 'an entry of somebody else in the stream of news' => sub {
    $store->be_empty;
    $_->start(channel_conf()) for @nodes;
    $_->wait_for_first_sync for @nodes;
    $a->hit(hit => 'k');
    pushes($a);
    hears($b, k => 1);
    all_listen();
    my ($news) = @{$store->cli(KEYS => '*:n')};
    $store->cli(XADD => $news, '*', a => 'b');
    my $before = asked('xread');
    my $end    = time + 2;
    sleep 0.1 while time < $end;
    cmp_ok(asked('xread') - $before, '<', 60, 'it is read now and then');
    $a->hit(hit => 'k');
    pushes($a);
    hears($b, k => 2);
    stop();
};

subtest 'fields of somebody else in a synchronous namespace' => sub {
    $store->be_empty;
    $a->start(synchronous(namespace => 'on_error deny; timeout 5s;'));
    is($a->hit(hit => 'k'), 200, 'it is decided');
    for my $field (qw(position epoch layout)) {
        $store->cli(HSET => 'rl:{api:0}', $field => 'garbage');
        eventually(sub { $a->hit(hit => 'k') }, 200, "and goes on after another $field");
    }
    my $stream = 'rl:{api:0}:' . $store->epoch('api') . ':s';
    $store->cli(XADD => $stream, '18446744073709551615-1', a => 'b');
    eventually(sub { $a->hit(hit => 'k') }, 200, 'and after an entry that none can follow');
    stop(qr/$lost|$back|denied/);
};

subtest 'nodes that divide a namespace differently' => sub {
    $store->be_empty;
    # Nodes with `cluster on` store the layout in this form.
    $store->cli(HSET => 'rl:{api:0}', layout => '16 on');
    my $other = qr/\[error\] .*"main" cannot be reached yet, .*divide the namespace into 16 shards \(cluster on\), this one into 1 shard \(cluster off\)/;
    $a->start(conf());
    $b->start(synchronous(namespace => 'on_error deny;'));
    for my $node (@nodes) {
        $node->wait_for('the line in the log', sub { $node->logged($other) });
        eventually(sub { health($node) }, '{"status":"down","stores":["main"]}', "$node->{name} says so");
    }
    is($a->hit(hit => 'k'), 200, 'a node goes on by itself');
    is($b->hit(hit => 'k'), 503, 'or as on_error says');
    is_deeply($store->totals('api'), {}, 'and nothing is pushed');
    my $end = time + 1;
    sleep 0.1 while time < $end;
    for my $node (@nodes) {
        is($node->logged($other), 1, "$node->{name} said so once");
        is($node->logged($back),  0, 'and not that it is back');
    }
    $store->cli(DEL => 'rl:{api:0}');
    eventually(sub { health($_) }, '{"status":"ok"}', "$_->{name} goes on") for @nodes;
    stop(qr/$other|$back|denied/);
};

$store->stop;
$store = Postgres->new(port => $port + 4);

subtest 'a pooler that does not keep sessions' => sub {
    $store->be_empty;
    my $pooler = Pooler->new(port => $port + 5, server => $port + 4, mode => 'transaction');
    my $shared = qr/\[error\] .*"main" cannot be reached yet, .*a pooler between gives its sessions to others .* pool_mode = session/;
    my $server = "server 127.0.0.1:$pooler->{port};";
    $a->start(conf(server => $server));
    $b->start(synchronous(server => $server));
    for my $node (@nodes) {
        $node->wait_for('the line in the log', sub { $node->logged($shared) });
    }
    my $end = time + 2;
    sleep 0.1 while time < $end;
    for my $node (@nodes) {
        is($node->logged(qr/\[(?:error|warn)\]/), 1, "$node->{name} said so once, and nothing else");
        is(health($node), '{"status":"down","stores":["main"]}', 'and in its health');
    }
    $pooler->stop;
    $pooler = Pooler->new(port => $port + 5, server => $port + 4, mode => 'session');
    eventually(sub { health($_) }, '{"status":"ok"}', "$_->{name} goes on with sessions that are kept") for @nodes;
    $a->hit(hit => 'k');
    eventually(sub { $store->total(api => 'k') }, 1, 'and counts');
    stop(qr/$shared|$back/);
    $pooler->stop;
};

done_testing();
