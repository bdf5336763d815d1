# A private Postgres server, and queries for its contents.

package Postgres;

use strict;
use warnings;

use File::Temp qw(tempdir);
use IO::Handle;
use IPC::Open2;
use Processes;

# The programs of the newest installed version. On Debian, they are not in the PATH.
my ($programs) = $ENV{TEST_POSTGRES_BIN} // reverse sort glob '/usr/lib/postgresql/*/bin';

# Postgres refuses to run as root.
my @as_user = $> == 0 ? qw(setpriv --reuid=postgres --regid=postgres --init-groups) : ();

# Options of the sessions that the tests themselves make.
my $options = '-c client_min_messages=warning -c default_transaction_read_only=off';

# Stops the server on an order, or when the test process has exited.
my $guard = <<'END';
"$@" </dev/null &
server=$!
read -r word
case $word in stop) kill -INT $server ;; *) kill -QUIT $server ;; esac
wait $server
END

my $test = $$;    # child processes must not stop the server when they exit
my @all;

END {
    local $?;
    if ($$ == $test) { $_->kill for @all }
}

# port => its port; connections => how many it accepts, if not 100
sub new {
    my ($class, %self) = @_;
    my $self = bless {database => 'postgres', table => 'rl_counters', connections => 100, %self}, $class;
    $self->{dir} = tempdir('own-postgres-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    push @all, $self;
    return $self;
}

sub is_there { defined $programs && -x "$programs/postgres" }
sub socket   { "$_[0]{dir}/.s.PGSQL.$_[0]{port}" }

# Creates an empty database cluster, in which only the user `locked` needs a password.
sub create {
    my ($self) = @_;
    $self->kill;
    my $dir = $self->{dir};
    system(qw(rm -rf), "$dir/data");
    system(qw(chown postgres), $dir) if $> == 0;
    system('sh', '-c', '"$@" >/dev/null', 'sh', @as_user, "$programs/initdb", qw(-A trust -U postgres -E UTF8 --locale=C -N -D),
        "$dir/data") == 0 or die "initdb fails\n";
    write_file("$dir/data/pg_hba.conf", <<'END');
local all all                 trust
host  all locked 127.0.0.1/32 scram-sha-256
host  all all    127.0.0.1/32 trust
END
    write_file("$dir/data/postgresql.auto.conf", <<"END");
port = $self->{port}
listen_addresses = '127.0.0.1'
unix_socket_directories = '$dir'
password_encryption = 'scram-sha-256'
fsync = off
shared_buffers = 16MB
max_connections = $self->{connections}
END
}

# Enables TLS with the certificate $path.pem and the key $path.key. Client certificates are optional and must be
# issued by $roots. Without arguments, disables TLS.
sub speak_tls {
    my ($self, $path, $roots) = @_;
    if (defined $path) {
        my $data = "$self->{dir}/data";
        system('cp', $path . '.pem', "$data/tls.pem") == 0 or die "cp fails\n";
        system('cp', $path . '.key', "$data/tls.key") == 0 or die "cp fails\n";
        system('cp', $roots, "$data/roots.pem") == 0 or die "cp fails\n";
        system('chmod', '600', "$data/tls.key");
        system(qw(chown postgres), map {"$data/$_"} qw(tls.pem tls.key roots.pem)) if $> == 0;
        my %files = (ssl_cert_file => 'tls.pem', ssl_key_file => 'tls.key', ssl_ca_file => 'roots.pem');
        $self->sql("ALTER SYSTEM SET $_ = '$files{$_}'") for sort keys %files;
    }
    $self->sql('ALTER SYSTEM SET ssl = ' . (defined $path ? 'on' : 'off'));
    $self->sql('SELECT pg_reload_conf()');
}

sub write_file {
    my ($name, $text) = @_;
    open my $file, '>', $name or die "cannot write $name: $!\n";
    print $file $text;
    close $file or die "cannot write $name: $!\n";
}

# Starts the server with the data that it has.
sub start {
    my ($self) = @_;
    pipe my $orders, $self->{orders} or die "cannot make a pipe: $!\n";
    $self->{orders}->autoflush(1);
    $self->{guard} = start_server(
        name     => 'postgres',
        command  => ['sh', '-c', $guard, 'guard', @as_user, "$programs/postgres", '-D', "$self->{dir}/data"],
        port     => $self->{port},
        log      => "$self->{dir}/log",
        input    => $orders,
        is_ready => sub { $self->sql('SELECT 1') eq '1' },
    );
}

# Returns whether the server has exited by itself.
sub has_ended { return $_[0]{guard} && !-e "$_[0]{dir}/data/postmaster.pid" }

# `kill` stops the server as in a crash, `stop` as an administrator does.
sub kill { $_[0]->end('crash') }
sub stop { $_[0]->end('stop') }

sub end {
    my ($self, $order) = @_;
    my $guard = delete $self->{guard} or return;
    local ($?, $!);
    local $SIG{PIPE} = 'IGNORE';
    print {$self->{orders}} "$order\n";
    close delete $self->{orders};
    waitpid $guard, 0;
}

sub runs  { defined $_[0]{guard} }
# The first process starts no other one once it is stopped.
sub pause { my ($self) = @_; stop_processes($self->main); stop_processes($self->backends) }
sub go_on { my ($self) = @_; CORE::kill(CONT => $self->main, $self->backends) }

# Returns the id of the first process of the server.
sub main {
    my ($self) = @_;
    open my $file, '<', "$self->{dir}/data/postmaster.pid" or die "no postmaster.pid: $!\n";
    return <$file> =~ /^(\d+)/ ? $1 : die "no process in postmaster.pid\n";
}

# Returns the ids of the other processes.
sub backends {
    my ($self) = @_;
    my ($main, @backends) = $self->main;
    for my $stat (glob '/proc/[0-9]*/stat') {
        open my $file, '<', $stat or next;
        my ($pid, $parent) = (<$file> // '') =~ /^(\d+) \(.*\) \S (\d+)/ or next;
        push @backends, $pid if $parent == $main;
    }
    return @backends;
}

sub psql {
    my ($self) = @_;
    return (
        'sh', '-c', 'exec "$@" 2>&1', 'psql', "$programs/psql", '-XAtq', '-v', 'ON_ERROR_STOP=1',
        '-h', $self->{dir}, '-p', $self->{port}, '-U', 'postgres', '-d', $self->{database},
    );
}

# Opens a session and runs a query in it; returns a function that ends the session.
sub open_session {
    my ($self, $query) = @_;
    local $ENV{PGOPTIONS} = $options;
    local $SIG{PIPE} = 'IGNORE';
    my $pid = open2(my $answers, my $queries, $self->psql);
    print $queries "$query;\n\\echo done\n";
    $queries->flush;
    my $text = '';
    while (defined(my $line = <$answers>)) {
        return sub { local $?; close $queries; waitpid $pid, 0 } if $line eq "done\n";
        $text .= $line;
    }
    local $?;
    waitpid $pid, 0;
    die $text;
}

# Runs a query; returns its rows as lines, with `|` between columns. Dies on an error.
sub sql {
    my ($self, $query) = @_;
    local $ENV{PGOPTIONS} = $options;
    open my $answer, '-|', $self->psql, '-c', $query or die "cannot run psql: $!\n";
    local $/;
    my $text = <$answer> // '';
    local ($?, $!);
    close $answer or die $text;
    $text =~ s/\n\z//;
    return $text;
}

# The interface of a store that nodes share: see TwoNodes.pm.

# The sessions of nodes.
my $ours = q(FROM pg_stat_activity WHERE application_name LIKE 'ngx%');

sub label       { 'Postgres' }
sub software    { qr/PostgreSQL \d+\.\d+/ }
sub strategy    { 'postgres' }
sub be_away     { $_[0]->be_empty; $_[0]->stop }
sub restart     { $_[0]->stop; $_[0]->start }
sub flush       { $_[0]->overrule('TRUNCATE ' . $_[0]->tables) }
sub credentials { "username locked; password $_[1];" }
sub tables      { my ($self) = @_; return join ', ', map {"$self->{table}$_"} '', qw(_epochs _nodes _changes _levels _logs) }

# Starts the server if needed and drops all tables. `keeps` has no effect: the server keeps its data in a restart and
# loses it in a crash.
sub be_empty {
    my ($self) = @_;
    $self->create if !-d "$self->{dir}/data";
    $self->start if !$self->runs;
    my $tables = $self->sql(q(SELECT string_agg(tablename, ', ') FROM pg_tables WHERE schemaname = 'public'));
    $self->sql("DROP TABLE $tables") if $tables;
}

sub cut_connections { $_[0]->sql("SELECT pg_terminate_backend(pid) $ours") }
sub connections     { $_[0]->sql("SELECT count(*) $ours") }

# Returns the number of connections of nodes that listen to the channel.
sub listeners {
    my ($self) = @_;
    return $self->sql("SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'ngx% channel'");
}

sub disturbances {
    my ($self) = @_;
    return (
        (map { my $sql = "$_ " . $self->tables; [$sql, sub { $self->overrule($sql) }] } 'TRUNCATE', 'DROP TABLE IF EXISTS'),
        ['pg_terminate_backend', sub { $self->cut_connections }],
    );
}

# Runs a query again until it does not fail in a deadlock with queries of nodes.
sub overrule {
    my ($self, $query) = @_;
    until (eval { $self->sql($query); 1 }) {
        die $@ if $@ !~ /deadlock detected/;
    }
}

sub lock {
    my ($self, $password) = @_;
    $self->sql("CREATE ROLE locked SUPERUSER LOGIN PASSWORD '$password'");
}

sub unlock { $_[0]->sql("DROP OWNED BY locked; DROP ROLE locked") }

sub place {
    my ($self, $number) = @_;
    my $table = $number ? "rl_place_$number" : 'rl_counters';
    return ("table $table;", table => $table);
}

sub epoch {
    my ($self, $namespace) = @_;
    return $self->sql(
        "SELECT epoch FROM $self->{table}_epochs WHERE namespace = '$namespace' AND ended_at IS NULL");
}

# Returns the counts of a namespace by key: those of all windows, or only of windows of `size` milliseconds.
sub totals {
    my ($self, $namespace, $size) = @_;
    my $of_size = defined $size ? "AND window_size = $size" : '';
    my $text = eval { $self->sql(<<"END") };
SELECT encode(key, 'hex'), sum(thousandths)
FROM $self->{table} JOIN $self->{table}_epochs USING (epoch)
WHERE namespace = '$namespace' AND ended_at IS NULL $of_size GROUP BY key
END
    if (!defined $text) {
        return {} if $@ =~ /relation .* does not exist/;
        die $@;
    }
    my %totals;
    for (split /\n/, $text) {
        my ($key, $count) = split /\|/;
        $totals{pack 'H*', $key} = $count / 1000;
    }
    return \%totals;
}

sub total {
    my ($self, $namespace, $key, $size) = @_;
    return $self->totals($namespace, $size)->{$key} // 0;
}

1;
