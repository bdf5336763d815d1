# Reads the blocks of a test file: `=== name`, then sections written as
# `--- name [filters]` over a text, or `--- name [filters]: value`.
package NginxTest::Format;

# Runs Perl code of a test file.  This function comes first in the file, so that
# the code sees no variable of the runner.  An undefined variable in the code is
# an error, not an empty string.
sub evaluate {
    package NginxTest::Sandbox;
    use strict;
    use warnings FATAL => 'uninitialized';
    my @values = eval $_[0];
    die "$_[1] - $@" if $@;
    return @values;
}

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT_OK = qw(parse_blocks evaluate);

my %known_section = map { $_ => 1 } qw(
    main_config http_config config user_files log_level init must_die suppress_stderr

    request pipelined_requests raw_request more_headers timeout abort ignore_response

    error_code error_code_like
    response_body response_body_like response_body_unlike
    response_headers response_headers_like
    raw_response_headers_like raw_response_headers_unlike
    error_log no_error_log grep_error_log grep_error_log_out
);

# Sections that exclude each other, one group in a line: Test::Nginx::Socket
# silently ignores all but the first one of a group.
my @exclusive_sections = (
    [qw(raw_request pipelined_requests request)],
    [qw(error_code_like error_code)],
    [qw(response_body response_body_like response_body_unlike)],
    [qw(response_headers response_headers_like)],
);

my %filters = (
    chomp => sub { my ($text) = @_; chomp $text; $text },
    eval  => sub {
        my @values = evaluate(@_);
        die "$_[1] - eval gives ", scalar @values, " values; use [...]\n" if @values != 1;
        return $values[0];
    },
);

sub parse_blocks {
    my ($text) = @_;

    my (@blocks, $section);
    for my $line (split /^/, $text) {
        $line =~ s/\r?\n?\z/\n/;
        if ($line =~ /^===[ \t]*(.*)/) {
            push @blocks, bless { name => "$0 $1", sections => {} };
            undef $section;
        }
        elsif (@blocks && $line =~ /^--- +\(?(\w+)\)? *(.*)/) {
            $section = $blocks[-1]->add_section($1, $2);
        }
        elsif ($line =~ /^---\w/) {
            die "malformed section line: $line";
        }
        elsif ($section) {
            die "$blocks[-1]{name} - a text under a section that has its value inline: $line"
                if $section->{inline} && $line =~ /\S/;
            $section->{value} .= $line if !$section->{inline};
        }
    }
    die "no blocks in $0\n" if !@blocks;
    return \@blocks;
}

# Each known section is a method of the block.
for my $name (keys %known_section) {
    no strict 'refs';
    *$name = sub { ($_[0]{sections}{$name} // {})->{value} };
}

sub name { return $_[0]{name} }

sub add_section {
    my ($block, $name, $rest) = @_;

    $block->require_known($name);
    die "$block->{name} - section '$name' appears twice\n" if $block->{sections}{$name};
    my ($filters, $colon, $value) = split /\s*(:)(?:\s+|\z)/, $rest, 2;
    return $block->{sections}{$name} = {
        filters => [split ' ', $filters // ''],
        inline  => defined $colon,
        value   => ($value // '') =~ s/\s+\z//r,
    };
}

sub set_value {
    my ($block, $name, $value) = @_;
    $block->require_known($name);
    $block->{sections}{$name}{value} = $value;
}

sub require_known {
    my ($block, $name) = @_;
    die "$block->{name} - section '$name' is not supported by this runner\n"
        if !$known_section{$name};
}

sub apply_filters {
    my ($block) = @_;
    for my $name (keys %{ $block->{sections} }) {
        my $section = $block->{sections}{$name};
        my $where   = "$block->{name} - section '$name'";
        $section->{value} =~ s/\A(?:[ \t]*\n)+//;
        $section->{value} =~ s/\n\s*\z/\n/;
        for my $filter (@{ $section->{filters} }) {
            my $apply = $filters{$filter} or die "$where - unknown filter '$filter'\n";
            $section->{value} = $apply->($section->{value}, $where);
        }
    }
}

sub reject_ignored_sections {
    my ($block) = @_;
    for my $group (@exclusive_sections) {
        my @given = grep { defined $block->$_ } @$group;
        die "$block->{name} - only one of these can be used: @given\n" if @given > 1;
    }
}

1;
