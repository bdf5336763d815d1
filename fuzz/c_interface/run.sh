#!/usr/bin/env bash
# Runs nginx with a module that calls the C interface with libFuzzer's inputs: see calls.c. scripts/fuzz.sh calls it.
#
#   fuzz/c_interface/run.sh OPTION...   as any program with libFuzzer
#   fuzz/c_interface/run.sh --build     builds both modules
# shellcheck source-path=SCRIPTDIR source=../../scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/lib.sh"

cd "$root"
modules=$root/target/fuzz/c_interface
tree=$(crate_nginx)
host=$(rustc -vV | sed -n 's/^host: //p')

# Takes libFuzzer from the build of the other targets, and the flags of their build from the environment.
build() {
    local fuzzer include
    fuzzer=$(find "target/fuzz/$host/release/build" -path '*/libfuzzer-sys-*/out/libfuzzer.a' | head -n 1)
    [ -n "$fuzzer" ] || die "no libFuzzer: first run scripts/fuzz.sh --build"
    NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs CARGO_TARGET_DIR=target/fuzz cargo rustc --quiet --locked \
        --profile checked --target "$host" --no-default-features --features nginx,export-modules,redis \
        --lib --crate-type cdylib
    mkdir -p "$modules"
    # Its replacements of memcmp() and the like can only be a part of a program, not of a module.
    cp "$fuzzer" "$modules/libfuzzer.a"
    ar d "$modules/libfuzzer.a" "$(ar t "$fuzzer" | grep FuzzerInterceptors)"
    cp --remove-destination "target/fuzz/$host/checked/lib$name.so" "$modules/limiting.so"
    include=(src/api "$tree"/{src/core,src/event,src/event/modules,src/event/quic,src/os/unix,objs})
    cc -shared -fPIC -O1 -g -o "$modules/fuzz.so" -Wall -Wextra -Wno-unused-parameter -Wno-sign-compare -Werror \
        "${include[@]/#/-I}" fuzz/c_interface/*.c "$modules/libfuzzer.a" -lstdc++ -ldl -lm
}

[ "$*" != --build ] || { build; exit; }
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
arguments=$(printf ' "%s"' "$root/fuzz/c_interface/run.sh" "$@")
cat >"$prefix/nginx.conf" <<CONF
load_module $modules/fuzz.so;
load_module $modules/limiting.so;
fuzz$arguments;
daemon off;
master_process off;
pid nginx.pid;
error_log stderr crit;
events {}
http {
    ratelimit_zone zone=counters:1m;
    ratelimit_store main { strategy redis; server 127.0.0.1:9; timeout 10ms; }
    ratelimit_namespace listed { window_sizes 1s 1m; }
    ratelimit_namespace asked { store main; sync_rate 0; window_sizes 1s 1m; timeout 5ms; on_error local; }
    ratelimit_namespace refused { store main; sync_rate 0; window_sizes 1s 1m; timeout 5ms; on_error deny; }
    ratelimit_namespace other { store main; sync_rate 100ms; window_sizes 1s 1m; }
}
CONF
"$tree/objs/nginx" -p "$prefix" -e stderr -c nginx.conf
