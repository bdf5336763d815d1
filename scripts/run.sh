#!/usr/bin/env bash
# Demonstrates the module: builds it, starts nginx with nginx-conf/first.conf, and makes requests
# until one is rejected. nginx then runs until ctrl-C; with --once it stops, and the exit status says
# whether the sixth request, and none before it, was rejected.
#
# The build is a quick one: optimized a little, and without Cassandra. scripts/build.sh makes the one for use.
#
#   scripts/run.sh [--cluster] [--once]
#
# With --cluster: starts a Redis and two nginx with nginx-conf/cluster.conf, makes requests to both,
# and prints what each node has counted as that changes. With --once, the exit status says whether
# the nodes came to agree on every request, and rejected what was above the limit of both together.
#
#   PORT           where nginx listens, with --cluster the first one; then the other one and Redis
#                  are on the next free ports. Default: the first free port from 8080
#   NGINX_BINARY   another nginx than the installed one, with NGINX_MODULE, the .so for it
#                  (empty: the module is linked in); nothing is built then
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

once=
cluster=
for argument in "$@"; do
    case $argument in
        --once) once=yes ;;
        --cluster) cluster=yes ;;
        *) die "usage: scripts/run.sh [--cluster] [--once]" ;;
    esac
done

need_packages curl
[ -z "$cluster" ] || need_packages redis-server
# Takes a third of the time of a release build.
RATELIMIT_WITHOUT_CASSANDRA=yes need_module fast
if [ -n "${PORT:-}" ]; then
    ! port_in_use "$PORT" || die "port $PORT is in use: set PORT to another"
else
    PORT=$(free_port 8080 8099)
fi

prefix=$(mktemp -d)
chmod 755 "$prefix"
nodes=()
redis=
finish() {
    [ ${#nodes[@]} = 0 ] || kill -QUIT "${nodes[@]}" 2>/dev/null || true
    # The nodes push their remaining hits.
    [ ${#nodes[@]} = 0 ] || wait "${nodes[@]}" 2>/dev/null || true
    [ -z "$redis" ] || kill -TERM "$redis" 2>/dev/null || true
    wait
    rm -rf "$prefix"
}
trap finish EXIT
trap 'exit 130' INT TERM

# wait_for_port PORT PROCESS NAME
wait_for_port() {
    local i
    for ((i = 0; i < 600; i++)); do
        ! port_in_use "$1" || return 0
        kill -0 "$2" 2>/dev/null || die "$3 did not start"
        sleep 0.1
    done
    die "$3 does not listen on port $1"
}

# start_node CONF PORT [SED_EXPRESSION]: an nginx with a file of nginx-conf/, in a prefix of its
# own. It logs to file descriptor 3.
start_node() {
    local own=$prefix/$2 conf=$prefix/$2/$1 port=$2
    local edits=(-e "s/listen 8080;/listen $2;/" ${3:+-e "$3"})
    nginx_prefix "$own" "$NGINX_MODULE"
    [ -n "$NGINX_MODULE" ] || edits+=(-e '/^load_module /d')
    sed "${edits[@]}" "$root/nginx-conf/$1" >"$conf"
    say "starting nginx $(nginx_binary_version "$NGINX_BINARY") on port $port with nginx-conf/$1"
    nginx_test "$NGINX_BINARY" "$own" "$conf" || die "nginx does not accept the configuration"
    "$NGINX_BINARY" -p "$own" -c "$conf" -e stderr -g 'daemon off;' 2>&3 3>&- &
    nodes+=($!)
    wait_for_port "$port" $! nginx
}

# avoid_end SIZE LEFT: windows start at multiples of their size; the requests should not cross a
# window's end, so they do not begin in its last seconds.
avoid_end() {
    local left=$(($1 - $(date +%s) % $1))
    if [ $left -le "$2" ]; then
        say "waiting $left s for the next window"
        sleep $left
    fi
}

# ask COUNT: that many requests on one connection; prints the headers of the answers.
ask() {
    local urls=() i
    for ((i = 0; i < $1; i++)); do
        urls+=(-o /dev/null "http://127.0.0.1:$PORT/")
    done
    curl -sS -D - "${urls[@]}" | tr -d '\r'
}

run_one() {
    local window answers statuses
    start_node first.conf "$PORT" 3>&2
    while true; do
        avoid_end 10 2
        window=$(($(date +%s) / 10))
        answers=$(ask 7)
        [ $(($(date +%s) / 10)) != $window ] || break
        say "that took too long: waiting until these requests are forgotten"
        sleep 20
    done
    say "limit=5/10s: seven requests"
    awk '/^HTTP/ { print ++number "  " $0 }
         tolower($0) ~ /^(ratelimit|x-ratelimit|retry-after)/ { print "   " $0 }' <<<"$answers"
    statuses=$(sed -n 's/^HTTP[^ ]* \([0-9]*\).*/\1/p' <<<"$answers" | tr '\n' ' ')

    if [ -n "$once" ]; then
        [ "$statuses" = '200 200 200 200 200 429 429 ' ] || die "expected five times 200, then 429"
        say "limited, as it should be"
    else
        say "http://127.0.0.1:$PORT/ is up until ctrl-C"
        wait "${nodes[@]}"
    fi
}

# send PORT COUNT: makes requests; prints their statuses.
send() {
    local i
    for ((i = 0; i < $2; i++)); do
        curl -sS -o /dev/null -w '%{http_code} ' "http://127.0.0.1:$1/"
    done
}

# look: sets `counts` to what the two nodes have counted.
look() {
    local port count
    counts=
    for port in "$PORT" "$second"; do
        # A user may have stopped a node, to see how the other one behaves.
        count=$(curl -s -D - -o /dev/null "http://127.0.0.1:$port/status" |
            sed -n 's/^X-Hits: \([0-9.]*\) .*/\1/p') || true
        counts+="${count:--} "
    done
}

# show_counts: prints the counts if they have changed.
shown=
show_counts() {
    look
    [ "$counts" != "$shown" ] || return 0
    shown=$counts
    # shellcheck disable=SC2086 # two words
    printf '%s   node 1: %-4s  node 2: %-4s\n' "$(date +%T.%3N)" $counts
}

# agree COUNT: shows the nodes' counts until both are COUNT, for at most five seconds.
agree() {
    local end=$((SECONDS + 5))
    while show_counts && [ "$counts" != "$1 $1 " ]; do
        if [ $SECONDS -gt $end ]; then
            cat "$prefix"/*.log >&2
            die "expected both nodes to count $1 requests"
        fi
    done
}

run_cluster() {
    local redis_port statuses server
    second=$(free_port $((PORT + 1)) $((PORT + 20)))
    redis_port=$(free_port $((second + 1)) $((second + 20)))
    say "starting $(redis-server --version | cut -d ' ' -f 1-3) on port $redis_port"
    redis-server --port "$redis_port" --bind 127.0.0.1 --dir "$prefix" --save '' --appendonly no \
        --maxmemory-policy noeviction >"$prefix/redis.log" &
    redis=$!
    wait_for_port "$redis_port" "$redis" redis-server
    server="s/server *127.0.0.1:6379;/server 127.0.0.1:$redis_port;/"
    start_node cluster.conf "$PORT" "$server" 3>"$prefix/node1.log"
    start_node cluster.conf "$second" "$server" 3>"$prefix/node2.log"
    avoid_end 60 20

    say "limit=20/1m on both nodes together, sync_rate 100ms"
    show_counts
    say "six requests to node 1"
    send "$PORT" 6 >/dev/null
    agree 6
    say "five requests to node 2"
    send "$second" 5 >/dev/null
    agree 11
    say "four requests to each, at the same time"
    send "$PORT" 4 >/dev/null &
    send "$second" 4 >/dev/null
    wait $!
    agree 19
    say "one more to node 2, the last that is admitted; then one to each"
    statuses=$(send "$second" 1)
    agree 20
    statuses+="$(send "$PORT" 1)$(send "$second" 1)"
    echo "$statuses"
    [ "$statuses" = '200 429 429 ' ] || die "expected 200, then 429 twice"

    if [ -n "$once" ]; then
        say "the nodes agree, as they should"
    else
        say "http://127.0.0.1:$PORT/ and http://127.0.0.1:$second/ are up until ctrl-C, and Redis on" \
            "port $redis_port (processes ${nodes[*]} $redis); logs are in $prefix; this minute's counts:"
        while kill -0 "${nodes[@]}" 2>/dev/null; do
            show_counts
            sleep 0.3
        done
    fi
}

if [ -n "$cluster" ]; then
    run_cluster
else
    run_one
fi
