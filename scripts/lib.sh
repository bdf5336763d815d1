# Sourced by the scripts beside it: messages, packages, and the nginx trees to build against.
# All functions are idempotent. Trees are kept under target/nginx.
# shellcheck shell=bash

set -euo pipefail
shopt -s inherit_errexit

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
name=ngx_http_rate_limiting_module

# The second nginx: the source that the crate `nginx-src` carries.
crate_version=1.28.5
crate_nginx_version=1.28.3

# All messages go to stderr, so that a function can print its result.
say() { printf '==> %s\n' "$*" >&2; }
die() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "neither root nor sudo: cannot run $*"
    fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# need_packages PACKAGE...: installs missing packages, and uses the network only for them.
need_packages() {
    local package missing=()
    command -v dpkg-query >/dev/null || die "not a Debian: install the counterparts of $* by hand"
    for package in "$@"; do
        installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    say "installing ${missing[*]}"
    if [ -z "${RATELIMIT_APT_UPDATED:-}" ]; then
        as_root apt-get -qq update >&2
        export RATELIMIT_APT_UPDATED=1
    fi
    apt_install "${missing[@]}"
}

# need_store_packages STORE: those of the servers that scripts/chaos.sh and scripts/faults.sh start.
need_store_packages() {
    case $1 in
        postgres) need_packages postgresql ;;
        cassandra) ;;
        etcd) need_packages etcd-server ;;
        memcached) need_packages memcached ;;
        *) need_packages redis-server ;;
    esac
}

# Without starting services: a freshly installed nginx would take port 80.
apt_install() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e $policy ]; then
        trap 'as_root rm -f $policy' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null
        as_root chmod 755 $policy
    fi
    output=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -o DPkg::Lock::Timeout=300 \
        install -y --no-install-recommends "$@" 2>&1 </dev/null) || {
        printf '%s\n' "$output" >&2
        die "apt-get could not install $*"
    }
)

# The Rust part of the build: cargo (not from Debian 12, whose is too old), libclang for bindgen.
need_rust() {
    command -v cargo >/dev/null ||
        die "cargo is not installed or not on PATH (Rust 1.88 or newer: https://rustup.rs)"
    need_packages gcc libc6-dev
    # Any version will do. libclang-dev depends on the release's own (14 on Debian 12, 19 on 13). The
    # link is of the package that has clang's headers too; libclang-cpp is another library.
    [ -n "${LIBCLANG_PATH:-}" ] || compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
        need_packages libclang-dev
}

# Packages for configuring and compiling an nginx tree.
need_nginx_libraries() { need_packages gcc libc6-dev make libpcre2-dev libssl-dev zlib1g-dev; }

nginx_source_version() { sed -n 's/^#define NGINX_VERSION *"\(.*\)"/\1/p' "$1/src/core/nginx.h"; }
nginx_binary_version() { "$1" -v 2>&1 | sed -n 's/^nginx version: [^/]*\/\([0-9.]*\).*/\1/p'; }

# cached_tree DIR STAMP FUNCTION: has FUNCTION fill a new directory that becomes DIR, unless DIR
# was made with this STAMP. An interrupted or a second run never sees a half-made DIR.
cached_tree() {
    local dir=$1 stamp=$2 fill=$3 new
    [ "$(cat "$dir/.stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "preparing ${dir#"$root"/}"
    mkdir -p "$(dirname "$dir")"
    new=$(mktemp -d "$dir.XXXXXX")
    # The steps are joined by &&, since `set -e` has no effect where a status is tested.
    if ! (cd "$new" && "$fill") >"$new.log" 2>&1; then
        tail -n 20 "$new.log" >&2
        rm -rf "$new"
        die "$fill failed, see $new.log"
    fi
    printf '%s\n' "$stamp" >"$new/.stamp"
    chmod 755 "$new"
    rm -rf "$dir" "$new.log"
    mv -T "$new" "$dir"
}

# Prints the path of a configured tree for the installed Debian nginx.
debian_nginx_tree() {
    local version
    need_packages nginx nginx-dev
    need_nginx_libraries
    version=$(dpkg-query -W -f '${Version}' nginx-dev)
    cached_tree "$root/target/nginx/debian" "$version" fill_debian_nginx
    printf '%s\n' "$root/target/nginx/debian"
}

fill_debian_nginx() {
    local NGX_CONF_FLAGS=()
    # shellcheck source=/dev/null
    cp -r /usr/share/nginx/src/. . &&
        source ./conf_flags &&
        bash ./configure "${NGX_CONF_FLAGS[@]}"
}

# unpacked PACKAGE: has the files of a package of Debian's in target/PACKAGE. It is not installed, since it would start a
# server.
unpacked() {
    local package=$1 version
    version=$(apt-cache policy "$package" | sed -n 's/^ *Candidate: //p')
    cached_tree "$root/target/$package" "$version" fill_unpacked
}

fill_unpacked() {
    apt-get -qq -o APT::Sandbox::User= download "$package" && dpkg -x "$package"_*.deb . && rm "$package"_*.deb
}

# Prints the path of the complete source of the installed Debian nginx, not configured. The tree
# above has no C files, so modules can be built in it, but not nginx itself.
debian_nginx_source() {
    local version
    version=$(dpkg-query -W -f '${source:Upstream-Version}' nginx-dev)
    cached_tree "$root/target/nginx/debian-source" "$version" fill_debian_source
    printf '%s\n' "$root/target/nginx/debian-source"
}

# apt-get source, with lists of its own: most machines have no deb-src line, and need none.
fill_debian_source() {
    local list=$PWD/apt/sources.list apt
    mkdir -p apt/lists/partial &&
        debian_repositories >"$list" &&
        apt=(apt-get -qq -o "Dir::State::lists=$PWD/apt/lists" -o "Dir::Etc::sourcelist=$list"
            -o "Dir::Cache=$PWD/apt" -o Dir::Etc::sourceparts=- -o APT::Sandbox::User=) &&
        "${apt[@]}" update &&
        (cd apt && "${apt[@]}" source --tar-only nginx) &&
        tar -xf apt/nginx_*.orig.tar.* --strip-components=1 &&
        rm -r apt
}

# Prints those of Debian's main component, as sources. apt knows them from its lists, which images are
# often without.
debian_repositories() {
    # shellcheck disable=SC2016 # apt expands it
    local format='deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)'
    local targets=(apt-get indextargets --format "$format" 'Created-By: Packages' 'Origin: Debian' 'Component: main')
    [ -n "$("${targets[@]}")" ] || as_root apt-get -qq update >&2
    "${targets[@]}" | grep . || die "apt knows no repository of Debian's"
}

# Prints the path of a configured and compiled tree of nginx 1.28; the binary is objs/nginx.
# One configuration serves tests and benchmarks. It is -O2, as distributions compile it, and has
# no --with-debug: debug code would distort what the benchmarks count, and Debian's nginx, which
# has it, covers that variant in the tests.
crate_nginx() { compiled_nginx "nginx/$crate_nginx_version" "${crate_nginx_flags[@]}"; }

crate_nginx_flags=(
    --with-compat
    --with-cc-opt=-O2
    --with-pcre-jit
    --with-threads
    --with-http_ssl_module
    --with-http_v2_module
    --with-http_v3_module
    --with-http_realip_module
    --with-http_auth_request_module
    --with-http_stub_status_module
)

# compiled_nginx DIRECTORY FLAG...: prints the path of a tree of nginx 1.28, configured with these flags and compiled, in
# this DIRECTORY of target/.
compiled_nginx() {
    local flags=("${@:2}")
    need_nginx_libraries
    cached_tree "$root/target/$1" "$crate_version ${flags[*]}" fill_compiled_nginx
    printf '%s\n' "$root/target/$1"
}

fill_compiled_nginx() {
    fetch_crate_nginx &&
        auto/configure "${flags[@]}" &&
        make -j"$(nproc)"
}

# Copies nginx's source out of the crate, which cargo downloads and verifies as a dependency of
# a package that exists for this only.
fetch_crate_nginx() {
    local manifest=fetch/Cargo.toml source
    mkdir -p fetch/src && : >fetch/src/lib.rs &&
        printf '%s\n' '[package]' 'name = "fetch"' 'edition = "2021"' '[workspace]' \
            '[dependencies]' "nginx-src = \"=$crate_version\"" >$manifest &&
        source=$(cargo metadata --format-version 1 --manifest-path $manifest |
            grep -o '"manifest_path":"[^"]*/nginx-src-[^"]*/Cargo.toml"' | cut -d'"' -f4) &&
        cp -r "$(dirname "$source")/nginx/." . &&
        rm -r fetch &&
        [ "$(nginx_source_version .)" = "$crate_nginx_version" ]
}

# Prints the path of the module for crate_nginx, built beside the one for Debian's nginx.
build_for_crate_nginx() {
    local tree target=$root/target/nginx-$crate_nginx_version
    tree=$(crate_nginx)
    CARGO_TARGET_DIR=$target NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs \
        "$root/scripts/build.sh" >&2
    printf '%s\n' "$target/release/lib$name.so"
}

# need_module PROFILE: builds the module with this profile of Cargo.toml for the installed nginx, unless NGINX_BINARY is
# set. Sets NGINX_BINARY and NGINX_MODULE, and the variables by which t/lib/ knows them.
need_module() {
    if [ -z "${NGINX_BINARY:-}" ]; then
        RATELIMIT_PROFILE=$1 "$root/scripts/build.sh"
        NGINX_BINARY=$(command -v nginx || echo /usr/sbin/nginx)
        NGINX_MODULE=$(realpath "${CARGO_TARGET_DIR:-$root/target}")/$1/lib$name.so
    fi
    NGINX_MODULE=${NGINX_MODULE:-}
    export TEST_NGINX_BINARY=$NGINX_BINARY TEST_NGINX_LOAD_MODULES=$NGINX_MODULE
}

# nginx_prefix DIR [MODULE.so]: turns DIR into a prefix (nginx -p) for the files in nginx-conf/.
nginx_prefix() {
    mkdir -p "$1/html" "$1/logs" "$1/modules"
    echo 'It works, a few times.' >"$1/html/index.html"
    [ -z "${2:-}" ] || ln -sf "$2" "$1/modules/$name.so"
    # Workers of a root master run as another user.
    chmod 755 "$1" "$1/html"
}

# nginx_test BINARY PREFIX CONF: nginx -t, quiet when all is well.
nginx_test() {
    local output
    if ! output=$("$1" -t -p "$2" -c "$3" -e stderr 2>&1); then
        printf '%s\n' "$output" >&2
        return 1
    fi
}

# copy_sources DIR: copies the repository, without what is built.
copy_sources() {
    mkdir -p "$1"
    if [ -e .git ]; then
        git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
            [ ! -e "$file" ] || printf '%s\0' "$file"
        done | tar -c --null -T - | tar -x -C "$1"
    else
        tar -c --exclude=./target . | tar -x -C "$1"
    fi
}

port_in_use() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# free_port FIRST LAST
free_port() {
    local port
    for ((port = $1; port <= $2; port++)); do
        port_in_use "$port" || { printf '%s\n' "$port"; return; }
    done
    die "no free port from $1 to $2"
}
