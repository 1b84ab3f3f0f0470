//! What the policy answers to a request.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::messages::cut;

/// Longest message of a denial, and longest audit annotation, in characters.
const MAX_MESSAGE: usize = 4096;
/// Most warnings, and most notes.
const MAX_LINES: usize = 16;

/// What becomes of the request's object, which is a value within the policy and JSON text in its answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<Object = Value> {
    /// The request passes as it came.
    Accept,
    /// The request passes with this object in place of its own, which differs from it.
    Mutate(Object),
    /// The request is refused.
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
    /// What becomes of the object.
    pub outcome: Outcome<Object>,
    /// Shown to the client of an allowed or refused request, each at most [`MAX_WARNING`](crate::messages::MAX_WARNING) characters.
    pub warnings: Vec<String>,
    /// Key: the stage; value: what it did, in words. The API server writes them into its audit log.
    pub audit_annotations: BTreeMap<&'static str, String>,
    /// For the engine's log at debug level: why something was left alone.
    pub notes: Vec<String>,
}

impl Verdict {
    /// The request passes, with `object` where it differs from `original`.
    pub fn mutate(original: &Value, object: Value) -> Self {
        if *original == object { Self::accept() } else { Self::from(Outcome::Mutate(object)) }
    }
}

impl<Object> Verdict<Object> {
    /// The request passes as it came.
    pub fn accept() -> Self {
        Self::from(Outcome::Accept)
    }

    /// The request is refused: it can't be carried out as it is (422, as Kubernetes answers invalid objects).
    pub fn deny(message: impl Into<String>) -> Self {
        Self::from(Outcome::Deny { message: message.into(), code: 422 })
    }

    /// The same answer with a line for the engine's log.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// The same answer with an end to all that it says, whatever the request was: messages of a limited length, and so many
    /// warnings and notes.
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

    /// The same answer with the object in another form.
    ///
    /// # Errors
    /// Where `form` fails.
    pub fn try_map<Form, E>(self, form: impl FnOnce(Object) -> Result<Form, E>) -> Result<Verdict<Form>, E> {
        let Self { outcome, warnings, audit_annotations, notes } = self;
        let outcome = match outcome {
            Outcome::Accept => Outcome::Accept,
            Outcome::Mutate(object) => Outcome::Mutate(form(object)?),
            Outcome::Deny { message, code } => Outcome::Deny { message, code },
        };
        Ok(Verdict { outcome, warnings, audit_annotations, notes })
    }

    /// Whether the request passes.
    pub fn is_allowed(&self) -> bool {
        !matches!(self.outcome, Outcome::Deny { .. })
    }
}

impl Verdict<String> {
    /// The same answer with the object parsed; null where it is not JSON, because the request's is not.
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
