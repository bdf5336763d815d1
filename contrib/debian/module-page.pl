#!/usr/bin/perl
# Prints the manual page of the module, made of the tables of README.md:
#
#   module-page.pl README.md VERSION

use strict;
use warnings;

use POSIX qw(strftime);

my ($readme, $version) = @ARGV;
open my $in, '<', $readme or die "$readme: $!\n";
my @lines = map { chomp; $_ } <$in>;

# The lines from one that matches to the next that begins with `## ` or `**`.
sub section {
    my ($first) = @_;
    my @found;
    for (@lines) {
        if (@found) {
            last if /^(?:## |\*\*)/;
            push @found, $_;
        } elsif (/$first/) {
            push @found, $_;
        }
    }
    return @found ? @found : die "$readme: no line matches $first\n";
}

# The rows of a section's table, without its head, as lists of texts without links.
sub rows {
    my @rows;
    for (section(@_)) {
        next if !s/^\|\s*//;
        s/\s*\|$//;
        s/\[([^\]]*)\]\([^)]*\)/$1/g;
        s/\\\|/\0/g;
        # A `|` between backquotes is text.
        s{(`[^`]*`)}{$1 =~ s/\|/\0/gr}ge;
        push @rows, [map { s/\0/|/gr } split /\s*\|\s*/, $_, -1];
    }
    die "$readme: @_: no table\n" if @rows < 3;
    return @rows[2 .. $#rows];
}

# Text of Markdown in the words of mdoc.
sub mdoc {
    my ($text) = @_;
    $text =~ s/\\/\\e/g;
    $text =~ s/-/\\-/g;
    $text =~ s/`([^`]*)`/\\fB$1\\fR/g;
    # Each sentence has a line.
    $text =~ s/\. (?=[A-Z])/.\n/g;
    return $text =~ s/^([.'])/\\&$1/gmr;
}

sub list {
    my ($tag, @items) = @_;
    return join "\n", '.Bl -tag -width Ds', (map { (".It $tag " . mdoc($_->[0]), mdoc($_->[1])) } @items), '.El';
}

my @directives = map {
    my ($name, $takes, $default, $context, $text) = @$_;
    $takes =~ s/`//g;
    [$name, join ' ', (map { "$_." } grep { $_ ne '' } ucfirst $text,
        $takes && "Takes: `$takes`", $default && "Default: $default", "Context: $context")];
} rows(qr/^## Directives/);
my ($variables) = join(' ', section(qr/^\*\*Variables\*\*/)) =~ /:\s*(.*\S)/;
my @headers = map { [$_->[0] =~ s/`//gr, "$_->[1]."] } rows(qr/^\| kind \| headers/);
my @failures = map { [$_->[0], ucfirst "$_->[1]."] } rows(qr/^## Behaviour under failure/);

print join("\n",
    '.\\" Made of README.md by module-page.pl.',
    strftime('.Dd %B %e, %Y', gmtime($ENV{SOURCE_DATE_EPOCH} // time)) =~ s/  +/ /r,
    '.Dt NGX_HTTP_RATE_LIMITING_MODULE 7',
    '.Os',
    '.Sh NAME',
    '.Nm ngx_http_rate_limiting_module',
    ".Nd cluster\\-wide rate limiting for nginx, version $version",
    '.Sh SYNOPSIS',
    '.Bd -literal',
    'load_module modules/ngx_http_rate_limiting_module.so;',
    '',
    (grep { !/^(?:load_module|$)/ } code('A first configuration')),
    '.Ed',
    '.Sh DESCRIPTION',
    'The module counts requests by a key, such as the client\'s address, and rejects requests above a limit.',
    'Counts are in shared memory.',
    'Nodes can share them through Redis, PostgreSQL, Cassandra, memcached or etcd.',
    '.Sh DIRECTIVES',
    'The context any means http, server and location.',
    list('Ic', @directives),
    '.Sh VARIABLES',
    mdoc($variables =~ s/\[([^\]]*)\]\([^)]*\)/$1/gr),
    '.Sh HEADERS',
    list('Ic', @headers),
    '.Sh BEHAVIOUR UNDER FAILURE',
    'Counts, by event:',
    list('No', @failures),
    '.Sh FILES',
    list('Pa',
        ['/usr/lib/nginx/modules/ngx_http_rate_limiting_module.so', 'The module.'],
        ['/usr/share/doc/*rate-limiting*/', 'The complete documentation, and examples.']),
    '.Sh SEE ALSO',
    '.Xr ratelimitctl 1 ,',
    '.Xr nginx 8',
), "\n";

# The first block of code below a heading.
sub code {
    my ($heading) = @_;
    my ($below, $inside, @code);
    for (@lines) {
        $below ||= $_ eq "## $heading";
        next if !$below;
        last if $inside && /^```/;
        push @code, $_ =~ s/\\/\\e/gr if $inside;
        $inside ||= /^```/;
    }
    return @code ? @code : die "$readme: no code below $heading\n";
}
