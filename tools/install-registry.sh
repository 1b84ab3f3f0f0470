#!/bin/sh
# Installs Debian's docker-registry where it is missing.
set -eu
cd "$(dirname "$0")/.."
command -v docker-registry >/dev/null && exit 0
mkdir -p target
echo "test: installing docker-registry" >&2
{ apt-get update && apt-get install -y --no-install-recommends docker-registry; } >target/apt.log 2>&1 || {
    tail -n 5 target/apt.log >&2
    echo "test: needs docker-registry; run: apt-get install docker-registry" >&2
    exit 1
}
