#!/usr/bin/env perl
# Prints the number of executed instructions of an object file, from the output of callgrind. Unlike the
# instructions of the whole process, it does not depend on where malloc finds memory.
#
#   own.pl CALLGRIND_OUT OBJECT         OBJECT: the end of its path
use strict;
use warnings;

my ($file, $object) = @ARGV;
open my $in, '<', $file or die "$file: $!\n";
my ($own, $is_own, $is_call, $number) = (0);
while (<$in>) {
    if (/^c?ob=\((\d+)\)(?: (.*))?/) {
        # A name is written once with a number, and then only as the number.
        $number = $1 if defined $2 && substr($2, -length $object) eq $object;
        $is_own = defined $number && $1 == $number if !/^c/;
    } elsif (/^calls=/) {
        # The next line has the cost of the call.
        $is_call = 1;
    } elsif (/^[-+*\d]\S* (\d+)/) {
        $own += $1 if $is_own && !$is_call;
        $is_call = 0;
    }
}
print "$own\n";
