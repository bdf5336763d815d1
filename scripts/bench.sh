#!/usr/bin/env bash
# Measures the cost of requests: with the module, with its alternatives, and without a limit.
#
#   scripts/bench.sh [--quick] [SECTION|CONTESTANT...]     default: all; --quick: shorter
#   scripts/bench.sh --gate                                the check in scripts/test.sh
#
# Prints tables, and keeps them in docs/benchmarks/, with the figures as JSON and as plots.
#
# instructions   of a keep-alive request of empty_gif, by callgrind: one nginx process serves N
#                requests, another 5N, and the difference is divided by 4N, so that neither start-up
#                nor exit counts. They repeat to 0.1 %. With CONTESTANTs, of these alone; then
#                nothing is kept.
# calls          the same of the library's functions in Lua, compared with a rule: instructions of the module, and
#                of Lua and the rest of nginx. With Debian's nginx and lua-nginx-module
# table          the counter table without nginx: nanoseconds per operation, bytes per key
# library        the Rust library beside the crate governor: nanoseconds per decision, in one thread
# load           requests a second, processor time and latency under load, of 1000 keys
# keys           the same with a million keys, one worker or two
# reserve        `sync_rate 0` with and without `reserve on`, of 1000 keys of which some are asked for much
#                more than others
# sync           a sync cycle with Redis of 100,000 changed keys of a million, pushed and fetched
# longer-keys    new keys in a zone that is full of shorter ones
# startup        start and reload with a zone of 1 GB full of keys
#
# All but instructions depend on the machine and its load: `bare-too` shows how much.
#
#   PORT           where nginx listens when instructions are counted. Default: a free one
#
# --gate fails if the module executes more than 3 % more instructions for a request than
# scripts/bench/allowed says. Instructions of nginx and malloc are not included: they depend on the
# state of the heap.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command="${RATELIMIT_PROFILE:+RATELIMIT_PROFILE=$RATELIMIT_PROFILE }scripts/bench.sh${*:+ $*}"
kept=$root/docs/benchmarks
requests=2000
effort=()
gate=
case ${1:-} in
    --quick) requests=400 effort=(--quick); shift ;;
    --gate) requests=400 gate=yes; shift; [ $# = 0 ] || die "--gate takes no arguments" ;;
esac

# contestant NAME KEYS HTTP LOCATION: a line of the table. KEYS is `same` if all requests have
# one key, or `new` if each has its own; HTTP and LOCATION are configuration.
contestants=()
declare -A keys http location
contestant() {
    contestants+=("$1")
    keys[$1]=$2 http[$1]=$3 location[$1]=$4
}

# shellcheck disable=SC2016 # variables of nginx
limit_req='limit_req_zone $arg_k zone=bench:32m rate=1r/s;'
ours='ratelimit_zone zone=bench:32m;'
# shellcheck disable=SC2016
rule='ratelimit_key $arg_k; ratelimit limit=1000000000/1h;'
for k in same new; do
    contestant "bare-$k" $k '' ''
    contestant "limit_req-$k" $k "$limit_req" 'limit_req zone=bench burst=1000000 nodelay;'
    contestant "ours-unused-$k" $k "$ours" ''
    contestant "ours-$k" $k "$ours" "$rule ratelimit_headers off;"
    contestant "ours-ietf-$k" $k "$ours" "$rule ratelimit_headers ietf;"
done
# Like limit_req's.
# shellcheck disable=SC2016
contestant ours-rate-same same "$ours" \
    'ratelimit_key $arg_k; ratelimit rate=1/1s burst=1000000; ratelimit_headers off;'
# Taken and released by each request.
# shellcheck disable=SC2016
contestant ours-concurrent-same same "$ours" \
    'ratelimit_key $arg_k; ratelimit concurrent=1000; ratelimit_headers off;'
# Rules and namespaces elsewhere: they cost nothing here.
contestant ours-among-many-same same \
    "$ours $(printf 'ratelimit_namespace n%s { window_sizes 1m; }\n' {1..40})" \
    "$rule ratelimit_headers off;
    $(printf 'location /%s { ratelimit n%s limit=5/1m; ratelimit limit=5/2m; }\n' {1..40}{,})"
contestant ours-elastic-same same "$ours" \
    "${rule%;} window=elastic; ratelimit_headers off;"
# shellcheck disable=SC2016
contestant ours-calendar-same same "$ours" \
    'ratelimit_key $arg_k; ratelimit limit=1000000000/month tz=Europe/Berlin; ratelimit_headers off;'
# shellcheck disable=SC2016
for limit in 100 100000; do
    contestant "ours-moving-$limit-same" same "$ours" \
        'ratelimit_key $arg_k; ratelimit window=moving cost=0.001 limit='"$limit/1h; ratelimit_headers off;"
done
# A further limit costs half of the difference to one limit.
contestant ours-3-limits-same same "$ours" \
    "${rule%;} limit=1000000000/2h limit=1000000000/3h; ratelimit_headers off;"

# Further parameters of a rule; of a ban, before it begins and while it lasts.
# shellcheck disable=SC2016
{
    contestant ours-unless-same same "$ours" "${rule%;} unless=\$arg_x; ratelimit_headers off;"
    contestant ours-month-same same "$ours" \
        'ratelimit_key $arg_k; ratelimit limit=1000000000/month tz=Europe/Berlin; ratelimit_headers off;'
    contestant ours-list-same same "$ours ratelimit_namespace listed { window_sizes 1h; } map \$arg_l \$list { default 1000000000/1h; }" \
        'ratelimit_key $arg_k; ratelimit listed limits=$list; ratelimit_headers off;'
    contestant ours-own-dry-run-same same "$ours" "${rule%;} dry_run=on; ratelimit_headers off;"
    contestant ours-estimate-same same "$ours" "${rule%;} cost=5 charge=3; ratelimit_headers off;"
    contestant ours-ban-same same "$ours" "${rule%;} ban=1h; ratelimit_headers off;"
    refused='ratelimit_key $arg_k; ratelimit_headers off; ratelimit_log_level off; ratelimit limit=1/1h'
    contestant ours-rejected-same same "$ours" "$refused;"
    contestant ours-message-same same "$ours" "$refused; ratelimit_message application/json '{\"key\": \"\$ratelimit_key\"}';"
    contestant ours-banned-same same "$ours" "$refused ban=1h;"
}

# call NAME RULE LUA: a call of the library, by which a request is counted as by the rule of the contestant
# RULE: a limiter returns the values of the headers. `lim` is a limiter with the same limit.
calls=(ours-same ours-ietf-same)
declare -A rule_of
call() {
    calls+=("lua-$1")
    rule_of[lua-$1]=$2
    # shellcheck disable=SC2016
    keys[lua-$1]=same location[lua-$1]="access_by_lua_block { $3 }"
    http[lua-$1]="$ours lua_package_path '$root/lua/?.lua;;';
    init_by_lua_block { rl = require 'resty.rate_limiting' }
    init_worker_by_lua_block { lim = rl.limiter { limit = 1000000000, window = 3600 } }"
}
call nothing ours-same 'local key = ngx.var.arg_k'
call increment ours-same 'rl.increment(ngx.var.arg_k, 3600, 1)'
call sliding_window ours-same 'rl.sliding_window(ngx.var.arg_k, 3600)'
call incoming ours-ietf-same 'lim:incoming(ngx.var.arg_k, true)'

[ $# -gt 0 ] || [ -n "$gate" ] || set -- instructions calls table library load keys reserve sync longer-keys startup
sections=()
chosen=()
for it in "$@"; do
    case $it in
        instructions | calls | table | library | load | keys | reserve | sync | longer-keys | startup) sections+=("$it") ;;
        *)
            [ -n "${keys[$it]:-}" ] || die "no such section or contestant: $it (${contestants[*]})"
            chosen+=("$it")
            ;;
    esac
done

# heading [VERSION...]: prints the command and the machine.
heading() {
    local versions
    versions=$(printf '%s, ' "$@" "$(rustc --version)")
    cat <<END
command   $command
machine   $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(uname -sr)
versions  ${versions%, }
commit    $(git -C "$root" describe --always --dirty 2>/dev/null || echo none)
load      $(cut -d ' ' -f 1-3 /proc/loadavg)

END
}

# section NAME COMMAND...: runs COMMAND, and stores its output.
section() {
    local section=$1 out
    shift
    say "$section"
    mkdir -p "$kept"
    out=$(mktemp)
    { heading "$@"; "bench_${section//-/_}"; } | tee "$out"
    mv "$out" "$kept/$section.txt"
    chmod 644 "$kept/$section.txt"
}

# A target directory of its own, so that the module need not be compiled again afterwards.
bench_table() {
    (cd "$root" && CARGO_TARGET_DIR=$root/target/bench cargo run --quiet --locked --release \
        --no-default-features --example table-bench -- "${effort[@]}" "$kept/table.json")
    plot table 'ns of an operation, a million random keys' median table-keys 'one process'
    plot table 'ns of an operation, one key, two processes' median table-one-key 'one key'
}

bench_library() {
    local rounds=101
    [ ${#effort[@]} = 0 ] || rounds=11
    CARGO_TARGET_DIR=$root/target/bench cargo run --quiet --locked --release \
        --manifest-path "$root/scripts/bench/library/Cargo.toml" -- $rounds
}

# plot RESULTS TITLE FIGURE [PLOT [SECTION]]: plots stored figures.
plot() {
    "$root/scripts/bench/plot.pl" "$kept/$1.json" "$2" "$3" "${@:5}" >"$kept/${4:-$1}.svg"
}

# load RESULTS WORKERS KEYS CONTESTANT...: without contestants, measures all.
load() {
    local rounds=20
    [ ${#effort[@]} = 0 ] || rounds=5
    printf '%s workers, %s keys, 64 connections, medians of %s rounds of a second\n\n' \
        "$2" "$3" "$rounds"
    "$root/scripts/bench/load.pl" "$debian_nginx" "$debian_module" "$lua_modules" \
        "$2" "$3" "$rounds" "$kept/$1.json" "${@:4}"
    plot "$1" 'processor time per request, over bare' cpu_over_bare
}

bench_load() { load load 2 1000; }

bench_keys() {
    local workers many=1000000
    [ ${#effort[@]} = 0 ] || many=100000
    for workers in 1 2; do
        load "keys-$workers" $workers $many bare bare-too key limit_req lua-dictionary ours-sliding
        echo
    done
}

bench_reserve() {
    load reserve 2 zipf:1000 bare bare-too ours-sliding ours-synchronous ours-reserve
}

bench_sync() {
    local live=1000000 changed=100000 rounds=20
    [ ${#effort[@]} = 0 ] || live=100000 changed=10000 rounds=5
    printf '%s of %s live keys changed, medians of %s rounds\n\n' $changed $live $rounds
    "$root/scripts/bench/sync.pl" "$debian_nginx" "$debian_module" $live $changed $rounds \
        "$kept/sync.json"
    plot sync "ms of a sync cycle, $changed changed keys" millis
}

bench_longer_keys() {
    local keys=50000 new=2000
    printf 'a zone of 1 MB, asked for %s short keys, then for %s longer ones\n\n' $keys $new
    "$root/scripts/bench/longer-keys.pl" "$debian_nginx" "$debian_module" "$lua_modules" $keys $new \
        "$kept/longer-keys.json"
}

bench_startup() {
    local many=10000000 rounds=20
    [ ${#effort[@]} = 0 ] || many=100000 rounds=5
    printf '%s keys, medians of %s rounds\n\n' $many $rounds
    "$root/scripts/bench/startup.pl" "$debian_nginx" "$debian_module" 1024m $many $rounds \
        "$kept/startup.json"
    plot startup 'ms' millis
}

prefix=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    wait
    rm -rf "$prefix"
}
trap finish EXIT
trap 'exit 130' INT TERM

# write_conf CONTESTANT: configurations differ only in the compared part. Only our contestants
# load the module.
write_conf() {
    local load=
    [[ $1 = bare* || $1 = limit_req* ]] || load="load_module modules/$name.so;"
    [[ $1 != lua* ]] || load="load_module $lua_modules/ndk_http_module.so;
load_module $lua_modules/ngx_http_lua_module.so; $load"
    cat <<END
$load
daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr;
events {}
http {
    access_log off;
    keepalive_requests 1000000;
    ${http[$1]}
    server {
        listen 127.0.0.1:$port;
        location / {
            empty_gif;
            ${location[$1]}
        }
    }
}
END
}

# instructions COUNT KEYS PAUSE STATUS: sets `total` to those of an nginx process that answers COUNT requests, and
# `own` to those of the module.
instructions() {
    local out=$prefix/callgrind.out log=$prefix/log i
    rm -f "$out"
    # Timers of the module run by the clock: a slow machine has more of them for the same requests.
    valgrind --tool=callgrind --callgrind-out-file="$out" \
        --toggle-collect='*::event_loop::call*' --collect-atstart=yes \
        "$nginx" -p "$prefix" -c "$prefix/bench.conf" -e stderr >"$log" 2>&1 &
    server=$!
    for ((i = 0; i < 300; i++)); do
        ! port_in_use "$port" || break
        sleep 0.1
    done
    "$root/scripts/bench/requests.pl" "$port" "$1" "$2" "$3" "$4" || { cat "$log" >&2; die "no answer"; }
    # A signal just before nginx sleeps does not wake it, so it is sent when nginx is idle, and again.
    sleep 0.2
    while kill -QUIT "$server" 2>/dev/null; do sleep 0.5; done
    wait "$server" || { cat "$log" >&2; die "nginx failed"; }
    server=
    total=$(sed -n 's/^\(summary\|totals\): *\([0-9]*\).*/\2/p' "$out" | tail -n 1)
    [ -n "$total" ] || die "no total in callgrind's output"
    own=$("$root/scripts/bench/own.pl" "$out" "$name.so")
}

# instructions_of CONTESTANT: sets `each` and `own` to those of one request.
instructions_of() {
    local few few_own pause=0 status=200
    # Requests of one millisecond share an entry of a log: without a pause, their number would depend on the machine.
    [[ $1 != *-moving-* ]] || pause=0.002
    [[ $1 != *-@(rejected|message|banned)-* ]] || status=429
    write_conf "$1" >"$prefix/bench.conf"
    nginx_test "$nginx" "$prefix" "$prefix/bench.conf" || die "$1: nginx refuses its configuration"
    instructions "$requests" "${keys[$1]}" $pause $status
    few=$total few_own=$own
    instructions $((5 * requests)) "${keys[$1]}" $pause $status
    each=$(((total - few) / (4 * requests)))
    own=$(((own - few_own) / (4 * requests)))
}

# count_instructions CONTESTANT...: a table, and in `lines` the same as JSON.
count_instructions() {
    local contestant over
    local -A bare
    printf 'nginx %s, from %s and %s requests\n\n' \
        "$crate_nginx_version" "$requests" $((5 * requests))
    printf '%-16s %12s %12s %12s\n' contestant instructions 'over bare' "the module's"
    lines=()
    for contestant in "$@"; do
        instructions_of "$contestant"
        over=
        if [[ $contestant = bare-* ]]; then
            bare[${keys[$contestant]}]=$each
        elif [ -n "${bare[${keys[$contestant]}]:-}" ]; then
            over=$((each - ${bare[${keys[$contestant]}]}))
        fi
        printf '%-16s %12s %12s %12s\n' "$contestant" "$each" "$over" "$own"
        lines+=("{\"name\":\"$contestant\",\"instructions\":$each,\"over_bare\":${over:-0},\"own\":$own}")
    done
}

bench_instructions() {
    prepare_callgrind
    count_instructions "${contestants[@]}"
    printf '%s\n' "${lines[@]}" >"$kept/instructions.json"
    plot instructions 'instructions per request, over bare' over_bare
}

bench_calls() {
    local contestant rule most=130
    local -A own_of
    need_packages libnginx-mod-http-lua
    prepare_installed
    lua_modules=/usr/lib/nginx/modules
    printf 'nginx %s, from %s and %s requests; no call may execute more than %s %% of the rule\n\n' \
        "$(nginx_binary_version "$nginx")" "$requests" $((5 * requests)) $most
    printf '%-20s %12s %12s %9s\n' call instructions "the module's" 'of rule'
    lines=()
    for contestant in "${calls[@]}"; do
        instructions_of "$contestant"
        own_of[$contestant]=$own
        rule=${own_of[${rule_of[$contestant]:-$contestant}]}
        printf '%-20s %12s %12s %7s %%\n' "$contestant" "$each" "$own" $((100 * own / rule))
        lines+=("{\"name\":\"$contestant\",\"instructions\":$each,\"own\":$own}")
        [ $((100 * own)) -le $((most * rule)) ] || die "$contestant executes more than that"
    done
    printf '%s\n' "${lines[@]}" >"$kept/calls.json"
}

# Compares with the allowed numbers: a contestant and a number in each line.
gate() {
    local contestant most failed=
    prepare_installed
    while read -r contestant most; do
        instructions_of "$contestant"
        printf '%-20s %5s instructions of the module, of %s\n' "$contestant" "$own" "$most"
        if [ $((own * 100)) -gt $((most * 103)) ]; then
            failed="$failed $contestant"
        elif [ $((own * 100)) -lt $((most * 97)) ]; then
            echo "    less than 97 % of what is allowed: scripts/bench/allowed can be lowered"
        fi
    done <"$root/scripts/bench/allowed"
    [ -z "$failed" ] || die "more than 3 % more than scripts/bench/allowed says, which is of" \
        "rustc 1.95.0, this being $(rustc --version):$failed"
}

# With the installed nginx. The module's instructions are the same with each nginx, give or take a call.
prepare_installed() {
    need_packages valgrind perl
    "$root/scripts/build.sh" >&2
    nginx=$(command -v nginx || echo /usr/sbin/nginx)
    nginx_prefix "$prefix" \
        "$(realpath "${CARGO_TARGET_DIR:-$root/target}")/${RATELIMIT_PROFILE:-release}/lib$name.so"
    port=${PORT:-$(free_port 18800 18899)}
}

# With the newest nginx, built from its source.
prepare_callgrind() {
    need_packages valgrind perl
    nginx=$(crate_nginx)/objs/nginx
    nginx_prefix "$prefix" "$(build_for_crate_nginx)"
    port=${PORT:-$(free_port 18800 18899)}
}

prepare_load() {
    need_packages redis-server nghttp2-client wrk libnginx-mod-http-lua perl util-linux
    "$root/scripts/build.sh"
    debian_nginx=$(command -v nginx || echo /usr/sbin/nginx)
    lua_modules=/usr/lib/nginx/modules
    debian_module=$(realpath "${CARGO_TARGET_DIR:-$root/target}")/release/lib$name.so
}

need_rust
if [ -n "$gate" ]; then
    gate
elif [ ${#chosen[@]} -gt 0 ]; then
    prepare_callgrind
    heading "$(valgrind --version)"
    count_instructions "${chosen[@]}"
fi
for section in "${sections[@]}"; do
    case $section in
        instructions | calls) section "$section" "$(valgrind --version)" ;;
        table | library) section "$section" ;;
        *)
            prepare_load
            section "$section" "nginx $(nginx_binary_version "$debian_nginx")" \
                "$(redis-server --version | cut -d ' ' -f 1-3)"
            ;;
    esac
done
