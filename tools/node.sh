#!/bin/sh
# Installs the packages of the site, and Node where there is none. Usage: node.sh
set -eu
cd "$(dirname "$0")/.."
command -v npm >/dev/null || tools/apt-install.sh nodejs npm
mkdir -p target
# The packages have install scripts that only look for what npm has already installed.
(cd playground && npm ci --ignore-scripts --no-audit --no-fund) >target/npm.log 2>&1 || {
    tail -n 20 target/npm.log >&2
    exit 1
}
