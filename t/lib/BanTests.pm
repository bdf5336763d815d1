# Tests of bans that two nodes share. Every store runs the same tests.

package BanTests;

use strict;
use warnings;

use Exporter qw(import);
use Node;
use Test::More;
use TwoNodes;

our @EXPORT = qw(ban_tests);

my ($a, $b) = @nodes;
my $api = 'location /rw/ { ratelimit off; ratelimit_api write=on; }';

# Returns the number of bans that a node knows.
sub bans { my ($node) = @_; return () = $node->body('/rw/namespaces/api/bans') =~ /"until":/g }

sub ban_tests {
    my $label = $store->label;
    for my $mode (['a period' => conf(sync_rate => '1h')], ['each decision' => synchronous()]) {
        my ($what, %conf) = @$mode;
        $conf{rules} = {hit => 'api limit=3/366d window=fixed ban=5h', ask => 'api limit=1000/366d window=fixed cost=0 counter=default',
            # Shares the bans of the first, and counts nothing.
            probe => 'api limit=3/366d window=fixed ban=5h cost=0 counter=default'};
        subtest "$label, $what: a ban of one node is one of both, and so is its end" => sub {
            $store->be_empty;
            $_->start(%conf, server => $api) for @nodes;
            $_->wait_for_first_sync for @nodes;
            $a->wait_for('the store', sub { $a->status(ask => 'reached') eq 'PASSED' });
            $a->hit(hit => 'k') for 1 .. 4;
            is(bans($a), 1, 'a node bans');
            # Otherwise, the other node could learn them later than the ban, and ban the key once more.
            my $known = sub { written($_, 'POST', 'sync') for $a, $b; return $b->rate(ask => 'k') };
            eventually($known, 3, 'the other node knows the hits');
            # The limit has room again, but the ban stays.
            written($a, 'DELETE', 'keys/k');
            eventually(sub { $b->rate(ask => 'k') }, 0, 'the count is zero');
            # A store without a channel tells of a ban with the next sync.
            my $probed = sub {
                my ($node) = @_;
                return sub {
                    written($node, 'POST', 'sync') if !$store->can('listeners');
                    return $node->hit(probe => 'k');
                };
            };
            eventually($probed->($b), 429, 'the other node knows, and rejects');
            cmp_ok($b->last('Retry-After'), '>', 17000, 'until the end of the ban');
            is(bans($b), 1, 'which it lists');
            is(TwoNodes::metric($b, 'ratelimit_bans{namespace="api"}'), 1, 'and counts');
            like(written($b, 'DELETE', 'bans/k'), qr/"lifted":\[\{/, 'it lifts it');
            eventually($probed->($_), 200, "$_->{name} admits") for $b, $a;
            is(bans($_), 0, 'and lists none') for $a, $b;
            stop();
        };

        subtest "$label, $what: both ban a key at once" => sub {
            $store->be_empty;
            $_->start(%conf, server => $api) for @nodes;
            $_->wait_for_first_sync for @nodes;
            $store->pause;
            for my $node (@nodes) { $node->hit(hit => 'k') for 1 .. 4 }
            $store->go_on;
            # Each node knows the other's ban when it knows its hits.
            for my $node (@nodes) {
                $node->wait_for('the ban', sub { written($node, 'POST', 'sync'); bans($node) == 1 });
                $node->hit(hit => 'k');
                my $wait = $node->last('Retry-After');
                ok($wait > 17000 && $wait <= 18000, "one ban, for $wait s");
            }
            stop(qr/$lost|$back/);
        };
    }
}

# Makes a call of a node's API that writes; returns the answer.
sub written {
    my ($node, $method, $path) = @_;
    my $socket = $node->connection or return '';
    print $socket "$method /rw/namespaces/api/$path HTTP/1.0\r\n\r\n";
    return join '', <$socket>;
}

1;
