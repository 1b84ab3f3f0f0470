//! The parts of messages: quotations, lists and causes. CONTRIBUTING.md has the convention.

use std::fmt::Write as _;

/// Maximum length of a warning in characters. Kubernetes asks for at most 120 and cuts at 256.
/// Source: `k8s.io/api/admission/v1`, `AdmissionResponse.Warnings`.
pub const MAX_WARNING: usize = 120;
/// Maximum length of a quotation in characters.
const MAX_QUOTE: usize = 80;

/// `text` as one warning line: control characters escaped, cut with `…` at [`MAX_WARNING`] characters.
pub fn warning(text: &str) -> String {
    cut(&escape(text), MAX_WARNING)
}

/// `text` in backticks for a message: escaped, and cut with `…` at 80 characters. Messages never hold whole payloads.
pub fn quote(text: &str) -> String {
    format!("`{}`", shown(text))
}

/// `text` as in [`quote`], without the backticks.
pub(crate) fn shown(text: &str) -> String {
    cut(&escape(text), MAX_QUOTE)
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len().min(4 * MAX_WARNING));
    for c in text.chars().take(4 * MAX_WARNING) {
        // U+2028 and its like are not control characters, but they break lines or reverse the text on terminals.
        if c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            escaped.extend(c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// `text`, cut to `limit` characters with `…` at the end where it is longer.
pub(crate) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some(_) => {
            let mut short: String = text.chars().take(limit.saturating_sub(1)).collect();
            short.push('…');
            short
        }
    }
}

/// The first 20 of `items`, and how many more there are, since messages must not grow without limit.
pub fn listed(items: &[impl AsRef<str>]) -> String {
    const MAX_ITEMS: usize = 20;
    let first = items.iter().take(MAX_ITEMS).map(AsRef::as_ref).collect::<Vec<_>>().join("; ");
    match items.len().saturating_sub(MAX_ITEMS) {
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}

/// The message of `error` followed by those of its causes.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // Writing to a string can't fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_are_cut_and_escaped() {
        assert_eq!(quote("a\nb"), "`a\\nb`");
        let long = quote(&"x".repeat(1000));
        assert_eq!(long.chars().count(), 82);
        assert!(long.ends_with("…`"), "{long}");
        assert_eq!(quote(&"é".repeat(80)), format!("`{}`", "é".repeat(80)));
    }

    #[test]
    fn warnings_are_one_line_of_at_most_120_characters() {
        let line = warning(&"long\n".repeat(100));
        assert_eq!(line.chars().count(), MAX_WARNING);
        assert!(!line.contains('\n'));
    }
}
