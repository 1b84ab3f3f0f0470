//! Restore rules: the workloads that they match, their variables, and their edits.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use super::path::Path;
use super::place::Place;
use super::variable::{Source, Template, Variable};
use crate::json::Fields;
use crate::metadata;
use crate::workload_match::WorkloadMatch;

/// What a rule does on an UPDATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUpdate {
    /// What the rule wrote is put back where the request reverts it.
    Keep,
    /// As `Keep`, and the rule is applied again when the state changes.
    Apply,
    /// The rule does nothing.
    Ignore,
}

/// How a value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The value is written in any case.
    Replace,
    /// The value is written only where there is none.
    IfAbsent,
    /// The value is appended to a list, unless the list has it.
    Append,
    /// The value is appended to a string after this separator, unless the string has it as a token.
    AppendText(String),
}

impl Mode {
    /// Whether the value is appended.
    pub fn appends(&self) -> bool {
        matches!(self, Self::Append | Self::AppendText(_))
    }
}

/// The type that a variable's text is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// The text itself.
    String,
    /// A whole number in its canonical form, of at most 64 bits.
    Integer,
    /// `true` or `false`.
    Boolean,
}

/// Where the value of an edit comes from.
#[derive(Debug)]
pub enum Content {
    /// A value from the settings.
    Value(Value),
    /// A string in which variables are replaced.
    Template(Template),
    /// The value of a variable, converted to a type.
    ValueFrom(String, As),
}

/// One item of `set`.
#[derive(Debug)]
pub struct Edit {
    /// `path` or `segments`: where the value is written, without the `-` of an append.
    pub path: Path,
    /// `value`, `template` or `valueFrom`.
    pub content: Content,
    /// `mode`, with the `separator` of an append to text.
    pub mode: Mode,
}

/// What a condition expects of its path.
#[derive(Debug)]
pub enum Expectation {
    /// That there is a value other than null, or that there is none.
    Exists(bool),
    /// That there is this value.
    Equals(Value),
}

/// One item of `conditions`.
#[derive(Debug)]
pub struct Condition {
    /// `path` or `segments`: where to look.
    pub path: Path,
    /// `exists` or `equals`.
    pub expectation: Expectation,
}

/// One restore rule.
#[derive(Debug)]
pub struct Rule {
    /// Its name, unique in the settings.
    pub name: String,
    /// Group, kind and namespace.
    pub workloads: WorkloadMatch,
    /// `match.labelSelector`.
    pub label_selector: LabelSelector,
    /// `match.conditions`: all must hold.
    pub conditions: Vec<Condition>,
    /// The variables by name.
    pub variables: BTreeMap<String, Variable>,
    /// What is removed before `set`.
    pub remove: Vec<Path>,
    /// The edits, in order.
    pub set: Vec<Edit>,
    /// What to do on an UPDATE.
    pub on_update: OnUpdate,
}

/// What a rule does at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Remove,
    Set,
    Append,
}

/// A place that a rule changes. The restore record has an entry for each.
#[derive(Debug, Clone)]
pub struct Site<'r> {
    /// The place in the object.
    pub place: Place,
    /// The edit; `None` where the rule removes the value, with everything that it then sets below that place.
    pub edit: Option<&'r Edit>,
}

impl<'r> Site<'r> {
    /// Whether the rule appends here.
    pub fn appends(&self) -> bool {
        self.edit.is_some_and(|edit| edit.mode.appends())
    }

    /// The key of the site in the record: its place, with `/-` at the end where the rule appends.
    pub fn key(&self) -> String {
        format!("{}{}", self.place, if self.appends() { "/-" } else { "" })
    }
}

impl Rule {
    /// Adds the fields that the rule reads and writes.
    pub(super) fn add_fields<'a>(&'a self, fields: &mut Fields<'a>) {
        for condition in &self.conditions {
            let end = condition.path.add_to(fields);
            if matches!(condition.expectation, Expectation::Equals(_)) {
                end.set_whole();
            }
        }
        let read = self.variables.values().filter_map(|variable| match &variable.source {
            Source::Field(path) => Some(path),
            Source::State(_) | Source::ConfigMap { .. } => None,
        });
        for path in read.chain(&self.remove).chain(self.set.iter().map(|edit| &edit.path)) {
            path.add_to(fields).set_whole();
        }
    }

    /// Why the rule does not match this object, whose kind and namespace match; `None` where it matches.
    pub fn mismatch(&self, object: &Value) -> Option<String> {
        if !selects(&self.label_selector, object) {
            return Some("labelSelector does not match".to_owned());
        }
        let failed = self.conditions.iter().find(|condition| !condition.holds(object))?;
        Some(format!("the condition on `{}` does not hold", failed.path))
    }

    /// The site of this rule with that key in the record, and its rank in the order in which the rule makes its
    /// changes.
    pub fn site(&self, key: &str) -> Option<(usize, Site<'_>)> {
        if let Some(list) = key.strip_suffix("/-") {
            return self.sites(list, |edit| edit.mode.appends());
        }
        let removed = self.remove.iter().enumerate().find_map(|(rank, path)| {
            let place = path.place_from(key)?;
            // What is set below the place is written later.
            let set_below = self.set.iter().position(|edit| path.contains(&edit.path));
            Some((set_below.map_or(rank, |edit| self.remove.len() + edit), Site { place, edit: None }))
        });
        removed.or_else(|| self.sites(key, |edit| !edit.mode.appends() && !self.is_below_removed(edit)))
    }

    /// Every path that the rule removes or sets, and what it does there.
    fn targets(&self) -> impl Iterator<Item = (&Path, Act)> {
        let removed = self.remove.iter().map(|path| (path, Act::Remove));
        let act = |edit: &Edit| if edit.mode.appends() { Act::Append } else { Act::Set };
        removed.chain(self.set.iter().map(move |edit| (&edit.path, act(edit))))
    }

    /// A path of this rule and a path of `other` of which one leads to a part of the other, so that they can't both be
    /// written. Several rules may set or remove the same path, and append to the same list.
    pub fn overlap<'r>(&'r self, other: &'r Self) -> Option<(&'r Path, &'r Path)> {
        self.targets().find_map(|(path, act)| {
            let (other, _) = other.targets().find(|(other, other_act)| match (act, other_act) {
                (Act::Append, Act::Append) => false,
                (Act::Append, _) => path.appends_into(other),
                (_, Act::Append) => other.appends_into(path),
                (act, other_act) if act == *other_act && path == *other => false,
                _ => path.may_cover(other) || other.may_cover(path),
            })?;
            Some((path, other))
        })
    }

    fn sites(&self, text: &str, is_meant: impl Fn(&Edit) -> bool) -> Option<(usize, Site<'_>)> {
        self.set.iter().enumerate().filter(|(_, edit)| is_meant(edit)).find_map(|(rank, edit)| {
            let place = edit.path.place_from(text)?;
            Some((self.remove.len() + rank, Site { place, edit: Some(edit) }))
        })
    }

    /// Makes the rule remove the `valueFrom` of every `env` entry whose `value` it writes, since API servers reject
    /// entries with both.
    pub fn exclude_value_from(&mut self) {
        let is_exclusive = |edit: &&Edit| edit.path.is_env_value() && edit.mode != Mode::IfAbsent;
        let edits = self.set.iter().filter(is_exclusive).filter(|edit| !self.is_below_removed(edit));
        let mut removed: Vec<Path> = edits.map(|edit| edit.path.sibling("valueFrom")).collect();
        removed.retain(|path| !self.remove.contains(path));
        self.remove.append(&mut removed);
    }

    /// Whether the edit writes a part of a value that the rule removes first.
    pub fn is_below_removed(&self, edit: &Edit) -> bool {
        self.remove.iter().any(|removed| removed.contains(&edit.path))
    }
}

impl Condition {
    fn holds(&self, object: &Value) -> bool {
        // A path that does not fit the object has no places.
        let places = self.path.places(object).unwrap_or_default();
        let mut found = places.iter().filter_map(|place| place.get(object).ok().flatten());
        match &self.expectation {
            Expectation::Exists(exists) => found.next().is_some() == *exists,
            Expectation::Equals(value) => found.any(|found| found == value),
        }
    }
}

/// Whether the object's labels match. Source: `k8s.io/apimachinery/pkg/apis/meta/v1`, `LabelSelectorAsSelector`:
/// `NotIn` and `DoesNotExist` match objects without the label, an empty selector matches everything.
fn selects(selector: &LabelSelector, object: &Value) -> bool {
    let labels = selector.match_labels.iter().flatten();
    let expressions = selector.match_expressions.iter().flatten();
    labels.into_iter().all(|(key, value)| metadata::label(object, key) == Some(value))
        && expressions.into_iter().all(|requirement| {
            let label = metadata::label(object, &requirement.key);
            let is_listed = label.is_some_and(|label| requirement.values.iter().flatten().any(|value| value == label));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => label.is_some(),
                _ => label.is_none(),
            }
        })
}
