#!/usr/bin/env bash
# Checks that nginx -t accepts each block of ```nginx in documents without a warning.
#
#   scripts/check-nginx-blocks.sh NGINX MODULE.so DOCUMENT...
#
# A block belongs into `http`; or into a `server`, if it contains none and names no zone, store or namespace. Missing
# parts are added: a zone, and the servers that it names as `http://name`.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 3 ] || die "usage: scripts/check-nginx-blocks.sh NGINX MODULE.so DOCUMENT..."
nginx=$1 module=$2
shift 2

directory=$(mktemp -d "${TMPDIR:-/tmp}/nginx-blocks-XXXXXX")
trap 'rm -rf "$directory"' EXIT
nginx_prefix "$directory"
: >"$directory/users"

# configuration BLOCK: prints a complete configuration.
configuration() {
    local name block=$1
    printf 'load_module %s;\nevents {}\nhttp {\n' "$module"
    grep -q '^ *ratelimit' <<<"$block" && ! grep -q '^ratelimit_zone ' <<<"$block" &&
        echo 'ratelimit_zone zone=of_the_document:12m;'
    while read -r name; do
        grep -q "^upstream $name " <<<"$block" || echo "upstream $name { server 127.0.0.1:1; }"
    done < <(grep -o 'http://[a-z_]*;' <<<"$block" | sed 's,http://,,; s/;//' | sort -u)
    case $block in
        *'server {'* | ratelimit_zone* | ratelimit_store* | ratelimit_namespace* | map* | log_format*) echo "$block" ;;
        *) printf 'server {\n%s\n}\n' "$block" ;;
    esac
    echo '}'
}

# check DOCUMENT LINE BLOCK
check() {
    local said
    configuration "$3" >"$directory/nginx.conf"
    said=$("$nginx" -t -p "$directory" -c "$directory/nginx.conf" -e stderr 2>&1) || true
    if [[ $said != *'test is successful'* || $said == *'[warn]'* ]]; then
        printf '%s\n' "$said" >&2
        die "$1:$2: nginx -t does not accept this block, or warns of it"
    fi
    echo "ok - $1:$2"
}

for document in "$@"; do
    block='' start=0 number=0
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ $start -gt 0 ] && [ "$line" = '```' ]; then
            check "$document" $start "${block%$'\n'}"
            start=0
        elif [ $start -gt 0 ]; then
            block+=$line$'\n'
        elif [ "$line" = '```nginx' ]; then
            block='' start=$number
        fi
    done <"$document"
done
