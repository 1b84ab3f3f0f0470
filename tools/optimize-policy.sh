#!/bin/sh
# Makes the module smaller and runs its initialisation ahead of time. Usage: optimize-policy.sh MODULE OUTPUT
# PREINITIALIZE is the command for the latter.
set -eu
cd "$(dirname "$0")/.."
command -v wasm-opt >/dev/null || tools/apt-install.sh binaryen || {
    echo "optimize: wasm-opt is missing; install Binaryen" >&2
    exit 1
}
optimize() {
    wasm-opt --enable-bulk-memory --enable-sign-ext --enable-mutable-globals --enable-nontrapping-float-to-int \
        --enable-reference-types --enable-multivalue --enable-simd "$@"
}
optimize -Oz --debuginfo "$1" --output target/named.wasm
optimize --strip-debug --strip-producers --strip-target-features target/named.wasm --output target/optimized.wasm
$PREINITIALIZE target/optimized.wasm "$2"
