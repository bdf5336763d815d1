# Compiles a C module of t/lib/ for the nginx under test. It uses the nginx sources that scripts/lib.sh
# keeps for that version, and the header of the module's C API.

package CModule;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

our @EXPORT_OK = qw(compile);

my $root = "$FindBin::Bin/..";

# Compiles lib/NAME.c and returns the path of the .so. The caller puts it into TEST_NGINX_LOAD_MODULES
# before it loads lib/Nginx.pm.
sub compile {
    my ($name) = @_;
    my $dir     = tempdir('module-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $library = "$dir/$name.so";
    cc('-O1', '-shared', '-fPIC', '-o', $library, "$FindBin::Bin/lib/$name.c", '-ldl') == 0 or die "cc fails\n";
    chmod 0755, $dir;
    return $library;
}

# Checks the syntax of a fragment of a C module; returns the exit status of the compiler.
sub check_syntax {
    my ($code) = @_;
    my $dir = tempdir('module-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    open my $out, '>', "$dir/part.c" or die "cannot write: $!\n";
    print $out "#define _GNU_SOURCE\n", map({"#include <$_.h>\n"} qw(ngx_config ngx_core ngx_http)), $code;
    close $out or die "cannot write: $!\n";
    return cc('-fsyntax-only', '-Wno-unused-function', "$dir/part.c");
}

sub cc {
    my $tree  = tree();
    my @paths = map {"-I$tree/$_"} qw(src/core src/event src/event/quic src/event/modules src/os/unix objs
        src/http src/http/v2 src/http/v3 src/http/modules);
    return system('cc', qw(-Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror), "-I$root/src/api", @paths, @_);
}

sub tree {
    my $binary = $ENV{TEST_NGINX_BINARY} || 'nginx';
    my ($version) = qx('$binary' -v 2>&1) =~ m{nginx/([\d.]+)} or die "no version of nginx\n";
    my @trees = (glob("$root/target/nginx/*"), $ENV{NGINX_SOURCE_DIR} // ());
    for my $tree (@trees) {
        next if !-e "$tree/objs/ngx_auto_config.h";
        open my $file, '<', "$tree/src/core/nginx.h" or next;
        return $tree if grep {/NGINX_VERSION\s+"\Q$version\E"/} <$file>;
    }
    die "no sources of nginx $version in target/nginx: scripts/build.sh makes them\n";
}

# Returns the query string that calls a function of the module c_api.
sub query {
    my ($function, %arguments) = @_;
    return join '&', "f=$function", map { "$_=" . encode($arguments{$_}) } sort keys %arguments;
}

sub encode {
    my ($value) = @_;
    $value =~ s/([^A-Za-z0-9_.-])/sprintf '%%%02X', ord $1/ge;
    return $value;
}

# Numbers, valid and invalid ones, as strtod() reads them.
my @numbers = (qw(nan inf -inf -1 -0.001 0 0.0001 0.001 1 1.5 60 31622400 31622401 1e11 1e12 1e300 -1e300 abc), '');

# Makes random calls to functions of c_api through `call`, with these handles among the arguments. The seed
# is fixed. Each refused call must return an error message and must not write its results. Returns the number of
# calls for each return code, and the number of calls that violate this (`wrong`).
sub call_at_random {
    my ($call, $calls, @handles) = @_;
    srand 20261123;
    my @functions = qw(new_instance find new_namespace increment sliding_window sync fetch new_limiter incoming
        uncommit increment_async incoming_async take);
    my %values = (
        h => [0, 1, 4294967295, @handles], k => ['', 'a', "\0", "\xff" x 300],
        n => ['', 'default', 'listed', 'asked', 'new', 'off', 'a b', 'x' x 300],
        len => [0, 1, 65535, 65536], room => [0, 1, 2, 256], dict => ['', 'counters', 'x'], store => ['', 'x', 'main'],
        type => ['', 'sliding', 'fixed', 'elastic', 'rate', 'x'], strategy => ['', 'redis'], commit => [0, 1],
        size => [0, 8, 1000], map { ($_ => \@numbers) } qw(w v weight diff time timeout limit rate burst sync_rate),
    );
    my %codes;
    for (1 .. $calls) {
        my $function  = pick(@functions);
        my %arguments = map { ($_ => pick(@{$values{$_}})) } grep { rand() < 0.4 } sort keys %values;
        my $answer = $call->($function, %arguments);
        my ($code, $text) = $answer =~ /^(-?\d+)(.*)/s or do {
            diag("$function: $answer");
            $codes{wrong}++;
            last;
        };
        $codes{$code}++;
        next if $code >= 0 || exists $arguments{room};
        my $is_told = $text =~ /[a-z]{3}.* [a-z]+/ && $text !~ /rate=(?!-77)/;
        next if $is_told;
        diag("$function " . join(' ', %arguments) . ": $answer");
        $codes{wrong}++;
    }
    return %codes;
}

sub pick { return $_[rand @_] }

1;
