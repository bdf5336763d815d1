# A session with a Cassandra, by version 4 of its protocol: for what tests themselves ask.
#
#   my $session = Cql->new(host => '127.0.0.1', port => 9042);    # user, password, if it wants any
#   my @rows    = $session->ask('SELECT ...');                    # each a hash of values by column
#
# Blobs are bytes, uuids are text, numbers are numbers, lists are arrays; undef is null. Errors die with
# what the server says. Queries are made with consistency ONE, unless another one is given.

package Cql;

use strict;
use warnings;

use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

# Of requests and answers.
use constant {
    ERROR => 0, STARTUP => 1, READY => 2, AUTHENTICATE => 3, QUERY => 7, RESULT => 8,
    AUTH_RESPONSE => 15, AUTH_SUCCESS => 16,
};

# Of a result, of what follows in it, and of a query.
use constant {ROWS => 2, ONE_TABLE => 1, MORE_PAGES => 2, PAGE_SIZE => 4, PAGE => 8};

use constant LIMIT => 30;    # seconds, of an answer

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

# The rows of a query, of all pages.
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

# Sends a request; returns the kind of the answer, and what is in it.
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

# What names the next page, and the rows of this one.
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

# The number of a type, and those of what it is made of.
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
