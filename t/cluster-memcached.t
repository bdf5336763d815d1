# Tests nodes that share a memcached: the tests for any store (see lib/ConvergenceTests.pm and
# lib/RecoveryTests.pm).
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 5.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ConvergenceTests;
use Memcached;
use RecoveryTests;
use TwoNodes;

die "memcached is not installed\n" if !Memcached::is_there();

$store = Memcached->new(port => $port + 4);

convergence_tests();
recovery_tests();

done_testing();
