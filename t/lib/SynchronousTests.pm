# Tests of synchronous namespaces, whose store decides: limits are exact across nodes; on_error applies when
# the store does not respond; and waiting requests are handled. Every store runs the same tests.

package SynchronousTests;

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use List::Util qw(max sum0);
use Node;
use Processes;
use Test::More;
use Time::HiRes qw(time);
use TwoNodes;

our @EXPORT = qw(synchronous_tests decided);

my ($a, $b) = @nodes;

# Returns the configuration of a node with a namespace whose store decides, with several window sizes, and a
# namespace without a store.
sub decided {
    my %conf = synchronous(@_);
    $conf{http} =~ s/(ratelimit_namespace api \{)/$1 window_sizes 366d 360d 300d;/;
    $conf{http} .= 'ratelimit_namespace default { }';
    return %conf;
}

# Waits until the store decides the requests of a node, and saves the number of earlier fallbacks.
sub reached {
    my ($node) = @_;
    $node->wait_for('the store', sub { $node->status(ask => 'reached') eq 'PASSED' });
    $node->{fallbacks} = TwoNodes::metric($node, 'ratelimit_fallbacks_total{namespace="api",action="local"}');
}

# Tests that clients get no answer yet.
sub they_wait {
    my @answered = IO::Select->new(@_)->can_read(0.1);
    my @answers  = map { sysread($_, my $answer, 4000); $answer } @answered;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    is_deeply(\@answers, [], 'they wait');
}

sub synchronous_tests {
    for my $window ($store->can('windows') ? $store->windows : qw(fixed sliding elastic)) {
        subtest "of two nodes, $window windows admit exactly the limit" => sub {
            $store->be_empty;
            $_->start(decided(limit => 500, window => $window)) for @nodes;
            # Until it reaches the store, a node decides by its own counts.
            reached($_) for @nodes;
            my @loads = map { ($a->load('k'), $b->load('k')) } 1 .. 4;
            my @sums  = map { $_->(700) } @loads;
            my $total = sum0(map { $_->{200} + $_->{429} } @sums);
            cmp_ok($total, '>=', 2500, "of $total requests");
            my $admitted = sum0(map { $_->{200} } @sums);
            if ($store->can('may_refuse_all')) {
                cmp_ok($admitted, '<=', 500, "no more than 500 are admitted: $admitted");
                # Single requests use up the limit: they do not race, and no node caches a rejection
                # that was caused by a race.
                $admitted++ while $admitted <= 500 && $a->hit(hit => 'k') eq '200';
            }
            is($admitted, 500, '500 are admitted');
            is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
            my $name = 'ratelimit_fallbacks_total{namespace="api",action="local"}';
            is(TwoNodes::metric($_, $name), $_->{fallbacks}, "by the store alone, on $_->{name}") for @nodes;
            is($store->total(api => 'k'), 500, 'and counted, and nothing else') if $window ne 'elastic';
            stop();
        };
    }

    subtest 'a node knows the hits of the other one with its next request' => sub {
        $store->be_empty;
        $_->start(decided()) for @nodes;
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
        $store->be_empty;
        $a->start(decided());
        $b->start(decided(sync_rate => '0.1', namespace => ''));
        $a->hit(hit => 'k') for 1 .. 3;
        eventually(sub { $b->rate(ask => 'k') }, 3, 'the node that syncs learns it');
        $b->hit(hit => 'k') for 1 .. 4;
        eventually(sub { $a->rate(ask => 'k') }, 7, 'and the other way round');
        stop();
    };

    subtest 'several limits charge a request all or none' => sub {
        $store->be_empty;
        my %conf = decided();
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
        is($store->total(api => 'k', 300 * 24 * 3600 * 1000), 3, 'are counted if they are to be');
        stop();
    };

    subtest 'a rule that is tried alone' => sub {
        $store->be_empty;
        my %conf = decided();
        $conf{rules}{tried}  = 'api limit=2/366d limit=9/360d window=fixed counter=default dry_run=on; ratelimit api limit=4/300d window=fixed';
        $conf{rules}{first}  = 'api limit=100/366d window=fixed counter=default cost=0';
        $conf{rules}{second} = 'api limit=100/360d window=fixed counter=default cost=0';
        my %counter = map { $_ => "300d window=fixed counter=$_" } qw(asks both either apart banned order);
        $conf{rules}{asks}   = "api limit=3/$counter{asks} dry_run=on; ratelimit api limit=3/$counter{asks} cost=0";
        $conf{rules}{both}   = "api limit=1/$counter{both} dry_run=on; ratelimit api limit=2/$counter{both} dry_run=on";
        $conf{rules}{look}   = "api limit=9/$counter{both} cost=0";
        $conf{rules}{either} = "api limit=1/$counter{either} dry_run=on; ratelimit api limit=3/$counter{either}";
        $conf{rules}{apart}  = "api limit=9/$counter{apart} dry_run=on; ratelimit api limit=2/300d window=fixed counter=default";
        $conf{rules}{banned} = "api limit=1/$counter{banned} ban=1h dry_run=on; ratelimit_count_rejected on";
        $conf{rules}{left}   = "api limit=9/$counter{banned} cost=0";
        $conf{rules}{order}  = "api limit=9/$counter{order} cost=3 charge=2 dry_run=on; ratelimit api limit=4/$counter{order}";
        $conf{rules}{count}  = "api limit=9/$counter{order} cost=0";
        $_->start(%conf) for @nodes;
        reached($_) for @nodes;
        my @statuses = map { $_->status(tried => 'k') } $a, $b, $a, $b, $a;
        is_deeply(\@statuses, [qw(PASSED PASSED REJECTED_DRY_RUN REJECTED_DRY_RUN REJECTED)], 'refuses no request');
        is_deeply([map { $a->rate($_ => 'k') } qw(first second)], [2, 2], 'and charges what it admits');
        is_deeply([map { $a->hit(asks => 'k') } 1 .. 5], [200, 200, 200, 429, 429], 'one that asks gets no hit less');
        $a->hit(both => 'k') for 1 .. 3;
        is($a->rate(look => 'k'), 2, 'one of two is charged while it admits');
        $a->hit(either => 'k');
        like($a->last('RateLimit'), qr/\A"api-300d";r=0;.* "api-300d-2";r=2;/, 'the remainder is that after the request');
        # The request after the one that begins the ban may be decided before the node knows it.
        eventually(sub { $a->hit(banned => 'k'); $a->last('RateLimit') =~ /;t=3[56]\d\d\b/ ? 'banned' : '' }, 'banned', 'a ban');
        my $counted;
        eventually(sub { my $before = $counted // ''; ($counted = $a->rate(left => 'k')) eq $before }, 1, 'what was counted before');
        is($a->hit(banned => 'k'), 200, 'a ban rejects nothing') for 1 .. 3;
        eventually(sub { $a->rate(left => 'k') }, $counted, 'and what it would reject is not counted');
        for my $counted (2, 4) {
            is($a->hit(order => 'k'), 200, 'the first cost is charged');
            eventually(sub { $a->rate(count => 'k') }, $counted, 'and what the response tells in its place');
        }
        is($a->hit(order => 'k'), 429, 'which the other rule counts');
        $a->hit(apart => 'apart') for 1 .. 3;
        like($a->last('RateLimit'), qr/"api-300d";r=7;/, 'and without what was refunded');
        stop();
    };

    subtest 'a banned request is one of the ban, whatever other rules say' => sub {
        $store->be_empty;
        my %conf = decided();
        my $first = 'api limit=1/300d window=fixed counter=first ban=1h ban_after=9 status=503';
        $conf{rules}{banned} = "$first; ratelimit api limit=1/300d window=fixed counter=second ban=2h status=403";
        $a->start(%conf);
        reached($a);
        $a->hit(banned => 'k') for 1, 2;
        eventually(sub { $a->hit(banned => 'k') }, 403, 'the status is that of the ban');
        is($a->hit(banned => 'k'), 403, 'each time') for 1 .. 9;
        cmp_ok($a->last('Retry-After'), '>', 3600, 'and so is its end');
        unlike($a->last('RateLimit'), qr/,/, 'which is all that the response tells');
        stop();
    };

    subtest 'hits that are known with the response' => sub {
        $store->be_empty;
        my %conf = decided();
        $conf{rules}{late} = 'api limit=5/366d window=fixed counter=default charge=$arg_c';
        $_->start(%conf) for @nodes;
        is($a->hit(late => 'k', 'c=4'), 200, 'admitted by what is counted');
        eventually(sub { $b->rate(ask => 'k') }, 4, 'counted after the response');
        is($b->hit(late => 'k', 'c=4'), 200, 'below the limit');
        eventually(sub { $a->rate(ask => 'k') }, 8, 'counted');
        is($_->hit(late => 'k', 'c=4'), 429, 'above the limit') for @nodes;
        stop();
    };

    subtest 'an estimate, and what the response replaces it with' => sub {
        $store->be_empty;
        my %conf = decided();
        $conf{rules}{estimated} = 'api limit=9/366d window=fixed counter=default cost=5 charge=$arg_c';
        $_->start(%conf) for @nodes;
        reached($_) for @nodes;
        is($a->hit(estimated => 'k', 'c=2'), 200, 'the estimate is admitted');
        eventually(sub { $b->rate(ask => 'k') }, 2, 'less is given back');
        is($b->hit(estimated => 'k', 'c=6'), 200, 'another one');
        eventually(sub { $a->rate(ask => 'k') }, 8, 'more is charged');
        is($_->hit(estimated => 'k', 'c=0'), 429, 'an estimate above the limit') for @nodes;
        eventually(sub { $store->total(api => 'k') }, 8, 'all of it is in the store');
        is($a->hit(estimated => 'unknown'), 200, 'a response that does not say');
        is($b->rate(ask => 'unknown'), 5, 'leaves the estimate');
        stop();
    };

    subtest 'gRPC calls that wait for the store' => sub {
        $store->be_empty;
        # Freed memory is overwritten.
        $a->start(decided(limit => 2), environment => {MALLOC_PERTURB_ => 165});
        my $type = 'application/grpc+proto';
        for my $expected ('', '', '8', '8') {
            my $socket = $a->connection;
            print $socket "POST /hit/k HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                . "Content-Type: $type\r\nContent-Length: 0\r\n\r\n";
            local $/;
            my $text = <$socket>;
            my ($status) = $text =~ /\r\ngrpc-status: (\d+)\r\n/;
            is($status // '', $expected, 'a status');
            next if $expected eq '';
            like($text, qr{^HTTP/1\.1 200 .*\r\nContent-Type: \Q$type\E\r\n}s, 'of a response of its type');
        }
        is($store->total(api => 'k'), 2, 'those that were admitted are counted');
        stop();
    };

    my %on_error = (
        local => [[200, 'ERROR'], [200, 'ERROR'], [429, 'ERROR']],
        allow => [[200, 'ERROR'], [200, 'ERROR'], [200, 'ERROR']],
        deny  => [[503, 'ERROR'], [503, 'ERROR'], [503, 'ERROR']],
    );
    for my $what (sort keys %on_error) {
        subtest "without the store: on_error $what" => sub {
            $store->be_away;
            my %conf = decided(limit => 2, namespace => "on_error $what;");
            $conf{rules}{dry}   = "$conf{rules}{hit}; ratelimit_dry_run on";
            $conf{rules}{tried} = "$conf{rules}{hit} dry_run=on";
            $a->start(%conf);
            my @got = map { [($a->get(hit => 'k'))[0], $a->last('Status')] } 1 .. 3;
            is_deeply(\@got, $on_error{$what}, 'statuses');
            is($a->last('Retry-After'), 1, 'when to try again') if $what eq 'deny';
            my $denied = qr/\[error\] .*ratelimit: denied, store "main" does not answer, namespace "api",/;
            is($a->logged($denied), $what eq 'deny' ? 3 : 0, 'is logged');
            is($a->hit($_ => "of-$_"), 200, 'a dry run admits') for map { ($_) x 4 } qw(dry tried);
            my %requests = $a->body('/metrics') =~ /^ratelimit_requests_total\{namespace="api",result="(\w+)"\} (\d+)/mg;
            is_deeply(\%requests, {passed => 0, rejected => 0, rejected_dry_run => 0}, 'counted');
            my %fallbacks = $a->body('/metrics') =~ /^ratelimit_fallbacks_total\{namespace="api",action="(\w+)"\} (\d+)/mg;
            is_deeply(\%fallbacks, {allow => 0, deny => 0, local => 0, $what => 11}, 'as fallbacks');
            # The worker that logs the state of a store need not be the one that answers.
            eventually(sub { $a->logged(qr/$lost on_error $what: /) }, 1, 'one line says that it was never reached');
            $store->start;
            eventually(sub { $a->status(ask => 'back') }, 'PASSED', 'the store is back');
            eventually(sub { $a->logged(connected()) }, 1, 'and one that it is connected, with its version');
            my $pushed = $what eq 'local' ? 2 : 0;
            eventually(sub { $store->total(api => $_) }, $pushed, 'what was admitted here is pushed') for 'k', 'of-dry', 'of-tried';
            stop($lost);
        };
    }

    subtest 'one line tells that a store is lost, and one that it is back' => sub {
        $store->be_empty;
        my $strategy = $store->strategy;
        my $access   = access();
        my %conf     = (http => <<"        END", rules => {
        ratelimit_store main { strategy $strategy; server 127.0.0.1:$store->{port}; $access timeout 5s; connect_timeout 5s; }
        ratelimit_namespace api  { store main; sync_rate 0; on_error allow; }
        ratelimit_namespace web  { store main; sync_rate 0.02; }
        ratelimit_namespace more { store main; sync_rate 0.05; }
        END
            hit => 'api limit=9/366d', web => 'web limit=9/366d', more => 'more limit=9/366d',
        });
        $a->start(%conf, workers => 3);
        $a->hit($_ => 'k') for qw(hit web more);
        $a->wait_for('the first connection', sub { $a->logged(connected()) });
        for my $time (1, 2) {
            $store->kill;
            $a->wait_for('an error', sub { $a->status(hit => 'k') eq 'ERROR' });
            $a->hit($_ => 'k') for qw(hit web more);
            eventually(sub { $a->body('/metrics') =~ /^ratelimit_store_up\{store="main"\} (\d)/m ? $1 : '' }, 0, 'down');
            $a->reload(%conf, workers => 2) if $time == 2;
            $store->start;
            eventually(sub { $a->logged($back) }, $time, 'back');
            $a->hit($_ => "k$time") for qw(hit web more);
        }
        my $twice = qr/$lost on_error allow: requests are admitted, nodes go on with what they know: /;
        eventually(sub { $a->logged($twice) }, 2, 'lost twice');
        is($a->logged($lost), 2, 'no more lines') or diag(grep {/ratelimit_store/} $a->log_lines);
        is($a->logged($back), 2, 'nor of its return');
        is($a->logged(connected()), 1, 'nor of its first connection');
        stop($lost);
    };

    subtest 'a store that hangs under load' => sub {
        $store->be_empty;
        $_->start(decided(namespace => 'timeout 200ms;', times => '')) for @nodes;
        my @loads = map { $_->load('k') } @nodes;
        for my $time (1, 2) {
            for my $node (@nodes) {
                $node->wait_for('the store', sub { $node->status(hit => 'k') eq 'PASSED' });
            }
            $store->pause;
            for my $node (@nodes) {
                $node->wait_for('an error', sub { $node->status(hit => 'k') eq 'ERROR' });
            }
            my $begin = time;
            is($a->status(hit => 'k'), 'ERROR', 'decided without it') for 1 .. 20;
            # If each waited for the timeout, it would take 4 s.
            cmp_ok(time - $begin, '<', 3, 'at once');
            $store->go_on;
            for my $node (@nodes) {
                $node->wait_for('the store', sub { $node->status(hit => 'k') eq 'PASSED' });
            }
        }
        my @sums = map { $_->(100) } @loads;
        diag(sprintf 'the slowest answer took %.3f s', max(map { $_->{slowest} } @sums));
        no_answer_was_slow(@sums);
        is($_->{lost}, 0, 'and none was lost') for @sums;
        stop($lost);
    };

    subtest 'a worker that is stopped, or killed, holds nobody up' => sub {
        $store->be_empty;
        $_->start(decided(namespace => 'timeout 200ms;', times => '')) for @nodes;
        my $load = $a->load('k');
        for my $signal (qw(STOP KILL)) {
            $b->wait_for('the store', sub { $b->status(hit => 'k') eq 'PASSED' });
            my @before = $a->workers;
            $signal eq 'STOP' ? stop_processes(@before) : kill KILL => @before;
            # The server may have to abandon each of the sessions after the timeout of the store.
            $b->wait_for('the store', sub {
                !grep { $b->status(hit => 'k') ne 'PASSED' } 1 .. 20;
            });
            pass("the other node goes on after $signal");
            kill CONT => @before if $signal eq 'STOP';
        }
        $load->();
        stop(qr/$lost|$killed/);
    };

    subtest 'requests that wait' => sub {
        $store->be_empty;
        $a->start(decided());
        is($a->rate(hit => 'k'), 1, 'a hit');
        reached($a);

        # Clients that close their connections.
        $store->pause;
        for (1 .. 5) {
            my $socket = $a->connection;
            syswrite $socket, "GET /hit/gone HTTP/1.1\r\nHost: localhost\r\n\r\n";
        }
        # A client that waits, and one that sends a body.
        my $get  = $a->connection;
        my $post = $a->connection;
        syswrite $get, "GET /hit/stays HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        syswrite $post, "POST /hit/stays HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 9\r\n\r\nbody";
        syswrite $post, ' more';
        they_wait($get, $post);
        $store->go_on;
        for my $socket ($get, $post) {
            local $/;
            like(<$socket>, qr/\bStatus: (?:PASSED|ERROR)\r\n/, 'and are answered');
        }
        $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
        stop($lost);
    };

    for my $signal (qw(HUP QUIT KILL)) {
        subtest "$signal while requests wait" => sub {
            $store->be_empty;
            $a->start(decided(namespace => 'timeout 2s;'));
            is($a->rate(hit => 'k'), 1, 'a hit');
            reached($a);
            $store->pause;
            my @sockets = map { $a->connection } 1 .. 8;
            syswrite $_, "GET /hit/waits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" for @sockets;
            they_wait(@sockets);
            my @before = $a->workers;
            kill $signal eq 'KILL' ? (KILL => @before) : ($signal => $a->{master});
            if ($signal ne 'KILL') {
                for my $socket (@sockets) {
                    local $/;
                    like(<$socket> // '', qr/\bStatus: ERROR\r\n/, 'answered without the store');
                }
            }
            if ($signal eq 'QUIT') {
                $a->wait_for('the end', sub { $a->ended });
                is_deeply([grep { !/$lost|$unconfirmed/ } $a->grave_lines], [], 'nothing grave in the log');
                delete $a->{master};
                $store->go_on;
            }
            else {
                $a->wait_for('new workers', sub { $a->settled(@before) });
                $store->go_on;
                $a->wait_for('the store', sub { $a->status(hit => 'k') eq 'PASSED' });
                stop(qr/$lost|$killed/);
            }
        };
    }

    subtest 'subrequests, redirects' => sub {
        $store->be_empty;
        my %conf = decided(namespace => 'timeout 5s;');
        $conf{server} = <<'        END';
            location = /auth { internal; ratelimit_key k; ratelimit api limit=3/366d window=fixed; empty_gif; }
            location = /auth_request { ratelimit off; auth_request /auth; empty_gif; }
            location = /redirect { ratelimit_key r; ratelimit api limit=2/366d window=fixed; try_files /none /hit/other; }
        END
        $a->start(%conf);
        my @got = map { $a->plain('/auth_request') } 1 .. 4;
        is_deeply(\@got, [200, 200, 200, 500], 'auth_request') or diag("@got");
        is($store->total(api => 'k'), 3, 'is counted');
        is_deeply([map { $a->plain('/redirect') } 1 .. 3], [200, 200, 429], 'an internal redirect');
        is($store->total(api => 'r'), 2, 'is counted once');
        is($store->total(api => 'other'), 0, 'where it began');
        stop(qr/auth request unexpected status: 429/);
    };
}

1;
