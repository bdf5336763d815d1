# A library in C that is preloaded into nginx, and has it meet what it seldom meets. A file of three
# numbers, which is mapped by both, says what the library is to do, and what came of it.

package Preload;

use strict;
use warnings;

use File::Temp qw(tempdir);
use FindBin;

# The name of a file of lib/, without its `.c`. In capitals, it is the variable that names the numbers.
sub new {
    my ($class, $name) = @_;
    my $dir  = tempdir('preload-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $self = bless {library => "$dir/$name.so", numbers => "$dir/numbers", variable => uc $name}, $class;
    system('cc', '-O1', '-shared', '-fPIC', '-o', $self->{library}, "$FindBin::Bin/lib/$name.c", '-ldl') == 0
        or die "cc fails\n";
    open $self->{file}, '+>', $self->{numbers} or die "cannot write: $!\n";
    # Workers may be of another user.
    chmod 0755, $dir;
    chmod 0666, $self->{numbers};
    $self->order(0);
    return $self;
}

# The environment of an nginx that has it.
sub environment {
    my ($self) = @_;
    return (LD_PRELOAD => $self->{library}, $self->{variable} => $self->{numbers});
}

# Says what it is to do; the other numbers become 0.
sub order {
    my ($self, $number) = @_;
    sysseek $self->{file}, 0, 0;
    syswrite $self->{file}, pack 'q3', $number, 0, 0;
}

sub numbers {
    my ($self) = @_;
    sysseek $self->{file}, 0, 0;
    sysread $self->{file}, my $numbers, 24;
    return unpack 'q3', $numbers;
}

1;
