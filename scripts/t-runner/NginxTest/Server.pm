# The nginx under test: its directory, configuration, start, stop and error log.
package NginxTest::Server;

use strict;
use warnings;

use File::Basename qw(dirname);
use File::Glob qw(bsd_glob);
use File::Path qw(make_path remove_tree);
use POSIX ();
use Time::HiRes qw(sleep time);

use NginxTest::Settings qw(%settings expand);

my $running_pid;
my $error_log_position;
my $build_options;

sub path { return join '/', $settings{server_root}, @_ }

sub prepare {
    my ($block) = @_;

    make_empty_server_root();
    write_file(path('html/index.html'),
        '<html><head><title>It works!</title></head><body>It works!</body></html>');
    write_file($_->[0] =~ m{^/} ? $_->[0] : path('html', $_->[0]), expand($_->[1]))
        for user_files_of($block);
    write_file(path('conf/nginx.conf'), configuration($block));
    $error_log_position = 0;
}

# Removes only files of nginx and of this runner.  If the directory
# TEST_NGINX_SERVROOT has any other file, the run fails and the file is kept.
sub make_empty_server_root {
    my ($root, $other) = (path(), pid_in_file());
    die "process $other runs in $root: stop it first\n" if $other && is_running($other);
    remove_tree(map({ path($_) } qw(conf html logs cache)), bsd_glob(path('*_{temp,cache}')));
    rmdir $root or die "cannot remove $root: $!\n" if -d $root;
    make_path(map { path($_) } qw(conf html logs));
}

sub user_files_of {
    my ($block) = @_;

    my $files = $block->user_files // return;
    return @$files if ref $files;
    my (undef, @names_and_bodies) = split /^>>> *(.*?)\s*\n/m, $files;
    my @files;
    push @files, [splice @names_and_bodies, 0, 2] while @names_and_bodies;
    die $block->name, " - dates in user_files are not supported\n"
        if grep { $_->[0] =~ /\s/ } @files;
    return @files;
}

sub write_file {
    my ($path, $content) = @_;
    make_path(dirname($path));
    open my $file, '>:raw', $path or die "cannot write $path: $!\n";
    print $file $content // '';
    close $file or die "cannot write $path: $!\n";
}

sub configuration {
    my ($block) = @_;

    my ($main, $http, $server)
        = map { expand($_) // '' } $block->main_config, $block->http_config, $block->config;
    die $block->name, " - no section 'config'\n" if !defined $block->config;
    my $port = $settings{server_port};
    die $block->name, " - another server on port $port: it would not share our address\n"
        if $http =~ /\blisten\s+(?:\S+:)?$port\b/;

    $build_options //= qx('$settings{binary}' -V 2>&1);
    my @temp_paths = map { $_ . '_temp_path ' . path($_ . '_temp') . ';' }
        grep { $http !~ /\b${_}_temp_path\b/ && $build_options !~ /--without-http_${_}_module/ }
        qw(client_body proxy fastcgi scgi uwsgi);
    my @load_modules  = map {"load_module $_;"} @{ $settings{load_modules} };
    my @env           = map {"env '$_';"} @{ $settings{env_to_nginx} };
    my $user          = $> == 0 ? 'user root;' : '';
    my ($logs, $html) = (path('logs'), path('html'));
    my $root_location
        = $settings{root_location} ? "location / { root $html; index index.html index.htm; }" : '';

    return <<"END";
@load_modules
daemon on;
master_process $settings{master_process};
worker_processes $settings{workers};
error_log $logs/error.log $settings{log_level};
pid $logs/nginx.pid;
$user
@env
$main
events {
    accept_mutex off;
    worker_connections $settings{worker_connections};
}
http {
    access_log $logs/access.log;
    default_type text/plain;
    keepalive_timeout 68000ms;
    @temp_paths
$http
    server {
        listen 127.0.0.1:$port;
        server_name 'localhost';
        client_max_body_size 30M;
$server
        $root_location
    }
}
END
}

# Starts nginx; returns the wait status of the command.  0 means that it listens.
sub start {
    my ($block) = @_;

    my @command = ($settings{binary}, '-e', path('logs/error.log'), '-p', path() . '/',
        '-c', path('conf/nginx.conf'));
    defined(my $child = fork) or die "cannot fork: $!\n";
    if ($child == 0) {
        open STDOUT, '>', '/dev/null';
        open STDERR, '>', '/dev/null' if defined $block->suppress_stderr;
        { no warnings 'exec'; exec @command }
        POSIX::_exit(127);
    }
    waitpid $child, 0;
    my $status = $?;
    die "cannot run $settings{binary}\n" if $status >> 8 == 127;
    if ($status == 0) {
        wait_until(10, sub { $running_pid = pid_in_file() })
            or die $block->name, ' - nginx wrote no pid file; see ', path('logs/error.log'), "\n";
    }
    return $status;
}

sub stop {
    my $pid = $running_pid // return;
    undef $running_pid;
    my $gone = sub { !is_running($pid) };

    kill QUIT => $pid;
    return if wait_until($settings{timeout}, $gone);
    warn "nginx $pid does not stop on QUIT; killing it\n";
    kill KILL => -$pid;    # a daemon leads its own process group
    wait_until($settings{timeout}, $gone);
}

$SIG{$_} = sub { exit 1 } for qw(INT TERM);

END {
    local $?;
    stop();
}

sub pid_in_file {
    open my $file, '<', path('logs/nginx.pid') or return;
    return (<$file> // '') =~ /^(\d+)\n/ ? $1 : undef;
}

# Returns whether a process is running.  A zombie (Z) is not.
sub is_running {
    my ($pid) = @_;
    open my $file, '<', "/proc/$pid/stat" or return kill 0, $pid;
    return (<$file> // ') Z') !~ /\) Z/;
}

sub wait_until {
    my ($limit, $condition) = @_;
    my $deadline = time + $limit;
    until ($condition->()) {
        return 0 if time > $deadline;
        sleep 0.005;
    }
    return 1;
}

# Returns the lines that were added since the last call for this block (all
# lines, after check_accum_error_log).  It pauses first, because nginx may log
# after the response.
sub error_log_lines {
    sleep 3 * $settings{sleep};
    open my $log, '<', path('logs/error.log') or return [];
    seek $log, $error_log_position, 0;
    my @lines = <$log>;
    $error_log_position = tell $log if !$settings{accumulate_error_log};
    return \@lines;
}

1;
