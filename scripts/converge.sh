#!/usr/bin/env bash
# Measures how many more hits some nodes admit than a single limiter, and the cost of sharing: nginx on
# loopback, ten unless --nodes says another number, that share a real store, hits that arrive at them by different
# patterns, and an oracle that replays the very hits.
#
#   scripts/converge.sh [--nodes N] [--store redis|postgres] [--limit 1000/5s] [--sliding] [--windows N]
#                       [--seed N] [--modes MODE,...] [PATTERN...]
#   scripts/converge.sh --model [--windows N] [--seed N]     simulates 10 to 300 nodes; kept in docs/convergence/
#   scripts/converge.sh --quick [--nodes N] [--store ...]    half a minute: only checks that no hit is lost
#
#   scripts/converge.sh --busy KEYS [--keys 100000] [--load 1] [--requests 4000] [--trickle 1000] [--nodes N] [...]
#   scripts/converge.sh --joining --nodes N [--busy 20] [...]
#   scripts/converge.sh --library N [--busy 20] [...]    nodes of the Rust library in one process, without nginx
#
# Prints tables. Without MODES and PATTERNs, all are measured, a minute and a half for each mode with a
# window of 5s, and kept in docs/convergence/, with the figures as JSON and as a plot, if there are ten nodes.
#
# Modes: how a namespace of the nodes talks to the store; `reserve` is `synchronous` with it.
#
#   plain-0.1 plain-0.5            sync_rate, without sync_early
#   early-0.5 early-1 early-5      sync_rate
#   synchronous reserve            sync_rate 0
#
# Patterns, and a load, in multiples of the limit in a window. Intervals are random (Poisson):
#
#   balanced-1 balanced-2 balanced-10   all nodes get the same
#   zipf-2      the first node gets a share, the second half of that, the third a third, and so on
#   hot-3       the first node gets nine tenths
#   shift-3     four fifths go to one node, which is another one three times in a window
#   burst-2     a window's load comes within 2 % of it, at a random time
#
# Comparison. A hit is sent when it is due, whether or not others were answered (`late`: how many
# were sent more than a millisecond later). Each answer tells its node's time. In the order of these times
# one limiter replays them: `central` is what it admits; `over`, how much more the nodes did; `worst`, the
# same of the worst window, in percent of the limit; `refused with room`, which hits a node refused
# while all together had admitted less than the limit, in percent of `central`. The first window, in which
# nodes meet, is not judged (--windows 7: six are). Exchanges are those with the store, of one node and
# namespace, in a second; the processors' time of store and nodes is that of /proc. Steady patterns go
# at the same time, each with a namespace of its own; bursts by themselves. Hits are the same of a seed.
#
# Many keys. With --busy, one namespace has so many busy keys of 10000/5s (or --limit; sliding), with LOAD times their
# limits' hits in total, and a trickle of hits to so many other keys, all of which each node has fetched before.
# Requests come evenly to all nodes; those to busy keys count as many hits each as it takes to make REQUESTS a second of
# them. Probes, each a hit of a key of its own that is pushed at once, and questions to all nodes, show when a hit is known
# to one node and to all. A table of the cost and the accuracy is printed, and written as JSON to the file that --json
# names. The cost of Postgres is in transactions and rows.
#
# With --joining, a fifth of the nodes has that load; then all others start at once; then half of all, none with load, are
# killed at once. The table has a column for each phase; exchanges and CPU are those of the first nodes.
#
# With --library, N nodes of the Rust library are one process, each with its own memory, thread and connections, in
# place of nginx: as many as a machine would not have of nginx. Keys of one namespace get the patterns, or --busy their
# load, without other keys. Exchanges are commands, or transactions of Postgres; probes are as with --busy.
#
#   NGINX_BINARY   another nginx than the installed one, with NGINX_MODULE, the .so for it; nothing is
#                  built then but the generator
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

command="scripts/converge.sh${*:+ $*}"
usage="usage: scripts/converge.sh [--quick | --model] [--nodes N] [--store redis|postgres] [--limit 1000/5s] [--sliding]
    [--windows N] [--seed N] [--modes MODE,...] [PATTERN...]
    scripts/converge.sh --library N [--busy KEYS] [...]
    scripts/converge.sh [--joining] --busy KEYS [--keys N] [--load N] [--requests N] [--trickle N] [--json FILE] [...]"
nodes=10 store=redis limit= algorithm=fixed windows=7 seed=1 quick= model=
all=balanced-1,balanced-2,balanced-10,zipf-2,hot-3,shift-3,burst-2
library= joining= busy= keys=100000 load=1 requests=4000 trickle=1000 json=/dev/null
modes=
patterns=
while [ $# -gt 0 ]; do
    case $1 in
        --quick) quick=yes ;;
        --model) model=yes ;;
        --sliding) algorithm=sliding ;;
        --joining) joining=yes ;;
        --library | --nodes | --store | --limit | --windows | --seed | --modes | --busy | --keys | --load | --requests | --trickle | --json)
            [ $# -gt 1 ] || die "$usage"
            printf -v "${1#--}" %s "$2"
            shift
            ;;
        -*) die "$usage" ;;
        *) patterns=${patterns:+$patterns,}$1 ;;
    esac
    shift
done
[[ $nodes =~ ^([2-9]|[1-9][0-9]|100)$ ]] || die "--nodes: a number from 2 to 100, not $nodes"
[[ ${library:-2} =~ ^([2-9]|[1-9][0-9]{1,2})$ ]] || die "--library: a number from 2 to 999, not $library"
[[ $store =~ ^(redis|postgres)$ && $seed =~ ^[0-9]+$ && $windows =~ ^[1-9][0-9]*$ ]] || die "$usage"
[[ $busy$keys$load$requests$trickle =~ ^[0-9]+$ ]] || die "$usage"
[ -z "$joining" ] || busy=${busy:-20}
[ -z "$busy" ] || algorithm=sliding limit=${limit:-10000/5s}
limit=${limit:-1000/5s}
[[ $limit =~ ^[1-9][0-9]*/[1-9][0-9]*s$ ]] || die "no limit such as 1000/5s: $limit"

# build EXAMPLE: builds it as scripts/test.sh does, and names its program in $built.
build() {
    cargo build --quiet --locked --profile checked --no-default-features --features stores,conformance,convert --example "$1"
    built=$(realpath "${CARGO_TARGET_DIR:-target}")/checked/examples/$1
}

if [ -n "$model" ]; then
    build convergence-model
    "$built" "$seed" "$windows" | tee docs/convergence/model.txt
    exit
fi

# heading: prints the command and the machine.
heading() {
    cat <<HEADING
command   $command
measured  ${library:-$nodes} nodes, $store, limit $limit, $algorithm, seed $seed, $windows windows
machine   $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(uname -sr)
versions  ${NGINX_BINARY:+nginx $(nginx_binary_version "$NGINX_BINARY"), }$(server_version)
commit    $(git describe --always --dirty 2>/dev/null || echo none)
load      $(cut -d ' ' -f 1-3 /proc/loadavg)

HEADING
}

server_version() {
    if [ "$store" = postgres ]; then
        psql --version
    else
        redis-server --version | cut -d ' ' -f 1-3
    fi
}

need_packages perl "$([ "$store" = postgres ] && echo postgresql || echo redis-server)"
if [ -n "$library" ]; then
    NGINX_BINARY=
    # An unoptimized build would measure the processors instead.
    cargo build --quiet --locked --release --no-default-features --features redis,postgres --example converge
    # Each node has two connections and a thread's own descriptors.
    ulimit -n "$(ulimit -Hn)"
    IFS=, read -r -a loads <<<"${patterns:-$all}"
    if [ -n "$busy" ]; then
        window=${limit#*/}
        rate=$((busy * load * ${limit%/*} / ${window%s}))
        cost=$(((rate + requests - 1) / requests))
        loads=(many "$busy" "$cost" $((rate / cost)) 0 0)
    fi
    heading
    exec scripts/converge/library.pl "$(realpath "${CARGO_TARGET_DIR:-target}")/release/examples/converge" "$store" "$json" \
        "$library" "$seed" "$windows" "$limit" "$algorithm" "${loads[@]}"
fi
need_module release
build converge
converge=(scripts/converge/converge.pl "$built" "$NGINX_BINARY" "$NGINX_MODULE"
    "$store" "$seed" "$nodes")
[ -z "$quick" ] || exec "${converge[@]}" quick
if [ -n "$busy" ]; then
    heading
    many=(scripts/converge/busy.pl "$NGINX_BINARY" "$NGINX_MODULE" "$store" "$json" "$windows")
    [ -z "$joining" ] || many=(scripts/converge/joining.pl "$NGINX_BINARY" "$NGINX_MODULE" "$store" "$json")
    exec "${many[@]}" generator="${converge[1]}" seed="$seed" nodes="$nodes" limit="$limit" algorithm="$algorithm" \
        settings='sync_rate 5s;' busy="$busy" keys="$keys" load="$load" requests="$requests" trickle="$trickle"
fi

kept=
[ -n "$modes$patterns" ] || [ "$nodes" != 10 ] || kept=yes
modes=${modes:-plain-0.1,plain-0.5,early-0.5,early-5,synchronous,reserve}
patterns=${patterns:-$all}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
run=("${converge[@]}" "$windows" "$limit" "$algorithm" "$out/json" "$modes" "$patterns")
{ heading; "${run[@]}"; } | tee "$out/txt"
[ -n "$kept" ] || exit 0

kept=docs/convergence/$store-$algorithm-${limit/\//-}
mkdir -p docs/convergence
scripts/bench/plot.pl "$out/json" "admitted that one limiter would not, % ($store, $algorithm, $limit)" over >"$out/svg"
for kind in txt json svg; do
    cp "$out/$kind" "$kept.$kind"
    chmod 644 "$kept.$kind"
done
