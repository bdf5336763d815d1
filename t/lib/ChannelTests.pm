# Tests that nodes receive each other's pushes at once, with any store that has a channel.
#
# No test waits for the sync period, which is an hour: the API makes a node push.

package ChannelTests;

use strict;
use warnings;

use Exporter qw(import);
use Node;
use Test::More;
use TwoNodes;

our @EXPORT = qw(all_listen channel_conf channel_tests hears pushes);

my ($a, $b) = @nodes;

sub channel_conf {
    return conf(sync_rate => '1h', @_), server => <<'    END';
        location /rw/ { ratelimit off; ratelimit_api write=on; }
    END
}

# Waits until this number of nodes listens to the channel; by default, all nodes.
sub all_listen {
    my ($number) = @_;
    $number //= @nodes;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { $store->listeners }, $number, 'as many listen');
}

# Makes a node push its counts. It repeats the call until it succeeds, because the node may not have noticed yet that
# its connection was cut.
sub pushes {
    my ($node) = @_;
    my $push = sub {
        my $socket = $node->connection or return "no connection: $!";
        print $socket "POST /rw/namespaces/api/sync HTTP/1.0\r\nHost: localhost\r\n\r\n";
        local $/;
        return <$socket> // '';
    };
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually($push, sub { $_[0] =~ /"status":"ok"/ }, "$node->{name} has pushed");
}

# Tests that a node learns this total of a key from the channel, without a sync.
sub hears {
    my ($node, $key, $total) = @_;
    my $asked = $node->sync_status('last_at');
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { $node->rate(ask => $key) }, $total, "$node->{name} knows of $total $key");
    is($node->sync_status('last_at'), $asked, 'without a sync');
}

sub start {
    $_->start(channel_conf(@_)) for @nodes;
    $_->wait_for_first_sync for @nodes;
    all_listen();
}

sub channel_tests {
    my $label = $store->label;

    subtest "$label: what a node pushes is known to the other at once" => sub {
        $store->be_empty;
        start();
        $_->hit(hit => 'k') for $a, $a, $a, $b;
        pushes($a);
        hears($b, k => 4);
        pushes($b);
        hears($a, k => 4);
        $a->hit(hit => 'other');
        $a->hit(hit => "any \xff\n'\\ key");
        pushes($a);
        hears($b, other => 1);
        hears($b, "any \xff\n'\\ key" => 1);
        hears($b, k => 4);
        # The next sync does not count again what the channel delivered.
        pushes($b);
        is($b->rate(ask => 'k'), 4, 'it has counted nothing twice');
        is($store->total(api => 'k'), 4, "nor has $label");
        stop();
    };

    subtest "$label: connections that end" => sub {
        $store->be_empty;
        start();
        for my $times (1 .. 3) {
            $store->cut_connections;
            $a->hit(hit => 'k');
            pushes($a);
            hears($b, k => $times);
        }
        all_listen();
        is($store->total(api => 'k'), 3, 'nothing was counted twice');
        stop(qr/$lost|$back/);
    };

    subtest "$label: a store that loses everything" => sub {
        $store->be_empty;
        start();
        $_->hit(hit => 'k') for $a, $b;
        pushes($a);
        hears($b, k => 2);
        $store->flush;
        pushes($a);
        pushes($b);
        all_listen();
        $a->hit(hit => 'k');
        pushes($a);
        hears($b, k => 3);
        stop();
    };

    subtest "$label: a worker that listens is killed, and a reload" => sub {
        $store->be_empty;
        start();
        kill KILL => $_ for $b->workers;
        $b->wait_for('workers', sub { 2 == (my @workers = $b->workers) });
        all_listen();
        $a->hit(hit => 'k');
        pushes($a);
        hears($b, k => 1);
        # The new configuration syncs once, when it starts.
        my $synced = $b->sync_status('last_at');
        $b->reload;
        $b->wait_for('the first sync', sub { $b->sync_status('last_at') ne $synced });
        all_listen();
        $a->hit(hit => 'k');
        pushes($a);
        hears($b, k => 2);
        stop($killed);
    };
}

1;
