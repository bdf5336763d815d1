#!/usr/bin/env bash
# Builds packages of the module, below target/package/; installs what it needs to build them. See docs/install.md.
#
#   scripts/package.sh [--light] debian             for the installed Debian nginx, with the packages beside the module's
#   scripts/package.sh [--light] nginx.org TREE     for the nginx of nginx.org that has this source
#   scripts/package.sh [--light] tarball TREE...    a tarball of the .so files for several nginx
#   scripts/package.sh test                         tests the packages of Debian in a clean system (as root)
#
#   --light   without `strategy cassandra` and its driver
#   TREE      a directory with nginx's source; `debian` for the installed nginx, or 1.28.3 for that of the tests. If the
#             directory is not configured, a copy of it is, with --with-compat
#
#   DEBFULLNAME, DEBEMAIL   the maintainer of the packages
#   RATELIMIT_REVISION      the revision of the packages: default 1
#   RATELIMIT_PROFILE       as for scripts/build.sh
#   RATELIMIT_CONVERT       a ratelimit-convert that is built already
#   SOURCE_DATE_EPOCH       the time of the packages: default that of the last commit
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { die "usage: scripts/package.sh [--light] debian | nginx.org TREE | tarball TREE... | test"; }

light=
if [ "${1:-}" = --light ]; then
    light=-light
    shift
fi
cd "$root"
out=$root/target/package
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)

# Prints the path of a configured tree.
configured_tree() {
    case $1 in
        debian) debian_nginx_tree ;;
        "$crate_nginx_version") crate_nginx ;;
        *)
            source=$(realpath -e "$1") || die "$1: no such directory"
            [ -e "$source/src/core/nginx.h" ] || die "$1 is not an nginx source tree"
            if [ -e "$source/objs/ngx_auto_config.h" ]; then
                printf '%s\n' "$source"
            else
                need_nginx_libraries
                cached_tree "$out/trees/${source##*/}" "$source $(nginx_source_version "$source")" fill_configured
                printf '%s\n' "$out/trees/${source##*/}"
            fi
            ;;
    esac
}

fill_configured() {
    local configure=./configure
    cp -r "$source/." . && rm -rf objs
    [ -e $configure ] || configure=auto/configure
    $configure --with-compat
}

# Builds the module for a TREE. Prints the directory that has it, as scripts/build.sh makes it; deps/ has the unstripped one.
built() {
    local tree target=$out/cargo
    tree=$(configured_tree "$1")
    # The build that the tests make, too.
    [ "$1$light" != debian ] || target=$root/target
    RATELIMIT_WITHOUT_CASSANDRA=$light CARGO_TARGET_DIR=$target NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs \
        scripts/build.sh >&2
    printf '%s\n' "$target/${RATELIMIT_PROFILE:-release}"
}

# The options of cargo tree for the crates in the module.
crate_features() { [ -z "$light" ] || printf -- '--no-default-features --features nginx,redis,postgres,tls\n'; }

# debian_directory DIR PACKAGE NGINX: makes DIR/debian of contrib/debian, for a module of this name; NGINX are the packages
# of nginx to build with.
debian_directory() {
    local dir=$1/debian package=$2 nginx=$3 release maintainer stores='Redis, PostgreSQL, Cassandra, memcached or etcd' summary
    summary='cluster-wide rate limiting for nginx'
    [ -z "$light" ] || stores='Redis or PostgreSQL' summary+=' - with fewer datastores'
    maintainer="${DEBFULLNAME:-The authors of $name} <${DEBEMAIL:-$name@packages.invalid}>"
    # Packages for one release of Debian are older than the same for the next one.
    release=$(. /etc/os-release && printf '%s' "${VERSION_ID:+~deb$VERSION_ID}")
    cp -r contrib/debian "$dir"
    [ "$package" != libnginx-mod-http-rate-limiting ] || cat "$dir/control.others" >>"$dir/control"
    rm "$dir/control.others"
    sed -i -e "s/@PACKAGE@/$package/; s/@NGINX@/$nginx/; s/@SUMMARY@/$summary/; s/@STORES@/$stores/" \
        -e "s/@MAINTAINER@/$maintainer/" "$dir/control"
    printf '%s (%s-%s) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- %s  %s\n' "$package" "$version" \
        "${RATELIMIT_REVISION:-1}$release" "$maintainer" "$(source_date)" >"$dir/changelog"
}

# The time of the last change, so that the same source makes the same package.
source_date() {
    local seconds
    seconds=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null)} || seconds=$(stat -c %Y CHANGELOG.md)
    date -R -u -d "@$seconds"
}

# debian_packages DIR PACKAGE NGINX MODULE DEPENDS OPTION...: builds the packages in DIR.
debian_packages() {
    local dir=$1 tree=$1/$2-$version
    need_packages build-essential debhelper help2man jq libclang-dev
    need_nginx_libraries
    rm -rf "$dir"
    copy_sources "$tree"
    debian_directory "$tree" "$2" "$3"
    (
        cd "$tree"
        export RATELIMIT_MODULE=$4 RATELIMIT_DEPENDS=$5 RATELIMIT_FEATURES
        RATELIMIT_FEATURES=$(crate_features)
        # Cargo keeps its files where it has them in the user's own directory, which debhelper replaces.
        export CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
        dpkg-buildpackage -us -uc "${@:6}"
    ) >"$dir.log" 2>&1 || {
        tail -n 40 "$dir.log" >&2
        die "dpkg-buildpackage failed, see ${dir#"$root"/}.log"
    }
    rm -r "$tree"
    ls "$dir"/*.deb
}

debian() {
    local release kind=-b
    release=$(built debian)
    if [ -n "$light" ]; then
        kind=-B
    elif [ -z "${RATELIMIT_CONVERT:-}" ]; then
        say 'building ratelimit-convert'
        (
            # shellcheck source=flags.sh
            source scripts/flags.sh
            cargo build -q --profile fast --locked --no-default-features --features convert --bin ratelimit-convert
        )
        export RATELIMIT_CONVERT=$root/target/fast/ratelimit-convert
    fi
    debian_packages "$out/debian$light" "libnginx-mod-http-rate-limiting$light" \
        '\n dh-sequence-nginx,\n nginx-dev,' "$release/deps/lib$name.so" '' $kind
}

# As packages of modules at nginx.org, it needs this very version, and is not enabled.
nginx_org() {
    local release tree nginx
    release=$(built "$1")
    tree=$(configured_tree "$1")
    nginx=$(nginx_source_version "$tree")
    debian_packages "$out/nginx.org-$nginx$light" "nginx-module-rate-limiting$light" '' "$release/deps/lib$name.so" \
        "nginx (>= $nginx), nginx (<< ${nginx%.*}.$((${nginx##*.} + 1)))" -B
}

tarball() {
    local tree label release title dir
    title=$name-$version-$(uname -m)-linux-gnu$light
    dir=$out/$title
    rm -rf "$dir"
    mkdir -p "$dir"
    for tree; do
        case $tree in
            debian) label=debian-nginx-$(nginx_source_version "$(debian_nginx_tree)") ;;
            "$crate_nginx_version") label=nginx-$tree ;;
            *) label=$(basename "$(realpath -e "$tree")") || die "$tree: no such directory" ;;
        esac
        release=$(built "$tree")
        install -D -m 644 "$release/lib$name.so" "$dir/$label/$name.so"
    done
    need_packages jq
    RATELIMIT_FEATURES=$(crate_features) contrib/debian/crates.sh >"$dir/crates"
    RATELIMIT_FEATURES=$(crate_features) contrib/debian/crates.sh --sbom >"$dir/sbom.cdx.json"
    cp "$dir/sbom.cdx.json" "$dir.cdx.json"
    cp -r LICENSE CHANGELOG.md README.md docs lua src/api/ngx_rate_limiting.h scripts/ratelimitctl "$dir"
    tar -C "$out" --owner=0 --group=0 --mode=go=rX,u+rw --mtime="$(source_date)" --sort=name -c "$title" |
        gzip -9n >"$dir.tar.gz"
    rm -r "$dir"
    printf '%s\n' "$dir.tar.gz" "$dir.cdx.json"
}

case $#:${1:-} in
    1:debian) debian ;;
    2:nginx.org) nginx_org "$2" ;;
    [2-9]:tarball | [1-9][0-9]:tarball) tarball "${@:2}" ;;
    1:test) [ -z "$light" ] || usage; exec scripts/package/test.sh ;;
    *) usage ;;
esac
