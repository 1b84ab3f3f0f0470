//! JSON text to values, whatever its keys are.
//!
//! With numbers kept as text, `serde_json` passes them between its own parts as maps with a private key, and takes any map
//! with such a key for a number. Objects of users may have that key. Here such keys are hidden from it.

use std::borrow::Cow;

use serde_json::{Map, Value};

/// What `serde_json`'s private keys begin with. Source: `serde_json` 1, `src/number.rs` and `src/raw.rs`.
const PRIVATE: &str = "$serde_json::private::";
/// What hides one. A key that begins with it gets one more, so that taking one away gives every key back.
const HIDDEN: char = '\u{f8ff}';

/// The value in `text`.
///
/// # Errors
/// It is not JSON, or nested too deeply.
pub fn parse(text: &str) -> Result<Value, serde_json::Error> {
    match hide(text) {
        Cow::Borrowed(text) => serde_json::from_str(text),
        Cow::Owned(text) => {
            let mut value = serde_json::from_str(&text)?;
            show(&mut value);
            Ok(value)
        }
    }
}

/// `text` with the private keys hidden; as it is where it has none.
fn hide(text: &str) -> Cow<'_, str> {
    // A key can spell the same with escapes.
    let may_be_private = |key: &str| key.starts_with(HIDDEN) || key.starts_with('$') || key.starts_with('\\');
    if !text.contains("\"$") && !text.contains("\"\\") && !text.contains(HIDDEN) {
        return Cow::Borrowed(text);
    }
    let mut hidden = String::new();
    let mut copied = 0;
    let mut rest = 0;
    while let Some(quote) = text.get(rest..).and_then(|rest| rest.find('"')) {
        let start = rest + quote + 1;
        let Some(end) = end_of_string(text, start) else { break };
        rest = end + 1;
        let is_key = text.get(rest..).is_some_and(|rest| rest.trim_start().starts_with(':'));
        let Some(key) = text.get(start..end).filter(|key| is_key && may_be_private(key)) else { continue };
        let plain: Option<String> = text.get(start - 1..=end).and_then(|key| serde_json::from_str(key).ok());
        if plain.is_some_and(|plain| plain.starts_with(PRIVATE) || plain.starts_with(HIDDEN)) {
            hidden.push_str(text.get(copied..start).unwrap_or_default());
            hidden.push(HIDDEN);
            hidden.push_str(key);
            copied = end;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    hidden.push_str(text.get(copied..).unwrap_or_default());
    Cow::Owned(hidden)
}

/// Where the string ends that begins at `start`: the index of its closing quote.
fn end_of_string(text: &str, start: usize) -> Option<usize> {
    let mut bytes = text.as_bytes().iter().enumerate().skip(start);
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'\\' => drop(bytes.next()),
            b'"' => return Some(index),
            _ => {}
        }
    }
    None
}

fn show(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(show),
        Value::Object(fields) => {
            fields.values_mut().for_each(show);
            if fields.keys().any(|key| key.starts_with(HIDDEN)) {
                let shown: Map<String, Value> = std::mem::take(fields)
                    .into_iter()
                    .map(|(key, value)| (key.strip_prefix(HIDDEN).map(str::to_owned).unwrap_or(key), value))
                    .collect();
                *fields = shown;
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_keys_like_any_other() {
        for text in [
            r#"{"$serde_json::private::Number":"x"}"#,
            r#"{"a":[{"$serde_json::private::Number":"5"}],"b":1.50}"#,
            r#"{"$serde_json::private::RawValue":"{\"$serde_json::private::RawValue\":\"1\"}"}"#,
            r#"{"a":"$serde_json::private::Number"}"#,
            r#"{"$serde_json::private::Number":{"$serde_json::private::Number":"1"},"z":123456789012345678901234567890}"#,
            "{\"\u{f8ff}a\":1,\"\u{f8ff}\u{f8ff}$serde_json::private::Number\":2}",
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let escaped = r#"{"\u0024serde_json::private::Number" : "x"}"#;
        assert_eq!(parse(escaped).unwrap().to_string(), r#"{"$serde_json::private::Number":"x"}"#);
        assert!(parse(r#"{"$serde_json::private::Number"#).is_err());
    }
}
