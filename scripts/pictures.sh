#!/usr/bin/env bash
# Takes the pictures of docs/live-page/: builds the module, runs two nodes with a Redis under traffic for some minutes, and
# has a headless Chromium show the live page of one of them.
#
#   scripts/pictures.sh [SECONDS]      the time of the traffic; default: 200
#
#   PORT                     the first of 5 free ports; default: 22480
#   NGINX_BINARY             another nginx than the installed one, with NGINX_MODULE, the .so for it; nothing is built then
# shellcheck source-path=SCRIPTDIR source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

[ $# -le 1 ] || die "usage: scripts/pictures.sh [SECONDS]"
need_packages perl redis-server chromium-headless-shell fonts-inter pngquant
RATELIMIT_WITHOUT_CASSANDRA=yes need_module fast
cd "$root"
mkdir -p docs/live-page
TZ=UTC perl -It/lib scripts/pictures/take.pl "${PORT:-22480}" "${1:-200}" docs/live-page
for picture in docs/live-page/*.png; do
    pngquant --force --speed 1 --strip --output "$picture" 128 "$picture"
    say "$picture: $(($(stat -c %s "$picture") / 1024)) kB"
done
