# `ratelimit-convert`, as the tests run it. RATELIMIT_CONVERT is its path; by default, that of the checked build.

package Convert;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use FindBin;

our @EXPORT_OK = qw(convert directory_of read_text);

our $program = $ENV{RATELIMIT_CONVERT} || "$FindBin::Bin/../target/checked/ratelimit-convert";
-x $program or die "no $program: build it as docs/from-limit-req.md says, with --profile checked\n";

# Runs the program with arguments; returns its exit status, its output and its error output.
sub convert {
    my (@arguments) = @_;
    my $directory = tempdir('convert-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $pid = fork // die "cannot fork: $!\n";
    if (!$pid) {
        open STDOUT, '>', "$directory/output" or die "cannot write: $!\n";
        open STDERR, '>', "$directory/errors" or die "cannot write: $!\n";
        exec $program, @arguments or die "cannot run $program: $!\n";
    }
    waitpid $pid, 0;
    die "$program was killed by signal " . ($? & 127) . "\n" if $? & 127;
    return ($? >> 8, read_text("$directory/output"), read_text("$directory/errors"));
}

# Writes files to a new directory; returns its path.
sub directory_of {
    my (%files) = @_;
    my $directory = tempdir('files-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    for my $name (keys %files) {
        mkdir "$directory/$1" if $name =~ m{^(.*)/};
        open my $file, '>', "$directory/$name" or die "cannot write: $!\n";
        print $file $files{$name};
        close $file or die "cannot write: $!\n";
    }
    return $directory;
}

sub read_text {
    my ($name) = @_;
    open my $file, '<', $name or die "$name: $!\n";
    local $/;
    return <$file> // '';
}

1;
