# Tests reloads that rename, add or remove a namespace or change the size of the zone, and old workers that
# run for long. Counts that the new configuration still uses are kept, and none is pushed twice.
#
# This is a plain Perl test, like cluster.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;
$store = Redis->new(port => $port + 4);

subtest 'another name' => sub {
    begin(sync_rate => '30s');
    $a->hit(hit => 'k') for 1 .. 5;
    $a->reload(conf(name => 'other'));
    eventually(sub { $store->total(api => 'k') }, 5, 'what was counted under the old one is pushed');
    is($a->rate(ask => 'k'), 0, 'the new one begins anew');
    $a->hit(hit => 'k') for 1 .. 3;
    eventually(sub { $store->total(other => 'k') }, 3, 'and is pushed by itself');
    eventually(sub { $b->rate(ask => 'k') }, 5, 'the other node has the old one');
    $b->hit(hit => 'k');
    eventually(sub { $store->total(api => 'k') }, 6, 'which goes on');
    $a->reload(conf());
    eventually(sub { $a->rate(ask => 'k') }, 6, 'with the old name again, nothing is lost');
    $a->hit(hit => 'k');
    all_know(k => 7);
    stop();
};

subtest 'no namespace, and then again' => sub {
    begin(sync_rate => '30s');
    $a->hit(hit => 'k') for 1 .. 5;
    $a->reload(http => '', rules => {hit => 'limit=1000000/366d', ask => 'limit=1000000/366d cost=0'});
    eventually(sub { $store->total(api => 'k') }, 5, 'what was counted is pushed');
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k');
    eventually(sub { $store->total(api => 'k') }, 6, 'what is counted meanwhile is another namespace');
    $a->reload(conf());
    $a->hit(hit => 'k');
    all_know(k => 7);
    stop();
};

subtest 'a zone of another size' => sub {
    begin(sync_rate => '30s');
    $a->hit(hit => 'k') for 1 .. 5;
    $b->hit(hit => 'k');
    $a->reload(conf(), zone => '8m');
    eventually(sub { $a->rate(ask => 'k') }, 6, 'begins with what the store has, of this node too');
    $a->hit(hit => 'k');
    all_know(k => 7);
    $a->reload(conf(), zone => '2m');
    $a->hit(hit => 'k');
    all_know(k => 8);
    stop(qr{has another size than before});
};

subtest 'an old worker that stays for long' => sub {
    begin();
    $a->hit(hit => 'k') for 1 .. 3;
    all_know(k => 3);
    my @before = $a->workers;
    my @old    = map { $a->connection } 1 .. 4;
    syswrite $_, "HEAD /hit/k HTTP/1.1\r\n" for @old;
    # When the worker has answered later requests, it has accepted the earlier connections.
    $a->hit(hit => 'k') for 1 .. 8;
    my $is_done = $a->begin_reload;
    $a->wait_for('new workers', sub { my @now = $a->workers; @now > 2 });
    $a->hit(hit => 'k');
    all_know(k => 12);
    for my $round (1 .. 2) {
        my $socket = shift @old;
        syswrite $socket, "Host: localhost\r\nConnection: close\r\n\r\n";
        local $/;
        like(<$socket>, qr/^HTTP\S+ 200 /, 'an old worker answers');
        all_know(k => 12 + $round);
    }
    close $_ for @old;
    $is_done->();
    $a->hit(hit => 'k');
    all_know(k => 15);
    stop();
};

done_testing();

# Starts two nodes with an empty Redis. The first node gets these changes of its configuration.
sub begin {
    $store->be_empty;
    $a->start(conf(@_));
    $b->start(conf());
    # The first sync is made at the start. With a long sync_rate, no other follows during the test.
    $b->hit(hit => 'first');
    eventually(sub { $a->rate(ask => 'first') }, 1, 'the first sync') if !@_;
}
