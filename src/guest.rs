//! The shell of the waPC engines (the policy server, `kwctl`): decodes what the host sends, and encodes the verdict.

pub mod host;

use kubewarden_policy_sdk::protocol_version_guest;
pub use kubewarden_policy_sdk::response::ValidationResponse;
use kubewarden_policy_sdk::settings::SettingsValidationResponse;
use kubewarden_policy_sdk::wapc_guest::{CallResult, host_call, register_function};
use serde_json::json as json_value;

use crate::verdict::{Outcome, Verdict};
use crate::{Settings, decide};
use host::HostCluster;

/// Called by the host after it has instantiated the module.
#[expect(unsafe_code, reason = "the engine finds the function by its unmangled name")]
#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("validate", validate);
    register_function("validate_settings", validate_settings);
    register_function("protocol_version", protocol_version_guest);
}

/// Decides a request. An invalid payload is denied with a message: if this function returned an error, the user would
/// see an internal error of the policy server.
pub fn validate(payload: &[u8]) -> CallResult {
    let verdict = decide(payload, &HostCluster);
    for note in &verdict.notes {
        // The host filters log lines, so each costs a call; there are few notes.
        log_debug(note);
    }
    respond(verdict)
}

/// The field in a response without an object.
const NO_OBJECT: &str = r#""mutated_object":null"#;
const OBJECT: &str = r#""mutated_object":"#;

/// The SDK's response, with the object's text inserted unchanged.
///
/// # Errors
/// The SDK serializes its response in another way.
pub fn respond(verdict: Verdict<String>) -> CallResult {
    let (message, code, object) = match verdict.outcome {
        Outcome::Accept => (None, None, None),
        Outcome::Mutate(object) => (None, None, Some(object)),
        Outcome::Deny { message, code } => (Some(message), Some(code), None),
    };
    let audit_annotations = verdict.audit_annotations.into_iter().map(|(stage, text)| (stage.to_owned(), text));
    let response = serde_json::to_string(&ValidationResponse {
        accepted: message.is_none(),
        message,
        code,
        mutated_object: None,
        audit_annotations: Some(audit_annotations.collect())
            .filter(|annotations: &std::collections::HashMap<_, _>| !annotations.is_empty()),
        warnings: Some(verdict.warnings).filter(|warnings| !warnings.is_empty()),
    })?;
    let Some(mut object) = object else { return Ok(response.into_bytes()) };
    let (before, after) = response.split_once(NO_OBJECT).ok_or("the SDK's response has no mutated_object")?;
    // The object may take most of the memory, so the rest of the response is added to its text.
    object.insert_str(0, &format!("{before}{OBJECT}"));
    object.push_str(after);
    Ok(object.into_bytes())
}

/// Checks settings and reports every error.
pub fn validate_settings(payload: &[u8]) -> CallResult {
    let text = std::str::from_utf8(payload).map_err(|error| format!("the settings are not valid JSON: {error}"));
    let settings = text.and_then(|text| {
        serde_json::from_str(text).map_err(|error| format!("the settings are not valid JSON: {error}"))
    });
    let checked = settings.and_then(|settings| Settings::from_json(&settings).map_err(|error| error.to_string()));
    let response = SettingsValidationResponse { valid: checked.is_ok(), message: checked.err() };
    Ok(serde_json::to_vec(&response)?)
}

/// Writes a line into the policy server's log, at level debug. Source of its form: `kubewarden/policy-sdk-rust`,
/// `src/logging.rs`.
fn log_debug(note: &str) {
    let line = json_value!({
        "level": "debug", "message": note, "policy": env!("CARGO_PKG_NAME"), "file": file!(), "line": line!(), "column": column!(),
    });
    // A request must not fail because the host takes no log lines.
    let _ = host_call("kubewarden", "tracing", "log", line.to_string().as_bytes());
}
