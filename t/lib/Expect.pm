# What tests expect of headers: remaining hits, and times up to a window's end.

package Expect;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(left seconds_left seconds_between);

# Patterns of the header RateLimit, one for each number of remaining hits of the only limit.
sub left { return map {qq(RateLimit: "default-366d";r=$_(?:;t=\\d+)?)} @_ }

# A pattern for the seconds to the end of the current window of 366 days, and `more`: some minutes
# may pass until the request is made.
sub seconds_left { return seconds_between($_[0], $_[0]) }

# A pattern for the seconds to that end, and `least` to `most`.
sub seconds_between {
    my ($least, $most) = map { $_ // 0 } @_;
    my $left = 31622400 - time % 31622400;
    return '(?:' . join('|', $left + $least - 600 .. $left + $most + 1) . ')';
}

1;
