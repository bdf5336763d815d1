# Tests synchronous namespaces, whose store decides, with a Postgres: the tests for any store (see
# lib/SynchronousTests.pm).
#
# This is a plain Perl test, like cluster-postgres.t, and uses the same ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Postgres;
use SynchronousTests;
use TwoNodes;

die "postgres is not installed\n" if !Postgres::is_there();

$store = Postgres->new(port => $port + 4);

synchronous_tests();

done_testing();
