#!/usr/bin/env bash
# Checks that nginx -t accepts each block of ```nginx in documents without a warning.
#
#   scripts/check-nginx-blocks.sh NGINX MODULE.so DOCUMENT...
#
# A block with `load_module` or `http` is a whole configuration. Another one belongs into `http`; or into a `server`, if it
# has no directive of `http`. Missing parts are added: a zone, a store, a rule for each namespace, the servers that it
# names as `http://name`, and files. A block that is not accepted alone may follow the blocks of `http` before it under the same heading.
#
# Blocks with Lua are checked if this is Debian's nginx, for which Debian has lua-nginx-module.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -ge 3 ] || die "usage: scripts/check-nginx-blocks.sh NGINX MODULE.so DOCUMENT..."
nginx=$1 module=$2
module_name=$name
shift 2

directory=$(mktemp -d "${TMPDIR:-/tmp}/nginx-blocks-XXXXXX")
trap 'rm -rf "$directory"' EXIT
nginx_prefix "$directory" "$(realpath "$module")"
: >"$directory/users"
printf 'secret\n' >"$directory/password"

lua_modules=
modules=/usr/lib/nginx/modules
if "$nginx" -V 2>&1 | grep -- "--modules-path=$modules" >/dev/null && [ -e $modules/ngx_http_lua_module.so ]; then
    lua_modules="load_module modules/ndk_http_module.so; load_module modules/ngx_http_lua_module.so;"
    ln -s $modules/ndk_http_module.so $modules/ngx_http_lua_module.so "$directory/modules"
fi

# Directives of `http`, with which a block that is not for a `server` begins.
of_http='(ratelimit_(zone|store|namespace)|map|geo|log_format|limit_(req|conn)_zone|upstream|server) '

whole='^(load_module|http) '

# upstreams BLOCK: prints the servers that the block names and does not define.
upstreams() {
    local name
    while read -r name; do
        grep -q "^ *upstream $name " <<<"$1" || echo "upstream $name { server 127.0.0.1:1; }"
    done < <(grep -o 'http://[a-z_]*;' <<<"$1" | sed 's,http://,,; s/;//' | sort -u)
}

# configuration BLOCK: prints a complete configuration.
configuration() {
    local name block=$1
    if grep -qE "$whole" <<<"$block"; then
        sed "s,/path/to/this/repository,$root,; /^http {/r "<(upstreams "$block") <<<"$block"
        grep -q '^ *events ' <<<"$block" || echo 'events {}'
        return
    fi
    [[ $block != *_by_lua_* ]] || echo "$lua_modules"
    printf 'load_module %s;\nevents {}\nhttp {\n' "modules/$module_name.so"
    grep -q '\<ratelimit' <<<"$block" && ! grep -q '^ratelimit_zone ' <<<"$block" &&
        echo 'ratelimit_zone zone=of_the_document:12m;'
    upstreams "$block"
    while read -r name; do
        grep -q "^ratelimit_store $name " <<<"$block" || echo "ratelimit_store $name { strategy redis; }"
    done < <(sed -nE 's/^ *(.*\{ )?.*\<store +([a-z]+);.*/\2/p' <<<"$block" | sort -u)
    while read -r name; do
        grep -qE "\<ratelimit +($name|(limit|rate)=)" <<<"$block" ||
            echo "server { server_name $name.invalid; ratelimit $name limit=1/1m; }"
    done < <(sed -nE 's/^ratelimit_namespace ([a-z]+) .*/\1/p' <<<"$block")
    echo "$block"
    echo '}'
}

# in_http BLOCK: prints the block as directives of `http`, unless it is a whole configuration.
in_http() {
    if grep -qE "$whole" <<<"$1" || head -n 1 <<<"$1" | grep -qE "^$of_http"; then
        printf '%s\n' "$1"
    else
        printf 'server {\n%s\n}\n' "$1"
    fi
}

# is_accepted BLOCK: says why not in `said`.
is_accepted() {
    local file
    configuration "$1" >"$directory/nginx.conf"
    for file in $(sed -nE 's/^ *password_file +(.*);/\1/p' "$directory/nginx.conf"); do
        ln -sf password "$directory/$file"
    done
    for file in $(sed -nE 's/^ *tls_[a-z_]+ +([a-z-]+\.pem);/\1/p' "$directory/nginx.conf"); do
        [ -e "$directory/$file" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 \
            -subj /CN=documents -keyout "$directory/key" -out "$directory/$file" 2>/dev/null
    done
    said=$("$nginx" -t -p "$directory" -c "$directory/nginx.conf" -e stderr 2>&1) || true
    [[ $said == *'test is successful'* && $said != *'[warn]'* ]]
}

# check DOCUMENT LINE BLOCK
check() {
    if [[ $3 == *_by_lua_* && -z $lua_modules ]]; then
        say "$1:$2: has Lua, which Debian's nginx checks"
        return
    fi
    if ! is_accepted "$(in_http "$3")" && ! is_accepted "$before$(in_http "$3")"; then
        printf '%s\n' "$said" >&2
        die "$1:$2: nginx -t does not accept this block, or warns of it"
    fi
    if head -n 1 <<<"$3" | grep -qE "^$of_http"; then
        before+=$3$'\n'
    fi
    echo "ok - $1:$2"
}

for document in "$@"; do
    block='' start=0 number=0 before='' fence=''
    while IFS= read -r line || [ -n "$line" ]; do
        number=$((number + 1))
        if [ $start -gt 0 ] && [ "$line" = '```' ]; then
            check "$document" $start "${block%$'\n'}"
            start=0 fence=''
        elif [ $start -gt 0 ]; then
            block+=$line$'\n'
        elif [ "$line" = '```nginx' ]; then
            block='' start=$number fence=1
        elif [[ $line == '```'* ]]; then
            [ -z "$fence" ] && fence=1 || fence=''
        elif [[ -z $fence && $line == '#'* ]]; then
            before=''
        fi
    done <"$document"
done
