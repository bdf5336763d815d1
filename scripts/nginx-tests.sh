#!/usr/bin/env bash
# Runs nginx's own HTTP tests while the module decides on every request: docs/testing.md.
#
#   scripts/nginx-tests.sh DIRECTORY [MODE...]
#
# DIRECTORY is a copy of https://github.com/nginx/nginx-tests. A MODE is local, headers, delayed or synchronous; without
# one, all of them. The tests run without the module first: only a file that passes then is judged in a MODE.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage="usage: scripts/nginx-tests.sh DIRECTORY [local|headers|delayed|synchronous]..."
[ $# -gt 0 ] || die "$usage"
[ -e "$1/lib/Test/Nginx.pm" ] || die "no copy of nginx-tests in $1"
tests=$(realpath "$1")
shift
modes=("$@")
[ $# -gt 0 ] || modes=(local headers delayed synchronous)

work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT

# rules MODE: for the http block of every test. They reject nothing. The delay is 5 ms. Tests count the lines of logs.
rules() {
    case $1 in
        without) ;;
        local) echo 'ratelimit_headers off; ratelimit limit=1000000000/1d;' ;;
        headers) echo 'ratelimit limit=1000000000/1d;' ;;
        # shellcheck disable=SC2016 # nginx's variable
        delayed) echo 'ratelimit_headers off; ratelimit_log_level off; ratelimit rate=1000/1s burst=10 delay=all cost=6 key=$request_id;' ;;
        synchronous)
            echo "ratelimit_store redis { strategy redis; server unix:$work/redis; timeout 5s; }"
            echo 'ratelimit_namespace every { store redis; sync_rate 0; timeout 5s; on_error deny; }'
            echo 'ratelimit_headers off; ratelimit every limit=1000000000/1d;'
            ;;
        *) die "$usage" ;;
    esac
}
for mode in "${modes[@]}"; do rules "$mode" >/dev/null; done

# An nginx with the modules that the tests ask for, and with debug code.
tested_nginx_flags=(--with-debug --with-compat --with-threads --with-{stream,mail}{,_ssl_module}
    --with-http_{ssl,v2,v3,realip,addition,sub,dav,flv,mp4,gunzip,gzip_static}_module
    --with-http_{auth_request,random_index,secure_link,degradation,slice,stub_status}_module)

need_rust
need_packages redis-server libio-socket-ssl-perl libcryptx-perl libfcgi-perl libcache-memcached-perl memcached
tree=$(compiled_nginx nginx/tested "${tested_nginx_flags[@]}")
export CARGO_TARGET_DIR=$root/target/nginx-tests TEST_NGINX_BINARY=$tree/objs/nginx
NGINX_SOURCE_DIR=$tree NGINX_BUILD_DIR=$tree/objs RATELIMIT_PROFILE=checked "$root/scripts/build.sh"

redis-server --port 0 --unixsocket "$work/redis" --unixsocketperm 777 --save '' --dir "$work" --daemonize yes \
    --pidfile "$work/redis.pid" --logfile "$work/redis.log" >/dev/null
trap 'kill "$(<"$work/redis.pid")"; rm -rf "$work"' EXIT

cd "$tests"
mapfile -t files < <(ls -- *.t | grep -v -e '^mail_' -e '^stream_')
# The workers of a root master would not reach the directories of the tests.
user=$([ "$(id -u)" != 0 ] || echo 'user root;')
export TEST_NGINX_GLOBALS=$user
failed=0

# wrong LOG: prints the files that failed.
wrong() { sed -n 's/^\([^ ]*\.t\) *(Wstat: [1-9].*/\1/p' "$1"; }

for mode in without "${modes[@]}"; do
    say "$mode: ${#files[@]} files"
    log=$root/target/nginx-tests/$mode.log
    if [ "$mode" != without ]; then
        TEST_NGINX_GLOBALS="load_module $CARGO_TARGET_DIR/checked/lib$name.so; $user"
        TEST_NGINX_GLOBALS_HTTP="ratelimit_zone zone=every:8m; $(rules "$mode")"
        export TEST_NGINX_GLOBALS_HTTP
    fi
    : >"$log.again"
    prove -j4 "${files[@]}" >"$log" 2>&1 || {
        # Some have timeouts of a second, which four at once exceed on a small machine.
        mapfile -t again < <(wrong "$log")
        prove "${again[@]}" >"$log.again" 2>&1 || :
    }
    mapfile -t wrong < <(wrong "$log.again")
    say "$(tail -n 2 "$log" | tr '\n' ' ')failed twice: ${wrong[*]:-none}; see $log"
    if [ "$mode" = without ]; then
        mapfile -t files < <(printf '%s\n' "${files[@]}" | grep -vxF -f <(printf '%s\n' "${wrong[@]}"))
    elif [ ${#wrong[@]} -gt 0 ]; then
        failed=1
    fi
done
exit $failed
