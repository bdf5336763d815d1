# Synchronous namespaces, whose store decides: what they do with any store, by Postgres (see
# lib/SynchronousTests.pm).
#
# A plain Perl test, like cluster-postgres.t, of which it takes the ports.

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
