# Tests of stores that decide by moving windows, elastic windows and rates. Every store runs the same tests.
#
# Hits leave their window after months, so that none does during a test, unless the test says otherwise.

package WindowTests;

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use List::Util qw(sum0);
use Nginx qw($binary);
use Node;
use Test::More;
use Time::HiRes qw(time);
use TwoNodes;

our @EXPORT = qw(window_tests decided);

my ($a, $b) = @nodes;

# For each algorithm, returns the parameters of a rule that admits this number of hits.
my %rule = (
    moving  => sub { "api limit=$_[0]/366d window=moving" },
    elastic => sub { "api limit=$_[0]/366d window=elastic" },
    rate    => sub { 'api rate=1/366d burst=' . ($_[0] - 1) },
);
my @algorithms = sort keys %rule;

# Returns the configuration of a node with these rules, a namespace whose store decides, and one without a store.
# decides => directives to add to the namespace.
sub decided {
    my ($rules, %conf) = @_;
    my %decided = synchronous(namespace => 'timeout 5s; window_sizes 366d 365d 200ms;', %conf);
    $decided{http} .= 'ratelimit_namespace default { }';
    return (%decided, rules => $rules);
}

sub statuses { my ($node, $times, @of) = @_; return join ' ', map { $node->hit(@of) } 1 .. $times }

# Sends a request; returns without waiting for the response.
sub ask {
    my ($node, @of) = @_;
    my $socket = $node->connection or die "no connection: $!\n";
    my $path   = Node::path(@of);
    syswrite $socket, "GET $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    return $socket;
}

sub answered {
    my ($socket) = @_;
    local $/;
    return (<$socket> // '') =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'no answer';
}

sub metric {
    my ($node, $name) = @_;
    return $node->body('/metrics') =~ /^\Q$name\E\{namespace="api"\} (\d+)$/m ? $1 : -1;
}

sub window_tests {
    my $label = $store->label;
    for my $algorithm (qw(moving rate)) {
        subtest "$label: of 4 workers on each of two nodes, $algorithm: exactly the limit" => sub {
            $store->be_empty;
            $_->start(decided({hit => $rule{$algorithm}->(300)}), workers => 4) for @nodes;
            my @sums  = map { $_->(500) } map { ($a->load('k'), $b->load('k')) } 1, 2;
            my $total = sum0(map { $_->{200} + $_->{429} } @sums);
            cmp_ok($total, '>=', 1500, "of $total requests");
            is(sum0(map { $_->{200} } @sums), 300, '300 are admitted');
            is(sum0(map { $_->{lost} } @sums), 0, 'and none lost');
            stop();
        };
    }

    subtest "$label: as hits leave, others are admitted, and never one too many" => sub {
        $store->be_empty;
        my %rules = (moving => 'api limit=40/200ms window=moving', rate => 'api rate=200/1s burst=39');
        for my $algorithm (sort keys %rules) {
            $_->start(decided({hit => $rules{$algorithm}}), workers => 4) for @nodes;
            # All hits are made between $begin and the end of the loop.
            my ($begin, $admitted) = (time, 0);
            # On a fast machine, the whole limit can be used before the first hit leaves the window.
            while ($admitted <= 40 && time - $begin < 10) {
                my @sums = map { $_->(300) } map { ($a->load('k'), $b->load('k')) } 1, 2;
                $admitted += sum0(map { $_->{200} } @sums);
            }
            my $millis = 1000 * (time - $begin);
            my $most = $algorithm eq 'moving' ? 40 * (1 + int($millis / 201)) : 40 + $millis / 5;
            cmp_ok($admitted, '<=', $most, sprintf '%s: %d in %d ms', $algorithm, $admitted, $millis);
            cmp_ok($admitted, '>', 40, 'and more than at once');
            stop();
        }
    };

    subtest "$label: what limits say of each algorithm" => sub {
        $store->be_empty;
        my %rules;
        for my $algorithm (@algorithms) {
            my $three = $rule{$algorithm}->(3);
            $rules{$algorithm} = "$three counter=default";
            $rules{"$algorithm-ask"}  = "$three counter=default cost=0";
            $rules{"$algorithm-cost"} = "$three counter=default cost=\$arg_c";
            $rules{"$algorithm-late"} = "$three counter=default charge=\$arg_c";
            $rules{"$algorithm-told"} = "$three counter=default; ratelimit_headers draft03 legacy";
            $rules{"$algorithm-dry"}  = "$three; ratelimit_dry_run on";
            $rules{"$algorithm-all"}  = "$three; ratelimit_count_rejected on";
            $rules{"$algorithm-here"} = "$three counter=default; ratelimit limit=1/366d window=fixed";
        }
        my $variables = join ' ', map {"\$ratelimit_$_"} qw(namespace policy limit window rate remaining);
        my %more = (
            server  => qq(add_header Variables "$variables" always;),
            workers => 2,
        );
        $_->start(decided(\%rules), %more) for @nodes;
        for my $algorithm (@algorithms) {
            my ($name, $window) = $algorithm eq 'rate' ? ('api-rate', 94867200) : ('api-366d', 31622400);
            is_deeply([map { $_->hit($algorithm => 'k') } $a, $b, $a, $b, $a], [200, 200, 200, 429, 429], "$algorithm: three of two nodes");
            is($b->rate("$algorithm-ask" => 'k'), $a->rate("$algorithm-ask" => 'k'), 'both know the same');
            is($a->hit($algorithm => 'h'), 200, 'a hit');
            is($a->last('RateLimit-Policy'), qq("$name";q=3;w=$window), 'the policy');
            my $reset = {moving => 31622401, elastic => 31622400, rate => 31622400}->{$algorithm};
            is($a->last('RateLimit'), qq("$name";r=2;t=$reset), 'the remaining hits');
            is($a->last('Retry-After'), undef, 'no time to wait');
            is($a->last('Variables'), "api $name 3 $window 1 2", 'variables');
            is($b->hit("$algorithm-told" => 'h'), 200, 'a hit that is told of in other headers');
            is_deeply([map { $b->last("RateLimit-$_") } qw(Limit Remaining)], [3, 1], 'draft03');
            like($b->last('RateLimit-Reset'), qr/^(?:316|632)\d{5}\z/, 'when all is there again');
            is_deeply([map { $b->last("X-RateLimit-$_-$window") } qw(Limit Remaining)], [3, 1], 'legacy');
            is(statuses($b, 2, $algorithm => 'h'), '200 429', 'up to the limit');
            like($b->last('RateLimit'), qr/^"$name";r=0;t=316\d{5}\z/, 'when there is room');
            like($b->last('Retry-After'), qr/^316\d{5}\z/, 'and when to come back');
            is(join(' ', map { $a->hit("$algorithm-cost" => 'c', "c=$_") } 0.5, 0, 2.5, 0, 4), '200 200 200 429 429', 'costs');
            is($a->last('Retry-After'), undef, 'never');
            is($a->hit("$algorithm-late" => 'l', 'c=2'), 200, 'hits that are known with the response');
            eventually(sub { 0 + sprintf '%.0f', $b->rate("$algorithm-ask" => 'l') }, 2, 'are counted then');
            is($b->hit("$algorithm-late" => 'l', 'c=2'), 200, 'below the limit');
            eventually(sub { $a->hit("$algorithm-late" => 'l', 'c=0') }, 429, 'and above it');
            is(join(' ', map { $a->status("$algorithm-dry" => 'd') } 1 .. 4), 'PASSED PASSED PASSED REJECTED_DRY_RUN', 'a dry run');
            is(statuses($a, 4, "$algorithm-all" => 'r'), '200 200 200 429', 'with those that are rejected');
            # The level of a rate never exceeds the number of hits that are admitted at once.
            my $counted = $algorithm eq 'rate' ? 3 : 5;
            is(sprintf('%.0f', $a->rate("$algorithm-all" => 'r')), $counted, 'they count');
            is(statuses($a, 3, "$algorithm-here" => "g-$algorithm"), '200 429 429', 'a limit of the node');
            eventually(sub { sprintf '%.0f', $b->rate("$algorithm-ask" => "g-$algorithm") }, 1, 'what that rejects is given back');
        }
        stop();
    };

    subtest "$label: several limits of different algorithms charge a request all or none" => sub {
        $store->be_empty;
        my @limits = (
            'api limit=9/366d window=moving', 'api limit=9/366d window=elastic', 'api rate=1/366d burst=8',
            'api limit=9/366d window=fixed',
        );
        my %tightest = (
            moving  => 'api limit=3/365d window=moving',
            elastic => 'api limit=3/365d window=elastic',
            rate    => 'api rate=1/365d burst=2',
        );
        my %rules = map { ($_ => join '; ratelimit ', @limits, $tightest{$_}) } @algorithms;
        $rules{"ask-$_"} = "$limits[$_] cost=0" for 0 .. 3;
        $_->start(decided(\%rules), workers => 1) for @nodes;
        for my $algorithm (@algorithms) {
            is(statuses($a, 5, $algorithm => $algorithm), '200 200 200 429 429', "$algorithm refuses");
            is(sprintf('%.0f', $b->rate("ask-$_" => $algorithm)), 3, "charged by $limits[$_]") for 0 .. 3;
        }
        stop();
    };

    subtest "$label: a rate holds requests of all nodes back" => sub {
        $store->be_empty;
        my %rules = (
            slow => 'api rate=1/366d burst=99 delay=all',
            hit  => 'api rate=20/1s burst=9 delay=all',
            part => 'api rate=1/365d burst=3 delay=2',
        );
        $_->start(decided(\%rules), workers => 1) for @nodes;
        my $begin   = time;
        my @sockets = map { ask($_, hit => 'k') } ($a, $b) x 5;
        is_deeply([map { answered($_) } @sockets], [(200) x 10], 'a burst goes on');
        # The time of nine hits, minus a tolerance for rounding.
        cmp_ok(time - $begin, '>=', 0.44, 'at the rate');
        is(statuses($a, 3, part => 'k'), '200 200 200', 'at once');
        my $before = metric($b, 'ratelimit_delayed_total');
        my $held   = ask($b, part => 'k');
        $b->wait_for('the fourth', sub { metric($b, 'ratelimit_delayed_total') > $before });
        is($a->hit(part => 'k'), 429, 'the fifth is rejected at once');
        ok(!IO::Select->new($held)->can_read(0), 'the fourth waits');
        close $held;

        is($a->hit(slow => 'k'), 200, 'the first');
        my $delayed = metric($a, 'ratelimit_delayed_total');
        my @held    = map { ask($a, slow => 'k') } 1 .. 20;
        eventually(sub { metric($a, 'ratelimit_delayed_total') - $delayed }, 20, 'those after it wait');
        my @workers = $a->workers;
        close $_ for @held;
        is($a->hit(part => 'other'), 200, 'clients may leave');
        is_deeply([$a->workers], \@workers, 'the worker lives');
        # A graceful stop waits for requests.
        stop();
    };

    subtest "$label: streams of HTTP/2 that a rate holds back" => sub {
        $store->be_empty;
        my ($minor, $patch) = qx('$binary' -v 2>&1) =~ m{nginx/1\.(\d+)\.(\d+)} or die "no version of nginx\n";
        my $is_directive = $minor > 25 || $minor == 25 && $patch >= 1;
        my $address      = '127.0.0.1:' . ($port + 5);
        $a->start(
            decided({hit => 'api rate=20/1s burst=9 delay=all', few => 'api limit=3/366d window=moving'}),
            server  => $is_directive ? "listen $address; http2 on;" : "listen $address http2;",
            workers => 1,
        );
        my $exchange = sub {
            my $urls   = join ' ', map {"'http://$address$_'"} @_;
            my $output = qx(nghttp --null-out --verbose --timeout=20 --no-dep $urls 2>&1);
            return join ' ', sort $output =~ /:status: (\d+)/g;
        };
        my $begin = time;
        is($exchange->(map {"/hit/k?n=$_"} 1 .. 8), join(' ', (200) x 8), 'all are admitted');
        cmp_ok(time - $begin, '>=', 0.3, 'the last not before its time');
        is($exchange->(map {"/few/k?n=$_"} 1 .. 5), '200 200 200 429 429', 'others, at once');
        stop();
    };

    subtest "$label: a reload, and a graceful stop, while requests are held back" => sub {
        $store->be_empty;
        my %conf = decided({hit => 'api rate=2/1s burst=9 delay=all'});
        $a->start(%conf, workers => 1);
        is($a->hit(hit => 'k'), 200, 'the first');
        my $held = ask($a, hit => 'k');
        $a->reload(%conf);
        is(answered($held), 200, 'the second, by whichever worker has it');
        my @held = map { ask($a, hit => 'k') } 1, 2;
        $a->wait_for('one to wait', sub { metric($a, 'ratelimit_delayed_total') > 1 });
        kill QUIT => $a->{master};
        is(answered($_), 200, 'answered') for @held;
        $a->wait_for('the end', sub { $a->ended });
        is_deeply([$a->grave_lines], [], 'nothing grave in the log');
        delete $a->{master};
    };

    my %on_error = (local => '200 200 429', allow => '200 200 200', deny => '503 503 503');
    for my $what (sort keys %on_error) {
        subtest "$label: without the store: on_error $what" => sub {
            $store->be_away;
            my %rules = map { ($_ => $rule{$_}->(2), "ask-$_" => $rule{$_}->(2) . ' cost=0') } @algorithms;
            $rules{late}       = 'api limit=100/365d window=moving charge=3';
            $rules{'ask-late'} = 'api limit=100/365d window=moving cost=0';
            $a->start(decided(\%rules, namespace => "on_error $what; timeout 100ms;"));
            is(statuses($a, 3, $_ => 'k'), $on_error{$what}, $_) for @algorithms;
            is($a->last('Status'), 'ERROR', 'is said');
            $a->hit(late => 'k');
            $store->start;
            my $asked = 0;
            for my $of (@algorithms) {
                # Each attempt uses a new key, because hits that are admitted before then count later.
                eventually(sub { $a->status($of => 'back-' . ++$asked) }, 'PASSED', "$of: the store is back");
            }
            if ($what eq 'local') {
                $b->start(decided(\%rules));
                my %charged = ((map { ($_ => 2) } @algorithms), late => 3);
                for my $of (sort keys %charged) {
                    my $rate = sub { sprintf '%.0f', $b->rate("ask-$of" => 'k') };
                    eventually($rate, $charged{$of}, "$of: what was admitted without it is charged");
                }
                is(statuses($b, 1, $_ => 'k'), '429', "$_: and nothing more admitted") for @algorithms;
            }
            stop($lost);
        };
    }
}

1;
