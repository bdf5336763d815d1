# The nodes, the store and the proxies between them; and the functions that make and undo each kind of fault.

package Cluster;

use strict;
use warnings;

use Load;
use Node;
use Plan;
use Proxy;

use constant PASSWORD => 's3cret-of-chaos';

# `api` is synced periodically; `now` is synchronous, if the store decides, and so is `held`, whose
# nodes have reserves.
our @NAMESPACES;

# The namespaces after which the store blocks are named. Each block has its own connections, so that faults of
# connections affect both synced and synchronous namespaces.
my @store_names;

# The windows in which both count, in days.
our @DAYS = (366, 360, 300);

# nodes => their number; port => the first port. Each node uses one port, and two more for its proxies, if it has
# any; the store uses the next ones. store => the class of the shared store. times => directives of the nodes for it.
#
# The class of a store, such as RedisStore.pm, has these methods:
#
#   kinds             its kinds of faults, as in Plan.pm, each with functions that make and undo it
#                     (`begin`, `undo`); their arguments are the store, the fault and the cluster
#   new               port => the first port of the store, password => the password of nodes, nodes => their number
#   keep(BOOLEAN)     sets whether the store keeps its data in the next rounds; data from earlier rounds
#                     of that kind may return
#   ready             waits until all faults have finished
#   conf(PORT)        the contents of a block `ratelimit_store`; PORT is the port of the proxy, if any
#   decides           the kinds of requests that the store decides, if not all: see Load.pm
#   decides_within    the timeout of synchronous requests, if not 100ms (400ms with more than 5 nodes)
#   may_refuse_all    defined if a request can be rejected before the limit is reached
#   clock(NODE)       the offset of the clock of a node, such as +3s; missing if all clocks are right
#   has_way           whether there are proxies between each node and the store
#   way               the options of the proxies for this store; see Proxy.pm
#   totals, total     as in Redis.pm
sub new {
    my ($class, %self) = @_;
    my $self = bless {times => '', %self, marks => 0, cycles => {ok => 0, error => 0}, logs => []}, $class;
    my $port = $self->{port};
    $Load::decided = $self->{store}->decides if $self->{store}->can('decides');
    @NAMESPACES  = ('api', $Load::decided eq 'nothing' ? () : qw(now held));
    @store_names = ('api', $Load::decided eq 'nothing' ? () : 'now');
    for my $number ($self->numbers) {
        $self->{node}{$number} = Node->new($number => $port++);
        $self->{sync_rate}{$number} = Plan::sync_rate($self);
    }
    my @proxied = $self->{store}->has_way ? $self->numbers : ();
    my $first   = $port + @proxied * @store_names;
    $self->{store} = $self->{store}->new(port => $first, password => PASSWORD, nodes => $self->{nodes});
    for my $number (@proxied) {
        $self->{proxy}{$number}{$_} = Proxy->new(port => $port++, $self->{store}->way) for @store_names;
    }
    return $self;
}

sub numbers { return 1 .. $_[0]{nodes} }
sub nodes   { my ($self) = @_; return map { $self->{node}{$_} } $self->numbers }

# Nodes.

sub configuration {
    my ($self, $number) = @_;
    my $proxy  = $self->{proxy}{$number};
    my @stores = map {
        my $conf = $self->{store}->conf($proxy ? $proxy->{$_}{port} : ());
        "ratelimit_store for_$_ { $conf $self->{times} }\n";
    } @store_names;
    my %asks = map {
        my $ask = "limit=1000000/${_}d cost=0";
        my $days = $_;
        map { ("ask-$_-${days}d" => "$_ $ask" . ($_ eq 'api' ? '' : ' window=fixed')) } @NAMESPACES;
    } @DAYS;
    my %others = Load::asks();
    $asks{"ask-$_"} = $others{$_} for keys %others;
    # Many nodes and their proxies take turns on the processors.
    my $usual      = $self->{nodes} > 5 ? '400ms' : '100ms';
    my $timeout    = $self->{store}->can('decides_within') ? $self->{store}->decides_within : $usual;
    my %namespaces = (
        api  => "store for_api; sync_rate $self->{sync_rate}{$number}; on_loss share;",
        now  => "store for_now; sync_rate 0; timeout $timeout; on_error deny;",
        held => "store for_now; sync_rate 0; timeout $timeout; on_error deny; reserve on;",
    );
    my @namespaces = map {"ratelimit_namespace $_ { $namespaces{$_} }\n"} @NAMESPACES;
    return (
        http  => "@stores @namespaces",
        zone  => '32m',
        rules => {
            Load::rules(), %asks, mark => 'api limit=1000000/366d',
            askshort => 'api limit=1000000/5s cost=0',
        },
    );
}

sub start_node {
    my ($self, $number, %more) = @_;
    my $node  = $self->{node}{$number};
    my $clock = $self->{store}->can('clock') && $self->{store}->clock($number);
    $node->start($self->configuration($number), $clock ? (clock => $clock) : (), %more);
}

# The time, in seconds, for which a node that ends pushes its remaining hits.
my %last_push = (QUIT => 2, TERM => 1);

# Ends a node. If it used all of its time, on a busy machine, it may have lost hits.
sub end_node {
    my ($self, $number, $signal) = @_;
    my $node = $self->{node}{$number};
    $self->note_cycles($number);
    my $took = $node->end($signal);
    push @{$self->{late}}, sprintf 'node %d took %.1f s to end at %s', $number, $took, $signal if $took >= $last_push{$signal};
    push @{$self->{logs}}, $node->log_lines;
}

# Returns the nodes that may have lost hits since the last call, in words.
sub take_late { my ($self) = @_; return @{delete $self->{late} // []} }

# Waits for a successful cycle of a node that begins after this call.
sub wait_for_sync {
    my ($self, $number) = @_;
    my $count = sub { my %metrics = $self->metrics($number); $metrics{'ratelimit_sync_cycles_total{namespace="api",result="ok"}'} // 0 };
    my $before = $count->();
    # The first one may have begun before.
    $self->{node}{$number}->wait_for('a sync', sub { $count->() > $before + 1 });
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
    my $socket = $self->{node}{$number}->connection or return;
    print $socket "GET /metrics HTTP/1.0\r\n\r\n";
    return map { /^([^#\s]\S*) (\S+)$/ ? ($1 => $2) : () } readline $socket;
}

# Waits until no request is under way on any node. Returns what is wrong after 10 s, in words.
sub still_under_way {
    my ($self) = @_;
    my @wrong;
    for my $number ($self->numbers) {
        my ($deadline, %metrics) = (time + 10);
        do {
            %metrics = $self->metrics($number);
        } while ($metrics{'ratelimit_concurrent{namespace="api"}'} && time < $deadline);
        my $under_way = $metrics{'ratelimit_concurrent{namespace="api"}'} // 'unknown';
        push @wrong, "$under_way requests are under way on node $number" if $under_way ne '0';
    }
    return @wrong;
}

# Waits until each node has pushed a hit, and knows all nodes' hits.
sub settle {
    my ($self) = @_;
    my $mark = 'settle-' . ++$self->{marks};
    hit_for_sure($_, "$mark-$_->{name}") for $self->nodes;
    for my $node ($self->nodes) {
        for my $other ($self->nodes) {
            $node->wait_for('the hits of all', sub { $node->rate('ask-api-366d' => "$mark-$other->{name}") });
        }
    }
}

# Counts a hit; several if answers may be lost.
sub hit_for_sure {
    my ($node, $key) = @_;
    $node->wait_for('a hit', sub { $node->hit(mark => $key) eq '200' });
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
    if (Plan::needs_store($fault)) {
        $self->{store}->ready;
        # A node that ends waits for its store for a limited time, which is too short to connect on
        # a busy machine.
        $self->wait_for_sync($fault->{node}) if $fault->{kind} =~ /^quit/;
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
    my $act = {$store->kinds}->{$kind}{qw(begin undo)[$step]} or return;
    $act->($store, $fault, $self);
}

# The node whose clients may have to wait because of a fault.
sub slow_node {
    my ($fault) = @_;
    return $fault->{kind} =~ /worker|reload|quit/ ? $fault->{node} : undef;
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

sub begin_reload {
    my ($self, $fault) = @_;
    $self->{sync_rate}{$fault->{node}} = $fault->{sync_rate};
    $fault->{reloaded} = $self->node_of($fault)->begin_reload($self->configuration($fault->{node}));
}

sub wait_for_reload { my ($self, $fault) = @_; $fault->{reloaded}->() }

1;
