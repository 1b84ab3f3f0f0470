//! Tests of the policy as its users run it: the built module in the engine of the policy server, with a fresh instance
//! for each request, on the recorded requests of real failovers.
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the policy behind one trait: the native core, and the module in the engine |
//! | [`host`] | the host, which answers lookups |
//! | [`recording`], [`replay`] | recorded failovers, and the API servers that they are replayed on |
//! | [`case`], [`request`] | the corpus of cases, and how their requests are made |
//! | [`size`] | what each crate costs in the module |

pub mod case;
pub mod host;
pub mod policy;
pub mod recording;
pub mod replay;
pub mod request;
pub mod size;

use std::path::{Path, PathBuf};

/// A file or folder of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// The blocks of commands under `## Install` in the README, in their order.
///
/// # Panics
/// The README can't be read, or has no such section.
pub fn install_commands() -> Vec<String> {
    let readme = std::fs::read_to_string(project("README.md")).expect("the project has a README");
    let install = readme.split("\n## Install\n").nth(1).expect("the README has a section Install");
    let section = install.split("\n## ").next().unwrap_or_default();
    section.split("```sh\n").skip(1).filter_map(|block| block.split("```").next()).map(str::to_owned).collect()
}
