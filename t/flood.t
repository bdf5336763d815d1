# Tests a flood of new keys: every key is admitted, nginx uses no memory besides
# the zone, and a busy client stays limited.
#
# This is a plain Perl test, because it needs many clients at once.
# lib/OwnNginx.pm describes its environment.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use IO::Select;
use POSIX ();
use Socket qw(AF_UNIX PF_UNSPEC SOCK_STREAM);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use OwnNginx;

# Several clients send 1,000,000 keys, in rounds. Each client has the same number
# of connections to both workers, and pipelines the requests of a round on them.
# The responses to a round fit into the socket buffers, so that a client can write
# a whole round before it reads.
#
# A client reports each round and then waits until the busy key was hit. Therefore
# each client sends less than two rounds between two hits of the busy key, however
# the processes are scheduled.
my $workers     = 2;
my $clients     = 4;
my $connections = 2;
my $pipelined   = 100;
my $per_round   = $workers * $connections * $pipelined;
my $rounds      = 625;
my $per_client  = $rounds * $per_round;
my $keys        = $clients * $per_client;
my $hits        = $clients * $rounds;

# A fixed sequence of key lengths from 0 to 1993, both short and long ones.
srand 1;
my @lengths = map { rand(1994) >> rand(11) } 1 .. $keys;

# The test fails after 300 seconds.
local $SIG{ALRM} = sub { give_up('waited too long') };
alarm 300;

subtest 'a flood of 1,000,000 keys of up to 2,000 bytes, through 1 MB' => sub {
    start(
        workers => $workers,
        zone    => 'counters:1m',
        rule    => 'limit=20/366d window=fixed',
        # With reuseport, the kernel distributes connections over the workers.
        listen => 'reuseport',
        server => <<'END',
location /worker {
    add_header Worker $pid;
    return 204;
}
location /flood {
    ratelimit_key $http_key;
    ratelimit     limit=1/366d window=fixed;
    empty_gif;
}
END
    );
    my @before = workers();
    my @busy   = connections(1);

    my ($started, %flooded, @busy_key, %early) = (time);
    flood(sub {
        my ($answers) = @_;
        $flooded{$_} += $answers->{$_} for keys %$answers;
        push @busy_key, hit('busy', $busy[@busy_key % @busy]) =~ /^(\w+)/;
        %early = memory(@before) if @busy_key == $hits / 10;
    });
    my %late = memory(@before);
    note(sprintf 'sent in %.1f s', time - $started);
    note("worker $_: $early{$_} kB after 100,000 keys, $late{$_} kB at the end") for @before;

    is_deeply(\%flooded, {200 => $keys}, 'each key is admitted once, by a limit of 1');
    is_deeply(
        [runs(@busy_key)],
        ['20 x 200', $hits - 20 . ' x 429'],
        "a busy key, hit $hits times meanwhile, is admitted 20 times and then never",
    );
    is_deeply(
        [runs(map { flood_again($_) } 0 .. 99)],
        ['100 x 200'],
        'the first keys were evicted: they are admitted again',
    );
    is(scalar(grep { $late{$_} - $early{$_} >= 10 * 1024 } @before), 0, 'no worker takes memory');
    is_deeply([workers()], \@before, 'the workers are the same');
    is(logged(qr/ratelimit: rejected by/), $hits - 20, 'each rejection is logged');
    stop();
};

done_testing();

# Keys.

# Returns the request with this key. A key is a unique number before or after
# letters.
sub request {
    my ($number) = @_;
    my $letters = 'x' x $lengths[$number];
    my $key = $number % 2 ? "$number$letters" : "$letters$number";
    return "HEAD /flood HTTP/1.1\r\nHost: localhost\r\nKey: $key\r\n\r\n";
}

sub flood_again {
    my ($number) = @_;
    my $socket = connection() or die "cannot connect: $!\n";
    print $socket request($number);
    return status(head($socket));
}

# Processes.

# Returns the resident memory of each process in kB.
sub memory {
    my (@pids) = @_;
    return map {
        open my $file, '<', "/proc/$_/status" or give_up("process $_ is gone");
        my ($size) = join('', <$file>) =~ /^VmRSS:\s+(\d+) kB$/m;
        ($_ => $size);
    } @pids;
}

# Returns runs of equal values, as "number x value".
sub runs {
    my @runs;
    for my $value (@_) {
        push @runs, [0, $value] if !@runs || $runs[-1][1] ne $value;
        $runs[-1][0]++;
    }
    return map {"$_->[0] x $_->[1]"} @runs;
}

# Clients.

# Reads the head of one response.
sub head {
    my ($socket) = @_;
    local $/ = "\r\n\r\n";
    return <$socket> // die "no answer\n";
}

sub status { $_[0] =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'none' }

# Opens this number of connections to each worker.
sub connections {
    my ($wanted) = @_;
    my %of = map { $_ => [] } workers();
    for (1 .. 1000) {
        my $socket = connection() or die "cannot connect: $!\n";
        print $socket "HEAD /worker HTTP/1.1\r\nHost: localhost\r\n\r\n";
        my ($worker) = head($socket) =~ /\r\nWorker: (\d+)\r\n/ or die "no worker answers\n";
        push @{$of{$worker}}, $socket if @{$of{$worker}} < $wanted;
        return map {@$_} values %of if !grep { @$_ < $wanted } values %of;
    }
    die "all connections go to one worker\n";
}

# Starts the clients. Calls $report after each round with the number of responses
# for each status.
sub flood {
    my ($report) = @_;
    my $select = IO::Select->new;
    for my $client (0 .. $clients - 1) {
        socketpair my $ours, my $theirs, AF_UNIX, SOCK_STREAM, PF_UNSPEC
            or die "cannot make a pair of sockets: $!\n";
        $_->autoflush for $ours, $theirs;
        defined(my $pid = fork) or die "cannot fork: $!\n";
        if ($pid == 0) {
            close $_ for $ours, $select->handles;
            local $SIG{PIPE} = 'IGNORE';
            eval { send_rounds($client * $per_client, $theirs); 1 } or print $theirs "failed: $@";
            POSIX::_exit(0);
        }
        close $theirs;
        $select->add($ours);
    }
    while ($select->count) {
        for my $client ($select->can_read) {
            my $line = <$client>;
            if (!defined $line) {
                $select->remove($client);
                next;
            }
            give_up("a client $line") if $line !~ /^(?:\w+ \d+ ?)+\n\z/;
            $report->({split ' ', $line});
            print $client "\n";
        }
    }
    1 while wait > 0;
}

sub send_rounds {
    my ($number, $parent) = @_;
    my @sockets = connections($connections);
    for (1 .. $rounds) {
        for my $socket (@sockets) {
            print $socket map { request($number++) } 1 .. $pipelined or die "cannot send: $!\n";
        }
        my %answers;
        for my $socket (@sockets) {
            $answers{status(head($socket))}++ for 1 .. $pipelined;
        }
        print $parent join(' ', %answers), "\n";
        <$parent> // die "the test is gone\n";
    }
}
