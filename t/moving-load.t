# Tests moving windows in which four workers count at once: exactly the limit is admitted, for any number of
# requests.
#
# This is a plain Perl test, because it needs many clients at once. lib/OwnNginx.pm describes its environment.

use strict;
use warnings;

use FindBin;
use List::Util qw(sum);
use POSIX qw(ceil);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use OwnNginx;

my ($clients, $rounds, $pipelined) = (8, 40, 50);
my $requests = $clients * $rounds * $pipelined;

# The test fails after 300 seconds.
local $SIG{ALRM} = sub { give_up('waited too long') };
alarm 300;

# With reuseport, the kernel distributes connections over the workers.
my @conf = (workers => 4, listen => 'reuseport', zone => 'counters:4m');

subtest 'a window that none of them sees end' => sub {
    start(@conf, rule => 'limit=5000/366d window=moving');
    is(load(), 5000, "of $requests requests, so many as the limit has");
    is(load(), 0, 'and no more later');
    like(hit('other'), qr/^200 r=4999/, 'another key has all of its own');
    stop();
};

subtest 'costs of parts of a hit, and limits that share the counter' => sub {
    start(@conf, rule => join ' ratelimit ',
        'limit=99999/366d window=moving cost=0.25 counter=default;',
        'limit=1000/366d window=moving cost=0.25 counter=default');
    is(load(), 4000, 'four for each hit');
    is(load(), 0, 'what was refunded has left nothing');
    stop();
};

subtest 'windows that end meanwhile' => sub {
    start(@conf, rule => 'limit=500/200ms window=moving');
    my $begin    = time;
    my $admitted = load();
    my $millis   = 1000 * (time - $begin);
    note(sprintf '%d of %d in %.0f ms', $admitted, $requests, $millis);
    # Each period of 201 ms admits at most the limit. A hit has the time of its worker's cached clock, or that
    # of the previous hit, if another worker's clock was ahead.
    my $stretches = ceil(($millis + 20) / 201);
    cmp_ok($admitted, '<=', 500 * $stretches, "no more than the limit in each of $stretches");
    cmp_ok($admitted, '>=', 500, 'and that many at least');
    stop();
};

done_testing();

# Sends all requests at once, for one key; returns the number of admitted ones.
sub load {
    my @pipes = map {
        pipe my $reader, my $writer or die "cannot make a pipe: $!\n";
        defined(my $pid = fork) or die "cannot fork: $!\n";
        if ($pid == 0) {
            print $writer eval { admitted() } // "failed: $@";
            close $writer;
            POSIX::_exit(0);
        }
        close $writer;
        $reader;
    } 1 .. $clients;
    my @admitted = map { my $pipe = $_; join '', <$pipe> } @pipes;
    1 while wait > 0;
    /^\d+\z/ or give_up("a client $_") for @admitted;
    return sum(@admitted);
}

# Sends the requests of one client, with a new connection for each round, which any worker may accept.
sub admitted {
    my $admitted = 0;
    for (1 .. $rounds) {
        my $socket = connection() or die "cannot connect: $!\n";
        print $socket "HEAD /t?k=k HTTP/1.1\r\nHost: localhost\r\n\r\n" x $pipelined or die "cannot send: $!\n";
        local $/ = "\r\n\r\n";
        for (1 .. $pipelined) {
            my ($status) = (<$socket> // '') =~ m{^HTTP/1\.1 (200|429) } or die "no answer\n";
            $admitted++ if $status == 200;
        }
    }
    return $admitted;
}
