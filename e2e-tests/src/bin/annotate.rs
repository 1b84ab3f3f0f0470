//! Writes the policy's metadata into the module, where `kwctl annotate` is not available.
//!
//! Usage: `annotate METADATA README MODULE OUTPUT`

use std::fs;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use e2e_tests::metadata::{Metadata, annotate};
use e2e_tests::policy::Module;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [metadata, readme, module, output] = arguments.as_slice() else {
        bail!("usage: annotate METADATA README MODULE OUTPUT");
    };
    let yaml = fs::read_to_string(metadata).with_context(|| metadata.clone())?;
    let readme = fs::read_to_string(readme).with_context(|| readme.clone())?;
    let module = fs::read(module).with_context(|| module.clone())?;
    let protocol_version = Module::load(&module)?.call("protocol_version", b"", &Arc::default())?;
    let protocol_version: String = serde_json::from_slice(&protocol_version)?;
    let metadata = Metadata::parse(&yaml).with_context(|| metadata.clone())?.annotated(&protocol_version, &readme);
    fs::write(output, annotate(&module, &metadata)?).with_context(|| output.clone())
}
