#!/bin/sh
# rustc with clippy's lints, every warning an error: for cargo's RUSTC_WORKSPACE_WRAPPER. What is compiled for the tests is
# linted on the way, and the dependencies are compiled once; `cargo clippy` checks all of them besides.
exec clippy-driver "$@" -D warnings
