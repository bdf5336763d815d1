#!/usr/bin/env bash
# Repeats tests, several side by side, on a machine that compiles all the time: it finds those that fail now and then.
#
#   scripts/loop.sh [--times N] [--jobs N] [NAME...]
#
# A NAME is a file of t/, or `cargo-test`, the tests of the crate; without one, all of them. Each is run N times (10),
# and four jobs at once. A failure ends nothing: target/loop/ keeps the output of every run, and the last lines
# name the runs that failed.
#
#   NGINX_BINARY   another nginx than 1.28, with NGINX_MODULE, the .so for it; only `cargo-test` is built then
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=jobs.sh
source "$root/scripts/jobs.sh"
# shellcheck source=test-files.sh
source "$root/scripts/test-files.sh"

usage="usage: scripts/loop.sh [--times N] [--jobs N] [NAME...]"
times=10
slots=4
while [ $# -gt 0 ]; do
    case $1 in
        --times) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "$usage"; times=$2; shift 2 ;;
        --jobs) [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || die "$usage"; slots=$2; shift 2 ;;
        -*) die "$usage" ;;
        *) break ;;
    esac
done
cd "$root"
[ $# -gt 0 ] || set -- t/*.t cargo-test
for test in "$@"; do
    [ "$test" = cargo-test ] || [ -f "$test" ] || die "no test $test"
done

# compile: until the loop ends, with the lowest priority, and in a directory of its own.
compile() {
    while :; do
        CARGO_TARGET_DIR=target/loop-compile nice -n 19 cargo check --locked --no-default-features --features stores
        CARGO_TARGET_DIR=target/loop-compile cargo clean -p "$name"
    done &
}

test_packages
if [ -z "${NGINX_BINARY:-}" ]; then
    tree=$(crate_nginx)
    NGINX_BINARY=$tree/objs/nginx
    NGINX_MODULE=$root/target/checked/lib$name.so
    NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs RATELIMIT_PROFILE=checked scripts/build.sh >&2
fi
features=(--no-default-features --features stores,conformance,convert)
cargo build --locked --profile checked "${features[@]}" --bin ratelimit-convert
[[ " $* " != *' cargo-test '* ]] || cargo test --locked --profile checked "${features[@]}" --no-run

service cassandra "" start_cassandra
service compilation "" compile
for ((time = 1; time <= times; time++)); do
    for test in "$@"; do
        if [ "$test" = cargo-test ]; then
            tests "cargo-test-$time" "cassandra compilation" \
                with_cassandra cargo test --locked --profile checked "${features[@]}"
        else
            tests "$test-$time" "cassandra compilation" with_cassandra test_file "$NGINX_BINARY" "$NGINX_MODULE" "$test"
        fi
    done
done
TEST_GO_ON=1 run_jobs "$root/target/loop"
