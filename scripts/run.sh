#!/usr/bin/env bash
# Shows the module at work: builds it, starts nginx with nginx-conf/first.conf and makes requests
# until the limit rejects. nginx then goes on until ctrl-C; with --once it stops, and the exit
# status says whether the sixth request, and none before it, was rejected.
#
#   PORT           where nginx listens; default: the first free port from 8080
#   NGINX_BINARY   another nginx than the installed one, with NGINX_MODULE, the .so for it
#                  (empty: the module is linked in); nothing is built then
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

once=
case "$*" in
    "") ;;
    --once) once=yes ;;
    *) die "usage: scripts/run.sh [--once]" ;;
esac

need_packages curl
if [ -z "${NGINX_BINARY:-}" ]; then
    "$root/scripts/build.sh"
    NGINX_BINARY=$(command -v nginx || echo /usr/sbin/nginx)
    NGINX_MODULE=$(realpath "${CARGO_TARGET_DIR:-$root/target}")/release/lib$name.so
fi
if [ -n "${PORT:-}" ]; then
    ! port_in_use "$PORT" || die "port $PORT is in use: set PORT to another"
else
    PORT=$(free_port 8080 8099)
fi

prefix=$(mktemp -d)
nginx=
finish() {
    [ -z "$nginx" ] || kill -QUIT "$nginx" 2>/dev/null || true
    wait
    rm -rf "$prefix"
}
trap finish EXIT
trap 'exit 130' INT TERM

nginx_prefix "$prefix" "${NGINX_MODULE:-}"
conf=$prefix/first.conf
sed -e "s/listen 8080;/listen $PORT;/" "$root/nginx-conf/first.conf" >"$conf"
[ -n "${NGINX_MODULE:-}" ] || sed -i '/^load_module /d' "$conf"

say "starting nginx $(nginx_binary_version "$NGINX_BINARY") on port $PORT with nginx-conf/first.conf"
nginx_test "$NGINX_BINARY" "$prefix" "$conf" || die "nginx does not accept the configuration"
"$NGINX_BINARY" -p "$prefix" -c "$conf" -e stderr -g 'daemon off;' &
nginx=$!
for ((i = 0; i < 50; i++)); do
    ! port_in_use "$PORT" || break
    kill -0 "$nginx" 2>/dev/null || die "nginx did not start"
    sleep 0.1
done

# Windows start at multiples of 10 seconds; the requests should not cross a window's end.
left=$((10 - $(date +%s) % 10))
if [ $left -le 2 ]; then
    say "waiting $left s for the next window"
    sleep $left
fi

say "limit=5/10s: seven requests"
statuses=
for request in 1 2 3 4 5 6 7; do
    headers=$(curl -sS -D - -o /dev/null "http://127.0.0.1:$PORT/" | tr -d '\r')
    status=$(sed -n '1s/^[^ ]* \([0-9]*\).*/\1/p' <<<"$headers")
    statuses+="$status "
    printf '%d  %s\n' "$request" "$(sed -n 1p <<<"$headers")"
    grep -iE '^(ratelimit|x-ratelimit|retry-after)' <<<"$headers" | sed 's/^/   /' || true
done

if [ -n "$once" ]; then
    [ "$statuses" = '200 200 200 200 200 429 429 ' ] || die "expected five times 200, then 429"
    say "limited, as it should be"
else
    say "http://127.0.0.1:$PORT/ is up until ctrl-C"
    wait "$nginx"
fi
