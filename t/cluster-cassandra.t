# Tests nodes that share a Cassandra: the tests for any store (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm), and tests that only apply to Cassandra. cluster-cassandra-ring.t tests failing servers.
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 4, and without TEST_CASSANDRA, + 16 and + 17.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Cassandra;
use ConvergenceTests;
use Node;
use RecoveryTests;
use TwoNodes;

die "java is not installed\n" if !Cassandra::is_there();

my ($a, $b) = @nodes;
$store = Cassandra->new(port => $port + 4);

convergence_tests();
recovery_tests();

subtest 'a counter near its limit is pushed, and polled, although there is no channel' => sub {
    start_acquainted(limit => 100, sync_rate => '10m');
    # A node pushes when its hits are a quarter of what remains. After two pushes, b knows the rate of growth, although
    # the hits of the second one are counted while the first one waits for its answer.
    $store->{proxy}->delay(0.1);
    my $total = 0;
    for my $hits (20, 16) {
        $b->hit(hit => 'k') for 1 .. $hits;
        $total += $hits;
        eventually(sub { $store->total(api => 'k') }, $total, "$total are pushed");
    }
    $store->{proxy}->pass;
    # Node a learns of these hits with its own push; b learns of those of a with its next fetch.
    $a->hit(hit => 'k') for 1 .. 20;
    eventually(sub { $_->rate(ask => 'k') }, 56, "$_->{name} knows all") for @nodes;
    stop();
};

subtest 'clocks that are off, and a store that is emptied' => sub {
    $store->be_empty;
    $a->start(conf(), clock => '+3s');
    $b->start(conf(), clock => '-4s');
    $_->hit(hit => 'k') for $a, $b, $b;
    all_know(k => 3);
    $store->flush;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 5);
    stop(qr/$lost|has a clock that is/);
};

subtest 'the schema, the grants and the user of docs/cassandra.md' => sub {
    open my $file, '<', "$FindBin::Bin/../docs/cassandra.md" or die "cannot read: $!\n";
    my $page     = do { local $/; <$file> };
    my ($schema) = $page =~ /^```cql\n(CREATE KEYSPACE.*?)^```/ms;
    my ($grants) = $page =~ /^```cql\n(CREATE ROLE.*?)^```/ms;
    open $file, '<', "$FindBin::Bin/../src/store/cassandra/schema.cql" or die "cannot read: $!\n";
    my $ours  = do { local $/; <$file> };
    my %names = (counters => '', map { $_ => "_$_" } qw(shards nodes changes positions));
    $ours =~ s/\{($_)\} \(/ratelimit.rl_counters$names{$1} (/ for keys %names;
    my ($tables) = $schema =~ /(CREATE TABLE.*)/s;
    is($tables, $ours, 'the tables are those that nodes create');

    # The statements are those of the documentation, with the keyspace and the user of this test.
    $store->drop;
    my $user = $store->locked;
    s/\bratelimit\b/$store->{keyspace}/g, s/\bnginx\b/"$user"/g for $schema, $grants;
    $store->ask($_) for grep {/\S/} map { split /;\n/ } $schema, $grants;
    $_->start(conf(store => $store->credentials('change-me'))) for @nodes;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    $store->ask("TRUNCATE $store->{keyspace}.rl_counters_shards");
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 4);
    stop();
    # This user may not create missing tables.
    $store->ask("DROP TABLE $store->{keyspace}.rl_counters_positions");
    $a->start(conf(store => $store->credentials('change-me')));
    my $message = qr/$lost.*table "rl_counters_positions" is missing, and cannot be created/;
    $a->wait_for('an [error]', sub { $a->logged($message) });
    $a->stop($message);
    $store->unlock;
    $store->drop;
};

subtest 'TLS' => sub {
    $store->be_empty;
    my $roots = "$store->{server}{dir}/tls/roots.pem";
    $a->start(conf(store => $store->access . " tls on; tls_trusted_certificate $roots;"));
    $b->start(conf(store => $store->access . ' tls on; tls_verify off;'));
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    $a->reload(conf(store => $store->access . ' tls on;'));
    $a->wait_for('an [error]', sub { $a->logged(qr/$lost.*UnknownIssuer/) });
    $a->reload(conf(store => $store->access . " tls on; tls_name cassandra.test; tls_trusted_certificate $roots;"));
    $a->hit(hit => 'k');
    all_know(k => 3);
    stop($lost);
};

subtest 'a table that is something else' => sub {
    $store->be_empty;
    $store->drop;
    $store->lock('unused');
    $store->ask("CREATE TABLE $store->{keyspace}.rl_counters_nodes (x int PRIMARY KEY)");
    $a->start(conf());
    is($a->hit(hit => 'k'), 200, 'a hit is counted here');
    my $message = qr/$lost.*cannot be used \(table "rl_counters_nodes" has another shape/;
    $a->wait_for('an [error]', sub { $a->logged($message) });
    $store->ask("DROP TABLE $store->{keyspace}.rl_counters_nodes");
    eventually(sub { $store->total(api => 'k') }, 1, 'without it, all goes on');
    stop($lost);
    $store->unlock;
};

done_testing();
