#!/usr/bin/env bash
# Puts defects that were fixed back into the code, one at a time, and demands that the project's own tests find each.
#
#   scripts/defects.sh [NAME...]    those of scripts/defects/NAME.patch; by default all
#   scripts/defects.sh --check      only checks that the patches apply, and that their tests exist
#   PORT                            the first of 20 ports that the tests may use
#
# A patch begins with the defect in a sentence, and with the test that must fail, as one of
#
#   Test: unit path::of::a::test    a test of `cargo test --lib`
#   Test: t/file.t: a name          a test of that file with this name
#
# All patches are applied to one copy of the last commit, below target/defects, which is compiled once. There each asks
# whether its defect is put back now: `has_defect` in Rust, PUT_BACK in Lua. A test runs without a defect, and passes; then
# with it, and fails by an assertion. target/defects keeps the output of each as NAME.log.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=jobs.sh
source "$root/scripts/jobs.sh"
# shellcheck source=test-files.sh
source "$root/scripts/test-files.sh"

patches=$root/scripts/defects
scratch=$root/target/defects
tree=$scratch/tree
nginx=$root/target/nginx/$crate_nginx_version
rust_tests=(cargo test --quiet --locked --profile checked --no-default-features --features 'stores,conformance' --lib)

test_of() { sed -n '/^---/q; s/^Test: //p' "$patches/$1.patch"; }

check() {
    local defect test word place
    git -C "$root" apply --check "$patches"/*.patch "$patches/has_defect.diff" || die "a patch does not apply any more"
    for defect in "${all[@]}"; do
        test=$(test_of "$defect")
        case $test in
            'unit '*::*) word="fn ${test##*::}" place=src ;;
            t/*.t:\ *) word=${test#*: } place=${test%%: *} ;;
            *) die "$defect.patch lacks a line \"Test: ...\"" ;;
        esac
        grep -rqF "$word" "$root/$place" || die "$defect.patch: there is no test \"$test\""
        grep -q "^+.*['\"]$defect['\"]" "$patches/$defect.patch" || die "$defect.patch does not ask for its name"
    done
    say "${#all[@]} patches apply, and their tests exist"
}

# build: the copy with all patches, its tests, and the module if a file of t/ is to run.
build() {
    local part
    [ -e "$tree/.git" ] || git -C "$root" worktree add --quiet --force --detach "$tree" HEAD
    git -C "$tree" checkout --quiet --force --detach "$(git -C "$root" rev-parse HEAD)"
    git -C "$tree" apply "$patches"/*.patch "$patches/has_defect.diff"
    # Dependencies that `scripts/test.sh` has compiled are not compiled again.
    mkdir -p "$scratch/build/checked"
    for part in .fingerprint build deps; do
        if [ ! -e "$scratch/build/checked/$part" ] && [ -e "$root/target/checked/$part" ]; then
            cp -a "$root/target/checked/$part" "$scratch/build/checked/"
        fi
    done
    cd "$tree"
    "${rust_tests[@]}" --no-run || return 1
    [[ "${tests[*]}" != *.t:* ]] || NGINX_SOURCE_DIR=$nginx NGINX_BUILD_DIR=$nginx/objs scripts/build.sh
}

# run DEFECT TEST: with the defect, or with none.
run() {
    printf %s "$1" >"$scratch/put-back"
    cd "$tree"
    case $2 in
        unit*) timeout 300 "${rust_tests[@]}" -- --exact "${2#unit }" ;;
        *) test_file "$nginx/objs/nginx" "$CARGO_TARGET_DIR/checked/lib$name.so" "${2%%: *}" ;;
    esac
}

# verdict DEFECT TEST: prints how the test ended; true if it found the defect.
verdict() {
    local log=$scratch/$1.log
    ! (run "$1" "$2") >"$log" 2>&1 || { echo "NOT FOUND" && return 1; }
    # A test that hangs, or a server that does not start, has found nothing.
    case $2 in
        unit*) grep -qxF "    ${2#unit }" "$log" ;;
        *) grep 'Failed test' "$log" | grep -qF "${2#*: }" ;;
    esac || { echo "failed otherwise" && return 1; }
    echo found
}

cd "$root"
mapfile -t all < <(cd "$patches" && printf '%s\n' *.patch | sed 's/\.patch$//')
check
[ "${1:-}" != --check ] || exit 0

defects=("$@")
[ $# -gt 0 ] || defects=("${all[@]}")
tests=()
for defect in "${defects[@]}"; do
    tests+=("$(test_of "$defect")")
done
export CARGO_TARGET_DIR=$scratch/build CARGO_INCREMENTAL=1 CARGO_PROFILE_CHECKED_DEBUG=false RATELIMIT_PROFILE=checked
# Proptest would keep what it found in the copy, and try that first the next time.
export TMPDIR=$scratch/tmp PROPTEST_FAILURE_PERSISTENCE=off
rm -rf "$TMPDIR" && mkdir -p "$TMPDIR"
[ -n "${PORT:-}" ] || take_ports
crate_nginx >/dev/null
(build) >"$scratch/build.log" 2>&1 || die "the copy does not compile, see $scratch/build.log"

declare -A passes=()
wrong=0
for defect in "${defects[@]}"; do
    test=$(test_of "$defect")
    # A file is run once without defects, for all of its tests.
    [[ $test == unit* ]] && key=$test || key=${test%%: *}
    if [ -z "${passes[$key]:-}" ]; then
        (run "" "$test") >"$scratch/passes.log" 2>&1 || die "$key fails without a defect, see $scratch/passes.log"
        passes[$key]=1
    fi
    result=$(verdict "$defect" "$test") || wrong=$((wrong + 1))
    printf '%-16s %-30s %s\n' "$result" "$defect" "${test#unit }"
done
printf '%d defects put back, %d not found\n' ${#defects[@]} "$wrong"
[ "$wrong" = 0 ]
