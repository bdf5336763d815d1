#!/usr/bin/env bash
# Stops, kills and delays a process of nginx at each fail point, in turn, under traffic, and compares the totals of the
# store and of two nodes with a ledger of all requests after each.
#
#   scripts/faults.sh [--store redis|postgres|cassandra|memcached|etcd] [--seed N] [--sample N] [POINT...]
#
# A worker that is stopped (SIGSTOP) at a point goes on after another worker has pushed a hit to the store, and has asked
# it about a request. A killed one is replaced by nginx's master. A delayed one sleeps for 0.3 s. A master that is killed
# in a reload is started again, after its workers have ended. Traffic and comparison are those of scripts/chaos.sh.
#
# Until a point is reached, the store loses all data, a worker is killed while it pushes, and the node is reloaded with
# other namespaces, again and again.
#
# The module is built with `--cfg fail_points`. scripts/faults/elsewhere lists the points that no process reaches here,
# and says which test covers each. A point that is neither reached nor listed is an error of a run of all points.
#
#   --sample N     make only N faults, drawn by the seed
#   POINT          make only the faults at these points, which are patterns
#   PORT           the first of ten ports. Default: 20100
#   NGINX_BINARY   another nginx than the installed one, with NGINX_MODULE, the .so for it; nothing is built then
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: scripts/faults.sh [--store redis|postgres|cassandra|memcached|etcd] [--seed N] [--sample N] [POINT...]"
store=redis
seed=$((RANDOM * 32768 + RANDOM))
sample=0
points=()
while [ $# -gt 0 ]; do
    case $1 in
        --store) [ $# -gt 1 ] || die "$usage"; store=$2; shift ;;
        --seed) [ $# -gt 1 ] || die "$usage"; seed=$2; shift ;;
        --sample) [ $# -gt 1 ] || die "$usage"; sample=$2; shift ;;
        -*) die "$usage" ;;
        *) points+=("$1") ;;
    esac
    shift
done
[[ $seed =~ ^[0-9]+$ && $sample =~ ^[0-9]+$ && $store =~ ^(redis|postgres|cassandra|memcached|etcd)$ ]] || die "$usage"

need_packages perl
need_store_packages "$store"
CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/target/fail-points} RATELIMIT_FAIL_POINTS=1 need_module checked
export PORT=${PORT:-20100}
exec perl "$root/scripts/faults/faults.pl" "$root" "$store" "$seed" "$sample" "${points[@]}"
