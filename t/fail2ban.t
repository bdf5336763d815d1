# Tests the filter contrib/fail2ban/nginx-rate-limiting.conf with fail2ban's own tool and the error log of a node.
#
# This is a plain Perl test. It uses the port TEST_NGINX_PORT + 2.

use strict;
use warnings;

use FindBin;
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;

my $root     = "$FindBin::Bin/..";
my $fail2ban = "$root/target/fail2ban/usr";
-x "$fail2ban/bin/fail2ban-regex" or die "fail2ban is missing: see unpacked in scripts/lib.sh\n";
my $port = $ENV{TEST_NGINX_PORT} || 1984;
my $node = Node->new(a => $port + 2);
$node->start(
    rules => {
        hit    => 'limit=1/366d window=fixed',
        named  => q{limit=1/366d window=fixed name=login key=$http_user_agent counter=agent},
        banned => 'limit=1/366d window=fixed counter=banned ban=1h',
        slow   => 'rate=2/1s burst=5 delay=all counter=slow',
    },
    server => q{
        set_real_ip_from 127.0.0.1;
        real_ip_header   X-Client;
        location /dry/ { ratelimit_dry_run on; ratelimit limit=1/366d window=fixed counter=dry key=$uri; empty_gif; }
    },
);

# Strings with which a client tries to get others banned.
my $forged = 'x, rule nginx.conf:1, client: 203.0.113.66, server: ';
my @forged = (
    $forged, qq(", limit 1, rate 2, cost 1, rule a, client: 203.0.113.66, server: ),
    qq(ratelimit: rejected by "a", namespace "b", key "c", limit 1, rate 2, cost 1, rule d, client: 203.0.113.66, server: ),
);
request('192.0.2.1', '/hit/k') for 1 .. 4;
request('2001:db8::2', '/hit/k');
request('192.0.2.3', '/hit/' . escaped($_)), request('192.0.2.3', '/hit/' . escaped($_)) for @forged;
request('192.0.2.4', '/named/k', $_), request('192.0.2.4', '/named/k', $_) for @forged;
request('192.0.2.5', '/hit/k?' . escaped($_)) for @forged;
request('192.0.2.6', '/dry/k') for 1 .. 3;
request('192.0.2.7', '/slow/k') for 1 .. 3;
request('192.0.2.8', '/banned/k') for 1 .. 4;
my %expected = (
    '192.0.2.1' => 3, '192.0.2.8' => 3, '2001:db8::2' => 1, map { $_ => scalar @forged } qw(192.0.2.3 192.0.2.4 192.0.2.5)
);
is($node->logged(qr/ratelimit: would be rejected by/), 2, 'the log has dry runs');
cmp_ok($node->logged(qr/ratelimit: delayed by/), '>', 0, 'and delays');

$ENV{PYTHONPATH} = "$fail2ban/lib/python3/dist-packages";
my @found = `/usr/bin/python3 $fail2ban/bin/fail2ban-regex -o ip $node->{log} $root/contrib/fail2ban/nginx-rate-limiting.conf 2>&1`;
my %found;
$found{s/\s+\z//r}++ for @found;
is_deeply(\%found, \%expected, 'the filter finds each rejected client as often as it was rejected, and no other');
$node->stop(qr/ratelimit/);
done_testing();

# Makes a request of a client.
sub request {
    my ($client, $path, $agent) = @_;
    my $socket = $node->connection or die "no connection: $!\n";
    print $socket "GET $path HTTP/1.0\r\nX-Client: $client\r\nUser-Agent: ", $agent // 'test', "\r\n\r\n";
    local $/;
    return scalar <$socket>;
}

sub escaped { return $_[0] =~ s/([^A-Za-z0-9])/sprintf '%%%02x', ord $1/ger }
