# Tests `concurrent=`: how many requests of a key are under way, over everything that a request can meet: delays,
# redirects, subrequests, upgraded connections, HTTP/2 streams that are reset, clients that leave, reloads, and workers
# that are killed.
#
# This is a plain Perl test, because it needs many clients at once and signals. lib/OwnNginx.pm describes its
# environment. A request is under way until its client sends the rest of its body.

use strict;
use warnings;

use FindBin;
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use Socket qw(SOL_SOCKET SO_LINGER);
use Test::More;
use Time::HiRes qw(time);

use lib "$FindBin::Bin/lib";
use Nginx qw(http2);
use OwnNginx;

my $metrics = 'location = /metrics { ratelimit off; ratelimit_metrics; }';
# Requests to /t wait in nginx for their bodies, and are then answered by /end.
my $passed = "proxy_pass http://127.0.0.1:$port/end;";
my $end    = 'location = /end { ratelimit off; return 200 end; }';

sub begin {
    my (%given) = @_;
    my $server = delete $given{server} // '';
    my $rule   = delete $given{rule};
    start(rule => 'off', server => "$metrics $end location /held { ratelimit_key \$arg_k; $rule $passed } $server", %given);
}

# Begins a request that is under way until `finish`.
sub hold {
    my ($path) = @_;
    my $socket = connection() or die "no connection: $!";
    print $socket "POST $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
    return $socket;
}

sub finish {
    my ($socket) = @_;
    print $socket 'body';
    return answer($socket);
}

sub leave {
    my ($socket, $is_reset) = @_;
    setsockopt $socket, SOL_SOCKET, SO_LINGER, pack 'II', 1, 0 if $is_reset;
    close $socket;
}

# Returns a whole answer to a request without a body.
sub get {
    my ($path) = @_;
    my $socket = connection() or return 'no connection';
    print $socket "GET $path HTTP/1.0\r\n\r\n";
    local $/;
    return <$socket> // '';
}

sub under_way { return get('/metrics') =~ /^ratelimit_concurrent\{namespace="default"\} (\d+)$/m ? $1 : 'unknown' }

sub wait_for_number {
    my ($number) = @_;
    wait_for("$number under way", sub { under_way() eq $number });
    is(under_way(), $number, "$number under way");
}

subtest 'exactly as many as the limit are under way, however many workers there are' => sub {
    begin(rule => 'ratelimit concurrent=5;', workers => 4);
    my @sockets = map { hold('/held?k=a') } 1 .. 20;
    my $select  = IO::Select->new(@sockets);
    my %refused;
    wait_for('rejections', sub { $refused{$_} = $_ for $select->can_read(0); 15 == keys %refused });
    wait_for_number(5);
    my @kept = grep { !$refused{$_} } @sockets;
    for my $socket (values %refused) {
        my $text = do { local $/; <$socket> };
        like($text, qr/^HTTP\/1\.1 429 /, 'rejected');
        like($text, qr/^Retry-After: 1\r$/m, 'for a second');
        unlike($text, qr/^RateLimit/m, 'no policy');
        close $socket;
    }
    my $other = hold('/held?k=b');
    wait_for_number(6);
    like(finish($other), qr/^200 /, 'another key');
    like(finish($_), qr/^200 /, 'admitted') for @kept;
    wait_for_number(0);
    ok(logged(qr/ratelimit: rejected by "default-concurrent", namespace "default", key "a", limit 5, rate 6, cost 1, rule nginx\.conf:\d+/), 'the log');
    stop();
};

subtest 'one at a time may follow each other on one connection' => sub {
    begin(rule => 'ratelimit concurrent=1;');
    my $socket = connection();
    for (1 .. 50) {
        print $socket "GET /held?k=a HTTP/1.1\r\nHost: localhost\r\n\r\n";
        like(answer($socket), qr/^200 /, 'admitted');
    }
    wait_for_number(0);
    stop();
};

subtest 'a client that leaves is not under way' => sub {
    begin(rule => 'ratelimit concurrent=10;');
    for my $is_reset (0, 1) {
        my @sockets = map { hold('/held?k=a') } 1 .. 10;
        wait_for_number(10);
        leave($_, $is_reset) for @sockets;
        wait_for_number(0);
    }
    stop();
};

subtest 'a killed worker gives back what it held, within a second' => sub {
    begin(rule => 'ratelimit concurrent=20;', workers => 2);
    # A worker that nobody asks can be killed, too.
    for my $turn (1 .. 3) {
        my @sockets = map { hold('/held?k=a') } 1 .. 20;
        wait_for_number(20);
        my ($first) = workers();
        my $begin = time;
        kill KILL => $first;
        my ($select, %lost) = IO::Select->new(@sockets);
        # Its connections are closed before that.
        wait_for('its end', sub { !Nginx::is_running($first) });
        wait_for('the number of the others', sub {
            for my $socket ($select->can_read(0)) { $lost{$socket} = 1; $select->remove($socket) }
            return under_way() eq 20 - keys %lost;
        });
        cmp_ok(time - $begin, '<', 1.5, 'soon');
        my $kept = under_way();
        my @new = map { hold('/held?k=a') } 1 .. 20 - $kept;
        wait_for_number(20);
        my ($refused) = map { answer($_) } hold('/held?k=a');
        like($refused, qr/^429 /, 'no more than the limit');
        close $_ for @new, @sockets;
        wait_for_number(0);
        wait_for('workers', sub { 2 == (() = workers()) });
    }
    # All at once: the new ones give back.
    my @sockets = map { hold('/held?k=a') } 1 .. 20;
    wait_for_number(20);
    my @workers = workers();
    kill KILL => @workers;
    wait_for('new workers', sub { $nginx->settled(@workers) });
    wait_for_number(0);
    stop(qr/exited on signal 9|reading response header from upstream|connecting to upstream|prematurely closed/);
};

subtest 'kills under load end at zero' => sub {
    begin(rule => 'ratelimit concurrent=7;', workers => 4);
    my @clients = map {
        my $pid = fork // die;
        if (!$pid) {
            srand $$;
            my $end = time + 6;
            while (time < $end) {
                my $socket = eval { hold('/held?k=' . int rand 3) } or next;
                rand() < 0.3 ? leave($socket, rand() < 0.5) : finish($socket);
            }
            POSIX::_exit(0);
        }
        $pid;
    } 1 .. 6;
    my $kills = 0;
    my $begin = time;
    while (time < $begin + 5) {
        my @workers = workers();
        kill KILL => $workers[rand @workers] if @workers;
        $kills++;
        select undef, undef, undef, 0.2;
    }
    waitpid $_, 0 for @clients;
    cmp_ok($kills, '>', 10, "$kills kills");
    wait_for_number(0);
    my @sockets = map { hold('/held?k=0') } 1 .. 7;
    wait_for_number(7);
    like(answer(hold('/held?k=0')), qr/^429 /, 'the limit is what it was');
    close $_ for @sockets;
    wait_for_number(0);
    stop(qr/exited on signal 9|reading response header from upstream|connecting to upstream|prematurely closed/);
};

subtest 'an upgraded connection is under way until it is closed' => sub {
    my $upstream = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1') or die;
    my $up = $upstream->sockport;
    begin(rule => 'ratelimit concurrent=1;', server => qq[
        location /socket {
            ratelimit concurrent=1 key=\$arg_k;
            proxy_http_version 1.1;
            proxy_set_header Upgrade \$http_upgrade;
            proxy_set_header Connection upgrade;
            proxy_pass http://127.0.0.1:$up;
        }
    ]);
    for my $side (qw(client upstream)) {
        my $client = connection();
        print $client "GET /socket?k=a HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        my $server = $upstream->accept;
        sysread $server, my $request, 65536;
        print $server "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
        sysread $client, my $answer, 65536;
        like($answer, qr/^HTTP\/1\.1 101 /, 'upgraded');
        syswrite $server, 'frame';
        sysread $client, $answer, 65536;
        is($answer, 'frame', 'open');
        is(under_way(), 1, 'under way');
        like(get('/socket?k=a'), qr/^HTTP\/1\.1 429 /, 'no other one');
        close($side eq 'client' ? $client : $server);
        wait_for_number(0);
    }
    stop();
};

subtest 'a request that a rate delays is under way, and one that it rejects is not' => sub {
    begin(rule => 'ratelimit rate=1/366d burst=3 delay=all; ratelimit concurrent=3 key=$arg_c;');
    like(get('/held?k=a&c=c'), qr/^HTTP\/1\.1 200 /, 'the first is not delayed');
    my @held = map { hold("/held?k=$_&c=c") } qw(a a a);
    wait_for_number(3);
    like(get('/held?k=b&c=c'), qr/^HTTP\/1\.1 429 /, 'a fourth is rejected');
    like(get('/held?k=a&c=d'), qr/^HTTP\/1\.1 429 /, 'and one above the burst');
    is(under_way(), 3, 'neither is under way');
    close $_ for @held;
    wait_for_number(0);
    # The rate was not charged for what was rejected.
    like(get('/held?k=b&c=c'), qr/^HTTP\/1\.1 200 /, 'admitted again');
    stop();
};

subtest 'rules in any order, and rejected requests that count: nothing rejected is under way' => sub {
    for my $settings ('', 'ratelimit_count_rejected on;') {
        for my $rules ('ratelimit concurrent=9; ratelimit limit=2/366d;', 'ratelimit limit=2/366d; ratelimit concurrent=9;') {
            begin(rule => "$settings $rules");
            like(get('/held?k=a'), qr/^HTTP\/1\.1 200 .*^RateLimit-Policy: "default-366d";q=2;w=31622400\r\n.*^RateLimit: "default-366d";r=1;t=\d+\r$/ms, 'no policy of holds');
            my $held = hold('/held?k=a');
            wait_for_number(1);
            like(get('/held?k=a'), qr/^HTTP\/1\.1 429 /, 'rejected') for 1 .. 3;
            is(under_way(), 1, 'one');
            like(finish($held), qr/^200 /, 'admitted');
            wait_for_number(0);
            stop();
        }
    }
};

subtest 'a request counts once, over redirects, error pages and subrequests' => sub {
    begin(rule => 'ratelimit concurrent=2; error_page 418 = @other; recursive_error_pages on;', server => qq[
        location /try    { ratelimit concurrent=2 key=\$arg_k; try_files /missing /moved; }
        location /moved  { ratelimit concurrent=1 key=x; $passed }
        location /error  { ratelimit concurrent=2 key=\$arg_k; error_page 403 = /moved; deny all; }
        location /ssi    { ratelimit concurrent=2 key=\$arg_k; mirror /mirror; $passed }
        location /mirror { internal; ratelimit concurrent=2 key=\$arg_k; $passed }
        location /reject { ratelimit concurrent=\$arg_n key=\$arg_k counter=reject; error_page 429 = /moved; $passed }
    ]);
    for my $path ('/try?k=a', '/error?k=a', '/ssi?k=a') {
        my @held = map { hold($path) } 1, 2;
        wait_for_number(2);
        like(answer(hold($path)), qr/^429 /, "$path: the third");
        like(finish($_), qr/^200 /, 'admitted') for @held;
        wait_for_number(0);
    }
    my $held = hold('/reject?k=a&n=0');
    like(finish($held), qr/^200 /, 'an error page is answered, though its request is not under way');
    wait_for_number(0);
    stop(qr/access forbidden by rule/);
};

subtest 'a reload keeps the number, and what is under way' => sub {
    begin(rule => 'ratelimit concurrent=4;', workers => 2);
    my @held = map { hold('/held?k=a') } 1 .. 3;
    wait_for_number(3);
    kill HUP => $nginx->{master};
    wait_for('new workers', sub { 2 < (() = workers()) });
    push @held, hold('/held?k=a');
    wait_for_number(4);
    like(answer(hold('/held?k=a')), qr/^429 /, 'no more than the limit');
    like(finish($_), qr/^200 /, 'each goes on') for @held;
    wait_for_number(0);
    wait_for('the old workers to end', sub { 2 == (() = workers()) });
    stop();
};

subtest 'one process that is both master and worker' => sub {
    begin(rule => 'ratelimit concurrent=2;', single => 1);
    my @held = map { hold('/held?k=a') } 1, 2;
    wait_for_number(2);
    like(answer(hold('/held?k=a')), qr/^429 /, 'no more than the limit');
    like(finish($_), qr/^200 /, 'admitted') for @held;
    wait_for_number(0);
    stop();
};

subtest 'a dry run, a status, an exception, a variable' => sub {
    begin(rule => 'ratelimit off;', server => qq[
        add_header X-Is "\$ratelimit_status \$ratelimit_policy \$ratelimit_limit,\$ratelimit_window,\$ratelimit_rate,\$ratelimit_remaining,\$ratelimit_reset" always;
        location /dry  { ratelimit concurrent=1 key=\$arg_k dry_run=on; $passed }
        location /all  { ratelimit concurrent=1 key=\$arg_k; ratelimit_dry_run on; $passed }
        location /rule { ratelimit concurrent=\$arg_n key=\$arg_k status=503 unless=\$arg_u name=rule counter=rule; $passed }
    ]);
    for my $path (qw(/dry /all)) {
        my @held = map { hold("$path?k=$path") } 1 .. 3;
        wait_for_number(1);
        like(finish($_), qr/^200 /, 'admitted') for @held;
        wait_for_number(0);
    }
    is(logged(qr/would be rejected by "default-concurrent", .* limit 1, rate 2, /), 4, 'logged');
    like(get('/rule?k=a&n=0'), qr/^HTTP\/1\.1 503 .*^X-Is: REJECTED rule 0,,0,0,\r$/ms, 'zero admits nothing');
    unlike(get('/rule?k=a&n=0'), qr/^Retry-After/m, 'and never will');
    like(get('/rule?k=a&n=3'), qr/^HTTP\/1\.1 200 .*^X-Is: PASSED rule 3,,1,2,0\r$/ms, 'the variables');
    like(get('/rule?k=a&n=0&u=1'), qr/^HTTP\/1\.1 200 /, 'an exception');
    like(get('/rule?k=a&n='), qr/^HTTP\/1\.1 200 /, 'an empty number does not apply');
    like(get('/rule?k=a&n=x'), qr/^HTTP\/1\.1 200 /, 'nor does a wrong one');
    ok(logged(qr/ratelimit: the limit "rule" is "x", which is no plain decimal: it does not apply/), 'which is logged');
    wait_for_number(0);
    stop(qr/no plain decimal/);
};

subtest 'HTTP/2 streams that are reset, and connections that are' => sub {
    # A port of its own, since a connection speaks one protocol before nginx 1.25.1.
    my ($parameter, $directive) = http2();
    begin(
        rule   => 'ratelimit concurrent=10;',
        server => "$directive listen 127.0.0.1:@{[$port + 2]} $parameter;",
    );
    my $frame = sub {
        my ($type, $flags, $stream, $payload) = @_;
        return substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $stream) . $payload;
    };
    my $open = sub {
        my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port + 2) or die "no connection: $!";
        syswrite $socket, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . $frame->(4, 0, 0, '');
        for my $stream (map { 2 * $_ - 1 } 1 .. 5) {
            # POST, http, a path and an authority, as literals where the static table has no value.
            my $path   = '/held?k=a';
            my $fields = "\x83\x86\x04" . chr(length $path) . $path . "\x01\x09localhost";
            syswrite $socket, $frame->(1, 4, $stream, $fields);
        }
        return $socket;
    };
    my $socket = $open->();
    wait_for_number(5);
    syswrite $socket, $frame->(3, 0, $_, pack 'N', 8) for 1, 3;
    wait_for_number(3);
    my $other = $open->();
    wait_for_number(8);
    leave($other, 1);
    wait_for_number(3);
    close $socket;
    wait_for_number(0);
    stop();
};

done_testing();
