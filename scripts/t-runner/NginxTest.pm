# Runs a test file for openresty's Test::Nginx::Socket: provides the functions
# that its preamble calls, and runs each block with a new nginx.  It uses only
# modules that come with Perl.
package NginxTest;

use strict;
use warnings;

use Exporter ();
use List::Util qw(shuffle);
use Scalar::Util qw(looks_like_number);
use Test::More;

use NginxTest::Checks qw(check_response check_error_log);
use NginxTest::Client qw(requests_of_block exchange parse_response);
use NginxTest::Format qw(parse_blocks evaluate);
use NginxTest::Server ();
use NginxTest::Settings qw(%settings forget_random_ports);

my @value_settings = qw(log_level repeat_each server_port timeout worker_connections workers);

our @EXPORT = (@value_settings, qw(
    ok is isnt like unlike is_deeply cmp_ok pass fail diag plan
    add_block_preprocessor blocks check_accum_error_log env_to_nginx html_dir
    master_off master_on master_process_enabled no_long_string
    no_root_location no_shuffle run_tests server_root
));

my @preprocessors;
my $parsed_blocks;

sub import {
    my ($class, @plan) = @_;
    strict->import;
    warnings->import;
    plan(@plan) if @plan;
    __PACKAGE__->Exporter::export(scalar caller);
}

for my $name (@value_settings) {
    no strict 'refs';
    *$name = sub {
        $settings{$name} = shift if @_;
        return $settings{$name};
    };
}

sub no_long_string ()          { }    # it only chooses how a failure is displayed
sub no_shuffle ()              { $settings{shuffle}              = 0 }
sub no_root_location ()        { $settings{root_location}        = 0 }
sub check_accum_error_log ()   { $settings{accumulate_error_log} = 1 }
sub master_on ()               { master_process_enabled(1) }
sub master_off ()              { master_process_enabled(0) }
sub server_root ()             { $settings{server_root} }
sub html_dir ()                { "$settings{server_root}/html" }
sub env_to_nginx               { push @{ $settings{env_to_nginx} }, @_ }
sub add_block_preprocessor (&) { unshift @preprocessors, shift }

sub master_process_enabled {
    $settings{master_process} = $_[0] ? 'on' : 'off' if @_;
    return $settings{master_process};
}

sub blocks () {
    $parsed_blocks ||= do {
        no warnings 'once';
        local $/;
        parse_blocks(scalar <main::DATA>);
    };
    return wantarray ? @$parsed_blocks : scalar @$parsed_blocks;
}

sub run_tests () {
    $ENV{TEST_NGINX_SERVER_PORT} //= $settings{server_port};

    my @blocks = blocks();
    $_->apply_filters for @blocks;
    for my $block ($settings{shuffle} ? shuffle(@blocks) : @blocks) {
        $_->($block) for @preprocessors;
        $block->reject_ignored_sections;
        run_block($block);
    }
    NginxTest::Server::stop();
}

sub run_block {
    my ($block) = @_;

    local $settings{log_level} = $block->log_level || $settings{log_level};
    forget_random_ports();
    NginxTest::Server::stop();
    NginxTest::Server::prepare($block);
    my $run = \&expect_failing_start;
    if (!defined $block->must_die) {
        $run = \&run_requests;
        my $status = NginxTest::Server::start($block);
        die $block->name, " - nginx does not start (wait status $status)\n" if $status != 0;
        evaluate($block->init, $block->name . ' - init') if defined $block->init;
    }
    $run->($block, $_) for 0 .. $settings{repeat_each} - 1;
}

sub run_requests {
    my ($block, $repeat) = @_;

    my @requests  = requests_of_block($block);
    my $pipelined = $block->pipelined_requests;
    my $many      = $pipelined || @requests > 1;
    my $index     = 0;
    for my $request (@requests) {
        my $left = exchange($block, $request);
        for (1 .. ($pipelined ? @$pipelined : 1)) {
            if (!defined $block->ignore_response) {
                my $response = parse_response($block, $left, $request =~ /^\s*HEAD\s/);
                $left = $response->{left};
                check_response($block, $response, $index, $many);
            }
            check_error_log($block, $repeat);
            $index++;
        }
    }
}

sub expect_failing_start {
    my ($block, $repeat) = @_;

    my ($name, $expected) = ($block->name, $block->must_die);
    my $status = NginxTest::Server::start($block);
    if ($status & 127) {
        fail("$name - nginx was killed by a signal instead of exiting");
    }
    elsif (looks_like_number($expected)) {
        is($status >> 8, $expected, "$name - die with the expected exit code");
    }
    else {
        isnt($status, 0, "$name - die as expected");
    }
    check_error_log($block, $repeat);
    NginxTest::Server::stop();
}

1;
