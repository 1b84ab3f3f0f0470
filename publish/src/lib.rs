//! Replaces `kwctl` for a release where it is not installed: writes the metadata into the module, and pushes it to an
//! OCI registry.
//!
//! Source: `kubewarden/adm-controller`, `crates/policy-fetcher/src/registry`: one layer with the module, an empty
//! configuration, and the policy's annotations on the manifest.

pub mod policy_metadata;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use oci_client::Reference;
use oci_client::client::{Client, ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::{OciImageManifest, WASM_CONFIG_MEDIA_TYPE, WASM_LAYER_MEDIA_TYPE};
use oci_client::secrets::RegistryAuth;

/// How to reach a registry.
#[derive(Debug, Default)]
pub struct Access {
    /// Whether to use plain HTTP, for a registry on this machine.
    pub is_insecure: bool,
    /// User name and password, or token.
    pub credentials: Option<(String, String)>,
}

impl Access {
    fn client(&self) -> Client {
        // It is not an error that there is a provider already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let protocol = if self.is_insecure { ClientProtocol::Http } else { ClientProtocol::Https };
        Client::new(ClientConfig { protocol, ..ClientConfig::default() })
    }

    fn auth(&self) -> RegistryAuth {
        match &self.credentials {
            Some((user, password)) => RegistryAuth::Basic(user.clone(), password.clone()),
            None => RegistryAuth::Anonymous,
        }
    }
}

/// Pushes `module` to `reference` (`registry/repository:tag`), and returns the digest of its manifest.
///
/// # Errors
/// The reference is not valid, or the registry returns an error.
pub async fn push(
    module: Vec<u8>,
    reference: &str,
    annotations: BTreeMap<String, String>,
    access: &Access,
) -> Result<String> {
    let reference: Reference = reference.parse().with_context(|| format!("`{reference}` is not an image reference"))?;
    let layers = [ImageLayer::new(module, WASM_LAYER_MEDIA_TYPE.to_owned(), None)];
    let config = Config::new(b"{}".to_vec(), WASM_CONFIG_MEDIA_TYPE.to_owned(), None);
    let manifest = OciImageManifest::build(&layers, &config, Some(annotations));
    let client = access.client();
    let auth = access.auth();
    let pushed = client.push(&reference, &layers, config, &auth, Some(manifest)).await;
    pushed.with_context(|| format!("cannot push to {reference}"))?;
    client
        .fetch_manifest_digest(&reference, &auth)
        .await
        .with_context(|| format!("{reference} is not there after the push"))
}

/// Pulls a module.
///
/// # Errors
/// There is no module at `reference`, or the registry returns an error.
pub async fn pull(reference: &str, access: &Access) -> Result<(Vec<u8>, OciImageManifest)> {
    let reference: Reference = reference.parse().with_context(|| format!("`{reference}` is not an image reference"))?;
    let image = access.client().pull(&reference, &access.auth(), vec![WASM_LAYER_MEDIA_TYPE]).await;
    let image = image.with_context(|| format!("cannot pull {reference}"))?;
    let layer = image.layers.into_iter().next().context("the image has no layer")?;
    Ok((layer.data.to_vec(), image.manifest.context("the image has no manifest")?))
}
