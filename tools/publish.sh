#!/bin/sh
# Pushes annotated-policy.wasm to REGISTRY as <REGISTRY>/stateful-failover:v<version>, and prints the reference with its
# digest. Uses kwctl if it is installed, else the tool in PUBLISH.
set -eu
cd "$(dirname "$0")/.."
registry="${1:?usage: make publish REGISTRY=host/path}"
version="$(sed -n 's/^ *io.kubewarden.policy.version: *//p' policy-metadata.yml)"
reference="$registry/stateful-failover:v$version"
if [ -z "${PUBLISH:-}" ] && command -v kwctl >/dev/null; then
    sources=""
    case "$registry" in
    localhost[:/]* | 127.0.0.1[:/]*)
        # A registry on this machine is reached with plain HTTP.
        sources="$(mktemp)"
        trap 'rm -f "$sources"' EXIT
        echo "insecure_sources: [\"${registry%%/*}\"]" >"$sources"
        ;;
    esac
    kwctl push ${sources:+--sources-path "$sources"} annotated-policy.wasm "registry://$reference"
else
    ${PUBLISH:-cargo run --locked --quiet --package publish --} annotated-policy.wasm policy-metadata.yml "$reference"
fi
