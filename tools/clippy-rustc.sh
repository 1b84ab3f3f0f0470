#!/bin/bash
# rustc with clippy's lints, every warning an error: for cargo's RUSTC_WORKSPACE_WRAPPER. What is compiled for the tests is
# linted on the way, and the dependencies are compiled once; `cargo clippy` checks all of them besides. Not for Debian's sh, which
# drops variables with a hyphen in their names: cargo names the executables of tests with them.
exec clippy-driver "$@" -D warnings
