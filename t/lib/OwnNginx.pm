# An nginx of the test's own, with the module, for tests that need signals, processes, or many
# clients at once; and a client.
#
# The environment is that of the other tests: TEST_NGINX_BINARY, TEST_NGINX_LOAD_MODULES,
# TEST_NGINX_PORT (it takes the port after that one).

package OwnNginx;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use IO::Select;
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(
    $binary $root $log $master $port
    configure start reload stop settled ended workers
    log_lines logged grave_lines give_up wait_for
    connection hit answer
);

our $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
our $root   = tempdir('own-nginx-XXXXXX', TMPDIR => 1, CLEANUP => 1);
our $log    = "$root/error.log";
our $master;
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
our $port   = 1 + ($ENV{TEST_NGINX_PORT} || 1984);
my $test    = $$;    # children are not to stop nginx when they end

END {
    local $?;
    kill KILL => $master, workers() if $master && $$ == $test;
}

# nginx: configuration, processes, log.

my %conf;

sub configure {
    %conf = (%conf, @_);
    my $load = join "\n", map {"load_module $_;"} @modules;
    my $user = $> == 0 ? 'user root;' : '';
    open my $file, '>', "$root/nginx.conf" or die "cannot write: $!\n";
    print $file <<"END";
$load
$user
worker_processes $conf{workers};
pid              $root/nginx.pid;
error_log        $log notice;
events {
    worker_connections 256;
    accept_mutex       off;
}
http {
    access_log            off;
    keepalive_requests    1000000;
    client_body_temp_path $root/client_body_temp;
    proxy_temp_path       $root/proxy_temp;
    fastcgi_temp_path     $root/fastcgi_temp;
    uwsgi_temp_path       $root/uwsgi_temp;
    scgi_temp_path        $root/scgi_temp;
    ratelimit_zone        zone=$conf{zone};
    $conf{http}
    server {
        listen 127.0.0.1:$port $conf{listen};
        $conf{server}
        location /t {
            ratelimit_key \$arg_k;
            ratelimit     $conf{rule};
            empty_gif;
        }
    }
}
END
    close $file or die "cannot write: $!\n";
}

sub start {
    %conf = (http => '', server => '', listen => '', zone => 'counters:1m', workers => 2);
    configure(@_);
    unlink $log, "$log.1";
    system($binary, '-p', $root, '-e', $log, '-c', "$root/nginx.conf") == 0
        or give_up('nginx does not start');
    wait_for('the pid', sub {
        open my $file, '<', "$root/nginx.pid" or return;
        ($master) = (<$file> // '') =~ /^(\d+)\n/;
    });
    wait_for('workers', \&settled);
}

sub reload {
    configure(@_);
    my @before = workers();
    kill HUP => $master;
    wait_for('new workers in place of the old', sub { settled(@before) });
}

sub stop {
    my ($expected, $signal) = @_;
    kill $signal // 'QUIT', $master;
    wait_for('the end', \&ended);
    is_deeply([grep { !$expected || !/$expected/ } grave_lines()], [], 'nothing grave in the log');
    undef $master;
}

# Whether the workers of the configuration are there, and none of those in @gone.
sub settled {
    my (@gone)  = @_;
    my @workers = workers();
    my %is_gone = map { $_ => 1 } @gone;
    return @workers == $conf{workers} && !grep { $is_gone{$_} } @workers;
}

sub ended { !kill(0, $master) || !-e "$root/nginx.pid" }

# The processes whose parent is the master, but for those that have ended.
sub workers {
    my @workers;
    for my $stat (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $stat or next;
        my ($pid, $state, $parent) = (<$file> // '') =~ /^(\d+) \(.*\) (\S) (\d+)/ or next;
        push @workers, $pid if $parent == $master && $state ne 'Z';
    }
    return sort { $a <=> $b } @workers;
}

sub log_lines {
    open my $file, '<', $log or return;
    return <$file>;
}

sub logged      { my ($pattern) = @_; return scalar grep {/$pattern/} log_lines() }
sub grave_lines { return grep {/\[(?:emerg|alert|crit|error|warn)\]/ && !/ratelimit: (?:would be )?(?:rejected by|denied,)|ratelimit_store "[^"]+" is back/} log_lines() }

sub give_up {
    diag("the log:\n", log_lines());
    die "@_\n";
}

sub wait_for {
    my ($what, $condition) = @_;
    my $deadline = time + 30;
    until ($condition->()) {
        give_up("waited too long for $what") if time > $deadline;
        sleep 0.005;
    }
}

# Clients.

sub connection {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port, Timeout => 10);
}

# One request, on a connection of its own unless one is given: its status, and
# what remains by the RateLimit header.
sub hit {
    my ($key, $socket) = @_;
    my $keep = $socket ? 'keep-alive' : 'close';
    $socket ||= connection() or return "no connection: $!";
    print $socket "GET /t?k=$key HTTP/1.1\r\nHost: localhost\r\nConnection: $keep\r\n\r\n";
    return answer($socket);
}

sub answer {
    my ($socket) = @_;
    my $text = '';
    while ($text !~ /\r\n\r\n/) {
        IO::Select->new($socket)->can_read(10) or return 'no answer in time';
        sysread $socket, $text, 65536, length $text or return 'no answer';
    }
    my ($length) = $text =~ /\r\nContent-Length: (\d+)/;
    while ($text !~ /\r\n\r\n.{$length}/s) {
        sysread $socket, $text, 65536, length $text or return 'an incomplete answer';
    }
    my ($status) = $text =~ m{^HTTP/1\.1 (\d+)};
    my ($remaining) = $text =~ /\r\nRateLimit: "[^"]*";(r=\d+)/;
    return "$status " . ($remaining // '');
}

1;
