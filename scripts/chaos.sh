#!/usr/bin/env bash
# Shows that no hit is lost or counted twice under any fault, and that no limit of a synchronous
# namespace is exceeded: three nodes of two workers (or --nodes), a store that each reaches through proxies of its
# own, clients that keep a ledger of every request, and faults, several in a second, which overlap.
# Then the totals are compared with the ledger.
#
#   scripts/chaos.sh [--store redis|cluster|postgres|cassandra|memcached|etcd] [--seed N] [--nodes N] [--older COMMIT] [--plan] [MINUTES]
#
# The store is a Redis, unless another one is named: `cluster`, a Redis Cluster of three primaries
# with a replica each, which nodes reach without proxies, since its servers name each other by their
# own addresses; `postgres`; `cassandra`; `memcached`; `etcd`.
#
# With --older, the module is also built as it was at this commit, in target/older, and every second upgrade of a binary is
# to that module, or back. Without it, the second nginx loads the same module.
#
# Of more than five nodes, each gets fewer requests, syncs less often, and waits longer for the store.
#
# Without MINUTES, it takes one. Faults follow from the seed, which is printed, and is random unless
# it is given; what a fault meets, does not. With --plan: prints the faults, and does nothing.
# The exit status says whether all was as it must be.
#
# Comparison. A request that was answered with 200 counts exactly once; one that was rejected does
# not count. One that was never answered, because its worker was killed or closed the connection just
# when it arrived, may count or not. So for each counter (a key in a window)
#
#     answered <= total in the store <= answered + never answered
#
# and what each node counts is that total, in thousandths of a hit. No request is lost in most
# counters: there the comparison is for equality. It is made twice, with a sync of all nodes in
# between: nothing may come later. Windows are of 300 to 366 days, so that none ends meanwhile; that
# nodes agree on a window of 5 s is looked at in the end, as is that a node that quits pushes all,
# that there is nothing grave in a log, and no password, and that no answer of a node whose workers
# were left alone took 5 s.
#
# Configurations. Reloads change what a node counts, and how: the namespace, `api` or `other`; whether the other one of the
# two is defined; the windows, the algorithm, a limit; the store, to another place in it or a store of another kind; the
# zone; whether the store decides. Each response names what decided about it, and so the counters that it charged. Some
# reloads have a configuration that nginx refuses. Upgrades have two masters side by side, and keep either.
#
# The clocks of nodes jump by up to two hours, and stay there. No window of a compared counter ends meanwhile.
#
# Keys. Some are about as long as the longest that a store has without a checksum, or much longer, and
# have any bytes but a NUL. Costs may be no numbers, or too large. One more namespace, `full`, is counted in a zone that has
# no room for a fraction of its keys: the store has no more than their hits, and each that it lacks was evicted.
#
# In the synced namespaces, a window of the calendar is counted, estimates are replaced by what the response says, keys are
# banned, and requests are under way: in the end, all nodes know the same bans, and nothing is under way. A worker that is
# killed just after a response may leave its estimate.
#
# Synchronous requests. These totals are of the namespaces `api` and `other`, which are synced periodically. In
# another one, `now`, the store decides about each request (`sync_rate 0`), and a request without a
# decision in time is answered with 503 (`on_error deny`). Such a request may count or not, like one
# that was never answered. So for each counter of `now`
#
#     answered with 200 <= total in the store <= that + answered with 503 + never answered
#
# and the total is never more than the limit; it is exactly the limit if a request was rejected.
# Each node finds that total, too. Some keys have a limit of 2, for which all nodes ask at the same
# time, and one has a limit of 200 for a whole round. So it is with moving and elastic windows and
# rates: each has a key with a limit of 20 for a whole round, and some keys have limits of 2 of each
# algorithm, which admit a request all or none. Of these, what nodes are told is compared. If the
# store loses its data, the counters of `now` start anew: in such rounds it is only compared what a
# total is at most. When all faults are undone, requests go on until there was no 503 for a second,
# which must happen within a minute. (It takes a second or two, but more on a machine that is too
# busy for a timeout of 100 ms.)
#
# A node that ends has 2 s to push its remaining hits (1 s at TERM). If it used all of that, on a busy machine, hits of
# the round may be missing; the output says so.
#
# Rounds. Losses that the contract allows must not occur, or totals would prove nothing: if the
# store loses its data, the living nodes restore what they counted, but hits of nodes that are gone
# are lost. So there are two kinds of rounds of half a minute in turn, at the end of which all
# faults are undone and totals compared, and each has keys of its own:
#
#   losing    the store is killed and comes back empty, or as it once was; it is flushed; it fails
#             over to a replica that lacks writes. Nodes are not ended.
#   keeping   the store is restarted and has all that it had (Redis: it is killed, with appendonly
#             yes and appendfsync always; Postgres, whose tables are UNLOGGED: it is stopped fast;
#             Cassandra: it is killed, with commitlog_sync batch).
#             Replicas take over when they are told to, and wait until they have all. Nodes quit, or
#             are stopped fast, and start with a new zone. They do so while they can reach the store,
#             since what cannot be pushed then is lost.
#
# At the end of all, each node is well, without a restart, and syncs all its namespaces.
#
# All other faults are in both: see scripts/chaos/Plan.pm and NodeFaults.pm, and the store's own in RedisStore.pm,
# ClusterStore.pm, PostgresStore.pm, CassandraStore.pm, MemcachedStore.pm and EtcdStore.pm. A node that is killed whole loses what it
# had not pushed; that is not among them (see t/cluster.t).
#
#   PORT           the first of three ports for each node, and ten more. Default: free ones, from 17000 on
#   NGINX_BINARY   another nginx than the installed one, with NGINX_MODULE, the .so for it
#                  (empty: the module is linked in); it is not built then. --older needs NGINX_SOURCE_DIR then: see build.sh
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: scripts/chaos.sh [--store redis|cluster|postgres|cassandra|memcached|etcd] [--seed N] [--nodes N] [--older COMMIT] [--plan] [MINUTES]"
store=redis
nodes=3
seed=$((RANDOM * 32768 + RANDOM))
minutes=1
older=
plan=
while [ $# -gt 0 ]; do
    case $1 in
        --store) [ $# -gt 1 ] || die "$usage"; store=$2; shift ;;
        --seed) [ $# -gt 1 ] || die "$usage"; seed=$2; shift ;;
        --nodes) [ $# -gt 1 ] || die "$usage"; nodes=$2; shift ;;
        --older) [ $# -gt 1 ] || die "$usage"; older=$2; shift ;;
        --plan) plan=yes ;;
        *) minutes=$1 ;;
    esac
    shift
done
[[ $seed =~ ^[0-9]+$ && $minutes =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$usage"
[[ $nodes =~ ^([2-9]|[1-4][0-9]|50)$ ]] || die "--nodes: a number from 2 to 50, not $nodes"
[[ $store =~ ^(redis|cluster|postgres|cassandra|memcached|etcd)$ ]] || die "$usage"

chaos=("$root/scripts/chaos/chaos.pl" "$seed" "$minutes" "$store" "$nodes")
[ -z "$plan" ] || exec perl "${chaos[@]}" plan

# free_ports FIRST LAST COUNT: prints the first of COUNT free ports in a row.
free_ports() {
    local port next
    for ((port = $1; port + $3 <= $2; port = next + 1)); do
        for ((next = port; next < port + $3; next++)); do
            ! port_in_use "$next" || continue 2
        done
        printf '%s\n' "$port"
        return
    done
    die "no $3 free ports from $1 to $2"
}

# server_version: prints the version of the store's server.
server_version() {
    local programs
    case $store in
        postgres)
            programs=${TEST_POSTGRES_BIN:-$(printf '%s\n' /usr/lib/postgresql/*/bin | sort | tail -n 1)}
            "$programs/postgres" --version
            ;;
        cassandra) basename "$("$root/scripts/cassandra/server.sh" jars)"/cassandra-all-*.jar .jar ;;
        etcd) etcd --version | head -n 1 ;;
        memcached) memcached --version ;;
        *) redis-server --version | cut -d ' ' -f 1-3 ;;
    esac
}

# build_older COMMIT: builds the module as it was at a commit, and prints its path.
build_older() {
    local commit tree
    commit=$(git -C "$root" rev-parse --verify --quiet "$1^{commit}") || die "--older: no commit $1"
    tree=$root/target/older/$commit
    rm -rf "$tree"
    mkdir -p "$tree"
    # With the present time, so that cargo does not take files for those of the last build.
    git -C "$root" archive "$commit" | tar -x -m -C "$tree"
    CARGO_TARGET_DIR=$root/target/older/built RATELIMIT_PROFILE=fast "$tree/scripts/build.sh" >&2
    printf '%s\n' "$root/target/older/built/fast/lib$name.so"
}

need_packages perl gcc libc6-dev
need_store_packages "$store"
# The store to which reloads change.
case $store in
    redis | cluster) need_store_packages postgres ;;
    *) need_store_packages redis ;;
esac
need_module release
[ -z "$older" ] || NGINX_OLDER_MODULE=$(build_older "$older")
ports=$((3 * nodes + 10))
PORT=${PORT:-$(free_ports $((17000 + RANDOM % (960 / ports) * ports)) 17999 $ports)}

say "$store, $nodes nodes, seed $seed, $minutes minutes, nginx $(nginx_binary_version "$NGINX_BINARY")," \
    "$(server_version)"
export NGINX_OLDER_MODULE=${NGINX_OLDER_MODULE:-} PORT
exec perl "${chaos[@]}"
