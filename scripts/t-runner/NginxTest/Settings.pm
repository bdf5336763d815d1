# The settings of a run, from the environment and the preamble of a test file;
# and the expansion of $TEST_NGINX_* in the texts of the blocks.
package NginxTest::Settings;

use strict;
use warnings;

use Exporter qw(import);
use File::Spec;
use IO::Socket::INET;

our @EXPORT_OK = qw(%settings expand forget_random_ports seconds);

our %settings = (
    binary               => $ENV{TEST_NGINX_BINARY} || 'nginx',
    load_modules         => [split ' ', $ENV{TEST_NGINX_LOAD_MODULES} // ''],
    server_port          => $ENV{TEST_NGINX_SERVER_PORT} || $ENV{TEST_NGINX_PORT} || 1984,
    server_root          => File::Spec->rel2abs($ENV{TEST_NGINX_SERVROOT} || 't/servroot'),
    master_process       => $ENV{TEST_NGINX_MASTER_PROCESS} || 'off',
    workers              => 1,
    worker_connections   => 64,
    log_level            => $ENV{TEST_NGINX_LOG_LEVEL} || 'debug',
    timeout              => $ENV{TEST_NGINX_TIMEOUT} || 3,
    sleep                => $ENV{TEST_NGINX_SLEEP} || 0.015,
    shuffle              => !$ENV{TEST_NGINX_NO_SHUFFLE},
    accumulate_error_log => $ENV{TEST_NGINX_CHECK_ACCUM_ERR_LOG},
    root_location        => 1,
    repeat_each          => 1,
    env_to_nginx         => [],
);
$ENV{TEST_NGINX_SERVER_ROOT} = $settings{server_root};

for my $mode (qw(BENCHMARK CHECK_LEAK RANDOMIZE USE_HTTP2 USE_HTTP3 USE_HUP USE_VALGRIND)) {
    die "TEST_NGINX_$mode needs the genuine Test::Nginx\n" if $ENV{"TEST_NGINX_$mode"};
}

my %random_ports;    # $TEST_NGINX_RAND_PORT_<n> of the block

sub forget_random_ports { %random_ports = () }

sub expand {
    my ($text) = @_;
    $text =~ s/\$(TEST_NGINX_[_A-Z0-9]+)/value_of($1)/ge if defined $text;
    return $text;
}

sub value_of {
    my ($name) = @_;
    return $random_ports{$name}
        //= IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 1)->sockport
        if $name =~ /^TEST_NGINX_RAND_PORT_\d+$/;
    return $ENV{$name} // die "\$$name is used in a block, but not in the environment\n";
}

# Parses a time of a section (`2`, `2s` or `200ms`); returns seconds.
sub seconds {
    my ($time) = @_;
    my ($number, $unit) = $time =~ /^\s*([\d.]+)(ms|s)?\s*$/ or die "not a time: $time\n";
    return ($unit // '') eq 'ms' ? $number / 1000 : $number;
}

1;
