# The node whose processes are hit at fail points: its configurations, its clients, the orders for its processes, and what
# happens to it until a process reaches a point. See faults.pl.
#
# Besides what each node of Cluster.pm has, it has limits without a store, whose counts are compared (`alone`), and others
# whose counts are lost by design: a zone that is too small for its keys, whose namespaces each reload replaces, and
# keys that are reset.

package Target;

use strict;
use warnings;

use Time::HiRes qw(sleep time);

use Client;
use Node;

my $test = $$;
my @orphans;

END {
    local $?;
    if ($$ == $test) { kill KILL => @orphans }
}

# The orders of src/table/words/fail_driver.rs: milliseconds of a delay, and what stands for the others.
my %ORDERS = (kill => 0, stop => 0xffffffff, delay => 300);

# Limits of all algorithms that are not used without a store elsewhere. In `refused`, what they have admitted is refunded.
my %algorithms = (
    moving  => 'alone limit=100000/366d window=moving',
    elastic => 'alone limit=1000000/366d window=elastic',
    bucket  => 'alone rate=1/366d burst=999999',
);
my $alone = join '; ratelimit ', map { $algorithms{$_} } sort keys %algorithms;
my %exact = (alone => $alone, refused => "$alone; ratelimit alone limit=20/366d window=fixed");

# cluster => of which it is the first node; files => a directory.
sub new {
    my ($class, %self) = @_;
    my $node = $self{cluster}{node}{1};
    my $self = bless {%self, node => $node, orders => "$self{files}/orders", shape => 0}, $class;
    $self->write_orders(0, pack 'x128');
    $self->start;
    return $self;
}

sub start {
    my ($self) = @_;
    $self->{cluster}->start_node(1, $self->configuration, environment => {RATELIMIT_FAIL_POINTS => $self->{orders}});
}

# The API, by which a key is reset.
sub api { return 'location /write/ { ratelimit off; ratelimit_api write=on; }' }

# Returns the next configuration. The small zone has room for eight namespaces.
sub configuration {
    my ($self) = @_;
    my $cluster = $self->{cluster};
    my $shape   = ++$self->{shape};
    my %conf    = $cluster->configuration(1);
    my $store   = $cluster->{store}->conf($cluster->{proxy}{1}{main}{port});
    my $turn    = $shape % 2 ? 0.1 : 0;
    my $http    = "$conf{http} ratelimit_namespace alone { zone counters; } ratelimit_namespace fresh-$shape { zone counters; }
        ratelimit_namespace shifting { zone counters; store now; sync_rate $turn; }";
    $http .= " ratelimit_namespace small-$shape-$_ { zone small; store for_small; sync_rate 1; }" for 1, 2;
    $http .= " ratelimit_namespace small-$shape-$_ { zone small; }" for 3, 4;
    my $small = join '; ratelimit ', "small-$shape-1 limit=30/1h", "small-$shape-2 limit=3/1h",
        "small-$shape-3 concurrent=2", "small-$shape-3 limit=9/2h window=moving", "small-$shape-4 rate=\$arg_r/1s burst=3";
    return (
        zone  => $conf{zone},
        http  => "$http ratelimit_zone zone=small:64k; ratelimit_store for_small { $store $cluster->{times} exchanges 3; }",
        rules => {
            %{$conf{rules}}, %exact, map({ ("ask-$_" => "$algorithms{$_} cost=0") } keys %algorithms),
            small => $small,
            fresh => "fresh-$shape rate=\$arg_r/1s; ratelimit fresh-$shape limit=1000/1s window=moving",
            gone  => "$alone; ratelimit api limit=1000000/366d; ratelimit alone limit=1000/1d",
            shift => 'shifting limit=1000000/1d window=fixed',
        },
        # Its answer takes some seconds.
        server => $conf{server} . api() . ' location /slow { ratelimit api concurrent=100 key=slow; limit_rate 100; empty_gif; }',
    );
}

# Starts clients for a round. Returns a function that ends them, and returns which counts differ from their answers.
sub clients {
    my ($self, $round) = @_;
    my ($node, $file) = ($self->{node}, "$self->{files}/$round");
    my $key   = "r$round";
    my @exact = map { Client->new("$file-exact-$_", sub { exact($node, $key, @_) }) } 1, 2;
    my @other = (
        Client->new("$file-other", sub { $self->other(@_) }),
        map { Client->new("$file-slow-$_", sub { $_[1]->ask($node, GET => '/slow') }) } 1, 2
    );
    return sub {
        my ($is_judged) = @_;
        $_->stop for @other;
        my ($admitted, $open) = (0, 0);
        for my $client (@exact) {
            my %count = $client->stop;
            $admitted += delete($count{200}) // 0;
            delete $count{429};
            $open += $_ for values %count;
        }
        return $is_judged ? $self->wrong($key, $admitted, $open) : ();
    };
}

sub exact {
    my ($node, $key, $number) = @_;
    my ($status) = $node->get((sort keys %exact)[$number % 2] => $key);
    return $status;
}

sub other {
    my ($self, $number, $client) = @_;
    my ($node, $key) = ($self->{node}, $number % 3);
    if ($number % 20 == 7) {
        $client->ask($node, DELETE => "/write/namespaces/alone/keys/$key");
        # Both nodes reset it, and may not know that yet of each other.
        $client->ask($_, DELETE => "/write/namespaces/api/keys/$key") for $self->{cluster}->nodes;
        return 'reset';
    }
    my $location = (qw(fresh gone shift small small))[$number % 5];
    # A long name takes several places of its zone.
    my $long = 'k' x (10 * $key) . int rand 200;
    return $node->get($location => $location eq 'small' ? $long : $key, 'r=' . ($key + 1));
}

# Returns the counts that differ from the answers, in words.
sub wrong {
    my ($self, $key, $admitted, $open) = @_;
    my @wrong;
    for my $algorithm (sort keys %algorithms) {
        my $count = $self->{node}->rate("ask-$algorithm" => $key);
        push @wrong, "$algorithm: $admitted, and $open without an answer; counted: $count"
            if $count !~ /^\d+\z/ || $count < $admitted || $count > $admitted + $open;
    }
    return @wrong;
}

# Orders.

# Orders what happens to the process that reaches a point next. No order must be armed.
sub order {
    my ($self, $action, $point) = @_;
    # The number of passes, which arms the order, is written last.
    $self->write_orders(4, pack 'L L x52 a64', 0, $ORDERS{$action}, $point);
    $self->write_orders(0, pack 'L', 1);
}

# Cancels the order. Returns the process that was hit before, or 0.
sub disarm {
    my ($self) = @_;
    $self->write_orders(0, pack 'L', 0);
    return $self->hit;
}

# Writes in place, since processes have mapped the file.
sub write_orders {
    my ($self, $at, $words) = @_;
    my $name = $self->{orders};
    open my $file, -e $name ? '+<' : '+>', $name or die "cannot write: $!\n";
    sysseek $file, $at, 0;
    syswrite $file, $words;
    close $file;
}

# Returns the process that was hit, or 0.
sub hit {
    my ($self) = @_;
    open my $file, '<', $self->{orders} or die "cannot read: $!\n";
    sysread $file, my $text, 8;
    return (unpack 'L L', $text)[1];
}

# Events until a process reaches a point.

# Kills a worker while it pushes: at a fail point.
sub kill_worker {
    my ($self) = @_;
    $self->order('kill', 'batch.made');
    $self->{node}->wait_for('a push', sub { $self->hit });
}

# Begins to reload, unless old workers are left: one of them may have been hit.
sub reload {
    my ($self) = @_;
    my $node = $self->{node};
    return if !$self->has_reloaded;
    # Workers of a master that is killed are nobody's children.
    $self->{before} = [@orphans = $node->workers];
    $node->configure($self->configuration);
    kill HUP => $node->{master};
}

sub has_reloaded { my ($self) = @_; return $self->{node}->settled(@{$self->{before} // []}) }

sub wait_for_reload {
    my ($self) = @_;
    $self->{node}->wait_for('new workers in place of the old', sub { $self->has_reloaded });
}

# Starts the node again, after its master was killed in a reload: its workers, which go on, push and end.
sub restart {
    my ($self) = @_;
    my ($cluster, $node) = @$self{qw(cluster node)};
    kill QUIT => @orphans;
    $node->wait_for('the end of workers', sub { !grep { Nginx::is_running($_) } @orphans });
    @orphans = ();
    push @{$cluster->{logs}}, $node->log_lines;
    $self->start;
}

1;
