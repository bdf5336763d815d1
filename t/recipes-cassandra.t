# Runs nginx-conf/cassandra.conf in two nginx, with a real Cassandra, and the commands of its comment; recipes.t has the
# other files.
#
# This is a plain Perl test. It uses the ports TEST_NGINX_PORT + 2 to + 4, and + 16 and + 17 for a Cassandra of its own,
# without TEST_CASSANDRA.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Cassandra;
use Node qw(eventually);
use Recipe;

die "java is not installed\n" if !Cassandra::is_there();

my $port    = $ENV{TEST_NGINX_PORT} || 1984;
my $store   = Cassandra->new(port => $port + 4);
my %changes = (
    8080                  => $port + 2,
    8081                  => $port + 3,
    'strategy cassandra;' => 'strategy cassandra; ' . $store->access,
    'server   127.0.0.1;' => "server 127.0.0.1:$store->{server}{port};",
);
my $one = Recipe->new(file => 'cassandra.conf', port => $port + 2, changes => \%changes);
my $two = Recipe->new(file => 'cassandra.conf', port => $port + 3, changes => {%changes, 8080 => $port + 3});
$_->start for $one, $two;
my ($first, $second, $login) = $one->commands;
$one->tried($first, '200', qr/;r=19/);
# Requests of the other node add to those of the first one, so that they use up the limit together.
eventually(sub { Recipe::status_of($two->run($second, 1)) }, 429, 'the other node');
eventually(sub { Recipe::status_of($one->run($first, 1)) }, 429, 'the first node knows');
$two->tried($login, '429 after 200');
$one->tried($login =~ s/:$two->{port}/:$one->{port}/r, '429 in the end');
# On a busy machine, Cassandra may answer too late: then nodes decide by what they know.
$_->stop(qr/ratelimit_store "main"/) for $one, $two;
done_testing();
