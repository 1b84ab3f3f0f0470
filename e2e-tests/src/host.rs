//! The host of the policy: it answers lookups as the policy server's `kubernetes/get_resource` does, from objects in
//! memory.

use std::fmt;
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stateful_failover::cluster::{Cluster, Get, LookupError};
use stateful_failover::guest::host::classify;

/// A lookup as the host sees it. Source: `kubewarden/policy-sdk-rust`, `GetResourceRequest`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lookup {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// PascalCase.
    pub kind: String,
    /// Name of the object.
    pub name: String,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<String>,
    /// Whether the host must ask the API server.
    pub disable_cache: bool,
    /// The requested fields.
    pub field_masks: Option<Vec<String>>,
}

impl Lookup {
    fn is_for(&self, object: &Value) -> bool {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str);
        text("/apiVersion") == Some(&self.api_version)
            && text("/kind") == Some(&self.kind)
            && text("/metadata/name") == Some(&self.name)
            && text("/metadata/namespace") == self.namespace.as_deref()
    }
}

/// `Kind namespace/name (fields)`, with `cached` where the host may answer from its cache.
impl fmt::Display for Lookup {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, namespace, disable_cache, field_masks, .. } = self;
        let namespace = namespace.iter().map(|namespace| format!("{namespace}/")).collect::<String>();
        let fields = field_masks.as_deref().unwrap_or_default().join(", ");
        let cached = if *disable_cache { "" } else { ", cached" };
        write!(formatter, "{kind} {namespace}{name} ({fields}{cached})")
    }
}

/// The host's answer to a lookup: the text of an object, or an error.
pub type LookupResult = Result<String, String>;

/// The cluster that the host is connected to.
#[derive(Debug, Default)]
pub struct Host {
    /// The objects of the cluster.
    pub objects: Vec<Value>,
    /// The answer to every lookup, in place of `objects`.
    pub fixed: Option<LookupResult>,
    lookups: Mutex<Vec<Lookup>>,
    log: Mutex<Vec<String>>,
}

impl Host {
    /// A host with these objects.
    pub fn new(objects: Vec<Value>) -> Self {
        Self { objects, ..Self::default() }
    }

    /// A host that gives this answer to every lookup.
    pub fn fixed(answer: LookupResult) -> Self {
        Self { fixed: Some(answer), ..Self::default() }
    }

    /// The lookups so far.
    pub fn lookups(&self) -> Vec<Lookup> {
        self.lookups.lock().expect("no test panics while it holds the lock").clone()
    }

    /// Whether a lookup was for that object.
    pub fn was_looked_up(&self, object: &Value) -> bool {
        self.lookups().iter().any(|lookup| lookup.is_for(object))
    }

    /// What the policy logged so far.
    pub fn log(&self) -> Vec<String> {
        self.log.lock().expect("no test panics while it holds the lock").clone()
    }

    /// Answers a host call as the policy server does, including the texts of its errors.
    /// Source: `kubewarden/adm-controller`, `crates/policy-evaluator/src/runtimes/callback.rs`.
    ///
    /// # Errors
    /// The error's text, as the policy gets it.
    pub fn call(&self, binding: &str, namespace: &str, operation: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
        match (binding, namespace, operation) {
            ("kubewarden", "kubernetes", "get_resource") => {
                let lookup: Lookup = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
                let answer = self.get_resource(&lookup)?;
                Ok(answer.into_bytes())
            }
            ("kubewarden", "tracing", "log") => {
                let line: Value = serde_json::from_slice(payload).map_err(|error| error.to_string())?;
                if line["level"] != "debug" {
                    return Err(format!("not at debug level: {line}"));
                }
                self.note(line["message"].as_str().unwrap_or_default());
                Ok(Vec::new())
            }
            other => Err(format!("unexpected host call: {other:?}")),
        }
    }

    /// Records a line of the policy's log.
    pub fn note(&self, line: &str) {
        self.log.lock().expect("no test panics while it holds the lock").push(line.to_owned());
    }

    fn get_resource(&self, lookup: &Lookup) -> LookupResult {
        self.lookups.lock().expect("no test panics while it holds the lock").push(lookup.clone());
        match &self.fixed {
            Some(Ok(text)) => return Ok(text.clone()),
            Some(Err(error)) => return Err(format!("Callback evaluation failure: {error}")),
            None => {}
        }
        match self.objects.iter().find(|object| lookup.is_for(object)) {
            Some(object) => Ok(masked(object, lookup.field_masks.as_deref()).to_string()),
            None => Err(format!(
                "Callback evaluation failure: Cannot find {}/{} named '{}' inside of namespace '{:?}'",
                lookup.api_version, lookup.kind, lookup.name, lookup.namespace
            )),
        }
    }
}

/// `object` with only the masked fields, apiVersion, kind and metadata. In a list, a mask applies to every item.
/// Source: `kubewarden/adm-controller`, `crates/policy-evaluator/src/callback_handler/kubernetes`, field masks.
fn masked(object: &Value, masks: Option<&[String]>) -> Value {
    let Some(masks) = masks.filter(|masks| !masks.is_empty()) else { return object.clone() };
    let masks: Vec<Vec<&str>> = masks.iter().map(|mask| mask.split('.').collect()).collect();
    let mut pruned = prune(object, &masks);
    if let (Value::Object(pruned), Value::Object(object)) = (&mut pruned, object) {
        for key in ["apiVersion", "kind", "metadata"] {
            pruned.extend(object.get(key).map(|value| (key.to_owned(), value.clone())));
        }
    }
    pruned
}

fn prune(value: &Value, masks: &[Vec<&str>]) -> Value {
    if masks.iter().any(Vec::is_empty) {
        return value.clone();
    }
    match value {
        Value::Array(items) => items.iter().map(|item| prune(item, masks)).collect(),
        Value::Object(fields) => {
            let mut pruned = Map::new();
            for (key, value) in fields {
                let below: Vec<Vec<&str>> =
                    masks.iter().filter(|mask| mask[0] == key).map(|mask| mask[1..].to_vec()).collect();
                if !below.is_empty() {
                    pruned.insert(key.clone(), prune(value, &below));
                }
            }
            Value::Object(pruned)
        }
        other => other.clone(),
    }
}

impl Cluster for &Host {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        let lookup = Lookup {
            api_version: object.api_version.to_owned(),
            kind: object.kind.to_owned(),
            name: object.name.to_owned(),
            namespace: object.namespace.map(str::to_owned),
            disable_cache: true,
            field_masks: Some(object.fields.iter().map(|&field| field.to_owned()).collect()),
        };
        match self.get_resource(&lookup) {
            Ok(text) => object.read(text.as_bytes()).map(Some),
            Err(message) => classify(&message, object),
        }
    }
}
