#!/usr/bin/env perl
# Draws figures of every series over x, whose scale is logarithmic: an SVG.
#
#   curves.pl RESULTS TITLE FIGURE...
#
# RESULTS: a line for each row, in JSON, with its series, colour and x. The first FIGURE is drawn as a
# line, a second one dashed.
use strict;
use warnings;

use JSON::PP;
use List::Util qw(max min uniq);

use constant {LEFT => 56, WIDTH => 560, RIGHT => 230, TOP => 44, HEIGHT => 280, BOTTOM => 34, LINE => 18};

my ($file, $title, @figures) = @ARGV;
open my $in, '<', $file or die "$file: $!\n";
my @rows = map { decode_json($_) } <$in>;
my @x    = sort { $a <=> $b } uniq map { $_->{x} } @rows;
my ($from, $to) = (log $x[0], log $x[-1]);
my $top = max map { @$_{@figures} } @rows;
# Six lines across at most, at multiples of 1, 2 or 5 times a power of ten.
my ($step) = grep { $top / $_ <= 6 } map { my $ten = 10**$_; ($ten, 2 * $ten, 5 * $ten) } -4 .. 4;

my ($width, $height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
sub x_of { LEFT + WIDTH * (log($_[0]) - $from) / ($to - $from) }
sub y_of { TOP + HEIGHT * (1 - $_[0] / $top) }

print <<"END";
<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" viewBox="0 0 $width $height"
  font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="12" y="24" font-weight="bold">$title</text>
END
for my $line (0 .. int($top / $step)) {
    my $y = y_of($line * $step);
    printf qq{<path d="M%d %.1f h%d" stroke="#e0e0e0"/>\n}, LEFT, $y, WIDTH;
    printf qq{<text x="%d" y="%.1f" text-anchor="end">%g</text>\n}, LEFT - 8, $y + 4, $line * $step;
}
my $last = -1e9;
for my $x (@x) {
    next if x_of($x) - $last < 30;
    $last = x_of($x);
    printf qq{<text x="%.1f" y="%d" text-anchor="middle">%g</text>\n}, $last, TOP + HEIGHT + 20, $x;
}
my $entry = 0;
for my $series (uniq map { $_->{series} } @rows) {
    my @points = sort { $a->{x} <=> $b->{x} } grep { $_->{series} eq $series } @rows;
    for my $index (0 .. $#figures) {
        my $figure = $figures[$index];
        my $dashes = $index ? ' stroke-dasharray="5 4"' : '';
        my $style  = qq{fill="none" stroke="$points[0]{colour}" stroke-width="2"$dashes};
        my $path   = join ' L', map { sprintf '%.1f %.1f', x_of($_->{x}), y_of($_->{$figure}) } @points;
        print qq{<path d="M$path" $style/>\n};
        my $y = TOP + 8 + LINE * $entry++;
        printf qq{<path d="M%d %d h24" $style/>\n}, LEFT + WIDTH + 14, $y;
        (my $text = @figures > 1 ? "$series, $figure" : $series) =~ tr/_/ /;
        printf qq{<text x="%d" y="%d">%s</text>\n}, LEFT + WIDTH + 44, $y + 4, $text;
    }
}
print "</svg>\n";
