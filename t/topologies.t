# Tests nodes that share a Redis with TLS, a Redis with sentinels, or a Redis Cluster. The nodes find the
# primary, and no hit is lost or counted twice when another server takes over. cluster.t has the tests
# for a single Redis.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports
# TEST_NGINX_PORT + 2 to + 9, and for the last six also the ports that are 10,000 higher.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Certificate;
use Node;
use Redis;
use RedisCluster;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();

my ($a, $b) = @nodes;

subtest 'TLS' => sub {
    my $pem = tempdir('certificates-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    issued_certificate($pem, '127.0.0.1');
    my @files = ('--tls-ca-cert-file', "$pem/roots.pem", '--tls-cert-file', "$pem/127.0.0.1.pem",
        '--tls-key-file', "$pem/127.0.0.1.key");
    my @args = ('--port', 0, '--tls-port', $port + 4, @files);
    $store = Redis->new(port => $port + 4, args => \@args);
    $store->start;
    my $server = "server 127.0.0.1:$store->{port}; tls on;";
    my $ours = "tls_certificate $pem/127.0.0.1.pem; tls_certificate_key $pem/127.0.0.1.key;";
    my $roots = "tls_trusted_certificate $pem/roots.pem;";
    $a->start(conf(server => "$server $ours $roots"));
    $b->start(conf(server => "$server $ours tls_verify off;"));
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k');
    all_know(k => 4);

    $a->reload(conf(server => "$server $ours"));
    $a->wait_for('an [error]', sub { $a->logged(qr/$lost.*UnknownIssuer/) });
    $a->reload(conf(server => "$server $roots"));
    $a->hit(hit => 'k');
    is($a->logged($lost), 1, 'it stays lost without a certificate of ours');
    $a->reload(conf(server => "$server $ours $roots"));
    all_know(k => 5);
    eventually(sub { $a->logged($back) }, 1, 'and is back');
    stop($lost);
    $store->kill;
};

subtest 'sentinels' => sub {
    my $old      = Redis->new(port => $port + 4);
    my $new      = Redis->new(port => $port + 5, args => ['--replicaof', "127.0.0.1 $old->{port}"]);
    my $sentinel = start_sentinel($port + 6, $old);
    $_->start for $old, $new;
    $store = $old;
    $_->start(conf(server => "server 127.0.0.1:$sentinel->{port}; sentinel_master main;")) for @nodes;
    $a->hit(hit => 'k') for 1 .. 3;
    $b->hit(hit => 'k') for 1 .. 4;
    all_know(k => 7);
    $sentinel->wait_for_replica;

    my @loads = map { $_->load('load') } @nodes;
    pushed_under_load();
    $sentinel->patience(300);
    $old->kill;
    $store = $new;
    eventually(sub { $new->cli('ROLE')->[0] }, 'master', 'the replica has taken over');
    $sentinel->patience(60_000);
    pushed_under_load();
    all_know_loads(@loads);
    all_know(k => 7);

    # Only the replaced server tells the nodes about the new primary.
    $old->start;
    eventually(sub { $old->cli('ROLE')->[0] }, 'slave', 'the old one is a replica of it');
    eventually(sub { $old->cli('ROLE')->[3] }, 'connected', 'with all that it has');
    $sentinel->wait_for_replica;
    @loads = map { $_->load('load') } @nodes;
    pushed_under_load();
    eventually(sub { eval { $sentinel->cli(SENTINEL => FAILOVER => 'main') } }, 'OK', 'back again');
    eventually(sub { $old->cli('ROLE')->[0] }, 'master', 'the old one has taken over');
    $store = $old;
    pushed_under_load();
    all_know_loads(@loads);
    stop($lost);
    $_->kill for $sentinel, $old, $new;
};

subtest 'a cluster' => sub {
    $store = RedisCluster->new(port => $port + 4, node_timeout => 2000);
    my @seeds = map {"server 127.0.0.1:$_->{port};"} @{$store->{primaries}}[0, 1];
    my %conf  = conf(server => "@seeds cluster on;");
    $_->start(%conf, zone => '5m') for @nodes;
    my %expected;
    for my $n (1 .. 200) {
        ($n % 2 ? $a : $b)->hit(hit => "key-$n");
        $expected{"key-$n"} = 1;
    }
    eventually(sub { $store->totals('api') }, \%expected, 'all keys are in the cluster');
    for my $primary (@{$store->{primaries}}) {
        cmp_ok($primary->cli('DBSIZE'), '>=', 3, 'of which every primary has some');
    }
    for my $node (@nodes) {
        eventually(sub { scalar grep { $node->rate(ask => $_) ne '1' } sort keys %expected }, 0,
            "and node $node->{name} knows all");
    }

    my @loads = map { $_->load(map {"load-$_"} 1 .. 50) } @nodes;
    pushed_under_load();
    $store->{primaries}[0]->kill;
    eventually(sub { $store->{replicas}[0]->cli('ROLE')->[0] }, 'master', 'a replica takes over');
    pushed_under_load();
    my $made = sum0(map { $_->{200} } map { $_->(100) } @loads);
    my $of_loads = sub {
        my $totals = $_[0]->();
        return sum0(map { $totals->{$_} // 0 } grep {/^load-/} keys %$totals);
    };
    eventually(sub { $of_loads->(sub { $store->totals('api') }) }, $made, 'all of the load');
    for my $node (@nodes) {
        my $rates = sub { +{map { ("load-$_" => $node->rate(ask => "load-$_")) } 1 .. 50} };
        eventually(sub { $of_loads->($rates) }, $made, "is known to node $node->{name}");
    }
    my $totals = $store->totals('api');
    is_deeply([grep { ($totals->{$_} // 0) != 1 } sort keys %expected], [], 'and what was before');
    for my $node (@nodes) {
        $node->wait_for('a [notice]', sub { $node->logged($back) == $node->logged($lost) });
    }

    # The nodes change to a store with one shard and back. They do not mistake its state for that of the cluster.
    $store->{replicas}[1]->kill;
    my $single = Redis->new(port => $port + 8);
    $single->start;
    my $cluster = $store;
    for my $is_single (1, 0, 1, 0) {
        my $servers = $is_single ? "server 127.0.0.1:$single->{port};" : "@seeds cluster on;";
        $store = $is_single ? $single : $cluster;
        $_->reload(conf(server => $servers), zone => '5m') for @nodes;
        $a->hit(hit => 'moving');
        $expected{moving}++;
        all_know(moving  => $expected{moving});
        all_know('key-1' => 1);
    }
    stop($lost);
    $_->kill for $cluster, $single;
};

done_testing();

sub start_sentinel {
    my ($sentinel_port, $primary) = @_;
    my $dir  = tempdir('sentinel-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $conf = "$dir/sentinel.conf";
    open my $file, '>', $conf or die "cannot write: $!\n";
    print $file "sentinel monitor main 127.0.0.1 $primary->{port} 1\n",
        "sentinel down-after-milliseconds main 60000\n", "sentinel failover-timeout main 1000\n";
    close $file or die "cannot write: $!\n";
    my $sentinel = bless Redis->new(
        port => $sentinel_port, config => $conf, args => ['--sentinel'], database => undef,
    ), 'Sentinel';
    $sentinel->start;
    return $sentinel;
}

my $loaded = 0;

# Stops the loads, and tests that the total equals the number of admitted requests, including earlier ones.
sub all_know_loads {
    $loaded += sum0(map { $_->{200} } map { $_->(100) } @_);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    all_know(load => $loaded);
}

package Sentinel;

use parent -norequire, 'Redis';

# Sets the time in milliseconds after which a primary that does not respond is down. A healthy one may be slow on a
# busy machine.
sub patience {
    my ($self, $millis) = @_;
    $self->cli(SENTINEL => 'SET', 'main', 'down-after-milliseconds', $millis);
}

# Waits until the sentinel has found a replica that can take over.
sub wait_for_replica {
    my ($self) = @_;
    Node::wait_until(30, sub {
        my @replicas = map { +{@$_} } @{$self->cli(SENTINEL => REPLICAS => 'main')};
        return grep { $_->{flags} eq 'slave' && $_->{'master-link-status'} eq 'ok' } @replicas;
    });
}
