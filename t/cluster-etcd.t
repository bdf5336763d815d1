# Tests nodes that share an etcd: the tests for any store (see lib/ConvergenceTests.pm, lib/RecoveryTests.pm and
# lib/ChannelTests.pm).
#
# This is a plain Perl test, because it needs several nginx instances and signals. It uses the ports
# TEST_NGINX_PORT + 2 to + 6.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use ChannelTests;
use ConvergenceTests;
use Etcd;
use RecoveryTests;
use TwoNodes;

die "etcd is not installed\n" if !Etcd::is_there();

$store = Etcd->new(port => $port + 4);

convergence_tests();
recovery_tests();
channel_tests();

done_testing();
