#!/usr/bin/env bash
# Fuzzes the module's code, with libFuzzer and the stable toolchain. Each target is a file of fuzz/fuzz_targets/, or
# fuzz/c_interface/.
#
#   scripts/fuzz.sh TARGET SECONDS      runs new inputs; prints how many, and how much of the code they reached
#   scripts/fuzz.sh TARGET FILE...      runs these inputs, such as the one of a crash
#   scripts/fuzz.sh TARGET --minimise   reduces the kept corpus and all new inputs to a small corpus, and keeps that
#   scripts/fuzz.sh --build             builds all targets but cassandra and c_interface, which take minutes each
#
# fuzz/corpus/TARGET has the inputs that are kept, and fuzz/dictionaries/TARGET words that help. target/fuzz/corpus/TARGET
# gets the new inputs, from which the next run goes on, and target/fuzz/failed/ those that fail.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { die "usage: scripts/fuzz.sh TARGET SECONDS|FILE...|--minimise, or scripts/fuzz.sh --build; targets: ${targets[*]}"; }

cd "$root"
mapfile -t targets < <(basename -s .rs fuzz/fuzz_targets/*.rs && echo c_interface)
# Longer than any input takes on a busy machine. `bounded` in fuzz/src/memory.rs limits memory.
limits=(-timeout=60 -rss_limit_mb=0)
coverage='-C passes=sancov-module'
for option in level=3 trace-compares inline-8bit-counters pc-table; do
    coverage+=" -C llvm-args=-sanitizer-coverage-$option"
done

# build OPTION...: with the flags of cargo-fuzz, which needs a nightly toolchain for AddressSanitizer only.
build() {
    need_packages g++
    RUSTFLAGS="--cfg fuzzing $coverage" CARGO_TARGET_DIR=target/fuzz cargo build --quiet --locked \
        --manifest-path fuzz/Cargo.toml --release --target "$(rustc -vV | sed -n 's/^host: //p')" "$@"
}

build_target() {
    case $target in
        cassandra) build --features cassandra --bin cassandra ;;
        c_interface) build && RUSTFLAGS=$coverage fuzz/c_interface/run.sh --build ;;
        *) build ;;
    esac
}

# fuzz OPTION...: runs the target with the corpora, and reports.
fuzz() {
    local log=target/fuzz/$target.log options=("${limits[@]}" -artifact_prefix="target/fuzz/failed/$target-")
    [ ! -e "fuzz/dictionaries/$target" ] || options+=(-dict="fuzz/dictionaries/$target")
    if ! "$binary" "${options[@]}" "$@" >"$log" 2>&1; then
        tail -n 60 "$log" >&2
        input=$(sed -n 's/.*Test unit written to //p' "$log")
        die "$target failed; to run the input again: scripts/fuzz.sh $target ${input:-: none was written, see $log}"
    fi
    awk -v target="$target" '/inline 8-bit counters/ { match($0, /\(([0-9]+) inline/); all = substr($0, RSTART + 1) + 0 }
        / cov: / { for (i = 1; i < NF; i++) { if ($i == "cov:") edges = $(i + 1); if ($i == "corp:") kept = $(i + 1) + 0 } }
        /^Done / { printf "%s: %d inputs in %d s, %d of %d edges reached, %d inputs kept\n", target, $2, $5, edges, all, kept }' "$log"
}

minimise() {
    local new
    new=$(mktemp -d target/fuzz/minimised.XXXXXX)
    "$binary" "${limits[@]}" -merge=1 "$new" "$kept" "$grown"
    # Names that say nothing would come back with other content.
    rm -rf "$kept" && mv -T "$new" "$kept" && chmod 755 "$kept"
    du -sh --apparent-size "$kept"
}

[ "$*" != --build ] || { build; exit; }
[ $# -ge 2 ] && [[ " ${targets[*]} " = *" $1 "* ]] || usage
target=$1 kept=fuzz/corpus/$1 grown=target/fuzz/corpus/$1
shift
build_target
binary=$(echo target/fuzz/*/release/"$target")
[ "$target" != c_interface ] || binary=fuzz/c_interface/run.sh
mkdir -p "$kept" "$grown" target/fuzz/failed
case $1 in
    --minimise) minimise ;;
    *[!0-9]*) exec "$binary" "${limits[@]}" "$@" ;;
    *) fuzz -max_total_time="$1" -print_final_stats=1 "$grown" "$kept" ;;
esac
