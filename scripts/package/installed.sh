#!/bin/bash
# Run by test.sh as the first process of a clean Debian, with the packages in /srv/1, and the same of a higher version in
# /srv/2: installs, upgrades, removes and purges them beside a running nginx.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin

package=libnginx-mod-http-rate-limiting
link=/etc/nginx/modules-enabled/50-mod-http-rate-limiting.conf
die() { printf 'error: %s\n' "$*" >&2; tail -n 20 /var/log/nginx/error.log >&2 || true; exit 1; }
passed() { printf 'ok - %s\n' "$*"; }

# status URL: the status of a request's answer; 000 without one.
status() { curl -s -m 10 -o /dev/null -w '%{http_code}' "http://127.0.0.1$1" || true; }
# until_is EXPECTED COMMAND...: waits until the command prints this.
until_is() {
    local expected=$1 printed i
    for ((i = 0; i < 200; i++)); do
        printed=$("${@:2}" 2>&1) || true
        [ "$printed" != "$expected" ] || return 0
        sleep 0.1
    done
    die "${*:2}: $printed instead of $expected"
}
version() { dpkg-query -W -f '${Version}' "$1"; }
# apt VERSION ARGUMENT...: apt-get, with the repository of this version only.
apt() {
    printf 'deb [trusted=yes] file:/srv/%s ./\n' "$1" >/etc/apt/sources.list
    rm -f /etc/apt/sources.list.d/*
    apt-get -qq update
    apt-get -y --no-install-recommends "${@:2}" >/srv/apt.log 2>&1 || { cat /srv/apt.log >&2; die "apt-get ${*:2}"; }
}
# All files but those that change by themselves.
files() { find / -xdev \( -path /proc -o -path /sys -o -path /dev -o -path /srv -o -path /tmp -o -path /run \
    -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg -o -path /var/log \) -prune -o -print | sort; }

mount -t proc proc /proc
ip link set lo up
service nginx start >/dev/null
until_is 200 status /
files >/srv/before

apt 1 install $package
[ -L $link ] || die "the package has not enabled the module"
nginx -t -q || die "nginx -t fails"
dpkg-query -W -f '${Depends}' $package | grep -qE '(^|, )nginx-abi-[0-9.]+-[0-9]+(,|$)' || die "no dependency on nginx's ABI"
passed 'the package installs and enables the module'

cat >/etc/nginx/conf.d/limits.conf <<'END'
ratelimit_zone zone=counters:1m;
server {
    listen 81;
    location /limited    { ratelimit_key few;  ratelimit limit=5/1h window=fixed; root /var/www; try_files /html/index.nginx-debian.html =404; }
    location /busy       { ratelimit_key busy; ratelimit limit=1000000/1h window=fixed; root /var/www; try_files /html/index.nginx-debian.html =404; }
    location /ratelimit/ { ratelimit_api; }
}
END
service nginx reload >/dev/null
until_is 200 status :81/ratelimit/
limited() { for i in 1 2 3 4 5 6; do status :81/limited; printf ' '; done; }
[ "$(limited)" = '200 200 200 200 200 429 ' ] || die "the sixth request is not the first one that is rejected"
passed 'the sixth request gets 429'

apt 1 install ratelimitctl ratelimit-convert $package-lua $package-dev
export RATELIMIT_API=http://127.0.0.1:81/ratelimit
ratelimitctl -w 1h -t fixed show few | grep -qE '^1h|^3600s' || die "ratelimitctl: $(ratelimitctl -w 1h -t fixed show few 2>&1)"
for page in ratelimitctl ratelimit-convert ngx_http_rate_limiting_module; do
    [ "$(man -w $page | wc -l)" = 1 ] || die "no manual page of $page"
    [ -z "$(MANWIDTH=80 man --warnings -E UTF-8 -l "$(man -w $page)" 2>&1 >/dev/null)" ] || die "bad manual page of $page"
done
passed 'ratelimitctl asks the node, and there are manual pages'

printf 'events {}\nhttp {\nlimit_req_zone $remote_addr zone=a:1m rate=2r/s;\nserver { location / { limit_req zone=a; } }\n}\n' >/srv/old.conf
ratelimit-convert -o /srv/new.conf /srv/old.conf || [ $? = 3 ] || die "ratelimit-convert fails"
grep -q 'ratelimit ' /srv/new.conf || die "ratelimit-convert: $(cat /srv/new.conf)"
nginx -t -q -c /srv/new.conf || die "nginx -t rejects what ratelimit-convert wrote"
passed 'nginx accepts what ratelimit-convert writes'

cat >/etc/nginx/conf.d/lua.conf <<'END'
server {
    listen 82;
    location / {
        content_by_lua_block {
            ngx.say(require "resty.rate_limiting".increment("of lua", 3600, 1, "default", 0))
        }
    }
}
END
service nginx reload >/dev/null
until_is 1 curl -s -m 10 http://127.0.0.1:82/
passed 'the library in Lua counts'

printf '#include <ngx_rate_limiting.h>\nint main(void) { return NGX_RATE_LIMITING_API_VERSION != 1; }\n' >/srv/c.c
gcc -Wall -Werror -o /srv/c /srv/c.c && /srv/c || die "the header does not compile"
passed 'the header compiles'

# Requests go on during the upgrade, which reloads nginx: all are answered, and all are counted.
while [ ! -e /srv/enough ]; do status :81/busy; echo; done >/srv/answers &
requests=$!
until_is 429 status :81/limited
apt 2 install --only-upgrade $package
[ "$(version $package)" != "$(dpkg-deb -f /srv/1/${package}_*.deb Version)" ] || die "not upgraded"
touch /srv/enough
wait $requests
[ "$(sort -u /srv/answers)" = 200 ] || die "answers during the upgrade: $(sort /srv/answers | uniq -c)"
sent=$(wc -l </srv/answers)
counted=$(curl -s "$RATELIMIT_API/namespaces/default/keys/busy?window=1h&window_type=fixed" | jq .current)
[ "$sent" = "$counted" ] || die "$sent requests, $counted counted"
[ "$(status :81/limited)" = 429 ] || die "the upgrade has lost counters"
passed "$sent requests during an upgrade are answered and counted"

first=$(cat /run/nginx.pid)
service nginx upgrade >/dev/null || die "no upgrade of the binary"
[ "$(cat /run/nginx.pid)" != "$first" ] || die "the same process as before"
# Workers of the former binary accept requests until they end.
until_is ended eval "[ -e /proc/$first ] || echo ended"
[ "$(limited)" = '200 200 200 200 200 429 ' ] || die "the new module does not limit"
passed 'the new module limits, after an upgrade of the binary'

# What the administrator has disabled stays so.
rm /etc/nginx/conf.d/*.conf $link
apt 2 install --reinstall $package
[ ! -e $link ] || die "an upgrade has enabled what the administrator disabled"
ln -s /usr/share/nginx/modules-available/mod-http-rate-limiting.conf $link
nginx -t -q || die "nginx -t fails"
passed 'a module that is disabled stays disabled'

apt 2 remove $package
[ ! -e $link ] || die "the link is still there"
[ ! -e /usr/lib/nginx/modules/ngx_http_rate_limiting_module.so ] || die "the module is still there"
nginx -t -q || die "nginx -t fails"
[ "$(status /)" = 200 ] || die "nginx does not answer"
apt 2 install $package
[ -e $link ] || die "not enabled again"
passed 'nginx runs without the removed package; installed again, it is enabled'

apt 2 purge $package $package-lua $package-dev ratelimitctl ratelimit-convert
nginx -t -q || die "nginx -t fails"
[ "$(status /)" = 200 ] || die "nginx does not answer"
dpkg-query -W -f '${Package} ${db:Status-Abbrev}\n' '*rate*limit*' 2>/dev/null | grep -v ' un' && die "dpkg knows a package"
files | diff /srv/before - >/srv/left || die "left: $(cat /srv/left)"
passed 'a purge leaves nothing'
