//! Writes the policy's metadata into the module, where `kwctl annotate` is not available.
//!
//! Usage: `annotate METADATA README MODULE OUTPUT`

use std::fs;

use anyhow::{Context, Result, bail};
use publish::policy_metadata::{Metadata, annotate};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [metadata, readme, module, output] = arguments.as_slice() else {
        bail!("usage: annotate METADATA README MODULE OUTPUT");
    };
    let yaml = fs::read_to_string(metadata).with_context(|| metadata.clone())?;
    let readme = fs::read_to_string(readme).with_context(|| readme.clone())?;
    let module = fs::read(module).with_context(|| module.clone())?;
    let metadata = Metadata::parse(&yaml).with_context(|| metadata.clone())?.annotated(&readme);
    fs::write(output, annotate(&module, &metadata)?).with_context(|| output.clone())
}
