//! The shell for browsers and Node: the core behind a few functions on JSON text. `playground/policy` adds types.
//!
//! The functions take and return text, since a JavaScript number can't hold every number of a Kubernetes object. Each
//! answer is `{"value": …}`, or `{"problems": [{"path", "message"}]}` where the input can't be used: `path` says where,
//! as in the errors of the settings.

use serde::Serialize;
use serde_json::Value;
use wasm_bindgen::prelude::wasm_bindgen;

use crate::cluster::Objects;
use crate::history::History;
use crate::jsonpath::{Budget, JsonPath, JsonPathError};
use crate::karmada::Binding;
use crate::messages::chain;
use crate::rehearsal::Step;
use crate::rehearsal::scenario::{Act, Outcome as PlayOutcome, Scenario};
use crate::settings::reader::Problem;
use crate::verdict::{Outcome, Verdict};
use crate::{Request, Settings};

/// Decides an admission request: `request` is an AdmissionRequest, `settings` are the policy's, `objects` is a list of
/// what lookups find. The value: `{"allowed", "message", "code", "object", "warnings", "auditAnnotations", "notes"}`,
/// where `object` is the text of the changed object.
#[wasm_bindgen]
pub fn evaluate(request: &str, settings: &str, objects: &str) -> String {
    answer(|| {
        let request = Request::from_json(request).map_err(|error| problem("request", chain(&error)))?;
        let settings = read_settings(settings)?;
        let objects = read_objects(objects)?;
        Ok(Decision::from(crate::evaluate(&request, &settings, &objects)))
    })
}

/// Checks settings. The value: a list of `{"path", "message"}`, empty where they are valid.
#[wasm_bindgen(js_name = validateSettings)]
pub fn validate_settings(settings: &str) -> String {
    answer(|| {
        let settings = read("settings", settings)?;
        let problems = Settings::from_json(&settings).err().map(|error| error.0).unwrap_or_default();
        Ok(problems.into_iter().map(Located::from).collect::<Vec<_>>())
    })
}

/// Evaluates the `jsonPath` of a state rule on a document, which for a rule is the status. The value: `{"text": "what
/// kubectl prints", "hasValue": true}`, or `{"error": "…", "position": 1}`, with the position, in characters from 1,
/// where the template is wrong, and without one where it does not fit the document.
#[wasm_bindgen(js_name = jsonPath)]
pub fn json_path(template: &str, document: &str) -> String {
    answer(|| {
        let document = read("document", document)?;
        let result = JsonPath::from_settings(template).and_then(|json_path| {
            let has_value = json_path.value(&document, &mut Budget::default())?.is_some();
            Ok(Printed { text: Some(json_path.print(&document)?), has_value, ..Printed::default() })
        });
        Ok(result.unwrap_or_else(|error| {
            let position = match &error {
                JsonPathError::Parse { position, .. } => Some(*position),
                JsonPathError::Execute(_) => None,
            };
            Printed { error: Some(chain(&error)), position, ..Printed::default() }
        }))
    })
}

/// The failover history of a ResourceBinding or ClusterResourceBinding. The value: its records, oldest first, as in the
/// annotation `stateful-failover/history`.
#[wasm_bindgen]
pub fn history(binding: &str) -> String {
    answer(|| {
        let binding = read("binding", binding)?;
        let history = History::read(&binding);
        let mut history = history.map_err(|error| problem("binding.metadata.annotations", chain(&error)))?;
        // Statuses change without a request that the policy sees.
        history.update(Binding::new(&binding), Binding::new(&binding));
        Ok(history.records().to_vec())
    })
}

/// Rehearses a [`Scenario`] with the policy, and with Karmada alone. The value: `{"acts", "outcome", "karmadaAlone"}`.
#[wasm_bindgen]
pub fn play(scenario: &str, settings: &str, objects: &str) -> String {
    answer(|| {
        let scenario = read("scenario", scenario)?;
        let scenario: Scenario =
            serde_json::from_value(scenario).map_err(|error| problem("scenario", error.to_string()))?;
        let settings = read_settings(settings)?;
        let objects = read_objects(objects)?;
        let play = scenario.play(Some(&settings), &objects);
        let karmada_alone = scenario.play(None, &objects).outcome;
        let acts = play.acts.into_iter().map(|played| {
            let text = |step: &Step, key| step.request.get(key).map(Value::to_string).unwrap_or_default();
            let step = played.step.map(|step| Evaluated {
                object: text(&step, "object"),
                is_create: step.request.get("operation") == Some(&Value::from("CREATE")),
                stored: step.stored().map(Value::to_string),
                request: step.request.to_string(),
                verdict: step.verdict.into(),
            });
            PlayedAct { act: played.act, clusters: played.clusters, step, binding: played.binding.to_string() }
        });
        Ok(Played { acts: acts.collect(), outcome: play.outcome.into(), karmada_alone: karmada_alone.into() })
    })
}

/// The JSON form of a verdict.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Decision {
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    warnings: Vec<String>,
    audit_annotations: std::collections::BTreeMap<&'static str, String>,
    notes: Vec<String>,
}

impl<Object: ToString> From<Verdict<Object>> for Decision {
    fn from(verdict: Verdict<Object>) -> Self {
        let Verdict { outcome, warnings, audit_annotations, notes } = verdict;
        let (allowed, message, code, object) = match outcome {
            Outcome::Accept => (true, None, None, None),
            Outcome::Mutate(object) => (true, None, None, Some(object.to_string())),
            Outcome::Deny { message, code } => (false, Some(message), Some(code), None),
        };
        Self { allowed, message, code, object, warnings, audit_annotations, notes }
    }
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    has_value: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<usize>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Played {
    acts: Vec<PlayedAct>,
    outcome: Ending,
    karmada_alone: Ending,
}

#[derive(Serialize)]
struct PlayedAct {
    act: Act,
    clusters: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Evaluated>,
    binding: String,
}

/// A request and its answer, with objects as text.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Evaluated {
    request: String,
    object: String,
    is_create: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    stored: Option<String>,
    verdict: Decision,
}

/// How a rehearsal ended, with objects as text.
#[derive(Serialize)]
struct Ending {
    #[serde(flatten)]
    outcome: PlayOutcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    synced: Option<String>,
}

impl From<PlayOutcome> for Ending {
    fn from(mut outcome: PlayOutcome) -> Self {
        let started = outcome.started.take().map(|object| object.to_string());
        let synced = outcome.synced.take().map(|object| object.to_string());
        Self { outcome, started, synced }
    }
}

/// What is wrong, and where.
#[derive(Serialize)]
struct Located {
    path: String,
    message: String,
}

impl From<Problem> for Located {
    fn from(problem: Problem) -> Self {
        let path = if problem.path().is_empty() { "settings" } else { problem.path() };
        Self { path: path.to_owned(), message: problem.message().to_owned() }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Answer<T> {
    Value(T),
    Problems(Vec<Located>),
}

fn answer<T: Serialize>(run: impl FnOnce() -> Result<T, Vec<Located>>) -> String {
    let answer = run().map_or_else(Answer::Problems, Answer::Value);
    serde_json::to_string(&answer).unwrap_or_default()
}

fn problem(path: &str, message: String) -> Vec<Located> {
    vec![Located { path: path.to_owned(), message }]
}

fn read(path: &str, text: &str) -> Result<Value, Vec<Located>> {
    serde_json::from_str(text).map_err(|error| problem(path, error.to_string()))
}

fn read_settings(text: &str) -> Result<Settings, Vec<Located>> {
    let settings = read("settings", text)?;
    Settings::from_json(&settings).map_err(|error| error.0.into_iter().map(Located::from).collect())
}

fn read_objects(text: &str) -> Result<Objects, Vec<Located>> {
    match read("objects", text)? {
        Value::Array(objects) => Ok(Objects(objects)),
        Value::Null => Ok(Objects(Vec::new())),
        _ => Err(problem("objects", "is no list of objects".to_owned())),
    }
}
