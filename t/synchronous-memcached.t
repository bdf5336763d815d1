# Tests synchronous namespaces, whose store decides, with a memcached: the tests for any store (see
# lib/SynchronousTests.pm).
#
# This is a plain Perl test, like cluster-memcached.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Memcached;
use SynchronousTests;
use TwoNodes;

die "memcached is not installed\n" if !Memcached::is_there();

$store = Memcached->new(port => $port + 4);

synchronous_tests();

done_testing();
