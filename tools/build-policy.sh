#!/bin/sh
# Builds the policy module for wasm32-unknown-unknown by whichever way the machine offers, and prints its path.
# Usage: [PACKAGE=…] [PROFILE=…] build-policy.sh [cargo build options]
set -eu
cd "$(dirname "$0")/.."

TARGET=wasm32-unknown-unknown
PACKAGE="${PACKAGE:-stateful-failover}"
PROFILE="${PROFILE:-policy}"
say() { echo "build: $*" >&2; }

has_rustup_target() {
    command -v rustup >/dev/null && rustup target list --installed 2>/dev/null | grep -qx "$TARGET"
}
has_debian_sources() {
    [ -x /usr/bin/cargo ] && [ -x /usr/bin/rustc ] && [ -d /usr/src/rustc-"$(/usr/bin/rustc --version | cut -d' ' -f2)" ]
}
# The stack is part of the memory of every instance; the default of 1 MiB would be most of the memory of an evaluation. All
# tests of hostile input pass with half of this one. Wasmtime and browsers enable SIMD by default.
export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUSTFLAGS="-C link-arg=-zstack-size=${STACK_SIZE:-131072} -C target-feature=+simd128 -C symbol-mangling-version=v0"
mkdir -p target
if ! has_rustup_target && ! has_debian_sources; then
    if command -v rustup >/dev/null && rustup target add "$TARGET" >target/rustup.log 2>&1; then
        say "added the rustup target $TARGET"
    elif ! tools/apt-install.sh rustc-web cargo-web rust-web-src; then
        say "no way to build for $TARGET here; run: rustup target add $TARGET"
        say "or, on Debian 12: apt-get install rustc-web cargo-web rust-web-src"
        exit 1
    fi
fi

if has_rustup_target; then
    say "with the rustup target $TARGET"
    cargo build --locked --package "$PACKAGE" --lib --profile "$PROFILE" --target "$TARGET" "$@" >&2
else
    # Debian's compiler has no std for this target, but its sources: std is built, too, without the code that prints
    # backtraces.
    linker="$(rustc --print sysroot)/lib/rustlib/$(rustc -vV | sed -n 's/^host: //p')/bin/rust-lld"
    [ -x "$linker" ] || linker="$(command -v rust-lld || command -v wasm-ld || command -v wasm-ld-19 || true)"
    [ -n "$linker" ] || { say "no linker for wasm; run: apt-get install lld-19"; exit 1; }
    say "with Debian's $(/usr/bin/rustc --version), std built from source"
    RUSTC_BOOTSTRAP=1 RUSTC=/usr/bin/rustc CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER="$linker" \
        /usr/bin/cargo build --locked --package "$PACKAGE" --lib --profile "$PROFILE" --target "$TARGET" -Zbuild-std=std,panic_abort -Zbuild-std-features= "$@" >&2
fi
echo "target/$TARGET/$PROFILE/$(echo "$PACKAGE" | tr - _).wasm"
