# Blocks that are configurations, wrong or odd ones, for both runners.
#
# In a block that must die, the section error_log lists the parts of the one [emerg] line, in
# their order. The line ends with its place: the line of the block's configuration with the mark
# `# here`, or else the only line that is more than a brace. A last part in brackets says
# otherwise: `[file:line]` is another place, and `[no place]` stands for nginx's own messages
# that have none.
#
# Other blocks must start, and answer a request. There, each line of the section error_log is one
# [warn] line, and ends with its place: `text [file:line]`. No other is logged.
#
# No log line may have "s3cret" in it, which is what passwords are called.

package Configuration;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(configure);

my @sections = qw(main_config http_config config);
my $mark     = '# here';

# Makes a test of the block. Where it has no section http_config, $http_config takes its place.
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

# Moves the sections into files of their own, so that their lines have known numbers. Gives the
# place of the mark: that in the last section with one.
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

# With a mark at the only line that is more than a brace, if there is such a line.
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
