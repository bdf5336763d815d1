# Tests the error log: text from outside cannot forge a line, and no control character is logged unescaped.
#
# This is a plain Perl test, like synchronous.t. It uses the ports TEST_NGINX_PORT + 2 to + 5. Its stores are small
# servers that respond to every request with an error.

use strict;
use warnings;

use FindBin;
use IO::Socket::INET;
use POSIX ();
use Test::More;

use lib "$FindBin::Bin/lib";
use Node;

my $port = $ENV{TEST_NGINX_PORT} || 1984;
my $a    = Node->new(a => $port + 2);
my $evil = "evil\n2001/01/01 00:00:00 [emerg] forged\e[31m\x7f \xc3\xa4";
my $good = quotemeta 'evil\x0a2001/01/01 00:00:00 [emerg] forged\x1b[31m\x7f \xc3\xa4';

my $server;    # the process of a store

END {
    local $?;
    kill KILL => $server if $server;
}

my %error = (
    redis    => "-ERR $evil\r\n",
    postgres => 'E' . message("SFATAL\0VFATAL\0CXX000\0M$evil\0\0"),
);

for my $strategy (sort keys %error) {
    subtest "an error of a store: $strategy" => sub {
        # The store sends one response for each of the pipelined commands.
        serve(sub { my $commands = () = $_[0] =~ /^\*\d+\r$/mg; $error{$strategy} x ($commands || 1) });
        $a->start(http => store("strategy $strategy; server 127.0.0.1:@{[$port + 4]};"), rules => {hit => 'api limit=9/366d'});
        $a->wait_for('what the store says', sub { $a->logged(qr/ratelimit_store "main" .*\b$good/) });
        end();
    };
}

subtest 'an error of a sentinel, and a server that it names' => sub {
    for my $answer ("-ERR $evil\r\n", "*2\r\n\$" . length($evil) . "\r\n$evil\r\n\$1\r\n1\r\n") {
        serve(sub {
            my $commands = () = $_[0] =~ /^\*\d+\r$/mg;
            return "+OK\r\n" x ($commands - 1) . ($_[0] =~ /get-master-addr/ ? $answer : "+OK\r\n");
        });
        my $options = "strategy redis; sentinel_master m; server 127.0.0.1:@{[$port + 4]};";
        $a->start(http => store($options), rules => {hit => 'api limit=9/366d'});
        $a->wait_for('what the store says', sub { $a->logged(qr/ratelimit_store "main" /) });
        end();
    }
};

subtest 'values of variables' => sub {
    $a->start(rules => {
        limit => 'limit=$key/366d', cost => 'limit=9/366d cost=$key', late => 'limit=9/366d charge=$key',
    });
    $a->hit($_ => $evil) for qw(limit cost late);
    # The charge is read after the response is sent.
    for my $message (qr/the limit "default-366d" is/, qr/the cost is/, qr/the charge is/) {
        $a->wait_for("the line of $message", sub { $a->logged(qr/$message "$good"/) });
    }
    end();
};

done_testing();

sub store { return "ratelimit_store main { $_[0] connect_timeout 5s; timeout 5s; } ratelimit_namespace api { store main; sync_rate 0.1; }" }

# Returns a message of the Postgres protocol: its length and its body.
sub message { return pack('N', 4 + length $_[0]) . $_[0] }

# Starts a server that answers all data that it receives.
sub serve {
    my ($answer) = @_;
    my $listener = IO::Socket::INET->new(
        LocalAddr => '127.0.0.1', LocalPort => $port + 4, Listen => 64, ReuseAddr => 1,
    ) or die "cannot listen: $!\n";
    defined($server = fork) or die "cannot fork: $!\n";
    return if $server;
    while (my $client = $listener->accept) {
        next if fork;
        close $listener;    # the port is free when the server has ended
        while (sysread $client, my $question, 65536) { syswrite $client, $answer->($question) }
        POSIX::_exit(0);
    }
    POSIX::_exit(0);
}

# Tests that each log line begins with a timestamp of nginx and is printable ASCII; stops the node and the store.
sub end {
    my @lines = $a->log_lines;
    is_deeply([grep { !m{^20[2-9]\d/[ -~]*\n\z} } @lines], [], 'all lines are ours, and printable');
    ok(!$a->logged(qr/^2001/), 'none is forged');
    $a->stop(qr/ratelimit/, 'TERM');
    return if !$server;
    kill KILL => $server;
    waitpid $server, 0;
    undef $server;
}
