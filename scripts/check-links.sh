#!/usr/bin/env bash
# Checks the links between the documents: each file, directory and #heading that a document of the top level
# or a page of docs/ links to exists, so does each `src/file.rs` that they name, and each
# page of docs/ is linked from another document. Prints each broken link as file:line: reason.
# Does not check links to other sites.
#
#   scripts/check-links.sh [DIR]     checks the documents of DIR; default: this repository
set -euo pipefail

cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
exec perl - <<'PERL'
use strict;
use warnings;
use File::Spec::Functions qw(canonpath);

my ($links, $broken) = (0, 0);
my %anchors;    # by document: the anchors of its headings
my %linked;     # documents that another one links to

sub broken {
    my ($where, $what) = @_;
    print "$where: $what\n";
    $broken++;
}

# The lines of a document; those of fenced blocks of code are empty.
sub prose {
    my ($file) = @_;
    open my $in, '<', $file or die "$file: $!\n";
    my ($fence, @lines);
    for my $line (<$in>) {
        chomp $line;
        if ($line =~ /^\s*(```|~~~)/ && (!defined $fence || $fence eq $1)) {
            $fence = defined $fence ? undef : $1;
            $line = '';
        }
        push @lines, defined $fence ? '' : $line;
    }
    die "$file: a block of code does not end\n" if defined $fence;
    return @lines;
}

# The anchor that GitHub makes of a heading, but for the number of one that is there already.
sub anchor {
    my ($heading) = @_;
    $heading =~ s/\[([^\]]*)\]\([^)]*\)/$1/g;
    $heading =~ s/[`*]//g;
    $heading = lc $heading;
    $heading =~ s/[^\w\- ]//g;
    $heading =~ tr/ /-/;
    return $heading;
}

sub anchors {
    my ($file) = @_;
    return $anchors{$file} //= do {
        my (%count, %found);
        for (prose($file)) {
            next if !/^#{1,6}\s+(.*?)\s*#*$/;
            my $anchor = anchor($1);
            my $before = $count{$anchor}++;
            $found{ $before ? "$anchor-$before" : $anchor } = 1;
        }
        \%found;
    };
}

# The path that a link of $file means, without `.` and `..`; undef outside of the directory.
sub path {
    my ($file, $target) = @_;
    my ($dir) = $file =~ m{^(.*/)};
    my @path;
    for (split m{/}, canonpath(($dir // '') . $target)) {
        if ($_ eq '..') { return undef if !@path; pop @path }
        elsif ($_ ne '.') { push @path, $_ }
    }
    return @path ? join '/', @path : '.';
}

sub check_link {
    my ($file, $where, $link) = @_;
    return if $link =~ /^(?:[a-z][a-z0-9+.-]*:|\/\/)/i;    # another site, mail
    $links++;
    my ($target, $anchor) = $link =~ /^([^#]*)(?:#(.*))?$/;
    my $path = $target eq '' ? $file : path($file, $target);
    if (!defined $path || !-e $path) {
        return broken($where, "$link: there is no such file");
    }
    $linked{$path} = 1 if $path ne $file;
    return if !defined $anchor;
    if ($path !~ /\.md$/) {
        broken($where, "$link: only a document has headings to link to");
    } elsif (!anchors($path)->{$anchor}) {
        broken($where, "$link: $path has no heading with this anchor");
    }
}

sub check {
    my ($file) = @_;
    my @lines = prose($file);
    # A link of the form [text][name], whose target stands elsewhere in the document.
    my %named = map { /^\s{0,3}\[([^\]]+)\]:\s*\S/ ? (lc $1 => 1) : () } @lines;
    for my $number (1 .. @lines) {
        my ($line, $where) = ($lines[ $number - 1 ], "$file:$number");
        check_link($file, $where, $1) if $line =~ /^\s{0,3}\[[^\]]+\]:\s*(\S+)/;
        while ($line =~ m{`((?:docs|examples|lua|nginx-conf|scripts|src|t)/[\w./-]*)`}g) {
            $links++;
            -e $1 or broken($where, "$1: there is no such file");
        }
        $line =~ s/(`+)(?!`).*?(?<!`)\1(?!`)/`code`/g;
        check_link($file, $where, $1) while $line =~ /\]\(([^()\s]*(?:\([^()]*\))?[^()\s]*)[^)]*\)/g;
        while ($line =~ /\[([^\[\]]+)\]\[([^\[\]]*)\]/g) {
            my $name = lc($2 ne '' ? $2 : $1);
            broken($where, "[$name]: no line says where this link goes") if !$named{$name};
        }
    }
}

my @pages = glob 'docs/*.md docs/*/*.md';
my @documents = (glob('*.md'), @pages);
die "no documents\n" if !@documents;
check($_) for @documents;
$linked{$_} or broken($_, 'no other document links to it') for @pages;
exit 1 if $broken;
printf "%d documents, %d links: all of them lead somewhere\n", scalar @documents, $links;
PERL
