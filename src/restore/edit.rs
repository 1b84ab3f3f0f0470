//! Applies one rule to an object, and tells what its edits can write.

use serde_json::{Number, Value};

use super::RuleError;
use super::place::{EditError, MAX_PLACES, Place};
use super::rule::{As, Content, Edit, Mode, Rule, Site};
use super::variable::Values;
use crate::metadata::type_name;

/// A site that a rule has changed, and the value that it appended there, if it appends.
pub(super) struct Touched<'r> {
    pub(super) site: Site<'r>,
    pub(super) appended: Option<Value>,
}

impl Rule {
    /// Applies the rule with the `values` of its variables: first `remove`, then `set`.
    pub(super) fn apply(&self, values: &Values, object: &mut Value) -> Result<Vec<Touched<'_>>, RuleError> {
        let mut touched: Vec<Touched<'_>> = Vec::new();
        for path in &self.remove {
            // Where a parent has another type, there is nothing to remove.
            for place in path.places(object).unwrap_or_default() {
                let is_replaced = self.set.iter().any(|edit| path.contains(&edit.path));
                let removed = match place.get(object) {
                    // An entry whose parts are set keeps its place in the list.
                    Ok(Some(_)) if is_replaced => place.put(object, place.created()),
                    _ => place.remove(object),
                };
                removed.map_err(|cause| RuleError::at(&place, cause))?;
                touched.push(Touched { site: Site { place, edit: None }, appended: None });
            }
        }
        let removed = touched.len();
        for edit in &self.set {
            let value = edit.value(values)?;
            let places = edit.path.places(object).map_err(|cause| RuleError::at(&edit.path, cause))?;
            if places.is_empty() {
                return Err(RuleError::at(&edit.path, EditError::NoMatch(edit.path.to_string())));
            }
            for place in places {
                let is_written = edit.write(&place, &value, object)?;
                let is_part = touched.iter().take(removed).any(|removed| removed.site.place.covers(&place));
                if is_written && !is_part {
                    let appended = edit.mode.appends().then(|| value.clone());
                    touched.push(Touched { site: Site { place, edit: Some(edit) }, appended });
                }
            }
        }
        match touched.len() {
            0..=MAX_PLACES => Ok(touched),
            _ => Err(RuleError::TooManyPlaces),
        }
    }

    /// Whether this rule could have written `set` at `site`, where `accepts` says what the value of a variable can be.
    pub(super) fn could_write(&self, site: &Site<'_>, set: &Value, accepts: &impl Fn(&str, &str) -> bool) -> bool {
        match site.edit {
            Some(edit) if edit.mode == Mode::Append => {
                let edits = || self.set.iter().filter(|other| other.mode == Mode::Append && other.path == edit.path);
                let is_own = |item: &Value| edits().any(|edit| edit.could_write(item, accepts));
                set.as_array().is_some_and(|items| items.iter().all(is_own))
            }
            Some(edit) => edit.could_write(set, accepts),
            None => self.could_write_below(&site.place, set, accepts),
        }
    }

    /// Whether `set` consists of nothing but what this rule sets below a place that it removes.
    fn could_write_below(&self, removed: &Place, set: &Value, accepts: &impl Fn(&str, &str) -> bool) -> bool {
        let mut rebuilt = removed.created();
        for edit in self.set.iter().filter(|edit| self.is_below_removed(edit)) {
            let Some(place) = edit.path.place_below(removed) else { continue };
            let Ok(Some(value)) = place.get(set) else { return false };
            let site = Site { place, edit: Some(edit) };
            if !self.could_write(&site, value, accepts) || site.place.put(&mut rebuilt, value.clone()).is_err() {
                return false;
            }
        }
        rebuilt == *set
    }
}

impl Edit {
    /// What the edit writes, with the `values` of the rule's variables.
    fn value(&self, values: &Values) -> Result<Value, RuleError> {
        match &self.content {
            Content::Value(value) => Ok(value.clone()),
            Content::Template(template) => template.render(values).map(Value::from),
            Content::ValueFrom(name, as_type) => {
                let text = values.get(name).ok_or_else(|| RuleError::NoBuiltIn { name: name.clone() })?;
                typed(text, *as_type).ok_or_else(|| RuleError::Type {
                    name: name.clone(),
                    value: text.clone(),
                    expected: expected(*as_type),
                })
            }
        }
    }

    /// Writes `value` at `place`. Returns `false` where `IfAbsent` finds a value there.
    fn write(&self, place: &Place, value: &Value, object: &mut Value) -> Result<bool, RuleError> {
        let at = |cause| RuleError::at(place, cause);
        let stands = place.get(object).map_err(at)?;
        let is_there = match &self.mode {
            Mode::Replace => stands == Some(value),
            Mode::IfAbsent => stands.is_some() || (self.path.is_env_value() && place.has_sibling("valueFrom", object)),
            Mode::Append => stands.and_then(Value::as_array).is_some_and(|items| items.contains(value)),
            Mode::AppendText(_) => false,
        };
        if is_there {
            return Ok(self.mode != Mode::IfAbsent);
        }
        place.check_containers(object).map_err(at)?;
        match &self.mode {
            Mode::Replace | Mode::IfAbsent => place.put(object, value.clone()).map_err(at)?,
            Mode::Append => append_item(place, object, value)?,
            Mode::AppendText(separator) => append_text(place, object, value, separator)?,
        }
        Ok(true)
    }

    /// Whether this edit could have written `set`.
    fn could_write(&self, set: &Value, accepts: &impl Fn(&str, &str) -> bool) -> bool {
        match &self.content {
            Content::Value(value) => value == set,
            Content::Template(template) => set.as_str().is_some_and(|text| template.could_render(text, accepts)),
            Content::ValueFrom(name, as_type) => {
                let text = match (as_type, set) {
                    (As::String, Value::String(text)) => text.clone(),
                    (As::Integer, Value::Number(number)) => number.to_string(),
                    (As::Boolean, Value::Bool(flag)) => flag.to_string(),
                    _ => return false,
                };
                accepts(name, &text) && typed(&text, *as_type).as_ref() == Some(set)
            }
        }
    }
}

/// Appends `item` to the list at `place`.
pub(super) fn append_item(place: &Place, object: &mut Value, item: &Value) -> Result<(), RuleError> {
    match place.get_or_create(object).map_err(|cause| RuleError::at(place, cause))? {
        Value::Array(items) => items.push(item.clone()),
        empty @ Value::Null => *empty = Value::Array(vec![item.clone()]),
        other => {
            let expected =
                if other.is_string() { "a list; to append to a string, give a `separator`" } else { "a list" };
            return Err(RuleError::Append { path: place.to_string(), found: type_name(other), expected });
        }
    }
    Ok(())
}

/// Appends the text `token` to the string at `place`, unless it is a token of it.
pub(super) fn append_text(place: &Place, object: &mut Value, token: &Value, separator: &str) -> Result<(), RuleError> {
    let mistyped =
        |found: &Value| RuleError::Append { path: place.to_string(), found: type_name(found), expected: "a string" };
    let token = token.as_str().ok_or_else(|| mistyped(token))?;
    match place.get_or_create(object).map_err(|cause| RuleError::at(place, cause))? {
        Value::String(text) => *text = with_token(text, token, separator),
        empty @ Value::Null => *empty = Value::from(token),
        other => return Err(mistyped(other)),
    }
    Ok(())
}

/// `text` with `token` appended before trailing white space, or unchanged where it has the token already. A separator
/// that ends the text is not doubled.
fn with_token(text: &str, token: &str, separator: &str) -> String {
    if token_in(text, token, separator).is_some() {
        return text.to_owned();
    }
    let body = text.trim_end();
    let tail = text.get(body.len()..).unwrap_or_default();
    let mark = separator.trim_end();
    let blank = separator.get(mark.len()..).unwrap_or_default();
    if body.is_empty() {
        format!("{token}{tail}")
    } else if !mark.is_empty() && body.ends_with(mark) {
        format!("{body}{blank}{token}{}", tail.strip_prefix(blank).unwrap_or(tail))
    } else {
        format!("{body}{separator}{token}{tail}")
    }
}

/// `text` without `token` and without the separator before it or, at the start of the text, after it.
pub(super) fn without_token(text: &str, token: &str, separator: &str) -> String {
    let Some(at) = token_in(text, token, separator) else { return text.to_owned() };
    let before = text.get(..at).unwrap_or_default();
    let after = text.get(at + token.len()..).unwrap_or_default();
    match before.strip_suffix(separator) {
        Some(before) => format!("{before}{after}"),
        None => format!("{before}{}", after.strip_prefix(separator).unwrap_or(after)),
    }
}

/// The last position of `token` in `text`, between separators or ends. Trailing white space is not part of the text;
/// where the separator is white space, any white space separates.
fn token_in(text: &str, token: &str, separator: &str) -> Option<usize> {
    if token.is_empty() {
        return Some(text.len());
    }
    let is_blank = separator.trim().is_empty();
    let mark = separator.trim_end();
    let begins = |before: &str| {
        before.trim_start().is_empty()
            || before.ends_with(separator)
            || (!mark.is_empty() && before.trim_end().ends_with(mark))
            || (is_blank && before.ends_with(char::is_whitespace))
    };
    let ends = |after: &str| {
        after.trim_end().is_empty()
            || after.starts_with(separator)
            || (is_blank && after.starts_with(char::is_whitespace))
    };
    let mut places = text.rmatch_indices(token).map(|(at, _)| at);
    places.find(|&at| {
        begins(text.get(..at).unwrap_or_default()) && ends(text.get(at + token.len()..).unwrap_or_default())
    })
}

/// Whether `token` is a token of `text`.
pub(super) fn has_token(text: &str, token: &str, separator: &str) -> bool {
    token_in(text, token, separator).is_some()
}

/// Whether `value` has everything that `part` has. It may have more, since API servers add defaults.
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

/// `text` as a value of that type, where it is in canonical form: printing the value gives the same text.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_added_once_and_in_front_of_white_space() {
        for (text, separator, with) in [
            ("python a.py", " ", "python a.py --r"),
            ("python a.py\n", " ", "python a.py --r\n"),
            ("python a.py ", " ", "python a.py --r "),
            ("a --r b", " ", "a --r b"),
            ("a --r\n", " ", "a --r\n"),
            ("a\n--r\nb", " ", "a\n--r\nb"),
            ("a --rest", " ", "a --rest --r"),
            ("", " ", "--r"),
            ("\n", " ", "--r\n"),
            ("a,b", ",", "a,b,--r"),
            ("a,b,", ",", "a,b,--r"),
            ("a,\n", ",", "a,--r\n"),
            ("a,", ", ", "a, --r"),
            ("a, ", ", ", "a, --r"),
            ("a && ", " && ", "a && --r"),
            ("one\ntwo\n", "\n", "one\ntwo\n--r\n"),
            ("--r,a", ",", "--r,a"),
        ] {
            assert_eq!(with_token(text, "--r", separator), with, "{text:?} {separator:?}");
            assert_eq!(with_token(with, "--r", separator), with, "once only: {text:?} {separator:?}");
        }
    }

    #[test]
    fn tokens_are_taken_out_with_their_separator() {
        for (text, separator, without) in [
            ("a --r", " ", "a"),
            ("a --r\n", " ", "a\n"),
            ("--r,a", ",", "a"),
            ("a,--r,b", ",", "a,b"),
            ("--r", ",", ""),
            ("a", ",", "a"),
        ] {
            assert_eq!(without_token(text, "--r", separator), without, "{text:?}");
        }
    }
}
