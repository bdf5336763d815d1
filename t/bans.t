# Tests how bans are kept and seen: the log, the API, metrics, ratelimitctl; a reload, a killed worker, a full zone;
# and two nodes with a store (see lib/BanTests.pm). t/ban.t has single requests.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2 to + 4. Bans last for hours, so that none ends.

use strict;
use warnings;

use FindBin;
use JSON::PP;
use Test::More;

use lib "$FindBin::Bin/lib";
use BanTests;
use Node;
use Postgres;
use Redis;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n" if !Postgres::is_there();

my ($a) = @nodes;
my $api = 'location /rw/ { ratelimit off; ratelimit_api write=on; }';

# Returns the answer of the API of node a as a value.
sub asked {
    my ($method, $path) = @_;
    my $socket = $a->connection or die "no connection\n";
    print $socket "$method /rw/namespaces/default/$path HTTP/1.0\r\n\r\n";
    my $text = do { local $/; <$socket> };
    my ($status, $body) = $text =~ m{\AHTTP/1\.\d (\d+) .*?\r\n\r\n(.*)\z}s or die "no answer: $text\n";
    return wantarray ? (decode_json($body), $status) : decode_json($body);
}

sub ratelimitctl {
    my (@arguments) = @_;
    my $program = "$FindBin::Bin/../scripts/ratelimitctl";
    return `$program -a http://127.0.0.1:$a->{port}/rw/ -n default @arguments 2>&1`;
}

my %rules = (
    hit   => 'limit=1/366d ban=5h ban_after=2 name=first',
    named => 'limit=9/366d counter=login; ratelimit limit=1/366d counter=named ban=6h',
    dry   => 'limit=1/366d key=dry-$key ban=7h dry_run=on',
    twin  => 'limit=1/366d counter=twin ban=6h dry_run=on',
);

subtest 'the log, and the metrics' => sub {
    $a->start(rules => \%rules, server => $api);
    is_deeply([map { $a->hit(hit => 'k') } 1 .. 5], [200, 429, 429, 429, 429], 'a ban');
    my $key = qr/"first", namespace "default", key "k"/;
    is($a->logged(qr/\[error\] .*ratelimit: banned for 5h by $key, rule nginx\.conf:\d+,/), 1, 'one line tells of it');
    is($a->logged(qr/\[error\] .*ratelimit: rejected by $key, limit 1, rate 2, cost 1, rule nginx\.conf:\d+,/), 2, 'rejections before');
    is($a->logged(qr/\[error\] .*ratelimit: rejected by $key, banned, limit 1, rule nginx\.conf:\d+,/), 2, 'and after');
    is(TwoNodes::metric($a, 'ratelimit_bans{namespace="default"}'), 1, 'the present ones');
    is(TwoNodes::metric($a, 'ratelimit_banned_requests_total{namespace="default"}'), 2, 'their requests');
    is(TwoNodes::metric($a, 'ratelimit_requests_total{namespace="default",result="rejected"}'), 4, 'are rejected ones');
    is(TwoNodes::metric($a, 'ratelimit_rejected_total{namespace="default",policy="first"}'), 4, 'by their policy');
    $a->stop;
};

subtest 'the API' => sub {
    $a->start(rules => \%rules, server => $api);
    $a->hit(hit => 'a b') for 1 .. 3;
    $a->hit(named => 'k') for 1 .. 2;
    $a->hit(dry => 'd') for 1 .. 2;
    $a->hit(twin => 't') for 1 .. 2;
    $a->hit(hit => 'free') for 1 .. 2;
    my %bans = map { $_->{key} => $_ } @{asked('GET', 'bans')->{bans}};
    is_deeply([sort keys %bans], [qw(a%20b dry-d k t)], 'the banned keys');
    my $time = time;
    my $of   = $bans{'a%20b'};
    is_deeply([@$of{qw(name counter dry_run)}], ['first', undef, JSON::PP::false], 'a rule');
    like($of->{rule}, qr/^nginx\.conf:\d+\z/, 'its place');
    cmp_ok(abs($of->{until} - $time - 5 * 3600), '<', 60, 'and its end');
    is_deeply([@{$bans{k}}{qw(name counter)}], ['default-366d-2', 'named'], 'a counter');
    is($bans{'dry-d'}{dry_run}, JSON::PP::true, 'a dry run');
    is_deeply([@{$bans{t}}{qw(counter dry_run)}], ['twin', JSON::PP::true], 'a rule that differs by its counter');
    is(@{asked('GET', 'bans?limit=2')->{bans}}, 2, 'a part');
    my ($rule) = grep { $_->{banned_until} } @{asked('GET', 'keys/k/explain')->{rules}};
    is($rule->{counter}, 'named', 'an explanation');
    is($rule->{limits}[0]{admitted}, JSON::PP::false, 'of the limit');
    is($rule->{limits}[0]{until} >= $rule->{banned_until}, 1, 'which admits no request before the end');
    my ($top) = grep { $_->{key} eq 'a%20b' } @{asked('GET', 'top')->{keys}};
    cmp_ok($top->{until}, '>=', $of->{until}, 'top, too');
    my ($listed) = grep { $_->{ban} && $_->{limits}[0]{name} eq 'first' } @{asked('GET', 'rules')->{rules}};
    is_deeply($listed->{ban}, {time => 18000, after => 2}, 'a rule of the configuration');

    my ($lifted, $status) = asked('DELETE', 'bans/a%20b');
    is($status, 200, 'a ban is lifted');
    is_deeply([map { $_->{rule} } @{$lifted->{lifted}}], [$of->{rule}], 'which the answer says');
    is_deeply(scalar asked('DELETE', 'bans/a%20b'), {lifted => []}, 'once');
    is_deeply([map { $a->hit(hit => 'a b') } 1, 2], [429, 429], 'the limit rejects the key');
    is($a->hit(hit => 'a b'), 429, 'and bans it again');
    is(@{asked('GET', 'bans')->{bans}}, 4, 'as before');
    is_deeply([(asked('DELETE', 'bans?key=k'))[1], (asked('DELETE', 'bans'))[1], (asked('POST', 'bans/k'))[1]],
        [200, 400, 405], 'other calls');
    is((asked('GET', 'bans?limit=x'))[1], 400, 'a wrong number');
    is(asked('DELETE', 'keys/a%20b')->{reset}[0]{rate}, 1, 'a reset of the key');
    is($a->hit(hit => 'a b'), 429, 'lifts no ban');
    $a->stop;
};

subtest 'ratelimitctl' => sub {
    $a->start(rules => \%rules, server => $api);
    $a->hit(hit => 'k') for 1 .. 3;
    like(ratelimitctl('bans'), qr/\ARULE +LIMIT +ENDS IN +COUNTER +KEY\nnginx\.conf:\d+ +first +1\d{4} s +- +k\n\z/, 'bans');
    like(ratelimitctl('lift', 'k'), qr/\ALIFTED THE BAN BY +COUNTER\nnginx\.conf:\d+ +default\n\z/, 'lift');
    is(ratelimitctl('lift', 'k'), "The key was not banned in namespace default.\n", 'again');
    is(ratelimitctl('bans'), "RULE  LIMIT  ENDS IN  COUNTER  KEY\n", 'no bans');
    $a->stop;
};

subtest 'a reload and killed workers keep bans, and a rule without ban= ends them' => sub {
    $a->start(rules => \%rules, server => $api, workers => 2);
    $a->hit(hit => "k$_") for map { ($_) x 3 } 1 .. 20;
    my $banned = sub { scalar @{asked('GET', 'bans')->{bans}} };
    is($banned->(), 20, 'banned');
    $a->reload(rules => {%rules, more => 'limit=1/1d'}, server => $api, workers => 2);
    is($banned->(), 20, 'after a reload');
    my @killed = $a->workers;
    kill KILL => @killed;
    $a->wait_for('other workers', sub { my @now = $a->workers; @now == 2 && !grep { my $it = $_; grep { $it == $_ } @killed } @now });
    is($banned->(), 20, 'after a kill');
    my @statuses = map { $a->hit(hit => "k$_"); $a->last('Retry-After') } 1 .. 20;
    is(scalar(grep { $_ && $_ > 17000 && $_ < 18001 } @statuses), 20, 'which rejects their requests');
    (my $without = $rules{hit}) =~ s/ ban=.*?(?= name)//;
    $a->reload(rules => {%rules, hit => $without}, server => $api, workers => 2);
    is($banned->(), 0, 'none without the parameter');
    $a->stop($killed);
};

subtest 'a flood of other keys leaves bans alone while it can' => sub {
    $a->start(rules => {%rules, flood => 'limit=9/366d counter=flood'}, zone => '256k', server => $api);
    $a->hit(hit => "banned-$_") for map { ($_) x 3 } 1 .. 30;
    my $load = $a->load(map {"flood-$_"} 1 .. 8000);
    $load->(8000);
    cmp_ok(TwoNodes::metric($a, 'ratelimit_zone_evicted_total{zone="counters",state="sent"}'), '>', 1000, 'keys are evicted');
    is(scalar @{asked('GET', 'bans')->{bans}}, 30, 'no ban is');
    $a->stop;
};

for my $each (Redis->new(port => $port + 4), Postgres->new(port => $port + 4)) {
    $store = $each;
    ban_tests();
    $store->kill;
}

done_testing();
