# Tests synchronous namespaces, whose store decides, with an etcd: the tests for any store (see
# lib/SynchronousTests.pm).
#
# This is a plain Perl test, like cluster-etcd.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Etcd;
use SynchronousTests;
use TwoNodes;

die "etcd is not installed\n" if !Etcd::is_there();

$store = Etcd->new(port => $port + 4);

synchronous_tests();

done_testing();
