//! The shell of the waPC engines (the policy server, `kwctl`): decodes what the host sends, and encodes the verdict.

pub mod host;

use kubewarden_policy_sdk::protocol_version_guest;
pub use kubewarden_policy_sdk::response::ValidationResponse;
use kubewarden_policy_sdk::settings::SettingsValidationResponse;
use kubewarden_policy_sdk::wapc_guest::{CallResult, host_call, register_function};
use serde::Deserialize;
use serde_json::json as json_value;
use serde_json::value::RawValue;

use crate::verdict::{Outcome, Verdict};
use crate::{Request, Settings, Stage, evaluate, json};
use host::Host;

/// Called by the host once the module is instantiated.
#[expect(unsafe_code, reason = "the engine finds the function by its unmangled name")]
#[unsafe(no_mangle)]
pub extern "C" fn wapc_init() {
    register_function("validate", validate);
    register_function("validate_settings", validate_settings);
    register_function("protocol_version", protocol_version_guest);
}

/// What the host calls `validate` with.
#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    request: Request<'a>,
    #[serde(borrow, default)]
    settings: Option<&'a RawValue>,
}

/// Decides a request. Whatever is wrong with the payload is a denial with a message; an error here would be an internal
/// error of the server to the user.
pub fn validate(payload: &[u8]) -> CallResult {
    let verdict = decide(payload);
    for note in &verdict.notes {
        // Log lines are filtered on the host, so each costs a call; notes are few.
        log_debug(note);
    }
    Ok(serde_json::to_vec(&ValidationResponse::from(verdict))?)
}

fn decide(payload: &[u8]) -> Verdict {
    let payload: Payload<'_> = match serde_json::from_slice(payload) {
        Ok(payload) => payload,
        Err(error) => {
            return Verdict::deny(format!("cannot read the request that the policy engine sent: {error}"));
        }
    };
    let Payload { request, settings } = payload;
    // What no stage reads is let go before anything else is parsed.
    if !request.is_write() {
        return Verdict::accept();
    }
    let settings = settings.map_or("null", RawValue::get);
    if Stage::of(&request) == Stage::Restore && !Settings::may_restore(settings, &request) {
        return Verdict::accept();
    }
    let settings = match json::parse(settings) {
        Ok(settings) => settings,
        Err(error) => return Verdict::deny(format!("cannot read the policy's settings: {error}")),
    };
    match Settings::for_request(&settings, &request) {
        Ok(settings) => evaluate(&request, &settings, &Host),
        Err(error) => Verdict::deny(format!("the policy's settings are not valid: {error}")),
    }
}

/// Checks settings, and reports all that is wrong with them.
pub fn validate_settings(payload: &[u8]) -> CallResult {
    let text = std::str::from_utf8(payload).map_err(|error| format!("the settings are not valid JSON: {error}"));
    let settings =
        text.and_then(|text| json::parse(text).map_err(|error| format!("the settings are not valid JSON: {error}")));
    let checked = settings.and_then(|settings| Settings::from_json(&settings).map_err(|error| error.to_string()));
    let response = SettingsValidationResponse { valid: checked.is_ok(), message: checked.err() };
    Ok(serde_json::to_vec(&response)?)
}

/// A line at debug level of the policy server's log. Source: `kubewarden/policy-sdk-rust`, `src/logging.rs`, for the form.
fn log_debug(note: &str) {
    let line = json_value!({
        "level": "debug", "message": note, "policy": env!("CARGO_PKG_NAME"), "file": file!(), "line": line!(), "column": column!(),
    });
    // A host that takes no log lines is no reason to fail a request.
    let _ = host_call("kubewarden", "tracing", "log", line.to_string().as_bytes());
}

impl From<Verdict> for ValidationResponse {
    fn from(verdict: Verdict) -> Self {
        let (message, code, mutated_object) = match verdict.outcome {
            Outcome::Accept => (None, None, None),
            Outcome::Mutate(object) => (None, None, Some(object)),
            Outcome::Deny { message, code } => (Some(message), Some(code), None),
        };
        let audit_annotations = verdict.audit_annotations.into_iter().map(|(stage, text)| (stage.to_owned(), text));
        Self {
            accepted: message.is_none(),
            message,
            code,
            mutated_object,
            audit_annotations: Some(audit_annotations.collect())
                .filter(|annotations: &std::collections::HashMap<_, _>| !annotations.is_empty()),
            warnings: Some(verdict.warnings).filter(|warnings| !warnings.is_empty()),
        }
    }
}
