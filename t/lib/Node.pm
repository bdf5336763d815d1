# A node of a cluster: one of several nginx instances that a test runs at once.

package Node;

use strict;
use warnings;

use parent 'Nginx';

use Digest::SHA qw(sha256_hex);
use Exporter qw(import);
use IO::Select;
use Nginx qw(wait_until);
use POSIX ();
use Test::More;
use Time::HiRes qw(sleep time);

our @EXPORT = qw(eventually name_of);

# Takes the name of the node, for messages, and its port.
sub new {
    my ($class, $name, $port) = @_;
    return $class->SUPER::new(name => $name, port => $port);
}

# Options: main, http, server: directives to add to these blocks; zone, name_of_zone: the size of the zone, and its name; rules: the
# parameters of `ratelimit` by location, where NAME stands for `/NAME/KEY`; workers: their number;
# single: 1 for `master_process off`; clock: the offset of the clock, such as '+5s'.
sub defaults {
    return (http => '', server => '', zone => '4m', name_of_zone => 'counters', rules => {}, workers => 2, single => 0);
}

sub http {
    my ($self) = @_;
    my $conf = $self->{conf};
    my $locations = join "\n", map {
        qq[location ~ "(?s)^/$_/(?<key>.*)" { ratelimit $conf->{rules}{$_}; empty_gif; }]
    } sort keys %{$conf->{rules}};
    return <<"END";
    ratelimit_zone zone=$conf->{name_of_zone}:$conf->{zone};
    $conf->{http}
    server {
        listen        127.0.0.1:$self->{port};
        ratelimit_key \$key;
        add_header    Rate \$ratelimit_rate always;
        add_header    Status \$ratelimit_status always;
        $locations
        $conf->{server}
        location /api/     { ratelimit off; ratelimit_api; }
        location /metrics  { ratelimit off; ratelimit_metrics; }
    }
END
}

# Shifts the clock by the option `clock`, with Debian's package faketime.
sub environment {
    my ($self) = @_;
    my $clock = $self->{conf}{clock} or return $self->SUPER::environment;
    my ($library) = glob '/usr/lib/*/faketime/libfaketimeMT.so.1' or die "faketime is not installed\n";
    return (LD_PRELOAD => $library, FAKETIME => $clock, FAKETIME_DONT_FAKE_MONOTONIC => 1);
}

# Returns the name of a key in the store.
sub name_of {
    my ($key) = @_;
    return length $key > 200 || $key =~ /^sha256:/ ? 'sha256:' . sha256_hex($key) : $key;
}

# Clients.

# Makes a request; returns its status and the rate. When nginx closes the connection, the request is no longer under
# way; a response alone does not mean that.
sub get {
    my ($self, $location, $key, $arguments) = @_;
    my $path   = path($location, $key, $arguments);
    my ($text, $trouble) = $self->response("HEAD $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    return $trouble if defined $trouble;
    return 'no answer' if $text !~ /\r\n\r\n\z/;
    $self->{answer} = $text;
    my ($status) = $text =~ m{^HTTP/1\.1 (\d+)};
    my ($rate)   = $text =~ /\r\nRate: (\S+)/;
    return ($status, $rate);
}

# Returns the body of the response to `GET` of a path; an empty one if there is none in time.
sub body {
    my ($self, $path) = @_;
    my ($text) = $self->response("GET $path HTTP/1.0\r\n\r\n");
    return ($text // '') =~ /\r\n\r\n(.*)/s ? $1 : '';
}

# Makes a request after which the connection is closed. Returns the response; or nothing, and the reason: a worker may be
# stopped.
sub response {
    my ($self, $request) = @_;
    my $socket = $self->connection or return (undef, "no connection: $!");
    local $SIG{PIPE} = 'IGNORE';
    print $socket $request;
    my $text = '';
    while (1) {
        IO::Select->new($socket)->can_read(10) or return (undef, 'no answer in time');
        sysread $socket, $text, 65536, length $text or return $text;
    }
}

# Returns a field of the sync status of the namespace `api`, from the API.
sub sync_status {
    my ($self, $name) = @_;
    return $self->body('/api/namespaces/api') =~ /"$name":([^,}]*)/ ? $1 : '';
}

# Waits until the first sync, which is made at the start. With a long `sync_rate`, no other follows during the test.
sub wait_for_first_sync {
    my ($self) = @_;
    $self->wait_for('the first sync', sub { $self->sync_status('last_result') eq '"ok"' });
}

sub pending { return $_[0]->sync_status('pending_keys') }

sub path {
    my ($location, $key, $arguments) = @_;
    return $location if !defined $key;
    $key =~ s/([^A-Za-z0-9-])/sprintf '%%%02x', ord $1/ge;
    return "/$location/$key" . ($arguments ? "?$arguments" : '');
}

# Makes a request with a key; returns its status.
sub hit { my ($status) = get(@_); return $status }

# Makes a request for a path; returns its status.
sub plain { return hit(@_) }

# Returns a header of the last response to `get`, `hit` or `rate`.
sub last { return $_[0]{answer} =~ /\r\n\Q$_[1]\E: ([^\r]*)/ ? $1 : undef }

# Makes a request; returns its $ratelimit_status.
sub status { my ($self) = @_; get(@_); return $self->last('Status') // '' }

# Makes a request; returns its $ratelimit_rate.
sub rate { my (undef, $rate) = get(@_); return $rate // '' }

# Starts a process that makes requests to `/hit/KEY`, for the keys in turn, on 8 connections at once. Returns a
# function that stops it, after at least as many responses as its argument, and returns a hash: the number
# of responses for each status, the number of `lost` requests, and the time of the `slowest` response in
# seconds. A request is lost if its connection is closed before a response.
sub load {
    my ($self, @keys) = @_;
    pipe my $results, my $writer or die "cannot make a pipe: $!\n";
    pipe my $end, my $ender or die "cannot make a pipe: $!\n";
    defined(my $pid = fork) or die "cannot fork: $!\n";
    if ($pid == 0) {
        close $results;
        close $ender;
        my $sum = eval { $self->make_load($end, $writer, @keys) };
        syswrite $writer, $sum ? join(' ', %$sum) . "\n" : "failed: $@\n";
        POSIX::_exit(0);
    }
    close $writer;
    close $end;
    my $text = '';
    sysread $results, $text, 1 or die "no load\n";    # 100 responses have arrived
    return sub {
        my ($least) = @_;
        while (100 * length $text < ($least // 0)) {
            sysread $results, $text, 1, length $text or die "no load any more\n";
        }
        syswrite $ender, '.';
        local $/;
        $text .= <$results>;
        waitpid $pid, 0;
        $text =~ s/^\++//;
        $self->give_up("a client $text") if $text !~ /^(?:\w+ [\d.e-]+ ?)+\n\z/;
        return {split ' ', $text};
    };
}

sub make_load {
    my ($self, $end, $writer, @keys) = @_;
    local $SIG{PIPE} = 'IGNORE';
    my %sum = (200 => 0, 429 => 0, lost => 0, slowest => 0);
    my ($select, $is_over, $made, $answered, %received, %begun) = (IO::Select->new($end), 0, 0, 0);
    my $ask = sub {
        my ($socket) = @_;
        my $path = path('hit', $keys[$made++ % @keys]);
        ($received{$socket}, $begun{$socket}) = ('', time);
        syswrite $socket, "HEAD $path HTTP/1.1\r\nHost: localhost\r\n\r\n";
    };
    my $open = sub {
        my $socket = $self->connection or die "cannot connect: $!\n";
        $select->add($socket);
        $ask->($socket);
    };
    $open->() for 1 .. 8;
    while ($select->count) {
        my @readable = $select->can_read(30) or die "no answer in time\n";
        for my $socket (@readable) {
            if ($socket == $end) {
                $select->remove($end);
                $is_over = 1;
                next;
            }
            my $ended = !sysread $socket, $received{$socket}, 65536, length $received{$socket};
            my ($status) = $received{$socket} =~ m{^HTTP/1\.1 (\d+).*\r\n\r\n\z}s;
            next if !$status && !$ended;
            my $took = time - $begun{$socket};
            $sum{slowest} = $took if $took > $sum{slowest};
            $sum{$status // 'lost'}++;
            syswrite $writer, '+' if $status && ++$answered % 100 == 0;
            if ($ended || $is_over || $received{$socket} =~ /\r\nConnection: close\r\n/) {
                $select->remove($socket);
                $open->() if !$is_over;
            }
            else { $ask->($socket) }
        }
        sleep 0.001;    # leave processor time to nginx
    }
    return \%sum;
}

# Tests that a value becomes as expected: it equals $expected, or $expected is a function that returns true for it.
sub eventually {
    my ($got, $expected, $name) = @_;
    my $value;
    my $is_right = sub {
        return $expected->($value) if ref $expected eq 'CODE';
        return defined $value && same($value, $expected);
    };
    my $done = eval {
        wait_until(60, sub {
            $value = eval { $got->() };
            return $is_right->();
        });
    };
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    return ok($done, $name . ': ' . ($value // 'nothing')) if ref $expected eq 'CODE';
    return is_deeply($value, $expected, $name);
}

sub same {
    my ($one, $other) = @_;
    return $one eq $other if !ref $one || !ref $other;
    return "@$one" eq "@$other" if ref $one eq 'ARRAY';
    return join("\0", map { $_, $one->{$_} } sort keys %$one) eq
        join("\0", map { $_, $other->{$_} } sort keys %$other);
}

1;
