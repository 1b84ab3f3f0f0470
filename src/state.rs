//! The state of an application: the rules that select it, the values that they read from a status, and how it is
//! written on objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::collected;
use crate::jsonpath::{Budget, JsonPath};
use crate::karmada::{self, StatePreservationRule};
use crate::labels::is_qualified_name;
use crate::messages::{chain, quote};
use crate::metadata;

/// On manifest and workload: a JSON object with every preserved alias and its value, including values that no label can
/// hold.
pub const STATE_ANNOTATION: &str = "stateful-failover/state";
/// On manifest and workload: `application`, `cluster` or `move`.
pub const TYPE_LABEL: &str = "stateful-failover/type";
/// On manifest and workload: the cluster that the application came from.
pub const FROM_LABEL: &str = "stateful-failover/from";
/// The prefix of this policy's labels and annotations.
pub const PREFIX: &str = "stateful-failover/";

/// Maximum length of a value in bytes. Longer values count as missing: they are data of the application rather than its
/// state.
pub const MAX_VALUE: usize = 4096;
/// Maximum size of one state, aliases and values together, in bytes. It becomes an annotation, and an API server
/// accepts 256 KiB of annotations for each object.
pub const MAX_STATE: usize = 32 * 1024;

/// Alias to value.
pub type State = BTreeMap<String, String>;

/// The state in `preservedLabelState` of a task; values that are not strings are left out.
pub fn of_labels(labels: &Map<String, Value>) -> State {
    collected(labels.iter().filter_map(|(alias, value)| Some((alias.clone(), value.as_str()?.to_owned()))))
}

/// Why state can't be carried under an alias as a label.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AliasError {
    /// It is not a valid label key.
    #[error(
        "{} is not a label name: expected `name` or `dns.prefix/name`, the name of at most 63 letters, digits, `-`, `_`, `.`",
        quote(.0)
    )]
    NotALabelName(String),
    /// Karmada itself sets this label.
    #[error("{} is set by Karmada itself", quote(.0))]
    OfKarmada(String),
    /// It has the prefix of this policy's own labels.
    #[error("{} is reserved by this policy, as is everything that begins with `{PREFIX}`", quote(.0))]
    OfThisPolicy(String),
}

/// Checks that state can be carried under `alias` as a label.
///
/// # Errors
/// [`AliasError`].
pub fn check_alias(alias: &str) -> Result<(), AliasError> {
    if !is_qualified_name(alias) {
        Err(AliasError::NotALabelName(alias.to_owned()))
    } else if karmada::is_own_label(alias) {
        Err(AliasError::OfKarmada(alias.to_owned()))
    } else if alias.starts_with(PREFIX) {
        Err(AliasError::OfThisPolicy(alias.to_owned()))
    } else {
        Ok(())
    }
}

/// A rule that reads a value from the status and names the label that the value becomes.
#[derive(Debug, Clone)]
pub struct StateRule {
    /// `aliasLabelName`.
    pub alias: String,
    /// The text of `jsonPath`.
    pub json_path: String,
    /// The parsed `jsonPath`, or why it does not parse.
    parsed: Result<JsonPath, crate::jsonpath::JsonPathError>,
}

impl StateRule {
    /// A rule of a policy or a binding: its `jsonPath` is a template.
    pub fn new(rule: StatePreservationRule<'_>) -> Self {
        Self {
            alias: rule.alias_label_name.to_owned(),
            json_path: rule.json_path.to_owned(),
            parsed: JsonPath::template(rule.json_path),
        }
    }

    /// A rule of the settings, whose `jsonPath` may be an RFC 9535 query.
    pub fn from_parsed(alias: String, json_path: String, parsed: JsonPath) -> Self {
        Self { alias, json_path, parsed: Ok(parsed) }
    }

    /// The rule's value in `status`, or why it has none.
    fn read(&self, status: &Value, budget: &mut Budget) -> Result<String, String> {
        let json_path = self.parsed.as_ref().map_err(|error| chain(error))?;
        match json_path.value(status, budget) {
            Ok(Some(value)) if value.len() > MAX_VALUE => {
                Err(format!("the value has {} bytes, more than {MAX_VALUE}", value.len()))
            }
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err("the value is empty or null".to_owned()),
            Err(error) => Err(chain(&error)),
        }
    }
}

/// What rules read from a status.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The values that were found.
    pub state: State,
    /// The aliases without a value, and why.
    pub missing: BTreeMap<String, String>,
}

impl Reading {
    /// Evaluates the rules on `status`. Where the budget is used up, the remaining rules have no value. Of several
    /// rules with the same alias, the last one with a value wins, as in Karmada.
    pub fn of(rules: &[StateRule], status: Option<&Value>, budget: &mut Budget) -> Self {
        let mut reading = Self::default();
        for rule in rules {
            let value = match status {
                Some(status) => rule.read(status, budget),
                None => Err("no status of the application was collected from the cluster".to_owned()),
            };
            match value {
                Ok(value) => {
                    reading.missing.remove(&rule.alias);
                    reading.state.insert(rule.alias.clone(), value);
                }
                Err(why) if !reading.state.contains_key(&rule.alias) => {
                    reading.missing.insert(rule.alias.clone(), why);
                }
                Err(_) => {}
            }
        }
        reading.limit();
        reading
    }

    /// Removes values, the last aliases first, until the rest fits into [`MAX_STATE`].
    fn limit(&mut self) {
        let mut size: usize = 0;
        let mut too_many = Vec::new();
        for (alias, value) in &self.state {
            size += alias.len() + value.len();
            if size > MAX_STATE {
                too_many.push(alias.clone());
            }
        }
        for alias in too_many {
            self.state.remove(&alias);
            let why = format!("the values of all rules together have {size} bytes, more than {MAX_STATE}");
            self.missing.insert(alias, why);
        }
    }
}

/// The state in an object's annotation. An annotation that is not a JSON object of strings counts as absent: the labels
/// hold the same state, and the rules' patterns check their values.
pub fn read_annotation(object: &Value) -> Option<State> {
    serde_json::from_str(metadata::annotation(object, STATE_ANNOTATION)?).ok()
}

/// The text of the annotation for `state`. Its keys are sorted, so that equal states have equal texts.
pub fn to_annotation(state: &State) -> String {
    let state: serde_json::Map<String, Value> =
        collected(state.iter().map(|(alias, value)| (alias.clone(), Value::from(value.as_str()))));
    Value::Object(state).to_string()
}
