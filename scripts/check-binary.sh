#!/usr/bin/env bash
# Checks what a module exports, how it is linked, and, for a release, that its C code has a stack protector and that neither
# it nor its debug information names a directory of this machine. scripts/test.sh runs it on each way of building.
#
#   scripts/check-binary.sh release|checked MODULE.so    as scripts/build.sh or --add-dynamic-module makes it
#   scripts/check-binary.sh nginx NGINX OBJECT           an nginx of --add-module, and the object that it is linked with
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() { die 'usage: scripts/check-binary.sh release|checked MODULE.so | nginx NGINX OBJECT'; }
case $#:${1:-} in
    2:release | 2:checked | 3:nginx) ;;
    *) usage ;;
esac
kind=$1 file=$2

# same TITLE EXPECTED FOUND
same() {
    [ "$2" = "$3" ] || die "$1: expected"$'\n'"$2"$'\n'"found"$'\n'"$3"
    echo "ok - $1"
}
# has TITLE PATTERN TEXT, lacks TITLE PATTERN TEXT
has() { grep -qE -- "$2" <<<"$3" || die "$file: $1: nothing matches $2"; echo "ok - $1"; }
lacks() { ! grep -E -- "$2" <<<"$3" >&2 || die "$file: $1"; echo "ok - $1"; }

segments=$(readelf -lW "$file")
dynamic=$(readelf -dW "$file")
if [ "$kind" = nginx ]; then
    same 'the global symbols are the modules and the C interface' \
        "$(printf '%s\n' ngx_http_rate_limiting_filter_module ngx_http_rate_limiting_module ngx_rate_limiting_api)" \
        "$(readelf -sW "$3" | awk '$5 ~ /GLOBAL|WEAK/ && $7 != "UND" { print $8 }' | LC_ALL=C sort)"
    lacks 'no group of sections is shared with others' '^ *\[' "$(readelf -gW "$3" 2>/dev/null)"
    has 'it exports the C interface' ' ngx_rate_limiting_api$' "$(nm -D --defined-only "$file")"
    has 'it is position-independent' '^Elf file type is DYN' "$segments"
    lacks 'no text relocations' 'TEXTREL' "$dynamic"
    has 'the stack is not executable' 'GNU_STACK .* RW ' "$segments"
    exit
fi

same 'it exports what nginx reads, and the C interface' \
    "$(printf '%s\n' ngx_module_names ngx_module_order ngx_modules ngx_rate_limiting_api)" \
    "$(nm -D --defined-only "$file" | awk '{ print $3 }' | LC_ALL=C sort)"
has 'relocations are read-only (RELRO)' 'GNU_RELRO' "$segments"
has 'symbols are bound when it is loaded (BIND_NOW)' 'BIND_NOW|FLAGS.* NOW' "$dynamic"
has 'it stays loaded' 'NODELETE' "$dynamic"
lacks 'no text relocations' 'TEXTREL' "$dynamic"
has 'the stack is not executable' 'GNU_STACK .* RW ' "$segments"
lacks 'no segment is writable and executable' 'LOAD .* RWE ' "$segments"
lacks 'no library is looked for elsewhere (RPATH)' 'RPATH|RUNPATH' "$dynamic"
[ "$kind" = release ] || exit 0

has 'C code has a stack protector' ' __stack_chk_fail' "$(nm -D --undefined-only "$file")"
for part in "$file" "$file.debug"; do
    [ -e "$part" ] || die "no $part"
    for dir in "$root" "${CARGO_HOME:-$HOME/.cargo}" "$HOME/"; do
        ! grep -aqF -- "$dir" "$part" || die "$part contains $dir: $(grep -aoF -m 1 -- "$dir" "$part" | head -n 1)"
    done
done
echo 'ok - neither it nor its debug information names a directory of this machine'
