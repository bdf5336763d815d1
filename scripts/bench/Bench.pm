# Common functions of the benchmarks: servers that are stopped when the program exits, their processor
# time, and medians.
package Bench;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use FindBin;
use IO::Socket::INET;
use JSON::PP;
use List::Util qw(sum0);
use POSIX ();
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(
    await_nginx children count cpu cpu_of_ended cpu_of_thread cpu_of_threads interval launch_nginx load lua_modules median redis start_nginx
    start_redis stop wait_for work_dir write_results
);

my $main  = $$;
my $ports = 0;    # the number of ports that were tried
my @started;
END {
    local $?;
    if ($$ == $main) { kill QUIT => $_ for @started; waitpid $_, 0 for @started }
}
$SIG{INT} = $SIG{TERM} = sub { exit 130 };
$SIG{PIPE} = 'IGNORE';

# Makes a temporary directory that workers can read. It is removed when the program exits.
sub work_dir {
    my $dir = tempdir(CLEANUP => 1);
    chmod 0755, $dir;
    return $dir;
}

sub write_file {
    my ($file, @lines) = @_;
    open my $out, '>', $file or die "$file: $!\n";
    print $out @lines;
    close $out or die "$file: $!\n";
}

# Writes a line of JSON for each of some hashes.
sub write_results {
    my ($file, @lines) = @_;
    my $json = JSON::PP->new->canonical;
    write_file($file, map { $json->encode($_) . "\n" } @lines);
}

# Starts an nginx with its own directory and port and waits for its workers. Returns the directory, the
# port, the log, the master process and the workers. workers: their number; main, http, server, location:
# directives to add to these levels.
sub start_nginx { return await_nginx(launch_nginx(@_)) }

# Starts an nginx without waiting for it.
sub launch_nginx {
    my ($nginx, $dir, %conf) = @_;
    my $it = {dir => $dir, port => free_port(), log => "$dir/error.log", count => $conf{workers}};
    mkdir $dir;
    write_file("$dir/nginx.conf", nginx_conf($it, %conf));
    $it->{master} = start($nginx, '-p', $dir, '-e', $it->{log}, '-c', "$dir/nginx.conf");
    return $it;
}

# Waits until a launched nginx listens and has its workers.
sub await_nginx {
    my ($it) = @_;
    wait_for($it);
    sleep 0.001 until ($it->{workers} = [children($it->{master})])->@* == $it->{count};
    return $it;
}

sub nginx_conf {
    my ($it, %conf) = @_;
    my $user = $> == 0 ? 'user root;' : '';
    my $dir  = $it->{dir};
    my ($main, $http, $server, $location) = map { $_ // '' } @conf{qw(main http server location)};
    return <<"END";
$main
daemon off;
worker_processes $conf{workers};
pid $dir/nginx.pid;
error_log $dir/error.log;
$user
events { worker_connections 512; }
http {
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path $dir/client_body_temp;
    proxy_temp_path       $dir/proxy_temp;
    fastcgi_temp_path     $dir/fastcgi_temp;
    uwsgi_temp_path       $dir/uwsgi_temp;
    scgi_temp_path        $dir/scgi_temp;
    $http
    server {
        listen 127.0.0.1:$it->{port} reuseport;
        $server
        location / { $location empty_gif; }
    }
}
END
}

# Returns the directives that load the Lua modules in a directory.
sub lua_modules {
    my ($dir) = @_;
    return join '', map {"load_module $dir/$_;\n"} qw(ndk_http_module.so ngx_http_lua_module.so);
}

# Starts a Redis without persistence in a directory. Returns its port and its process.
sub start_redis {
    my ($dir)  = @_;
    my %it     = (port => free_port(), log => "$dir/redis.log");
    my @listen = ('--port', $it{port}, '--bind', '127.0.0.1');
    my $pid    = start('redis-server', @listen, '--save', '', '--dir', $dir, '--logfile', $it{log});
    wait_for(\%it);
    return ($it{port}, $pid);
}

# Starts a program. Returns its process.
sub start {
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        # A shell without job control makes processes that it starts with `&` ignore QUIT.
        $SIG{QUIT} = 'DEFAULT';
        open STDOUT, '>', '/dev/null' or die;
        exec @_ or die "$_[0]: $!\n";
    }
    push @started, $pid;
    return $pid;
}

# Stops a program that was started, by QUIT or another signal.
sub stop {
    my ($pid, $signal) = @_;
    kill $signal // 'QUIT' => $pid;
    waitpid $pid, 0;
    @started = grep { $_ != $pid } @started;
}

# Returns the next port on which no process listens: one of the PORTS (20) ports from PORT on, as for tests, or a port
# from 18000 on. These are not ephemeral ports, so that no client takes one before the server does.
sub free_port {
    my ($first, $count) = defined $ENV{PORT} ? ($ENV{PORT}, $ENV{PORTS} // 20) : (18_000, 800);
    for (1 .. $count) {
        my $port   = $first + $ports++ % $count;
        my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1', LocalPort => $port, ReuseAddr => 1);
        return $port if $socket;
    }
    die "no free port from $first on\n";
}

# Waits until a server listens.
sub wait_for {
    my ($it) = @_;
    my $deadline = time + 60;
    while (time < $deadline) {
        return if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $it->{port});
        sleep 0.002;
    }
    die "nobody listens on port $it->{port}\n", `tail $it->{log}`;
}

# Makes a server count keys, by number or text: each once, in this order.
sub count {
    my ($it, @keys) = @_;
    my $uris = "$it->{dir}/uris";
    write_file($uris, map {"http://127.0.0.1:$it->{port}/?k=key$_\n"} @keys);
    # Uses one connection, since each would begin with the first key.
    my $said = `h2load --h1 -t 1 -c 1 -m 64 -n @{[scalar @keys]} -i $uris 2>&1`;
    $said =~ /status codes: @{[scalar @keys]} 2xx/
        or die "not all were answered by 200:\n$said\n", `tail $it->{log}`;
}

# Sends requests to a server for one second, for this number of random keys (see random.lua), on 64 connections. A
# command may run the client. Returns the number of responses, the number in a second, and the median latency in
# microseconds.
sub load {
    my ($it, $keys, @command) = @_;
    my @wrk    = (qw(wrk -t 1 -c 64 -d 1s -s), "$FindBin::Bin/random.lua", "http://127.0.0.1:$it->{port}");
    my $said   = `@command @wrk -- $keys @{[int rand 1e9]} 2>&1`;
    my ($json) = $said =~ /^(\{.*\})$/m or die "wrk failed:\n$said\n";
    my $of     = decode_json($json);
    $of->{failed} == 0 or die "not all were answered by 200:\n$said\n", `tail $it->{log}`;
    return {%$of, rate => $of->{requests} / $of->{micros} * 1e6};
}

# Returns Redis's answer, a string or a number.
sub redis {
    my ($port, @words) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port) or die "no Redis\n";
    print $socket '*' . @words . "\r\n", map { '$' . length($_) . "\r\n$_\r\n" } @words;
    $socket->flush;
    my $answer = readline $socket;
    $answer = readline $socket if $answer =~ /^\$\d+/;
    $answer =~ s/\r\n//;
    return $answer;
}

sub children {
    my ($parent) = @_;
    return grep { parent($_) == $parent } map {m{(\d+)/stat}} glob '/proc/[0-9]*/stat';
}

sub parent {
    my ($process) = @_;
    open my $file, '<', "/proc/$process/stat" or return 0;
    my ($parent) = (<$file> // '') =~ /\) \S (\d+)/;
    return $parent // 0;
}

# Returns the processor time of all threads of some processes, in seconds.
sub cpu { 1e-9 * sum0(map { nanoseconds($_) } map { glob "/proc/$_/task/*/schedstat" } @_) }

# Returns the processor time of a process's first thread, which is nginx's event loop.
sub cpu_of_thread { 1e-9 * nanoseconds("/proc/$_[0]/task/$_[0]/schedstat") }

# Returns the processor time of the children of a process that have ended, in seconds.
sub cpu_of_ended {
    my ($process) = @_;
    open my $file, '<', "/proc/$process/stat" or return 0;
    my @fields = split ' ', (<$file> // '') =~ s/.*\) //r;
    return (($fields[13] // 0) + ($fields[14] // 0)) / POSIX::sysconf(POSIX::_SC_CLK_TCK());
}

# Returns the processor time of the threads of this name in some processes, in seconds.
sub cpu_of_threads {
    my ($name, @processes) = @_;
    my @threads = grep {
        open my $in, '<', "$_/comm";
        $in && (<$in> // '') eq "$name\n";
    } map { glob "/proc/$_/task/*" } @processes;
    return 1e-9 * sum0(map { nanoseconds("$_/schedstat") } @threads);
}

sub nanoseconds {
    my ($file) = @_;
    open my $in, '<', $file or return 0;
    return (split ' ', <$in> // '0')[0];
}

sub median {
    my @sorted = sort { $a <=> $b } @_;
    return ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2;
}

# Returns the 95 % interval of the median of samples, by their order, for any distribution.
sub interval {
    my @sorted = sort { $a <=> $b } @_;
    my $rank = int(@sorted / 2 - 0.98 * sqrt(@sorted));
    $rank = 0 if $rank < 0;
    return ($sorted[$rank], $sorted[-1 - $rank]);
}

1;
