//! Reads and writes labels and annotations of any object.

use serde_json::{Map, Value};
use thiserror::Error;

use crate::json::Fields;

/// Labels, annotations and the scalar fields of the metadata: name, namespace, deletionTimestamp.
pub fn fields<'a>() -> Fields<'a> {
    Fields::of(&["metadata.labels", "metadata.annotations"])
}

/// The metadata can't hold a label or annotation.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{path}` is {found}, expected an object")]
pub struct MetadataError {
    path: &'static str,
    found: &'static str,
}

/// Whether the object is being deleted.
pub fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null())
}

/// Value of the label `key`, if it is a string.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Value of the annotation `key`, if it is a string.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Maximum size of all annotations of an object, keys and values together, in bytes.
/// Source: `k8s.io/apimachinery/pkg/api/validation`, `TotalAnnotationSizeLimitB`.
pub const MAX_ANNOTATIONS: usize = 256 * 1024;

/// How many bytes the object's other annotations leave for the value of the annotation `key`.
pub fn annotations_left(object: &Value, key: &str) -> usize {
    let annotations = object.pointer("/metadata/annotations").and_then(Value::as_object);
    let others = annotations.into_iter().flatten().filter(|(other, _)| *other != key);
    let taken: usize = others.map(|(key, value)| key.len() + value.as_str().map_or(0, str::len)).sum();
    MAX_ANNOTATIONS.saturating_sub(taken + key.len())
}

/// Writes the label `key`. `metadata` and `labels` are created where they are absent or null.
///
/// # Errors
/// One of them is not an object.
pub fn set_label(object: &mut Value, key: &str, value: &str) -> Result<(), MetadataError> {
    let labels = child(metadata(object)?, "labels", "metadata.labels")?;
    labels.insert(key.to_owned(), Value::from(value));
    Ok(())
}

/// Writes the annotation `key`. `metadata` and `annotations` are created where they are absent or null.
///
/// # Errors
/// One of them is not an object.
pub fn set_annotation(object: &mut Value, key: &str, value: String) -> Result<(), MetadataError> {
    let annotations = child(metadata(object)?, "annotations", "metadata.annotations")?;
    annotations.insert(key.to_owned(), Value::from(value));
    Ok(())
}

/// Removes the annotation `key`.
pub fn remove_annotation(object: &mut Value, key: &str) {
    if let Some(Value::Object(annotations)) = object.pointer_mut("/metadata/annotations") {
        annotations.remove(key);
    }
}

fn metadata(object: &mut Value) -> Result<&mut Map<String, Value>, MetadataError> {
    let found = type_name(object);
    let Value::Object(object) = object else {
        return Err(MetadataError { path: "the object", found });
    };
    child(object, "metadata", "metadata")
}

fn child<'a>(
    parent: &'a mut Map<String, Value>,
    key: &str,
    path: &'static str,
) -> Result<&'a mut Map<String, Value>, MetadataError> {
    let value = parent.entry(key).or_insert(Value::Null);
    if value.is_null() {
        *value = Value::Object(Map::new());
    }
    let found = type_name(value);
    match value {
        Value::Object(map) => Ok(map),
        _ => Err(MetadataError { path, found }),
    }
}

/// The type of a value for messages: `a string`, `a list`, …
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
