# Compiles a module in C of lib/ for the nginx under test, in the tree of sources that scripts/lib.sh keeps
# for it, with the header that other modules include.

package CModule;

use strict;
use warnings;

use Exporter qw(import);
use File::Temp qw(tempdir);
use FindBin;

our @EXPORT_OK = qw(compile);

my $root = "$FindBin::Bin/..";

# The path of the .so. It is to be in TEST_NGINX_LOAD_MODULES before lib/Nginx.pm is loaded.
sub compile {
    my ($name) = @_;
    my $dir    = tempdir('module-XXXXXX', TMPDIR => 1, CLEANUP => 1);
    my $tree   = tree();
    my @paths  = map {"-I$tree/$_"} qw(src/core src/event src/event/quic src/event/modules src/os/unix objs
        src/http src/http/v2 src/http/v3 src/http/modules);
    my $library = "$dir/$name.so";
    system('cc', qw(-Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror -O1 -shared -fPIC),
        '-o', $library, "$FindBin::Bin/lib/$name.c", "-I$root/src/api", @paths, '-ldl') == 0
        or die "cc fails\n";
    chmod 0755, $dir;
    return $library;
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

1;
