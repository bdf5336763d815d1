# Synchronous namespaces whose store is a Cassandra, which charges and then reads: what they do with any store
# (see lib/SynchronousTests.pm), but that those who race for the last hits of a limit may all be refused.
#
# A plain Perl test, like cluster-cassandra.t, of which it takes the ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Cassandra;
use SynchronousTests;
use TwoNodes;

die "java is not installed\n" if !Cassandra::is_there();

$store = Cassandra->new(port => $port + 4);

synchronous_tests();

done_testing();
