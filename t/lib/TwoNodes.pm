# Two nodes that share a store: their configuration, and that both and the store know what they count.
#
# Of TEST_NGINX_PORT, the nodes take the second and third port after that one.
#
# Nothing here waits for a fixed time: for a thing to be done twice, a node has pushed something else
# after it (see `settle`).

package TwoNodes;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(max sum0);
use Node;
use Test::More;

our @EXPORT = qw(
    $port @nodes $store $lost $back $killed
    connected access patience conf impatient synchronous stop all_know settle start_acquainted sync_now pushed_under_load totals_of_loads no_answer_was_slow
    pushes_all ends_within
);

our $port  = $ENV{TEST_NGINX_PORT} || 1984;
our @nodes = (Node->new(a => $port + 2), Node->new(b => $port + 3));

# The store that they share now, such as Redis.pm. A test of any store needs of it:
#
#   label               what it is called
#   software            what it calls itself, a pattern
#   strategy            the value of that directive
#   port                where it listens
#   access              more of the block `ratelimit_store` that nodes need, if anything
#   takes_the_machine   that it does: answers may be late for want of a processor, of all stores that have this
#   patience            times for its block that it only misses if it hangs, where the usual ones are none
#   second              how many counters it is surely told in a second, if not 2000
#   be_empty            has it run, and hold nothing; keeps => 1 for one that keeps that over a `restart`
#   be_away             the same, but it does not run
#   start, kill, runs   one that was killed comes back empty, unless it is one that keeps what it has
#   restart             has one that keeps what it has do that
#   pause, go_on        has it hang, for a time
#   flush               has it lose all that it holds
#   cut_connections     ends those of nodes
#   listeners           how many of them listen for what others push
#   disturbances        what an operator may do to it: pairs of a name and what does it
#   lock, unlock        has it want a password, and not any more
#   credentials         in place of `access`, with which nodes have this password
#   place               likewise, with which counts are in another place, of a number; and what of the
#                       object tells that: pairs of a field and its value
#   windows             those by which it decides, if not by all
#   may_refuse_all      is there if those who race for the last hits of a limit may all be refused
#   epoch               that of a namespace
#   total, totals       what a key, or each key, of a namespace counts: of all windows, or of those of so
#                       many milliseconds
our $store;

our $lost   = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;
our $back   = qr/\[error\] .*ratelimit_store "main" is back/;
our $killed = qr/\[alert\] .* exited on signal 9/;

# What the log says of the first connection to the store.
sub connected {
    my $software = $store->software;
    return qr/\[notice\] .*ratelimit_store "main" is connected to \S+ \($software/;
}

# What of its block nodes need, besides what all stores have.
sub access { return $store->can('access') ? $store->access : '' }

# The configuration of a node: the namespace `api` in the store `main`, and the locations hit, which
# counts 1, cost, which counts its argument c, and ask, which counts nothing. The store has so much
# time that it is never late.
#
# server => in place of the store's own, with what of the block follows it; store => in place of what
# nodes need besides; namespace => more of its block; times => of the store; name => that of the namespace; sync_rate, limit; window => its
# kind, where that matters.
sub conf {
    my (%conf) = (
        server    => "server 127.0.0.1:$store->{port};",
        store     => access(),
        times     => 'timeout 5s; connect_timeout 5s;',
        name      => 'api',
        namespace => '',
        sync_rate => '0.1',
        limit     => 1_000_000,
        @_
    );
    my $strategy = $store->strategy;
    my $limit    = "$conf{name} limit=$conf{limit}/366d" . ($conf{window} ? " window=$conf{window}" : '');
    return (
        http => <<"        END",
        ratelimit_store main { strategy $strategy; $conf{server} $conf{store} $conf{times} }
        ratelimit_namespace $conf{name} { store main; sync_rate $conf{sync_rate}; $conf{namespace} }
        END
        rules => {hit => $limit, cost => "$limit cost=\$arg_c", ask => "$limit cost=0"},
    );
}

# The same with times that are soon over: the usual ones, which a busy machine may miss, or the store's.
sub impatient { return conf(times => patience(''), @_) }

# Times that are soon over: these, which a busy machine may miss, or the store's.
sub patience { my ($times) = @_; return $store->can('patience') ? $store->patience : $times }

# The same, but the store decides: with fixed windows, unless a test says otherwise, and so much time that
# it is never late.
sub synchronous {
    return conf(sync_rate => 0, window => 'fixed', namespace => 'timeout 5s;', @_);
}

# The value of a metric of a node.
sub metric {
    my ($node, $name) = @_;
    my ($value) = $node->body('/metrics') =~ /^\Q$name\E (\S+)$/m;
    return $value // '';
}

# Has a node sync all that changed.
sub sync_now {
    my ($node) = @_;
    my $socket = $node->connection or return;
    print $socket "POST /write/namespaces/api/sync HTTP/1.0\r\n\r\n";
    () = <$socket>;
}

# Starts both nodes, which know of each other and sync once in a minute. In the location `near`, each first hit of
# a key is half of its limit.
sub start_acquainted {
    my (%conf)  = @_;
    my $workers = delete $conf{workers} // 1;
    my %node    = conf(sync_rate => '1m', %conf);
    $node{rules}{near}   = 'api limit=2/364d';
    $node{rules}{unseen} = 'api limit=2/363d';
    $store->be_empty;
    $_->start(%node, workers => $workers, server => 'location /write/ { ratelimit off; ratelimit_api write=on; } ratelimit_log_level off;')
        for @nodes;
    for my $node (@nodes) {
        # A cycle says that the node lives, and how many do, once in a second at most.
        eventually(sub { sync_now($node); metric($node, 'ratelimit_nodes{namespace="api"}') }, 2, "$node->{name} knows both");
    }
}

# Stops the nodes that there are.
sub stop {
    my ($expected) = @_;
    $_->stop($expected) for grep { $_->{master} } @nodes;
}

# Tests that the total of a key is in the store and in the rates of both nodes, and stays.
sub all_know {
    my ($key, $total) = @_;
    my $label = $store->label;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    eventually(sub { $store->total(api => $key) }, $total, "$key in $label");
    for my $node (@nodes) {
        eventually(sub { $node->rate(ask => $key) }, $total, "$key on $node->{name}");
    }
    settle();
    is($store->total(api => $key), $total, "$key stays in $label");
    is($_->rate(ask => $key), $total, "$key stays on $_->{name}") for @nodes;
}

my $settled = 0;

# Waits until each of these nodes has pushed what it counted, and knows what the others did.
sub settle {
    my @settling = @_ ? @_ : @nodes;
    my $key      = 'settle-' . ++$settled;
    $_->hit(hit => $key) for @settling;
    for my $node (@settling) {
        $node->wait_for('the hits of all', sub { $node->rate(ask => $key) eq @settling });
    }
}

# Waits until each of these nodes has pushed a hit that it counts now.
sub pushed_under_load {
    my @pushing = @_ ? @_ : @nodes;
    my $key     = 'settle-' . ++$settled;
    $_->hit(hit => "$key-$_->{name}") for @pushing;
    for my $node (@pushing) {
        $node->wait_for('a push', sub { eval { $store->total(api => "$key-$node->{name}") } });
    }
}

# Ends the loads of `k`, tests that its total is that of the answers, and returns their sums.
sub totals_of_loads {
    my @sums = map { $_->() } @_;
    my $made = sum0(map { $_->{200} } @sums);
    my $lost = sum0(map { $_->{lost} } @sums);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    settle();
    my $total = $store->total(api => 'k');
    cmp_ok($total, '>=', $made,         "of the hits, $made were answered, $lost were not: no less");
    cmp_ok($total, '<=', $made + $lost, 'and no more are in ' . $store->label);
    all_know(k => $total);
    return @sums;
}

# The seconds for which a node that ends tries to push what is left, though the store takes nothing, by its signal.
my %patience = (QUIT => 2, TERM => 0.8);

# Tests that nodes that are stopped push all. `try` has nodes count, stops them by that signal, and returns how many
# hits are in the store, how many were counted, and how long it took to stop each node. One that had all of its time,
# on a busy machine, has kept its promise whatever it pushed: then there is another try.
sub pushes_all {
    my ($signal, $name, $try) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    for my $time (1 .. 5) {
        my ($total, $counted, @took) = $try->();
        return is($total, $counted, $name) if $total == $counted || $time == 5 || max(@took) < $patience{$signal};
        diag(sprintf 'of %s hits, %s were pushed in %s s: once more', $counted, $total, join ' and ', map { sprintf '%.1f', $_ } @took);
    }
}

# Tests that a node is stopped in less than so many seconds. `try` stops it, and returns how long that took: it is tried
# again where a busy machine has no processor for it.
sub ends_within {
    my ($seconds, $name, $try) = @_;
    my $took;
    for my $time (1 .. 5) {
        $took = $try->();
        last if $took < $seconds;
        diag(sprintf 'it took %.1f s: once more', $took);
    }
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    cmp_ok($took, '<', $seconds, $name);
}

# Tests that of these sums of loads.
sub no_answer_was_slow {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $most = $store->can('takes_the_machine') ? 5 : 3;
    cmp_ok($_->{slowest}, '<', $most, "every answer was there within $most s") for @_;
}

1;
