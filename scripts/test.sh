#!/usr/bin/env bash
# Runs all tests on nginx 1.28 with the checked build, and on Debian's nginx with the optimized one, except for those
# that start their own Cassandras. Installs missing packages.
# Jobs run in parallel; the first one that fails ends the others. The last line is the total:
# `N passed, 0 failed`.
#
#   scripts/test.sh        may run several times at once, in clones of their own
#   TEST_GO_ON             if not empty: a job that fails ends no others
#
# target/test/ keeps what each job printed, and a table of the time that each took.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# shellcheck source=jobs.sh
source "$root/scripts/jobs.sh"
# shellcheck source=test-files.sh
source "$root/scripts/test-files.sh"

[ $# = 0 ] || die "usage: scripts/test.sh"
cd "$root"
unset NGINX_SOURCE_DIR NGINX_BUILD_DIR CARGO_TARGET_DIR RATELIMIT_PROFILE RATELIMIT_WITHOUT_CASSANDRA RATELIMIT_FAIL_POINTS TEST_CASSANDRA

# patient COMMAND...: runs with low priority, since some tests must be on time.
patient() {
    renice -n 19 -p "$BASHPID" >/dev/null
    "$@"
}

# for_debian COMMAND..., for_second COMMAND...: with the nginx that is compiled for.
for_debian() {
    NGINX_SOURCE_DIR=$debian_tree NGINX_BUILD_DIR=$debian_tree/objs patient "$@"
}
for_second() {
    NGINX_SOURCE_DIR=$second_tree NGINX_BUILD_DIR=$second_tree/objs patient "$@"
}

# The directory is of whatever is built without optimization, so the result is kept elsewhere.
build_second_checked() {
    RATELIMIT_PROFILE=checked for_second scripts/build.sh
    mkdir -p "${second_module%/*}"
    cp "target/checked/lib$name.so" "$second_module"
}

# The same directory is used once more, so that dependencies are compiled once.
build_fail_points() {
    RATELIMIT_FAIL_POINTS=1 RATELIMIT_PROFILE=checked for_second scripts/build.sh
    mkdir -p target/fail-points
    cp "target/checked/lib$name.so" target/fail-points
}

# loom OPTION...: optimized, but not as a whole.
loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=target/loom CARGO_PROFILE_RELEASE_LTO=off \
        CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16 \
        cargo test --locked --release --no-default-features --lib "$@" loom
}

# A minute of each target that --build builds, as many at once as there are processors.
fuzz() {
    basename -s .rs fuzz/fuzz_targets/*.rs | grep -vx cassandra | xargs -P "$(nproc)" -I TARGET scripts/fuzz.sh TARGET 60 | sed 's/^/ok - /'
}

# The library's pages, without any feature.
library_pages() {
    RUSTDOCFLAGS="-D warnings" patient \
        cargo doc --locked --profile checked --no-default-features --no-deps
}

# under_valgrind FILE...: some of t/, with the module that is built already.
under_valgrind() {
    NGINX_MODULE=$second_module TEST_NGINX_PORT=$PORT TEST_NGINX_SERVROOT=$TMPDIR/servroot \
        scripts/sanitize.sh valgrind "$@"
}

# run_once BINARY MODULE OPTION...
run_once() {
    NGINX_BINARY=$1 NGINX_MODULE=$2 scripts/run.sh --once "${@:3}"
}

# Half a minute of faults, always the same: with Redis all kinds, with other stores nearly all.
chaos() {
    NGINX_BINARY=$1 NGINX_MODULE=$2 scripts/chaos.sh --store "$3" --seed "$4" 0.5
}

# A worker at some of the fail points, always the same.
faults() {
    NGINX_BINARY=${second[0]} NGINX_MODULE=$root/target/fail-points/lib$name.so \
        scripts/faults.sh --store "$1" --seed "$2" --sample "$3"
}

# None of ten nodes loses a hit.
converge() { NGINX_BINARY=$1 NGINX_MODULE=$2 scripts/converge.sh --quick; }

# The converter is not compiled once more.
packages_with_converter() { RATELIMIT_CONVERT=$root/target/checked/ratelimit-convert scripts/package.sh test; }

# configured DEBIAN|SECOND OPTION...: an nginx as the current directory, configured by its own means with
# some options more.
configured() {
    local NGX_CONF_FLAGS=("${crate_nginx_flags[@]}") configure=auto/configure
    # shellcheck source=/dev/null
    [ "$1" = "$second_tree" ] || source "$debian_tree/conf_flags"
    [ -e "$1/$configure" ] || configure=./configure
    cp -r "$1" "$TMPDIR/nginx"
    cd "$TMPDIR/nginx"
    rm -rf objs
    export RATELIMIT_PROFILE=checked CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target}
    bash $configure "${NGX_CONF_FLAGS[@]}" "${@:2}"
}

# own_checked: a directory of Cargo's with the compiled dependencies, so that two builds need not wait for each other. A copy of
# this crate's files, which have gigabytes, would delay tests. What others are compiling meanwhile has no fingerprint yet, and
# is compiled anew: what of that is gone when it is to be copied is not missed.
own_checked() {
    local own=target/debian/checked part
    rm -rf $own
    mkdir -p $own/deps
    for part in .fingerprint build; do
        cp -a target/checked/$part $own || say "something of $part is not there any more"
    done
    find target/checked/deps -type f ! -name "*$name*" -exec cp -a -t $own/deps {} + ||
        say "something of deps is not there any more"
}
with_own_checked() { CARGO_TARGET_DIR=$root/target/debian "$@"; }

# dynamic SOURCE BINARY: the .so of --add-dynamic-module works in BINARY.
dynamic() {
    configured "$1" "--add-dynamic-module=$root"
    make -f objs/Makefile modules
    cd "$root"
    scripts/check-binary.sh checked "$OLDPWD/objs/$name.so"
    run_once "$2" "$OLDPWD/objs/$name.so"
}

# static SOURCE: the nginx of --add-module limits, after realip has had its turn. nginx's own code is not optimized: it is
# compiled in a third of the time.
static() {
    configured "$1" "--add-module=$root" --with-cc-opt='-O0 -g0'
    grep -A1 "&$name," objs/ngx_modules.c | grep -q '&ngx_http_realip_module,'
    make -j"$(nproc)"
    cd "$root"
    scripts/check-binary.sh nginx "$OLDPWD/objs/nginx" "$CARGO_TARGET_DIR/checked/$name.o"
    run_once "$OLDPWD/objs/nginx" ""
}

# static_without_cassandra SOURCE: the same without that, which says so.
static_without_cassandra() {
    RATELIMIT_WITHOUT_CASSANDRA=1 static "$1"
    local nginx=$OLDPWD/objs/nginx directive
    local others='strategy, server, username, password, password_file, database, connect_timeout, timeout, exchanges, tls, tls_verify, '
    others+='tls_name, tls_trusted_certificate, tls_certificate, tls_certificate_key, cluster, sentinel_master, '
    others+='sentinel_username, sentinel_password, prefix'
    local strategy
    for strategy in cassandra memcached etcd; do
        says_what_it_lacks "$nginx" "strategy $strategy;" \
            "strategy \"$strategy\" is not in this build: expected redis or postgres in"
    done
    for directive in datacenter consistency replication; do
        # Whatever the strategy is, and wherever it stands.
        says_what_it_lacks "$nginx" "strategy redis; $directive x;" \
            "directive \"$directive\" is not in this build: expected one of $others in"
        says_what_it_lacks "$nginx" "$directive x; strategy cassandra;" \
            "directive \"$directive\" is not in this build: expected one of $others, table in"
    done
}

# says_what_it_lacks BINARY DIRECTIVES MESSAGE: of a block ratelimit_store with these.
says_what_it_lacks() {
    local conf=$TMPDIR/lacks.conf message
    printf 'events {} http { ratelimit_zone zone=z:1m;\nratelimit_store main { %s } }\n' "$2" >"$conf"
    message=$(nginx_test "$1" "$TMPDIR" "$conf" 2>&1) && die "accepted: $2"
    [[ $message == *'[emerg]'*" ratelimit_store \"main\": $3 "* ]] || die "$message"
    echo "ok - $3"
}

# The paths that the functions of lib.sh print.
debian_tree=$root/target/nginx/debian
debian_source=$root/target/nginx/debian-source
second_tree=$root/target/nginx/$crate_nginx_version
debian_module=$root/target/release/lib$name.so
second_module=$root/target/second/lib$name.so
debian=(/usr/sbin/nginx "$debian_module")
second=("$second_tree/objs/nginx" "$second_module")

step packages "" test_packages
service cassandra packages start_cassandra
step nginx-second packages patient crate_nginx
step nginx-debian packages debian_nginx_tree
step nginx-debian-source packages debian_nginx_source

check rustfmt packages cargo fmt --check
check layers packages scripts/check-layers.sh
check links packages scripts/check-links.sh
check words packages scripts/check-words.sh
check defects packages scripts/defects.sh --check
check dependencies packages scripts/deny.sh

# Compilation, in two rows: each has a directory of Cargo's for itself. What tests wait for is first.
# `release` is for the installed module and for measurements;
check build-debian nginx-debian patient scripts/build.sh
step build-loom build-debian patient loom --no-run
# and `checked` for all else, so that dependencies are compiled once.
check build-second-checked nginx-second build_second_checked
# All but the shell; the suite for stores is of those in examples/ too.
features=(--no-default-features --features stores,conformance,convert)
step build-tests build-second-checked \
    patient cargo test --locked --profile checked "${features[@]}" --no-run
step build-convert build-tests \
    patient cargo build --locked --profile checked "${features[@]}" --bin ratelimit-convert
# Code that only measures is compiled only here.
check clippy build-convert \
    patient cargo clippy --locked --profile checked --all-targets --no-default-features \
    --features stores,conformance,convert,measure -- -D warnings
# The shell is not in `cargo test`, so that there are no other targets to look at.
check clippy-nginx "clippy nginx-debian" \
    for_debian cargo clippy --locked --profile checked --lib -- -D warnings
# The documentation for programs without nginx.
check rustdoc clippy-nginx library_pages
check dynamic-second rustdoc patient dynamic "$second_tree" "${second[0]}"
step build-fail-points dynamic-second build_fail_points
check faults-redis build-fail-points faults redis 37 12
# The last one: nothing is left that it would have to give way to.
tests static-second build-fail-points static_without_cassandra "$second_tree"
# In the first row again, with a copy of what dependencies were compiled to.
step own-checked "build-loom build-second-checked" own_checked
check dynamic-debian own-checked patient with_own_checked dynamic "$debian_tree" "${debian[0]}"
check static-debian "dynamic-debian nginx-debian-source" patient with_own_checked static "$debian_source"

step build-fuzz build-loom patient scripts/fuzz.sh --build
tests fuzz build-fuzz patient fuzz

tests cargo-test "build-tests cassandra" \
    with_cassandra cargo test --locked --profile checked "${features[@]}"
tests loom build-loom patient loom
check accuracy build-tests patient scripts/accuracy.sh --quick
check instructions build-debian patient scripts/bench.sh --gate

check chaos-cluster build-debian chaos "${debian[@]}" cluster 672
check chaos-redis build-debian chaos "${debian[@]}" redis 216
check chaos-postgres build-debian chaos "${debian[@]}" postgres 1241
check chaos-cassandra "static-debian cassandra" chaos "${debian[@]}" cassandra 100
check converge "build-debian build-tests" converge "${debian[@]}"
check chaos-etcd build-second-checked chaos "${second[@]}" etcd 1
check chaos-memcached build-second-checked chaos "${second[@]}" memcached 1
tests nginx-blocks-debian build-debian scripts/check-nginx-blocks.sh "${debian[@]}" docs/*.md README.md
tests nginx-blocks-second build-second-checked scripts/check-nginx-blocks.sh "${second[@]}" docs/*.md README.md
tests binary-debian build-debian scripts/check-binary.sh release "$debian_module"
tests binary-second build-second-checked scripts/check-binary.sh checked "$second_module"
tests valgrind build-second-checked patient under_valgrind t/elastic.t t/metrics.t
check run-debian build-debian run_once "${debian[@]}"
check run-cluster-debian build-debian run_once "${debian[@]}" --cluster
check run-second build-second-checked run_once "${second[@]}"
tests packages-debian "build-debian build-convert" patient packages_with_converter
tests containers build-debian scripts/package/lint.sh "${debian[@]}"
for file in t/*.t; do
    case $file in
        # Those that start servers of their own take the machine, from tests of how long an answer takes too: so they are
        # the last, and not repeated. What they look at is a store's matter, not one of nginx's version.
        t/*-cassandra-*.t)
            tests "$file-second" "static-debian cassandra" with_cassandra test_file "${second[@]}" "$file"
            continue
            ;;
        t/*-cassandra.t)
            tests "$file-second" "rustdoc cassandra" with_cassandra test_file "${second[@]}" "$file"
            # In optimized builds, nodes race at further places.
            tests "$file-debian" "static-debian cassandra" with_cassandra test_file "${debian[@]}" "$file"
            continue
            ;;
        t/convert*.t)
            tests "$file-second" build-convert test_file "${second[@]}" "$file"
            tests "$file-debian" "build-debian build-convert" test_file "${debian[@]}" "$file"
            continue
            ;;
        # A browser and Prometheus see the same, whatever nginx sends it.
        t/live-page.t | t/alerts.t)
            tests "$file-second" build-second-checked test_file "${second[@]}" "$file"
            continue
            ;;
        t/api-cluster.t)
            tests "$file-second" "build-second-checked cassandra" with_cassandra test_file "${second[@]}" "$file"
            tests "$file-debian" "build-debian cassandra" with_cassandra test_file "${debian[@]}" "$file"
            continue
            ;;
    esac
    tests "$file-second" build-second-checked test_file "${second[@]}" "$file"
    tests "$file-debian" build-debian test_file "${debian[@]}" "$file"
done

run_jobs "$root/target/test"
