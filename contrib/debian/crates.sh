#!/bin/sh
# Prints the crates that the module is linked with, and their licences: their terms ask for it. Needs jq.
#
#   RATELIMIT_FEATURES   the features of a build other than the default one, as an option of cargo's
set -eu

cargo=${CARGO:-cargo}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2086 # several words
$cargo tree --locked --edges normal --prefix none --format '{p}' ${RATELIMIT_FEATURES:-} >"$work/tree"
sed -n 's/^\([^ ]*\) v\([^ ]*\).*/\1 \2/p' "$work/tree" | sort -u >"$work/linked"
host=$(rustc -vV | sed -n "s/^host: //p")
$cargo metadata --locked --format-version 1 --filter-platform "$host" >"$work/metadata"
jq -r '.packages[] | select(.source) | [.name, .version, .license // "", .manifest_path] | @tsv' "$work/metadata" |
    sort >"$work/all"

printf 'The module is linked with these crates of crates.io.\n'
while IFS='	' read -r crate version licence manifest; do
    grep -qxF "$crate $version" "$work/linked" || continue
    printf '\n======== %s %s: %s\n' "$crate" "$version" "$licence"
    find "${manifest%/*}" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) |
        sort | xargs -r cat
done <"$work/all"
