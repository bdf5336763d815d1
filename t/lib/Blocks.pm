# Helpers that complete the test blocks of a file, for both runners.

package Blocks;

use strict;
use warnings;

use Exporter qw(import);

our @EXPORT = qw(complete lacks);

# Adds these %sections to the block where it does not have them. By default it also adds a zone
# "counters"; and, unless the block has must_die, a check that the log has no [emerg], [alert] or
# [crit].
sub complete {
    my ($block, %sections) = @_;

    $sections{http_config}  //= 'ratelimit_zone zone=counters:1m;';
    $sections{no_error_log} //= [qr/\[(?:emerg|alert|crit)\]/] if !defined $block->must_die;
    for my $name (sort keys %sections) {
        $block->set_value($name => $sections{$name}) if !defined $block->$name;
    }
}

my $built_with;

# Returns whether the block uses one of these directives (`directive => 'module'`) while nginx is
# built without its module. If so, the block expects nothing but the error about the unknown directive.
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
