# An nginx that the test starts itself: its processes, its log and its shutdown. Derived classes define its
# configuration: a node of a cluster (lib/Node.pm), and the only nginx of a test (lib/OwnNginx.pm).
#
# It uses the same environment variables as the other tests: TEST_NGINX_BINARY, TEST_NGINX_LOAD_MODULES.

package Nginx;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep time);

use constant TOO_LONG => "waited too long\n";

our @EXPORT_OK = qw($binary http2 wait_until);

our $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
my $test    = $$;    # child processes must not stop nginx when they exit
my @all;

END {
    local $?;
    if ($$ == $test) { $_->kill_all for @all }
}

# port => the port that nginx listens on; name => its name in messages; module => another module to load.
#
# A derived class has these methods:
#
#   defaults       the default options (`conf`): `workers`; `single`, which is 1 for
#                  `master_process off`; and options of the class
#   http           the contents of the block `http`, made from `conf`
#   environment    the environment variables that nginx gets and passes to its workers; by default,
#                  the option `environment`
sub new {
    my ($class, %self) = @_;
    my $root = tempdir('nginx-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $self = bless {%self, root => $root, log => "$root/error.log", conf => {}}, $class;
    push @all, $self;
    return $self;
}

sub environment { my ($self) = @_; return %{$self->{conf}{environment} // {}} }

# Changes these options and writes the configuration.
sub configure {
    my ($self, %changes) = @_;
    my $conf   = $self->{conf} = {%{$self->{conf}}, %changes};
    my $root   = $self->{root};
    my $load   = join "\n", map {"load_module $_;"} $self->{module} ? $self->{module} : @modules;
    my $user   = $> == 0 && !$conf->{single} ? 'user root;' : '';
    my $single = $conf->{single} ? 'master_process off;' : '';
    my $main   = $conf->{main} // '';
    my %kept   = $self->environment;
    my $env    = join ' ', map {"env $_;"} sort keys %kept;
    my $http   = $self->http;
    open my $file, '>', "$root/nginx.conf" or die "cannot write: $!\n";
    print $file <<"END";
$load
$user
$single
$main
$env
worker_processes $conf->{workers};
pid              $root/nginx.pid;
error_log        $self->{log} notice;
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
    $http
}
END
    close $file or die "cannot write: $!\n";
}

sub start {
    my ($self, %conf) = @_;
    $self->{conf} = {$self->defaults};
    $self->configure(%conf);
    my ($root, $log) = @$self{qw(root log)};
    # A master that was killed leaves its pid.
    unlink $log, "$log.1", "$root/nginx.pid";
    local %ENV = (%ENV, $self->environment);
    system($binary, '-p', $root, '-e', $log, '-c', "$root/nginx.conf") == 0
        or $self->give_up('nginx does not start');
    $self->wait_for('the pid', sub {
        open my $file, '<', "$root/nginx.pid" or return;
        ($self->{master}) = (<$file> // '') =~ /^(\d+)\n/;
    });
    $self->wait_for('workers', sub { $self->settled });
    return $self;
}

sub reload {
    my ($self, %changes) = @_;
    $self->begin_reload(%changes)->();
}

# Starts a reload; returns a function that waits until the new workers have replaced the old ones.
sub begin_reload {
    my ($self, %changes) = @_;
    $self->configure(%changes);
    my @before = $self->workers;
    kill HUP => $self->{master};
    return sub {
        $self->wait_for('new workers in place of the old', sub { $self->settled(@before) });
    };
}

# Stops nginx and returns how long that took. Tests that the log has no warning or error that $expected does not match.
sub stop {
    my ($self, $expected, $signal) = @_;
    my $took  = $self->end($signal);
    my @grave = grep { !$expected || !/$expected/ } $self->grave_lines;
    is_deeply(\@grave, [], $self->title . 'nothing grave in the log');
    return $took;
}

# Stops nginx and returns how long that took, without testing the log.
sub end {
    my ($self, $signal) = @_;
    my $begin = time;
    kill $signal // 'QUIT', $self->{master};
    $self->wait_for('the end', sub { $self->ended });
    delete $self->{master};
    return time - $begin;
}

# Returns whether the master process has exited. Before that, its port may be in use, although its pid file is
# already removed.
sub ended { my ($self) = @_; return !is_running($self->{master}) }

sub kill_all {
    my ($self) = @_;
    my $master = $self->{master} or return;
    my @all = ($master, $self->workers);
    kill KILL => @all;
    eval { wait_until(60, sub { !grep { is_running($_) } @all }) };
    delete $self->{master};
}

# Returns whether a process is running. A zombie is not.
sub is_running {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/stat" or return 0;
    return (<$file> // ') Z') !~ /\) [ZX]/;
}

# Returns whether as many workers run as are configured, and none of those in @gone.
sub settled {
    my ($self, @gone) = @_;
    return $self->connection if $self->{conf}{single};
    my @workers = $self->workers;
    my %is_gone = map { $_ => 1 } @gone;
    return @workers == $self->{conf}{workers} && !grep { $is_gone{$_} } @workers;
}

# Returns the child processes of the master that are not zombies.
sub workers {
    my ($self) = @_;
    my @workers;
    for my $stat (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $stat or next;
        my ($pid, $state, $parent) = (<$file> // '') =~ /^(\d+) \(.*\) (\S) (\d+)/ or next;
        push @workers, $pid if $parent == $self->{master} && $state ne 'Z';
    }
    return sort { $a <=> $b } @workers;
}

# Returns whether a process has a listening socket on the port.
sub listens {
    my ($self, $pid) = @_;
    open my $file, '<', '/proc/net/tcp' or die "cannot read: $!\n";
    my $listening = sprintf ':%04X 0+:0+ 0A ', $self->{port};
    my %sockets = map { ('socket:[' . (split)[9] . ']' => 1) } grep {/$listening/} <$file>;
    return scalar grep { $sockets{readlink($_) // ''} } glob "/proc/$pid/fd/*";
}

# The log.

sub log_lines {
    my ($self) = @_;
    open my $file, '<', $self->{log} or return;
    return <$file>;
}

sub logged {
    my ($self, $pattern) = @_;
    return scalar grep {/$pattern/} $self->log_lines;
}

# Returns the lines with level [warn] or above, except these: rejections, delays, a store that is back, and warnings
# about configurations that tests intend (limits that admit no request, namespaces without rules).
sub grave_lines {
    my ($self) = @_;
    my $usual = qr/ratelimit:[ ](?:would[ ]be[ ])?(?:rejected[ ]by|delayed[ ]by|banned[ ]for|denied,)|ratelimit_store[ ]"[^"]+"[ ]is[ ]back
        |never[ ]admits[ ]a[ ]request|no[ ]rule[ ]counts[ ]in[ ]it/x;
    return grep { /\[(?:emerg|alert|crit|error|warn)\]/ && !/$usual/ } $self->log_lines;
}

sub title {
    my ($self) = @_;
    return defined $self->{name} ? "node $self->{name}: " : '';
}

sub give_up {
    my ($self, $why) = @_;
    diag($self->title, "the log:\n", $self->log_lines);
    die "$why\n";
}

sub wait_for {
    my ($self, $what, $condition) = @_;
    eval { wait_until(60, $condition) } or $self->give_up($@ eq TOO_LONG ? "waited too long for $what" : $@);
}

sub wait_until {
    my ($seconds, $condition) = @_;
    my $deadline = time + $seconds;
    until ($condition->()) {
        die TOO_LONG if time > $deadline;
        sleep 0.01;
    }
    return 1;
}

sub connection {
    my ($self) = @_;
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Timeout => 10);
}

# Returns the parameter of `listen`, and the directive, that turn HTTP/2 on. One of them is empty: the directive
# replaces the parameter since nginx 1.25.1.
sub http2 {
    my ($major, $minor, $patch) = qx('$binary' -v 2>&1) =~ m{nginx/(\d+)\.(\d+)\.(\d+)}
        or die "no version of $binary\n";
    return $major > 1 || $minor > 25 || $minor == 25 && $patch >= 1 ? ('', 'http2 on;') : ('http2', '');
}

1;
