//! Checks what restore rules do with their paths.

use serde_json::Value;
use thiserror::Error;

use crate::messages::quote;
use crate::restore::path::{Path, Segment};
use crate::state;

/// Why a rule can't use a path in this way.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum PathUseError {
    #[error("{0} can't be changed by a rule: {1}")]
    Forbidden(String, &'static str),
    #[error("{0} would change the key its own selector matches on; set other fields of the entry")]
    SelectorKey(String),
    #[error(
        "{0} removes entries by index, which is not repeatable; select one with `[key=value]`, or remove the whole list or map"
    )]
    RemovedIndex(String),
}

/// Checks that a rule may write to `path`.
///
/// # Errors
/// [`PathUseError::Forbidden`] for fields that identify the object, and fields of the API server and of this policy.
pub(super) fn check_target(path: &Path) -> Result<(), PathUseError> {
    let key = |index: usize| match path.segments().get(index) {
        Some(Segment::Key(key)) => Some(key.as_str()),
        _ => None,
    };
    let why = match (key(0), key(1), key(2)) {
        (Some("apiVersion" | "kind"), ..) => "it says what the object is",
        (Some("status"), ..) => "the API server drops it from such requests",
        (Some("metadata"), None, _) => "name the label or annotation in it",
        (Some("metadata"), Some("labels" | "annotations"), None) => "name the label or annotation in it",
        (Some("metadata"), Some("labels" | "annotations"), Some(own)) if own.starts_with(state::PREFIX) => {
            "it is this policy's own"
        }
        (Some("metadata"), Some("labels" | "annotations"), _) => return Ok(()),
        (Some("metadata"), Some(_), _) => "it is the API server's own",
        (None, ..) => "name a field of the object",
        _ => return Ok(()),
    };
    Err(PathUseError::Forbidden(quote(&path.to_string()), why))
}

/// Checks that writing to `path` (`None`: removing it) does not change the fields by which the path's selectors find
/// their entries. A whole entry may be written if it has these fields.
///
/// # Errors
/// [`PathUseError::SelectorKey`].
pub(super) fn check_selectors(path: &Path, written: Option<&Value>) -> Result<(), PathUseError> {
    let segments = path.segments();
    for (index, segment) in segments.iter().enumerate() {
        let Segment::Select(selector) = segment else { continue };
        let below: Vec<&Segment> = segments.iter().skip(index + 1).collect();
        // Whether the written value is the key, a part of it, or contains it.
        let is_key = |keys: &[String]| {
            !below.is_empty()
                && keys.iter().zip(&below).all(|(key, below)| match below {
                    Segment::Key(below) => below == key,
                    _ => true,
                })
        };
        let is_kept = match (below.is_empty(), written) {
            (true, Some(entry)) => selector.matches(entry),
            _ => !selector.keys().any(is_key),
        };
        if !is_kept {
            return Err(PathUseError::SelectorKey(quote(&path.to_string())));
        }
    }
    Ok(())
}

/// Checks that `path` can be removed. A list entry can be removed by its keys but not by its index: applying the rule
/// twice would remove two entries.
///
/// # Errors
/// [`PathUseError::RemovedIndex`].
pub(super) fn check_removed(path: &Path) -> Result<(), PathUseError> {
    match path.segments().last() {
        Some(Segment::Key(key)) if !key.bytes().all(|b| b.is_ascii_digit()) || key.is_empty() => Ok(()),
        Some(Segment::Select(_)) => Ok(()),
        _ => Err(PathUseError::RemovedIndex(quote(&path.to_string()))),
    }
}
