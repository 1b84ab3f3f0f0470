//! Variables of restore rules: where their values come from, what is a legal one, and templates that use them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;

use regex_lite::Regex;
use thiserror::Error;

use crate::labels::is_label_value;
use crate::verdict::quote;

/// The names that every template knows, next to a rule's variables.
pub const BUILT_INS: [&str; 3] = ["namespace", "name", "kind"];

/// A legal, non-empty label value as a regular expression, for a part of a longer text.
const LABEL_VALUE: &str = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?";

/// What a rule does where it can't be carried out with a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Otherwise {
    /// The rule is left out.
    Skip,
    /// The request is denied.
    Reject,
}

/// What a whole value must be.
#[derive(Debug, Clone)]
pub enum Pattern {
    /// A legal, non-empty label value.
    LabelValue,
    /// A match of a regular expression.
    Regex(LazyRegex),
}

/// A regular expression that is compiled when the first value is held against it: the settings are read for every request,
/// and most requests need few of their patterns.
#[derive(Debug, Clone)]
pub struct LazyRegex {
    source: String,
    whole: OnceLock<Option<Regex>>,
}

impl LazyRegex {
    fn compile(source: &str) -> Result<Regex, regex_lite::Error> {
        // By itself first: unbalanced parentheses could take the frame apart.
        Regex::new(source)?;
        Regex::new(&format!("^(?:{source})$"))
    }
}

impl Pattern {
    /// The regular expression in `source`.
    pub fn regex(source: &str) -> Self {
        Self::Regex(LazyRegex { source: source.to_owned(), whole: OnceLock::new() })
    }

    /// Whether it compiles. Nothing matches one that does not.
    ///
    /// # Errors
    /// Where it does not compile, and why.
    pub fn check(&self) -> Result<(), regex_lite::Error> {
        match self {
            Self::LabelValue => Ok(()),
            Self::Regex(regex) => LazyRegex::compile(&regex.source).map(drop),
        }
    }

    /// Whether `value` is a legal one.
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

    /// As a regular expression.
    fn source(&self) -> &str {
        match self {
            Self::LabelValue => LABEL_VALUE,
            Self::Regex(regex) => &regex.source,
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LabelValue => f.write_str("a legal, non-empty label value"),
            Self::Regex(regex) => write!(f, "a match of `{}`", regex.source),
        }
    }
}

/// Where a variable's value comes from.
#[derive(Debug)]
pub enum Source {
    /// An alias: read from the annotation with the state, else from the label.
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
}

/// A variable of a rule.
#[derive(Debug)]
pub struct Variable {
    /// Where its value comes from.
    pub source: Source,
    /// What a legal value is.
    pub pattern: Pattern,
    /// Values that are not legal though the pattern matches.
    pub reject: Vec<String>,
    /// What to do without a value.
    pub on_missing: Otherwise,
    /// What to do with an illegal one.
    pub on_invalid: Otherwise,
}

impl Variable {
    /// Whether `value` is a legal one.
    pub fn accepts(&self, value: &str) -> bool {
        self.pattern.matches(value) && !self.reject.iter().any(|rejected| rejected == value)
    }
}

/// A template that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{} is not a variable of this rule; {known}", quote(&format!("{{{name}}}")))]
pub struct TemplateError {
    name: String,
    known: String,
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
    /// It uses another one.
    pub fn parse(text: &str, known: &[&str]) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            match after.split_once('}').filter(|(name, _)| is_identifier(name)) {
                Some((name, after)) => {
                    if !known.contains(&name) && !BUILT_INS.contains(&name) {
                        return Err(Self::unknown(name, known));
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

    fn unknown(name: &str, known: &[&str]) -> TemplateError {
        let known: Vec<&str> = known.iter().chain(&BUILT_INS).copied().collect();
        let known = format!("declare it in `vars`, use one of {}, or write `value` for literal text", known.join(", "));
        TemplateError { name: name.to_owned(), known }
    }

    /// The names of the variables in it.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with `values` in it, or the name of a variable that has none.
    pub fn render<'a>(&'a self, values: &Values) -> Result<String, &'a str> {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Variable(name) => text.push_str(values.get(name.as_str()).ok_or(name.as_str())?),
            }
        }
        Ok(text)
    }

    /// Whether this template could have made `text`, from legal values of `variables` and the `built_ins` as they are.
    pub fn could_render(&self, text: &str, variables: &BTreeMap<String, Variable>, built_ins: &Values) -> bool {
        let mut pattern = String::from("^");
        for part in &self.0 {
            match part {
                Part::Text(literal) => pattern.push_str(&regex_lite::escape(literal)),
                Part::Variable(name) => match (variables.get(name), built_ins.get(name.as_str())) {
                    (Some(variable), _) => pattern.push_str(&format!("(?:{})", variable.pattern.source())),
                    (None, Some(value)) => pattern.push_str(&regex_lite::escape(value)),
                    (None, None) => return false,
                },
            }
        }
        pattern.push('$');
        Regex::new(&pattern).is_ok_and(|pattern| pattern.is_match(text))
    }
}

/// The values of variables and built-ins.
pub type Values = BTreeMap<String, String>;

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
    }

    #[test]
    fn the_default_pattern_is_the_grammar_of_label_values() {
        let pattern = Pattern::regex(LABEL_VALUE);
        let longest = "a".repeat(63);
        let too_long = "a".repeat(64);
        for value in ["a", "a-b", "..-.._x", "s3://b", "1.6e+06", "", "a.", "é", longest.as_str(), too_long.as_str()] {
            assert_eq!(pattern.matches(value), Pattern::LabelValue.matches(value), "{value:?}");
        }
    }
}
