# Tests the counters when nginx reloads its configuration, reopens its logs, loses
# a worker or stops; and that all workers together admit exactly the limit under
# load.
#
# This is a plain Perl test, because it needs signals and many clients at once.
# lib/OwnNginx.pm describes its environment.
#
# Windows have 366 days, so that none ends during a test (see limit.t).

use strict;
use warnings;

use FindBin;
use IO::Select;
use POSIX ();
use Test::More;

use lib "$FindBin::Bin/lib";
use OwnNginx;

subtest 'a reload keeps the counters' => sub {
    start(rule => 'limit=10/366d window=fixed');
    is(hit('k'), "200 r=$_", "$_ left") for 9, 8, 7;
    reload();
    is(hit('k'),     '200 r=6', 'and goes on after a reload');
    is(hit('other'), '200 r=9', 'other keys are as they were');
    reload() for 1 .. 3;
    is(hit('k'), '200 r=5', 'and after more of them');
    stop();
};

subtest 'a reload with another limit keeps the counters' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), "200 r=$_", "$_ left of 10") for 9, 8, 7;
    reload(rule => 'limit=5/366d');
    is(hit('k'), '200 r=1', '1 left of 5');
    reload(rule => 'limit=2/366d');
    is(hit('k'), '429 r=0', 'above a limit of 2');
    reload(rule => 'limit=6/366d window=fixed');
    is(hit('k'), '200 r=1', '1 left of 6, the rejection was not counted');
    reload(rule => 'limit=9/365d');
    is(hit('k'), '200 r=8', 'another window has counters of its own');
    reload(rule => 'limit=6/366d');
    is(hit('k'), '200 r=0', 'the first window is where it was');
    stop();
};

# Returns namespaces with these names, each with a store that does not run.
sub synced {
    my ($store, @names) = @_;
    my $http = "ratelimit_store away { strategy redis; server 127.0.0.1:1; $store }\n";
    $http .= "ratelimit_namespace $_ { store away; sync_rate 10; window_sizes 366d; }\n" for @names;
    return $http;
}

# Runs nginx -t with a new configuration while nginx runs with the old one; returns the output.
sub checked {
    configure(@_);
    return scalar `$binary -t -p $root -e $log -c $root/nginx.conf 2>&1`;
}

subtest 'a reload may rename synced namespaces in a small zone' => sub {
    my @rule = (rule => 'a limit=10/366d');
    start(@rule, http => synced('', qw(a b c)));
    is(hit('k'), '200 r=9', '9 left');
    for my $third ('d' .. 'h') {
        reload(http => synced('', 'a', 'b', $third));
    }
    is(hit('k'), '200 r=8', 'the others keep their counters');
    reload(rule => 'z limit=10/366d', http => synced('', qw(z)));
    is(hit('k'), '200 r=9', 'one of another name starts anew');
    stop(qr/ratelimit_store "away"/);
};

subtest 'a zone of 1m has room for 64 namespaces, whatever they are synced with, at every reload' => sub {
    my @names = map {"namespace-$_"} 1 .. 63;
    start(rule => 'stays limit=100/366d', http => synced('cluster on;', 'stays', @names));
    is(hit('k'), '200 r=99', '99 left');
    for my $n (1 .. 10) {
        $_ =~ s/-/-$n-/ for @names;
        # The old workers drain meanwhile.
        my %is_old = map { $_ => 1 } workers();
        configure(http => synced('cluster on;', 'stays', @names));
        kill HUP => $nginx->{master};
        wait_for('new workers', sub { 2 == grep { !$is_old{$_} } workers() });
        is(hit('k'), '200 r=' . (99 - $n), 'a counter that stays continues after a reload that renames all others');
    }

    my $said = checked(http => synced('cluster on;', 'stays', @names, 'surplus'));
    like($said, qr/\[emerg\] .*"surplus": zone "counters" has room for 64 namespaces: .* larger zone in \Q$root\E\/nginx.conf:\d+\n/,
        'nginx -t refuses more than that');
    unlike($said, qr/is successful/, 'and fails');
    # nginx -t has already logged such a line.
    my $refusals = logged(qr/\[emerg\] .*"surplus"/);
    kill HUP => $nginx->{master};
    wait_for('the log of a reload that is refused', sub { logged(qr/\[emerg\] .*"surplus"/) > $refusals });
    is(hit('k'), '200 r=88', 'a reload to it changes nothing');
    like(checked(zone => 'counters:32k', rule => 'b limit=1/366d', http => synced('cluster on;', qw(a b c))),
        qr/"c": zone "counters" has room for 32 shards of namespaces that are synced: .*nginx.conf:\d+\n/,
        'a smaller zone has less room for shards');
    like(checked(zone => 'counters:32k', rule => 'b limit=1/366d', http => synced('cluster on;', qw(a b))),
        qr/is successful/, 'but for some');
    configure(zone => 'counters:1m', rule => 'stays limit=100/366d', http => synced('cluster on;', 'stays', @names));
    stop(qr/ratelimit_store "away"|has room for/);
};

subtest 'a zone of another size, or another name, starts anew' => sub {
    start(zone => 'counters:1m', rule => 'limit=10/366d');
    is(hit('k'), "200 r=$_", "$_ left") for 9, 8;
    reload(zone => 'counters:2m');
    is(hit('k'), '200 r=9', 'of another size');
    my $size = qr/zone "counters" has another size than before, 2097152 bytes for 1048576/;
    ok(logged(qr/\[warn\].*$size.* in \S+:\d+$/), 'with a warning');
    reload(zone => 'other:2m');
    is(hit('k'), '200 r=9', 'of another name');
    ok(logged(qr/namespace "default" moves from zone "counters" to "other"/), 'with a warning');
    stop(qr/\[warn\].*(?:moves from zone|another size)/);
};

subtest 'a namespace that moves to another zone, and back, starts anew each time' => sub {
    my $in = sub { return (http => "ratelimit_zone zone=second:1m; ratelimit_namespace api { zone $_[0]; }") };
    start(zone => 'first:1m', rule => 'api limit=10/366d', $in->('first'));
    is(hit('k'), "200 r=$_", "$_ left") for 9, 8;
    for my $zone (qw(second first second)) {
        reload($in->($zone));
        is(hit('k'), "200 r=$_", "in the $zone zone") for 9, 8;
    }
    is(logged(qr/\[warn\].*namespace "api" moves from zone "(?:first|second)" to .*: its counters start anew in/), 3, 'with warnings');
    stop(qr/\[warn\].*moves from zone/);
};

subtest 'a zone that stays keeps its counters while others come and go' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), '200 r=9', '9 left');
    reload(http => 'limit_req_zone $arg_k zone=requests:1m rate=1r/s;');
    is(hit('k'), '200 r=8', 'with a zone of another module');
    reload(http => '');
    is(hit('k'), '200 r=7', 'and without');
    stop();
};

subtest 'rules that are gone for a while find their counters again' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), '200 r=9', '9 left');
    reload(rule => 'off');
    is(hit('k'), '200 ', 'no rule applies');
    reload(rule => 'limit=10/366d');
    is(hit('k'), '200 r=8', '8 left');
    stop();
};

subtest 'a wrong configuration changes nothing' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), '200 r=9', '9 left');
    my @before = workers();
    configure(rule => 'limit=1/366d window=round');
    kill HUP => $nginx->{master};
    wait_for('an [emerg]', sub { logged(qr/\[emerg\] .*"window=round"/) });
    is(hit('k'), '200 r=8', 'the old rules go on');
    is_deeply([workers()], \@before, 'in the old workers');
    # With two zones, the rule must name one.
    configure(rule => 'limit=1/366d', http => 'ratelimit_zone zone=other:1m;');
    kill HUP => $nginx->{master};
    wait_for('an [emerg]', sub { logged(qr/\[emerg\] .*has no zone/) });
    is(hit('k'), '200 r=7', 'the old rules still go on');
    reload(rule => 'limit=11/366d', http => '');
    is(hit('k'), '200 r=7', 'a right one applies');
    stop(qr/\[emerg\]/);
};

subtest 'a configuration without rules that fails late takes no headers from later workers' => sub {
    start(workers => 1, rule => 'limit=10/366d');
    is(hit('k'), '200 r=9', 'a hit');
    configure(rule => 'off', http => "access_log $root/none/access.log;");
    kill HUP => $nginx->{master};
    wait_for('the failure', sub { logged(qr/\[emerg\].*none\/access/) });
    my @before = workers();
    kill KILL => @before;
    wait_for('another worker', sub { settled(@before) });
    is(hit('k'), '200 r=8', 'the header is there');
    stop(qr/none\/access|exited on signal 9/);
};

subtest 'requests that a reload overtakes are counted once' => sub {
    start(rule => 'limit=10/366d');
    my $socket = connection() or die "cannot connect: $!\n";
    is(hit('k', $socket), '200 r=9', 'on a connection to an old worker');
    # A worker that gets QUIT finishes a request that it has begun to read.
    print $socket "GET /t?k=k HTTP/1.1\r\nHost: localhost\r\n";
    is(hit('k'), '200 r=8', 'on another connection');
    my @before = workers();
    kill HUP => $nginx->{master};
    my %is_old = map { $_ => 1 } @before;
    wait_for('new workers', sub { 2 == grep { !$is_old{$_} } workers() });
    print $socket "\r\n";
    is(answer($socket), '200 r=7', 'the old worker finishes its request');
    is(hit('k'), '200 r=6', 'and a new one goes on');
    close $socket;
    wait_for('old workers to end', sub { settled(@before) });
    stop();
};

subtest 'USR1 reopens the logs and keeps the counters' => sub {
    start(rule => 'limit=2/366d');
    is(hit('k'), "200 r=$_", "$_ left") for 1, 0;
    rename $log, "$log.1" or die "cannot rename $log: $!\n";
    kill USR1 => $nginx->{master};
    wait_for('the log', sub { -e $log });
    # The master creates the file; each worker reopens it when it gets the signal.
    wait_for('a rejection in it', sub { hit('k'); logged(qr/\[error\] .*ratelimit: rejected by/) });
    is(hit('k'), '429 r=0', 'nothing is left');
    stop();
};

subtest 'a killed worker is replaced and the counters stay' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), "200 r=$_", "$_ left") for 9, 8, 7;
    for my $left (6, 5, 4) {
        my @before = workers();
        kill KILL => $_ for @before;
        wait_for('new workers', sub { settled(@before) });
        is(hit('k'), "200 r=$left", "$left left after all workers were killed");
    }
    stop(qr/\[alert\] .* exited on signal 9/);
};

for my $signal (qw(QUIT TERM)) {
    subtest "$signal ends nginx cleanly, and its counters" => sub {
        for (1, 2) {
            start(rule => 'limit=10/366d');
            is(hit('k'), '200 r=9', 'starts with empty counters');
            stop(undef, $signal);
        }
    };
}

# Follows the steps in docs/upgrade.md.
subtest 'USR2: another nginx, with counters of its own; the old one keeps its own until it ends' => sub {
    start(rule => 'limit=9/366d');
    is(hit('k'), '200 r=8', 'a hit');
    my $old = $nginx->{master};
    # Counts the workers of the old master. The new master is also a child of the old one.
    my $new;
    my $old_workers = sub { $nginx->{master} = $old; scalar grep { $_ != $new } workers() };
    kill USR2 => $old;
    wait_for('a second nginx', sub {
        open my $file, '<', "$root/nginx.pid" or return;
        ($new) = (<$file> // '') =~ /^(\d+)\n/;
        return if !$new || $new == $old;
        $nginx->{master} = $new;
        return settled();
    });
    my @new_workers = workers();
    kill WINCH => $old;
    wait_for('the end of the old workers', sub { !$old_workers->() });
    is(hit('k'), '200 r=8', 'the new one starts anew');
    kill HUP => $old;
    wait_for('old workers again', sub { $old_workers->() == 2 });
    kill QUIT => $new;
    wait_for('the end of the new one', sub { !-e "$root/nginx.pid.oldbin" && !grep { kill 0, $_ } @new_workers });
    is(hit('k'), '200 r=7', 'back with the old one, its counters are there');
    stop();
};

subtest 'nginx -s quit ends nginx cleanly' => sub {
    start(rule => 'limit=10/366d');
    is(hit('k'), '200 r=9', 'limits');
    is(system($binary, '-p', $root, '-e', $log, '-c', "$root/nginx.conf", '-s', 'quit'), 0, 'quit');
    wait_for('the end', \&ended);
    is_deeply([grave_lines()], [], 'nothing grave in the log');
    delete $nginx->{master};
};

subtest 'under load, exactly the limit is admitted' => sub {
    start(rule => 'limit=1000/366d window=fixed', workers => 4);
    my $clients = clients(20_000);
    my $sum     = $clients->();
    is($sum->{200},  1000,   'admitted');
    is($sum->{429},  19_000, 'rejected');
    is($sum->{lost}, 0,      'lost');
    is(hit('load'),  '429 r=0', 'nothing is left');
    stop();
};

subtest 'under load and reloads, exactly the limit is admitted' => sub {
    start(rule => 'limit=10000/366d window=fixed', workers => 4);
    my ($reloads, $clients) = (0, clients(20_000));
    my $sum = $clients->(sub {
        my ($admitted) = @_;
        return if $admitted < 2_000 * ($reloads + 1) || $reloads == 3;
        reload();
        $reloads++;
    });
    is($reloads,    3,      'reloads while requests were admitted');
    is($sum->{200}, 10_000, 'admitted');
    is($sum->{429} + $sum->{lost}, 10_000, "rejected, or never read: $sum->{lost}");
    is(hit('load'), '429 r=0', 'nothing is left');
    stop();
};

subtest 'under load, a killed worker costs at most the hits it was counting' => sub {
    # Each worker has connections: without reuseport, one worker may accept all of them.
    start(rule => 'limit=10000/366d window=fixed', workers => 4, listen => 'reuseport');
    my ($killed, $clients) = (0, clients(20_000));
    my $sum = $clients->(sub {
        my ($admitted) = @_;
        return if $admitted < 2_000 * ($killed + 1) || $killed == 3;
        my @before = workers();
        kill KILL => $before[0];
        wait_for('a new worker', sub { settled($before[0]) });
        $killed++;
    });
    is($killed, 3, 'workers were killed while requests were admitted');
    cmp_ok($sum->{lost}, '>', 0, "requests were in flight: $sum->{lost}");
    cmp_ok($sum->{200}, '<=', 10_000, 'admitted at most');
    cmp_ok($sum->{200}, '>=', 10_000 - $sum->{lost}, 'admitted at least');
    is(hit('load'), '429 r=0', 'nothing is left');
    stop(qr/\[alert\] .* exited on signal 9/);
};

done_testing();

# Clients.

# Starts 4 processes with 16 connections each, which make this number of requests
# in total. Returns a function that waits for them. It calls its argument now and
# then with the number of requests admitted so far, and returns the number of
# responses for each status and the number of lost requests.
sub clients {
    my ($requests) = @_;
    my $processes = 4;
    my $select    = IO::Select->new;
    for (1 .. $processes) {
        pipe my $reader, my $writer or die "cannot make a pipe: $!\n";
        defined(my $pid = fork) or die "cannot fork: $!\n";
        if ($pid == 0) {
            close $reader;
            my $sum = eval { load($requests / $processes, 16, $writer) };
            syswrite $writer, $sum ? join(' ', %$sum) . "\n" : "failed: $@\n";
            POSIX::_exit(0);
        }
        close $writer;
        $select->add($reader);
    }
    return sub {
        my ($progress) = @_;
        my %sum = (200 => 0, 429 => 0, lost => 0);
        my ($admitted, %text) = (0);
        while (my @readable = $select->can_read(60)) {
            for my $reader (@readable) {
                my $text = '';
                if (sysread $reader, $text, 65536) {
                    $admitted += 100 * ($text =~ tr/+//d);
                    $text{$reader} .= $text;
                    next;
                }
                $select->remove($reader);
                give_up("a client $text{$reader}") if $text{$reader} !~ /^(?:\w+ \d+ ?)+\n\z/;
                my %of_client = split ' ', $text{$reader};
                $sum{$_} += $of_client{$_} for keys %of_client;
            }
            $progress->($admitted) if $progress;
        }
        1 while wait > 0;
        return \%sum;
    };
}

# Makes requests on this number of connections, with one request in flight on
# each. Writes a + for every 100 admitted requests.
sub load {
    my ($requests, $connections, $progress) = @_;
    my $request = "HEAD /t?k=load HTTP/1.1\r\nHost: localhost\r\n\r\n";
    my $select  = IO::Select->new;
    my %sum     = (200 => 0, 429 => 0, lost => 0);
    my ($made, %received) = (0);

    local $SIG{PIPE} = 'IGNORE';
    my $open = sub {
        my $socket = connection() or die "cannot connect: $!\n";
        $received{$socket} = '';
        $select->add($socket);
        syswrite $socket, $request;
        $made++;
    };
    # When a stopping worker closes an idle connection, a request that it has not
    # read is lost: the client gets the end of the stream or a reset.
    my $lose = sub {
        my ($socket) = @_;
        $select->remove($socket);
        delete $received{$socket};
        $sum{lost}++;
    };

    $open->() for 1 .. $connections;
    while ($select->count) {
        my @readable = $select->can_read(30) or die "no answer in time\n";
        for my $socket (@readable) {
            if (!sysread $socket, $received{$socket}, 65536, length $received{$socket}) {
                $lose->($socket);
                $open->() if $made < $requests;
                next;
            }
            # The requests are HEAD, so that responses have no body.
            my ($status) = $received{$socket} =~ m{^HTTP/1\.1 (\d+).*\r\n\r\n\z}s or next;
            $sum{$status}++;
            syswrite $progress, '+' if $status == 200 && $sum{200} % 100 == 0;
            my $stays = $received{$socket} !~ /\r\nConnection: close\r\n/;
            $received{$socket} = '';
            if ($stays && $made < $requests) {
                $made++;
                syswrite $socket, $request;
                next;
            }
            $select->remove($socket);
            delete $received{$socket};
            close $socket;
            $open->() if $made < $requests;
        }
    }
    return \%sum;
}
