#!/bin/sh
# Runs the tests that need tools which no package registry has, where those are on the PATH. The embedded engine has made the
# checks of e2e.bats, too.
set -eu
cd "$(dirname "$0")/.."
run() {
    file="$1"
    shift
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "$file: $tool is not on the PATH, skipped"; return 0; }
    done
    command -v bats >/dev/null && command -v jq >/dev/null || tools/apt-install.sh bats jq
    bats "e2e-tests/$file"
}
run e2e.bats kwctl
run control-plane.bats policy-server kube-apiserver etcd kubectl
run interpreters.bats karmadactl
