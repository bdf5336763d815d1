# An HTTP/2 client in clear text that reads only on demand, and can reset its streams.
#
#   Http2Client->new(port => PORT, window => BYTES)    connects; the window is that of each new stream
#   ask(PATH, CONTENT_TYPE)                            requests a path; returns the stream identifier
#   reset(STREAM)                                      resets a stream
#   answers(MORE, STREAMS)                             reads until the streams have ended or no data arrives
#                                                      any more. Opens the flow-control window by MORE bytes
#                                                      for each byte received. Returns, for each stream, its
#                                                      `body`, and whether it `ended`
#   is_full                                            returns whether the server waits until the client
#                                                      reads, by the timer of its probes (tcp(5))

package Http2Client;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Socket qw(IPPROTO_TCP TCP_NODELAY);

my ($DATA, $HEADERS, $RST_STREAM, $SETTINGS, $WINDOW_UPDATE) = (0, 1, 3, 4, 8);
my ($END_STREAM, $END_HEADERS) = (1, 4);
my $INITIAL_WINDOW_SIZE = 4;
my $CANCEL              = 8;

sub new {
    my ($class, %given) = @_;
    my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $given{port})
        or die "cannot connect: $!\n";
    # Frames must not wait until the server acknowledges the preceding ones.
    setsockopt $socket, IPPROTO_TCP, TCP_NODELAY, 1;
    my $self = bless {socket => $socket, next => 1}, $class;
    syswrite $socket, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    $self->send_frame($SETTINGS, 0, 0, pack 'nN', $INITIAL_WINDOW_SIZE, $given{window});
    $self->send_frame($WINDOW_UPDATE, 0, 0, pack 'N', 2**30);
    return $self;
}

sub ask {
    my ($self, $path, $content_type) = @_;
    my $stream = $self->{next};
    $self->{next} += 2;
    # The fields are: GET, http; the path, the authority and the content type as literals.
    my $fields = "\x82\x86" . "\x04" . chr(length $path) . $path . "\x01\x09localhost";
    $fields .= "\x0f\x10" . chr(length $content_type) . $content_type if $content_type;
    $self->send_frame($HEADERS, $END_STREAM | $END_HEADERS, $stream, $fields);
    return $stream;
}

sub reset {
    my ($self, $stream) = @_;
    $self->send_frame($RST_STREAM, 0, $stream, pack 'N', $CANCEL);
    return;
}

sub answers {
    my ($self, $more, @streams) = @_;
    my %got  = map { $_ => {body => '', ended => 0} } @streams;
    my $text = '';
    while (grep { !$_->{ended} } values %got) {
        IO::Select->new($self->{socket})->can_read(10) or last;
        sysread $self->{socket}, $text, 65536, length $text or last;
        while (length $text >= 9) {
            my ($length, $type, $flags, $stream) = unpack 'NCCN', "\0" . $text;
            last if length $text < 9 + $length;
            my $payload = substr $text, 9, $length;
            substr($text, 0, 9 + $length) = '';
            $got{$stream}{body} .= $payload if $type == $DATA;
            $got{$stream}{ended} = 1 if $type <= $HEADERS && $flags & $END_STREAM;
            my $window = $length * $more;
            $self->send_frame($WINDOW_UPDATE, 0, $stream, pack 'N', $window) if $type == $DATA && $window;
        }
    }
    return \%got;
}

sub is_full {
    my ($self) = @_;
    my ($port, $of_client) = map { sprintf '%04X', $_ } $self->{socket}->peerport, $self->{socket}->sockport;
    open my $file, '<', '/proc/net/tcp' or die "cannot read /proc/net/tcp: $!\n";
    return scalar grep {/^ *\d+: \w+:$port \w+:$of_client 01 \w+:\w+ 04:/} <$file>;
}

sub send_frame {
    my ($self, $type, $flags, $stream, $payload) = @_;
    syswrite $self->{socket}, substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $stream) . $payload;
    return;
}

1;
