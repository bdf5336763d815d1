# Tests the API of namespaces whose store decides (`sync_rate 0`), with each kind of store: exact limits across
# nodes, resets of keys, and responses while the store is down or the worker exits.
#
# This is a plain Perl test, because it needs several nginx instances. It uses the ports TEST_NGINX_PORT + 2 to + 9.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Api;
use Node;
use Postgres;
use Proxy;
use Redis;
use RedisCluster;
use TwoNodes;

die "redis-server is not installed\n" if !Redis::is_there();
die "postgres is not installed\n" if !Postgres::is_there();

my ($a, $b) = @nodes;

# The arguments for a limit of 5 hits, by algorithm.
my %limits = (
    (map { ($_ => "window_type=$_&limit=5") } qw(sliding fixed elastic moving)),
    rate => 'rate=1/366d&burst=4',
);

my @of_store;    # more of the configuration
my $number = 0;

# Returns a key that no other test uses.
sub new_key { return 'key-' . ++$number }

sub api_conf {
    my %conf = synchronous(@of_store, @_);
    $conf{rules}{bucket} = 'api rate=1/366d burst=4';
    $conf{rules}{login}  = 'api limit=5/366d window=fixed counter=login';
    return (%conf, server => $with_api, zone => '5m');
}

# Waits for a response; returns these fields of it, or the status if there is no object.
sub fields {
    my ($answer, @fields) = @_;
    my ($status, $object) = @$answer;
    return "$status: " . ($object->{error} // '') if $status ne '200';
    return join ' ', map { $object->{$_} // 'null' } @fields;
}

# Returns what the response to DELETE reports as set to zero.
sub told {
    my ($status, $object) = @_;
    my @told = map { ($_->{counter} ? "$_->{counter}:" : '') . "$_->{window_type}=$_->{rate}" } @{$object->{reset} // []};
    return "$status: @{[sort @told]}";
}

sub post { my ($node, $key, $query) = @_; return [api($node, POST => "api/keys/$key?$query")] }

# Returns the count of a key in the store, for each kind of limit.
sub counted {
    my ($node, $key) = @_;
    my %counted;
    for my $kind (sort keys %limits) {
        $counted{$kind} = fields(post($node, $key, "$limits{$kind}&value=0"), 'rate') + 0;
    }
    return \%counted;
}

sub with_all { my ($value) = @_; return {map { $_ => $value } keys %limits} }

sub decision_tests {
    my $label = $store->label;
    $store->be_empty;
    $_->start(api_conf()) for @nodes;

    subtest "$label: a limit over HTTP admits exactly as much" => sub {
        for my $kind (sort keys %limits) {
            my $key      = new_key();
            my @answers  = map { post($_ % 2 ? $a : $b, $key, $limits{$kind}) } 1 .. 7;
            my @admitted = map { $_->[1]{admitted} ? 1 : 0 } @answers;
            is("@admitted", '1 1 1 1 1 0 0', "$kind: in turn") or diag(fields($answers[0]));
            is(fields($answers[1], qw(rate remaining)), '2 3', 'the counted and the remaining hits');
            is(fields($answers[6], qw(rate remaining)), '5 0', 'of what is refused nothing is');

            my $many = new_key();
            my @begun = map { begin_api($_ % 2 ? $a : $b, POST => "api/keys/$many?$limits{$kind}&value=0.5") } 1 .. 40;
            @answers = map { [$_->()] } @begun;
            is(scalar(grep { $_->[1]{admitted} } @answers), 10, 'at once, by two nodes');
            is_deeply([grep { $_->[0] ne '200' } @answers], [], 'all are answered');
        }
    };

    subtest "$label: increments, rules and limits count in the same counters" => sub {
        my $key = new_key();
        $a->hit(hit => $key) for 1, 2;
        is(fields(post($b, $key, 'window_type=fixed&value=4.5'), qw(rate diff sync admitted)), '6.5 0 6.5 null',
            'an increment counts, whatever the limit');
        is(fields(post($a, $key, 'window_type=fixed&limit=6.5&value=0'), qw(rate admitted)), '6.5 0', 'as all know');
        is($a->rate(ask => $key), 6.5, 'and so do rules');
        is((post($a, $key, 'window=1m&limit=1'))->[0], 400, 'a window that is none of the namespace');
        is((post($a, $key, 'counter=login&window_type=fixed&limit=5'))->[1]{rate}, 1, 'another counter');
        is((post($a, $key, 'counter=none&window_type=fixed'))->[0], 404, 'one that no rule has');
    };

    subtest "$label: DELETE sets a key to zero" => sub {
        my ($key, $other) = (new_key(), new_key());
        for my $of ($key, $other) {
            post($b, $of, "$limits{$_}&value=3") for sort keys %limits;
        }
        my @answer = api($a, DELETE => "api/keys/$key?window_type=moving");
        is(told(@answer), '200: moving=3', 'of one type');
        is_deeply(counted($b, $key), {%{with_all(3)}, moving => 0}, 'and of no other');
        $a->hit(login => $key);
        @answer = api($a, DELETE => "api/keys/$key");
        is(told(@answer), '200: elastic=3 login:sliding=1 rate=3 sliding=3', 'of all, for all names of counters');
        is(fields([api($b, GET => "api/keys/$key?window_type=fixed&counter=login")], 'rate'), 0, 'and so elsewhere');
        is(told(api($b, DELETE => "api/keys/$key")), '200: ', 'nothing is left');
        is_deeply(counted($_, $key), with_all(0), "as $_->{name} is told") for $b, $a;
        is(counted($b, $other)->{moving}, 3, 'and no other key');
        my @more = map { post($b, $key, "$limits{moving}")->[1]{admitted} ? 1 : 0 } 1 .. 6;
        is("@more", '1 1 1 1 1 0', 'it begins anew');
        is(told(api($b, DELETE => 'api/keys/' . new_key())), '200: ', 'a key that is new');
        is((api($b, DELETE => "api/keys/$key?counter=none"))[0], 404, 'a counter that no rule has');

        my $limited = new_key();
        post($a, $limited, 'window_type=fixed&value=1000000');
        $a->hit(hit => $limited);
        is($a->hit(hit => $limited), 429, 'a request is refused');
        is([api($a, DELETE => "api/keys/$limited")]->[0], 200, 'its key is set to zero');
        is($a->hit(hit => $limited), 200, 'so that it is not');
    };

    subtest "$label: DELETE before a node has synced with a store that came back empty" => sub {
        # A periodic sync may come first.
        for (1 .. 5) {
            my $key = new_key();
            $store->flush;
            post($b, $key, "$limits{$_}&value=3") for sort keys %limits;
            my @answer = api($a, DELETE => "api/keys/$key");
            is($answer[0], 200, 'it is answered');
            is_deeply(counted($_, $key), with_all(0), "as $_->{name} is told") for $b, $a;
        }
    };

    subtest "$label: a key that is read is read there" => sub {
        for my $kind (sort keys %limits) {
            my $key = new_key();
            post($a, $key, "$limits{$kind}&value=3");
            is(fields([api($b, GET => "api/keys/$key?$limits{$kind}")], qw(rate remaining admitted)), '3 2 null', $kind);
        }
        is(fields([api($b, GET => 'api/keys/' . new_key())], qw(rate current diff sync)), '0 0 0 0', 'one that is new');
    };

    subtest "$label: two nodes that set a key to zero at once" => sub {
        for (1 .. 10) {
            my $key = new_key();
            post($a, $key, "$limits{$_}&value=5") for sort keys %limits;
            my @begun = map { begin_api($_, DELETE => "api/keys/$key") } $a, $b;
            is(($_->())[0], 200, 'is answered') for @begun;
            eventually(sub { counted($a, $key) }, with_all(0), 'it is zero');
            is(fields(post($b, $key, 'window_type=fixed'), 'rate'), 1, 'and a hit counts');
        }
    };

    stop();
}

sub absence_tests {
    my $label = $store->label;
    my %sequences = (
        local => ['1 1', '2 1', '2 0'],
        allow => ['0 1', '0 1', '0 1'],
        deny  => [('503: the store has not answered in time: on_error deny refuses the hits') x 3],
    );
    for my $on_error (sort keys %sequences) {
        subtest "$label is away, on_error $on_error" => sub {
            $store->be_empty;
            my $namespace = "timeout 500ms; on_error $on_error;";
            $a->start(api_conf(namespace => $namespace, times => 'timeout 500ms; connect_timeout 500ms;'));
            my $key = new_key();
            for my $kind (qw(moving rate fixed)) {
                eventually(sub { fields(post($a, "ready-$key", $limits{$kind} . '&value=0'), qw(rate admitted)) }, '0 1', 'ready');
            }
            $store->pause;
            my $limit   = 'window_type=moving&limit=2';
            my @answers = map { post($a, $key, $limit) } 1 .. 3;
            is_deeply([map { fields($_, qw(rate admitted)) } @answers], $sequences{$on_error}, 'a limit');
            is(fields([api($a, DELETE => "api/keys/$key")]),
                '503: the store has not answered in time: the key may not be zero', 'DELETE');
            is(fields(post($a, $key, 'window_type=fixed&value=2'), 'rate'), $on_error eq 'deny' ? $sequences{deny}[0] : 2,
                'an increment');
            $store->go_on;
            eventually(sub { [api($a, DELETE => "api/keys/$key")]->[0] }, 200, 'it is back');
            eventually(sub { fields(post($a, new_key(), $limit), qw(rate admitted)) }, '1 1', 'and decides');
            stop($lost);
        };
    }

    subtest "$label: what waits is answered when the worker ends" => sub {
        my @calls = map { ["api/keys/k?$_", 'POST'] } 'window_type=moving&limit=2', 'window_type=fixed&value=2';
        push @calls, ['api/keys/k', 'DELETE'], ['api/sync', 'POST'];
        my %conf = api_conf(namespace => 'timeout 700ms; on_error local;', times => 'timeout 700ms; connect_timeout 700ms;');
        for my $end ('a reload', 'a reload of one process', 'QUIT', 'TERM') {
            $store->be_empty;
            $a->start(%conf, single => $end =~ /one/ ? 1 : 0, workers => 1);
            $a->hit(hit => 'k');
            api($a, POST => 'api/sync');
            $store->pause;
            my @begun = map { begin_api($a, $_->[1] => $_->[0]) } @calls;
            # When the worker answers a later request, it has read all earlier ones.
            $a->body('/api/');
            my $done = $end =~ /reload/ ? $a->begin_reload : undef;
            kill $end, $a->{master} if !$done;
            my @answers = map { [$_->()] } @begun;
            my @states  = map { $_->[0] } @answers;
            if ($end eq 'TERM') {
                is_deeply([grep { $_ ne 'no answer' } @states], [], "$end closes");
            }
            else {
                is("@states", '200 200 503 503', "$end lets all be answered") or diag(explain(\@answers));
            }
            $store->go_on;
            $done->() if $done;
            stop($lost);
        }
    } if !$store->isa('RedisCluster');
}

sub slow_tests {
    subtest 'DELETE waits for a slow store as long as each of its questions may take' => sub {
        $store->be_empty;
        my $proxy = Proxy->new(port => $port + 6, to => $store->{port});
        my %conf  = (namespace => 'timeout 390ms;', times => 'timeout 390ms; connect_timeout 5s;');
        $a->start(api_conf(%conf, server => "server 127.0.0.1:$proxy->{port};"));
        eventually(sub { [api($a, DELETE => 'api/keys/k')]->[0] }, 200, 'ready');
        # The sync and the question together take longer than the timeout.
        $proxy->delay(0.2);
        eventually(sub { [api($a, DELETE => 'api/keys/k')]->[0] }, 200, 'it is answered when the machine is not too busy');
        $proxy->stop;
        stop($lost);
    };
}

for my $kind (qw(Redis Postgres)) {
    $store = $kind->new(port => $port + 4);
    decision_tests();
    absence_tests();
    slow_tests() if $kind eq 'Redis';
    $store->kill;
}

$store    = RedisCluster->new(port => $port + 4);
@of_store = (server => $store->servers);
decision_tests();
$store->kill;

done_testing();
