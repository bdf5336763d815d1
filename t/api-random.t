# Sends random methods, paths and arguments to the API, for namespaces without a store, with a store, and with a
# store that decides. Tests that each response is JSON with a documented status, and that no worker exits or hangs.
#
# This is a plain Perl test. It prints the seed of its requests; the environment variable SEED repeats them. It uses
# the ports TEST_NGINX_PORT + 2 and + 4.

use strict;
use warnings;

use FindBin;
use JSON::PP qw(decode_json);
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Redis;

my $requests = 12_000;
my $seed     = $ENV{SEED} // int rand 2**31;
srand $seed;
diag("SEED=$seed");

die "redis-server is not installed\n" if !Redis::is_there();
my $port  = $ENV{TEST_NGINX_PORT} || 1984;
my $store = Redis->new(port => $port + 4);
$store->start;

# The timeouts are so long that the store never exceeds them.
my $node = Node->new(a => $port + 2);
$node->start(
    http => <<"    END",
        ratelimit_store main { strategy redis; server 127.0.0.1:$store->{port}; timeout 30s; connect_timeout 30s; }
        ratelimit_namespace api { window_sizes 1s 1m; }
        ratelimit_namespace open { }
        ratelimit_namespace synced { store main; sync_rate 50ms; window_sizes 1s 1m; }
        ratelimit_namespace asked { store main; sync_rate 0; timeout 30s; window_sizes 1s 1m; }
    END
    rules  => {
        hit      => 'api limit=5/1m limit=2/1m window=fixed',
        login    => 'api limit=$arg_limit/1m counter=login cost=$arg_cost charge=0.5',
        list     => 'open limits=$arg_limits default=1/1m',
        elastic  => 'open limit=9/1m window=elastic; ratelimit open limit=9/1m window=moving counter=login',
        synced   => 'synced limit=9/1m',
        bucket   => 'asked rate=5/1s',
        bucket2  => 'open rate=$arg_rate/1s burst=2 delay=1',
    },
    server => 'location /rw/ { ratelimit off; ratelimit_api write=on; }',
);
my @workers = $node->workers;

sub one_of { return $_[rand @_] }

# Returns random bytes, from $least on, for a path or arguments, in part percent-encoded. nginx itself refuses NUL,
# spaces and control characters that are not encoded, and an encoded NUL in a path; dots in a path could lead out of
# the API.
sub bytes {
    my ($least) = @_;
    return join '', map {
        my $byte = $least + int rand 256 - $least;
        $byte = ord 'x' if $least && chr($byte) eq '.';
        one_of(0, 1) && chr($byte) =~ /[A-Za-z0-9_.~-]/ ? chr $byte : sprintf '%%%02X', $byte;
    } 1 .. rand 12;
}

sub number {
    return one_of(
        0, 1, 2, 0.5, '0.0001', 100, 100_000, '140737488355.327', '140737488355.328', '9' x 40, '1e9', 'NaN', 'nan',
        'inf', 'Infinity', '-1', '-0', '%2B1', '0x10', '1.', '.5', '1..2', '%C2%B2', '+1', '', '1/1s',
        int rand 10_000, -int rand 1000, bytes(0)
    );
}

my %values = (
    window      => sub { one_of(1, 60, '1s', '1m', '1ms', '366d', '367d', '1M', '0', '-1s', 'NaN', '9' x 30, number()) },
    window_type => sub { one_of(qw(sliding fixed elastic moving rate Fixed), '', bytes(0)) },
    limit       => \&number,
    value       => \&number,
    rate        => sub { one_of('10/1s', '0.5/1m', '0/1s', '1/0s', '$a/1s', '10', '/', number() . '/1s', '10/' . number()) },
    burst       => \&number,
    counter     => sub { one_of('login', 'default', '', 'a:b', 'x' x 65, bytes(0)) },
    key         => sub { one_of('k', '', 'x' x 300, bytes(0)) },
    cost        => \&number,
    all         => sub { one_of('1', '1', '0', '', bytes(0)) },
    other       => sub { bytes(0) },
);

sub path {
    my $namespace = one_of(qw(api api open synced asked asked default none), bytes(1));
    return one_of(
        (map {"/namespaces/$namespace$_"} '', '/', '/sync', '/top', '/rules', '/keys', '/keys/', '/keys/explain', '/x'),
        (map {"/namespaces/$namespace/keys/$_/explain"} 'k', 'a/b', 'x' x 300, bytes(1)),
        ("/namespaces/$namespace/keys/" . one_of('k', 'k', 'a/b', 'x' x 300, bytes(1))) x 8,
        '', '/', '/health', '/namespaces', '/' . bytes(1), '/namespaces/' . bytes(1) . '/' . bytes(1),
    );
}

sub arguments {
    my @names = map { one_of(sort keys %values) } 1 .. rand 5;
    my @parts = map { rand 30 < 1 ? one_of($_, "$_=", '') : "$_=" . $values{$_}->() } @names;
    return join '&', @parts;
}

# Makes a request; returns the status, the headers and the body of the response.
sub answer {
    my ($method, $target) = @_;
    my $socket = $node->connection or return;
    print $socket "$method $target HTTP/1.0\r\nHost: localhost\r\n\r\n";
    local $/;
    my ($head, $body) = split /\r\n\r\n/, <$socket> // '', 2;
    return (($head // '') =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'none', $head, $body);
}

# A worker that hangs fails the test.
local $SIG{ALRM} = sub { BAIL_OUT("seed $seed: a request was not answered") };
alarm 500;

# Rules have counted these keys.
$node->hit($_ => 'k') for qw(hit login list elastic synced bucket bucket2);

my (%count, @wrong);
for (1 .. $requests) {
    my $method = one_of(qw(GET GET GET POST POST POST POST DELETE HEAD PUT PATCH OPTIONS X));
    my $query  = arguments();
    my $target = one_of('/rw', '/rw', '/rw', '/api') . path();
    $target .= '/' if $target =~ m{^/(?:rw|api)$};
    $target .= "?$query" if length $query;
    my ($status, $head, $body) = answer($method, $target);
    $count{$status}++;
    my $is_known = $status =~ /^(?:200|400|403|404|405)$/;
    my $is_json  = ($head // '') =~ m{\r\nContent-Type: application/json\r?$}m;
    my $object   = eval { decode_json($body // '') };
    my $is_right = $method eq 'HEAD'
        || ref $object eq 'HASH' && ($status == 200) == !exists $object->{error};
    next if $is_known && $is_json && $is_right;
    push @wrong, "$method $target: $status " . ($body // '');
}
alarm 0;
is(scalar @wrong, 0, "$requests requests") or diag(join "\n", @wrong[0 .. ($#wrong > 9 ? 9 : $#wrong)]);
note(join ', ', map {"$_: $count{$_}"} sort keys %count);
cmp_ok($count{$_} // 0, '>', $requests / 200, "some were answered with $_") for 200, 400, 403, 404, 405;
is_deeply([$node->workers], \@workers, 'the workers are those of before');
$node->stop;
$store->kill;
done_testing();
