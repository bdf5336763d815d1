# The HTTP client: builds the requests of a block byte by byte, sends them, and
# splits the received bytes into responses.
package NginxTest::Client;

use strict;
use warnings;

use Exporter qw(import);
use IO::Select;
use IO::Socket::INET;
use Test::More ();

use NginxTest::Settings qw(%settings expand seconds);

our @EXPORT_OK = qw(requests_of_block exchange parse_response);

# Returns the bytes to send, one string for each connection.
sub requests_of_block {
    my ($block) = @_;

    return $block->raw_request if defined $block->raw_request;
    if (my $texts = $block->pipelined_requests) {
        die $block->name, " - pipelined_requests has to be an array\n" if ref $texts ne 'ARRAY';
        my @connection = (('keep-alive') x $#$texts, 'close');
        return join '',
            map { build_request($block, $_, expand($texts->[$_]), $connection[$_]) } 0 .. $#$texts;
    }

    my $request = $block->request // die $block->name, " - no request\n";
    return map { build_request($block, $_, $request->[$_], 'close') } 0 .. $#$request
        if ref $request eq 'ARRAY';
    $request =~ s/\A(?:\s*#[^\n]*\n|\s+)+//;    # comments may stand before it
    return build_request($block, 0, $request, 'close');
}

sub build_request {
    my ($block, $index, $text, $connection) = @_;

    my $name = $block->name;
    die "$name - a request split into packets is not supported\n" if ref $text;
    my ($line, $body) = split /\n/, $text, 2;
    my ($method, $target, $version) = ($line // '') =~ /^\s*(\S+)(?: +(\S+))?(?: +(\S+))?\s*$/
        or die "$name - not a request (METHOD [TARGET [VERSION]]): $text\n";

    my ($headers, $chunked) = more_headers($block, $index);
    $headers = "Connection: $connection\r\n$headers" if $headers !~ /^Connection/mi;
    $headers = "Host: localhost\r\n$headers"         if $headers !~ /^Host:/mi;
    $body //= '';
    if ($body ne '' && !$chunked && $headers !~ /^Content-Length:/m) {
        $body =~ s/\A\s+|\s+\z//g;
        $headers .= 'Content-Length: ' . length($body) . "\r\n";
    }
    return join(' ', $method, $target // '/', $version // 'HTTP/1.1') . "\r\n$headers\r\n$body";
}

# Returns the header lines of the request with this index, and whether its body
# is chunked.
sub more_headers {
    my ($block, $index) = @_;

    my $text = $block->more_headers // '';
    $text = $text->[$index] // die $block->name, " - more_headers has none for request $index\n"
        if ref $text;

    my ($headers, $chunked) = ('', 0);
    for my $line (grep { /\S/ && !/^\s*#/ } split /\n/, $text) {
        my ($key, $value) = split /:\s*/, $line, 2;
        $value //= '';
        $chunked = 1 if lc $key eq 'transfer-encoding' && $value eq 'chunked';
        $headers .= "$key: $value\r\n";
    }
    return ($headers, $chunked);
}

# Sends the request; returns all bytes that the server sends until it closes the
# connection.
sub exchange {
    my ($block, $unsent) = @_;

    my $name    = $block->name;
    my $timeout = defined $block->timeout ? seconds($block->timeout) : $settings{timeout};
    my $address = "127.0.0.1:$settings{server_port}";
    my $socket  = IO::Socket::INET->new(PeerAddr => $address, Timeout => $timeout)
        or die "$name - cannot connect to $address: $!\n";
    $socket->blocking(0);
    local $SIG{PIPE} = 'IGNORE';

    my $received = '';
    my $reading  = IO::Select->new($socket);
    my $writing  = IO::Select->new($socket);
    while (1) {
        my ($readable, $writable) = IO::Select->select($reading, $writing, undef, $timeout);
        if (!$readable) {
            Test::More::fail("$name - client socket timed out") if !defined $block->abort;
            return $received;
        }
        if (@$readable) {
            my $count = sysread $socket, $received, 65536, length $received;
            return $received if defined $count ? $count == 0 : !$!{EAGAIN};
        }
        if (@$writable) {
            my $count = syswrite $socket, $unsent;
            substr $unsent, 0, $count // 0, '';
            # After a failed write, the response may still arrive.
            $writing->remove($socket) if $unsent eq '' || !defined $count && !$!{EAGAIN};
        }
    }
}

# Parses the first response; `left` has the bytes that follow it.
sub parse_response {
    my ($block, $bytes, $is_head) = @_;

    my %response = (code => '', raw_headers => '', headers => {}, body => '', left => '');
    $bytes =~ s/\A(HTTP\/\S+ (\d+).*?\r\n)\r\n//s or return { %response, body => $bytes };
    @response{qw(raw_headers code)} = ($1, $2);
    my $headers = $response{headers};
    while ($response{raw_headers} =~ /^([^\s:]+)\s*:[ \t]*(.*?)[ \t]*\r\n/mg) {
        my $key = lc $1;
        $headers->{$key} = defined $headers->{$key} ? "$headers->{$key}, $2" : $2;
    }

    if (!$is_head && ($headers->{'transfer-encoding'} // '') eq 'chunked') {
        @response{qw(body left)} = decode_chunks($block, $bytes);
        return \%response;
    }
    my $length = $headers->{'content-length'} // length $bytes;
    $length = 0 if $is_head || $response{code} =~ /^(?:1..|204|304)$/;
    Test::More::diag($block->name, " - the body is shorter than the $length bytes announced")
        if length $bytes < $length;
    $response{body} = substr $bytes, 0, $length, '';
    $response{left} = $bytes;
    return \%response;
}

# Returns the body, and the bytes after the last chunk.
sub decode_chunks {
    my ($block, $bytes) = @_;

    my $body = '';
    while ($bytes =~ s/\A([0-9A-Fa-f]+)[^\r\n]*\r\n//) {
        my $length = hex $1;
        $body .= substr $bytes, 0, $length, '';
        last if $bytes !~ s/\A\r\n//;
        return ($body, $bytes) if $length == 0;
    }
    Test::More::fail($block->name . ' - invalid or incomplete chunked body');
    return ($body, '');
}

1;
