#!/bin/sh
# Installs Debian packages, quietly. Usage: apt-install.sh PACKAGE...
set -eu
cd "$(dirname "$0")/.."
mkdir -p target
if ! command -v apt-get >/dev/null; then
    echo "install: no apt-get here, install it by hand: $*" >&2
    exit 1
fi
sudo=""
[ "$(id -u)" = 0 ] || sudo="sudo -n"
echo "install: $*" >&2
{ $sudo apt-get update && $sudo apt-get install -y --no-install-recommends "$@"; } >target/apt.log 2>&1 || {
    tail -n 5 target/apt.log >&2
    echo "install: failed; run: apt-get install $*" >&2
    exit 1
}
