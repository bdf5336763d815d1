#!/usr/bin/env perl
# Draws a figure of all contestants as an SVG, with its confidence interval where there is one.
#
#   plot.pl RESULTS TITLE FIGURE [SECTION]
#
# RESULTS has one line of JSON for each contestant. With SECTION, only lines whose section begins with it are
# used.
use strict;
use warnings;

use JSON::PP;
use List::Util qw(max);

use constant {ROW => 24, LEFT => 300, WIDTH => 420, RIGHT => 130, TOP => 44};

my ($file, $title, $figure, $section) = @ARGV;
open my $in, '<', $file or die "$file: $!\n";
my @lines = map { decode_json($_) } <$in>;
@lines = grep { $_->{section} =~ /^\Q$section/ } @lines if defined $section;
my $scale = WIDTH / max(1e-9, map { ($_->{$figure}, @{$_->{"${figure}_interval"} // []}) } @lines);
my ($width, $height) = (LEFT + WIDTH + RIGHT, TOP + ROW * @lines + 12);

print <<"END";
<svg xmlns="http://www.w3.org/2000/svg" width="$width" height="$height" viewBox="0 0 $width $height"
  font-family="sans-serif" font-size="13">
<rect width="100%" height="100%" fill="white"/>
<text x="12" y="24" font-weight="bold">$title</text>
END
for my $index (0 .. $#lines) {
    my $it       = $lines[$index];
    my ($y, $at) = (TOP + ROW * $index, LEFT);
    my $length   = max(1, $it->{$figure} * $scale);
    my $colour   = $it->{colour} // ($it->{name} =~ /^ours|\btable/ ? '#2a6f97' : '#b0b0b0');
    my $value    = $it->{$figure};
    my $text     = $value !~ /\./ ? $value : sprintf $value != 0 && $value < 0.1 ? '%.2g' : '%.2f', $value;
    my $middle   = $y + ROW / 2;
    printf qq{<text x="%d" y="%d" text-anchor="end">%s</text>\n}, $at - 8, $middle + 4, $it->{name};
    printf qq{<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>\n}, $at, $y + 3, $length, ROW - 6, $colour;
    if (my $interval = $it->{"${figure}_interval"}) {
        my ($from, $to) = map { $at + $_ * $scale } @$interval;
        printf qq{<path d="M%.1f %d H%.1f" stroke="black"/>\n}, $from, $middle, $to;
        $length = max($length, $to - $at);
    }
    printf qq{<text x="%.1f" y="%d">%s</text>\n}, $at + $length + 6, $middle + 4, $text;
}
print "</svg>\n";
