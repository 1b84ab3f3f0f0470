//! JSONPath, in the two dialects that state rules are written in.
//!
//! Policies and bindings of Karmada hold *templates* of the Kubernetes dialect (`{.jobStatus.jobId}`), which
//! `kubectl -o jsonpath` prints; the policy's own settings may also hold an RFC 9535 query (`$.jobStatus.jobId`).
//!
//! ```
//! use serde_json::json;
//! use stateful_failover::jsonpath::JsonPath;
//!
//! let status = json!({"jobStatus": {"jobId": "e6fd", "checkpoint": 1734462491693u64}});
//! let text = |template| JsonPath::template(template).unwrap().print(&status).unwrap();
//! assert_eq!(text("{ .jobStatus.jobId }"), "e6fd");
//! assert_eq!(text("chk-{.jobStatus.checkpoint}"), "chk-1734462491693");
//! assert_eq!(text("jobStatus.jobId"), "jobStatus.jobId", "without braces, it is text");
//! ```
//!
//! The reference for templates is `kubectl` (`k8s.io/client-go/util/jsonpath`), including its oddities: users try a
//! rule out with kubectl and copy it into a policy. Karmada prints numbers in another way; this policy prints them as
//! kubectl does.

mod evaluate;
mod print;
mod rfc9535;
mod template;

use serde_json::Value;
use thiserror::Error;

use crate::messages::quote;
use rfc9535::Query;
use template::Template;

/// Maximum length of a template or query in bytes.
pub const MAX_LENGTH: usize = 4096;
/// Maximum nesting of filters and unions in a template.
pub const MAX_NESTING: usize = 16;
/// Maximum number of values and template parts that all evaluations with one [`Budget`] may visit.
pub const MAX_VISITS: usize = 200_000;
/// Maximum length of the text that all evaluations with one [`Budget`] may print, in bytes.
pub const MAX_TEXT: usize = 1024 * 1024;

/// What evaluations may cost. All rules of a request share one budget, which bounds the time of the request for any
/// rules and documents.
#[derive(Debug)]
pub struct Budget {
    visits: usize,
    text: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { visits: MAX_VISITS, text: MAX_TEXT }
    }
}

impl Budget {
    fn visit(&mut self, count: usize) -> Result<(), JsonPathError> {
        let left = self.visits.checked_sub(count);
        // Once exceeded, the budget stays exceeded, also for cheaper steps.
        self.visits = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| JsonPathError::limit("values to visit", MAX_VISITS))
    }

    fn print(&mut self, bytes: usize) -> Result<(), JsonPathError> {
        let left = self.text.checked_sub(bytes);
        self.text = left.unwrap_or(0);
        left.map(drop).ok_or_else(|| JsonPathError::limit("bytes of text", MAX_TEXT))
    }
}

/// Why a JSONPath has no result.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JsonPathError {
    /// The JSONPath itself is wrong.
    #[error("does not parse, at character {position}: {problem}")]
    Parse {
        /// Where, in characters from 1.
        position: usize,
        /// What is wrong.
        problem: String,
    },
    /// The JSONPath does not fit the document.
    #[error("{0}")]
    Execute(String),
}

impl JsonPathError {
    /// Whether the JSONPath is wrong for any document.
    pub fn is_parse(&self) -> bool {
        matches!(self, Self::Parse { .. })
    }

    /// A limit that a template, query or document exceeds.
    fn limit(what: &str, limit: usize) -> Self {
        Self::Execute(format!("limit exceeded: more than {limit} {what}"))
    }
}

/// A parsed JSONPath, to be evaluated on any number of documents.
#[derive(Debug, Clone)]
pub struct JsonPath(Dialect);

#[derive(Debug, Clone)]
enum Dialect {
    Template(Template),
    Query(Query),
}

impl JsonPath {
    /// The template in `text`. Text outside of braces is printed as it is.
    ///
    /// # Errors
    /// [`JsonPathError::Parse`].
    pub fn template(text: &str) -> Result<Self, JsonPathError> {
        check_length(text)?;
        Template::parse(text).map(Dialect::Template).map(Self)
    }

    /// A rule of the policy's own settings: an RFC 9535 query if it begins with `$` and has no braces, else a template.
    ///
    /// # Errors
    /// [`JsonPathError::Parse`].
    pub fn from_settings(text: &str) -> Result<Self, JsonPathError> {
        check_length(text)?;
        if text.starts_with('$') && !text.contains(['{', '}']) {
            return Query::parse(text).map(Dialect::Query).map(Self);
        }
        Self::template(text)
    }

    /// Whether the template is constant text, without any field.
    pub fn is_constant(&self) -> bool {
        matches!(&self.0, Dialect::Template(template) if template.has_no_action())
    }

    /// The texts outside of the braces at the beginning and at the end.
    pub fn outer_text(&self) -> (Option<&str>, Option<&str>) {
        match &self.0 {
            Dialect::Template(template) => template.outer_text(),
            Dialect::Query(_) => (None, None),
        }
    }

    /// Whether a `range` has no `end`: the rest of the template is then printed once more for each value.
    pub fn has_open_range(&self) -> bool {
        matches!(&self.0, Dialect::Template(template) if template.has_open_range())
    }

    /// The fields that every evaluation begins with: `["status", "a"]` for `{.status.a}`.
    pub fn leading_fields(&self) -> Vec<&str> {
        match &self.0 {
            Dialect::Template(template) => template.leading_fields(),
            Dialect::Query(_) => Vec::new(),
        }
    }

    /// What `kubectl` prints for it.
    ///
    /// # Errors
    /// [`JsonPathError::Execute`], where it does not fit `document` or exceeds a limit.
    pub fn print(&self, document: &Value) -> Result<String, JsonPathError> {
        self.evaluate(document, &mut Budget::default()).map(|(text, _)| text)
    }

    /// The value of a state rule: what is printed, or `None` where that is empty, or the null of a single result.
    ///
    /// # Errors
    /// As [`JsonPath::print`].
    pub fn value(&self, document: &Value, budget: &mut Budget) -> Result<Option<String>, JsonPathError> {
        let (text, is_null) = self.evaluate(document, budget)?;
        Ok(Some(text).filter(|text| !text.is_empty() && !is_null))
    }

    /// The text, and whether it is the null of a single query's single result.
    fn evaluate(&self, document: &Value, budget: &mut Budget) -> Result<(String, bool), JsonPathError> {
        match &self.0 {
            Dialect::Template(template) => template.evaluate(document, budget),
            Dialect::Query(query) => query.evaluate(document, budget),
        }
    }
}

fn check_length(text: &str) -> Result<(), JsonPathError> {
    if text.len() > MAX_LENGTH {
        let problem = format!("limit exceeded: {} has {} bytes, more than {MAX_LENGTH}", quote(text), text.len());
        return Err(JsonPathError::Parse { position: 1, problem });
    }
    Ok(())
}
