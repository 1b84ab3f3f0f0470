//! Pushes a module to an OCI registry and prints the reference with its digest.
//!
//! Usage: `publish MODULE METADATA REFERENCE`. A registry on this machine is reached with plain HTTP. Credentials come from
//! `REGISTRY_USER` and `REGISTRY_PASSWORD`.

use std::collections::BTreeMap;
use std::env;

use anyhow::{Context, Result, bail};
use publish::{Access, push};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [module, annotations, reference] = arguments.as_slice() else {
        bail!("usage: publish MODULE ANNOTATIONS REFERENCE (annotations: a JSON object)");
    };
    let module = std::fs::read(module).with_context(|| module.clone())?;
    let annotations: BTreeMap<String, String> = serde_json::from_str(annotations).context("ANNOTATIONS")?;
    let host = reference.split(['/', ':']).next().unwrap_or_default();
    let credentials = env::var("REGISTRY_USER").ok().zip(env::var("REGISTRY_PASSWORD").ok());
    let access = Access { is_insecure: matches!(host, "localhost" | "127.0.0.1"), credentials };
    let digest = push(module, reference, annotations, &access).await?;
    println!("{reference}@{digest}");
    Ok(())
}
