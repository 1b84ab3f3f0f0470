//! Lookups through the host, and the meaning of its errors.

use std::collections::BTreeSet;

use kubewarden_policy_sdk::host_capabilities::kubernetes::GetResourceRequest;
use kubewarden_policy_sdk::wapc_guest::host_call;
use serde_json::Value;

use crate::cluster::{Cluster, Get, LookupError};
use crate::collected;

/// The cluster that the policy server is connected to.
pub struct HostCluster;

impl Cluster for HostCluster {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        let request = GetResourceRequest {
            api_version: object.api_version.to_owned(),
            kind: object.kind.to_owned(),
            name: object.name.to_owned(),
            namespace: object.namespace.map(str::to_owned),
            disable_cache: true,
            field_masks: Some(collected::<BTreeSet<String>, _>(object.fields.iter().map(|&field| field.to_owned()))),
        };
        let request = serde_json::to_vec(&request).map_err(|error| LookupError::Unavailable(error.to_string()))?;
        // The SDK's `get_resource` would copy the object once more.
        match host_call("kubewarden", "kubernetes", "get_resource", &request) {
            Ok(found) => object.read(&found).map(Some),
            Err(error) => classify(&error.to_string(), object),
        }
    }
}

/// Tells from the host's error message whether the object does not exist or the lookup failed. The message is text of
/// several lines, with all causes.
///
/// Source: `kubewarden/adm-controller`, `crates/policy-evaluator/src`: `callback_handler/kubernetes/client.rs` (object
/// and kind not found), `evaluation_context.rs` and `runtimes/callback.rs` (not granted); the API server's own words
/// (`Forbidden`) come from `kube::Error`.
///
/// # Errors
/// [`LookupError`], where the lookup failed.
pub fn classify(message: &str, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
    // «Cannot find v1/ConfigMap named 'x' inside of namespace …» is about the object, «Cannot find resource …» is not.
    if message.contains("Cannot find") && message.contains(" named '") {
        return Ok(None);
    }
    let is_granted = !message.contains("has not been granted access");
    Err(if !is_granted && message.contains("kubernetes/get_resource") {
        LookupError::CapabilityNotGranted
    } else if !is_granted {
        LookupError::KindNotGranted { api_version: object.api_version.to_owned(), kind: object.kind.to_owned() }
    } else if message.contains("Forbidden") || message.contains("forbidden") {
        LookupError::Forbidden
    } else if message.contains("finding resource") || message.contains("Cannot find resource") {
        LookupError::UnknownKind
    } else {
        LookupError::Unavailable(innermost_cause(message))
    })
}

/// The innermost cause: the last line that is not empty.
fn innermost_cause(message: &str) -> String {
    const MAX: usize = 200;
    let line = message.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no message");
    // anyhow numbers the causes.
    let cause = line.trim_start_matches(|char: char| char.is_ascii_digit()).strip_prefix(": ").unwrap_or(line);
    cause.chars().take(MAX).collect()
}
