//! A JSON document of which parts are read, and whose text is edited.

use serde_json::{Map, Value};

use super::scan::{Member, Scanner};
use super::{Fields, JsonError};

/// A document, and the value of the parts that were read.
#[derive(Debug, Clone)]
pub struct Document<'t> {
    text: &'t str,
    fields: Fields<'t>,
    value: Value,
}

impl<'t> Document<'t> {
    /// Reads the `fields` of the document in `text`.
    ///
    /// # Errors
    /// [`JsonError`]. Parts that are not read are checked only as far as it takes to find their end.
    pub fn read(text: &'t str, fields: Fields<'t>) -> Result<Self, JsonError> {
        let value = read(text, &fields)?;
        Ok(Self { text, fields, value })
    }

    /// Reads other `fields` of the same document.
    ///
    /// # Errors
    /// [`JsonError`].
    pub fn read_again(&self, fields: Fields<'t>) -> Result<Self, JsonError> {
        Self::read(self.text, fields)
    }

    /// The value that was read.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The text of the document with `edited` in place of the value that was read. The text of equal parts does not
    /// change.
    ///
    /// # Errors
    /// [`NotRead`], where the edit needs parts of the document that were not read.
    pub fn write(&self, edited: &Value) -> Result<String, NotRead> {
        // Enough for most edits, so that the text does not have to move while it grows.
        const ROOM: usize = 4096;
        let mut scanner = Scanner::new(self.text);
        let mut text = String::with_capacity(self.text.len() + ROOM);
        match write(&mut scanner, &self.fields, &self.value, edited, &mut text) {
            Ok(()) => Ok(text),
            Err(_) if self.fields.is_whole() => Ok(edited.to_string()),
            Err(_) => Err(NotRead),
        }
    }
}

/// The edit needs parts of the document that were not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotRead;

/// Reads these `fields` of the document in `text`.
///
/// # Errors
/// [`JsonError`], as [`Document::read`].
pub fn read(text: &str, fields: &Fields<'_>) -> Result<Value, JsonError> {
    let mut scanner = Scanner::new(text);
    let value = read_value(&mut scanner, fields)?;
    scanner.end()?;
    Ok(value)
}

fn read_value(scanner: &mut Scanner<'_>, fields: &Fields<'_>) -> Result<Value, JsonError> {
    match scanner.peek() {
        Some(b'{') if !fields.is_whole() => {
            let mut members = Map::new();
            scanner.members(|scanner, Member { key, .. }| {
                let value = match fields.of_member(&key) {
                    Some(fields) => read_value(scanner, fields)?,
                    None if fields.is_exact() => return scanner.value().map(drop),
                    None => skim(scanner)?,
                };
                members.insert(key.into_owned(), value);
                Ok(())
            })?;
            Ok(Value::Object(members))
        }
        Some(b'[') if !fields.is_whole() => {
            let Some(item_fields) = fields.of_item() else { return skim(scanner) };
            let mut items = Vec::new();
            scanner.items(|scanner| {
                let start = scanner.clone();
                let mut item = read_value(scanner, item_fields)?;
                if fields.is_whole_item(&item) {
                    *scanner = start;
                    item = read_value(scanner, &Fields::whole())?;
                }
                items.push(item);
                Ok(())
            })?;
            Ok(Value::Array(items))
        }
        Some(b'"') => scanner.string().map(|text| Value::String(text.into_owned())),
        _ => scanner.parse(),
    }
}

/// A scalar, or an empty list or object in place of one that is not read.
fn skim(scanner: &mut Scanner<'_>) -> Result<Value, JsonError> {
    match scanner.peek() {
        Some(b'{') => scanner.value().map(|_| Value::Object(Map::new())),
        Some(b'[') => scanner.value().map(|_| Value::Array(Vec::new())),
        _ => read_value(scanner, &Fields::default()),
    }
}

/// Adds the text of the next value to `text`, with `edited` in place of `original`, which was read from that value.
fn write(
    scanner: &mut Scanner<'_>,
    fields: &Fields<'_>,
    original: &Value,
    edited: &Value,
    text: &mut String,
) -> Result<(), JsonError> {
    match (original, edited) {
        _ if original == edited => text.push_str(scanner.value()?),
        (Value::Object(original), Value::Object(edited)) => write_object(scanner, fields, original, edited, text)?,
        (Value::Array(original), Value::Array(edited)) if fields.is_whole() => {
            write_list(scanner, original, edited, text)?;
        }
        (Value::Array(original), Value::Array(edited)) => write_items(scanner, fields, original, edited, text)?,
        _ => {
            scanner.value()?;
            text.push_str(&edited.to_string());
        }
    }
    Ok(())
}

fn write_object(
    scanner: &mut Scanner<'_>,
    fields: &Fields<'_>,
    original: &Map<String, Value>,
    edited: &Map<String, Value>,
    text: &mut String,
) -> Result<(), JsonError> {
    let (mut found, mut written) = (0, 0);
    // Parts that were not read can't change.
    let unread = Fields::default();
    scanner.peek();
    // The start of the text that is not copied yet: at first, after the brace.
    let mut rest = scanner.at() + 1;
    let start = text.len();
    text.push('{');
    scanner.members(|scanner, Member { start, key }| {
        found += 1;
        match (original.get(key.as_ref()), edited.get(key.as_ref())) {
            (Some(original), Some(edited)) => {
                let between = scanner.span(rest, start);
                text.push_str(if written == 0 { between.trim_start_matches(',') } else { between });
                scanner.peek();
                text.push_str(scanner.span(start, scanner.at()));
                write(scanner, fields.of_member(&key).unwrap_or(&unread), original, edited, text)?;
                written += 1;
            }
            (Some(_), None) => drop(scanner.value()?),
            (None, _) => return Err(JsonError::Changed),
        }
        rest = scanner.at();
        Ok(())
    })?;
    if found != original.len() {
        // The object has a duplicate key.
        if !fields.is_whole() {
            return Err(JsonError::Changed);
        }
        text.truncate(start);
        text.push_str(&Value::Object(edited.clone()).to_string());
        return Ok(());
    }
    for (key, value) in edited.iter().filter(|(key, _)| !original.contains_key(*key)) {
        if written > 0 {
            text.push(',');
        }
        text.push_str(&Value::from(key.as_str()).to_string());
        text.push(':');
        text.push_str(&value.to_string());
        written += 1;
    }
    text.push_str(scanner.span(rest, scanner.at()));
    Ok(())
}

/// A list of whose items only parts are read: the items stay, in their order.
fn write_items(
    scanner: &mut Scanner<'_>,
    fields: &Fields<'_>,
    original: &[Value],
    edited: &[Value],
    text: &mut String,
) -> Result<(), JsonError> {
    let Some(fields) = fields.of_item().filter(|_| !fields.has_whole_items() && original.len() == edited.len()) else {
        return Err(JsonError::Changed);
    };
    let mut pairs = original.iter().zip(edited);
    let mut separator = '[';
    scanner.items(|scanner| {
        let (original, edited) = pairs.next().ok_or(JsonError::Changed)?;
        text.push(std::mem::replace(&mut separator, ','));
        write(scanner, fields, original, edited, text)
    })?;
    text.push(']');
    Ok(())
}

/// A list that is read as a whole: equal items at its beginning and end keep their text, and between them every item
/// that was in the list before.
fn write_list(
    scanner: &mut Scanner<'_>,
    original: &[Value],
    edited: &[Value],
    text: &mut String,
) -> Result<(), JsonError> {
    let mut spans = Vec::with_capacity(original.len());
    scanner.items(|scanner| {
        spans.push(scanner.value()?);
        Ok(())
    })?;
    let shorter = original.len().min(edited.len());
    let same_start = original.iter().zip(edited).take_while(|(original, edited)| original == edited).count();
    let from_ends = original.iter().rev().zip(edited.iter().rev()).take(shorter - same_start);
    let same_end = from_ends.take_while(|(original, edited)| original == edited).count();
    let are_paired = original.len() == edited.len();
    let mut old = original.iter().zip(spans).peekable();
    let mut separator = '[';
    for (index, item) in edited.iter().enumerate() {
        text.push(std::mem::replace(&mut separator, ','));
        let is_same = index < same_start || index >= edited.len() - same_end;
        if index == edited.len() - same_end {
            // The items that were removed before the equal end.
            while old.len() > same_end {
                old.next();
            }
        }
        if is_same || are_paired {
            let (original, span) = old.next().ok_or(JsonError::Changed)?;
            write(&mut Scanner::new(span), &Fields::whole(), original, item, text)?;
            continue;
        }
        let mut later = old.clone();
        match later.find(|(original, _)| *original == item) {
            Some((_, span)) => {
                text.push_str(span);
                old = later;
            }
            None => text.push_str(&item.to_string()),
        }
    }
    text.push_str(if edited.is_empty() { "[]" } else { "]" });
    Ok(())
}
