# The clock of a node, which a test sets while nginx runs: a library that is preloaded into it adds an offset.

package Clock;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);

my $source = abs_path(dirname(__FILE__)) . '/shift_clock.c';
my $dir = tempdir('clock-XXXXXX', TMPDIR => 1, CLEANUP => 1);

# name => the name of the node.
sub new {
    my ($class, $name) = @_;
    my $library = "$dir/shift_clock.so";
    -e $library or system('cc', '-O1', '-shared', '-fPIC', '-o', $library, $source, '-ldl') == 0
        or die "cc fails\n";
    my $self = bless {offset => 0, file => "$dir/$name", library => $library}, $class;
    $self->set(0);
    return $self;
}

# The environment of an nginx with this clock.
sub environment { my ($self) = @_; return (LD_PRELOAD => $self->{library}, SHIFT_CLOCK => $self->{file}) }

# Sets the offset from the right time, in seconds.
sub set {
    my ($self, $offset) = @_;
    $self->{offset} = $offset;
    open my $file, -e $self->{file} ? '+<' : '>', $self->{file} or die "cannot write: $!\n";
    syswrite $file, pack 'q', 1e6 * $offset;
}

1;
