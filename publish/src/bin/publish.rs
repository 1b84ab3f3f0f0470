//! Pushes a module to an OCI registry and prints the reference with its digest.
//!
//! Usage: `publish MODULE METADATA REFERENCE`. A registry on this machine is reached with plain HTTP. Credentials come
//! from `REGISTRY_USER` and `REGISTRY_PASSWORD`.

use std::env;

use anyhow::{Context, Result, bail};
use publish::policy_metadata::Metadata;
use publish::{Access, push};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, metadata, reference] = arguments.as_slice() else {
        bail!("usage: publish MODULE METADATA REFERENCE");
    };
    let module = std::fs::read(module).with_context(|| module.clone())?;
    let metadata = std::fs::read_to_string(metadata).with_context(|| metadata.clone())?;
    let Metadata { mut annotations, .. } = Metadata::parse(&metadata).context("the metadata can't be read")?;
    // As kwctl does: an annotation of several lines is left out of the manifest.
    annotations.retain(|_, value| !value.contains('\n'));
    let host = reference.split(['/', ':']).next().unwrap_or_default();
    let credentials = env::var("REGISTRY_USER").ok().zip(env::var("REGISTRY_PASSWORD").ok());
    let access = Access { is_insecure: matches!(host, "localhost" | "127.0.0.1"), credentials };
    let digest = push(module, reference, annotations, &access).await?;
    println!("{reference}@{digest}");
    Ok(())
}
