# A private PgBouncer between the nodes and a Postgres.

package Pooler;

use strict;
use warnings;

use File::Temp qw(tempdir);
use POSIX qw(WNOHANG);
use Time::HiRes qw(sleep time);

# PgBouncer refuses to run as root.
my @as_user = $> == 0 ? qw(setpriv --reuid=postgres --regid=postgres --init-groups) : ();

my $test = $$;    # child processes must not stop PgBouncer when they exit
my @all;

END {
    local $?;
    if ($$ == $test) { $_->stop for @all }
}

# Starts PgBouncer. port => its port, server => the port of the Postgres, mode => `pool_mode`
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self}, $class;
    my $dir = $self->{dir} = tempdir('own-pooler-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    system(qw(chown postgres), $dir) if $> == 0;
    open my $file, '>', "$dir/pooler.ini" or die "cannot write: $!\n";
    print $file <<"END";
[databases]
postgres = host=127.0.0.1 port=$self->{server} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $self->{port}
auth_type = any
pool_mode = $self->{mode}
unix_socket_dir =
logfile = $dir/log
END
    close $file or die "cannot write: $!\n";
    my ($program) = grep {-x} qw(/usr/sbin/pgbouncer /usr/bin/pgbouncer);
    die "pgbouncer is not installed\n" if !$program;
    push @all, $self;
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        open STDOUT, '>', '/dev/null' or die;
        open STDERR, '>&', \*STDOUT or die;
        exec @as_user, $program, '-q', "$dir/pooler.ini" or die;
    }
    $self->{pid} = $pid;
    my $deadline = time + 60;
    # The log shows that this process listens. A connection would also succeed if another process used the port.
    until ($self->log =~ /listening on 127\.0\.0\.1:$self->{port}/) {
        my $has_ended = waitpid($pid, WNOHANG) == $pid;
        die "pgbouncer does not start:\n", $self->log if $has_ended || time > $deadline;
        sleep 0.01;
    }
    return $self;
}

sub log {
    my ($self) = @_;
    open my $file, '<', "$self->{dir}/log" or return '';
    local $/;
    return <$file> // '';
}

sub stop {
    my ($self) = @_;
    my $pid = delete $self->{pid} or return;
    local $?;
    kill KILL => $pid;
    waitpid $pid, 0;
}

1;
