//! Kind and name of an object, as rules match them and messages print them.

use std::fmt;

use serde_json::Value;

use crate::messages::{quote, shown};

/// An object by group, kind and name. It is printed as ``Kind `namespace/name` ``.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectReference<'a> {
    /// API group, empty for the core group. There is no version, since the object is the same in each.
    pub group: &'a str,
    /// PascalCase.
    pub kind: &'a str,
    /// Empty for cluster-scoped kinds.
    pub namespace: &'a str,
    /// Empty for an object that gets its name from the API server (`generateName`).
    pub name: &'a str,
}

impl<'a> ObjectReference<'a> {
    /// The reference in `{apiVersion, kind, namespace, name}`, as `spec.resource` of a binding has it.
    pub fn new(reference: &'a Value) -> Self {
        Self {
            group: group(text(reference, "apiVersion")),
            kind: text(reference, "kind"),
            namespace: text(reference, "namespace"),
            name: text(reference, "name"),
        }
    }

    /// The reference of a whole object.
    pub fn of(object: &'a Value) -> Self {
        let metadata = object.get("metadata").unwrap_or(&Value::Null);
        Self {
            group: group(text(object, "apiVersion")),
            kind: text(object, "kind"),
            namespace: text(metadata, "namespace"),
            name: text(metadata, "name"),
        }
    }
}

impl fmt::Display for ObjectReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let separator = if self.namespace.is_empty() { "" } else { "/" };
        let name = if self.name.is_empty() { "(unnamed)" } else { self.name };
        write!(f, "{} {}", shown(self.kind), quote(&format!("{}{separator}{name}", self.namespace)))
    }
}

/// The group of an apiVersion: `apps` of `apps/v1`, empty of `v1`.
pub fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}
