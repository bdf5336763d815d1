# The part of a node's configuration that reloads change, and the configuration of a node in a shape:
#
#   name        the namespace that synced requests are counted in: `api` or `other`
#   is_alone    whether the other one of the two is not defined
#   decides     whether the store decides about their requests (`sync_rate 0`)
#   window      their windows: `sliding` or `fixed`
#   limit       a limit
#   algorithm   the one of the location `turn`: `fixed`, `moving`, `elastic` or `rate`
#   place       their store: `main`; `spare`, another place in it; or `other`, a store of another kind
#   zone, size  the zone of all but `full`, which is in a zone that is always full
#   sync_rate   the period
#
# Each response has the fields that matter to its ledger, in a header.

package Shape;

use strict;
use warnings;

use Requests;

my @TOLD = qw(name decides algorithm);

sub usual {
    my ($sync_rate) = @_;
    return {
        name => 'api', is_alone => 0, decides => 0, window => 'sliding', limit => 60, algorithm => 'fixed', place => 'main',
        zone => 'counters', size => '32m', sync_rate => $sync_rate,
    };
}

# Parses the header of a response.
sub said { my %shape; @shape{@TOLD} = split /,/, $_[0]; return \%shape }

# Returns all shapes that differ for a ledger.
sub all {
    my @all;
    for my $name (qw(api other)) {
        push @all, map { {name => $name, decides => 0, algorithm => $_} } qw(fixed moving elastic rate);
    }
    return @all;
}

# Returns the names of the synced namespaces that are defined.
sub names { my ($shape) = @_; return $shape->{is_alone} ? $shape->{name} : qw(api other) }

# Returns the configuration of a node, as options of Node.pm. stores => the contents of blocks `ratelimit_store` by name:
# `main`, `spare`, `other` and, if the store decides, `now`; timeout => the time in which it decides.
sub configuration {
    my ($shape, %with) = @_;
    my $decided = "sync_rate 0; timeout $with{timeout}; on_error deny;";
    my $synced  = $shape->{decides} ? $decided : "sync_rate $shape->{sync_rate}; on_loss share;";
    my %namespaces = (
        (map { $_ => "zone $shape->{zone}; store $shape->{place}; $synced" } names($shape)),
        full => "zone full; store main; sync_rate $shape->{sync_rate};",
        default => "zone $shape->{zone};",
        $with{stores}{now} ? (
            now  => "zone $shape->{zone}; store now; $decided",
            held => "zone $shape->{zone}; store now; $decided reserve on;",
        ) : (),
    );
    my @stores     = map {"ratelimit_store $_ { $with{stores}{$_} }\n"} sort keys %{$with{stores}};
    my @namespaces = map {"ratelimit_namespace $_ { $namespaces{$_} }\n"} sort keys %namespaces;
    my %asks;
    for my $namespace (grep { $_ ne 'default' } keys %namespaces) {
        my $window = $namespace =~ /^(?:now|held)\z/ || $shape->{decides} ? ' window=fixed' : '';
        $asks{"ask-$namespace-${_}d"} = "$namespace limit=1000000/${_}d cost=0$window" for @Cluster::DAYS;
    }
    my %others = Requests::asks();
    $asks{"ask-$_"} = $others{$_} for grep { /^(\w+)/ && $namespaces{$1} } keys %others;
    my $fixed = $shape->{decides} ? ' window=fixed' : '';
    return (
        http   => "ratelimit_zone zone=full:32k;\n@stores @namespaces $with{wrong}",
        zone   => $shape->{size},
        name_of_zone => $shape->{zone},
        server => 'add_header Shape "' . join(',', @$shape{@TOLD}) . '" always;',
        rules  => shared(
            Requests::rules($shape), %asks, mark => "$shape->{name} limit=1000000/366d$fixed",
            (map { ("mark-$_" => "$_ limit=1000000/366d$fixed") } names($shape)),
            # Bans are those of the rules of a namespace.
            (map { ("bans-$_" => Requests::bans($_)) } names($shape)),
            askshort => "$shape->{name} limit=1000000/5s cost=0$fixed",
        ),
    );
}

# Returns rules that say that they share counters, so that nginx does not warn of each of them.
sub shared {
    my (%rules) = @_;
    s/ (?:limit|rate)=[^;]*\K/ counter=default/g for values %rules;
    return \%rules;
}

1;
