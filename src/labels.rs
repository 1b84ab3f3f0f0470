//! Which label keys and values Kubernetes accepts.
//!
//! Source: `k8s.io/apimachinery/pkg/util/validation`, `IsValidLabelValue`, `IsQualifiedName` and `IsDNS1123Subdomain`.

const MAX_NAME: usize = 63;
const MAX_PREFIX: usize = 253;

/// Whether `value` is a valid label value: empty, or at most 63 characters of `[A-Za-z0-9_.-]` that
/// begin and end with a letter or digit.
pub fn is_label_value(value: &str) -> bool {
    value.is_empty() || is_name(value)
}

/// Whether `key` is a valid label key: a name with the syntax of a non-empty label value, optionally after a DNS
/// subdomain of at most 253 characters and a slash.
pub fn is_qualified_name(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(key),
    }
}

fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    name.len() <= MAX_NAME && is_framed(name, |b| b.is_ascii_alphanumeric(), inner)
}

/// Whether `prefix` is a DNS subdomain: at most 253 characters, lower case letters, digits and `-` between dots.
pub fn is_dns_subdomain(prefix: &str) -> bool {
    let edge = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    prefix.len() <= MAX_PREFIX && prefix.split('.').all(|label| is_framed(label, edge, |b| edge(b) || b == b'-'))
}

/// Whether `text` is not empty, has `edge` at both ends and `inner` everywhere.
fn is_framed(text: &str, edge: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|&b| edge(b)) && bytes.last().is_some_and(|&b| edge(b)) && bytes.iter().all(|&b| inner(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_values() {
        let longest = "a".repeat(63);
        for legal in ["", "a", "A.b_c-9", "null", "007", longest.as_str()] {
            assert!(is_label_value(legal), "{legal:?}");
        }
        let too_long = "a".repeat(64);
        let illegal = ["-a", "a-", ".", "a b", "s3://b/a", "1.7e+12", "é", "a\n", too_long.as_str()];
        for illegal in illegal {
            assert!(!is_label_value(illegal), "{illegal:?}");
        }
    }

    /// The first eight are Karmada's own vectors, `pkg/util/validation/validation_test.go`.
    #[test]
    fn label_keys() {
        let too_long = "a".repeat(64);
        let long_prefix = format!("{}/a", "a".repeat(254));
        for (key, legal) in [
            ("valid-label-name", true),
            ("example.com/state-key", true),
            ("example.com/my-state", true),
            ("-invalid-label", false),
            ("invalid-label-", false),
            ("invalid@label", false),
            (too_long.as_str(), false),
            ("INVALID.COM/my-state", false),
            ("a/b/c", false),
            ("/a", false),
            ("a/", false),
            ("", false),
            ("a..b/c", false),
            (long_prefix.as_str(), false),
        ] {
            assert_eq!(is_qualified_name(key), legal, "{key:?}");
        }
    }
}
