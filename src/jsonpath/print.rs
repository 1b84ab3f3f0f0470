//! Prints values as kubectl does, which prints them as Go does.

use serde_json::{Number, Value};

use super::{Budget, JsonPathError};

/// What Go prints for a missing value.
const NO_VALUE: &str = "<no value>";

/// Adds the results of one query to `text`, with a space between them; `None` is a missing value.
///
/// # Errors
/// The budget is used up.
pub(super) fn results<'a>(
    values: impl IntoIterator<Item = Option<&'a Value>>,
    text: &mut String,
    budget: &mut Budget,
) -> Result<(), JsonPathError> {
    for (index, value) in values.into_iter().enumerate() {
        let before = text.len();
        if index > 0 {
            text.push(' ');
        }
        match value {
            Some(value) => scalar_or_json(value, text),
            None => text.push_str(NO_VALUE),
        }
        budget.print(text.len() - before)?;
    }
    Ok(())
}

/// Prints a scalar as text, and a list or map as JSON.
fn scalar_or_json(value: &Value, text: &mut String) {
    match value {
        Value::String(string) => text.push_str(string),
        Value::Number(number) => print_number(number, text, general),
        other => json(other, text),
    }
}

/// Whether a number is written without fraction and exponent.
pub(super) fn is_integer(number: &Number) -> bool {
    !number.is_f64()
}

/// As in an API server, a number without fraction and exponent that fits 64 bits is an integer, and any other one a
/// 64-bit float.
fn print_number(number: &Number, text: &mut String, float: fn(f64) -> String) {
    match number.as_f64().filter(|_| !is_integer(number)) {
        Some(value) => text.push_str(&float(value)),
        None => text.push_str(&number.to_string()),
    }
}

/// Compact JSON with sorted keys, in which `<`, `>`, `&`, U+2028 and U+2029 are escaped.
/// Source: Go, `encoding/json`, `Marshal`.
fn json(value: &Value, text: &mut String) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => print_number(number, text, plain),
        Value::String(string) => json_string(string, text),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                json(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            // The map is sorted by its keys.
            text.push('{');
            for (index, (key, value)) in fields.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                json_string(key, text);
                text.push(':');
                json(value, text);
            }
            text.push('}');
        }
    }
}

fn json_string(string: &str, text: &mut String) {
    text.push('"');
    for c in string.chars() {
        match c {
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            '\u{c}' => text.push_str("\\f"),
            c if c < ' ' || matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') => {
                text.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// The shortest decimal digits that round-trip, and the exponent of the first one.
fn digits(value: f64) -> (String, i32) {
    // serde_json prints the shortest digits. The formatter of std would add 20 KB to the module.
    let text = Value::from(value.abs()).to_string();
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0');
    let point = |length: usize| i32::try_from(length).unwrap_or_default();
    let first = exponent.parse().unwrap_or(0) + point(whole.len()) - 1 - point(digits.len() - significant.len());
    match significant.trim_end_matches('0') {
        "" => ("0".to_owned(), 0),
        digits => (digits.to_owned(), first),
    }
}

fn sign(value: f64) -> &'static str {
    if value.is_sign_negative() { "-" } else { "" }
}

/// As Go's `%v`: with an exponent below 1e-4 and from 1e6 on.
/// Source: Go, `strconv.FormatFloat(value, 'g', -1, 64)`; Karmada's vectors for `{.n}` show the same.
fn general(value: f64) -> String {
    let (digits, exponent) = digits(value);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{}{}", sign(value), fixed(&digits, exponent));
    }
    format!("{}{}", sign(value), scientific(&digits, exponent, 2))
}

/// As Go's `encoding/json`: with an exponent below 1e-6 and from 1e21 on, of as few digits as it has.
fn plain(value: f64) -> String {
    let (digits, exponent) = digits(value);
    if value == 0.0 || (-6..21).contains(&exponent) {
        return format!("{}{}", sign(value), fixed(&digits, exponent));
    }
    format!("{}{}", sign(value), scientific(&digits, exponent, if exponent < 0 { 1 } else { 2 }))
}

fn fixed(digits: &str, exponent: i32) -> String {
    let point = exponent + 1;
    let length = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    if point <= 0 {
        return format!("0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    if point >= length {
        return format!("{digits}{}", "0".repeat((point - length).unsigned_abs() as usize));
    }
    let (whole, fraction) = digits.split_at_checked(point.unsigned_abs() as usize).unwrap_or((digits, "0"));
    format!("{whole}.{fraction}")
}

fn scientific(digits: &str, exponent: i32, width: usize) -> String {
    let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
    let point = if rest.is_empty() { "" } else { "." };
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{first}{point}{rest}e{sign}{:0width$}", exponent.unsigned_abs())
}
