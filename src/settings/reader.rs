//! Reads settings from JSON and collects every error with its path, while serde would stop at the first one.

use std::fmt;

use serde_json::{Map, Value};

use crate::messages::quote;
use crate::metadata::type_name;

/// The path of a value in the settings: `restore.rules[0].set[1].path`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldPath(String);

impl FieldPath {
    /// The settings as a whole.
    pub fn root() -> Self {
        Self(String::new())
    }

    /// The path of the field `key`.
    pub fn field(&self, key: &str) -> Self {
        let is_plain = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        match (is_plain, self.0.is_empty()) {
            (true, true) => Self(key.to_owned()),
            (true, false) => Self(format!("{}.{key}", self.0)),
            (false, _) => Self(format!("{}[{}]", self.0, quote(key))),
        }
    }

    /// The path of the item `index`.
    pub fn item(&self, index: usize) -> Self {
        Self(format!("{}[{index}]", self.0))
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "settings" } else { &self.0 })
    }
}

/// One error in the settings: `path: message`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    text: String,
    path_length: usize,
}

impl Problem {
    fn new(path: &FieldPath, message: impl fmt::Display) -> Self {
        let path_length = path.0.len();
        Self { text: format!("{path}: {message}"), path_length }
    }

    /// The path of the value: `restore.rules[0].set[1].path`. Empty for the settings as a whole.
    pub fn path(&self) -> &str {
        self.text.get(..self.path_length).unwrap_or_default()
    }

    /// What is wrong with the value.
    pub fn message(&self) -> &str {
        let rest = self.text.get(self.path_length..).unwrap_or_default();
        rest.split_once(": ").map_or(rest, |(_, message)| message)
    }
}

impl AsRef<str> for Problem {
    fn as_ref(&self) -> &str {
        &self.text
    }
}

/// The errors so far, in the order of the settings.
#[derive(Debug)]
pub struct Errors {
    problems: Vec<Problem>,
    /// Whether expensive checks are made too: that patterns compile, and that paths do not overlap. The engine asks for
    /// them once, when it loads the settings.
    pub is_thorough: bool,
}

impl Errors {
    /// No errors yet.
    pub fn new(is_thorough: bool) -> Self {
        Self { problems: Vec::new(), is_thorough }
    }

    /// Adds an error at `path`.
    pub fn add(&mut self, path: &FieldPath, message: impl fmt::Display) {
        self.problems.push(Problem::new(path, message));
    }

    /// All errors.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }

    /// The number of errors.
    pub fn count(&self) -> usize {
        self.problems.len()
    }
}

/// A JSON object whose fields are known by name.
#[derive(Debug)]
pub struct Object<'a> {
    fields: Option<&'a Map<String, Value>>,
    /// The path of the object.
    pub path: FieldPath,
}

impl<'a> Object<'a> {
    /// The object at `path`. Fields other than `known` are errors. Null is an empty object.
    pub fn new(value: &'a Value, path: FieldPath, known: &[&str], errors: &mut Errors) -> Self {
        let fields = match value {
            Value::Object(fields) => Some(fields),
            Value::Null => None,
            other => {
                errors.add(&path, format_args!("is {}, expected an object", type_name(other)));
                None
            }
        };
        for key in fields.into_iter().flat_map(Map::keys).filter(|key| !known.contains(&key.as_str())) {
            errors.add(&path, unknown(key, known, "field"));
        }
        Self { fields, path }
    }

    /// The value of a field; null is absent.
    pub fn get(&self, key: &str) -> Option<&'a Value> {
        self.fields?.get(key).filter(|value| !value.is_null())
    }

    /// The value of a field, null or not.
    pub fn get_even_null(&self, key: &str) -> Option<&'a Value> {
        self.fields?.get(key)
    }

    /// The path of a field.
    pub fn path_of(&self, key: &str) -> FieldPath {
        self.path.field(key)
    }

    /// The field as an object; empty where it is absent.
    pub fn object(&self, key: &str, known: &[&str], errors: &mut Errors) -> Object<'a> {
        Object::new(self.get(key).unwrap_or(&Value::Null), self.path_of(key), known, errors)
    }

    /// A string.
    pub fn string(&self, key: &str, errors: &mut Errors) -> Option<&'a str> {
        as_string(self.get(key)?, &self.path_of(key), errors)
    }

    /// The field as a string, which must not be absent or empty.
    pub fn required_string(&self, key: &str, errors: &mut Errors) -> Option<&'a str> {
        let text = match self.get(key) {
            Some(value) => as_string(value, &self.path_of(key), errors)?,
            None => {
                errors.add(&self.path, format_args!("`{key}` is missing"));
                return None;
            }
        };
        if text.is_empty() {
            errors.add(&self.path_of(key), "is empty");
            return None;
        }
        Some(text)
    }

    /// The field as one of `choices`, by name; the first one where it is absent.
    pub fn choice<T: Copy>(&self, key: &str, choices: &[(&str, T)], default: T, errors: &mut Errors) -> T {
        let Some(name) = self.string(key, errors) else {
            return default;
        };
        match choices.iter().find(|(known, _)| *known == name) {
            Some((_, choice)) => *choice,
            None => {
                let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
                errors.add(&self.path_of(key), unknown(name, &names, "value"));
                default
            }
        }
    }

    /// The field as a list, with the path of each item; empty where it is absent.
    pub fn list(&self, key: &str, errors: &mut Errors) -> Vec<(&'a Value, FieldPath)> {
        let path = self.path_of(key);
        match self.get(key) {
            None => Vec::new(),
            Some(Value::Array(items)) => {
                items.iter().enumerate().map(|(index, item)| (item, path.item(index))).collect()
            }
            Some(other) => {
                errors.add(&path, format_args!("is {}, expected a list", type_name(other)));
                Vec::new()
            }
        }
    }

    /// The field as a list of strings.
    pub fn strings(&self, key: &str, errors: &mut Errors) -> Vec<String> {
        let items = self.list(key, errors);
        items.into_iter().filter_map(|(item, path)| Some(as_string(item, &path, errors)?.to_owned())).collect()
    }

    /// The field as a map whose keys the user chooses.
    pub fn entries(&self, key: &str, errors: &mut Errors) -> Vec<(&'a str, &'a Value, FieldPath)> {
        let path = self.path_of(key);
        match self.get(key) {
            None => Vec::new(),
            Some(Value::Object(fields)) => {
                fields.iter().map(|(name, value)| (name.as_str(), value, path.field(name))).collect()
            }
            Some(other) => {
                errors.add(&path, format_args!("is {}, expected an object", type_name(other)));
                Vec::new()
            }
        }
    }
}

/// The string at `path`.
pub fn as_string<'a>(value: &'a Value, path: &FieldPath, errors: &mut Errors) -> Option<&'a str> {
    let text = value.as_str();
    if text.is_none() {
        errors.add(path, format_args!("is {}, expected a string", type_name(value)));
    }
    text
}

/// The message for a name that is not in `known`. It suggests the nearest known name or, where none is similar, lists a
/// few.
pub fn unknown(name: &str, known: &[&str], what: &str) -> String {
    const MAX_CANDIDATES: usize = 5;
    let nearest = known
        .iter()
        .map(|candidate| (strsim::damerau_levenshtein(&name.to_lowercase(), &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= candidate.len().div_ceil(3));
    let name = quote(name);
    match nearest {
        Some((_, nearest)) => format!("unknown {what} {name}, did you mean `{nearest}`?"),
        None => {
            let listed: Vec<String> = known.iter().take(MAX_CANDIDATES).map(|known| format!("`{known}`")).collect();
            let more = match known.len().saturating_sub(MAX_CANDIDATES) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("unknown {what} {name}, expected {}{more}", listed.join(", "))
        }
    }
}
