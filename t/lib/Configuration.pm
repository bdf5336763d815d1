# Test blocks with invalid or unusual configurations, for both runners.
#
# In a block with must_die, the section error_log lists the parts of the only [emerg] line, in
# order. The [emerg] line must end with the position of the error. That is the line of the block's
# configuration with the mark `# here`; without a mark, it is the only line that has more than a
# brace. A last part in brackets overrides this: `[file:line]` names another position, and
# `[no place]` is for messages of nginx itself that name no position.
#
# A block without must_die must start and answer a request. Each line of its section error_log has
# the form `text [file:line]` and expects one [warn] line with that text and position. No other
# [warn] line may be logged.
#
# No log line may contain "s3cret", which is the password in all blocks.

package Configuration;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(configure);

my @sections = qw(main_config http_config config);
my $mark     = '# here';

# Adds the checks to the block. $http_config is used if the block has no section http_config.
sub configure {
    my ($block, $http_config) = @_;

    defined $block->must_die ? expect_emerg($block) : expect_start($block);
    $block->set_value(http_config => $http_config) if !defined $block->http_config;
    $block->set_value(config      => '') if !defined $block->config;
}

sub expect_start {
    my ($block) = @_;
    $block->set_value(request => 'GET /') if !defined $block->request;
    my @warnings = split /\n/, $block->error_log // '';
    include_sections($block) if @warnings;
    my $level = @warnings ? qr/\[(?:emerg|alert|crit)\]/ : qr/\[(?:emerg|alert|crit|warn)\]/;
    $block->set_value(no_error_log => [$level, qr/s3cret/]);
    return if !@warnings;
    $block->set_value(error_log          => [map { warning($_) } @warnings]);
    $block->set_value(grep_error_log     => '[warn]');
    $block->set_value(grep_error_log_out => "[warn]\n" x @warnings);
}

sub warning {
    my ($text, $place) = $_[0] =~ /^(.*) \[(\S+)\]$/ or die "no place in '$_[0]'\n";
    return qr/\[warn\].*\Q$text\E.* in \S+\/\Q$place\E$/;
}

sub expect_emerg {
    my ($block) = @_;

    my @parts = split /\n/, $block->error_log;
    my $place = $parts[-1] =~ /^\[(.*)\]$/ ? $1 : undef;
    pop @parts if defined $place;
    my $marked = include_sections($block);
    $place //= $marked // die $block->name, " - mark the line with '$mark'\n";

    my $line = join '.*', '\[emerg\]', map { quotemeta } @parts;
    $line .= $place eq 'no place' ? '$' : '.* in \S+/' . quotemeta($place) . '$';
    $block->set_value(error_log          => qr/$line/);
    $block->set_value(no_error_log       => [qr/s3cret/]);
    $block->set_value(grep_error_log     => '[emerg]');
    $block->set_value(grep_error_log_out => "[emerg]\n");
    $block->set_value(suppress_stderr    => 1);
}

# Moves each section into its own file, so that the line numbers are known. Returns the position of
# the mark, from the last section that has one.
sub include_sections {
    my ($block) = @_;

    my $place;
    for my $section (@sections) {
        my $text = marked($block->$section // next);
        my $file = "$section.conf";
        my ($before) = $text =~ /\A(.*?)\Q$mark\E/s;
        $place = "$file:" . (1 + $before =~ tr/\n//) if defined $before;
        add_file($block, $file, "$text\n");
        $block->set_value($section => "include ../html/$file;");
    }
    return $place;
}

# Returns the text with a mark. If it has no mark and exactly one line with more than a brace, adds
# the mark to that line.
sub marked {
    my $text = $_[0] =~ s/\s+\z//r;
    return $text if index($text, $mark) >= 0;
    my @lines   = split /\n/, $text;
    my @content = grep { !/^\s*\}?\s*$/ && !/\{\s*$/ } @lines;
    return $text if @content != 1;
    return join "\n", map { $_ eq $content[0] ? "$_ $mark" : $_ } @lines;
}

sub add_file {
    my ($block, $name, $text) = @_;
    my $files = $block->user_files // '';
    $block->set_value(
        user_files => ref $files ? [@$files, [$name, $text]] : "$files>>> $name\n$text"
    );
}

1;
