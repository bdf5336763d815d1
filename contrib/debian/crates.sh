#!/bin/sh
# Prints the crates that the module is linked with: their licences, as their terms ask for; or with --sbom, a list for
# scanners (CycloneDX, JSON), with versions, checksums and dependencies. Needs jq.
#
#   crates.sh [--sbom]
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

if [ "${1:-}" = --sbom ]; then
    # The checksums of Cargo.lock are those of the files at crates.io.
    awk -F '"' '/^name/ { name = $2 } /^version/ { version = $2 } /^checksum/ { print name " " version " " $2 }' Cargo.lock \
        >"$work/checksums"
    jq --rawfile linked "$work/linked" --rawfile checksums "$work/checksums" \
        --arg rust "$(rustc -V | cut -d " " -f 2)" '
        def words: split("\n") | map(select(. != "") | split(" "));
        def purl: "pkg:cargo/\(.name)@\(.version)";
        def licence: select(. != null) | [{ expression: gsub(" */ *"; " OR ") }];
        ($linked | words | map({ key: join(" "), value: true }) | from_entries) as $in
        | ($checksums | words | map({ key: "\(.[0]) \(.[1])", value: .[2] }) | from_entries) as $sums
        | [.packages[] | select($in["\(.name) \(.version)"])] as $packages
        | ($packages | map({ key: .id, value: purl }) | from_entries) as $refs
        | .resolve as $resolve
        | ($packages[] | select(.source == null)) as $ours
        | { "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", bomFormat: "CycloneDX", specVersion: "1.6", version: 1,
            metadata: { component: ($ours | { type: "library", "bom-ref": purl, name, version, licenses: (.license | licence) }) },
            components: ([$packages[] | select(.source)
                | { type: "library", "bom-ref": purl, name, version, purl: purl, licenses: (.license | licence),
                    hashes: [{ alg: "SHA-256", content: $sums["\(.name) \(.version)"] }] }]
                + [{ type: "library", "bom-ref": "rust-std", name: "rust-std", version: $rust,
                     description: "The standard library of Rust", purl: "pkg:generic/rust-std@\($rust)",
                     licenses: [{ expression: "MIT OR Apache-2.0" }] }] | sort_by(."bom-ref")),
            dependencies: [$resolve.nodes[] | select($refs[.id])
                | { ref: $refs[.id],
                    dependsOn: ([.deps[] | select(any(.dep_kinds[]; .kind == null)) | $refs[.pkg] // empty] | unique) }]
                | sort_by(.ref) }' "$work/metadata"
    exit
fi

jq -r '.packages[] | select(.source) | [.name, .version, .license // "", .manifest_path] | @tsv' "$work/metadata" |
    sort >"$work/all"

printf 'The module is linked with these crates of crates.io.\n'
while IFS='	' read -r crate version licence manifest; do
    grep -qxF "$crate $version" "$work/linked" || continue
    printf '\n======== %s %s: %s\n' "$crate" "$version" "$licence"
    find "${manifest%/*}" -maxdepth 1 -type f \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' \) |
        sort | xargs -r cat
done <"$work/all"
