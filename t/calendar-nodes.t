# Tests calendar windows of two nodes that share a store: with a sync each 100 ms, and where the store decides. The
# nodes name their zones in different places. src/engine/tests/sync/calendar.rs tests the ends of windows, and clocks
# that differ.
#
# This is a plain Perl test, like cluster.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum0);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Postgres;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n"     if !Postgres::is_there();

my ($a, $b) = @nodes;

# No window ends during the test: midnight is at 15:00 UTC in Tokyo.
my $zone = (gmtime)[2] == 14 ? 'Europe/Berlin' : 'Asia/Tokyo';

# Returns the configurations of both nodes, with these options of `conf`.
sub calendars {
    my %options = @_;
    my $limit   = delete $options{hits};
    return map {
        my ($tz, $level) = @$_;
        my %conf = conf(%options);
        my $rule = "api limit=$limit/month limit=1000000/week limit=1000000/1d window=fixed$tz";
        $conf{http} .= $level;
        $conf{rules} = {hit => $rule, ask => "$rule cost=0", other => 'api limit=5/month tz=Pacific/Apia'};
        \%conf;
    } [" tz=$zone", ''], ['', "ratelimit_timezone $zone;"];
}

for my $each (Redis->new(port => $port + 4), Postgres->new(port => $port + 4)) {
    $store = $each;
    my $label = $store->label;

    subtest "$label: nodes that sync count in one window" => sub {
        $store->be_empty;
        my @conf = calendars(hits => 1000, sync_rate => '0.1');
        $a->start(%{$conf[0]});
        $b->start(%{$conf[1]});
        $a->hit(hit => 'k') for 1 .. 3;
        $b->hit(hit => 'k') for 1 .. 4;
        eventually(sub { $_->rate(ask => 'k') }, 7, "$_->{name} knows the hits of both") for @nodes;
        is($a->rate(other => 'k'), 1, 'another zone is another window');
        $a->reload;
        eventually(sub { $a->rate(ask => 'k') }, 7, 'a reload changes nothing');
        $b->hit(hit => 'k');
        eventually(sub { $a->rate(ask => 'k') }, 8, 'and what the other one counts is known again');
        stop();
    };

    subtest "$label: where the store decides, both nodes together get exactly the limit" => sub {
        $store->be_empty;
        my @conf = calendars(hits => 200, sync_rate => 0, namespace => 'timeout 5s;');
        $a->start(%{$conf[0]});
        $b->start(%{$conf[1]});
        $_->wait_for('the store', sub { $_->status(ask => 'reached') eq 'PASSED' }) for @nodes;
        my @sums = map { $_->(200) } map { $_->load('k') } @nodes;
        is(sum0(map { $_->{200} } @sums), 200, 'admitted hits');
        is($_->rate(ask => 'k'), 200, "are what $_->{name} knows") for @nodes;
        is($a->status(hit => 'k'), 'REJECTED', 'and no more are');
        stop();
    };
    $store->kill;
}

done_testing();
