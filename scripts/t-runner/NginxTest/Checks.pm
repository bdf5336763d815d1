# Compares the responses and the log of nginx with the expectations of a block.
# Each section makes as many checks as in Test::Nginx::Socket.
package NginxTest::Checks;

use strict;
use warnings;

use Exporter qw(import);
use Test::More;

use NginxTest::Server ();
use NginxTest::Settings qw(%settings expand);

our @EXPORT_OK = qw(check_response check_error_log);

my %part_for_pattern = (
    error_code_like             => 'code',
    raw_response_headers_like   => 'raw_headers',
    raw_response_headers_unlike => 'raw_headers',
    response_body_like          => 'body',
    response_body_unlike        => 'body',
);

sub check_response {
    my ($block, $response, $index, $many) = @_;

    my $name = $block->name;
    my $expected = sub { expected_for($block, $_[0], $index, $many) };

    is($response->{code}, $expected->('error_code') // 200, "$name - status code ok")
        if !defined $block->error_code_like;
    if (defined(my $body = $expected->('response_body'))) {
        ref $body
            ? like($response->{body}, $body, "$name - response_body - like")
            : is($response->{body}, expand(expand_port($body)), "$name - response_body");
    }
    for my $section (sort keys %part_for_pattern) {
        my $pattern = $expected->($section) // next;
        $pattern = expand_port($pattern);
        my $check = $section =~ /unlike/ ? \&unlike : \&like;
        $check->($response->{ $part_for_pattern{$section} }, qr/$pattern/s, "$name - $section");
    }
    check_headers($name, $response, $expected->('response_headers'), 0);
    check_headers($name, $response, $expected->('response_headers_like'), 1);
}

# Returns the value of a section for one request.  With several requests, the
# section must be an array.
sub expected_for {
    my ($block, $section, $index, $many) = @_;

    my $value = $block->$section;
    return $value if !defined $value || ref $value ne 'ARRAY' && !$many;
    die $block->name, " - many requests: '$section' has to be an array\n" if ref $value ne 'ARRAY';
    die $block->name, " - '$section' has nothing for request $index\n" if $index > $#$value;
    return $value->[$index];
}

sub check_headers {
    my ($name, $response, $text, $as_pattern) = @_;

    my %expected;
    for my $line (split /\n/, $text // '') {
        $line =~ s/^\s+|\s+$//g;
        next if $line eq '';
        my ($key, $value) = $line =~ s/^!\s*// ? $line : split /\s*:\s*/, $line, 2;
        $expected{$key} = $value;
    }
    for my $key (sort keys %expected) {
        my $got   = $response->{headers}{ lc $key } // '';
        my $value = $expected{$key};
        if ($as_pattern) {
            $value //= '';
            like($got, qr/^$value$/, "$name - header $key like ok");
        }
        elsif (defined $value) {
            is($got, expand_port($value), "$name - header $key ok");
        }
        else {
            ok(!defined $response->{headers}{ lc $key }, "$name - header $key not present");
        }
    }
}

sub expand_port {
    my ($text) = @_;
    return $text =~ s/\$ServerPort(?:ForClient)?\b/$settings{server_port}/gr;
}

sub check_error_log {
    my ($block, $repeat) = @_;

    my $lines = NginxTest::Server::error_log_lines();
    check_extract($block, $lines, $repeat);
    check_patterns($block, 'error_log', $lines);
    check_patterns($block, 'no_error_log', $lines);
    report_grave_lines($block, $lines);
}

# Checks that the parts of log lines that match grep_error_log equal
# grep_error_log_out.
sub check_extract {
    my ($block, $lines, $repeat) = @_;

    my ($pattern, $expected) = ($block->grep_error_log, $block->grep_error_log_out);
    die $block->name, " - grep_error_log and grep_error_log_out belong together\n"
        if defined $pattern != defined $expected;
    $_ = ref eq 'ARRAY' ? $_->[$repeat] : $_ for $pattern, $expected;
    return if !defined $pattern;

    $pattern = quotemeta $pattern if !ref $pattern;
    my $extract = join '', map { /$pattern/ ? "$&\n" : () } @$lines;
    my $label = $block->name . " - grep_error_log_out (req $repeat)";
    return ref $expected
        ? like($extract, $expected, $label)
        : is($extract, expand($expected), $label);
}

# Makes one check for each pattern: some line matches, or (no_error_log) no line
# matches.
sub check_patterns {
    my ($block, $section, $lines) = @_;

    for my $pattern (patterns_in($block->$section)) {
        my ($hit) = grep { ref $pattern ? /$pattern/ : index($_, $pattern) >= 0 } @$lines;
        ok(defined $hit == ($section eq 'error_log'), $block->name . " - $section: $pattern")
            or diag($hit // 'no line has it');
    }
}

sub patterns_in {
    my ($patterns) = @_;
    return () if !defined $patterns;
    return @$patterns if ref $patterns eq 'ARRAY';
    return $patterns if ref $patterns;
    return grep { $_ ne '' } split /\n+/, $patterns;
}

# Shows severe log messages that the block does not mention.  A failed assertion
# fails the test.
sub report_grave_lines {
    my ($block, $lines) = @_;

    my $spoken_of = join "\n", map { patterns_in($_) } $block->error_log, $block->no_error_log;
    for my $line (@$lines) {
        my ($level) = $line =~ /(\[(?:alert|crit|emerg))\]/;
        diag('WARNING: ', $block->name, " - $line") if $level && index($spoken_of, $level) < 0;
        fail($block->name . " - $line") if $line =~ /\bAssertion .*?failed\b/;
    }
}

1;
