# Clients of the node whose processes are hit: processes that make requests one after another, beside those of Load.pm.

package Client;

use strict;
use warnings;

use IO::Select;
use POSIX ();
use Time::HiRes qw(sleep);

my $test = $$;
my %running;

END {
    local $?;
    if ($$ == $test) { kill KILL => keys %running }
}

# Starts a process that calls a function with numbers from 0 on, and counts the results. file => the file of the counts.
sub new {
    my ($class, $file, $request) = @_;
    my $self = bless {file => $file}, $class;
    defined($self->{pid} = fork) or die "cannot fork: $!\n";
    if ($self->{pid} == 0) {
        my $done = eval { $self->run($request); 1 };
        print STDERR "a client: $@" if !$done;
        POSIX::_exit($done ? 0 : 1);
    }
    $running{$self->{pid}} = 1;
    return $self;
}

sub run {
    my ($self, $request) = @_;
    my ($number, %count) = (0);
    until ($self->is_over) {
        $count{$request->($number++, $self)}++;
        sleep 0.005;
    }
    open my $file, '>', $self->{file} or die "cannot write: $!\n";
    print $file map {"$count{$_} $_\n"} keys %count;
    close $file or die "cannot write: $!\n";
}

# Returns, in the process, whether it must end.
sub is_over { my ($self) = @_; return -e "$self->{file}-end" || getppid != $test }

# Ends the process. Returns the number of results by name.
sub stop {
    my ($self) = @_;
    open my $end, '>', "$self->{file}-end" or die "cannot write: $!\n";
    local $?;
    waitpid $self->{pid}, 0;
    delete $running{$self->{pid}};
    die "a client failed\n" if $? != 0;
    open my $file, '<', $self->{file} or die "no results: $!\n";
    return map { /^(\d+) (.*)/ ? ($2 => $1) : () } <$file>;
}

# Makes a request and reads its answer, or what there is of it when the process must end.
sub ask {
    my ($self, $node, $method, $path) = @_;
    my $socket = $node->connection or return 'no connection';
    syswrite $socket, "$method $path HTTP/1.0\r\n\r\n";
    my $text = '';
    until ($self->is_over) {
        next if !IO::Select->new($socket)->can_read(0.05);
        sysread $socket, $text, 65536, length $text or last;
    }
    return $text =~ m{^HTTP/1\.1 (\d+)} ? $1 : 'no answer';
}

1;
