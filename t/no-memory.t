# Tests requests for which a memory allocation fails, at each point where the module allocates. The response
# has status 500, or is the usual one, or the connection is closed; nothing else happens.
#
# This is a plain Perl test with a library that is preloaded into nginx (see lib/failing_memory.c). Pools are
# so small that most allocations call malloc(). It uses the ports TEST_NGINX_PORT + 2 to + 4.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;
use Preload;
use Redis;

die "redis-server is not installed\n" if !Redis::is_there();

my $port   = $ENV{TEST_NGINX_PORT} || 1984;
my $node   = Node->new(a => $port + 2);
my $redis  = Redis->new(port => $port + 4);
my $memory = Preload->new('failing_memory');

$redis->start;
$node->start(
    workers     => 1,
    environment => {$memory->environment},
    http        => <<"    END",
    request_pool_size 128;
    ratelimit_headers ietf draft03 legacy;
    ratelimit_store main { strategy redis; server 127.0.0.1:$redis->{port}; timeout 5s; connect_timeout 5s; }
    ratelimit_namespace local { }
    ratelimit_namespace api { store main; sync_rate 0; timeout 5s; }
    END
    rules => {
        admitted => 'local limit=1000000/366d limit=1000000/360d cost=$arg_c',
        charged  => 'local limit=1000000/340d charge=$arg_d',
        rejected => 'local limit=1/350d cost=2 name=some',
        decided  => 'api limit=1000000/366d limit=1000000/360d',
        refused  => 'api limit=1/350d cost=2',
    },
);
my $call  = "Content-Type: application/grpc\r\nTE: trailers\r\n";
my @cases = (
    'an admitted request'                  => '/admitted/k?c=2',
    'one that is charged later'            => '/charged/k?d=2',
    'a rejected one'                       => '/rejected/k',
    'a rejected call'                      => '/rejected/k' => $call,
    'one that a store admits'              => '/decided/k',
    'one that a store refuses'             => '/refused/k',
    'a call that a store refuses'          => '/refused/k' => $call,
    'the API'                              => '/api/namespaces/local',
    'metrics'                              => '/metrics',
);
my ($worker) = $node->workers;

while (my $name = shift @cases) {
    my $path    = shift @cases;
    my $headers = @cases && $cases[0] =~ /:/ ? shift @cases : '';
    subtest $name => sub {
        my $usual = answer($path, $headers);
        my (@got, @others);
        for my $number (1 .. 100) {
            $memory->order($number);
            my $got = answer($path, $headers);
            last if !($memory->numbers)[2];
            push @got, $got =~ /^(\d+)/ ? $1 : 'none';
            push @others, $got if $got ne $usual && $got !~ /^(?:500\b|none)/;
        }
        $memory->order(0);
        is($got[0], 500, 'without the first allocation, the request fails');
        cmp_ok(scalar @got, '>', 3, "several allocations can fail, with these results: @got");
        is_deeply(\@others, [], 'each answer is 500, or none, or the whole usual one');
        is(answer($path, $headers), $usual, 'with memory, the answer is the usual one');
        is(($node->workers)[0], $worker, 'the worker lives');
    };
}

# nginx logs the failed allocations.
$node->stop(qr/ \(12: Cannot allocate memory\)| ratelimit: rejected/);
$redis->kill;
done_testing();

# Returns the status of the response and the names of its headers, or `none`. If the allocation for a variable
# fails, the variable is empty, so that nginx adds no header.
sub answer {
    my ($path, $headers) = @_;
    my $socket = $node->connection or return 'no connection';
    print $socket "GET $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n$headers\r\n";
    local $/;
    my ($status, $head) = (<$socket> // '') =~ m{^HTTP/1\.1 (\d+)[^\r]*(.*?)\r\n\r\n}s or return 'none';
    return join ' ', $status, sort grep { !/^(?:Rate|Status)\z/ } $head =~ /\r\n([^:]+):/g;
}
