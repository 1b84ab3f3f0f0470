//! The policy as its users meet it: the built module in the engine that the policy server is made of, with a fresh
//! instance for each request, and the recorded requests of real failovers to try it on.
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the policy behind one trait: the native core, and the module in the engine |
//! | [`host`] | what the host answers to the policy's lookups |
//! | [`recording`], [`replay`] | recorded failovers, and the API servers that they are replayed on |
//! | [`case`] | the corpus of cases |
//! | [`metadata`] | the policy's metadata in the module |

pub mod case;
pub mod host;
pub mod metadata;
pub mod policy;
pub mod recording;
pub mod replay;

use std::path::{Path, PathBuf};

/// A file or folder of the project.
pub fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}
