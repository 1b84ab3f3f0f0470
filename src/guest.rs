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

/// Called by the host once the module is instantiated.
#[expect(unsafe_code, reason = "the engine finds the function by its unmangled name")]
#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("validate", validate);
    register_function("validate_settings", validate_settings);
    register_function("protocol_version", protocol_version_guest);
}

/// Decides a request. Whatever is wrong with the payload is a denial with a message; an error here would be an internal
/// error of the server to the user.
pub fn validate(payload: &[u8]) -> CallResult {
    let verdict = decide(payload, &HostCluster);
    for note in &verdict.notes {
        // Log lines are filtered on the host, so each costs a call; notes are few.
        log_debug(note);
    }
    respond(verdict)
}

/// Where the response has no object.
const NO_OBJECT: &str = r#""mutated_object":null"#;
const OBJECT: &str = r#""mutated_object":"#;

/// The response in the form of the SDK, with the object's text as it is.
///
/// # Errors
/// The SDK's form has changed.
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
    // The object may be most of the memory that there is: the rest is put around it, where its text left room.
    object.insert_str(0, &format!("{before}{OBJECT}"));
    object.push_str(after);
    Ok(object.into_bytes())
}

/// Checks settings, and reports all that is wrong with them.
pub fn validate_settings(payload: &[u8]) -> CallResult {
    let text = std::str::from_utf8(payload).map_err(|error| format!("the settings are not valid JSON: {error}"));
    let settings = text.and_then(|text| {
        serde_json::from_str(text).map_err(|error| format!("the settings are not valid JSON: {error}"))
    });
    let checked = settings.and_then(|settings| Settings::from_json(&settings).map_err(|error| error.to_string()));
    let response = SettingsValidationResponse { valid: checked.is_ok(), message: checked.err() };
    Ok(serde_json::to_vec(&response)?)
}

/// A line at debug level of the policy server's log. Source: `kubewarden/policy-sdk-rust`, `src/logging.rs`, for the form.
fn log_debug(note: &str) {
    let line = json_value!({
        "level": "debug", "message": note, "policy": env!("CARGO_PKG_NAME"), "file": file!(), "line": line!(), "column": column!(),
    });
    // A host that takes no log lines must not fail a request.
    let _ = host_call("kubewarden", "tracing", "log", line.to_string().as_bytes());
}
