//! Carrying out one edit of a rule at one place of an object.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::RuleError;
use super::path::Path;
use super::record::{Change, Earlier, Record};
use super::rule::{As, Edit, Mode, Written};
use super::variable::{Values, Variable};
use crate::metadata::type_name;

impl Edit {
    /// What the edit writes, with the `values` of the rule's variables.
    pub(super) fn value(&self, values: &Values) -> Result<Value, RuleError> {
        match &self.written {
            Written::Value(value) => Ok(value.clone()),
            Written::Template(template) => {
                template.render(values).map(Value::from).map_err(|name| RuleError::NoBuiltIn(name.to_owned()))
            }
            Written::ValueFrom(name, as_type) => {
                let text = values.get(name).ok_or_else(|| RuleError::NoBuiltIn(name.clone()))?;
                typed(text, *as_type).ok_or_else(|| RuleError::Type {
                    name: name.clone(),
                    value: text.clone(),
                    expected: expected(*as_type),
                })
            }
        }
    }

    /// Writes `value` at `place`, and notes in `record` what that changed. The object `came` with something there, and
    /// `earlier` is what the rule did before.
    pub(super) fn write(
        &self,
        place: &Path,
        object: &mut Value,
        value: &Value,
        record: &mut Record,
        came: Option<&Value>,
        earlier: Earlier<'_>,
    ) -> Result<(), RuleError> {
        let at = |cause| RuleError::Edit { path: place.to_string(), cause };
        match &self.mode {
            Mode::Append => {
                let is_new = append_to_list(place, object, value)?;
                record.note_appended(place, value, is_new, earlier);
            }
            Mode::AppendText(separator) => {
                let is_new = append_to_text(place, object, value, separator)?;
                let change = is_new.then(|| Change { was: None, set: Some(value.clone()) });
                let texts = came.and_then(Value::as_str).zip(value.as_str());
                let came_with_it = texts.is_some_and(|(text, token)| has_token(text, token, separator));
                record.note(place, change, Some(value), came.and(came_with_it.then_some(value)), earlier);
            }
            Mode::Replace | Mode::IfAbsent => {
                let before = place.get(object).map_err(at)?.cloned();
                let is_written = before.as_ref() == Some(value) || (self.mode == Mode::IfAbsent && before.is_some());
                if !is_written {
                    place.set(object, value.clone()).map_err(at)?;
                }
                let change = (!is_written).then(|| Change { was: before, set: Some(value.clone()) });
                record.note(place, change, Some(value), came, earlier);
            }
        }
        Ok(())
    }

    /// Takes away what the edit appended earlier and would not append now.
    pub(super) fn take_back(&self, place: &Path, object: &mut Value, value: &Value, earlier: &Record) {
        let Some(change) = earlier.get(&place.to_string()) else {
            return;
        };
        let Ok(Some(_)) = place.get(object) else {
            return;
        };
        let Ok(target) = place.create(object) else {
            return;
        };
        match (&self.mode, target, &change.set) {
            (Mode::Append, Value::Array(items), Some(Value::Array(appended))) => {
                items.retain(|item| item == value || !appended.contains(item));
            }
            (Mode::AppendText(separator), Value::String(text), Some(Value::String(token)))
                if Some(token.as_str()) != value.as_str() =>
            {
                let framed = format!("{separator}{text}{separator}");
                let without = framed.replace(&format!("{separator}{token}{separator}"), separator);
                let without = without.strip_prefix(separator.as_str()).unwrap_or_default();
                *text = without.strip_suffix(separator.as_str()).unwrap_or_default().to_owned();
            }
            _ => {}
        }
    }

    /// Whether this edit could have written `set`: with the settings' own value, or legal values of its variables.
    pub(super) fn could_write(&self, set: &Value, variables: &BTreeMap<String, Variable>, built_ins: &Values) -> bool {
        match &self.written {
            Written::Value(value) => value == set,
            Written::Template(template) => {
                set.as_str().is_some_and(|text| template.could_render(text, variables, built_ins))
            }
            Written::ValueFrom(name, as_type) => {
                let text = match (as_type, set) {
                    (As::String, Value::String(text)) => text.clone(),
                    (As::Integer, Value::Number(number)) => number.to_string(),
                    (As::Boolean, Value::Bool(flag)) => flag.to_string(),
                    _ => return false,
                };
                let is_legal = match variables.get(name) {
                    Some(variable) => variable.accepts(&text),
                    None => built_ins.get(name) == Some(&text),
                };
                is_legal && typed(&text, *as_type).as_ref() == Some(set)
            }
        }
    }
}

/// `text` as a type, where it is canonical for it: what prints it gives the same text.
fn typed(text: &str, as_type: As) -> Option<Value> {
    match as_type {
        As::String => Some(Value::from(text)),
        As::Integer => text
            .parse::<i64>()
            .ok()
            .filter(|number| number.to_string() == text)
            .map(|number| Value::Number(Number::from(number))),
        As::Boolean => text.parse::<bool>().ok().map(Value::Bool),
    }
}

fn expected(as_type: As) -> &'static str {
    match as_type {
        As::String => "text",
        As::Integer => "a whole number in canonical form (no leading zeros, exponent or sign +)",
        As::Boolean => "true or false",
    }
}

/// Appends `item` to the list at `place`, unless it is in it; says whether it did.
pub(super) fn append_to_list(place: &Path, object: &mut Value, item: &Value) -> Result<bool, RuleError> {
    let at = |cause| RuleError::Edit { path: place.to_string(), cause };
    if place.get(object).map_err(at)?.and_then(Value::as_array).is_some_and(|items| items.contains(item)) {
        return Ok(false);
    }
    match place.create(object).map_err(at)? {
        Value::Array(items) => items.push(item.clone()),
        empty @ Value::Null => *empty = Value::Array(vec![item.clone()]),
        other => {
            let expected =
                if other.is_string() { "a list (to append to a string, give a `separator`)" } else { "a list" };
            return Err(RuleError::Append { path: place.to_string(), found: type_name(other), expected });
        }
    }
    Ok(true)
}

/// Appends the text `token` to the string at `place`, unless it is a token of it; says whether it did.
pub(super) fn append_to_text(
    place: &Path,
    object: &mut Value,
    token: &Value,
    separator: &str,
) -> Result<bool, RuleError> {
    let at = |cause| RuleError::Edit { path: place.to_string(), cause };
    let mistyped =
        |found: &Value| RuleError::Append { path: place.to_string(), found: type_name(found), expected: "a string" };
    let token = token.as_str().ok_or_else(|| mistyped(token))?;
    match place.create(object).map_err(at)? {
        Value::String(text) if has_token(text, token, separator) => return Ok(false),
        Value::String(text) if text.is_empty() => text.push_str(token),
        Value::String(text) => {
            text.push_str(separator);
            text.push_str(token);
        }
        empty @ Value::Null => *empty = Value::from(token),
        other => return Err(mistyped(other)),
    }
    Ok(true)
}

/// Whether `token` is in `text`, between separators or ends.
fn has_token(text: &str, token: &str, separator: &str) -> bool {
    format!("{separator}{text}{separator}").contains(&format!("{separator}{token}{separator}"))
}

/// Whether `value` has all that `part` has: the API server adds defaults to what it is given.
pub(super) fn covers(value: &Value, part: &Value) -> bool {
    match (value, part) {
        (Value::Object(value), Value::Object(part)) => {
            part.iter().all(|(key, part)| value.get(key).is_some_and(|value| covers(value, part)))
        }
        (Value::Array(value), Value::Array(part)) => {
            value.len() == part.len() && value.iter().zip(part).all(|(value, part)| covers(value, part))
        }
        (value, part) => value == part,
    }
}
