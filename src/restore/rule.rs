//! Restore rules: for which workloads, with which variables, and what they write. Reading one from the settings
//! checks it completely.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use super::path::Path;
use super::variable::{BUILT_INS, Otherwise, Pattern, Source, Template, Variable, is_identifier};
use crate::karmada::ObjectReference;
use crate::metadata::{self, type_name};
use crate::settings::WorkloadMatch;
use crate::settings::reader::{self, Errors, Object, as_string};
use crate::verdict::{chain, quote};

/// What a rule does on an UPDATE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnUpdate {
    /// What it once wrote is put back where it was reverted.
    Keep,
    /// Like `Keep`, and the rule is carried out anew when the state changes.
    Apply,
    /// Nothing.
    Ignore,
}

/// How a value is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// Whatever stands there.
    Replace,
    /// Only where nothing stands.
    IfAbsent,
    /// Added to a list, unless it is in it.
    Append,
    /// Added to a string after this separator, unless it is a token of it.
    AppendText(String),
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
pub enum Written {
    /// A value of the settings, as it is.
    Value(Value),
    /// A string with variables.
    Template(Template),
    /// A variable, as a type.
    ValueFrom(String, As),
}

/// One item of `set`.
#[derive(Debug)]
pub struct Edit {
    /// Where.
    pub path: Path,
    /// What.
    pub written: Written,
    /// How.
    pub mode: Mode,
}

/// What a condition expects of its path.
#[derive(Debug)]
pub enum Expectation {
    /// That something (other than null) stands there, or not.
    Exists(bool),
    /// That this value stands there.
    Equals(Value),
}

/// One item of `conditions`.
#[derive(Debug)]
pub struct Condition {
    /// Where.
    pub path: Path,
    /// What.
    pub expectation: Expectation,
}

/// One restore rule.
#[derive(Debug)]
pub struct Rule {
    /// Its name, unique in the settings.
    pub name: String,
    /// Group, kind and namespace.
    pub workloads: WorkloadMatch,
    label_selector: LabelSelector,
    conditions: Vec<Condition>,
    /// By name.
    pub variables: BTreeMap<String, Variable>,
    /// What is taken away before `set`.
    pub remove: Vec<Path>,
    /// What is written, in order.
    pub set: Vec<Edit>,
    /// What to do on an UPDATE.
    pub on_update: OnUpdate,
}

impl Rule {
    /// Whether the rule is for objects of that kind and namespace.
    pub fn is_for(&self, object: ObjectReference<'_>) -> bool {
        self.workloads.accepts(object)
    }

    /// Why the rule is not for this object, whose kind and namespace fit; `None` where it is.
    pub fn mismatch(&self, object: &Value) -> Option<String> {
        if !selects(&self.label_selector, object) {
            return Some("labelSelector does not match".to_owned());
        }
        let failed = self.conditions.iter().find(|condition| !condition.holds(object))?;
        Some(format!("the condition on `{}` does not hold", failed.path))
    }

    /// Every path that the rule removes or sets, and whether it sets it.
    pub fn paths(&self) -> impl Iterator<Item = (&Path, bool)> {
        let removed = self.remove.iter().map(|path| (path, false));
        removed.chain(self.set.iter().map(|edit| (&edit.path, true)))
    }

    /// Which of the rule's edits, counted in the order in which they are done, wrote (or removed) the place that prints as
    /// `text`.
    pub fn position(&self, text: &str, is_written: bool) -> usize {
        let found = if is_written {
            self.set.iter().position(|edit| edit.path.place_from(text).is_some())
        } else {
            self.remove.iter().position(|path| path.place_from(text).is_some())
        };
        found.unwrap_or(usize::MAX - self.remove.len()) + if is_written { self.remove.len() } else { 0 }
    }

    /// The rule at `path` in the settings; `None` where errors make it useless.
    pub fn read(value: &Value, path: reader::Path, errors: &mut Errors) -> Option<Self> {
        const FIELDS: [&str; 6] = ["name", "match", "vars", "remove", "set", "onUpdate"];
        let before = errors.count();
        let rule = Object::new(value, path, &FIELDS, errors);
        let name = rule.required_string("name", errors).unwrap_or_default().to_owned();
        const MATCH: [&str; 5] = ["apiGroups", "kinds", "namespaces", "labelSelector", "conditions"];
        let matches = rule.object("match", &MATCH, errors);
        let workloads = WorkloadMatch::read(&matches, errors);
        let label_selector = read_label_selector(&matches, errors);
        let conditions = read_conditions(&matches, errors);
        let variables = read_variables(&rule, errors);
        let known: Vec<&str> = variables.keys().map(String::as_str).collect();
        let remove = read_remove(&rule, errors);
        let set = read_set(&rule, &known, errors);
        if remove.is_empty() && set.is_empty() && errors.count() == before {
            errors.add(&rule.path, "neither `set` nor `remove`: the rule does nothing");
        }
        check_unique(&rule, &remove, &set, errors);
        let choices = [("Keep", OnUpdate::Keep), ("Apply", OnUpdate::Apply), ("Ignore", OnUpdate::Ignore)];
        let on_update = rule.choice("onUpdate", &choices, OnUpdate::Keep, errors);
        let rule = Self { name, workloads, label_selector, conditions, variables, remove, set, on_update };
        (errors.count() == before).then_some(rule)
    }
}

impl Condition {
    fn holds(&self, object: &Value) -> bool {
        // A path that does not fit the object leads nowhere.
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

fn read_label_selector(matches: &Object<'_>, errors: &mut Errors) -> LabelSelector {
    let section = matches.object("labelSelector", &["matchLabels", "matchExpressions"], errors);
    let mut selector = LabelSelector::default();
    let labels: BTreeMap<String, String> = section
        .entries("matchLabels", errors)
        .into_iter()
        .filter_map(|(key, value, path)| Some((key.to_owned(), as_string(value, &path, errors)?.to_owned())))
        .collect();
    selector.match_labels = Some(labels);
    let mut requirements = Vec::new();
    for (item, path) in section.list("matchExpressions", errors) {
        let item = Object::new(item, path, &["key", "operator", "values"], errors);
        let key = item.required_string("key", errors).unwrap_or_default().to_owned();
        const OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
        let operator = item.required_string("operator", errors).unwrap_or_default().to_owned();
        if !operator.is_empty() && !OPERATORS.contains(&operator.as_str()) {
            errors.add(&item.path_of("operator"), reader::unknown(&operator, &OPERATORS, "operator"));
        }
        let values = item.strings("values", errors);
        match operator.as_str() {
            "In" | "NotIn" if values.is_empty() => {
                errors.add(&item.path, format_args!("operator `{operator}` needs `values`"))
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                errors.add(&item.path_of("values"), format_args!("operator `{operator}` takes none"));
            }
            _ => {}
        }
        requirements.push(LabelSelectorRequirement { key, operator, values: Some(values) });
    }
    selector.match_expressions = Some(requirements);
    selector
}

fn read_conditions(matches: &Object<'_>, errors: &mut Errors) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for (item, path) in matches.list("conditions", errors) {
        let item = Object::new(item, path, &["path", "segments", "exists", "equals"], errors);
        let path = read_path(&item, errors);
        let expectation = match (item.get("exists"), item.get_even_null("equals")) {
            (Some(Value::Bool(exists)), None) => Some(Expectation::Exists(*exists)),
            (None, Some(value)) => Some(Expectation::Equals(value.clone())),
            (Some(_), Some(_)) => {
                errors.add(&item.path, "has both `exists` and `equals`, expected one of them");
                None
            }
            (Some(other), None) => {
                errors.add(&item.path_of("exists"), format_args!("is {}, expected true or false", type_name(other)));
                None
            }
            (None, None) => {
                errors.add(&item.path, "has neither `exists` nor `equals`");
                None
            }
        };
        if let (Some(path), Some(expectation)) = (path, expectation) {
            conditions.push(Condition { path, expectation });
        }
    }
    conditions
}

fn read_variables(rule: &Object<'_>, errors: &mut Errors) -> BTreeMap<String, Variable> {
    let entries = rule.entries("vars", errors);
    // ConfigMaps are looked up with what the state says, never with what another ConfigMap says.
    let from_state: Vec<&str> =
        entries.iter().filter(|(_, value, _)| value.get("state").is_some()).map(|(name, ..)| *name).collect();
    let mut variables = BTreeMap::new();
    for (name, value, path) in entries {
        if BUILT_INS.contains(&name) {
            errors.add(&path, format_args!("{} is built in, choose another name", quote(name)));
        } else if !is_identifier(name) {
            errors.add(
                &path,
                format_args!("{} is not a variable name: letters, digits and `_`, not first a digit", quote(name)),
            );
        }
        const FIELDS: [&str; 6] = ["state", "configMap", "pattern", "reject", "onMissing", "onInvalid"];
        let variable = Object::new(value, path, &FIELDS, errors);
        let source = read_source(&variable, &from_state, errors);
        let pattern = variable.string("pattern", errors).map_or(Pattern::LabelValue, Pattern::regex);
        if errors.compiles_patterns
            && let Err(error) = pattern.check()
        {
            errors.add(&variable.path_of("pattern"), format_args!("does not compile: {error}"));
        }
        let choices = [("Skip", Otherwise::Skip), ("Reject", Otherwise::Reject)];
        let reject = variable.strings("reject", errors);
        let on_missing = variable.choice("onMissing", &choices, Otherwise::Skip, errors);
        let on_invalid = variable.choice("onInvalid", &choices, Otherwise::Reject, errors);
        // Without a source it is known all the same, so that templates that use it are not reported too.
        let source = source.unwrap_or_else(|| Source::State(String::new()));
        variables.insert(name.to_owned(), Variable { source, pattern, reject, on_missing, on_invalid });
    }
    variables
}

fn read_source(variable: &Object<'_>, from_state: &[&str], errors: &mut Errors) -> Option<Source> {
    match (variable.get("state"), variable.get("configMap")) {
        (Some(_), None) => variable.required_string("state", errors).map(|alias| Source::State(alias.to_owned())),
        (None, Some(_)) => {
            let section = variable.object("configMap", &["namespace", "name", "key"], errors);
            let mut template = |key| {
                let text = section.required_string(key, errors)?;
                match Template::parse(text, from_state) {
                    Ok(template) => Some(template),
                    Err(error) => {
                        errors.add(
                            &section.path_of(key),
                            format_args!("{error} (a ConfigMap is found by `state` variables only)"),
                        );
                        None
                    }
                }
            };
            let (namespace, name, key) = (template("namespace"), template("name"), template("key"));
            Some(Source::ConfigMap { namespace: namespace?, name: name?, key: key? })
        }
        (Some(_), Some(_)) => {
            errors.add(&variable.path, "has both `state` and `configMap`, expected one of them");
            None
        }
        (None, None) => {
            errors.add(&variable.path, "has neither `state` nor `configMap`");
            None
        }
    }
}

fn read_remove(rule: &Object<'_>, errors: &mut Errors) -> Vec<Path> {
    let mut paths = Vec::new();
    for (item, at) in rule.list("remove", errors) {
        let Some(text) = as_string(item, &at, errors) else {
            continue;
        };
        let checked = |path: &Path| {
            path.check_target().and_then(|()| path.check_selectors(None)).and_then(|()| path.check_removed())
        };
        match Path::parse(text).and_then(|path| checked(&path).map(|()| path)) {
            Ok(path) if path.appends => errors.add(&at, "`-` names no entry that could be removed"),
            Ok(path) => paths.push(path),
            Err(error) => errors.add(&at, chain(&error)),
        }
    }
    paths
}

fn read_set(rule: &Object<'_>, known: &[&str], errors: &mut Errors) -> Vec<Edit> {
    let mut edits = Vec::new();
    for (item, at) in rule.list("set", errors) {
        const FIELDS: [&str; 7] = ["path", "segments", "value", "template", "valueFrom", "mode", "separator"];
        let item = Object::new(item, at, &FIELDS, errors);
        let path = read_path(&item, errors);
        if let Some(Err(error)) = path.as_ref().map(Path::check_target) {
            errors.add(&item.path_of(if item.get("path").is_some() { "path" } else { "segments" }), chain(&error));
        }
        let written = read_written(&item, known, errors);
        if let (Some(path), Some(written)) = (&path, &written) {
            // What templates and variables give is never an entry with fields.
            let value = match written {
                Written::Value(value) => value,
                Written::Template(_) | Written::ValueFrom(..) => &Value::Bool(true),
            };
            if let Err(error) = path.check_selectors(Some(value)) {
                errors.add(&item.path_of("path"), chain(&error));
            }
        }
        let choices = [("Replace", Mode::Replace), ("IfAbsent", Mode::IfAbsent), ("Append", Mode::Append)];
        let names: Vec<(&str, usize)> = choices.iter().enumerate().map(|(index, (name, _))| (*name, index)).collect();
        let appends = path.as_ref().is_some_and(|path| path.appends);
        let index = item.choice("mode", &names, if appends { 2 } else { 0 }, errors);
        let mut mode = choices.get(index).map_or(Mode::Replace, |(_, mode)| mode.clone());
        if appends && mode != Mode::Append {
            errors.add(&item.path_of("mode"), "the path ends with `-`, which appends");
        }
        if let Some(separator) = item.string("separator", errors) {
            if mode != Mode::Append || appends {
                errors.add(&item.path_of("separator"), "is for `mode: Append` to a string only");
            } else if separator.is_empty() {
                errors.add(&item.path_of("separator"), "is empty");
            } else if matches!(&written, Some(Written::Value(value)) if !value.is_string()) {
                errors.add(&item.path_of("value"), "must be a string to be appended to a string");
            } else {
                mode = Mode::AppendText(separator.to_owned());
            }
        }
        if let (Some(mut path), Some(written)) = (path, written) {
            path.appends = matches!(mode, Mode::Append | Mode::AppendText(_));
            edits.push(Edit { path, written, mode });
        }
    }
    edits
}

fn read_written(item: &Object<'_>, known: &[&str], errors: &mut Errors) -> Option<Written> {
    let given: Vec<&str> =
        ["value", "template", "valueFrom"].into_iter().filter(|key| item.get_even_null(key).is_some()).collect();
    let key = match given.as_slice() {
        [key] => *key,
        [] => {
            errors.add(&item.path, "has none of `value`, `template` and `valueFrom`, expected one of them");
            return None;
        }
        several => {
            errors.add(&item.path, format_args!("has `{}`, expected one of them", several.join("` and `")));
            return None;
        }
    };
    match key {
        "value" => match item.get("value") {
            Some(value) => Some(Written::Value(value.clone())),
            None => {
                errors.add(&item.path_of("value"), "is null; write `remove` to take a field away");
                None
            }
        },
        "template" => {
            let path = item.path_of("template");
            match item.get_even_null("template") {
                Some(Value::String(text)) => match Template::parse(text, known) {
                    Ok(template) => Some(Written::Template(template)),
                    Err(error) => {
                        errors.add(&path, chain(&error));
                        None
                    }
                },
                Some(Value::Object(_)) => {
                    errors.add(
                        &path,
                        "is an object, expected a string; quote the template: in YAML, {name} without quotes is a map",
                    );
                    None
                }
                other => {
                    let found = other.map_or("missing", type_name);
                    errors.add(&path, format_args!("is {found}, expected a string; quote it, or write `value`"));
                    None
                }
            }
        }
        _ => {
            let section = item.object("valueFrom", &["var", "as"], errors);
            let variable = section.required_string("var", errors)?;
            if !known.contains(&variable) && !BUILT_INS.contains(&variable) {
                errors.add(&section.path_of("var"), reader::unknown(variable, known, "variable"));
                return None;
            }
            let choices = [("String", As::String), ("Integer", As::Integer), ("Boolean", As::Boolean)];
            let as_type = section.choice("as", &choices, As::String, errors);
            Some(Written::ValueFrom(variable.to_owned(), as_type))
        }
    }
}

fn read_path(item: &Object<'_>, errors: &mut Errors) -> Option<Path> {
    let (at, path) = match (item.get("path"), item.get("segments")) {
        (Some(_), None) => (item.path_of("path"), Path::parse(item.string("path", errors)?)),
        (None, Some(_)) => (item.path_of("segments"), Path::of_keys(item.strings("segments", errors))),
        (Some(_), Some(_)) => {
            errors.add(&item.path, "has both `path` and `segments`, expected one of them");
            return None;
        }
        (None, None) => {
            errors.add(&item.path, "has neither `path` nor `segments`");
            return None;
        }
    };
    path.map_err(|error| errors.add(&at, chain(&error))).ok()
}

/// A rule writes a place once: what it writes twice, or as a part of something else, would not be the same when it is
/// done again. To one list it may append several times.
fn check_unique(rule: &Object<'_>, remove: &[Path], set: &[Edit], errors: &mut Errors) {
    let removed = remove.iter().map(|path| (path, false));
    let written = set.iter().map(|edit| (&edit.path, edit.mode == Mode::Append));
    let paths: Vec<(&Path, bool)> = removed.chain(written).collect();
    for (index, (path, is_append)) in paths.iter().enumerate() {
        for (earlier, is_earlier_append) in paths.iter().take(index) {
            let quoted = quote(&path.to_string());
            if path.may_equal(earlier) && !(*is_append && *is_earlier_append) {
                errors.add(&rule.path, format_args!("{quoted} is named twice; a rule writes a path once"));
            } else if path.contains(earlier) || earlier.contains(path) {
                let earlier = quote(&earlier.to_string());
                errors.add(
                    &rule.path,
                    format_args!("{quoted} and {earlier} are parts of one another; write the parts only"),
                );
            }
        }
    }
}
