//! AdmissionRequests as the engine gets them, without the AdmissionReview around them.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use stateful_failover::rehearsal::admission_request;

/// The request that writes `object`: an UPDATE of `old_object`, or a CREATE where that is null.
pub fn write(object: &Value, old_object: &Value) -> Value {
    admission_request(object.clone(), old_object.clone())
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
