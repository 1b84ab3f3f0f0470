#!/bin/bash
# rustc with clippy's lints, every warning an error: for cargo's RUSTC_WORKSPACE_WRAPPER. What is compiled for the tests is
# linted at the same time, and the dependencies are compiled once; `cargo clippy` would check all of them again. Not for
# Debian's sh, which drops variables with a hyphen in their names: cargo passes the executables of tests in such variables.
exec clippy-driver "$@" -D warnings
