# Two nodes that share a store: their configuration, and tests that both nodes and the store agree on the counts.
#
# The nodes use the ports TEST_NGINX_PORT + 2 and + 3.
#
# No function waits for a fixed time. To show that a hit is not counted twice, the tests wait until each node has
# pushed a later hit (see `settle`).

package TwoNodes;

use strict;
use warnings;

use Exporter qw(import);
use List::Util qw(max sum0);
use Node;
use Test::More;

our @EXPORT = qw(
    $port @nodes $store $lost $unconfirmed $back $killed
    cut_off connected access patience conf impatient synchronous stop all_know settle start_acquainted sync_now pushed_under_load totals_of_loads no_answer_was_slow
    pushes_all ends_within
);

our $port  = $ENV{TEST_NGINX_PORT} || 1984;
our @nodes = (Node->new(a => $port + 2), Node->new(b => $port + 3));

# The store that the nodes share now, such as Redis.pm. Tests for any store use these methods:
#
#   label               its name in messages
#   software            a pattern for the name and version that it reports
#   strategy            the value of the directive `strategy`
#   port                the port to which nodes connect
#   access              directives that nodes need in the block `ratelimit_store`, if any
#   takes_the_machine   defined if the store uses so much processor time that responses may be late
#   patience            timeouts for the block that it exceeds only if it hangs; defined if it may exceed the
#                       default ones
#   tells_no_time       defined if nodes cannot compare their clocks with its one
#   second              the number of counters that surely reach it in a second, if not 2000
#   be_empty            starts it without data; keeps => 1 for a store that keeps its data in a `restart`
#   be_away             the same, but the store does not run
#   start, kill, runs   a killed store starts again without data, unless it keeps its data
#   restart             restarts a store that keeps its data
#   pause, go_on        makes it hang, and resumes it
#   flush               deletes all its data
#   cut_connections     closes the connections of nodes
#   connections         the number of connections of nodes (Redis and Postgres)
#   listeners           the number of connections that listen to the channel
#   disturbances        disruptive actions of an operator: pairs of a name and a function
#   lock, unlock        makes it require a password; undoes that
#   credentials         directives that replace `access` and give nodes this password
#   place               directives that replace `access` and keep counts elsewhere, numbered; and the
#                       matching fields of the object: pairs of a name and a value
#   windows             the algorithms by which it decides, if not all
#   may_refuse_all      defined if requests that race for the last hits of a limit may all be rejected
#   epoch               the epoch of a namespace
#   total, totals       the count of a key, or of each key, in a namespace: in all windows, or only in
#                       windows of a size in milliseconds
our $store;

our $lost        = qr/\[error\] .*ratelimit_store "main" (?:is lost|cannot be reached yet),/;
our $unconfirmed = qr/\[error\] .*ratelimit_store "main" did not confirm the last push of namespace "api" in time/;
our $back        = qr/\[error\] .*ratelimit_store "main" is back/;
our $killed      = qr/\[alert\] .* exited on signal 9/;

# Returns a pattern for the log of a node that may not be able to push all before it ends at this signal.
sub cut_off { return $_[0] eq 'TERM' ? qr/$unconfirmed|$killed/ : $unconfirmed }

# Returns a pattern for the log line about the first connection to the store.
sub connected {
    my $software = $store->software;
    return qr/\[notice\] .*ratelimit_store "main" is connected to \S+ \($software/;
}

# Returns the directives that nodes need for this store in the block `ratelimit_store`.
sub access { return $store->can('access') ? $store->access : '' }

# Returns the configuration of a node with the namespace `api` in the store `main`, and three locations: hit
# counts 1, cost counts its argument c, and ask counts nothing. The timeouts are so long that the store never
# exceeds them.
#
# server => directives that replace `server` of the store; store => directives that replace `access`;
# namespace => directives to add to the block of the namespace; times => the timeouts of the store; name => the
# name of the namespace; sync_rate, limit; window => the algorithm, where it matters.
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

# Returns `conf` with short timeouts: the default ones, which may expire on a busy machine, or those of the store.
sub impatient { return conf(times => patience(''), @_) }

# Returns short timeouts: the given ones, which may expire on a busy machine, or those of the store.
sub patience { my ($times) = @_; return $store->can('patience') ? $store->patience : $times }

# Returns `conf` with `sync_rate 0`, so that the store decides. By default, windows are fixed. The timeouts are so
# long that the store never exceeds them.
sub synchronous {
    return conf(sync_rate => 0, window => 'fixed', namespace => 'timeout 5s;', @_);
}

# Returns the value of a metric of a node.
sub metric {
    my ($node, $name) = @_;
    my ($value) = $node->body('/metrics') =~ /^\Q$name\E (\S+)$/m;
    return $value // '';
}

# Makes a node sync now.
sub sync_now {
    my ($node) = @_;
    my $socket = $node->connection or return;
    print $socket "POST /write/namespaces/api/sync HTTP/1.0\r\n\r\n";
    () = <$socket>;
}

# Starts both nodes with a sync every minute, and waits until each knows of the other. In the location `near`, the
# first hit of a key is half of its limit.
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
        # At most once in a second, a cycle reports that the node is alive, and fetches the number of live nodes.
        eventually(sub { sync_now($node); metric($node, 'ratelimit_nodes{namespace="api"}') }, 2, "$node->{name} knows both");
    }
}

# Stops the nodes that run.
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

# Waits until each of these nodes has pushed its counts and knows those of the others.
sub settle {
    my @settling = @_ ? @_ : @nodes;
    my $key      = 'settle-' . ++$settled;
    $_->hit(hit => $key) for @settling;
    for my $node (@settling) {
        $node->wait_for('the hits of all', sub { $node->rate(ask => $key) eq @settling });
    }
}

# Makes a hit on each of these nodes and waits until it is in the store.
sub pushed_under_load {
    my @pushing = @_ ? @_ : @nodes;
    my $key     = 'settle-' . ++$settled;
    $_->hit(hit => "$key-$_->{name}") for @pushing;
    for my $node (@pushing) {
        $node->wait_for('a push', sub { eval { $store->total(api => "$key-$node->{name}") } });
    }
}

# Stops the loads of `k`, tests that its total equals the number of admitted requests, and returns their sums. A lost
# request may count or not.
sub totals_of_loads {
    my @sums = map { $_->() } @_;
    my $made = sum0(map { $_->{200} } @sums);
    my $lost = sum0(map { $_->{lost} } @sums);
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    settle();
    # The hits of k may be in another shard.
    my $total;
    my $agree = sub {
        $total = $store->total(api => 'k');
        my @others = grep { $_ != $total } map { $_->rate(ask => 'k') } @nodes;
        return $total >= $made && !@others ? 'right' : join ' or ', $total, @others;
    };
    eventually($agree, 'right', "of the hits, $made were answered, $lost were not: no less");
    cmp_ok($total, '<=', $made + $lost, 'and no more are in ' . $store->label);
    all_know(k => $total);
    return @sums;
}

# The longest time, in seconds, for which a node that stops pushes its remaining counts, by signal.
my %patience = (QUIT => 2, TERM => 1);

# Tests that nodes push all their counts when they stop. `try` counts hits, stops the nodes by this signal, and
# returns the number of hits in the store, the number of counted hits, and the time that each node took to stop. A
# node that used all of its time, on a busy machine, need not have pushed everything: then the test tries again, up to
# five times. `try` gets the number of the time, and may count fewer keys each time.
sub pushes_all {
    my ($signal, $name, $try) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    for my $time (1 .. 5) {
        my ($total, $counted, @took) = $try->($time);
        return is($total, $counted, $name) if $total == $counted || $time == 5 || max(@took) < $patience{$signal};
        diag(sprintf 'of %s hits, %s were pushed in %s s: once more', $counted, $total, join ' and ', map { sprintf '%.1f', $_ } @took);
    }
}

# Tests that a node stops in less than this number of seconds. `try` stops it and returns how long that took. The test
# tries up to five times, because the machine may be busy.
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

# Tests that the slowest response in these sums of loads was fast enough.
sub no_answer_was_slow {
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    # Beside such a store, a process may wait for 5 s until it gets a processor.
    my $most = $store->can('takes_the_machine') ? 10 : 3;
    cmp_ok($_->{slowest}, '<', $most, "every answer was there within $most s") for @_;
}

1;
