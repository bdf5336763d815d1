# Nodes that share a store, with a namespace for each lane: requests to them, and their metrics.
package Nodes;

use strict;
use warnings;

use IO::Socket::INET;
use List::Util qw(sum0 uniq);
use Time::HiRes qw(sleep time);

use Bench qw(await_nginx children cpu cpu_of_ended launch_nginx);
use Postgres;
use Redis;

my $runs = 0;

# Starts a store and the nodes. store: redis or postgres; nodes: their number; mode: the name of the mode; settings:
# the directives of its namespaces; limit: such as 1000/5s; algorithm; lanes: the pattern of each lane; total:
# whether all hits are also counted in a window that does not end.
sub start {
    my ($class, $nginx, $module, $store, $dir, %conf) = @_;
    $dir .= '/' . ++$runs;
    mkdir $dir;
    my $self = bless {nginx => $nginx, module => $module, dir => $dir, conf => \%conf}, $class;
    ($self->{limit}, $self->{window}) = $conf{limit} =~ m{^(\d+)/(\d+(?:\.\d+)?)s$} or die "no limit: $conf{limit}\n";
    $self->{store} = $self->start_store($store);
    $self->launch($conf{nodes});
    for my $node (@{$self->{nodes}}) {
        await_nginx($node);
        sleep 0.05 until is_up($node);
    }
    return $self;
}

# Adds nodes, without waiting for them.
sub launch {
    my ($self, $count) = @_;
    my $dir = $self->{dir};
    # Hides a warning of each node about a sync period that is long for the window.
    open my $stderr, '>&', \*STDERR or die "cannot keep stderr: $!\n";
    open STDERR, '>', "$dir/stderr" or die "$dir: $!\n";
    my @new = map {
        launch_nginx(
            $self->{nginx}, "$dir/$_",
            main    => "load_module $self->{module};",
            http    => $self->http($self->{store}),
            server  => $self->server,
            workers => 1,
        )
    } map { @{$self->{nodes} // []} + $_ } 1 .. $count;
    open STDERR, '>&', $stderr or die;
    push @{$self->{nodes}}, @new;
    return @new;
}

# Returns whether an nginx accepts the settings of a namespace.
sub accepts {
    my ($class, $nginx, $module, $dir, $settings) = @_;
    open my $out, '>', "$dir/accepts.conf" or die "$dir: $!\n";
    print $out "load_module $module; pid $dir/accepts.pid; error_log $dir/accepts.log; events {} http {\n"
        . "ratelimit_zone zone=it:1m; ratelimit_store main { strategy redis; }\n"
        . "ratelimit_namespace it { store main; window_sizes 5s; $settings } }\n";
    close $out;
    return system("$nginx -t -q -e $dir/accepts.log -c $dir/accepts.conf 2>/dev/null") == 0;
}

# Starts a store. Returns the directives of its block.
sub start_store {
    my ($self, $store) = @_;
    if ($store eq 'redis') {
        my $it = $self->{redis} = Redis->new(port => Bench::free_port());
        $it->start;
        return "strategy redis; server 127.0.0.1:$it->{port};";
    }
    # A node has two connections for each store block: it pushes by one and listens by the other. Others may linger.
    my @lanes = $self->lanes;
    my $most  = 20 + 4 * ($self->{conf}{most} // $self->{conf}{nodes}) * @lanes;
    my $it    = $self->{postgres} = Postgres->new(port => Bench::free_port(), connections => $most);
    $it->create;
    $it->start;
    return "strategy postgres; server 127.0.0.1:$it->{port}; username postgres;";
}

sub lanes {
    my ($self) = @_;
    my $number = 0;
    return map { {number => $number++, pattern => $_} } @{$self->{conf}{lanes}};
}

# Each lane has its own store block, so that its exchanges are counted separately.
sub http {
    my ($self, $store) = @_;
    return join "\n", 'ratelimit_zone zone=converge:8m; keepalive_timeout 1h; client_header_timeout 1h; ratelimit_log_level off;', map {
        "ratelimit_store s$_->{number} { $store }\n"
            . "ratelimit_namespace n$_->{number} { store s$_->{number}; $self->{conf}{settings} }"
    } $self->lanes;
}

sub server {
    my ($self) = @_;
    my $conf   = $self->{conf};
    my $limits = "limit=$conf->{limit}" . ($conf->{total} ? ' limit=1000000000/366d' : '');
    return join "\n", 'add_header T $msec always; ratelimit_headers off;', 'location = /metrics { ratelimit_metrics; }',
        map { <<"    END" } $self->lanes;
        location = /lane/$_->{number} {
            ratelimit n$_->{number} $limits window=$conf->{algorithm} key=it;
            empty_gif;
        }
        location = /total/$_->{number} {
            ratelimit n$_->{number} limit=1000000000/366d cost=0 window=$conf->{algorithm} key=it;
            add_header Total \$ratelimit_rate always;
            empty_gif;
        }
    END
}

sub ports { my ($self) = @_; return map { $_->{port} } @{$self->{nodes}} }

# Returns the exchanges of all nodes with the store, by lane.
sub exchanges {
    my ($self) = @_;
    my @all = map { {metrics($_)} } @{$self->{nodes}};
    return [map {
        my $name = qq(ratelimit_store_exchange_duration_seconds_count{store="s$_->{number}"});
        sum0(map { $_->{$name} // 0 } @all);
    } $self->lanes];
}

# Returns the processor time of the store and the nodes, in seconds.
sub work {
    my ($self) = @_;
    my @store = $self->{redis} ? $self->{redis}{pid} : postgres_processes($self->{postgres}{guard});
    # The first process of a Postgres is the parent of its sessions.
    return {store => cpu(@store) + cpu_of_ended($store[0]), nodes => cpu(map { @{$_->{workers}} } @{$self->{nodes}})};
}

# Returns the processes of a Postgres: the child of its shell, and the children of that process.
sub postgres_processes {
    my @servers = children(@_);
    return @servers, map { children($_) } @servers;
}

# Returns whether all nodes agree on the total of a lane within these bounds, and each node's count.
sub agree {
    my ($self, $lane, $least, $most) = @_;
    my $deadline = time + 120;
    while (1) {
        my @known = map { get($_, "/total/$lane") =~ /^Total: (\S+)\r$/m ? $1 : -1 } @{$self->{nodes}};
        my $is_so = !grep { $_ != $known[0] || $_ < $least || $_ > $most } @known;
        return ($is_so, uniq @known) if $is_so || time > $deadline;
        sleep 0.1;
    }
}

# Waits until each node knows that all live.
sub meet {
    my ($self) = @_;
    my $deadline = time + 60;
    for my $node (@{$self->{nodes}}) {
        until (know({metrics($node)}, scalar @{$self->{nodes}})) {
            die "nodes do not meet\n" if time > $deadline;
            sleep 0.05;
        }
    }
}

# Returns whether a node with these metrics knows of so many living nodes, itself included, in each namespace.
sub know {
    my ($metrics, $count) = @_;
    my @known = map { $metrics->{$_} } grep {/^ratelimit_nodes/} keys %$metrics;
    return @known && !grep { $_ != $count } @known;
}

# Returns whether a node has reached the store.
sub is_up {
    my ($node) = @_;
    my %metrics = metrics($node);
    return !grep { !$metrics{$_} } grep {/^ratelimit_store_up/} keys %metrics;
}

# Waits until the store has all hits of the nodes.
sub settle {
    my ($self) = @_;
    my $deadline = time + 300;
    for my $node (@{$self->{nodes}}) {
        my %metrics;
        do {
            sleep 0.05;
            die "nodes do not push all\n" if time > $deadline;
            %metrics = metrics($node);
        } while (grep { $metrics{$_} } grep {/^ratelimit_sync_pending_counters/} keys %metrics);
    }
}

sub metrics {
    my ($node) = @_;
    return get($node, '/metrics') =~ /^(ratelimit_\S+) (\S+)$/mg;
}

sub get {
    my ($node, $path) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $node->{port}) or die "no node\n";
    print $socket "GET $path HTTP/1.0\r\n\r\n";
    return join '', readline $socket;
}

# Stops the nodes and the store; the nodes push their remaining hits.
sub stop {
    my ($self) = @_;
    kill QUIT => map { $_->{master} } @{$self->{nodes}};
    Bench::stop($_->{master}) for @{$self->{nodes}};
    $_->kill for grep {defined} @$self{qw(redis postgres)};
}

1;
