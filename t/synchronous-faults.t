# More tests of synchronous namespaces: connections that are cut at random, the exit of the worker that queries
# the store for all workers, HTTP/2, and keys that are known to be over a limit.
#
# This is a plain Perl test, like synchronous.t. It uses the ports TEST_NGINX_PORT + 2 to + 8.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use IO::Select;
use List::Util qw(max min sum0);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Api;
use Nginx qw(http2);
use Node;
use Processes;
use Proxy;
use Redis;
use TwoNodes;

my ($a, $b) = @nodes;
my $replaces = qr/ratelimit_store "main" is asked by this worker from now on/;
# The additional time, in seconds, that a busy machine may need.
my $slack = 0.5;
$store = Redis->new(port => $port + 4);

subtest 'connections that are cut at random: never more than the limit' => sub {
    # Connections are cut until the limit is reached. Then requests are rejected without an exchange.
    my $limit = 10_000;
    $store->be_empty;
    my $proxy_a = Proxy->new(port => $port + 6, to => $store->{port});
    my $proxy_b = Proxy->new(port => $port + 7, to => $store->{port});
    $a->start(synchronous(server => "server 127.0.0.1:$proxy_a->{port};", limit => $limit, namespace => 'on_error deny;'));
    $b->start(synchronous(server => "server 127.0.0.1:$proxy_b->{port};", limit => $limit, namespace => 'on_error deny;'));
    my @loads = map { ($a->load('k'), $b->load('k')) } 1 .. 2;
    for (my $time = 1; $store->total(api => 'k') < $limit; $time++) {
        my $proxy = $time % 2 ? $proxy_a : $proxy_b;
        $time % 3 ? $proxy->reset : $proxy->cut_answers(1);
        # Waits until the store decides again, with a key that is far from its limit.
        for my $node (@nodes) {
            $node->wait_for('the store', sub { $node->status(hit => "of-$node->{name}") eq 'PASSED' });
        }
    }
    my @sums     = map { $_->(1000) } @loads;
    my $admitted = sum0(map { $_->{200} // 0 } @sums);
    my $denied   = sum0(map { $_->{503} // 0 } @sums);
    my $counted  = $store->total(api => 'k');
    cmp_ok($admitted, '<=', $limit, "$admitted are admitted, $denied denied");
    cmp_ok($counted, '>=', $admitted, "$counted are counted: those, and more whose answers were lost");
    cmp_ok($counted, '<=', $limit, 'within the limit');
    cmp_ok($denied, '>', 0, 'some were cut');
    is(sum0(map { $_->{lost} } @sums), 0, 'every request was answered');
    stop($lost);
};

subtest 'the worker that asks for all leaves: nobody notices' => sub {
    $store->be_empty;
    $a->start(synchronous(limit => 3000, namespace => 'on_error deny; timeout 5s;'), workers => 3);
    my @loads = map { $a->load('k') } 1 .. 2;
    my @askers;
    for (1 .. 4) {
        $a->wait_for('another one that asks', sub {
            my $asker = asker($a);
            push @askers, $asker if $asker && !grep { $asker == $_ } @askers;
        });
        kill QUIT => $askers[-1];
        $a->wait_for('its end', sub { $a->settled($askers[-1]) });
    }
    my @sums = map { $_->(2000) } @loads;
    is(sum0(map { $_->{200} } @sums), 3000, 'exactly the limit is admitted');
    is($store->total(api => 'k'), 3000, 'and counted');
    # A worker that exits closes idle connections, on which a request may be in flight.
    is(sum0(map { $_->{503} // 0 } @sums), 0, 'and every request that was read was decided');
    stop();
};

subtest 'the worker that asks for all is killed: another one asks' => sub {
    $store->be_empty;
    $a->start(synchronous(limit => 3000, namespace => 'on_error deny; timeout 200ms;', times => ''), workers => 3);
    my @loads = map { $a->load('k') } 1 .. 2;
    my $asker = 0;
    for (1 .. 4) {
        $a->wait_for('another one that asks', sub {
            my $next = asker($a);
            $next && $next != $asker && $a->status(hit => 'other') eq 'PASSED' ? $asker = $next : 0;
        });
        kill KILL => $asker;
        $a->wait_for('another one in its place', sub { $a->settled($asker) });
    }
    $a->wait_for('the store', sub { $a->status(hit => 'other') eq 'PASSED' });
    my @sums     = map { $_->(2000) } @loads;
    my $admitted = sum0(map { $_->{200} } @sums);
    my $counted  = $store->total(api => 'k');
    my $unknown  = sum0(map { $_->{lost} + ($_->{503} // 0) } @sums);
    cmp_ok($counted, '<=', 3000, "$counted are counted, within the limit");
    cmp_ok($admitted, '<=', $counted, "$admitted of them admitted");
    cmp_ok($counted - $admitted, '<=', $unknown, "the others are among $unknown that have no verdict");
    cmp_ok($counted, '==', 3000, 'all that there is') if grep { $_->{429} } @sums;
    stop(qr/$lost|$killed/);
};

subtest 'the last questions of all workers are counted' => sub {
    $store->be_empty;
    my $upstream = IO::Socket::INET->new(Listen => 64, LocalAddr => '127.0.0.1') or die "cannot listen: $!\n";
    my %conf     = synchronous();
    my $to       = $upstream->sockport;
    $conf{server} = <<"    END";
        location = /held {
            ratelimit_key k;
            ratelimit     api limit=1000/366d window=fixed charge=\$arg_c;
            proxy_pass    http://127.0.0.1:$to;
        }
    END
    $a->start(%conf, workers => 4);
    my @clients = map { $a->connection } 1 .. 40;
    syswrite $_, "GET /held?c=3 HTTP/1.0\r\n\r\n" for @clients;
    # All requests are admitted. While Redis does not respond, they end one after the other.
    my @held = map { scalar $upstream->accept } @clients;
    $store->pause;
    for my $held (@held) {
        sysread $held, my $request, 65536;
        syswrite $held, "HTTP/1.0 200 OK\r\n\r\n";
        close $held;
    }
    for my $client (@clients) {
        local $/;
        like(<$client>, qr{^HTTP/1\.1 200 }, 'answered') or last;
    }
    kill QUIT => $a->{master};
    $a->wait_for('the beginning of the end', sub { !$a->connection });
    $store->go_on;
    $a->stop;
    is($store->total(api => 'k'), 120, 'all of it');
    stop();
};

subtest 'more is asked at once than there is room for' => sub {
    $store->be_empty;
    my %conf = synchronous();
    $conf{rules}{hit} = many_limits(20);
    $a->start(%conf, zone => '8m');
    my ($worker) = $a->workers;
    $a->wait_for('an answer', sub { $a->status(hit => 'k') eq 'PASSED' });
    for (1 .. 4) {
        # The requests to the store have half a megabyte, in one iteration of the event loop.
        my @clients = map { $a->connection } 1 .. 80;
        stop_processes($worker);
        syswrite $clients[$_], "GET /hit/$_" . 'x' x 190 . " HTTP/1.0\r\n\r\n" for 0 .. $#clients;
        kill CONT => $worker;
        my %got;
        for my $client (@clients) {
            local $/;
            $got{(<$client> // '') =~ /\r\nStatus: (\w+)\r\n/ ? $1 : 'lost'}++;
        }
        is_deeply(\%got, {PASSED => 80}, 'Redis decided about all of it');
    }
    stop();
};

subtest 'long keys, many limits, and other clients' => sub {
    $store->be_empty;
    my %conf = synchronous();
    $conf{rules}{many} = many_limits(20);
    # The request has more limits than fit into a message.
    my $rules = join "\n", map { "ratelimit api name=p$_ limit=1/366d key=$_" . 'x' x 190 . ';' } 1 .. 1000;
    $conf{server} = "location = /too-many { ratelimit_headers off; $rules empty_gif; }";
    $a->start(%conf, zone => '16m', workers => 2);
    $a->wait_for('an answer', sub { $a->status(hit => 'k') eq 'PASSED' });

    my $before = $store->cli(INFO => 'stats') =~ /total_net_input_bytes:(\d+)/ ? $1 : 0;
    my @loads  = map { my $n = $_; $a->load(map { "$n-$_-" . 'x' x 7900 } 1 .. 500) } 1 .. 2;
    my %got;
    for (1 .. 60) {
        $got{$a->status(hit => $_)}++;
        $got{$a->status(many => $_ . 'y' x 190)}++;
    }
    my $sent  = sum0(map { $_->{200} } map { $_->(500) } @loads);
    my $bytes = ($store->cli(INFO => 'stats') =~ /total_net_input_bytes:(\d+)/ ? $1 : 0) - $before;
    is_deeply(\%got, {PASSED => 120}, 'the store decided about all others');
    cmp_ok($bytes / $sent, '<', 2000, "for $sent requests with long keys it was sent $bytes bytes");

    is($a->plain('/too-many'), 200, 'a question that cannot be asked is decided here');
    is($a->status(hit => 'k'), 'PASSED', 'and nothing else');
    like(join('', $a->log_lines), qr/too many limits to ask a store about: 1000 counters/, 'the log says so');
    stop(qr/too many limits to ask/);
};

subtest 'a probe that is lost is followed by another' => sub {
    $store->be_empty;
    my %conf = synchronous(namespace => 'timeout 300ms;', times => '');
    $conf{server} = $with_api;
    $conf{rules}{hit} = many_limits(20);
    $a->start(%conf, zone => '8m', workers => 2);
    $a->wait_for('an answer', sub { $a->status(hit => 'k') eq 'PASSED' });
    my $asker = asker($a);
    my ($other) = grep { $_ != $asker } $a->workers;

    # The worker that queries the store is stopped. The messages of the other worker fill the queue, so that
    # its probe does not fit either. The other worker is killed before it sends the probe.
    stop_processes($asker);
    my @clients = map { $a->connection } 1 .. 200;
    syswrite $clients[$_], "GET /hit/$_" . 'x' x 190 . " HTTP/1.0\r\n\r\n" for 0 .. $#clients;
    $a->wait_for('a timeout', sub { $a->status(hit => 'k') eq 'ERROR' });
    kill KILL => $other;
    $a->wait_for('its end', sub { $a->settled($other) });
    kill CONT => $asker;
    $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
    pass('the store decides again');
    # The leases of the killed worker must not take the time of the last push.
    $a->wait_for('a sync', sub { (api($a, POST => 'api/sync'))[0] == 200 });
    stop(qr/$lost|$killed|$replaces/);
};

subtest 'a worker that is stopped while it asks for all is replaced, and goes on later' => sub {
    $store->be_empty;
    my $timeout = 0.5;
    $a->start(synchronous(limit => 100_000, namespace => 'on_error deny; timeout 500ms;', times => ''), workers => 3);
    $a->wait_for('the store', sub { $a->status(hit => 'other') eq 'PASSED' });
    my @loads = map { $a->load('k') } 1 .. 2;
    my @denied_for;
    for (1 .. 3) {
        # The lock is taken over after the log line.
        my ($other) = map { /(\d+)#.*$replaces/ ? $1 : () } reverse $a->log_lines;
        my $asker;
        $a->wait_for('one that asks', sub { $asker = asker($a); $asker && $asker == ($other // $asker) });
        my $replaced = $a->logged($replaces);
        # A new connection may be accepted only when the stopped worker continues.
        my @clients = map { $a->connection } 1 .. 12;
        answers(@clients);
        my ($stopped_at, $last) = time;
        stop_processes($asker);
        if ($a->logged($replaces) > $replaced) {
            # On a busy machine, another worker may have replaced it just before.
            kill CONT => $asker;
            $a->wait_for('the store', sub { $a->status(hit => 'other') eq 'PASSED' });
            redo;
        }
        # Repeats until the store decides ten rounds of requests in a row, on connections of the other workers.
        my $row = 0;
        while ($row < 10) {
            $a->give_up('nobody asks for the one that was stopped') if time > $stopped_at + 10;
            my %answers = answers(@clients);
            @clients = grep { $answers{$_} } @clients or last;
            my @denied = grep { $_->{status} ne 'PASSED' } values %answers;
            $row = @denied ? 0 : $row + 1;
            $last = max($last // 0, map { $_->{at} } @denied) if @denied;
        }
        if (!@clients) {
            # The stopped worker had accepted all connections.
            kill CONT => $asker;
            $a->wait_for('the store', sub { $a->status(hit => 'other') eq 'PASSED' });
            redo;
        }
        # On a busy machine, the last beats may have been late, so that none is denied.
        push @denied_for, $last - $stopped_at if defined $last;
        is($a->logged($replaces), $replaced + 1, 'the log says who asks now');
        kill CONT => $asker;
        is($a->status(hit => 'other'), 'PASSED', 'the store decides') for 1 .. 20;
    }
    # The workers that wait may get no processor for a second or two.
    cmp_ok(min(@denied_for) // 0, '<', $timeout + 1 + $slack, 'requests are denied for the timeout and a second at most');
    my @sums     = map { $_->(2000) } @loads;
    my $admitted = sum0(map { $_->{200} } @sums);
    my $counted  = $store->total(api => 'k');
    my $unknown  = sum0(map { $_->{lost} + ($_->{503} // 0) } @sums);
    is(sum0(map { $_->{lost} } @sums), 0, 'every request was answered');
    cmp_ok($counted, '>=', $admitted, "$counted are counted: all of $admitted that were admitted");
    cmp_ok($counted - $admitted, '<=', $unknown, "the others are among $unknown whose answers were late");
    stop($replaces);
};

subtest 'a client above a limit is rejected without a question' => sub {
    $store->be_empty;
    $a->start(synchronous(limit => 5));
    is($a->hit(hit => 'k'), 200, 'admitted') for 1 .. 5;
    is($a->hit(hit => 'k'), 429, 'refused') for 1 .. 4;
    my $before = asked();
    my %got;
    $got{$a->hit(hit => 'k')}++ for 1 .. 200;
    is_deeply(\%got, {429 => 200}, 'and 200 times more');
    my $asked = asked() - $before;
    cmp_ok($asked, '<', 100, "Redis was asked $asked times");
    is($a->hit(hit => 'other'), 200, 'another key is another one');
    stop();
};

subtest 'HTTP/2' => sub {
    $store->be_empty;
    my %conf = synchronous(limit => 300);
    my ($parameter, $directive) = http2();
    $conf{server} = "$directive listen 127.0.0.1:@{[$port + 5]} $parameter;";
    $_->start($_ == $a ? %conf : synchronous(limit => 300)) for @nodes;
    my $url  = 'http://127.0.0.1:' . ($port + 5) . '/hit/k';
    my $said = `h2load -n 1000 -c 4 -m 20 $url 2>&1`;
    like($said, qr/status codes: 300 2xx, 0 3xx, 700 4xx, 0 5xx/, 'exactly the limit') or diag($said);
    is($b->hit(hit => 'k'), 429, 'the other node knows');
    is($store->total(api => 'k'), 300, 'so does Redis');
    stop();
};

done_testing();

# Returns a rule with this number of limits, none of which is reached.
sub many_limits {
    my ($count) = @_;
    return join ' ', 'api window=fixed', map { 'limit=1000000/' . (367 - $_) . 'd' } 1 .. $count;
}

# Makes a request on each of these connections. Returns the timely responses and their times, by connection.
sub answers {
    my @clients = @_;
    my ($select, %text, %answers) = IO::Select->new(@clients);
    syswrite $_, "HEAD /hit/other HTTP/1.1\r\nHost: localhost\r\n\r\n" for @clients;
    my $until = time + 2;
    while ($select->count && time < $until) {
        for my $client ($select->can_read($until - time)) {
            sysread $client, $text{$client}, 65536, length($text{$client} // '') or $select->remove($client);
            next if $text{$client} !~ /\r\n\r\n\z/;
            $answers{$client} = {at => time, status => $text{$client} =~ /\r\nStatus: (\w+)/ ? $1 : ''};
            $select->remove($client);
        }
    }
    return %answers;
}

# Returns the worker of a node that queries the store for all workers: the holder of the lock, from the kernel.
sub asker {
    my ($node) = @_;
    my %is_worker = map { $_ => 1 } $node->workers;
    open my $locks, '<', '/proc/locks' or die "/proc/locks: $!\n";
    my @askers = grep { $is_worker{$_} } map { /: POSIX +ADVISORY +WRITE (\d+) / ? $1 : () } <$locks>;
    die "several ask: @askers\n" if @askers > 1;
    return $askers[0];
}

# Returns the number of times that scripts were run.
sub asked { return $store->cli(INFO => 'commandstats') =~ /cmdstat_evalsha:calls=(\d+)/ ? $1 : 0 }
