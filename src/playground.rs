//! The shell of the browser: one call, with everything in JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::cluster::{Cluster, Get, LookupError};
use crate::karmada::ObjectReference;
use crate::verdict::{Outcome, Verdict, chain};
use crate::{Request, Settings};

/// What the page sends.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    request: Value,
    #[serde(default)]
    settings: Value,
    /// What lookups find.
    #[serde(default)]
    objects: Vec<Value>,
}

/// What the page shows.
#[derive(Serialize)]
#[serde(rename_all = "camelCase", tag = "type")]
enum Output {
    Success {
        allowed: bool,
        message: Option<String>,
        object: Option<Value>,
        warnings: Vec<String>,
        audit_annotations: std::collections::BTreeMap<&'static str, String>,
        notes: Vec<String>,
    },
    Failure {
        message: String,
    },
}

/// Decides the admission request in `{"request", "settings", "objects"}`; the answer is JSON too:
/// `{"type": "success", "allowed", "message", "object", "warnings", "audit_annotations", "notes"}` or
/// `{"type": "failure", "message"}` where the input can't be used.
#[wasm_bindgen]
pub fn evaluate(input: &str) -> String {
    let output = run(input).unwrap_or_else(|message| Output::Failure { message });
    serde_json::to_string(&output).unwrap_or_default()
}

fn run(input: &str) -> Result<Output, String> {
    let input: Input = serde_json::from_str(input).map_err(|error| format!("the input is not valid: {error}"))?;
    let settings = Settings::from_json(&input.settings).map_err(|error| error.to_string())?;
    let request = input.request.to_string();
    let request = Request::from_json(&request).map_err(|error| chain(&error))?;
    let Verdict { outcome, warnings, audit_annotations, notes } =
        crate::evaluate(&request, &settings, &Objects(input.objects));
    let (allowed, message, object) = match outcome {
        Outcome::Accept => (true, None, None),
        Outcome::Mutate(object) => (true, None, Some(object)),
        Outcome::Deny { message, .. } => (false, Some(message), None),
    };
    Ok(Output::Success { allowed, message, object, warnings, audit_annotations, notes })
}

/// A cluster of the objects that the page was given.
struct Objects(Vec<Value>);

impl Cluster for Objects {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        let is_it = |candidate: &&Value| {
            let reference = ObjectReference::of(candidate);
            reference.kind == object.kind
                && reference.name == object.name
                && reference.namespace == object.namespace.unwrap_or_default()
                && candidate.get("apiVersion").and_then(Value::as_str) == Some(object.api_version)
        };
        Ok(self.0.iter().find(is_it).cloned())
    }
}
