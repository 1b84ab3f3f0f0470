//! Variables of restore rules: the sources of their values, the patterns of valid values, and templates that use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use regex_lite::Regex;
use serde_json::Value;
use thiserror::Error;

use super::RuleError;
use super::path::Path;
use crate::cluster::{Cluster, Get};
use crate::labels::is_label_value;
use crate::messages::quote;
use crate::metadata::{self, type_name};
use crate::state::{self, State};

/// The names that every template knows, next to a rule's variables.
pub const BUILT_INS: [&str; 3] = ["namespace", "name", "kind"];

/// The values of variables and built-ins.
pub type Values = BTreeMap<String, String>;

/// What a rule does where a variable has no valid value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The rule is left out.
    Skip,
    /// The request is denied.
    Reject,
}

/// What valid values look like.
#[derive(Debug)]
pub enum Pattern {
    /// A valid, non-empty label value.
    LabelValue,
    /// A match of a regular expression.
    Regex(LazyRegex),
}

/// A regular expression that is compiled when the first value is matched: settings are read for every request, and most
/// requests need few of the patterns.
#[derive(Debug)]
pub struct LazyRegex {
    source: String,
    whole: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    fn compile(source: &str) -> Result<Regex, regex_lite::Error> {
        // Compiled alone first, since unbalanced parentheses could close the group below.
        Regex::new(source)?;
        Regex::new(&format!("^(?:{source})$"))
    }
}

impl Pattern {
    /// The regular expression in `source`.
    pub fn regex(source: &str) -> Self {
        Self::Regex(LazyRegex { source: source.to_owned(), whole: OnceLock::new() })
    }

    /// Checks that the regular expression compiles. No value matches one that does not.
    ///
    /// # Errors
    /// It does not compile.
    pub fn check(&self) -> Result<(), regex_lite::Error> {
        match self {
            Self::LabelValue => Ok(()),
            Self::Regex(regex) => LazyRegex::compile(&regex.source).map(drop),
        }
    }

    /// Whether `value` is a valid one.
    pub fn matches(&self, value: &str) -> bool {
        match self {
            Self::LabelValue => !value.is_empty() && is_label_value(value),
            Self::Regex(regex) => regex
                .whole
                .get_or_init(|| LazyRegex::compile(&regex.source).ok())
                .as_ref()
                .is_some_and(|whole| whole.is_match(value)),
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelValue => f.write_str("a valid, non-empty label value"),
            Self::Regex(regex) => write!(f, "a match of `{}`", regex.source),
        }
    }
}

/// Where a variable's value comes from.
#[derive(Debug)]
pub enum Source {
    /// An alias. Its value is read from the state annotation, or else from the label.
    State(String),
    /// A key of a ConfigMap in the cluster.
    ConfigMap {
        /// Its namespace.
        namespace: Template,
        /// Its name.
        name: Template,
        /// Key in its `data`.
        key: Template,
    },
    /// A field of the object itself: text, a number or a boolean.
    Field(Path),
}

/// A variable of a rule.
#[derive(Debug)]
pub struct Variable {
    /// Where its value comes from.
    pub source: Source,
    /// What a valid value is.
    pub pattern: Pattern,
    /// Values that are not valid although the pattern matches.
    pub reject: Vec<String>,
    /// What to do without a value.
    pub on_missing: Otherwise,
    /// What to do with an invalid value.
    pub on_invalid: Otherwise,
}

impl Variable {
    /// Whether `value` is a valid one.
    pub fn accepts(&self, value: &str) -> bool {
        self.pattern.matches(value) && !self.reject.iter().any(|rejected| rejected == value)
    }
}

/// The state of an object: its annotation, and its labels for aliases that the annotation does not have.
pub(super) struct FedState<'a> {
    annotation: State,
    object: &'a Value,
}

impl<'a> FedState<'a> {
    pub(super) fn of(object: &'a Value) -> Self {
        Self { annotation: state::read_annotation(object).unwrap_or_default(), object }
    }

    pub(super) fn get(&self, alias: &str) -> Option<&str> {
        self.annotation.get(alias).map(String::as_str).or_else(|| metadata::label(self.object, alias))
    }

    /// Whether the object has the annotation, with at least one alias.
    pub(super) fn is_fed(&self) -> bool {
        !self.annotation.is_empty()
    }
}

/// The ConfigMaps of one request, each looked up once.
pub(super) struct ConfigMaps<'a, C> {
    cluster: &'a C,
    found: BTreeMap<(String, String), Option<Value>>,
}

impl<'a, C: Cluster> ConfigMaps<'a, C> {
    pub(super) fn new(cluster: &'a C) -> Self {
        Self { cluster, found: BTreeMap::new() }
    }

    /// The value of a key of a ConfigMap, or why there is none.
    fn value(&mut self, namespace: String, name: String, key: &str) -> Result<Result<String, String>, RuleError> {
        let get =
            Get { api_version: "v1", kind: "ConfigMap", namespace: Some(&namespace), name: &name, fields: &["data"] };
        let reference = get.reference().to_string();
        let found = match self.found.get(&(namespace.clone(), name.clone())) {
            Some(found) => found,
            None => {
                let found = self.cluster.get(&get);
                let found = found.map_err(|cause| RuleError::Lookup { object: reference.clone(), cause })?;
                self.found.entry((namespace, name)).or_insert(found)
            }
        };
        let Some(config_map) = found else {
            return Ok(Err(format!("{reference} does not exist")));
        };
        let value = config_map.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
        Ok(value.map(str::to_owned).ok_or_else(|| format!("{reference} has no key {}", quote(key))))
    }
}

/// Whether a rule can be applied to an object.
pub(super) enum Readiness {
    /// It can, with these values.
    Ready(Values),
    /// It can't, for this reason.
    NotFor(String),
}

/// The values of `variables` on `object`, together with the `built_ins`; or why the rule can't be applied.
pub(super) fn resolve<C: Cluster>(
    variables: &BTreeMap<String, Variable>,
    object: &Value,
    built_ins: &Values,
    config_maps: &mut ConfigMaps<'_, C>,
) -> Result<Readiness, RuleError> {
    let state = FedState::of(object);
    let mut values = built_ins.clone();
    // ConfigMaps come last, since their names and keys may use the other variables. The order is that of the names, so
    // that recorded sessions of the engine see the same lookups in the same order.
    let is_lookup = |variable: &Variable| matches!(variable.source, Source::ConfigMap { .. });
    let (lookups, others): (Vec<_>, Vec<_>) = variables.iter().partition(|(_, variable)| is_lookup(variable));
    for (name, variable) in others.into_iter().chain(lookups) {
        let (found, remedy) = match &variable.source {
            Source::State(alias) => {
                let value = state.get(alias).map(str::to_owned);
                let found = value.ok_or_else(|| format!("neither the state nor a label has {}", quote(alias)));
                (found, "`statePreservation` of its PropagationPolicy".to_owned())
            }
            Source::Field(path) => (field(path, object), format!("the field `{path}`")),
            Source::ConfigMap { namespace, name, key } => {
                let text = |template: &Template| template.render(&values);
                let (namespace, name, key) = (text(namespace)?, text(name)?, text(key)?);
                let remedy = format!("key {} of ConfigMap {}", quote(&key), quote(&format!("{namespace}/{name}")));
                (config_maps.value(namespace, name, &key)?, remedy)
            }
        };
        let problem = match found {
            Ok(value) if variable.accepts(&value) => {
                values.insert(name.clone(), value);
                continue;
            }
            Ok(value) => {
                let expected = variable.pattern.to_string();
                let is_rejected = variable.pattern.matches(&value);
                (RuleError::Invalid { name: name.clone(), value, expected, is_rejected, remedy }, variable.on_invalid)
            }
            Err(why) => (RuleError::Missing { name: name.clone(), why }, variable.on_missing),
        };
        return match problem {
            (error, Otherwise::Reject) => Err(error),
            (RuleError::Missing { name, why }, Otherwise::Skip) => {
                Ok(Readiness::NotFor(format!("variable `{name}` has no value ({why})")))
            }
            (error, Otherwise::Skip) => Ok(Readiness::NotFor(error.to_string())),
        };
    }
    Ok(Readiness::Ready(values))
}

fn field(path: &Path, object: &Value) -> Result<String, String> {
    match path.first(object).map_err(|error| error.to_string())? {
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Bool(flag)) => Ok(flag.to_string()),
        Some(other) => Err(format!("`{path}` is {}, expected text", type_name(other))),
        None => Err(format!("there is no `{path}`")),
    }
}

/// The template uses an unknown variable.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is not a variable that can be used here; expected one of {}, or `value` for literal text", quote(&format!("{{{name}}}")), .known.join(", "))]
pub struct TemplateError {
    name: String,
    known: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(String),
}

/// A string in which `{name}` stands for the value of a variable. Every other brace is literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Part>);

impl Template {
    /// The template in `text`, which may use `known` variables and the [`BUILT_INS`].
    ///
    /// # Errors
    /// It uses another variable.
    pub fn parse(text: &str, known: &[&str]) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            match after.split_once('}').filter(|(name, _)| is_identifier(name)) {
                Some((name, after)) => {
                    if !known.contains(&name) && !BUILT_INS.contains(&name) {
                        let known = known.iter().chain(&BUILT_INS).map(|&known| known.to_owned()).collect();
                        return Err(TemplateError { name: name.to_owned(), known });
                    }
                    parts.push(Part::Text(std::mem::take(&mut literal)));
                    parts.push(Part::Variable(name.to_owned()));
                    rest = after;
                }
                None => {
                    literal.push('{');
                    rest = after;
                }
            }
        }
        literal.push_str(rest);
        parts.push(Part::Text(literal));
        Ok(Self(parts))
    }

    /// The text with `values` in place of the variables.
    pub(super) fn render(&self, values: &Values) -> Result<String, RuleError> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(name) => {
                    text.push_str(values.get(name).ok_or_else(|| RuleError::NoBuiltIn { name: name.clone() })?);
                }
            }
        }
        Ok(text)
    }

    /// Whether this template could have rendered `text`. `accepts` tells whether a variable can have a value.
    pub(super) fn could_render(&self, text: &str, accepts: &impl Fn(&str, &str) -> bool) -> bool {
        // There are many ways to divide a text between several variables. Texts that need more tries than this do not
        // count.
        const MAX_TRIES: usize = 1000;
        let mut tries = MAX_TRIES;
        could_render(&self.0, text, accepts, &mut tries)
    }
}

fn could_render(parts: &[Part], text: &str, accepts: &impl Fn(&str, &str) -> bool, tries: &mut usize) -> bool {
    match parts {
        [] => text.is_empty(),
        [Part::Text(literal), rest @ ..] => {
            text.strip_prefix(literal.as_str()).is_some_and(|text| could_render(rest, text, accepts, tries))
        }
        // Every variable is followed by literal text, which is often empty.
        [Part::Variable(name), Part::Text(literal), rest @ ..] => {
            let ends: Box<dyn Iterator<Item = usize>> = match (rest, literal.as_str()) {
                ([], literal) => Box::new(text.strip_suffix(literal).map(str::len).into_iter()),
                (_, "") => Box::new(text.char_indices().map(|(at, _)| at).chain([text.len()])),
                (_, literal) => Box::new(text.match_indices(literal).map(|(at, _)| at)),
            };
            for end in ends {
                let Some(left) = tries.checked_sub(1) else { return false };
                *tries = left;
                let Some((value, after)) = text.split_at_checked(end) else { return false };
                let after = after.strip_prefix(literal.as_str()).unwrap_or(after);
                if accepts(name, value) && could_render(rest, after, accepts, tries) {
                    return true;
                }
            }
            false
        }
        [Part::Variable(name)] => accepts(name, text),
        [Part::Variable(_), ..] => false,
    }
}

/// Whether `name` can be the name of a variable: a letter or `_`, then letters, digits and `_`.
pub fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let values = Values::from([("id".to_owned(), "7".to_owned()), ("name".to_owned(), "web".to_owned())]);
        Template::parse(text, &["id"]).unwrap().render(&values).unwrap()
    }

    #[test]
    fn only_identifiers_in_braces_are_variables() {
        for (template, text) in [
            ("{id}", "7"),
            ("s3://b/{name}/{id}/x", "s3://b/web/7/x"),
            ("{{id}}", "{7}"),
            ("{} { id } {a b} {1} {id", "{} { id } {a b} {1} {id"),
            ("{{=sprig.trim(x)}} $(HOME)", "{{=sprig.trim(x)}} $(HOME)"),
            ("", ""),
        ] {
            assert_eq!(render(template), text, "{template}");
        }
        assert!(Template::parse("${HOME}", &["id"]).is_err(), "an undeclared identifier in braces");
    }

    #[test]
    fn patterns_match_whole_values() {
        let hex = Pattern::regex("[0-9a-f]{4}|x");
        assert!(hex.check().is_ok() && hex.matches("12ab") && hex.matches("x"));
        assert!(!hex.matches("12abc") && !hex.matches("x\n") && !hex.matches("xx"));
        let unbalanced = Pattern::regex("a)|(?:b");
        assert!(unbalanced.check().is_err() && !unbalanced.matches("a") && !unbalanced.matches("b"));
        let anchored = Pattern::regex("^[a-z]+$");
        assert!(anchored.matches("abc") && !anchored.matches("ab1"));
    }

    #[test]
    fn what_a_template_could_have_made() {
        let anchored = Pattern::regex("^[a-z0-9]+$");
        let accepts = |name: &str, value: &str| match name {
            "name" => value == "web",
            _ => anchored.matches(value),
        };
        for (template, text, could) in [
            ("s3://b/{x}/latest", "s3://b/job7/latest", true),
            ("s3://b/{x}/latest", "s3://b/job7/other", false),
            ("s3://b/{x}/latest", "s3://b/a/b/latest", false),
            ("{name}-{x}", "web-1", true),
            ("{name}-{x}", "other-1", false),
            ("{x}{y}", "ab", true),
            ("{x}{y}", "a", false),
            ("{x}/{y}/{x}", "a/b/c", true),
            ("{x}/{y}", "a/", false),
            ("{x}é{y}", "aéb", true),
            ("text", "text", true),
            ("text", "texts", false),
        ] {
            let template = Template::parse(template, &["x", "y"]).unwrap();
            assert_eq!(template.could_render(text, &accepts), could, "{text}");
        }
        let many = Template::parse("{x}-{y}-{x}-{y}", &["x", "y"]).unwrap();
        assert!(!many.could_render(&"-".repeat(8192), &accepts), "answered, and soon");
    }
}
