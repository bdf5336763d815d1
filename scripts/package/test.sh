#!/usr/bin/env bash
# Tests the packages of scripts/package.sh for Debian's nginx: lintian finds nothing, the module is small, the debugging
# symbols are of it, and installed.sh passes in a clean system without network. Needs root, or sudo.
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

[ $# = 0 ] || die "usage: scripts/package/test.sh"
cd "$root"
need_packages mmdebstrap lintian binutils dpkg-dev
export DEBFULLNAME='A maintainer' DEBEMAIL=maintainer@packages.invalid
work=$(mktemp -d)
trap 'as_root rm -rf "$work"' EXIT
package=libnginx-mod-http-rate-limiting

# A minimal system with nginx, and with what the packages depend on.
fill_system() {
    debian_repositories | sed 's/^deb-src/deb/' |
        as_root mmdebstrap --variant=minbase --include=nginx,libnginx-mod-http-lua,curl,jq,man-db,gcc,libc6-dev \
            "$(. /etc/os-release && printf '%s' "$VERSION_CODENAME")" system.tar -
}
cached_tree "$root/target/package/system" "$(apt-cache policy nginx | sed -n 's/^ *Candidate: //p')" fill_system

# The same packages in two versions, in two repositories; the debugging symbols of one are enough.
for revision in 1 2; do
    [ $revision = 1 ] || export DEB_BUILD_OPTIONS=noautodbgsym
    RATELIMIT_REVISION=$revision scripts/package.sh debian >/dev/null
    cp -r target/package/debian "$work/$revision"
    (cd "$work/$revision" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
done

lintian --allow-root --info --display-info --pedantic --fail-on error,warning,info,pedantic "$work"/1/*.changes
echo 'ok - lintian finds nothing'

# As opm reads it: the first line that looks like a version.
opm=$(sed -nE '/(^|[^[:alnum:]_])_?(VERSION|version) *= *[^ ]*[0-9]/ { s/[^=]*= *//; s/"//g; p; q }' lua/resty/rate_limiting.lua)
[ "$opm" = "$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)" ] || die "opm would publish version $opm"
echo 'ok - opm finds the version'

dpkg-deb -x "$work"/1/${package}_*.deb "$work/x"
dpkg-deb -x "$work"/1/${package}-dbgsym_*.deb "$work/x"
module=$work/x/usr/lib/nginx/modules/$name.so
size=$(stat -c %s "$module")
[ "$size" -le 11500000 ] || die "the module has $size bytes"
echo "ok - the module has $size bytes"

# The build's ID leads from the module to its symbols, as in gdb.
id=$(readelf -n "$module" | sed -n 's/.*Build ID: //p')
symbols=$work/x/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
lines=$(nm -C "$symbols" | awk '$2 ~ /^[tT]$/ && $3 ~ /^ngx_http_rate_limiting_module::nginx::/ { print $1 }' |
    addr2line -e "$symbols" | grep -c '/src/nginx/.*\.rs:[1-9]') || die "$symbols has no lines of src/nginx"
! nm "$module" 2>/dev/null | grep -q . || die "$module is not stripped"
echo "ok - the debugging symbols have the lines of $lines functions of src/nginx"

mkdir "$work/system"
as_root tar -C "$work/system" -xf target/package/system/system.tar
as_root cp -r "$work/1" "$work/2" "$root/scripts/package/installed.sh" "$work/system/srv"
# Without network or environment, and without a process that outlives the test.
as_root env -i PATH="$PATH" unshare --mount --net --ipc --uts --pid --fork --kill-child --root "$work/system" \
    /bin/bash /srv/installed.sh
