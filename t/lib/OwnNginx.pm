# A single nginx with a client, for tests that need signals, processes, or many clients at once. It exports the
# methods of lib/Nginx.pm as functions.
#
# It uses the same environment variables as the other tests. It listens on the port after TEST_NGINX_PORT.

package OwnNginx;

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use Nginx qw($binary);

my @methods = qw(
    configure start reload stop settled ended workers
    log_lines logged grave_lines give_up wait_for connection
);

our @EXPORT = (qw($binary $nginx $root $log $port hit answer), @methods);

our $port  = 1 + ($ENV{TEST_NGINX_PORT} || 1984);
our $nginx = OwnNginx::Server->new(port => $port);
our ($root, $log) = @$nginx{qw(root log)};

for my $name (@methods) {
    no strict 'refs';
    *$name = sub { $nginx->$name(@_) };
}

# Makes a request, on the given connection or on a new one. Returns its status, and the remaining hits from the
# header RateLimit.
sub hit {
    my ($key, $socket) = @_;
    my $keep = $socket ? 'keep-alive' : 'close';
    $socket ||= connection() or return "no connection: $!";
    print $socket "GET /t?k=$key HTTP/1.1\r\nHost: localhost\r\nConnection: $keep\r\n\r\n";
    return answer($socket);
}

sub answer {
    my ($socket) = @_;
    my $text = '';
    while ($text !~ /\r\n\r\n/) {
        IO::Select->new($socket)->can_read(10) or return 'no answer in time';
        sysread $socket, $text, 65536, length $text or return 'no answer';
    }
    my ($length) = $text =~ /\r\nContent-Length: (\d+)/;
    while ($text !~ /\r\n\r\n.{$length}/s) {
        sysread $socket, $text, 65536, length $text or return 'an incomplete answer';
    }
    my ($status) = $text =~ m{^HTTP/1\.1 (\d+)};
    my ($remaining) = $text =~ /\r\nRateLimit: "[^"]*";(r=\d+)/;
    return "$status " . ($remaining // '');
}

package OwnNginx::Server;

use parent -norequire, 'Nginx';

# Options: http, server: directives to add to these blocks; listen: parameters to add to `listen`; zone: the name
# and size of the zone; rule: the parameters of `ratelimit` in /t, where the key is the argument k; workers: their
# number.
sub defaults {
    return (http => '', server => '', listen => '', zone => 'counters:1m', workers => 2);
}

sub http {
    my ($self) = @_;
    my $conf = $self->{conf};
    return <<"END";
    ratelimit_zone zone=$conf->{zone};
    $conf->{http}
    server {
        listen 127.0.0.1:$self->{port} $conf->{listen};
        $conf->{server}
        location /t {
            ratelimit_key \$arg_k;
            ratelimit     $conf->{rule};
            empty_gif;
        }
    }
END
}

1;
