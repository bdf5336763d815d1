# A client of a node's HTTP API at /rw/namespaces/.

package Api;

use strict;
use warnings;

use Exporter qw(import);
use JSON::PP qw(decode_json);

our @EXPORT = qw($with_api api begin_api);

# The location of the API, for the configuration of a node.
our $with_api = 'location /rw/ { ratelimit off; ratelimit_api write=on; }';

# Sends a request; returns a function that waits for the response and returns its status and its decoded JSON object.
# If there is no valid response, the function returns a description of the failure and an empty object.
sub begin_api {
    my ($node, $method, $path) = @_;
    my $socket = $node->connection or return sub { return ('no connection', {}) };
    local $SIG{PIPE} = 'IGNORE';
    $socket->autoflush(1);
    print $socket "$method /rw/namespaces/$path HTTP/1.0\r\nHost: localhost\r\n\r\n";
    return sub {
        local $/;
        local $! = 0;
        my $answer = <$socket> // '';
        return ("an error: $!", {}) if $!;
        return ('no answer', {}) if $answer eq '';
        my ($head, $body) = split /\r\n\r\n/, $answer, 2;
        my ($status) = $head =~ m{^HTTP/1\.1 (\d+)} or return ("no head: $head", {});
        my $object   = eval { decode_json($body // '') } or return ("no object: $answer", {});
        return ($status, $object);
    };
}

sub api { return begin_api(@_)->() }

1;
