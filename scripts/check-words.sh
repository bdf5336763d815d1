#!/usr/bin/env bash
# Counts doc comments that open with a clause ("What", "How", "That of", ...) instead of a verb or a noun, and fails
# above a share of them. Prints each as file:line: comment, with --list.
#
#   scripts/check-words.sh [--list] [--most PERCENT] [FILE...]     default: 4 %, all of src, lua and examples
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
list=0 most=4
while [ $# -gt 0 ]; do
    case $1 in
        --list) list=1 ;;
        --most) most=$2 && shift ;;
        --*) echo "usage: scripts/check-words.sh [--list] [--most PERCENT] [FILE...]" >&2 && exit 2 ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || mapfile -t files < <(git ls-files 'src/*.rs' 'examples/*.rs')
[ $# = 0 ] || files=("$@")

# A comment begins where the previous line is not a comment. "Whether" may open the comment of a predicate.
exec perl - "$list" "$most" "${files[@]}" <<'PERL'
use strict;
use warnings;

my ($list, $most, @files) = @ARGV;
my $clause = qr/^(?:What|How|Who|Whose|Where|When|Which|Why|That|Those|These|The\ same|Likewise|As|Of|So|Or|Such|One\ that)\b/x;
my ($comments, $clauses) = (0, 0);
for my $file (@files) {
    open my $in, '<', $file or die "$file: $!\n";
    my $before = '';
    while (my $line = <$in>) {
        if ($line =~ m{^\s*(//[/!])\s+(\S.*)} && $before ne $1) {
            $comments++;
            my $text = $2;
            if ($text =~ $clause) {
                $clauses++;
                print "$file:$.: $text\n" if $list;
            }
        }
        $before = $line =~ m{^\s*(//[/!])} ? $1 : '';
    }
}
my $share = $comments ? 100 * $clauses / $comments : 0;
printf "%d of %d doc comments open with a clause: %.1f %%, allowed %s %%\n", $clauses, $comments, $share, $most;
exit($share > $most);
PERL
