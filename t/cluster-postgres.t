# Tests nodes that share a Postgres: the tests for any store (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm), and tests that only apply to Postgres.
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Certificate;
use ConvergenceTests;
use Node;
use Postgres;
use RecoveryTests;
use TwoNodes;

die "postgres is not installed\n" if !Postgres::is_there();

my ($a, $b) = @nodes;
$store = Postgres->new(port => $port + 4);

convergence_tests();
recovery_tests();

subtest 'a server that is read-only for a time' => sub {
    $store->be_empty;
    $_->start(conf()) for @nodes;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    $store->sql('ALTER SYSTEM SET default_transaction_read_only = on');
    $store->sql('SELECT pg_reload_conf()');
    $_->hit(hit => 'k') for @nodes;
    for my $node (@nodes) {
        my $message = qr/$lost.*\(it is a read-only replica\)/;
        $node->wait_for('an [error]', sub { $node->logged($message) });
    }
    $store->sql($_)
        for 'ALTER SYSTEM RESET default_transaction_read_only', 'SELECT pg_reload_conf()';
    all_know(k => 4);
    stop($lost);
};

subtest 'the number of connections does not grow' => sub {
    $store->be_empty;
    $_->start(conf()) for @nodes;
    my @loads = map { $_->load(map {"key-$_"} 1 .. 3000) } @nodes;
    my $most = 0;
    for (1 .. 20) {
        pushed_under_load();
        my $count = $store->connections;
        $most = $count if $count > $most;
    }
    $_->() for @loads;
    # Each worker has one connection, and each node has one more, which listens to the channel.
    cmp_ok($most, '<=', 6, "2 nodes of 2 workers have $most connections at most");
    stop();
};

subtest 'the schema, the grants and the user of docs/postgres.md' => sub {
    $store->be_empty;
    open my $file, '<', "$FindBin::Bin/../docs/postgres.md" or die "cannot read: $!\n";
    my $page     = do { local $/; <$file> };
    my ($schema) = $page =~ /^```sql\n(-- One row.*?)^```/ms;
    my ($grants) = $page =~ /^```sql\n(GRANT USAGE ON SCHEMA public.*?)^```/ms;
    $store->sql('DROP ROLE IF EXISTS nginx');
    $store->sql('REVOKE ALL ON SCHEMA public FROM public');
    $store->sql($_) for "CREATE ROLE nginx LOGIN", $schema, $grants;
    $_->start(conf(store => 'username nginx;')) for @nodes;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    $store->sql('TRUNCATE rl_counters_epochs');
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 4);
    stop();
    $store->sql('DROP OWNED BY nginx; DROP ROLE nginx; GRANT ALL ON SCHEMA public TO public');
};

subtest 'TLS' => sub {
    $store->be_empty;
    my $pem = tempdir('certificates-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    issued_certificate($pem, '127.0.0.1');
    my $ours  = "tls_certificate $pem/127.0.0.1.pem; tls_certificate_key $pem/127.0.0.1.key;";
    my $roots = "tls_trusted_certificate $pem/roots.pem;";
    $a->start(conf(store => "tls on; $ours $roots"));
    $b->start(conf(store => 'tls on; tls_verify off;'));
    $_->hit(hit => 'k') for @nodes;
    for my $node (@nodes) {
        $node->wait_for('an [error]', sub { $node->logged(qr/$lost.*does not support TLS/) });
    }
    is_deeply($store->totals('api'), {}, 'a server without TLS is told nothing');
    $store->speak_tls("$pem/127.0.0.1", "$pem/roots.pem");
    all_know(k => 2);
    my $sessions = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        . "WHERE application_name LIKE 'ngx%'";
    is($store->sql("SELECT bool_and(ssl) $sessions"), 't', 'all are encrypted');
    cmp_ok($store->sql("SELECT count(client_dn) $sessions"), '>', 0, 'some have a certificate');

    $a->reload(conf(store => 'tls on;'));
    $a->wait_for('an [error]', sub { $a->logged(qr/$lost.*UnknownIssuer/) });
    $a->reload(conf(store => "tls on; tls_name db.example; $roots"));
    $a->hit(hit => 'k');
    is($a->logged($lost), 2, 'it stays lost with another name');
    $a->reload(conf(store => "tls on; $roots"));
    all_know(k => 3);
    eventually(sub { $a->logged($back) }, 1, 'and is back');
    stop($lost);
    $store->speak_tls;
};

subtest 'several servers, a database, a table, a socket' => sub {
    $store->be_empty;
    $store->sql($_) for 'DROP DATABASE IF EXISTS limits', 'CREATE DATABASE limits';
    local @$store{qw(database table)} = ('limits', 'mine.counts');
    $store->sql('CREATE SCHEMA mine');
    my $options = 'database limits; table mine.counts;';
    $a->start(conf(store => $options, server => "server 127.0.0.1:1; server 127.0.0.1:$store->{port};"));
    $b->start(conf(store => $options, server => 'server unix:' . $store->socket . ';'));
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    stop();
    is($store->sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), 0,
        'nothing is elsewhere');
};

subtest 'a table that is something else' => sub {
    $store->be_empty;
    $store->sql('CREATE TABLE rl_counters_nodes (x integer)');
    $a->start(conf());
    is($a->hit(hit => 'k'), 200, 'a hit is counted here');
    my $message = qr/$lost.*cannot be used \(table "rl_counters_nodes" has another shape/;
    $a->wait_for('an [error]', sub { $a->logged($message) });
    $store->sql('DROP TABLE rl_counters_nodes');
    eventually(sub { $store->total(api => 'k') }, 1, 'without it, all goes on');
    stop($lost);
};

subtest 'ended windows go away' => sub {
    $store->be_empty;
    my %conf = conf();
    $_->start(%conf) for @nodes;
    $_->hit(hit => 'k') for @nodes;
    all_know(k => 2);
    $store->sql(q(UPDATE rl_counters SET expires_at = now() - interval '1 minute'));
    eventually(sub { $store->sql('SELECT count(*) FROM rl_counters') }, 0, 'by themselves');
    stop();
};

done_testing();
