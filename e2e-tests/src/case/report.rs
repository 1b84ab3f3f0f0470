//! `report.json` of a case: an input from a public report, and what is wanted of the answer.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::Value;

use crate::policy::Answer;

/// A case that comes from a public report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Report {
    /// Where it was reported, and what.
    #[serde(rename = "source")]
    _source: String,
    #[serde(default, rename = "title")]
    _title: String,
    #[serde(default, rename = "stage")]
    _stage: String,
    pub(super) function: Function,
    #[serde(default)]
    pub(super) request: Value,
    pub(super) settings: Value,
    #[serde(default)]
    pub(super) objects: Vec<Value>,
    pub(super) want: Want,
    /// Why that is wanted.
    #[serde(rename = "why")]
    _why: String,
}

/// The function of the policy that the report is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Function {
    Validate,
    ValidateSettings,
}

/// What a report wants.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Want {
    /// Whether the request passes.
    allowed: Option<bool>,
    /// Whether the settings are valid.
    valid: Option<bool>,
    /// A part of the message.
    message_has: Option<String>,
    /// A part of some warning.
    warning_has: Option<String>,
    /// A part of no warning.
    no_warning_has: Option<String>,
    /// Values in the resulting object, by JSON pointer.
    fields: BTreeMap<String, Value>,
    /// The same, each one of several.
    fields_any: BTreeMap<String, Vec<Value>>,
    /// What is not in the resulting object.
    absent: Vec<String>,
    /// That the object stays as it came.
    unchanged: bool,
}

impl Want {
    /// Holds the errors of settings against what is wanted.
    pub(super) fn check_settings(&self, errors: Option<&str>) -> Result<()> {
        ensure!(self.valid.is_none_or(|valid| valid == errors.is_none()), "the errors are {errors:?}");
        self.check_message(errors.unwrap_or_default())
    }

    /// Holds the answer to a request with `object` against what is wanted.
    pub(super) fn check(&self, answer: &Answer, object: &Value) -> Result<()> {
        let message = answer.message.as_deref().unwrap_or_default();
        let warnings = answer.warnings();
        ensure!(
            self.allowed.is_none_or(|allowed| allowed == answer.accepted),
            "accepted is {}: {message}",
            answer.accepted
        );
        self.check_message(message)?;
        let has = |part: &str| warnings.iter().any(|warning| warning.contains(part));
        ensure!(self.warning_has.as_deref().is_none_or(has), "the warnings are {warnings:?}");
        ensure!(!self.no_warning_has.as_deref().is_some_and(has), "the warnings are {warnings:?}");
        ensure!(!self.unchanged || answer.mutated_object.is_none(), "the object is changed: {}", answer.patch(object));
        if !answer.accepted {
            return Ok(());
        }
        let result = answer.apply(object)?;
        for (path, value) in &self.fields {
            ensure!(result.pointer(path) == Some(value), "{path} is {:?}", result.pointer(path));
        }
        for (path, values) in &self.fields_any {
            let value = result.pointer(path);
            ensure!(value.is_some_and(|value| values.contains(value)), "{path} is {value:?}");
        }
        for path in &self.absent {
            ensure!(result.pointer(path).is_none(), "{path} is {:?}", result.pointer(path));
        }
        Ok(())
    }

    fn check_message(&self, message: &str) -> Result<()> {
        ensure!(message.contains(self.message_has.as_deref().unwrap_or_default()), "the message is {message:?}");
        Ok(())
    }
}
