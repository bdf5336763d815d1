# The program that scripts/soak.sh runs; see there for its purpose.

use strict;
use warnings;

use FindBin;
use List::Util qw(max sum0);
use Time::HiRes qw(sleep time);

use lib "$FindBin::Bin/../../t/lib";
use Cassandra;
use Node;
use Postgres;
use Processes;
use Redis;

use constant {
    KEYS        => 1_000_000,
    # Of each node. 32 connections that pause for 100 ms make 320 requests in a second.
    CONNECTIONS => 32,
    PAUSE       => 100,
    WINDOW      => '5m',
    # How much a value may be above the greatest of the second quarter, and the least that counts.
    GROWTH      => 1.1,
    LEAST       => 10,
};

# Only these may leave requests without an answer: workers that close connections, end or stand still.
my %may_fail = map { $_ => 1 } 'reload', 'kill worker', 'stop worker';

$| = 1;
$SIG{INT} = $SIG{TERM} = sub { exit 130 };

my ($hours, $table, @names) = @ARGV;
my $port  = $ENV{PORT};
my %store = (redis => Redis->new(port => $port + 2), postgres => Postgres->new(port => $port + 3));
$store{cassandra} = Cassandra->new(port => $port + 4) if grep { $_ eq 'cassandra' } @names;
my @nodes = map { Node->new($_ => $port + $_) } 0, 1;

# Actions, one in each minute, in turn. A store that restarts keeps nothing.
my @actions = (
    reload        => sub { $_->reload for @nodes },
    'kill worker' => sub { kill KILL => ($_->workers)[0] for @nodes },
    'stop worker' => sub {
        my $worker = ($nodes[0]->workers)[1];
        stop_processes($worker);
        sleep 5;
        kill CONT => $worker;
    },
    (map { my $store = $store{$_}; ("stop $_" => sub { $store->pause; sleep 5; $store->go_on }) } @names),
    (map { my $store = $store{$_}; ("cut connections of $_" => sub { $store->cut_connections }) } @names),
    (map { my $store = $store{$_}; ("restart $_" => sub { $store->kill; $store->start }) } @names),
);

$store{$_}->be_empty for @names;
$_->start(configuration()) for @nodes;

my (@samples, @columns, $requests, %failed);
my $begin = time;
open my $file, '>', $table or die "cannot write $table: $!\n";
$file->autoflush;
for (my $minute = 0; time < $begin + 3600 * $hours; $minute++) {
    my ($name, $action) = @actions[2 * $minute % @actions, (2 * $minute + 1) % @actions];
    my @clients = map { client($_, $minute) } @nodes;
    sleep 10;
    $action->();
    for my $client (@clients) {
        my ($made, $lost) = map { /^(\d+) (\d+)$/ } <$client>;
        close $client or die "wrk fails\n";
        $requests += $made;
        $failed{$name} += $lost;
    }
    note($name);
}
judge();

sub configuration {
    my %login  = (redis => '', postgres => 'username postgres;', cassandra => '');
    my @blocks = map {
        my $access = $store{$_}->can('access') ? $store{$_}->access : $login{$_};
        <<"END"
        ratelimit_store $_ { strategy $_; server 127.0.0.1:$store{$_}{port}; $access timeout 2s; connect_timeout 2s; }
        ratelimit_namespace $_ { store $_; sync_rate 2s; }
END
    } @names;
    my $rule = join '; ratelimit ', map {"$_ limit=1000/${\ WINDOW}"} @names;
    return (http => "ratelimit_headers off; @blocks", zone => '512m', rules => {hit => $rule});
}

# Returns a pipe from wrk, which makes requests to a node for a minute.
sub client {
    my ($node, $minute) = @_;
    open my $client, '-|', qw(wrk -t 1 -d 60 -c), CONNECTIONS, '-s', "$FindBin::Bin/paced.lua",
        "http://127.0.0.1:$node->{port}/", '--', KEYS, PAUSE, 2 * $minute + $node->{name} or die "cannot start wrk: $!\n";
    return $client;
}

# Adds a line to the table, and the names of the columns before the first one.
sub note {
    my ($action) = @_;
    my @values = (minutes => sprintf '%.1f', (time - $begin) / 60);
    for my $node (@nodes) {
        my @workers = $node->workers;
        my ($counters) = $node->body('/metrics') =~ /^ratelimit_zone_counters\{[^}]*\} (\d+)/m;
        my $name = $node->{name};
        push @values,
            "workers $name, KiB"   => sum0(map { own_memory($_) } @workers),
            "master $name, KiB"    => own_memory($node->{master}),
            "descriptors $name"    => sum0(map { scalar(() = glob "/proc/$_/fd/*") } @workers, $node->{master}),
            "threads $name"        => sum0(map { scalar(() = glob "/proc/$_/task/*") } @workers, $node->{master}),
            "zone $name, counters" => $counters;
    }
    push @values, map { ("$_, KiB" => size_of($_)) } @names;
    my (@header, %sample);
    while (my ($name, $value) = splice @values, 0, 2) {
        push @header, $name;
        $sample{$name} = $value;
    }
    if (!@columns) {
        @columns = @header;
        print $file join("\t", @columns, 'before'), "\n";
    }
    push @samples, \%sample;
    print $file join("\t", @sample{@columns}, $action), "\n";
    print "minute $sample{minutes}: $action\n";
}

# Returns the memory of a process in KiB, without the zones that it shares.
sub own_memory {
    my ($pid) = @_;
    open my $status, '<', "/proc/$pid/status" or return 0;
    return (map { /^RssAnon:\s+(\d+)/ ? $1 : () } <$status>)[0] // 0;
}

sub size_of {
    my ($name) = @_;
    my $store = $store{$name};
    return int(($store->cli('INFO', 'memory') =~ /^used_memory:(\d+)/m)[0] / 1024) if $name eq 'redis';
    return int($store->sql('SELECT pg_database_size(current_database())') / 1024) if $name eq 'postgres';
    return (split ' ', qx(du -sk '$store->{server}{dir}/data'))[0];
}

# Compares the last quarter with the second one.
sub judge {
    my $quarter = int(@samples / 4) or die "too short to judge\n";
    my @troubles;
    for my $column (@columns[1 .. $#columns]) {
        my @values = map { $_->{$column} } @samples;
        my ($then, $now) = (max(@values[$quarter .. 2 * $quarter - 1]), max(@values[-$quarter .. -1]));
        printf "%-22s %9d in the second quarter, %9d in the last\n", $column, $then, $now;
        # A zone keeps one counter for each key of a namespace, and fills until it has them all.
        my $most = $column =~ /counters$/ ? KEYS * @names : max(GROWTH * $then, $then + LEAST);
        push @troubles, "$column grows" if $now > $most;
    }
    print "$requests requests; without an answer: ", join(', ', map { "$failed{$_} ($_)" } sort keys %failed), "\n";
    push @troubles, map { "requests failed at: $_" } grep { $failed{$_} && !$may_fail{$_} } sort keys %failed;
    for my $node (@nodes) {
        my @grave = grep { /\[(?:alert|emerg|crit)\]/ && !/exited on signal 9/ } $node->log_lines;
        push @troubles, "the log of a node has: $grave[0]" if @grave;
        $node->end;
    }
    print "$_\n" for @troubles;
    exit(@troubles ? 1 : 0);
}
