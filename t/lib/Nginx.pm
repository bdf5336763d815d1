# An nginx of the test's own: its processes, its log, its end. What it serves is told by the classes that
# begin with it: a node of a cluster (lib/Node.pm), the only one that a test has (lib/OwnNginx.pm).
#
# The environment is that of the other tests: TEST_NGINX_BINARY, TEST_NGINX_LOAD_MODULES.

package Nginx;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT_OK = qw($binary wait_until);

our $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
my @modules = split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // '';
my $test    = $$;    # children are not to stop nginx when they end
my @all;

END {
    local $?;
    if ($$ == $test) { $_->kill_all for @all }
}

# port => where it listens; name => what messages call it.
#
# A class has these:
#
#   defaults       what is in `conf` if a test says nothing else: `workers`; `single`, 1 for
#                  `master_process off`; and its own
#   http           what is in the block `http`, by `conf`
#   environment    what nginx finds and keeps in its environment; if a test says nothing else, what
#                  `environment` of `conf` names
sub new {
    my ($class, %self) = @_;
    my $root = tempdir('nginx-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $self = bless {%self, root => $root, log => "$root/error.log", conf => {}}, $class;
    push @all, $self;
    return $self;
}

sub environment { my ($self) = @_; return %{$self->{conf}{environment} // {}} }

# Writes the configuration, with these changes.
sub configure {
    my ($self, %changes) = @_;
    my $conf   = $self->{conf} = {%{$self->{conf}}, %changes};
    my $root   = $self->{root};
    my $load   = join "\n", map {"load_module $_;"} @modules;
    my $user   = $> == 0 && !$conf->{single} ? 'user root;' : '';
    my $single = $conf->{single} ? 'master_process off;' : '';
    my %kept   = $self->environment;
    my $env    = join ' ', map {"env $_;"} sort keys %kept;
    my $http   = $self->http;
    open my $file, '>', "$root/nginx.conf" or die "cannot write: $!\n";
    print $file <<"END";
$load
$user
$single
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
    unlink $log, "$log.1";
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

# Returns what waits until it is done.
sub begin_reload {
    my ($self, %changes) = @_;
    $self->configure(%changes);
    my @before = $self->workers;
    kill HUP => $self->{master};
    return sub {
        $self->wait_for('new workers in place of the old', sub { $self->settled(@before) });
    };
}

# Returns how long it took. Nothing grave is in the log but what is expected: this is a test.
sub stop {
    my ($self, $expected, $signal) = @_;
    my $took  = $self->end($signal);
    my @grave = grep { !$expected || !/$expected/ } $self->grave_lines;
    is_deeply(\@grave, [], $self->title . 'nothing grave in the log');
    return $took;
}

# The same, but no test.
sub end {
    my ($self, $signal) = @_;
    my $begin = time;
    kill $signal // 'QUIT', $self->{master};
    $self->wait_for('the end', sub { $self->ended });
    delete $self->{master};
    return time - $begin;
}

# Not before its last process has given its port back: it removes its pid file earlier.
sub ended { my ($self) = @_; return !is_running($self->{master}) }

sub kill_all {
    my ($self) = @_;
    my $master = $self->{master} or return;
    my @all = ($master, $self->workers);
    kill KILL => @all;
    eval { wait_until(60, sub { !grep { is_running($_) } @all }) };
    delete $self->{master};
}

# Whether a process is there that has not ended; one that its parent has not noticed the end of has.
sub is_running {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/stat" or return 0;
    return (<$file> // ') Z') !~ /\) [ZX]/;
}

# Whether the workers of the configuration are there, and none of those in @gone.
sub settled {
    my ($self, @gone) = @_;
    return $self->connection if $self->{conf}{single};
    my @workers = $self->workers;
    my %is_gone = map { $_ => 1 } @gone;
    return @workers == $self->{conf}{workers} && !grep { $is_gone{$_} } @workers;
}

# The processes whose parent is the master, but for those that have ended.
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

# Whether a process takes new connections.
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

# Those that say that something is wrong. A rejection does not, nor a delay, nor that a store is back, nor what tests
# mean: limits that admit nothing, and namespaces without rules.
sub grave_lines {
    my ($self) = @_;
    my $usual = qr/ratelimit:[ ](?:would[ ]be[ ])?(?:rejected[ ]by|delayed[ ]by|denied,)|ratelimit_store[ ]"[^"]+"[ ]is[ ]back
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
    eval { wait_until(60, $condition) } or $self->give_up("waited too long for $what");
}

sub wait_until {
    my ($seconds, $condition) = @_;
    my $deadline = time + $seconds;
    until ($condition->()) {
        die "waited too long\n" if time > $deadline;
        sleep 0.01;
    }
    return 1;
}

sub connection {
    my ($self) = @_;
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Timeout => 10);
}

1;
