# Nodes that share a Postgres: that they converge, and that none of their hits is lost or counted
# twice, whatever becomes of Postgres, of a worker, of a configuration. What does not depend on the
# store is in cluster.t.
#
# This is a plain Perl test: it needs several nginx at once, and signals. It takes the ports
# TEST_NGINX_PORT + 2 to + 4.
#
# Windows are of 366 days, so that no test meets the end of one (see limit.t). Nothing waits for a
# fixed time: for a thing to be done twice, a node has pushed something else after it (see settle).

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;
use List::Util qw(max sum0);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Certificate;
use Node;
use Postgres;

die "postgres is not installed\n" if !Postgres::is_there();

my $port     = $ENV{TEST_NGINX_PORT} || 1984;
my $a        = Node->new(a => $port + 2);
my $b        = Node->new(b => $port + 3);
my $postgres = Postgres->new(port => $port + 4);

my $lost   = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;
my $connected = qr/\[notice\] .*ratelimit_store "main" is connected to \S+ \(PostgreSQL \d+\.\d+/;
my $back   = qr/\[error\] .*ratelimit_store "main" is back/;
my $killed = qr/\[alert\] .* exited on signal 9/;

$postgres->create;

subtest 'hits on one node are in the rate of the other' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    is($a->hit(hit => 'k'), 200, 'a hit on a');
    eventually(sub { $b->rate(ask => 'k') }, 1, 'is in the rate of b');
    is($b->rate(hit => 'k'), 2, 'where another one adds to it');
    eventually(sub { $a->rate(ask => 'k') }, 2, 'which is in the rate of a');
    for (1 .. 20) {
        $a->hit(hit => 'many');
        $b->hit(hit => 'many') for 1, 2;
    }
    all_know(many => 60);
    $a->hit(cost => 'decimal', 'c=0.001');
    $b->hit(cost => 'decimal', 'c=2.5');
    all_know(decimal => 2.501);
    stop();
};

subtest 'many keys of any bytes, in several windows' => sub {
    with_postgres();
    my %conf = conf();
    $conf{rules}{hit} =~ s{(limit=\d+)/366d}{$1/366d $1/360d};
    $_->start(%conf) for $a, $b;
    # nginx refuses a zero byte in a path, and resolves dots and slashes.
    my @bytes = grep { !m{[\0./]} } map {chr} 0 .. 255;
    my @keys  = map { join '', map { $bytes[rand @bytes] } 1 .. 1 + $_ % 20, 'x' } 1 .. 990;
    push @keys, @bytes[map { $_ * 20 } 1 .. 9], 'long' x 1000;
    # By the names that keys have in the store.
    my %counts;
    for my $i (0 .. $#keys) {
        ($i % 2 ? $a : $b)->hit(hit => $keys[$i]);
        $counts{name_of($keys[$i])}++;
    }
    my $day = 24 * 3600 * 1000;
    eventually(sub { $postgres->totals('api', $_ * $day) }, \%counts, "$_ days") for 366, 360;
    for my $node ($a, $b) {
        my @wrong;
        eventually(sub {
            @wrong = grep { $node->rate(ask => $_) ne $counts{name_of($_)} } @keys[0 .. 99, -10 .. -1];
            scalar @wrong;
        }, 0, "node $node->{name} knows the keys");
    }
    stop();
};

subtest 'a node that starts later begins with what the others counted' => sub {
    with_postgres();
    $a->start(conf());
    $a->hit(hit => "k$_") for 1 .. 50;
    eventually(sub { sum0(values %{$postgres->totals('api')}) }, 50, 'is in Postgres');
    $b->start(conf());
    eventually(sub { $b->rate(ask => 'k1') + $b->rate(ask => 'k50') }, 2, 'and soon in b');
    stop();
};

subtest 'a store that is not there at first' => sub {
    without_postgres();
    $_->start(conf(limit => 20)) for $a, $b;
    is($a->hit(hit => 'k'), 200, 'a hit is counted here') for 1 .. 3;
    is($b->rate(hit => 'k'), 1, 'and another one there');
    $a->hit(hit => 'full') for 1 .. 20;
    is($a->hit(hit => 'full'), 429, 'the limit holds here');
    for my $node ($a, $b) {
        $node->wait_for('an [error]', sub { $node->logged($lost) });
    }
    $postgres->start;
    all_know(k    => 4);
    all_know(full => 20);
    is($b->hit(hit => 'full'), 429, 'and there');
    for my $node ($a, $b) {
        $node->wait_for('a [notice]', sub { $node->logged($connected) });
        is($node->logged($lost), 1, "one [error] on $node->{name}");
        is($node->logged($connected), 1, "one [notice] on $node->{name}");
    }
    stop($lost);
};

subtest 'a crash under load: Postgres comes back empty' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    $_->hit(hit => "of-$_->{name}") for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for (1 .. 3) {
        pushed_under_load();
        $postgres->kill;
        $postgres->start;
    }
    pushed_under_load();
    totals_of_loads(@loads);
    all_know("of-$_->{name}" => 1) for $a, $b;
    stop($lost);
};

subtest 'a restart under load: Postgres keeps what it has' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    pushed_under_load();
    my $epoch = $postgres->sql('SELECT epoch FROM rl_counters_epochs WHERE ended_at IS NULL');
    for (1 .. 2) {
        pushed_under_load();
        $postgres->stop;
        $postgres->start;
    }
    pushed_under_load();
    totals_of_loads(@loads);
    is($postgres->sql('SELECT epoch FROM rl_counters_epochs WHERE ended_at IS NULL'), $epoch,
        'the epoch is the same');
    stop($lost);
};

for my $sql (
    'TRUNCATE rl_counters, rl_counters_epochs, rl_counters_nodes, rl_counters_changes',
    'DROP TABLE rl_counters, rl_counters_epochs, rl_counters_nodes, rl_counters_changes',
    'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE \'ngx%\'',
) {
    subtest "under load: $sql" => sub {
        with_postgres();
        $_->start(conf()) for $a, $b;
        my @loads = map { $_->load('k') } $a, $b;
        for (1 .. 3) {
            pushed_under_load();
            $postgres->sql($sql);
        }
        pushed_under_load();
        totals_of_loads(@loads);
        stop($lost);
    };
}

subtest 'a store that hangs under load' => sub {
    with_postgres();
    $_->start(impatient()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1, 2) {
        pushed_under_load();
        $postgres->pause;
        for my $node ($a, $b) {
            $node->wait_for('an [error]', sub { $node->logged($lost) == $time });
        }
        $postgres->go_on;
        for my $node ($a, $b) {
            $node->wait_for('a [notice]', sub { $node->logged($back) == $time });
        }
    }
    my @sums = totals_of_loads(@loads);
    cmp_ok($_->{slowest}, '<', 1, 'every answer was there within a second') for @sums;
    is($_->{lost}, 0, 'and none was lost') for @sums;
    stop($lost);
};

subtest 'a server that is read-only for a time' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 2);
    $postgres->sql('ALTER SYSTEM SET default_transaction_read_only = on');
    $postgres->sql('SELECT pg_reload_conf()');
    $_->hit(hit => 'k') for $a, $b;
    for my $node ($a, $b) {
        my $message = qr/$lost.*refuses for now \(it is a read-only replica\)/;
        $node->wait_for('an [error]', sub { $node->logged($message) });
    }
    $postgres->sql($_)
        for 'ALTER SYSTEM RESET default_transaction_read_only', 'SELECT pg_reload_conf()';
    all_know(k => 4);
    stop($lost);
};

subtest 'workers that are killed under load' => sub {
    with_postgres();
    $_->start(impatient()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1 .. 4) {
        my @before = $a->workers;
        kill KILL => $before[$time % 2];
        pushed_under_load();
        $a->wait_for('a new worker', sub { $a->settled($before[$time % 2]) });
    }
    my @sums = totals_of_loads(@loads);
    is($sums[1]{lost}, 0, 'the other node lost nothing');
    stop(qr/$lost|$killed/);
};

subtest 'reloads under load' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for (1 .. 3) {
        pushed_under_load();
        $a->reload;
    }
    pushed_under_load();
    my @sums = totals_of_loads(@loads);
    is($sums[1]{lost}, 0, 'the other node lost nothing');
    stop();
};

for my $signal (qw(QUIT TERM)) {
    subtest "$signal pushes what is left" => sub {
        with_postgres();
        $_->start(conf(sync_rate => '30s')) for $a, $b;
        $_->wait_for_first_sync             for $a, $b;
        my @keys = map {"key-$_"} 1 .. 2000;
        my %expected;
        for my $node ($a, $b) {
            my $sum = $node->load(@keys)->(2000);
            is($sum->{lost}, 0, "$sum->{200} hits on $node->{name}");
            $expected{all} += $sum->{200};
            $node->hit(hit => "of-$node->{name}") for 1 .. 3;
        }
        my $took = $a->stop(undef, $signal);
        cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, 'ends in time');
        is($postgres->total(api => 'of-a'), 3, 'what one counted is in Postgres');
        is($postgres->total(api => 'of-b'), 0, 'what the other did, is not yet');
        $took = $b->stop(undef, $signal);
        cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, 'the other ends in time');
        is(sum0(values %{$postgres->totals('api')}), $expected{all} + 6, 'and all is there');
    };
    subtest "$signal ends in time without a store" => sub {
        for my $is_paused (0, 1) {
            with_postgres();
            $a->start(impatient());
            $a->hit(hit => 'k');
            eventually(sub { $postgres->total(api => 'k') }, 1, 'it was there');
            $is_paused ? $postgres->pause : $postgres->kill;
            $a->hit(hit => 'k');
            my $took = $a->stop($lost, $signal);
            cmp_ok($took, '<', $signal eq 'QUIT' ? 3 : 1.5, $is_paused ? 'it hangs' : 'it is gone');
            $postgres->go_on if $is_paused;
        }
    };
}

subtest 'the number of connections does not grow' => sub {
    with_postgres();
    $_->start(conf()) for $a, $b;
    my @loads = map { $_->load(map {"key-$_"} 1 .. 3000) } $a, $b;
    my $most = 0;
    for (1 .. 20) {
        pushed_under_load();
        my $count = $postgres->sql(
            q(SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ngx%'));
        $most = $count if $count > $most;
    }
    $_->() for @loads;
    cmp_ok($most, '<=', 4, "2 nodes of 2 workers have $most connections at most");
    stop();
};

subtest 'the schema, the grants and the user of docs/postgres.md' => sub {
    with_postgres();
    open my $file, '<', "$FindBin::Bin/../docs/postgres.md" or die "cannot read: $!\n";
    my $page     = do { local $/; <$file> };
    my ($schema) = $page =~ /^```sql\n(-- One row.*?)^```/ms;
    my ($grants) = $page =~ /^```sql\n(GRANT USAGE ON SCHEMA public.*?)^```/ms;
    $postgres->sql('DROP ROLE IF EXISTS nginx');
    $postgres->sql('REVOKE ALL ON SCHEMA public FROM public');
    $postgres->sql($_) for "CREATE ROLE nginx LOGIN", $schema, $grants;
    $_->start(conf(store => 'username nginx;')) for $a, $b;
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 2);
    $postgres->sql('TRUNCATE rl_counters_epochs');
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 4);
    stop();
    $postgres->sql('DROP OWNED BY nginx; DROP ROLE nginx; GRANT ALL ON SCHEMA public TO public');
};

subtest 'a password' => sub {
    with_postgres();
    $postgres->sql("CREATE ROLE locked SUPERUSER LOGIN PASSWORD 'correct-horse'");
    $a->start(conf(store => 'username locked; password correct-horse;'));
    $b->start(conf(store => 'username locked; password battery-staple;'));
    is($b->hit(hit => 'k'), 200, 'the wrong one: limits alone');
    is($a->hit(hit => 'k'), 200, 'the right one');
    eventually(sub { $postgres->total(api => 'k') }, 1, 'pushes');
    $b->wait_for('an [error]', sub { $b->logged(qr/$lost.*denies access/) });
    is($b->logged($lost), 1, 'the wrong one: one [error]');
    is($a->logged($lost), 0, 'the right one: none');
    $b->reload(conf(store => 'username locked; password correct-horse;'));
    all_know(k => 2);
    my $secrets = qr/correct-horse|battery-staple|\blocked\b/;
    is($_->logged($secrets), 0, 'never a password or a name in the log') for $a, $b;
    stop($lost);
    $postgres->sql('DROP OWNED BY locked');
    $postgres->sql('DROP ROLE locked');
};

subtest 'TLS' => sub {
    with_postgres();
    my $pem = tempdir('certificates-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    issued_certificate($pem, '127.0.0.1');
    my $ours  = "tls_certificate $pem/127.0.0.1.pem; tls_certificate_key $pem/127.0.0.1.key;";
    my $roots = "tls_trusted_certificate $pem/roots.pem;";
    $a->start(conf(store => "tls on; $ours $roots"));
    $b->start(conf(store => 'tls on; tls_verify off;'));
    $_->hit(hit => 'k') for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('an [error]', sub { $node->logged(qr/$lost.*does not support TLS/) });
    }
    is_deeply($postgres->totals('api'), {}, 'a server without TLS is told nothing');
    $postgres->speak_tls("$pem/127.0.0.1", "$pem/roots.pem");
    all_know(k => 2);
    my $sessions = "FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
        . "WHERE application_name LIKE 'ngx%'";
    is($postgres->sql("SELECT bool_and(ssl) $sessions"), 't', 'all are encrypted');
    cmp_ok($postgres->sql("SELECT count(client_dn) $sessions"), '>', 0, 'some have a certificate');

    $a->reload(conf(store => 'tls on;'));
    $a->wait_for('an [error]', sub { $a->logged(qr/$lost.*UnknownIssuer/) });
    $a->reload(conf(store => "tls on; tls_name db.example; $roots"));
    $a->hit(hit => 'k');
    is($a->logged($lost), 2, 'it stays lost with another name');
    $a->reload(conf(store => "tls on; $roots"));
    all_know(k => 3);
    is($a->logged($back), 1, 'and is back');
    stop($lost);
    $postgres->speak_tls;
};

subtest 'several servers, a database, a table, a socket' => sub {
    with_postgres();
    $postgres->sql($_) for 'DROP DATABASE IF EXISTS limits', 'CREATE DATABASE limits';
    local @$postgres{qw(database table)} = ('limits', 'mine.counts');
    $postgres->sql('CREATE SCHEMA mine');
    my $options = 'database limits; table mine.counts;';
    $a->start(conf(store => $options, server => "127.0.0.1:1; server 127.0.0.1:$postgres->{port}"));
    $b->start(conf(store => $options, server => 'unix:' . $postgres->socket));
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 2);
    stop();
    is($postgres->sql("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"), 0,
        'nothing is elsewhere');
};

subtest 'a table that is something else' => sub {
    with_postgres();
    $postgres->sql('CREATE TABLE rl_counters_nodes (x integer)');
    $a->start(conf());
    is($a->hit(hit => 'k'), 200, 'a hit is counted here');
    my $message = qr/$lost.*cannot be used \(table "rl_counters_nodes" has another shape/;
    $a->wait_for('an [error]', sub { $a->logged($message) });
    $postgres->sql('DROP TABLE rl_counters_nodes');
    eventually(sub { $postgres->total(api => 'k') }, 1, 'without it, all goes on');
    stop($lost);
};

subtest 'ended windows go away' => sub {
    with_postgres();
    my %conf = conf();
    $_->start(%conf) for $a, $b;
    $_->hit(hit => 'k') for $a, $b;
    all_know(k => 2);
    $postgres->sql(q(UPDATE rl_counters SET expires_at = now() - interval '1 minute'));
    eventually(sub { $postgres->sql('SELECT count(*) FROM rl_counters') }, 0, 'by themselves');
    stop();
};

for my $window (qw(fixed sliding)) {
    subtest "synchronous: of two nodes, $window windows admit exactly the limit" => sub {
        with_postgres();
        $_->start(synchronous(limit => 300, window => $window)) for $a, $b;
        # Of 8 connections each.
        my @loads = map { ($a->load('k'), $b->load('k')) } 1 .. 4;
        my @sums  = map { $_->(200) } @loads;
        my $total = sum0(map { $_->{200} + $_->{429} } @sums);
        cmp_ok($total, '>=', 1500, "of $total requests");
        is(sum0(map { $_->{200} } @sums), 300, '300 are admitted');
        is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
        is($postgres->total(api => 'k'), 300, 'and counted, and nothing else');
        stop();
    };
}

subtest 'synchronous: what one node counts, the other knows with its next request' => sub {
    with_postgres();
    $_->start(synchronous()) for $a, $b;
    for my $count (1 .. 10) {
        my $node = $count % 2 ? $a : $b;
        is($node->rate(hit => 'k'), $count, "hit $count");
    }
    is($_->rate(ask => 'k'), 10, 'asking counts nothing') for $a, $b, $a;
    is($a->rate(cost => 'k', 'c=2.5'), 12.5, 'decimals');
    is($b->rate(ask => 'k'), 12.5, 'are known, too');
    is($a->status(hit => 'k'), 'PASSED', 'a status');
    stop();
};

subtest 'nodes that sync and nodes that ask share a namespace' => sub {
    with_postgres();
    $a->start(synchronous());
    $b->start(conf());
    $a->hit(hit => 'k') for 1 .. 3;
    eventually(sub { $b->rate(ask => 'k') }, 3, 'the node that syncs learns it');
    $b->hit(hit => 'k') for 1 .. 4;
    eventually(sub { $a->rate(ask => 'k') }, 7, 'and the other way round');
    stop();
};

subtest 'synchronous: a store that hangs under load' => sub {
    with_postgres();
    $_->start(synchronous(timeout => '200ms', times => '')) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1, 2) {
        for my $node ($a, $b) {
            $node->wait_for('the store', sub { $node->status(hit => 'k') eq 'PASSED' });
        }
        $postgres->pause;
        for my $node ($a, $b) {
            $node->wait_for('an error', sub { $node->status(hit => 'k') eq 'ERROR' });
        }
        my $begin = time;
        is($a->status(hit => 'k'), 'ERROR', 'decided without it') for 1 .. 20;
        cmp_ok(time - $begin, '<', 1, 'at once');
        $postgres->go_on;
        for my $node ($a, $b) {
            $node->wait_for('the store', sub { $node->status(hit => 'k') eq 'PASSED' });
        }
    }
    my @sums = map { $_->(100) } @loads;
    diag(sprintf 'the slowest answer took %.3f s', max(map { $_->{slowest} } @sums));
    cmp_ok($_->{slowest}, '<', 1, 'every answer was there within a second') for @sums;
    is($_->{lost}, 0, 'and none was lost') for @sums;
    stop($lost);
};

subtest 'synchronous: a worker that is stopped, or killed, holds nobody up' => sub {
    with_postgres();
    $_->start(synchronous(timeout => '200ms', times => '')) for $a, $b;
    my $load = $a->load('k');
    for my $signal (qw(STOP KILL)) {
        $b->wait_for('the store', sub { $b->status(hit => 'k') eq 'PASSED' });
        my @before = $a->workers;
        kill $signal => @before;
        # The server gives each of the sessions up after the store's timeout.
        $b->wait_for('the store', sub {
            !grep { $b->status(hit => 'k') ne 'PASSED' } 1 .. 20;
        });
        pass("the other node goes on after $signal");
        kill CONT => @before if $signal eq 'STOP';
    }
    $load->();
    stop(qr/$lost|$killed/);
};

done_testing();

# The configuration of a node: the namespace `api` in the store `main`, and the locations hit, which
# counts 1, cost, which counts its argument c, and ask, which counts nothing. The store has so much
# time that it is never late.
sub conf {
    my (%conf) = (
        server    => "127.0.0.1:$postgres->{port}",
        store     => '',
        times     => 'timeout 5s; connect_timeout 5s;',
        sync_rate => '0.1',
        limit     => 1_000_000,
        @_
    );
    my $limit = "api limit=$conf{limit}/366d";
    return (
        http => <<"        END",
        ratelimit_store main { strategy postgres; server $conf{server}; $conf{store} $conf{times} }
        ratelimit_namespace api { store main; sync_rate $conf{sync_rate}; }
        END
        rules => {hit => $limit, cost => "$limit cost=\$arg_c", ask => "$limit cost=0"},
    );
}

# The same with the store's usual times, which a busy machine may miss.
sub impatient { conf(times => '', @_) }

# The same, but Postgres decides: with fixed windows, and so much time that it is never late.
sub synchronous {
    my (%conf) = (
        window  => 'fixed',
        timeout => '10s',
        times   => 'timeout 10s; connect_timeout 10s;',
        @_
    );
    my %synchronous = conf(sync_rate => "0; timeout $conf{timeout}", %conf);
    s{(limit=\S+)}{$1 window=$conf{window}} for values %{$synchronous{rules}};
    return %synchronous;
}

# A Postgres without tables, which runs.
sub with_postgres {
    $postgres->start if !$postgres->{guard};
    $postgres->sql('DROP TABLE IF EXISTS rl_counters, rl_counters_epochs, rl_counters_nodes, '
            . 'rl_counters_changes');
}

sub without_postgres {
    with_postgres();
    $postgres->stop;
}

# Stops the nodes that there are.
sub stop {
    my ($expected) = @_;
    $_->stop($expected) for grep { $_->{master} } $a, $b;
}

# Tests that the total of a key is in Postgres and in the rates of both nodes, and stays.
sub all_know {
    my ($key, $total) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { $postgres->total(api => $key) }, $total, "$key in Postgres");
    eventually(sub { $a->rate(ask => $key) },         $total, "$key on a");
    eventually(sub { $b->rate(ask => $key) },         $total, "$key on b");
    settle();
    is($postgres->total(api => $key), $total, "$key stays in Postgres");
    is($_->rate(ask => $key), $total, "$key stays on $_->{name}") for $a, $b;
}

# Waits until each node has pushed what it counted, and knows what the other did.
my $settled = 0;

sub settle {
    my $key = 'settle-' . ++$settled;
    $_->hit(hit => $key) for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('the hits of both', sub { $node->rate(ask => $key) eq '2' });
    }
}

# Waits until both nodes have pushed a hit that they count now.
sub pushed_under_load {
    my $key = 'settle-' . ++$settled;
    $_->hit(hit => "$key-$_->{name}") for $a, $b;
    for my $node ($a, $b) {
        $node->wait_for('a push', sub { eval { $postgres->total(api => "$key-$node->{name}") } });
    }
}

# Ends the loads of `k`, tests that its total is that of the answers, and returns their sums.
sub totals_of_loads {
    my @sums = map { $_->() } @_;
    my $made = sum0(map { $_->{200} } @sums);
    my $lost = sum0(map { $_->{lost} } @sums);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    settle();
    my $total = $postgres->total(api => 'k');
    cmp_ok($total, '>=', $made,         "of the hits, $made were answered, $lost were not: no less");
    cmp_ok($total, '<=', $made + $lost, 'and no more are in Postgres');
    all_know(k => $total);
    return @sums;
}
