//! The command, on what is no module.

use std::process::Command;

#[test]
fn what_is_no_module_is_refused() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    let command = || Command::new(env!("CARGO_BIN_EXE_playground-bindgen"));
    for output in [
        command().output().unwrap(),
        command().args([env!("CARGO_MANIFEST_DIR"), folder]).output().unwrap(),
        command().args([concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"), folder]).output().unwrap(),
    ] {
        assert!(!output.status.success());
        assert!(!output.stderr.is_empty());
    }
}
