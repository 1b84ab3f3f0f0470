//! Recorded admission requests of real failovers.

use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

/// One recorded request.
#[derive(Debug, Clone, Deserialize)]
pub struct Recorded {
    /// The API server that it was sent to: `karmada`, or the name of a member cluster.
    pub apiserver: String,
    /// The AdmissionRequest.
    pub request: Value,
}

impl Recorded {
    /// A string of the request.
    pub fn text(&self, path: &str) -> &str {
        self.request.pointer(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// The key of the object: API server, kind, namespace and name.
    pub fn key(&self) -> Key {
        Key {
            apiserver: self.apiserver.clone(),
            kind: self.text("/kind/kind").to_owned(),
            namespace: self.text("/namespace").to_owned(),
            name: self.text("/name").to_owned(),
        }
    }

    /// Whether the request is a CREATE.
    pub fn is_create(&self) -> bool {
        self.text("/operation") == "CREATE"
    }
}

/// The identity of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The API server.
    pub apiserver: String,
    /// The kind.
    pub kind: String,
    /// Empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// Reads a recording: one request a line.
///
/// # Errors
/// The file can't be read, or a line is not a request. The error names the line.
pub fn read(path: &Path) -> Result<Vec<Recorded>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines
        .map(|(index, line)| {
            serde_json::from_str(line).with_context(|| format!("{}: line {}", path.display(), index + 1))
        })
        .collect()
}

/// Which requests the API server stored. It answered some with a conflict after admission, and the controller sent them
/// again.
///
/// A request was stored if it was for the stored version, and the next request for the object has its content as the
/// stored object; of several equal attempts on the same version, only the last was. The last request for an object was
/// stored.
pub fn stored(recording: &[Recorded]) -> Vec<bool> {
    let version = |request: &Value, which: &str| {
        request.pointer(&format!("/{which}/metadata/resourceVersion")).and_then(Value::as_str).map(str::to_owned)
    };
    let mut stored = vec![false; recording.len()];
    for (index, recorded) in recording.iter().enumerate() {
        let old = version(&recorded.request, "oldObject");
        if !recorded.is_create() && version(&recorded.request, "object") != old {
            continue;
        }
        let later = || recording.iter().enumerate().skip(index + 1).filter(|(_, later)| later.key() == recorded.key());
        let same_version = |later: &Recorded| {
            later.is_create() == recorded.is_create()
                && version(&later.request, "oldObject") == old
                && version(&later.request, "object") == version(&recorded.request, "object")
        };
        let next = later().map(|(_, later)| later).find(|later| !same_version(later));
        // A CREATE after a deletion does not show what was stored before; and API servers add defaults to created
        // objects.
        let found = next
            .filter(|next| !next.is_create() && !recorded.is_create())
            .map(|next| content(&next.request["oldObject"]));
        let fits =
            |candidate: &Recorded| found.as_ref().is_none_or(|found| *found == content(&candidate.request["object"]));
        let is_repeated = later().take_while(|(_, later)| same_version(later)).any(|(_, later)| fits(later));
        stored[index] = fits(recorded) && !is_repeated;
    }
    stored
}

/// The part of an object that a request decides, without the status and the fields that the server sets.
fn content(object: &Value) -> Value {
    let mut content = object.clone();
    if let Some(fields) = content.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = content.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| matches!(key.as_str(), "labels" | "annotations" | "finalizers"));
    }
    content
}
