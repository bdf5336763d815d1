# Compares a limiter of this module with nginx's limit_req on a million random arrivals. Both must admit the
# same requests and delay them for the same time. A C module (lib/limit_req_replay.c) calls both in one worker
# and sets nginx's clocks.
#
# src/table/tests/bucket.rs makes the same comparison with a copy of limit_req's arithmetic, also for numbers
# that the interface of the limiter does not accept.
#
# This is a plain Perl test; lib/OwnNginx.pm describes its environment.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";

BEGIN {
    require CModule;
    $ENV{TEST_NGINX_LOAD_MODULES} = join ' ', $ENV{TEST_NGINX_LOAD_MODULES} // (),
        CModule::compile('limit_req_replay');
}
use OwnNginx;

use constant ARRIVALS => 125_000;

# The parameters of limit_req, and the same rates in hits per second. One hit per minute is a sixtieth, rounded down.
my @limits = (
    ['rate=1r/s',    '',                  rate => 1,     burst => 0],
    ['rate=7r/s',    'burst=3',           rate => 7,     burst => 3,   held => 1],
    ['rate=10r/s',   'burst=20 nodelay',  rate => 10,    burst => 20],
    ['rate=10r/s',   'burst=20',          rate => 10,    burst => 20,  held => 1],
    ['rate=1000r/s', 'burst=100 nodelay', rate => 1000,  burst => 100],
    ['rate=1000r/s', 'burst=100',         rate => 1000,  burst => 100, held => 1],
    ['rate=10r/m',   'burst=2 nodelay',   rate => 0.166, burst => 2],
    ['rate=3333r/m', 'burst=40',          rate => 55.55, burst => 40,  held => 1],
);
# Each limit has a zone of limit_req, a namespace and a location with this name.
my @names = map {"limit$_"} 0 .. $#limits;

start(
    workers => 1,
    rule    => 'off',
    # Rejections and delays are not logged.
    http   => join("\n", 'limit_req_log_level info;', map {
        "limit_req_zone \$arg_k zone=$names[$_]:1m $limits[$_][0]; ratelimit_namespace $names[$_] { }"
    } 0 .. $#limits),
    server => join("\n", map {
        "location = /$names[$_] { limit_req zone=$names[$_] $limits[$_][1]; limit_req_replay; }"
    } 0 .. $#limits),
);
my %sum;
for my $number (0 .. $#limits) {
    my ($rate, $burst, %ours) = @{$limits[$number]};
    my %arguments = (%ours, namespace => $names[$number], n => ARRIVALS);
    my $arguments = join '&', map {"$_=$arguments{$_}"} sort keys %arguments;
    my %of        = (answer_to("/$names[$number]?$arguments") =~ /(\w+)=(\d+)/g);
    is($of{differ}, 0, "$rate $burst");
    $sum{$_} += $of{$_} for keys %of;
}
cmp_ok($sum{arrivals}, '>=', 1_000_000, "of $sum{arrivals} arrivals");
cmp_ok($sum{refused}, '>=', 100_000, "$sum{refused} are refused");
cmp_ok($sum{delayed}, '>=', 100_000, "$sum{delayed} are held back");
stop();
done_testing();

sub answer_to {
    my ($path) = @_;
    my $socket = connection() or die "no connection: $!\n";
    print $socket "GET $path HTTP/1.0\r\n\r\n";
    local $/;
    my ($body) = (<$socket> // '') =~ /\r\n\r\n(.*)/s;
    return $body // '';
}
