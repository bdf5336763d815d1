# A C library that is preloaded into nginx to inject rare conditions. The library maps a file of three numbers. The
# test writes the first number as an order, and reads the results from the numbers.

package Preload;

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use File::Temp qw(tempdir);

my $sources = abs_path(dirname(__FILE__));
my $dir     = tempdir('preload-XXXXXX', TMPDIR => 1, CLEANUP => 1);
my $files   = 0;

# Workers may run as another user.
chmod 0755, $dir;

# Compiles NAME.c, which is beside this file. The environment variable with the name in capitals has the path of the file
# of numbers.
sub new {
    my ($class, $name) = @_;
    my $self = bless {library => "$dir/$name.so", numbers => "$dir/numbers-" . ++$files, variable => uc $name}, $class;
    -e $self->{library} or system('cc', '-O1', '-shared', '-fPIC', '-o', $self->{library}, "$sources/$name.c", '-ldl') == 0
        or die "cc fails\n";
    open $self->{file}, '+>', $self->{numbers} or die "cannot write: $!\n";
    chmod 0666, $self->{numbers};
    $self->order(0);
    return $self;
}

# Returns the environment variables that preload the library.
sub environment {
    my ($self) = @_;
    return (LD_PRELOAD => $self->{library}, $self->{variable} => $self->{numbers});
}

# Writes an order and sets the other numbers to 0.
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
