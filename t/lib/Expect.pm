# Patterns for response headers: remaining hits, and seconds until the end of a window.

package Expect;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(left seconds_left seconds_between);

# Returns patterns for the header RateLimit with one limit, one pattern for each number of remaining hits.
sub left { return map {qq(RateLimit: "default-366d";r=$_(?:;t=\\d+)?)} @_ }

# Returns a pattern for the seconds until the end of the current window of 366 days, plus an optional
# number of seconds. It allows 10 minutes between this call and the request.
sub seconds_left { return seconds_between($_[0], $_[0]) }

# Returns the same pattern for the seconds until that end, plus `least` to `most` seconds.
sub seconds_between {
    my ($least, $most) = map { $_ // 0 } @_;
    my $left = 31622400 - time % 31622400;
    return '(?:' . join('|', $left + $least - 600 .. $left + $most + 1) . ')';
}

1;
