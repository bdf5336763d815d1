# A private PgBouncer between the nodes and a Postgres.

package Pooler;

use strict;
use warnings;

use File::Temp qw(tempdir);
use Processes;

# PgBouncer refuses to run as root.
my @as_user = $> == 0 ? qw(setpriv --reuid=postgres --regid=postgres --init-groups) : ();

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
END
    close $file or die "cannot write: $!\n";
    my ($program) = grep {-x} qw(/usr/sbin/pgbouncer /usr/bin/pgbouncer);
    die "pgbouncer is not installed\n" if !$program;
    $self->{pid} = start_server(
        name     => 'pgbouncer',
        command  => [@as_user, $program, "$dir/pooler.ini"],
        port     => $self->{port},
        log      => "$dir/log",
        is_ready => sub { $self->log =~ /listening on 127\.0\.0\.1:$self->{port}/ },
    );
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
    end_process($pid);
}

1;
