//! What the policy answers to a request.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

/// Longest warning that goes out. Kubernetes asks for at most 120 characters and cuts at 256.
/// Source: `k8s.io/api/admission/v1`, `AdmissionResponse.Warnings`.
pub const MAX_WARNING: usize = 120;
/// Longest message of a denial, and longest audit annotation, in characters.
const MAX_MESSAGE: usize = 4096;
/// Most warnings, and most notes.
const MAX_LINES: usize = 16;
/// Longest quotation of a value that a user gave.
const MAX_QUOTE: usize = 80;

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
    /// Shown to the client of an allowed or refused request, each at most [`MAX_WARNING`] characters.
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
    /// The same answer with the object parsed; null where it is no JSON, because that of the request is none.
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

/// `text` as one warning line: control characters escaped, cut with `…` at [`MAX_WARNING`] characters.
pub fn warning(text: &str) -> String {
    cut(&escape(text), MAX_WARNING)
}

/// `text` in backticks for a message: escaped, and cut with `…` at 80 characters. Messages never hold whole payloads.
pub fn quote(text: &str) -> String {
    format!("`{}`", cut(&escape(text), MAX_QUOTE))
}

/// An object for a message: ``Kind `namespace/name` ``, or without a namespace ``Kind `name` ``.
pub fn describe(kind: &str, namespace: &str, name: &str) -> String {
    let separator = if namespace.is_empty() { "" } else { "/" };
    format!("{} {}", cut(&escape(kind), MAX_QUOTE), quote(&format!("{namespace}{separator}{name}")))
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len().min(4 * MAX_WARNING));
    for c in text.chars().take(4 * MAX_WARNING) {
        // U+2028 and the like are no control characters, but they break lines and turn text around on terminals.
        if c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some(_) => {
            let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
            short.push('…');
            short
        }
    }
}

/// The first few of `items`, and how many more there are: messages have an end, whatever they are about.
pub fn listed(items: &[impl AsRef<str>]) -> String {
    const MAX_ITEMS: usize = 20;
    let first = items.iter().take(MAX_ITEMS).map(AsRef::as_ref).collect::<Vec<_>>().join("; ");
    match items.len().saturating_sub(MAX_ITEMS) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

/// The message of `error` with those of its causes, each of which prints its own level only.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string can't fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_cut_and_escaped() {
        assert_eq!(quote("a\nb"), "`a\\nb`");
        let long = quote(&"x".repeat(1000));
        assert_eq!(long.chars().count(), 82);
        assert!(long.ends_with("…`"), "{long}");
        assert_eq!(quote(&"é".repeat(80)), format!("`{}`", "é".repeat(80)));
    }

    #[test]
    fn warnings_are_one_line_of_at_most_120_characters() {
        let line = warning(&"long\n".repeat(100));
        assert_eq!(line.chars().count(), MAX_WARNING);
        assert!(!line.contains('\n'));
    }
}
