# The counts of counters in the store and in each node, and their comparison with the ledgers of clients. A process for
# each node asks it, since a comparison of twenty nodes, one after another, would take minutes.

package Totals;

use strict;
use warnings;

use IO::Select;
use List::Util qw(min sum0 uniq);
use POSIX ();
use Time::HiRes qw(time);

use Requests;
use Node;

my $test = $$;
my @asking;

END {
    local $?;
    if ($$ == $test) { kill KILL => @asking }
}

# Returns the counts of a round's counters in the store and in each node, in thousandths, by name.
# For counters without totals in the store, uses the answer of the first node.
sub found {
    my ($cluster, $round, $counters) = @_;
    my (%found, %odd);
    %odd = Requests::odd_names("r$round");
    for my $namespace (@Cluster::NAMESPACES) {
        for my $days (@Cluster::DAYS) {
            my $totals = $cluster->{store}->totals($namespace, $days * 24 * 3600 * 1000);
            for my $name (keys %$totals) {
                my $key = $odd{$name} // ($name =~ /^r$round-/ ? $name : next);
                next if $namespace eq 'full';
                $found{"$namespace ${days}d $key"}{store} = thousandths($totals->{$name});
            }
        }
    }
    my @names   = grep { !/^full / } uniq keys %$counters, keys %found;
    my %answers = map { $_ => ask($cluster->{node}{$_}, @names) } $cluster->numbers;
    for my $number ($cluster->numbers) {
        my $answer = $answers{$number};
        for my $name (@names) {
            chomp(my $count = readline($answer) // die "node $number was not asked for all counters\n");
            $found{$name}{$number} = $count;
        }
        close $answer or die "node $number could not be asked\n";
    }
    @asking = ();
    $found{$_}{store} //= Requests::has_total($_) ? 0 : $found{$_}{1} for @names;
    return \%found;
}

# Returns the hits of a round in `full`, of which each has a key of its own.
sub in_full {
    my ($cluster, $round) = @_;
    my $totals = $cluster->{store}->totals('full');
    return 1000 * sum0(map { $totals->{$_} } grep {/^r$round-/} keys %$totals);
}

# Starts a process that asks a node for counters, one after another. Returns its output: a count in each line.
sub ask {
    my ($node, @names) = @_;
    defined(my $pid = open my $answer, '-|') or die "cannot fork: $!\n";
    push @asking, $pid if $pid;
    return $answer if $pid;
    my $done = eval {
        for my $name (@names) {
            my ($namespace, $window, $key) = split / /, $name;
            print thousandths(rate_on($node, Node::path("ask-$namespace-$window", Requests::key_of($key)))), "\n";
        }
        STDOUT->flush;
    };
    print STDERR $@ if !$done;
    POSIX::_exit($done ? 0 : 1);
}

# Returns a node's count. On a busy machine the store may not answer in time, so it is asked again.
sub rate_on {
    my ($node, $path) = @_;
    my ($status, $rate);
    $node->wait_for('a decision', sub {
        ($status, $rate) = get($node, $path);
        return defined $status && $status ne '503';
    });
    return $rate;
}

# The connection of this process to its node.
my $connection;

# Makes a request; returns its status and the rate, or nothing if it was not answered.
sub get {
    my ($node, $path) = @_;
    $connection //= $node->connection or return;
    print $connection "HEAD $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    my $text = '';
    while ($text !~ /\r\n\r\n\z/) {
        next if IO::Select->new($connection)->can_read(10) && sysread $connection, $text, 65536, length $text;
        undef $connection;
        return;
    }
    undef $connection if $text =~ /\r\nConnection: close\r\n/;
    return ($text =~ m{^HTTP/1\.1 (\d+)}, $text =~ /\r\nRate: (\S+)/);
}

sub thousandths { return 0 + sprintf '%.0f', 1000 * ($_[0] || 0) }

# Adds up the ledgers of several clients.
sub sum_of {
    my (%counters, %requests);
    for my $ledger (@_) {
        for my $name (keys %{$ledger->{counters}}) {
            $counters{$name}{$_} += $ledger->{counters}{$name}{$_} for qw(answered open rejected);
        }
        for my $namespace (@Cluster::NAMESPACES) {
            my $requests = $ledger->{requests}{$namespace};
            $requests{$namespace}{$_} += $requests->{$_} for keys %$requests;
        }
    }
    return {counters => \%counters, requests => \%requests};
}

# Returns the bounds of a counter. A synchronous counter never exceeds its limit, and reaches it if
# a request was rejected, unless its store may have lost data. A store that charges before it
# decides may refuse all requests that race for the last hits, and keeps charges of nodes that were
# killed. In a namespace with reserves, charges of killed nodes stay.
sub bounds {
    my ($cluster, $name, $counter, $kind, $is_late) = @_;
    my ($answered, $open, $rejected) = map { $counter->{$_} // 0 } qw(answered open rejected);
    my $most  = $answered + $open;
    my $limit = Requests::limit($name) // return ($is_late ? 0 : $answered, $most);
    my $is_held = Requests::is_held($name);
    return ($kind eq 'losing' ? 0 : $answered, $answered > $limit ? $limit : $most)
        if !$is_held && $cluster->{store}->can('may_refuse_all');
    my $least = $kind eq 'losing' ? 0 : $rejected && !$is_held ? $limit : $answered;
    return ($least, $is_held ? $limit : min($most, $limit));
}

# Returns the wrong counters. A node does not count the hits in its own reserve.
sub wrong {
    my ($cluster, $bounds, $found) = @_;
    return grep {
        my ($name, $of, $least, $most) = ($_, $found->{$_}, @{$bounds->{$_}});
        $of->{store} < $least || $of->{store} > $most || grep {
            Requests::is_held($name) ? $_ < $least || $_ > $of->{store} : $_ != $of->{store}
        } @$of{$cluster->numbers};
    } sort keys %$found;
}

# Compares the store and all nodes with the counters of a ledger until all values are right, for this number of seconds, and
# then once more: nothing may come later. is => the further arguments of `bounds`. Returns why nodes do not sync, if they do
# not; the counts; their bounds; and the names of those that are wrong.
sub compare {
    my ($cluster, $round, $counters, $seconds, @is) = @_;
    my ($trouble, $found, $bounds, @wrong);
    for my $time (1, 2) {
        # A killed worker's shards wait for the end of its leases, and a comparison alone may take half a minute on a busy
        # machine. So there are two at least.
        my $deadline;
        do {
            $trouble = eval { $cluster->settle; 1 } ? undef : "nodes do not sync: $@";
            $found   = found($cluster, $round, $counters);
            $bounds  = {map { $_ => [bounds($cluster, $_, $counters->{$_}, @is)] } keys %$found};
            @wrong   = wrong($cluster, $bounds, $found);
            $deadline //= time + $seconds;
        } while (!$trouble && @wrong && time < $deadline);
        last if @wrong || $trouble;
    }
    return ($trouble, $found, $bounds, @wrong);
}

1;
