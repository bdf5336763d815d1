#!/usr/bin/env bash
# Runs tests under valgrind, with a sanitizer, or in Miri. A report that scripts/sanitize/ does not suppress is a failure.
#
#   scripts/sanitize.sh valgrind [FILE...]   files of t/ with nginx and the module under valgrind
#   scripts/sanitize.sh address [FILE...]    files of t/ with nginx and the module compiled for AddressSanitizer
#   scripts/sanitize.sh thread [WORD...]     Rust tests whose names contain a WORD, compiled for ThreadSanitizer
#   scripts/sanitize.sh miri [WORD...]       Rust tests whose names contain a WORD, interpreted by Miri
#
# docs/reliability.md has the files and words for which these are useful: all is the default of the first two. All but the
# first need a nightly toolchain: rustup toolchain install nightly --component miri,rust-src
#
#   NGINX_MODULE      the module for nginx 1.28 that is built already, as the tool needs it
#   TEST_NGINX_PORT   the first of the ports that the files of t/ use (1984)
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

kind=${1:-}
case $kind in
    valgrind | address | thread | miri) shift ;;
    *) die "usage: scripts/sanitize.sh valgrind|address [FILE...] | thread|miri [WORD...]" ;;
esac
cd "$root"
target=x86_64-unknown-linux-gnu
[ "$(uname -m)" = x86_64 ] || target=$(uname -m)-unknown-linux-gnu
tests=(--locked --no-default-features --features "stores,conformance" --lib)

# nightly RUSTFLAGS COMMAND...: cargo of the nightly toolchain, with a directory of its own.
nightly() {
    cargo +nightly --version >/dev/null 2>&1 ||
        die "no nightly toolchain: rustup toolchain install nightly --component miri,rust-src"
    RUSTFLAGS=$1 CARGO_TARGET_DIR=target/sanitize/$kind cargo +nightly "${@:2}"
}

# apart_nginx NAME [OPTION]...: prints the path of a compiled tree of nginx 1.28, whose pools get each piece from
# malloc, so that an access beyond it is seen. The module for crate_nginx loads into it.
apart_nginx() {
    compiled_nginx "sanitize/nginx-$1" "${crate_nginx_flags[@]}" "--with-cc-opt=-O1 -g -DNGX_DEBUG_PALLOC=1" "${@:2}"
}

# module DIRECTORY COMMAND...: has cargo compile the module for nginx 1.28 to this DIRECTORY of target/, unless there is one.
module() {
    local tree
    [ -z "${NGINX_MODULE:-}" ] || return 0
    tree=$(crate_nginx)
    NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs "${@:2}" --locked --profile checked --lib >&2
    NGINX_MODULE=$root/target/$1/lib$name.so
}

# run_files COMMAND FILE...: runs the files with an nginx that COMMAND starts, lines of shell, and prints what it has
# reported to files in $reports.
run_files() {
    local status=0
    # A file, since a test starts TEST_NGINX_BINARY; it is the argv[0] that nginx starts for an upgrade, too.
    printf '#!/bin/bash\n%s "$@"\n' "$1" >"$work/nginx"
    chmod 755 "$work" "$work/nginx"
    export TEST_NGINX_BINARY=$work/nginx TEST_NGINX_LOAD_MODULES=$NGINX_MODULE
    # An answer, and the log line after it, take longer.
    export TEST_NGINX_TIMEOUT=${TEST_NGINX_TIMEOUT:-60} TEST_NGINX_SLEEP=${TEST_NGINX_SLEEP:-0.05}
    scripts/t-runner/prove.sh "${@:2}" || status=$?
    find "$reports" -type f -size +0 -exec cat {} + | tee "$work/all"
    [ ! -s "$work/all" ] || die "a report in $(find "$reports" -type f -size +0 | wc -l) processes"
    exit $status
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
reports=$work/reports
# Workers write there, who are another user.
mkdir -m 1777 "$reports"
case $kind in
    valgrind | address)
        need_rust
        need_packages perl curl redis-server postgresql
        [ $# -gt 0 ] || set -- t/*.t
        ;;
esac
case $kind in
    valgrind)
        need_packages valgrind
        tree=$(apart_nginx valgrind)
        module checked cargo build
        # The background thread gets its turn (--fair-sched).
        run_files "case \" \$* \" in *' -v '* | *' -V '*) exec $tree/objs/nginx \"\$@\" ;; esac
            exec valgrind -q --log-file=$reports/%p --trace-children=yes --fair-sched=yes \
            --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite --num-callers=40 \
            --keep-debuginfo=yes --suppressions=$root/scripts/sanitize/valgrind.supp $tree/objs/nginx" "$@"
        ;;
    address)
        need_packages clang
        # clang's runtime is that of the executable; the module uses the same.
        tree=$(apart_nginx address --with-cc=clang --with-ld-opt=-fsanitize=address \
            '--with-cc-opt=-O1 -g -DNGX_DEBUG_PALLOC=1 -fsanitize=address -fno-omit-frame-pointer')
        module "sanitize/address/$target/checked" nightly -Zsanitizer=address build --target "$target"
        run_files "export ASAN_OPTIONS=log_path=$reports/report:detect_stack_use_after_return=1
            export LSAN_OPTIONS=suppressions=$root/scripts/sanitize/leaks.supp:print_suppressions=0
            exec -a \"\$0\" $tree/objs/nginx" "$@"
        ;;
    thread)
        [ $# -gt 0 ] || set -- table::tests::stress broker:: library::tests
        # The standard library is compiled for it, too: it would report what it does not see otherwise. Tests ask for more
        # memory than there is.
        TSAN_OPTIONS=allocator_may_return_null=1 \
            nightly '-Zsanitizer=thread --cfg threads' test -Zbuild-std --target "$target" --profile checked "${tests[@]}" -- "$@"
        ;;
    miri)
        [ $# -gt 0 ] || set -- table::slots table::zone table::tests::{stress,level,own_share,reset,directory,counting}
        # Miri has one process, no locks of files, and the real clock only without isolation. With the other flags, a
        # reference to all slots of a table is made in no time.
        flags='-Zmiri-disable-isolation -Zmiri-tree-borrows -Zmiri-tree-borrows-no-precise-interior-mut'
        MIRIFLAGS=$flags nightly '' miri test "${tests[@]}" -- "$@" \
            --skip dying --skip dies --skip killed --skip stopped --skip many_processes_never \
            --skip table::tests::crash --skip table::tests::memory
        ;;
esac
