# The nodes, the store and what is between them, and how each kind of fault is made and undone.

package Cluster;

use strict;
use warnings;

use IO::Socket::INET;
use List::Util qw(first);
use Time::HiRes qw(sleep time);

use Load;
use Node;
use Proxy;
use Redis;

use constant PASSWORD => 's3cret-of-chaos';

# nodes => how many; port => the first of so many + so many + 2 ports.
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self, marks => 0, cycles => {ok => 0, error => 0}, logs => []}, $class;
    my $port = $self->{port};
    my @stores = map { Redis->new(port => $port + $_, password => PASSWORD) } 0, 1;
    @$self{qw(store spare)} = @stores;
    for my $number (1 .. $self->{nodes}) {
        my $to = $port + 1 + $number;
        $self->{proxy}{$number} = Proxy->new(port => $to, to => $stores[0]{port});
        $self->{node}{$number} = Node->new($number => $to + $self->{nodes});
        $self->{sync_rate}{$number} = 0.1;
    }
    return $self;
}

sub numbers { return 1 .. $_[0]{nodes} }
sub nodes   { my ($self) = @_; return map { $self->{node}{$_} } $self->numbers }

# The store.

# Has the store be of a kind from now on: `keeping` what it has when it is killed, or `losing` it.
# Of the earlier runs of that kind, what was kept is there again.
sub use_store {
    my ($self, $kind) = @_;
    $self->{append} = $kind eq 'keeping' ? 'yes' : 'no';
    $self->restart_store(1);
}

# Starts the store, killed before, anew; without what it had if it `is_empty`.
sub restart_store {
    my ($self, $is_empty) = @_;
    my $store = $self->{store};
    $store->kill;
    unlink "$store->{dir}/dump.rdb" if $is_empty;
    start_store($store, $self->{append});
}

sub start_store {
    my ($store, $append) = @_;
    $store->{password} = PASSWORD;
    $store->{args} = [
        '--requirepass', PASSWORD, '--masterauth', PASSWORD, '--appendonly', $append,
        # By default, while an fsync takes its time, Redis answers what it has not written yet.
        '--appendfsync', 'always',
        '--repl-diskless-sync-delay', '0',
    ];
    $store->start;
}

# Lets a spare store have what the store has now, and no more: a replica that lags behind.
sub copy_to_spare {
    my ($self) = @_;
    my ($store, $spare) = @$self{qw(store spare)};
    start_store($spare, 'no');
    $spare->cli('REPLICAOF', '127.0.0.1', $store->{port});
    Node::wait_until(30, sub { $spare->cli('INFO', 'replication') =~ /^master_link_status:up/m });
    $spare->cli('REPLICAOF', 'NO', 'ONE');
}

# The spare is the store now, and what was the store is gone; nodes get there one after the other.
sub fail_over {
    my ($self, @order) = @_;
    @$self{qw(store spare)} = @$self{qw(spare store)};
    for my $number (@order) {
        my $proxy = $self->{proxy}{$number};
        $proxy->lead_to($self->{store}{port});
        $proxy->reset;
    }
    $self->{spare}->kill;
    unlink "$self->{spare}{dir}/dump.rdb";
}

# Nodes.

sub configuration {
    my ($self, $number) = @_;
    my @asks = map { ("ask$_" => "api limit=1000000/$_ cost=0") } qw(366d 360d 300d);
    my $password = PASSWORD;
    return (
        http => <<"        END",
        ratelimit_store main {
            strategy redis; server 127.0.0.1:$self->{proxy}{$number}{port}; password $password;
        }
        ratelimit_namespace api { store main; sync_rate $self->{sync_rate}{$number}; }
        END
        zone  => '32m',
        rules => {
            Load::rules(), @asks, mark => 'api limit=1000000/366d',
            askshort => 'api limit=1000000/5s cost=0',
        },
    );
}

sub start_node {
    my ($self, $number) = @_;
    my $node = $self->{node}{$number};
    $node->start($self->configuration($number));
}

sub end_node {
    my ($self, $number, $signal) = @_;
    my $node = $self->{node}{$number};
    $self->note_cycles($number);
    $node->end($signal);
    push @{$self->{logs}}, $node->log_lines;
}

# Adds up the cycles of a node that is to end.
sub note_cycles {
    my ($self, $number) = @_;
    my %metrics = $self->metrics($number);
    for my $result (qw(ok error)) {
        my $name = qq(ratelimit_sync_cycles_total{namespace="api",result="$result"});
        $self->{cycles}{$result} += $metrics{$name} // 0;
    }
}

sub metrics {
    my ($self, $number) = @_;
    my $socket = $self->{node}{$number}->connection or return;
    print $socket "GET /metrics HTTP/1.0\r\n\r\n";
    return map { /^([^#\s]\S*) (\S+)$/ ? ($1 => $2) : () } readline $socket;
}

# Waits until each node has pushed a hit, and knows those of all.
sub settle {
    my ($self) = @_;
    my $mark = 'settle-' . ++$self->{marks};
    hit_for_sure($_, "$mark-$_->{name}") for $self->nodes;
    for my $node ($self->nodes) {
        for my $other ($self->nodes) {
            $node->wait_for('the hits of all', sub { $node->rate(ask366d => "$mark-$other->{name}") });
        }
    }
}

# Counts a hit or, where answers are lost, several.
sub hit_for_sure {
    my ($node, $key) = @_;
    $node->wait_for('a hit', sub { $node->hit(mark => $key) eq '200' });
}

sub log_lines {
    my ($self) = @_;
    return @{$self->{logs}}, map { $_->{master} ? $_->log_lines : () } $self->nodes;
}

# Faults.

# For each kind, what makes it, and what undoes it: given the cluster and the fault.
my %faults = (
    'restart empty' => [
        sub { $_[0]{store}->kill },
        sub { $_[0]->restart_store(1) },
    ],
    'restart old' => [
        sub { $_[0]{store}->cli('SAVE') },
        sub { $_[0]->restart_store },
    ],
    'restart'      => [sub { $_[0]{store}->kill }, sub { $_[0]->restart_store }],
    'flush'        => [sub { $_[0]{store}->cli('FLUSHALL') }],
    'script flush' => [sub { $_[0]{store}->cli('SCRIPT', 'FLUSH') }],
    'client kill'  => [sub { $_[0]{store}->cli('CLIENT', 'KILL', 'TYPE', 'normal') }],
    'stop store'   => [sub { $_[0]{store}->pause }, sub { $_[0]{store}->go_on }],
    'failover'     => [
        sub { $_[0]->copy_to_spare },
        sub { $_[0]->fail_over(@{$_[1]{order}}) },
    ],
    'wrong password' => [
        sub { $_[0]->change_password('another') },
        sub { $_[0]->change_password(PASSWORD) },
    ],
    'out of memory' => [
        sub { $_[0]{store}->cli('CONFIG', 'SET', 'maxmemory', '1') },
        sub { $_[0]{store}->cli('CONFIG', 'SET', 'maxmemory', '0') },
    ],
    # A replica of nothing: it keeps what it has, and refuses writes.
    'demote' => [
        sub { $_[0]{store}->cli('REPLICAOF', '127.0.0.1', '1') },
        sub { $_[0]{store}->cli('REPLICAOF', 'NO', 'ONE') },
    ],

    'reset'            => [sub { $_->reset for $_[0]->proxies($_[1]) }],
    'refuse'           => [sub { $_->refuse for $_[0]->proxies($_[1]) }, \&pass],
    'silence'          => [sub { $_->silence for $_[0]->proxies($_[1]) }, \&pass],
    'hold answers'     => [sub { $_->hold for $_[0]->proxies($_[1]) }, \&pass],
    'cut answers'      => [sub { $_->cut_answers($_[1]{answers}) for $_[0]->proxies($_[1]) }, \&pass],
    'late answers'     => [sub { $_->delay($_[1]{delay}) for $_[0]->proxies($_[1]) }, \&pass],
    'too late answers' => [
        sub { $_->delay_pushes($_[1]{delay}) for $_[0]->proxies($_[1]) }, \&pass,
    ],

    'kill worker'  => [sub { kill KILL => $_[0]->a_worker($_[1]) }, \&wait_for_workers],
    'kill workers' => [sub { kill KILL => $_[0]->node_of($_[1])->workers }, \&wait_for_workers],
    'stop worker'  => [
        sub { kill STOP => $_[1]{stopped} = $_[0]->a_worker($_[1]) },
        sub { kill CONT => $_[1]{stopped} },
    ],
    'stop workers' => [
        sub { kill STOP => $_[0]->node_of($_[1])->workers },
        sub { kill CONT => $_[0]->node_of($_[1])->workers },
    ],
    'reload'                        => [\&begin_reload, \&wait_for_reload],
    'reload with another sync_rate' => [\&begin_reload, \&wait_for_reload],
    'quit and start' => [
        sub { $_[0]->end_node(@{$_[1]}{qw(node signal)}) },
        sub { $_[0]->start_node($_[1]{node}) },
    ],
);

sub begin {
    my ($self, $fault) = @_;
    $faults{$fault->{kind}}[0]->($self, $fault);
}

sub undo {
    my ($self, $fault) = @_;
    my $undo = $faults{$fault->{kind}}[1] or return;
    $undo->($self, $fault);
}

# The node whose clients may have to wait because of a fault.
sub slow_node {
    my ($fault) = @_;
    return $fault->{kind} =~ /worker|reload|quit/ ? $fault->{node} : undef;
}

sub proxies { my ($self, $fault) = @_; return map { $self->{proxy}{$_} } @{$fault->{nodes}} }
sub node_of { my ($self, $fault) = @_; return $self->{node}{$fault->{node}} }
sub pass    { my ($self, $fault) = @_; $_->pass for $self->proxies($fault) }

sub change_password {
    my ($self, $password) = @_;
    my $store = $self->{store};
    $store->cli('CONFIG', 'SET', 'requirepass', $password);
    $store->{password} = $password;
    $store->cli('CLIENT', 'KILL', 'TYPE', 'normal');
}

sub a_worker {
    my ($self, $fault) = @_;
    my @workers = $self->node_of($fault)->workers;
    return @workers ? $workers[$fault->{worker} % @workers] : ();
}

sub wait_for_workers {
    my ($self, $fault) = @_;
    my $node = $self->node_of($fault);
    $node->wait_for('workers', sub { $node->settled });
}

sub begin_reload {
    my ($self, $fault) = @_;
    $self->{sync_rate}{$fault->{node}} = $fault->{sync_rate};
    $fault->{reloaded} = $self->node_of($fault)->begin_reload($self->configuration($fault->{node}));
}

sub wait_for_reload { my ($self, $fault) = @_; $fault->{reloaded}->() }

1;
