# Tests the messages of nginx's configure about the version of Rust, before anything is compiled.
# scripts/test.sh tests that `config` builds a working module.

use strict;
use warnings;
use File::Temp qw(tempdir);
use FindBin;
use Test::More;

my $root = "$FindBin::Bin/..";
open my $manifest, '<', "$root/Cargo.toml" or die "cannot read: $!\n";
my ($needed) = do { local $/; <$manifest> } =~ /^rust-version = "(.*)"/m;
my ($major, $minor) = split /\./, $needed;

# A directory that stands for the nginx sources, in which `config` runs; it also has a fake cargo.
my $nginx = tempdir('nginx-XXXXXX', TMPDIR => 1, CLEANUP => 1);
mkdir "$nginx/auto";
write_file("$nginx/auto/module", '');

sub write_file {
    my ($path, $text) = @_;
    open my $file, '>', $path or die "cannot write: $!\n";
    print $file $text;
    close $file or die "cannot write: $!\n";
}

# Runs `config` with this cargo; returns its exit status and its output.
sub configure {
    my $output = qx(cd "$nginx" && HTTP=YES NGX_OBJS=objs ngx_module_link=DYNAMIC \\
        ngx_addon_dir="$root" CARGO="$_[0]" sh -c '. "\$ngx_addon_dir/config"' 2>&1);
    return ($? >> 8, $output);
}

# Makes a cargo that reports this version.
sub cargo_of {
    write_file("$nginx/cargo", "#!/bin/sh\necho 'cargo $_[0] (0123456789 2026-01-01)'\n");
    chmod 0755, "$nginx/cargo";
    return "$nginx/cargo";
}

subtest 'no cargo' => sub {
    my ($status, $output) = configure("$nginx/none");
    is($status, 1, 'an error');
    like($output, qr/error: \S+ needs Rust \Q$needed\E or newer: "\S+none" does not run/, 'says why');
};

for my $version ("$major." . ($minor - 1) . '.9', '0.999.0', "$major.9.0") {
    subtest "Rust $version" => sub {
        my ($status, $output) = configure(cargo_of($version));
        is($status, 1, 'an error');
        like($output, qr/needs Rust \Q$needed\E or newer: "\S+" is of \Q$version\E /, 'says both');
    };
}

for my $version ("$needed.0", "$major." . ($minor + 13) . '.1-nightly', ($major + 1) . '.0.0') {
    subtest "Rust $version" => sub {
        is_deeply([configure(cargo_of($version))], [0, ''], 'will do');
    };
}

done_testing();
