# The cost of syncing: what the store and the nodes did between two readings.
package Meter;

use strict;
use warnings;

use List::Util qw(max sum0);
use Time::HiRes qw(time);

use Bench qw(cpu cpu_of_threads);
use Nodes;

# Redis' commands that nodes send; those that a script calls are counted, too.
my %IS_SENT = map { $_ => 1 } qw(auth client eval evalsha hello ping script xread);

# Reads all counters of some nodes and their store. nodes: instead of all of the cluster.
sub read {
    my ($class, $cluster, @nodes) = @_;
    @nodes = @{$cluster->{nodes}} if !@nodes;
    my $self = bless {at => time, store => $cluster->work->{store}}, $class;
    $self->{sync}     = [map { cpu_of_threads('ratelimit sync', @{$_->{workers}}) } @nodes];
    $self->{all}      = cpu(map { @{$_->{workers}} } @nodes);
    $self->{commands} = commands($cluster);
    @$self{qw(in out)} = $cluster->{redis} ? redis_bytes($cluster->{redis}) : socket_bytes($cluster->{postgres}{port});
    for my $node (@nodes) {
        my %metrics = Nodes::metrics($node);
        for my $name (grep {/^ratelimit_store_exchange_duration_seconds/} keys %metrics) {
            my $field = $name =~ /le="([^"]+)"/ ? "le $1" : $name =~ /_count/ ? 'count' : 'sum';
            $self->{exchanges}{$field} += $metrics{$name};
        }
    }
    return $self;
}

# Returns the store's counts by command, or of Postgres, its transactions and the rows that they read and wrote.
sub commands {
    my ($cluster) = @_;
    if (my $redis = $cluster->{redis}) {
        my %all = $redis->cli('INFO', 'commandstats') =~ /^cmdstat_([^:]+):calls=(\d+)/mg;
        return {map { /^(\w+)/ && $IS_SENT{$1} ? ($_ => $all{$_}) : () } keys %all};
    }
    my @names = qw(xact_commit xact_rollback tup_fetched tup_inserted tup_updated tup_deleted);
    my @sums  = map {"sum($_)"} @names;
    my %of;
    @of{@names} = split /\|/, $cluster->{postgres}->sql('SELECT ' . join(', ', @sums) . ' FROM pg_stat_database');
    return \%of;
}

sub sum_of_commands { return sum_of(commands(@_)) }

sub sum_of {
    my ($commands) = @_;
    return sum0(map { $commands->{$_} } grep { !/^tup/ } keys %$commands);
}

sub redis_bytes {
    my ($redis) = @_;
    my %stats = $redis->cli('INFO', 'stats') =~ /^(total_net_\w+):(\d+)/mg;
    return @stats{qw(total_net_input_bytes total_net_output_bytes)};
}

# Returns the bytes that the living connections of a server received and sent.
sub socket_bytes {
    my ($port) = @_;
    my $said = `ss -tinH state established '( sport = :$port )'`;
    return (sum0($said =~ /bytes_received:(\d+)/g), sum0($said =~ /bytes_sent:(\d+)/g));
}

# Returns what happened since an earlier reading of the same nodes, by second.
sub since {
    my ($self, $earlier) = @_;
    my $seconds = $self->{at} - $earlier->{at};
    my $more    = sub { my ($of) = @_; return ($of->($self) - ($of->($earlier) // 0)) / $seconds };
    my @sync    = map { 100 * ($self->{sync}[$_] - $earlier->{sync}[$_]) / $seconds } 0 .. $#{$self->{sync}};
    my %commands;
    for my $name (sort keys %{$self->{commands}}) {
        my $count = $more->(sub { $_[0]{commands}{$name} });
        $commands{$name} = $count if $count > 0;
    }
    return {
        seconds         => $seconds,
        store_cpu       => 100 * $more->(sub { $_[0]{store} }),
        commands        => \%commands,
        commands_in_all => sum_of(\%commands),
        bytes_in        => $more->(sub { $_[0]{in} }),
        bytes_out       => $more->(sub { $_[0]{out} }),
        exchanges       => $more->(sub { $_[0]{exchanges}{count} }),
        sync_cpu        => sum0(@sync) / @sync,
        sync_cpu_most   => max(@sync),
        node_cpu        => 100 * $more->(sub { $_[0]{all} }) / @sync,
        map { ("exchange_p${_}_ms" => 1000 * $self->percentile($earlier, $_ / 100)) } 50, 99,
    };
}

# Returns the duration of an exchange below which this share of them is, in seconds, with a histogram's accuracy.
sub percentile {
    my ($self, $earlier, $share) = @_;
    my %count  = map { $_ => $self->{exchanges}{$_} - ($earlier->{exchanges}{$_} // 0) } keys %{$self->{exchanges}};
    my @bounds = sort { $a <=> $b } map { /^le ([\d.e-]+)/ ? $1 : () } keys %count;
    my ($rank, $least, $before) = ($share * $count{count}, 0, 0);
    for my $bound (@bounds) {
        my $until = $count{"le $bound"};
        return $least + ($bound - $least) * ($rank - $before) / (($until - $before) || 1) if $until >= $rank;
        ($least, $before) = ($bound, $until);
    }
    return $least;
}

1;
