# Tests requests that a rate delays: they continue when the excess has leaked, they block nothing meanwhile,
# and they are released if their connections end.
#
# This is a plain Perl test, because it needs many clients at once and signals. lib/OwnNginx.pm describes its
# environment. A request that must not continue during a test has a delay of a year. The tests only check that
# no request continues too early, so that they do not depend on the speed of the machine.

use strict;
use warnings;

use FindBin;
use IO::Select;
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Nginx qw(http2);
use OwnNginx;

my @metrics = (server => 'location = /metrics { ratelimit off; ratelimit_metrics; }');

subtest 'a burst goes on at the rate' => sub {
    start(rule => 'rate=20/1s burst=9 delay=all', workers => 1, @metrics);
    my $begin = time;
    my @sockets = map { ask('k') } 1 .. 10;
    my @answers = map { answer($_) } @sockets;
    like($_, qr/^200 /, 'admitted') for @answers;
    # The time of nine hits, minus a tolerance for rounding and for the difference between nginx's two clocks.
    cmp_ok(time - $begin, '>=', 0.44, 'the last was not before its time');
    my $text = metrics();
    my ($delayed) = $text =~ /^ratelimit_delayed_total\{namespace="default"\} (\d+)$/m;
    my ($waited)  = $text =~ /^ratelimit_wait_seconds_count\{namespace="default"\} (\d+)$/m;
    cmp_ok($delayed, '>=', 1, 'some were held back');
    is($waited, $delayed, 'and all went on');
    stop();
};

subtest 'only what is above the delay waits, and what is above the burst is rejected' => sub {
    start(rule => 'rate=1/366d burst=3 delay=2', workers => 1, @metrics);
    like(hit('k'), qr/^200 r=$_$/, 'at once') for 3, 2, 1;
    my $held = ask('k');
    wait_for('the fourth', sub { delayed() == 1 });
    is(hit('k'), '429 r=0', 'the fifth is rejected at once');
    is(hit('other'), '200 r=3', 'the worker serves others');
    ok(!IO::Select->new($held)->can_read(0), 'the fourth still waits');
    close $held;
    stop();
};

subtest 'clients that leave are forgotten' => sub {
    start(rule => 'rate=1/366d burst=999 delay=all', workers => 1, server => "$metrics[1] access_log $root/access.log;");
    my @workers = workers();
    like(hit('k'), qr/^200 /, 'the first');
    for my $reset (0, 1) {
        my @held = map { ask('k') } 1 .. 50;
        my $all  = 50 + 50 * $reset;
        wait_for("$all that wait", sub { delayed() == $all });
        for (@held) {
            setsockopt $_, SOL_SOCKET, SO_LINGER, pack 'II', 1, 0 if $reset;
            close $_;
        }
    }
    wait_for('all to be noticed', sub { 100 == (() = access() =~ m{"GET /t[^"]*" 499 }g) });
    is(metrics() =~ /^ratelimit_wait_seconds_count\{namespace="default"\} (\d+)$/m && $1, 0, 'none went on');
    is_deeply([workers()], \@workers, 'the worker lives');
    # A graceful shutdown waits for requests.
    stop();
};

subtest 'several limits: the longest time' => sub {
    start(rule => 'rate=1/366d burst=9 delay=all; ratelimit rate=1000/1s burst=9 delay=all', workers => 1, @metrics);
    like(hit('k'), qr/^200 /, 'the first');
    my $held = ask('k');
    wait_for('the second', sub { delayed() == 1 });
    is(delayed(), 1, 'there is time for the faster rate') for 1 .. 9;
    ok(!IO::Select->new($held)->can_read(0), 'it waits for the slower one');
    close $held;
    stop();
};

subtest 'a delay is logged, one level lower than a rejection' => sub {
    my $slow   = 'ratelimit rate=1/366d burst=2 delay=all';
    my $server = join '', map {qq[
        location = /$_ { ratelimit_log_level $_; ratelimit_dry_run on; ratelimit_key $_; $slow; empty_gif; }
    ]} qw(error warn notice off);
    start(rule => 'rate=1000/1s burst=9 delay=all name=fast; ratelimit rate=1/366d burst=9 delay=all name=slow counter=slow', workers => 1, server => $server);
    like(hit('k'), qr/^200 /, 'the first');
    my $held  = ask('k');
    my $limit = 'namespace "default", key "k", limit 10, rate (?:2|1\.\d+), cost 1, rule nginx\.conf:\d+';
    # 366 days, but for some minutes
    my $by_the_slowest = qr/\[warn\] .*: \*\d+ ratelimit: delayed by "slow", $limit for 3162[23]\d{6}ms, client: /;
    wait_for('a delay by the slowest', sub { logged($by_the_slowest) });
    is(logged(qr/delayed by/), 1, 'alone');
    for my $path (qw(error warn notice off)) {
        for (1, 2) {
            my $socket = connection();
            print $socket "GET /$path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            like(answer($socket), qr/^200 /, "dry run, $path");
        }
    }
    is(logged(qr/\[warn\] .* ratelimit: would be delayed by "default-rate", .* key "error", limit 3, rate 2, .* for \d+ms, /), 1, 'for error, a warning');
    is(logged(qr/\[notice\] .* ratelimit: would be delayed by .* key "warn"/), 1, 'for a warning, a notice');
    is(logged(qr/would be delayed by/), 2, 'no others: this log takes notices');
    close $held;
    stop();
};

subtest 'a reload: what waits goes on' => sub {
    start(rule => 'rate=1/1s burst=9 delay=all', workers => 1);
    like(hit('k'), qr/^200 /, 'the first');
    my $held = ask('k');
    reload();
    like(answer($held), qr/^200 /, 'the second, by whichever worker has it');
    like(hit('k'), qr/^200 /, 'and so does what comes after it');
    stop();
};

subtest 'a graceful stop waits for what waits' => sub {
    start(rule => 'rate=1/1s burst=9 delay=all', workers => 1, @metrics);
    like(hit('k'), qr/^200 /, 'the first');
    my @held = map { ask('k') } 1, 2;
    wait_for('both to be there', sub { delayed() >= 1 });
    kill QUIT => $nginx->{master};
    like(answer($_), qr/^200 /, 'answered') for @held;
    stop();
};

subtest 'a fast stop does not' => sub {
    start(rule => 'rate=1/366d burst=9 delay=all', workers => 2, @metrics);
    like(hit('k'), qr/^200 /, 'the first');
    my @held = map { ask('k') } 1 .. 5;
    wait_for('all to wait', sub { delayed() == 5 });
    stop(undef, 'TERM');
    is(answer($_), 'no answer', 'its connection ends') for @held;
};

subtest 'a request is held back once, whatever it passes through' => sub {
    start(
        rule   => 'off',
        server => qq[
            $metrics[1]
            location /hop   { ratelimit rate=50/1s burst=9 delay=all key=k; rewrite ^ /end break; proxy_pass http://127.0.0.1:$port; }
            location /end   { ratelimit off; empty_gif; }
            location /moved { ratelimit rate=50/1s burst=9 delay=all key=k; root $root/none; error_page 404 = /end; log_not_found off; }
        ],
        workers => 1,
    );
    for my $path (('/hop', '/moved') x 3) {
        my $socket = connection();
        print $socket "GET $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
        like(answer($socket), qr/^200 r=\d/, $path);
    }
    my ($passed) = metrics() =~ /^ratelimit_requests_total\{namespace="default",result="passed"\} (\d+)$/m;
    is($passed, 6, 'counted once');
    stop();
};

subtest 'a body that is thrown away' => sub {
    start(rule => 'rate=20/1s burst=9 delay=all', workers => 1);
    my @sockets = map { connection() } 1 .. 3;
    print $_ "POST /t?k=k HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" for @sockets;
    print $_ 'x' x 100_000 for @sockets;
    like(answer($_), qr/^405/, 'as without a rate') for @sockets;
    stop();
};

subtest 'HTTP/2: streams wait by themselves' => sub {
    my ($parameter, $directive) = http2();
    start(
        rule    => 'rate=20/1s burst=9 delay=all',
        workers => 1,
        listen  => $parameter,
        server  => "$directive $metrics[1]",
    );
    my $urls   = join ' ', map {"'http://127.0.0.1:$port/t?k=k&n=$_'"} 1 .. 8;
    my $begin  = time;
    my $output = qx(nghttp --null-out --verbose --timeout=20 --no-dep $urls 2>&1);
    is(() = $output =~ /:status: 200/g, 8, 'all are admitted');
    cmp_ok(time - $begin, '>=', 0.3, 'the last not before its time');
    # The streams are reset.
    qx(nghttp --null-out --timeout=1 'http://127.0.0.1:$port/t?k=j&n=$_' >/dev/null 2>&1) for 1;
    stop();
};

done_testing();

# Sends a request; returns without waiting for the response.
sub ask {
    my ($key) = @_;
    my $socket = connection() or die "no connection: $!\n";
    print $socket "GET /t?k=$key HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    return $socket;
}

sub metrics {
    my $socket = connection() or return '';
    print $socket "GET /metrics HTTP/1.0\r\n\r\n";
    local $/;
    return <$socket> // '';
}

sub access {
    open my $file, '<', "$root/access.log" or return '';
    local $/;
    return <$file> // '';
}

sub delayed { return metrics() =~ /^ratelimit_delayed_total\{namespace="default"\} (\d+)$/m ? $1 : -1 }
