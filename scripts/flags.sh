# Sourced by whatever builds a release: sets flags for cargo and for the C compilers of crates. It is a file of its own,
# since nginx's make sources it, too, with plain sh.
#
#   root     the repository
#
# The C code of crates gets a stack protector and checked functions of libc. The result names no directory of the machine:
# paths begin with `.`, the repository, or with `cargo`. So debuggers that are started in the repository find its source.
# shellcheck shell=sh disable=SC2154

cargo_home=${CARGO_HOME:-$HOME/.cargo}
target_dir=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
unit=$(printf '\037')
rustflags=${CARGO_ENCODED_RUSTFLAGS:-$(printf '%s' "${RUSTFLAGS:-}" | tr -s ' ' "$unit")}
CFLAGS="${CFLAGS:-} -fstack-protector-strong -D_FORTIFY_SOURCE=2"
# Of several that match, the last one counts. The registry may be a link: C compilers name the directory that it leads to.
for map in "$cargo_home=cargo" "$(realpath -m "$cargo_home/registry")=cargo/registry" "$root=." "$target_dir=./target"; do
    rustflags=${rustflags:+$rustflags$unit}--remap-path-prefix=$map
    CFLAGS="$CFLAGS -ffile-prefix-map=$map"
done
export CARGO_ENCODED_RUSTFLAGS="$rustflags" CFLAGS
