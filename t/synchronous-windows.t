# Synchronous namespaces, whose store decides by moving and elastic windows, and by rates (see
# lib/WindowTests.pm).
#
# A plain Perl test, like topologies.t, of which it takes the ports.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Postgres;
use TwoNodes;
use WindowTests;

die "postgres is not installed\n" if !Postgres::is_there();

for my $each (Postgres->new(port => $port + 4)) {
    $store = $each;
    window_tests();
    $store->kill;
}

done_testing();
