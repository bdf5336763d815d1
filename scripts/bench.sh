#!/usr/bin/env bash
# Measures what a request costs: with the module, with nginx's own limit_req, and bare.
#
#   scripts/bench.sh [--quick] [CONTESTANT...]     default: all; --quick: fewer requests
#
# Instructions per keep-alive request of empty_gif, by callgrind: one nginx process serves N
# requests, another 5N, and the difference is divided by 4N, so that neither start-up nor exit
# counts. Unlike times, instruction counts repeat to 0.1 %.
#
# The contestant `table` is the counter table without nginx: nanoseconds per operation, bytes per
# key. These times depend on the machine, and on what else it does. So do those of `synchronous`:
# requests that a Redis decides about, beside the same by Debian's ngx_http_lua_module, on Debian's
# nginx.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

command="scripts/bench.sh $*"
requests=2000
effort=()
if [ "${1:-}" = --quick ]; then
    requests=400
    effort=(--quick)
    shift
fi

# contestant NAME KEYS HTTP LOCATION: a line of the table. KEYS is `same` or `new`, whether
# all requests have one key or each its own; HTTP and LOCATION are configuration.
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
# Half of the difference to one limit is what a further one costs.
contestant ours-3-limits-same same "$ours" \
    "${rule%;} limit=1000000000/2h limit=1000000000/3h; ratelimit_headers off;"

[ $# -gt 0 ] || set -- "${contestants[@]}" table synchronous
chosen=()
table=
synchronous=
for contestant in "$@"; do
    if [ "$contestant" = table ]; then
        table=yes
    elif [ "$contestant" = synchronous ]; then
        synchronous=yes
    elif [ -n "${keys[$contestant]:-}" ]; then
        chosen+=("$contestant")
    else
        die "no such contestant: $contestant (${contestants[*]} table synchronous)"
    fi
done

# heading [VERSION...]: what was run, and on what.
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

# In a directory of its own, so that afterwards the module need not be compiled anew.
bench_table() {
    say table
    (cd "$root" && CARGO_TARGET_DIR=$root/target/bench cargo run --quiet --locked --release \
        --no-default-features --example table-bench -- "${effort[@]}")
}

bench_synchronous() {
    local nginx rounds=10
    [ ${#effort[@]} = 0 ] || rounds=3
    need_packages redis-server nghttp2-client libnginx-mod-http-lua perl
    "$root/scripts/build.sh"
    nginx=$(command -v nginx || echo /usr/sbin/nginx)
    say "synchronous, nginx $(nginx_binary_version "$nginx"), $(redis-server --version | cut -d ' ' -f 1-3)"
    "$root/scripts/bench/synchronous.pl" "$nginx" \
        "$(realpath "${CARGO_TARGET_DIR:-$root/target}")/release/lib$name.so" \
        /usr/lib/nginx/modules "$rounds" 40000
}

# What takes no callgrind.
bench_others() {
    [ -z "$table" ] || bench_table
    [ -z "$synchronous" ] || bench_synchronous
}

if [ ${#chosen[@]} = 0 ]; then
    need_rust
    heading
    bench_others
    exit
fi

need_packages valgrind perl
tree=$(crate_nginx)
nginx=$tree/objs/nginx
module=$(build_for_crate_nginx)

prefix=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
    wait
    rm -rf "$prefix"
}
trap finish EXIT
trap 'exit 130' INT TERM
nginx_prefix "$prefix" "$module"
port=$(free_port 18800 18899)

# write_conf CONTESTANT: the same but for what is compared. Other contestants than ours do not
# load the module, so bare is bare.
write_conf() {
    local load=
    [[ $1 != ours* ]] || load="load_module modules/$name.so;"
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

# instructions COUNT KEYS: sets `total` to those of an nginx process that answers COUNT requests.
instructions() {
    local out=$prefix/callgrind.out log=$prefix/log i
    rm -f "$out"
    valgrind --tool=callgrind --callgrind-out-file="$out" \
        "$nginx" -p "$prefix" -c "$prefix/bench.conf" -e stderr >"$log" 2>&1 &
    server=$!
    for ((i = 0; i < 300; i++)); do
        ! port_in_use "$port" || break
        sleep 0.1
    done
    "$root/scripts/bench/requests.pl" "$port" "$1" "$2" || { cat "$log" >&2; die "no answer"; }
    # A signal that comes just before nginx sleeps does not wake it: so when it is idle, and again.
    sleep 0.2
    while kill -QUIT "$server" 2>/dev/null; do sleep 0.5; done
    wait "$server" || { cat "$log" >&2; die "nginx failed"; }
    server=
    total=$(sed -n 's/^\(summary\|totals\): *\([0-9]*\).*/\2/p' "$out" | tail -n 1)
    [ -n "$total" ] || die "no total in callgrind's output"
}

for contestant in "${chosen[@]}"; do
    write_conf "$contestant" >"$prefix/bench.conf"
    nginx_test "$nginx" "$prefix" "$prefix/bench.conf" || die "$contestant: nginx refuses its configuration"
done

heading "nginx $(nginx_binary_version "$nginx")" "$(valgrind --version)"
printf 'instructions per request, from %s and %s requests\n\n' "$requests" $((5 * requests))
printf '%-16s %12s %12s\n' contestant instructions 'over bare'
declare -A bare
for contestant in "${chosen[@]}"; do
    write_conf "$contestant" >"$prefix/bench.conf"
    say "$contestant"
    instructions "$requests" "${keys[$contestant]}"
    few=$total
    instructions $((5 * requests)) "${keys[$contestant]}"
    each=$(((total - few) / (4 * requests)))
    over=
    if [[ $contestant = bare-* ]]; then
        bare[${keys[$contestant]}]=$each
    elif [ -n "${bare[${keys[$contestant]}]:-}" ]; then
        over=$((each - ${bare[${keys[$contestant]}]}))
    fi
    printf '%-16s %12s %12s\n' "$contestant" "$each" "$over"
done

echo
bench_others
