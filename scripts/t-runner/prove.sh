#!/usr/bin/env bash
# Runs test files (default: t/*.t) with openresty's Test::Nginx where it is
# installed, and otherwise with the small runner in this directory.
#
#   scripts/t-runner/prove.sh [PROVE_OPTION | FILE]...
#
# Files are relative to the root of the repository.  The environment is that of
# Test::Nginx: TEST_NGINX_BINARY, TEST_NGINX_LOAD_MODULES, TEST_NGINX_PORT, ...
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[ $# -gt 0 ] || set -- t/*.t

if perl -MTest::Nginx::Socket -e1 2>/dev/null; then
    echo "==> Test::Nginx::Socket: the installed one" >&2
    exec prove "$@"
fi
echo "==> Test::Nginx::Socket is not installed: using scripts/t-runner" >&2
exec prove -I scripts/t-runner "$@"
