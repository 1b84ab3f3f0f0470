//! AdmissionRequests as an API server makes them of an object. Source: `k8s.io/api/admission/v1`, `AdmissionRequest`;
//! the engine gets them without the AdmissionReview around them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// The request that writes `object`: an UPDATE of `old_object`, or a CREATE where that is null.
pub fn write(object: &Value, old_object: &Value) -> Value {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    json!({
        "kind": {"group": group, "version": version, "kind": text("/kind")},
        "namespace": text("/metadata/namespace"),
        "name": text("/metadata/name"),
        "operation": if old_object.is_null() { "CREATE" } else { "UPDATE" },
        "object": object,
        "oldObject": old_object,
    })
}

/// The CREATE of a manifest as Karmada's execution controller sends it, with the state that `feed` wrote, if any.
///
/// # Errors
/// The manifest is not an object.
pub fn create(mut manifest: Value, state: &Value) -> Result<Value> {
    manifest.as_object_mut().context("the manifest is not an object")?.remove("status");
    if state.is_object() {
        if manifest["metadata"]["annotations"].is_null() {
            manifest["metadata"]["annotations"] = json!({});
        }
        manifest["metadata"]["annotations"]["stateful-failover/state"] = Value::from(state.to_string());
    }
    Ok(write(&manifest, &Value::Null))
}
