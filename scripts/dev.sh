#!/usr/bin/env bash
# The longer targets of the Makefile.
#
#   scripts/dev.sh test debian|second FILE...   builds the module without optimization, and runs files of t/ with it
#   scripts/dev.sh lint                         rustfmt, clippy, layers, links
#   scripts/dev.sh debug [CONF]                 runs nginx in one process under gdb, with a file of nginx-conf/
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

# choose_nginx debian|second: sets `binary`, and what scripts/build.sh and cargo build for.
choose_nginx() {
    case $1 in
        debian)
            NGINX_SOURCE_DIR=$(debian_nginx_tree)
            binary=/usr/sbin/nginx
            ;;
        second)
            NGINX_SOURCE_DIR=$(crate_nginx)
            binary=$NGINX_SOURCE_DIR/objs/nginx
            ;;
        *) die "unknown nginx \"$1\": expected debian or second" ;;
    esac
    export NGINX_SOURCE_DIR NGINX_BUILD_DIR=$NGINX_SOURCE_DIR/objs
}

build_checked() {
    RATELIMIT_PROFILE=checked scripts/build.sh >&2
    module=$(realpath "${CARGO_TARGET_DIR:-target}")/checked/lib$name.so
}

run_test() {
    [ $# -ge 2 ] || die "usage: scripts/dev.sh test debian|second FILE..."
    choose_nginx "$1"
    build_checked
    if [[ $* =~ t/(alerts|dashboard|fail2ban)\.t ]]; then
        unpacked prometheus
        unpacked fail2ban
    fi
    [[ $* != *t/live-page.t* ]] || need_packages chromium-headless-shell
    TEST_NGINX_BINARY=$binary TEST_NGINX_LOAD_MODULES=$module TEST_NGINX_PORT=${TEST_NGINX_PORT:-19840} \
        TEST_NGINX_TIMEOUT=20 scripts/t-runner/prove.sh "${@:2}"
}

run_lint() {
    local features=(--no-default-features --features stores,conformance,convert,measure)
    cargo fmt --check
    scripts/check-layers.sh
    scripts/check-links.sh
    scripts/check-words.sh
    cargo clippy --locked --profile checked --all-targets "${features[@]}" -- -D warnings
    choose_nginx second
    cargo clippy --locked --profile checked --lib -- -D warnings
}

# Prints the path of a tree of the second nginx with debug symbols, without optimization, and with its debug log.
debug_nginx() { compiled_nginx nginx/debug "${crate_nginx_flags[@]}" --with-debug --with-cc-opt='-O0 -g3'; }

run_debug() {
    local conf=${1:-first.conf} prefix
    [ -e "nginx-conf/$conf" ] || die "no file nginx-conf/$conf"
    need_packages gdb
    NGINX_SOURCE_DIR=$(debug_nginx)
    export NGINX_SOURCE_DIR NGINX_BUILD_DIR=$NGINX_SOURCE_DIR/objs
    build_checked
    prefix=$(mktemp -d)
    trap 'rm -rf "$prefix"' EXIT
    nginx_prefix "$prefix" "$module"
    say "nginx-conf/$conf, prefix $prefix; in gdb: break ngx_http_core_content_phase, run"
    gdb -q -ex 'set breakpoint pending on' --args "$NGINX_BUILD_DIR/nginx" -p "$prefix" -c "$root/nginx-conf/$conf" \
        -g 'daemon off; master_process off; error_log stderr debug;'
}

case ${1:-} in
    test) run_test "${@:2}" ;;
    lint) run_lint ;;
    debug) run_debug "${@:2}" ;;
    *) die "usage: scripts/dev.sh test|lint|debug ..." ;;
esac
