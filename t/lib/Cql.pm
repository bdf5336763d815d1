# A client of version 4 of the CQL binary protocol, for the queries that the tests themselves make.
#
#   my $session = Cql->new(host => '127.0.0.1', port => 9042);    # user, password: if the server needs them
#   my @rows    = $session->ask('SELECT ...');                    # each row is a hash from column to value
#
# A blob is returned as bytes, a uuid as text, a list as an array, null as undef. On an error, the methods die
# with the message of the server. The default consistency is ONE.

package Cql;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

# Opcodes of frames.
use constant {
    ERROR => 0, STARTUP => 1, READY => 2, AUTHENTICATE => 3, QUERY => 7, RESULT => 8,
    AUTH_RESPONSE => 15, AUTH_SUCCESS => 16,
};

# The kind of a result with rows; flags of its metadata; flags of a query.
use constant {ROWS => 2, ONE_TABLE => 1, MORE_PAGES => 2, PAGE_SIZE => 4, PAGE => 8};

use constant LIMIT => 30;    # the timeout of a response, in seconds

my %consistencies = (ANY => 0, ONE => 1, TWO => 2, THREE => 3, QUORUM => 4, ALL => 5, LOCAL_QUORUM => 6);

sub new {
    my ($class, %self) = @_;
    my $self = bless {host => '127.0.0.1', %self}, $class;
    $self->{socket} = IO::Socket::INET->new(PeerAddr => $self->{host}, PeerPort => $self->{port}, Timeout => LIMIT)
        or die "cannot connect to $self->{host}:$self->{port}: $!\n";
    my ($kind) = $self->exchange(STARTUP, pack('n n/a n/a', 1, 'CQL_VERSION', '3.0.0'));
    return $self if $kind == READY;
    my $credentials = join "\0", '', $self->{user} // '', $self->{password} // '';
    ($kind) = $self->exchange(AUTH_RESPONSE, pack 'N/a', $credentials);
    die "the server goes on asking for a password\n" if $kind != AUTH_SUCCESS;
    return $self;
}

# Runs a query and returns the rows of all pages.
sub ask {
    my ($self, $query, $consistency) = @_;
    my $number = $consistencies{$consistency // 'ONE'} // die "no consistency $consistency\n";
    my ($page, @rows);
    do {
        my $flags = PAGE_SIZE | (defined $page ? PAGE : 0);
        my $body = pack('N/a n C N', $query, $number, $flags, 5000) . (defined $page ? pack('N/a', $page) : '');
        my (undef, $answer) = $self->exchange(QUERY, $body);
        ($page, my @more) = rows($answer);
        push @rows, @more;
    } while (defined $page);
    return @rows;
}

# Sends a request; returns the opcode and the body of the response.
sub exchange {
    my ($self, $kind, $body) = @_;
    local $SIG{PIPE} = 'IGNORE';
    syswrite $self->{socket}, pack('C C n C N/a', 4, 0, 0, $kind, $body);
    my (undef, undef, undef, $answered, $length) = unpack 'C C n C N', $self->receive(9);
    my $answer = $self->receive($length);
    die substr($answer, 6) . "\n" if $answered == ERROR;
    return ($answered, $answer);
}

sub receive {
    my ($self, $length) = @_;
    my $bytes = '';
    my $end   = time + LIMIT;
    while (length $bytes < $length) {
        IO::Select->new($self->{socket})->can_read($end - time) or die "no answer within ${\ LIMIT} s\n";
        sysread $self->{socket}, $bytes, $length - length $bytes, length $bytes
            or die "the connection has ended\n";
    }
    return $bytes;
}

# Parses a result; returns the paging state, which is undef on the last page, and the rows of this page.
sub rows {
    my ($answer) = @_;
    my $in = \$answer;
    return undef if take($in, 'N', 4) != ROWS;
    my ($flags, $count) = (take($in, 'N', 4), take($in, 'N', 4));
    my $page = $flags & MORE_PAGES ? bytes($in) : undef;
    if ($flags & ONE_TABLE) { text($in) for 1, 2 }
    my @columns = map {
        if (!($flags & ONE_TABLE)) { text($in) for 1, 2 }
        [text($in), type($in)];
    } 1 .. $count;
    my @rows = map {
        +{map { $_->[0] => value($_->[1], bytes($in)) } @columns}
    } 1 .. take($in, 'N', 4);
    return ($page, @rows);
}

sub take {
    my ($in, $format, $length) = @_;
    return unpack $format, substr $$in, 0, $length, '';
}

sub text { my ($in) = @_; return substr $$in, 0, take($in, 'n', 2), '' }

sub bytes {
    my ($in) = @_;
    my $length = take($in, 'l>', 4);
    return $length < 0 ? undef : substr $$in, 0, $length, '';
}

# Parses a type; returns its number, followed by the types of its elements.
sub type {
    my ($in) = @_;
    my $type = take($in, 'n', 2);
    text($in) if $type == 0;
    return [$type, map { type($in) } 1 .. ({0x20 => 1, 0x21 => 2, 0x22 => 1}->{$type} // 0)];
}

my %numbers = (2 => 'q>', 4 => 'C', 5 => 'q>', 7 => 'd>', 8 => 'f>', 9 => 'l>', 11 => 'q>', 19 => 's>', 20 => 'c');

sub value {
    my ($type, $bytes) = @_;
    return undef if !defined $bytes;
    my ($number, @parts) = @$type;
    return unpack $numbers{$number}, $bytes if $numbers{$number};
    return join '-', unpack 'H8 H4 H4 H4 H12', $bytes if $number == 12 || $number == 15;
    return join '.', unpack 'C*', $bytes if $number == 16 && length $bytes == 4;
    return $bytes if !@parts;
    my $in    = \$bytes;
    my @items = map {
        map { value($_, bytes($in)) } @parts
    } 1 .. take($in, 'N', 4);
    return $number == 0x21 ? {@items} : \@items;
}

1;
