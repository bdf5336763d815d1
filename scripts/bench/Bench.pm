# What the benchmarks share: servers that are started and end with the program, their processor
# time, and medians.
package Bench;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use List::Util qw(sum0);
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw(
    @client children cpu free_port interval load median nginx_conf redis start stop wait_for work_dir
    write_file write_uris
);

my $main = $$;
my @started;
END {
    local $?;
    if ($$ == $main) { kill QUIT => $_ for @started; waitpid $_, 0 for @started }
}
$SIG{INT} = $SIG{TERM} = sub { exit 130 };
$SIG{PIPE} = 'IGNORE';

# A directory that workers can read, for as long as the program runs.
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

# The configuration of an nginx in a directory. main, http, location: more of it.
sub nginx_conf {
    my ($dir, %conf) = @_;
    my $user = $> == 0 ? 'user root;' : '';
    my $main = $conf{main} // '';
    my $http = $conf{http} // '';
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
        listen 127.0.0.1:$conf{port} reuseport;
        location / { $conf{location} empty_gif; }
    }
}
END
}

# Starts a program; returns its process.
sub start {
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        open STDOUT, '>', '/dev/null' or die;
        exec @_ or die "$_[0]: $!\n";
    }
    push @started, $pid;
    return $pid;
}

# Stops a program that was started.
sub stop {
    my ($pid) = @_;
    kill QUIT => $pid;
    waitpid $pid, 0;
    @started = grep { $_ != $pid } @started;
}

sub free_port {
    my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1') or die "no port: $!\n";
    return $socket->sockport;
}

# Waits until somebody listens on a port.
sub wait_for {
    my ($port, $log) = @_;
    my $deadline = time + 60;
    while (time < $deadline) {
        return if IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port);
        sleep 0.002;
    }
    die "nobody listens on port $port\n", $log ? `tail $log` : '';
}

# What a server with this port is to be asked, in this order, by the numbers of keys.
sub write_uris {
    my ($file, $port, @numbers) = @_;
    write_file($file, map {"http://127.0.0.1:$port/?k=key$_\n"} @numbers);
}

# The command that makes requests.
our @client = qw(h2load --h1 -t 1 -c 64);

# Makes so many requests of those in a file, with further options; returns how many were answered in a
# second. LOG is what the server writes.
sub load {
    my ($uris, $count, $log, @options) = @_;
    my $said = `@client -n $count -i $uris @options 2>&1`;
    $said =~ /status codes: $count 2xx/ or die "not all were answered by 200:\n$said\n" . `tail $log`;
    my ($rate) = $said =~ m{finished in .*, ([\d.]+) req/s};
    return $rate;
}

# What a Redis answers, of a string or a number.
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

# Seconds on a processor, of all threads of some processes.
sub cpu { 1e-9 * sum0(map { nanoseconds($_) } map { glob "/proc/$_/task/*/schedstat" } @_) }

sub nanoseconds {
    my ($file) = @_;
    open my $in, '<', $file or return 0;
    return (split ' ', <$in> // '0')[0];
}

sub median {
    my @sorted = sort { $a <=> $b } @_;
    return ($sorted[$#sorted / 2] + $sorted[@sorted / 2]) / 2;
}

# Between which values the median of what these are samples of is, with 95 %: by their order, whatever
# their distribution.
sub interval {
    my @sorted = sort { $a <=> $b } @_;
    my $rank = int(@sorted / 2 - 0.98 * sqrt(@sorted));
    $rank = 0 if $rank < 0;
    return ($sorted[$rank], $sorted[-1 - $rank]);
}

1;
