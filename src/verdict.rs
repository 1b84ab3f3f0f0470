//! The policy's answer to a request.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::messages::cut;

/// Maximum length of a denial's message and of an audit annotation, in characters.
const MAX_MESSAGE: usize = 4096;
/// Maximum number of warnings, and of notes.
const MAX_LINES: usize = 16;

/// What happens to the request. The object is a [`Value`] inside the policy, and JSON text in its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<Object = Value> {
    /// The request is accepted unchanged.
    Accept,
    /// The request is accepted with this object, which differs from the request's.
    Mutate(Object),
    /// The request is denied.
    Deny {
        /// For the operator who reads it in `kubectl` output or in a Karmada event.
        message: String,
        /// HTTP status code of the answer.
        code: u16,
    },
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict<Object = Value> {
    /// What happens to the request.
    pub outcome: Outcome<Object>,
    /// Shown to the client, whether the request is accepted or denied; at most
    /// [`MAX_WARNING`](crate::messages::MAX_WARNING) characters each.
    pub warnings: Vec<String>,
    /// What each stage did, by the name of the stage. The API server writes them into its audit log.
    pub audit_annotations: BTreeMap<&'static str, String>,
    /// For the engine's log at level debug: why a stage did nothing.
    pub notes: Vec<String>,
}

impl Verdict {
    /// Accepts the request, with `object` where that differs from `original`.
    pub fn mutate(original: &Value, object: Value) -> Self {
        if *original == object { Self::accept() } else { Self::from(Outcome::Mutate(object)) }
    }
}

impl<Object> Verdict<Object> {
    /// Accepts the request unchanged.
    pub fn accept() -> Self {
        Self::from(Outcome::Accept)
    }

    /// Denies the request with the status code 422, with which Kubernetes answers invalid objects.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::from(Outcome::Deny { message: message.into(), code: 422 })
    }

    /// Adds a line for the engine's log.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Limits the length of messages and the number of warnings and notes, since both may grow with the request.
    #[must_use]
    pub fn limited(mut self) -> Self {
        if let Outcome::Deny { message, .. } = &mut self.outcome {
            *message = cut(message, MAX_MESSAGE);
        }
        for lines in [&mut self.warnings, &mut self.notes] {
            let more = lines.len().saturating_sub(MAX_LINES);
            if more > 0 {
                lines.truncate(MAX_LINES);
                lines.push(format!("and {more} more"));
            }
        }
        for text in self.audit_annotations.values_mut() {
            *text = cut(text, MAX_MESSAGE);
        }
        self
    }

    /// Converts the object.
    ///
    /// # Errors
    /// The error of `form`.
    pub fn try_map<Form, E>(self, form: impl FnOnce(Object) -> Result<Form, E>) -> Result<Verdict<Form>, E> {
        let Self { outcome, warnings, audit_annotations, notes } = self;
        let outcome = match outcome {
            Outcome::Accept => Outcome::Accept,
            Outcome::Mutate(object) => Outcome::Mutate(form(object)?),
            Outcome::Deny { message, code } => Outcome::Deny { message, code },
        };
        Ok(Verdict { outcome, warnings, audit_annotations, notes })
    }

    /// Whether the request is accepted.
    pub fn is_allowed(&self) -> bool {
        !matches!(self.outcome, Outcome::Deny { .. })
    }
}

impl Verdict<String> {
    /// Parses the object. It is null where the text is not JSON, because that of the request is not.
    #[must_use]
    pub fn parsed(self) -> Verdict {
        let Ok(verdict) =
            self.try_map(|text| Ok::<_, std::convert::Infallible>(serde_json::from_str(&text).unwrap_or_default()));
        verdict
    }
}

impl<Object> From<Outcome<Object>> for Verdict<Object> {
    fn from(outcome: Outcome<Object>) -> Self {
        Self { outcome, warnings: Vec::new(), audit_annotations: BTreeMap::new(), notes: Vec::new() }
    }
}
