# What the blocks of a file have in common, for both runners.

package Blocks;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(complete lacks);

# Gives the block what it lacks of these %sections, and of two more: a zone "counters", and that
# nothing worse than an error is logged where nginx starts.
sub complete {
    my ($block, %sections) = @_;

    $sections{http_config}  //= 'ratelimit_zone zone=counters:1m;';
    $sections{no_error_log} //= [qr/\[(?:emerg|alert|crit)\]/] if !defined $block->must_die;
    for my $name (sort keys %sections) {
        $block->set_value($name => $sections{$name}) if !defined $block->$name;
    }
}

my $built_with;

# Whether the block has one of these directives (`directive => 'module'`), and this nginx is built
# without its module. Then all that is expected of the block is that nginx says so.
sub lacks {
    my ($block, %modules) = @_;

    $built_with //= do {
        my $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
        qx('$binary' -V 2>&1);
    };
    for my $directive (sort keys %modules) {
        next if $block->config !~ /\b$directive / || $built_with =~ /_$modules{$directive}_module/;
        $block->set_value(must_die        => 1);
        $block->set_value(suppress_stderr => 1);
        $block->set_value(error_log       => qq([emerg]\nunknown directive "$directive"));
        return 1;
    }
    return 0;
}

1;
