# Plans faults. A plan depends only on its seed.
#
# Faults overlap unless they exclude each other. Each fault locks the resources that it needs
# (`takes`); faults that mark a resource as `shared` can use it together. The resources are the
# `store` and, for each node by number, its connections to the store (`net 1`), its processes
# (`workers 1`) and its configuration (`conf 1`). A store may add more.

package Plan;

use strict;
use warnings;

use NodeFaults;
use List::Util qw(max none sum0);

# The options of each kind of fault:
#   weight   its relative frequency
#   rounds   the rounds in which it may occur: `losing`, `keeping` or `both`; see chaos.sh
#   hold     its shortest and longest duration in seconds; without it, the fault ends at once
#   rest     the time in seconds for which its resources stay locked after its end
#   draw     returns its random parameters as a hash; the argument is the plan
#   takes    returns the resources that it needs; the argument is the fault
#
# The kinds of faults of a store are in the class of the store; see Cluster.pm.
my %kinds = (
    # Ways to the store.
    'reset'             => {weight => 4, rounds => 'both', draw => \&some_nodes, takes => \&nets},
    'cut answers'       => {weight => 6, rounds => 'both', hold => [0.3, 1.5], takes => \&nets,
        draw => sub { (some_nodes(@_), answers => 1 + $_[0]->number(3)) }},
    'late answers'      => {weight => 3, rounds => 'both', hold => [0.3, 1.5], takes => \&nets,
        draw => sub { (some_nodes(@_), delay => $_[0]->time(0.02, 0.2)) }},
    'too late answers'  => {weight => 3, rounds => 'both', hold => [0.5, 2], takes => \&nets,
        draw => sub { (some_nodes(@_), delay => $_[0]->time(0.26, 1)) }},
    'hold answers'      => {weight => 3, rounds => 'both', hold => [0.1, 2.5], draw => \&some_nodes,
        takes => \&nets},
    'refuse'            => {weight => 3, rounds => 'both', hold => [0.1, 1.5], draw => \&some_nodes,
        takes => \&nets},
    'silence'           => {weight => 4, rounds => 'both', hold => [0.1, 3], draw => \&some_nodes,
        takes => \&nets},
    # Nodes.
    'kill worker'       => {weight => 5, rounds => 'both', hold => [0.1, 0.3], draw => \&a_worker,
        takes => sub { ("workers $_[0]{node} shared") }},
    'kill workers'      => {weight => 1, rounds => 'both', hold => [0.1, 0.3], draw => \&a_worker,
        takes => sub { ("workers $_[0]{node} shared") }},
    'stop worker'       => {weight => 5, rounds => 'both', hold => [0.1, 3], draw => \&a_worker,
        takes => sub { ("workers $_[0]{node}") }},
    'stop workers'      => {weight => 2, rounds => 'both', hold => [0.1, 3], draw => \&a_worker,
        takes => sub { ("workers $_[0]{node}") }},
    'reload'            => {weight => 4, rounds => 'both', hold => [0.3, 1], takes => \&reload,
        draw => sub { (a_worker(@_), sync_rate => sync_rate(@_)) }},
    'reload with another sync_rate' => {weight => 2, rounds => 'both', hold => [0.3, 1],
        draw => sub { (a_worker(@_), sync_rate => $_[0]->one_of(0.03, 0.05, 0.3, 0.5)) },
        takes => \&reload},
    'quit and start'    => {weight => 25, rounds => 'keeping', hold => [0.05, 1], takes => \&whole,
        draw => sub { (a_worker(@_), signal => $_[0]->one_of(qw(QUIT QUIT TERM))) }},
);

sub store  { return 'store' }
sub nets   { my ($fault) = @_; return map {"net $_"} @{$fault->{nodes}} }
sub reload { my ($fault) = @_; return ("workers $fault->{node} shared", "conf $fault->{node}") }

# A node that ends must be able to push its remaining hits.
sub whole {
    my ($fault) = @_;
    return ('store', map {"$_ $fault->{node}"} qw(net workers conf));
}

# Returns the functions of a fault after which a store is as it once was: it is stopped and copied, and later it is killed
# and continues from the copy. The arguments are functions that start, stop and kill it.
sub old_copy {
    my ($start, $stop, $kill) = @_;
    my $replace = sub {
        my ($store, $from, $to, @command) = @_;
        my $dir = ($store->{server} // $store)->{dir};
        system(qw(rm -rf), "$dir/$to") == 0 && system(@command, "$dir/$from", "$dir/$to") == 0
            or die "cannot @command $dir/$from\n";
        $start->($store);
    };
    return (
        begin => sub { my ($store) = @_; $stop->($store); $replace->($store, 'data', 'copy', 'cp', '-a') },
        undo  => sub { my ($store) = @_; $kill->($store); $replace->($store, 'copy', 'data', 'mv') },
    );
}

# One node or, more rarely, all.
sub some_nodes {
    my ($plan) = @_;
    my @nodes = $plan->nodes;
    return (nodes => $plan->number(4) ? [$plan->one_of(@nodes)] : \@nodes);
}

# The period of the nodes, if no reload changes it. Many nodes sync less often, since each push wakes all others.
sub sync_rate { my ($of) = @_; return max(0.1, $of->{nodes} / 50) }

sub a_worker {
    my ($plan) = @_;
    return (node => $plan->one_of($plan->nodes), worker => $plan->number(2));
}

# seed; nodes => how many; store => the class of what they share.
sub new {
    my ($class, %self) = @_;
    srand $self{seed};
    %kinds = (%kinds, NodeFaults::kinds($self{store}), $self{store}->kinds);
    delete @kinds{grep { $kinds{$_}{takes} == \&nets } keys %kinds} if !$self{store}->has_way;
    return bless {%self}, $class;
}

# The faults of a round of a kind, which lasts so many seconds: each with its kind, when it begins and
# ends (`from`, `to`), and what was drawn.
sub round {
    my ($self, $round, $seconds) = @_;
    my (@faults, @present);
    for (my $now = 0.5; $now < $seconds; $now += $self->time(0.02, 0.4)) {
        @present = grep { $_->{to} + ($kinds{$_->{kind}}{rest} // 0) > $now } @present;
        my $fault = $self->fault($round, $now);
        next if $fault->{to} > $seconds || !fits($fault, @present);
        push @present, $fault;
        push @faults,  $fault;
    }
    return @faults;
}

# Returns any fault that the round allows, from now on.
sub fault {
    my ($self, $round, $now) = @_;
    my @names = grep { $kinds{$_}{rounds} =~ /^(?:both|\Q$round\E)\z/ } sort keys %kinds;
    my $point = $self->number(sum0(map { $kinds{$_}{weight} } @names));
    while ($point >= $kinds{$names[0]}{weight}) {
        $point -= $kinds{shift @names}{weight};
    }
    my $kind  = $kinds{$names[0]};
    my $to    = $now + ($kind->{hold} ? $self->time(@{$kind->{hold}}) : 0);
    my %drawn = $kind->{draw} ? $kind->{draw}->($self) : ();
    return {kind => $names[0], from => $now, to => $to, %drawn};
}

# Returns whether a fault can occur together with others.
sub fits {
    my ($fault, @present) = @_;
    my %taken = map { $_ => 1 } map { takes($_) } @present;
    return none {
        my $name = s/ shared\z//r;
        $taken{$name} || ($_ eq $name && $taken{"$name shared"});
    } takes($fault);
}

sub needs_store { my ($fault) = @_; return scalar grep {/^store/} takes($fault) }

sub takes { my ($fault) = @_; return $kinds{$fault->{kind}}{takes}->($fault) }

# Describes a fault in words.
sub words {
    my ($fault) = @_;
    my %about = %$fault;
    delete @about{qw(kind from to)};
    delete $about{worker} if $fault->{kind} !~ /worker\z/;
    my @about = map {
        my $value = $about{$_};
        "$_ " . (ref $value eq 'ARRAY' ? join '+', @$value : $value);
    } grep { !ref $about{$_} || ref $about{$_} eq 'ARRAY' } sort keys %about;
    push @about, map {"$_ $about{change}{$_}"} sort keys %{$about{change} // {}};
    my $span = sprintf '%6.2f - %6.2f', @$fault{qw(from to)};
    return join ', ', "$span  $fault->{kind}", @about;
}

# Randomness.

sub nodes  { return 1 .. $_[0]{nodes} }
sub number { my ($self, $below) = @_; return int rand $below }
sub one_of { my ($self, @things) = @_; return $things[rand @things] }
sub time   { my ($self, $least, $most) = @_; return 0 + sprintf '%.3f', $least + rand($most - $least) }

sub shuffle {
    my ($self, @things) = @_;
    return map { splice @things, rand @things, 1 } 1 .. @things;
}

1;
