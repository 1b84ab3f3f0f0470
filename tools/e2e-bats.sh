#!/bin/sh
# Runs e2e.bats where kwctl is on the PATH; the embedded host has checked the same elsewhere.
set -eu
cd "$(dirname "$0")/.."
if ! command -v kwctl >/dev/null; then
    echo "e2e.bats: kwctl is not on the PATH, skipped; the embedded host has checked what it checks"
    exit 0
fi
if ! command -v bats >/dev/null || ! command -v jq >/dev/null; then
    { apt-get update && apt-get install -y --no-install-recommends bats jq; } >target/apt.log 2>&1 ||
        { echo "e2e.bats: needs bats and jq; run: apt-get install bats jq" >&2; exit 1; }
fi
bats e2e-tests/e2e.bats
