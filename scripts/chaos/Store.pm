# The methods that most stores have in common; see Cluster.pm. `server` has the data (see TwoNodes.pm), and the constant SPARE
# of a store is the directive of another place in it.

package Store;

use strict;
use warnings;

use Node;

sub server  { $_[0]{server} }
sub has_way { 1 }
# A server that is killed keeps its data, unless a fault removes them.
sub keep    { $_[0]->ready }
sub flush   { $_[0]->server->flush }
sub totals  { my ($self, @of) = @_; return $self->server->totals(@of) }
sub total   { my ($self, @of) = @_; return $self->server->total(@of) }
sub spare   { my ($self, @port) = @_; return $self->conf(@port) . " ${\ $self->SPARE};" }

sub conf {
    my ($self, $port) = @_;
    my $server = $self->server;
    return join ' ', "strategy ${\ $server->strategy};", "server 127.0.0.1:$port;", $server->credentials($self->{password});
}

sub ready {
    my ($self) = @_;
    my $failure = '';
    eval { Node::wait_until(60, sub { eval { $self->ask_anything; 1 } or $failure = $@, 0 }) }
        or die "the store does not get ready: $failure\n";
}

# Fails unless the server answers.
sub ask_anything { $_[0]->server->epoch('api') }

1;
