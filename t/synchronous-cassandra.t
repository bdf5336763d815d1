# Tests synchronous namespaces with a Cassandra: the tests for any store (see lib/SynchronousTests.pm), and the API.
# Cassandra charges before it reads, so that requests that race for the last hits of a limit may all be rejected.
#
# This is a plain Perl test, like cluster-cassandra.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Api;
use Cassandra;
use SynchronousTests;
use TwoNodes;

die "java is not installed\n" if !Cassandra::is_there();

$store = Cassandra->new(port => $port + 4);

synchronous_tests();

subtest 'the API: limits of any program, and keys that are set to zero' => sub {
    my ($a, $b) = @nodes;
    $store->be_empty;
    $_->start(synchronous(), server => $with_api) for @nodes;
    for my $window (qw(fixed sliding)) {
        my @answers  = map { [api($_ % 2 ? $a : $b, POST => "api/keys/$window?window_type=$window&limit=5")] } 1 .. 7;
        my @admitted = map { $_->[1]{admitted} ? 1 : 0 } @answers;
        is("@admitted", '1 1 1 1 1 0 0', "$window: as many as the limit") or diag(explain(\@answers));
        is($answers[6][1]{rate}, 5, 'of what is refused nothing is counted');
        my ($status, $answer) = api($a, DELETE => "api/keys/$window");
        is_deeply([$status, map { $_->{rate} } @{$answer->{reset}}], [200, 5], 'zero');
        ($status, $answer) = api($b, POST => "api/keys/$window?window_type=$window&limit=5&value=2");
        is_deeply([$status, $answer->{rate}], [200, 2], 'for all nodes') or diag(explain($answer));
    }
    my ($status, $answer) = api($a, POST => 'api/keys/k?window_type=moving&limit=5');
    is($status, 400, 'a window by which this store does not decide') or diag(explain($answer));
    stop();
};

done_testing();
