# The nodes, the store and the proxies between them; and the functions that make and undo each kind of fault.

package Cluster;

use strict;
use warnings;

use List::Util qw(sum0);
use Load;
use Processes;
use Requests;
use Node;
use NodeFaults;
use Plan;
use Postgres;
use Preload;
use Proxy;
use Redis;
use Shape;

use constant {
    PASSWORD => 's3cret-of-chaos',
    # The port of the other store: behind those of the nodes, of their proxies, and of the store.
    OTHER => 9,
};

# `api` and `other` are synced periodically, and so is `full`, whose zone is always full; `now` is synchronous, if the store
# decides, and so is `held`, whose nodes have reserves.
our @NAMESPACES;

# The store blocks that proxies are for. Each block has its own connections, so that faults of connections affect both
# synced and synchronous namespaces.
my @store_names;

# The windows in which both count, in days.
our @DAYS = (366, 360, 300);

# nodes => their number; port => the first port. Each node uses one port, and two more for its proxies, if it has
# any; the store uses the next ones. store => the class of the shared store. times => the nodes' timeouts for it, if not those
# of the class.
#
# The class of a store, such as RedisStore.pm, has these methods, some of them from Store.pm:
#
#   kinds             its kinds of faults, as in Plan.pm, each with functions that make and undo it
#                     (`begin`, `undo`); their arguments are the store, the fault and the cluster
#   new               port => the first port of the store, password => the password of nodes, nodes => their number
#   keep(BOOLEAN)     sets whether the store keeps its data in the next rounds; data from earlier rounds
#                     of that kind may return
#   ready             waits until all faults have finished
#   conf(PORT)        the contents of a block `ratelimit_store`; PORT is the port of the proxy, if any
#   decides           the kinds of requests that the store decides, if not all: see Load.pm
#   times             directives of the nodes' timeouts, if not the defaults (longer ones with more than 5 nodes)
#   decides_within    the timeout of synchronous requests, if not 100ms (400ms with more than 5 nodes)
#   may_refuse_all    defined if a request can be rejected before the limit is reached
#   spare(PORT)       `conf`, with another place in the same server
#   has_way           whether there are proxies between each node and the store
#   way               the options of the proxies for this store; see Proxy.pm
#   totals, total     as in Redis.pm
sub new {
    my ($class, %self) = @_;
    my $self = bless {%self, marks => 0, cycles => {ok => 0, error => 0}, logs => []}, $class;
    my $port = $self->{port};
    # Many nodes and their proxies take turns on the processors.
    my ($store, $is_large) = ($self->{store}, $self->{nodes} > 5);
    $self->{times} //= $store->can('times') ? $store->times : $is_large ? 'connect_timeout 1s; timeout 500ms;' : '';
    $self->{timeout} = $store->can('decides_within') ? $store->decides_within : $is_large ? '400ms' : '100ms';
    $Requests::decided = $self->{store}->decides if $self->{store}->can('decides');
    @NAMESPACES  = (qw(api other full), $Requests::decided eq 'nothing' ? () : qw(now held));
    @store_names = ('main', $Requests::decided eq 'nothing' ? () : 'now');
    for my $number ($self->numbers) {
        $self->{node}{$number} = Node->new($number => $port++);
        $self->{node}{$number}{module} = $ENV{TEST_NGINX_LOAD_MODULES};
        $self->{clock}{$number} = Preload->new('shift_clock');
        $self->{shape}{$number} = $self->usual_shape;
    }
    my @proxied = $self->{store}->has_way ? $self->numbers : ();
    my $first   = $port + @proxied * @store_names;
    $self->{store} = $self->{store}->new(port => $first, password => PASSWORD, nodes => $self->{nodes});
    for my $number (@proxied) {
        $self->{proxy}{$number}{$_} = Proxy->new(port => $port++, $self->{store}->way) for @store_names;
    }
    return $self;
}

# Starts a store of another kind, which has no faults. Reloads may change to it.
sub start_other {
    my ($self) = @_;
    my $class = $self->{store}->conf(0) =~ /strategy redis/ ? 'Postgres' : 'Redis';
    my $other = $self->{other} = $class->new(port => $self->{port} + 3 * $self->{nodes} + OTHER);
    $other->create if $other->can('create');
    $other->start;
}

sub numbers { return 1 .. $_[0]{nodes} }
sub nodes   { my ($self) = @_; return map { $self->{node}{$_} } $self->numbers }

# Nodes.

# The configuration of a node, with a piece that is wrong, if any.
sub configuration {
    my ($self, $number, $wrong) = @_;
    my ($proxy, $store, $other) = ($self->{proxy}{$number}, @$self{qw(store other)});
    my %stores = map { $_ => $store->conf($proxy ? $proxy->{$_}{port} : ()) } @store_names;
    $stores{spare} = $store->spare($proxy ? $proxy->{main}{port} : ());
    $stores{other} = other_store($other) if $other;
    $_ .= " $self->{times}" for values %stores;
    return Shape::configuration($self->{shape}{$number}, stores => \%stores, timeout => $self->{timeout}, wrong => $wrong // '');
}

sub other_store {
    my ($server) = @_;
    my $user = $server->isa('Postgres') ? 'username postgres;' : '';
    return "strategy ${\ $server->strategy}; server 127.0.0.1:$server->{port}; $user";
}

sub start_node {
    my ($self, $number, %more) = @_;
    my %environment = ($self->{clock}{$number}->environment, %{delete $more{environment} // {}});
    $self->{node}{$number}->start($self->configuration($number), environment => \%environment, %more);
}

sub usual_shape { my ($self) = @_; return Shape::usual(Plan::sync_rate($self)) }

# Gives all nodes the configuration with which they began, and the right time.
sub make_alike {
    my ($self) = @_;
    for my $number ($self->numbers) {
        $self->{shape}{$number} = $self->usual_shape;
        $self->set_clock($number, 0);
        $self->{node}{$number}->reload($self->configuration($number));
    }
    $self->settle;
}

# Sets the offset of a node's clock from the right time, in seconds.
sub set_clock { my ($self, $number, $offset) = @_; $self->{clock}{$number}->order(1e6 * $offset) }

# The time, in seconds, for which a node that ends pushes its remaining hits.
my %last_push = (QUIT => 2, TERM => 1);

# Ends a node.
sub end_node {
    my ($self, $number, $signal) = @_;
    $self->note_cycles($number);
    $self->end_master($number, $signal);
    push @{$self->{logs}}, $self->{node}{$number}->log_lines;
}

# Ends the master of a node. If it used all of its time, on a busy machine, it may have lost hits.
sub end_master {
    my ($self, $number, $signal) = @_;
    my $took = $self->{node}{$number}->end($signal);
    push @{$self->{late}}, sprintf 'node %d took %.1f s to end at %s', $number, $took, $signal if $took >= $last_push{$signal};
}

# Returns in words which hits may have been lost since the last call, with processes that ended.
sub take_late {
    my ($self) = @_;
    my $before = $self->{unconfirmed} // 0;
    $self->{unconfirmed} = () = grep {/did not confirm the last push/} $self->log_lines;
    my $more = $self->{unconfirmed} - $before;
    return (@{delete $self->{late} // []}, $more ? "$more last pushes of workers were not confirmed" : ());
}

# Waits for a successful cycle, of each synced namespace of a node, that begins after this call.
sub wait_for_sync {
    my ($self, $number) = @_;
    my $counts = sub {
        my %metrics = $self->metrics($number);
        return map { $metrics{qq(ratelimit_sync_cycles_total{namespace="$_",result="ok"})} // 0 } Shape::names($self->{shape}{$number});
    };
    my @before = $counts->();
    # The first one may have begun before.
    $self->{node}{$number}->wait_for('a sync', sub { my @now = $counts->(); !grep { $now[$_] <= $before[$_] + 1 } 0 .. $#before });
}

# Adds the cycles of a node that is to end.
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
    return $self->{node}{$number}->body('/metrics') =~ /^([^#\s]\S*) (\S+)$/mg;
}

# Waits until no request is under way on any node. Returns what is wrong after 10 s, in words.
sub still_under_way {
    my ($self) = @_;
    my @wrong;
    for my $number ($self->numbers) {
        my ($deadline, %metrics) = (time + 10);
        do {
            %metrics = $self->metrics($number);
        } while (under_way(%metrics) && time < $deadline);
        my $under_way = under_way(%metrics);
        push @wrong, "$under_way requests are under way on node $number" if $under_way ne '0';
    }
    return @wrong;
}

sub under_way { my (%metrics) = @_; return sum0(map { $metrics{qq(ratelimit_concurrent{namespace="$_"})} // 0 } qw(api other)) }

# Waits until each node has pushed a hit, and knows all nodes' hits, in both synced namespaces.
sub settle {
    my ($self) = @_;
    my $mark = 'settle-' . ++$self->{marks};
    for my $namespace (qw(api other)) {
        hit_for_sure($_, "mark-$namespace", "$mark-$_->{name}") for $self->nodes;
    }
    for my $namespace (qw(api other)) {
        for my $node ($self->nodes) {
            for my $other ($self->nodes) {
                $node->wait_for('the hits of all', sub { $node->rate("ask-$namespace-366d" => "$mark-$other->{name}") });
            }
        }
    }
}

# Counts a hit; several if answers may be lost.
sub hit_for_sure {
    my ($node, $location, $key) = @_;
    $node->wait_for('a hit', sub { $node->hit($location => $key) eq '200' });
}

sub log_lines {
    my ($self) = @_;
    return @{$self->{logs}}, map { $_->{master} ? $_->log_lines : () } $self->nodes;
}

# Faults.

# For each kind of fault except the store's, the functions that make and undo it: given the cluster
# and the fault.
my %faults = (
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
        sub { stop_processes($_[1]{stopped} = $_[0]->a_worker($_[1])) },
        sub { kill CONT => $_[1]{stopped} },
    ],
    'stop workers' => [
        sub { stop_processes($_[0]->node_of($_[1])->workers) },
        sub { kill CONT => $_[0]->node_of($_[1])->workers },
    ],
    'reload'                        => [\&reload_with_sync_rate, \&wait_for_reload],
    'reload with another sync_rate' => [\&reload_with_sync_rate, \&wait_for_reload],
    'quit and start' => [
        sub { $_[0]->end_node(@{$_[1]}{qw(node signal)}) },
        sub { $_[0]->start_node($_[1]{node}) },
    ],
);

sub begin {
    my ($self, $fault) = @_;
    if (Plan::needs_store($fault)) {
        $self->{store}->ready;
        # A node that ends waits for its store for a limited time, which is too short to connect on
        # a busy machine.
        $self->wait_for_sync($fault->{node}) if $fault->{kind} =~ /^(?:quit|upgrade|reload)/;
    }
    $self->act($fault, 0);
}

sub undo {
    my ($self, $fault) = @_;
    $self->act($fault, 1);
}

sub act {
    my ($self, $fault, $step) = @_;
    my $kind  = $fault->{kind};
    my $store = $self->{store};
    return $faults{$kind}[$step] && $faults{$kind}[$step]->($self, $fault) if $faults{$kind};
    my $of_node = {NodeFaults::kinds($store)}->{$kind};
    my $act = ($of_node // {$store->kinds}->{$kind})->{qw(begin undo)[$step]} or return;
    $of_node ? $act->($self, $fault) : $act->($store, $fault, $self);
}

# The node whose clients may have to wait because of a fault.
sub slow_node {
    my ($fault) = @_;
    return $fault->{kind} =~ /worker|reload|quit|upgrade|configuration/ ? $fault->{node} : undef;
}

sub proxies { my ($self, $fault) = @_; return map { $self->proxies_of($_) } @{$fault->{nodes}} }
sub proxies_of { my ($self, $number) = @_; return values %{$self->{proxy}{$number}} }
sub node_of { my ($self, $fault) = @_; return $self->{node}{$fault->{node}} }
sub pass    { my ($self, $fault) = @_; $_->pass for $self->proxies($fault) }

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

sub reload_with_sync_rate { my ($self, $fault) = @_; $self->begin_reload($fault, {sync_rate => $fault->{sync_rate}}) }

# Changes these properties of the node's shape, and begins a reload.
sub begin_reload {
    my ($self, $fault, $change) = @_;
    my $shape = $self->{shape}{$fault->{node}};
    %$shape = (%$shape, %$change);
    $fault->{reloaded} = $self->node_of($fault)->begin_reload($self->configuration($fault->{node}));
}

sub wait_for_reload { my ($self, $fault) = @_; $fault->{reloaded}->() }

1;
