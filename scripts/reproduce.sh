#!/usr/bin/env bash
# Builds the module, its packages and a tarball here, and once more in a copy of the repository in another directory, with
# another CARGO_HOME, time zone, language and umask; and compares all files, also those of debugging symbols.
#
#   scripts/reproduce.sh     takes as long as two builds for release; one, if target/release is up to date
#
# It is not part of scripts/test.sh, but a job of its own of the workflow.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 0 ] || die "usage: scripts/reproduce.sh"
cd "$root"
unset NGINX_SOURCE_DIR NGINX_BUILD_DIR CARGO_TARGET_DIR RATELIMIT_PROFILE RATELIMIT_WITHOUT_CASSANDRA RATELIMIT_CONVERT
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

packages() {
    scripts/package.sh debian >/dev/null
    scripts/package.sh tarball debian >/dev/null
}

say 'building here'
packages

# The copy: what cargo has downloaded is not downloaded again, and has another path.
copy=$work/a/longer/path
copy_sources "$copy"
mkdir "$work/cargo"
ln -s "${CARGO_HOME:-$HOME/.cargo}/registry" "$work/cargo/registry"
say "building in $copy"
(
    cd "$copy"
    export CARGO_HOME=$work/cargo TZ=Asia/Kathmandu LC_ALL=C.UTF-8
    umask 077
    packages
)

# The files of a build, by what they are called in both.
files() {
    (
        cd "$1/target"
        find release -maxdepth 1 -name "lib$name.so*"
        find package -maxdepth 2 \( -name '*.deb' -o -name '*.tar.gz' -o -name '*.cdx.json' \)
    ) | sort
}
files "$root" >"$work/here"
files "$copy" >"$work/there"
diff "$work/here" "$work/there" >&2 || die 'not the same files'
differ=0
while IFS= read -r file; do
    if cmp -s "target/$file" "$copy/target/$file"; then
        echo "ok - $(sha256sum <"target/$file" | cut -c 1-16) $file"
    else
        echo "not ok - $file differs"
        differ=1
    fi
done <"$work/here"
exit $differ
