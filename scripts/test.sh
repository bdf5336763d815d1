#!/usr/bin/env bash
# Every test, on Debian's nginx and on nginx 1.28, from nothing: it installs what is missing.
# Stops at the first step that fails. The last line is the total: `N passed, 0 failed`.
#
#   scripts/test.sh        may run several times at once, in clones of their own
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# = 0 ] || die "usage: scripts/test.sh"
cd "$root"
unset NGINX_SOURCE_DIR NGINX_BUILD_DIR CARGO_TARGET_DIR

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
chmod 755 "$work"
passed=0

# check NAME COMMAND...: counts as one test.
check() {
    step "$@"
    count 1
}

# tests NAME COMMAND...: counts the tests that the output of COMMAND names, and needs one.
tests() {
    step "$@"
    count "$(awk '/^test result: ok\. / { n += $4 }
                  /^Files=[0-9]+, Tests=/ { sub(/.*Tests=/, ""); n += $1 + 0 }
                  /^ok - / { n++ }
                  END { print n + 0 }' "$work/log")"
}

step() {
    local status started=$SECONDS
    say "$1"
    shift
    # `set -e` would do nothing in a command whose status is looked at.
    set +e
    (
        set -e
        "$@"
    ) >"$work/log" 2>&1 </dev/null
    status=$?
    set -e
    if [ $status != 0 ]; then
        tail -n 200 "$work/log" >&2
        fail "exit status $status: $*"
    fi
    took=$((SECONDS - started))
}

count() {
    [ "$1" -gt 0 ] || fail "no test was run"
    passed=$((passed + $1))
    say "    $1 passed, $took s"
}

fail() {
    say "FAILED: $*"
    printf '%d passed, 1 failed\n' "$passed"
    exit 1
}

debian_binary() { command -v nginx || echo /usr/sbin/nginx; }

# Each file in nginx-conf/ is accepted.
test_confs() {
    local binary=$1 module=$2 conf prefix
    prefix=$(mktemp -d "$work/conf.XXXXXX")
    nginx_prefix "$prefix" "$module"
    for conf in nginx-conf/*.conf; do
        nginx_test "$binary" "$prefix" "$root/$conf"
        echo "ok - $conf"
    done
}

# t/ in a server root and with ports of its own.
test_t() {
    local binary=$1 module=$2 port
    port=$(free_port $((19000 + RANDOM % 90 * 10)) 19999)
    TEST_NGINX_BINARY=$binary TEST_NGINX_LOAD_MODULES=$module TEST_NGINX_PORT=$port \
        TEST_NGINX_SERVROOT=$work/servroot scripts/t-runner/prove.sh
}

# run_once BINARY MODULE OPTION...
run_once() {
    PORT=$(free_port $((18900 + RANDOM % 50)) 18999) NGINX_BINARY=$1 NGINX_MODULE=$2 \
        scripts/run.sh --once "${@:3}"
}

# Faults of half a minute, always the same: with Redis all kinds, with others nearly all.
test_chaos() {
    NGINX_BINARY=$1 NGINX_MODULE=$2 scripts/chaos.sh --store "$3" --seed "$4" 0.5
}

# configured SOURCE OPTION...: a copy of SOURCE, configured by nginx's own means, as the current
# directory. One cargo directory for all: they differ only in the headers.
configured() {
    local dir
    dir=$(mktemp -d "$work/nginx.XXXXXX")
    cp -r "$1/." "$dir"
    cd "$dir"
    rm -rf objs
    shift
    export CARGO_TARGET_DIR=$root/target/configure
    if [ -e auto/configure ]; then
        bash auto/configure "$@"
    else
        bash ./configure "$@"
    fi
}

# test_dynamic BINARY SOURCE OPTION...: the .so of --add-dynamic-module works in BINARY.
test_dynamic() {
    local binary=$1
    shift
    configured "$@" "--add-dynamic-module=$root"
    make -f objs/Makefile modules
    cd "$root"
    run_once "$binary" "$OLDPWD/objs/$name.so"
}

# test_static SOURCE OPTION...: the nginx of --add-module limits, after realip has had its turn.
test_static() {
    configured "$@" "--add-module=$root"
    grep -A1 "&$name," objs/ngx_modules.c | grep -q '&ngx_http_realip_module,'
    make -j"$(nproc)"
    cd "$root"
    run_once "$OLDPWD/objs/nginx" ""
}

prepare() {
    need_rust
    need_packages curl perl openssl redis-server postgresql
    # Clients of the tests of HTTP/2, HTTP/3 and gRPC.
    need_packages nghttp2-client ngtcp2-client python3-grpcio
    # A clock that is wrong; instructions that are counted.
    need_packages faketime valgrind
    if ! cargo fmt --version || ! cargo clippy --version; then
        rustup component add rustfmt clippy
    fi
    debian_nginx_tree
    debian_nginx_source
    crate_nginx
}

step "packages, nginx" prepare
debian_tree=$(debian_nginx_tree)
debian_source=$(debian_nginx_source)
crate_tree=$(crate_nginx)
# shellcheck source=/dev/null
source "$debian_tree/conf_flags"

check "rustfmt" cargo fmt --check
check "dependencies between modules" scripts/check-layers.sh
check "links in documents" scripts/check-links.sh
if command -v cargo-deny >/dev/null; then
    check "cargo deny" cargo deny check licenses bans sources
else
    say "cargo deny is not installed: dependencies' licences are not looked at"
fi
check "clippy without nginx" \
    cargo clippy --locked --all-targets --no-default-features -- -D warnings
check "clippy" env NGINX_SOURCE_DIR="$debian_tree" NGINX_BUILD_DIR="$debian_tree/objs" \
    cargo clippy --locked --all-targets -- -D warnings
tests "cargo test without nginx" cargo test --locked --no-default-features
tests "every interleaving (loom)" env RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom \
    cargo test --locked --release --no-default-features --lib loom_tests

check "build for Debian's nginx" scripts/build.sh
check "build for nginx $crate_nginx_version" build_for_crate_nginx
debian=("$(debian_binary)" "$root/target/release/lib$name.so")
crate=("$crate_tree/objs/nginx" "$root/target/nginx-$crate_nginx_version/release/lib$name.so")

check "instructions of a request" scripts/bench.sh --gate

tests "nginx-conf/, Debian's nginx" test_confs "${debian[@]}"
tests "nginx-conf/, nginx $crate_nginx_version" test_confs "${crate[@]}"
tests "t/, Debian's nginx" test_t "${debian[@]}"
tests "t/, nginx $crate_nginx_version" test_t "${crate[@]}"

check "run.sh, Debian's nginx" run_once "${debian[@]}"
check "run.sh --cluster, Debian's nginx" run_once "${debian[@]}" --cluster
check "chaos.sh, Debian's nginx" test_chaos "${debian[@]}" redis 216
check "chaos.sh --store cluster, Debian's nginx" test_chaos "${debian[@]}" cluster 672
check "chaos.sh --store postgres, Debian's nginx" test_chaos "${debian[@]}" postgres 1241
check "run.sh, nginx $crate_nginx_version" run_once "${crate[@]}"
check "--add-dynamic-module, Debian's nginx" \
    test_dynamic "${debian[0]}" "$debian_tree" "${NGX_CONF_FLAGS[@]}"
check "--add-dynamic-module, nginx $crate_nginx_version" \
    test_dynamic "${crate[0]}" "$crate_tree" "${crate_nginx_flags[@]}"
check "--add-module, Debian's nginx" test_static "$debian_source" "${NGX_CONF_FLAGS[@]}"
check "--add-module, nginx $crate_nginx_version" test_static "$crate_tree" "${crate_nginx_flags[@]}"

printf '%d passed, 0 failed\n' "$passed"
