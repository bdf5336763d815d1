# Synchronous namespaces, whose store decides: a real Redis, and a cluster. That limits are exact across nodes, what
# happens when the store does not answer, and to requests that wait for it.
#
# A plain Perl test, like topologies.t, of which it takes the ports.

use strict;
use warnings;

use FindBin;
use IO::Select;
use List::Util qw(max sum0);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Node;
use Redis;
use RedisCluster;

die "redis-server is not installed\n" if !Redis::is_there();

my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $a     = Node->new(a => $port + 2);
my $b     = Node->new(b => $port + 3);
my $redis = Redis->new(port => $port + 4);
my $back      = qr/\[error\] .*ratelimit_store "main" is back/;
my $connected = qr/\[notice\] .*ratelimit_store "main" is connected to [\d.]+:\d+ \(\w+ \d+\.\d+/;
my $lost  = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;

for my $window (qw(fixed sliding)) {
    subtest "of two nodes, $window windows admit exactly the limit" => sub {
        $redis->start;
        $_->start(conf(limit => 500, window => $window)) for $a, $b;
        my @loads = map { ($a->load('k'), $b->load('k')) } 1 .. 4;
        my @sums  = map { $_->(700) } @loads;
        my $total = sum0(map { $_->{200} + $_->{429} } @sums);
        cmp_ok($total, '>=', 2500, "of $total requests");
        is(sum0(map { $_->{200} } @sums), 500, '500 are admitted');
        is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
        is($redis->total(api => 'k'), 500, 'and counted, and nothing else');
        stop();
    };
}

subtest 'what one node counts, the other knows with its next request' => sub {
    $redis->start;
    $_->start(conf()) for $a, $b;
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
    $redis->start;
    $a->start(conf());
    $b->start(conf(sync_rate => '0.1'));
    $a->hit(hit => 'k') for 1 .. 3;
    eventually(sub { $b->rate(ask => 'k') }, 3, 'the node that syncs learns it');
    $b->hit(hit => 'k') for 1 .. 4;
    eventually(sub { $a->rate(ask => 'k') }, 7, 'and the other way round');
    stop();
};

subtest 'several limits charge a request all or none' => sub {
    $redis->start;
    my %conf = conf();
    $conf{rules}{both}    = 'api limit=10/366d limit=3/360d window=fixed counter=default';
    $conf{rules}{first}   = 'api limit=100/366d window=fixed counter=default cost=0';
    $conf{rules}{mixed}   = 'api limit=100/366d window=fixed counter=default; ratelimit limit=2/366d window=fixed';
    $conf{rules}{counted} = 'api limit=1/300d window=fixed; ratelimit_count_rejected on';
    $a->start(%conf);
    is_deeply([map { $a->hit(both => 'k') } 1 .. 6], [200, 200, 200, 429, 429, 429], 'the tighter limit');
    is($a->rate(first => 'k'), 3, 'the other limit is charged for what was admitted');
    is_deeply([map { $a->hit(mixed => 'm') } 1 .. 4], [200, 200, 429, 429], 'a limit of the node');
    eventually(sub { $a->rate(first => 'm') }, 2, 'the store gets back what that refused');
    is_deeply([map { $a->hit(counted => 'k') } 1 .. 3], [200, 429, 429], 'rejected hits');
    is($redis->total(api => 'k', 300 * 24 * 3600 * 1000), 3, 'are counted if they are to be');
    stop();
};

subtest 'hits that are known with the response' => sub {
    $redis->start;
    my %conf = conf();
    $conf{rules}{late} = 'api limit=5/366d window=fixed counter=default charge=$arg_c';
    $_->start(%conf) for $a, $b;
    is($a->hit(late => 'k', 'c=4'), 200, 'admitted by what is counted');
    eventually(sub { $b->rate(ask => 'k') }, 4, 'counted after the response');
    is($b->hit(late => 'k', 'c=4'), 200, 'below the limit');
    eventually(sub { $a->rate(ask => 'k') }, 8, 'counted');
    is($_->hit(late => 'k', 'c=4'), 429, 'above the limit') for $a, $b;
    stop();
};

my %on_error = (
    local => [[200, 'ERROR'], [200, 'ERROR'], [429, 'ERROR']],
    allow => [[200, 'ERROR'], [200, 'ERROR'], [200, 'ERROR']],
    deny  => [[503, 'ERROR'], [503, 'ERROR'], [503, 'ERROR']],
);
for my $what (sort keys %on_error) {
    subtest "without the store: on_error $what" => sub {
        $redis->kill;
        my %conf = conf(limit => 2, namespace => "on_error $what;");
        $conf{rules}{dry} = "$conf{rules}{hit}; ratelimit_dry_run on";
        $a->start(%conf);
        my @got = map { [($a->get(hit => 'k'))[0], $a->last('Status')] } 1 .. 3;
        is_deeply(\@got, $on_error{$what}, 'statuses');
        is($a->last('Retry-After'), 1, 'when to try again') if $what eq 'deny';
        my $denied = qr/\[error\] .*ratelimit: denied, store "main" does not answer, namespace "api",/;
        is($a->logged($denied), $what eq 'deny' ? 3 : 0, 'is logged');
        is($a->hit(dry => 'd'), 200, 'a dry run admits') for 1 .. 4;
        my %requests = $a->body('/metrics') =~ /^ratelimit_requests_total\{namespace="api",result="(\w+)"\} (\d+)/mg;
        is_deeply(\%requests, {passed => 0, rejected => 0, rejected_dry_run => 0}, 'counted');
        my %fallbacks = $a->body('/metrics') =~ /^ratelimit_fallbacks_total\{namespace="api",action="(\w+)"\} (\d+)/mg;
        is_deeply(\%fallbacks, {allow => 0, deny => 0, local => 0, $what => 7}, 'as fallbacks');
        is($a->logged(qr/$lost on_error $what: /), 1, 'one line says that it was never reached');
        $redis->start;
        eventually(sub { $a->status(ask => 'back') }, 'PASSED', 'the store is back');
        is($a->logged($connected), 1, 'and one that it is connected, with its version');
        my $pushed = $what eq 'local' ? 2 : 0;
        eventually(sub { $redis->total(api => 'k') }, $pushed, 'what was admitted here is pushed');
        stop($lost);
    };
}

subtest 'one line tells that a store is lost, and one that it is back' => sub {
    $redis->start;
    my %conf = (http => <<"    END", rules => {
    ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
    ratelimit_namespace api  { store main; sync_rate 0; on_error allow; }
    ratelimit_namespace web  { store main; sync_rate 0.02; }
    ratelimit_namespace more { store main; sync_rate 0.05; }
    END
        hit => 'api limit=9/366d', web => 'web limit=9/366d', more => 'more limit=9/366d',
    });
    $a->start(%conf, workers => 3);
    $a->hit($_ => 'k') for qw(hit web more);
    $a->wait_for('the first connection', sub { $a->logged($connected) });
    for my $time (1, 2) {
        $redis->kill;
        $a->wait_for('an error', sub { $a->status(hit => 'k') eq 'ERROR' });
        $a->hit($_ => 'k') for qw(hit web more);
        eventually(sub { $a->body('/metrics') =~ /^ratelimit_store_up\{store="main"\} (\d)/m ? $1 : '' }, 0, 'down');
        $a->reload(%conf, workers => 2) if $time == 2;
        $redis->start;
        eventually(sub { $a->logged($back) }, $time, 'back');
        $a->hit($_ => "k$time") for qw(hit web more);
    }
    is($a->logged(qr/$lost on_error allow: requests are admitted, nodes go on with what they know: /), 2, 'lost twice');
    is($a->logged($lost), 2, 'no more lines');
    is($a->logged($back), 2, 'nor of its return');
    is($a->logged($connected), 1, 'nor of its first connection');
    stop($lost);
};

subtest 'a store that hangs under load' => sub {
    $redis->start;
    $_->start(conf(namespace => '', store => '')) for $a, $b;
    my @loads = map { $_->load('k') } $a, $b;
    for my $time (1, 2) {
        $_->hit(hit => 'before') for $a, $b;
        $redis->pause;
        for my $node ($a, $b) {
            $node->wait_for('an error', sub { $node->status(hit => 'k') eq 'ERROR' });
        }
        my $begin = time;
        is($a->status(hit => 'k'), 'ERROR', 'decided without it') for 1 .. 20;
        cmp_ok(time - $begin, '<', 1, 'at once');
        $redis->go_on;
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

subtest 'requests that wait' => sub {
    $redis->start;
    $a->start(conf(namespace => 'timeout 1s;', store => ''));
    is($a->rate(hit => 'k'), 1, 'a hit');

    # Clients that go away.
    $redis->pause;
    for (1 .. 5) {
        my $socket = $a->connection;
        syswrite $socket, "GET /hit/gone HTTP/1.1\r\nHost: localhost\r\n\r\n";
    }
    # One that stays, and one with a body.
    my $get  = $a->connection;
    my $post = $a->connection;
    syswrite $get, "GET /hit/stays HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    syswrite $post, "POST /hit/stays HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\nbody";
    syswrite $post, ' more';
    ok(!IO::Select->new($get, $post)->can_read(0.1), 'they wait');
    $redis->go_on;
    for my $socket ($get, $post) {
        local $/;
        like(<$socket>, qr/\bStatus: (?:PASSED|ERROR)\r\n/, 'and are answered');
    }
    $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
    stop($lost);
};

for my $signal (qw(HUP QUIT KILL)) {
    subtest "$signal while requests wait" => sub {
        $redis->start;
        $a->start(conf(namespace => 'timeout 1s;', store => ''));
        is($a->rate(hit => 'k'), 1, 'a hit');
        $redis->pause;
        my @sockets = map { $a->connection } 1 .. 8;
        syswrite $_, "GET /hit/waits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" for @sockets;
        ok(!IO::Select->new(@sockets)->can_read(0.1), 'they wait');
        my @before = $a->workers;
        kill $signal eq 'KILL' ? (KILL => @before) : ($signal => $a->{master});
        if ($signal ne 'KILL') {
            for my $socket (@sockets) {
                local $/;
                like(<$socket> // '', qr/\bStatus: ERROR\r\n/, 'answered without the store');
            }
        }
        if ($signal eq 'QUIT') {
            $a->wait_for('the end', sub { !kill(0, $a->{master}) || !-e "$a->{root}/nginx.pid" });
            is_deeply([grep { !/$lost/ } $a->grave_lines], [], 'nothing grave in the log');
            delete $a->{master};
            stop();
        }
        else {
            $a->wait_for('new workers', sub { $a->settled(@before) });
            $redis->go_on;
            $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
            stop(qr/$lost|exited on signal 9/);
        }
    };
}

subtest 'subrequests, redirects' => sub {
    $redis->start;
    my %conf = conf(namespace => 'timeout 5s;');
    $conf{server} = <<'    END';
        location = /auth { internal; ratelimit_key k; ratelimit api limit=3/366d window=fixed; empty_gif; }
        location = /auth_request { ratelimit off; auth_request /auth; empty_gif; }
        location = /redirect { ratelimit_key r; ratelimit api limit=2/366d window=fixed; try_files /none /hit/other; }
    END
    $a->start(%conf);
    my @got = map { $a->plain('/auth_request') } 1 .. 4;
    is_deeply(\@got, [200, 200, 200, 500], 'auth_request') or diag("@got");
    is($redis->total(api => 'k'), 3, 'is counted');
    is_deeply([map { $a->plain('/redirect') } 1 .. 3], [200, 200, 429], 'an internal redirect');
    is($redis->total(api => 'r'), 2, 'is counted once');
    is($redis->total(api => 'other'), 0, 'where it began');
    stop(qr/auth request unexpected status: 429/);
};

my $cluster = RedisCluster->new(port => $port + 4);
# Else all are down while one is missed.
$_->cli(CONFIG => 'SET', 'cluster-require-full-coverage', 'no') for @{$cluster->{all}};

subtest 'of two nodes with a cluster, each key gets exactly its limit' => sub {
    $_->start(cluster_conf(limit => 100, namespace => 'timeout 5s;')) for $a, $b;
    my @keys  = map {"key-$_"} 1 .. 12;
    my @loads = map { ($a->load(@keys), $b->load(@keys)) } 1, 2;
    my @sums  = map { $_->(1700) } @loads;
    my $total = sum0(map { $_->{200} + $_->{429} } @sums);
    cmp_ok($total, '>=', 5 * 1200, "of $total requests");
    is(sum0(map { $_->{200} } @sums), 1200, '1200 are admitted');
    is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
    is_deeply($cluster->totals('api'), {map { ($_ => 100) } @keys}, 'and counted, and nothing else');
    my @of = map { scalar keys %{keys_of($_)} } @{$cluster->{primaries}};
    is(scalar(grep {$_} @of), 3, "by all primaries: @of");
    stop();
};

subtest 'limits of several keys, in several shards of a cluster, charge a request all or none' => sub {
    my %conf = cluster_conf(namespace => 'timeout 5s;');
    $conf{rules}{hit} = 'api limit=1000/360d window=fixed key=first-$key; '
        . 'ratelimit api limit=50/360d window=fixed key=second-$key; '
        . 'ratelimit api limit=1000/360d window=fixed key=third-$key';
    $_->start(%conf) for $a, $b;
    my @keys  = map {"k$_"} 1 .. 6;
    my @sums  = map { $_->(800) } map { ($a->load(@keys), $b->load(@keys)) } 1, 2;
    is(sum0(map { $_->{200} } @sums), 300, 'the tightest limit');
    my %expected = map { ("first-$_" => 50, "second-$_" => 50, "third-$_" => 50) } @keys;
    eventually(sub { $cluster->totals(api => 360 * 24 * 3600 * 1000) }, \%expected, 'what was charged');
    stop();
};

subtest 'hits that are known with the response, in a cluster' => sub {
    my %conf = cluster_conf(namespace => 'timeout 5s;');
    $conf{rules}{late} = 'api limit=5/366d window=fixed counter=default charge=$arg_c; '
        . 'ratelimit api limit=50/366d window=fixed charge=$arg_c key=also-$key';
    $a->start(%conf);
    is($a->hit(late => 'late', 'c=7'), 200, 'admitted by what is counted');
    eventually(sub { $a->rate(ask => $_) }, 7, "$_: counted after the response") for qw(late also-late);
    is($a->hit(late => 'late', 'c=4'), 429, 'above the limit');
    stop();
};

subtest 'a primary that hangs, and one that is killed' => sub {
    $a->start(cluster_conf(namespace => 'on_error deny; timeout 100ms;', store => ''), workers => 1);
    my @keys = map {"primary-$_"} 1 .. 40;
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });
    my $primary = $cluster->{primaries}[1];
    my $its     = keys_of($primary);
    my @its     = grep { $its->{$_} } @keys;
    my @others  = grep { !$its->{$_} } @keys;
    ok(@its && @others, @its . ' keys of 40 are there');
    my $results = sub {
        my %results;
        $results{$a->status(hit => $_)}++ for @_;
        return \%results;
    };

    $primary->pause;
    my $begin = time;
    is_deeply($results->(@others[0 .. 4]), {PASSED => 5}, 'others go on');
    is_deeply($results->(@its), {ERROR => scalar @its}, 'its requests are decided without it');
    my $waited = time - $begin;
    is_deeply($results->(@others), {PASSED => scalar @others}, 'others go on');
    $begin = time;
    is_deeply($results->(@its), {ERROR => scalar @its}, 'the next of its requests');
    my $took = time - $begin;
    cmp_ok($took, '<', 0.5, "at once, where the first ones took $waited s");
    $primary->go_on;
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });

    # Which of the two has it, if the pause was long.
    my ($there) = grep { $_->cli('ROLE')->[0] eq 'master' } $primary, $cluster->{replicas}[1];
    my ($other) = grep { $_ != $there } $primary, $cluster->{replicas}[1];
    eventually(sub { $other->cli('ROLE')->[3] }, 'connected', 'the replica has what there is');
    $there->kill;
    my (%of_its, %of_others);
    $a->wait_for('another primary', sub {
        $of_its{$a->status(hit => $_)}++ for @its;
        $of_others{$a->status(hit => $_)}++ for @others;
        return $other->cli('ROLE')->[0] eq 'master';
    });
    is_deeply([keys %of_others], ['PASSED'], 'others went on');
    cmp_ok($of_its{ERROR} // 0, '>', 0, 'its requests were decided without it');
    $a->wait_for('all shards', sub { !grep { $a->status(hit => $_) ne 'PASSED' } @keys });
    stop($lost);
};

done_testing();

# The same, with the cluster.
sub cluster_conf {
    my @seeds = map {"server 127.0.0.1:$_->{port};"} @{$cluster->{primaries}}[0, 1];
    return (zone => '5m', conf(server => "@seeds cluster on;", @_));
}

# What a primary has counted, by key.
sub keys_of {
    my ($primary) = @_;
    my %keys;
    for my $number (0 .. 15) {
        my $of_shard = eval { $primary->totals_of_shard(api => $number) } // {};
        %keys = (%keys, %$of_shard);
    }
    return \%keys;
}

# As in cluster.t, but synchronous.
sub conf {
    my (%conf) = (
        sync_rate => '0', limit => 1_000_000, window => 'fixed',
        server => "server 127.0.0.1:$redis->{port};", store => 'timeout 5s; connect_timeout 5s;', @_,
    );
    # Long enough for a busy machine, as the times of the store are, where a test does not say otherwise.
    $conf{namespace} //= $conf{sync_rate} eq '0' ? 'timeout 5s;' : '';
    my $limit = "api limit=$conf{limit}/366d window=$conf{window}";
    return (
        http => <<"        END",
        ratelimit_store main { strategy redis; $conf{server} $conf{store} }
        ratelimit_namespace api {
            store main; sync_rate $conf{sync_rate}; $conf{namespace}
            window_sizes 366d 360d 300d;
        }
        ratelimit_namespace default { }
        END
        rules => {hit => $limit, cost => "$limit cost=\$arg_c", ask => "$limit cost=0"},
    );
}

# Stops the nodes that there are, and Redis.
sub stop {
    my ($expected) = @_;
    $redis->go_on if $redis->{pid};
    $_->stop($expected) for grep { $_->{master} } $a, $b;
    $redis->kill;
}
