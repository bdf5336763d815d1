#!/usr/bin/env bash
# Builds the dynamic module, target/release/libngx_http_rate_limiting_module.so, for the
# installed Debian nginx; it installs missing packages. Debug information is in a file next to it that ends with .debug.
#
#   NGINX_SOURCE_DIR, NGINX_BUILD_DIR   build for this configured nginx tree instead (one of the
#                                       two is enough; the build directory is usually objs)
#   CARGO_TARGET_DIR                    the target directory, instead of target/
#   RATELIMIT_PROFILE                   build with this profile of Cargo.toml instead of `release`,
#                                       in a directory of that name
#   RATELIMIT_WITHOUT_CASSANDRA         if not empty: a light build, with Redis and PostgreSQL only
#   RATELIMIT_FAIL_POINTS               if not empty: with fail points that a driver arms, for scripts/faults.sh
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 0 ] || die "usage: scripts/build.sh"

need_rust
if [ -z "${NGINX_SOURCE_DIR:-}${NGINX_BUILD_DIR:-}" ]; then
    NGINX_SOURCE_DIR=$(debian_nginx_tree)
fi
source_dir=$(realpath "${NGINX_SOURCE_DIR:-$NGINX_BUILD_DIR/..}")
build_dir=$(realpath "${NGINX_BUILD_DIR:-$NGINX_SOURCE_DIR/objs}")
[ -e "$source_dir/src/core/nginx.h" ] || die "$source_dir is not an nginx source tree"
[ -e "$build_dir/ngx_auto_config.h" ] ||
    die "$build_dir is not a build directory of nginx: run configure --with-compat in $source_dir"
version=$(nginx_source_version "$source_dir")
profile=${RATELIMIT_PROFILE:-release}
features=()
[ -z "${RATELIMIT_WITHOUT_CASSANDRA:-}" ] || features=(--no-default-features --features nginx,export-modules,redis,postgres,tls)
options=()
[ -z "${RATELIMIT_FAIL_POINTS:-}" ] || options=(-- --cfg fail_points)

say "building the module for nginx $version ($source_dir)"
cd "$root"
# shellcheck source=flags.sh
[ "$profile" != release ] || source scripts/flags.sh
NGINX_SOURCE_DIR=$source_dir NGINX_BUILD_DIR=$build_dir cargo rustc --profile "$profile" --locked \
    "${features[@]}" --lib --crate-type cdylib "${options[@]}"
module=$(realpath "${CARGO_TARGET_DIR:-target}")/$profile/lib$name.so

# Debug information goes into a file next to the module, where debuggers find it. Cargo keeps the complete file in deps/.
if [ "$profile" = release ]; then
    whole=${module%/*}/deps/${module##*/}
    objcopy --only-keep-debug "$whole" "$module.debug"
    objcopy --strip-unneeded --add-gnu-debuglink="$module.debug" "$whole" "$module.new"
    mv "$module.new" "$module"
fi

# Checks that the module loads, if there is a binary of this version: the tree's or the installed one.
proof="not loaded: no nginx $version at hand"
for binary in "$build_dir/nginx" "$(command -v nginx || echo /usr/sbin/nginx)"; do
    if [ ! -x "$binary" ] || [ "$(nginx_binary_version "$binary")" != "$version" ]; then
        continue
    fi
    prefix=$(mktemp -d)
    trap 'rm -rf "$prefix"' EXIT
    printf 'load_module %s;\npid nginx.pid;\nevents {}\nhttp {}\n' "$module" >"$prefix/load.conf"
    nginx_test "$binary" "$prefix" "$prefix/load.conf" || die "$binary does not load $module"
    proof="loaded by $binary"
    break
done

printf '%s\nfor nginx %s (%s)\n' "$module" "$version" "$proof"
