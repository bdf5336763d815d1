# The only nginx that a test has, for tests that need signals, processes, or many clients at once; and
# a client. What lib/Nginx.pm has as methods is here as functions.
#
# The environment is that of the other tests; of TEST_NGINX_PORT, it takes the port after that one.

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

# One request, on a connection of its own unless one is given: its status, and
# what remains by the RateLimit header.
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

# http, server: more of the configuration; listen: more of the directive; zone: the name and size of the
# zone; rule: the `ratelimit` of /t, whose key is the argument k; workers.
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
