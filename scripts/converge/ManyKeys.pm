# Nodes with one namespace: busy keys, a trickle of hits to many others, and probes; and its load.
package ManyKeys;

use strict;
use warnings;

use parent 'Nodes';

use JSON::PP;
use List::Util qw(max sum0);
use POSIX qw(ceil);
use Time::HiRes qw(sleep time);

use Bench qw(launch_nginx);
use Meter;

# Starts nodes of which each has fetched all other keys. See Nodes.pm; and seed; generator => its program; busy, keys,
# load, requests, trickle => as in scripts/converge.sh; most => how many nodes there will be.
sub start {
    my ($class, @of) = @_;
    my $self = $class->SUPER::start(@of);
    my $conf = $self->{conf};
    my $hits = $conf->{busy} * $conf->{load} * $self->{limit} / $self->{window};
    $conf->{cost} = max(1, ceil($hits / $conf->{requests}));
    # Requests in a second.
    $conf->{rate} = int($hits / $conf->{cost} + 0.5);
    $self->meet;
    $self->generate(0, 0)->();
    $self->settle;
    my $deadline = time + 300;
    for my $node (@{$self->{nodes}}) {
        until ($self->has_all({Nodes::metrics($node)})) {
            die "nodes do not fetch all keys\n" if time > $deadline;
            sleep 0.1;
        }
    }
    return $self;
}

# Returns whether a node with these metrics has counters of all other keys.
sub has_all {
    my ($self, $metrics) = @_;
    return ($metrics->{'ratelimit_zone_counters{zone="converge"}'} // 0) >= $self->{conf}{keys};
}

sub lanes { return {number => 0} }

# A counter of another key takes up to 400 bytes of a zone.
sub http {
    my ($self, $store) = @_;
    my $conf = $self->{conf};
    my $zone = 16 + int($conf->{keys} / 2500);
    return join "\n", "ratelimit_zone zone=converge:${zone}m; keepalive_timeout 1h; client_header_timeout 1h;",
        'ratelimit_log_level off;', "ratelimit_store s0 { $store }",
        "ratelimit_namespace n0 { store s0; $conf->{settings} }";
}

sub server {
    my ($self) = @_;
    my $conf = $self->{conf};
    return <<"    END";
        add_header T \$msec always; ratelimit_headers off;
        location = /metrics { ratelimit_metrics; }
        location = /busy  { ratelimit n0 limit=$conf->{limit} window=$conf->{algorithm} key=\$arg_k cost=\$arg_c; empty_gif; }
        location = /other { ratelimit n0 limit=1000000/366d key=\$arg_k; empty_gif; }
        location = /probe {
            ratelimit n0 limit=2/1h window=fixed key=\$arg_k cost=\$arg_c;
            add_header T \$msec always;
            add_header Total \$ratelimit_rate always;
            empty_gif;
        }
    END
}

# Makes the generator send the load from a time on, in so many windows, to all nodes. Returns a function that waits for
# its result; without windows, each other key gets a hit instead.
sub generate {
    my ($self, $begin, $windows) = @_;
    my $conf  = $self->{conf};
    my @words = ($conf->{seed}, $windows, int(1000 * $begin + 0.5), join(',', $self->ports));
    push @words, "$self->{limit}/" . int(1000 * $self->{window} + 0.5), $conf->{algorithm}, 'many';
    push @words, @$conf{qw(busy cost rate keys trickle)};
    my $pid = open my $out, '-|', $conf->{generator}, @words;
    $pid or die "$conf->{generator}: $!\n";
    return sub {
        my $said = <$out>;
        close $out or die "the generator failed\n";
        return $said && decode_json($said);
    };
}

# Returns when the next window begins that leaves time for the generator to start.
sub next_window {
    my ($self) = @_;
    return $self->{window} * (1 + int((time + 2) / $self->{window}));
}

# Measures how the nodes judged the busy keys in some windows: over-admission of all and of the worst one, and
# hits that were refused although there was room, in percent.
sub judged {
    my ($self, @windows) = @_;
    my $central = sum0(map { $_->[1] } @windows) || 1;
    my $limits  = $self->{limit} * $self->{conf}{busy};
    return (
        over              => 100 * sum0(map { $_->[0] - $_->[1] } @windows) / $central,
        worst             => 100 * max(map { $_->[0] - $_->[1] } @windows) / $limits,
        refused_with_room => 100 * sum0(map { $_->[2] } @windows) / $central,
    );
}

1;
