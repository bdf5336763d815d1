#!/usr/bin/env bash
# Shows that nothing grows: two nodes with a Redis, a Postgres and a Cassandra, a million keys, reloads and faults.
#
#   scripts/soak.sh [--without-cassandra] [HOURS]
#
# Without HOURS, it takes 24. Each minute, it makes a fault or a reload, and notes the memory, descriptors and threads of the
# workers and the masters, the counters of the zones, and the sizes of the stores, in target/soak.tsv. The exit status says
# whether the greatest values of the last quarter are at most a tenth above those of the second one, requests remained without
# an answer only when a worker ended or stood still, and no log has an alert.
#
#   NGINX_BINARY, NGINX_MODULE   the nginx, and the module built for it; without them, Debian's nginx is used, and the
#                                module is built
#   PORT                         the first of 40 free ports, by default 20000
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: scripts/soak.sh [--without-cassandra] [HOURS]"
stores=(redis postgres cassandra)
[ "${1:-}" != --without-cassandra ] || { stores=(redis postgres); shift; }
[ $# -le 1 ] && [[ ${1:-24} =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "$usage"

need_packages perl wrk
for store in "${stores[@]}"; do need_store_packages "$store"; done
need_module release
export PORT=${PORT:-20000}
exec perl "$root/scripts/soak/soak.pl" "${1:-24}" "$root/target/soak.tsv" "${stores[@]}"
