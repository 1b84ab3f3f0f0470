#!/bin/sh
# Runs e2e.bats where kwctl is on the PATH; the embedded host has checked the same elsewhere.
set -eu
cd "$(dirname "$0")/.."
if ! command -v kwctl >/dev/null; then
    echo "e2e.bats: kwctl is not on the PATH, skipped; the embedded host has checked what it checks"
    exit 0
fi
command -v bats >/dev/null && command -v jq >/dev/null || tools/apt-install.sh bats jq
bats e2e-tests/e2e.bats
