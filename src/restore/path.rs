//! The grammar of paths in restore rules: RFC 6901 pointers with selector segments.
//!
//! | segment | meaning |
//! |---|---|
//! | `name` | field of an object (`~1` is `/`, `~0` is `~`), or the index of a list |
//! | `[name=x]`, `[a=x,b=y]`, `[metadata.name=x]` | the one list entry whose fields have these values |
//! | `[*]` | every entry of a list, or every value of a map |
//!
//! ```
//! use stateful_failover::restore::path::Path;
//!
//! let path = Path::parse("/spec/containers/[name=main]/env/[name=RESUME_FROM]/value").unwrap();
//! assert_eq!(path.to_string(), "/spec/containers/[name=main]/env/[name=RESUME_FROM]/value");
//! assert!(Path::parse("/spec/").is_err());
//! ```

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::json::Fields;
use crate::messages::quote;

/// Maximum length of a path in segments.
const MAX_SEGMENTS: usize = 32;

/// Why a text is not a path.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    /// The path does not begin with a slash.
    #[error("{0} does not begin with `/`")]
    NoSlash(String),
    /// An empty last segment, which means a field with an empty name.
    #[error("{0} ends with `/`; remove the slash, or write `segments: [..., \"\"]` for a field with an empty name")]
    TrailingSlash(String),
    /// `~` that is neither `~0` nor `~1`.
    #[error("{0} has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)")]
    Escape(String),
    /// A segment in brackets that is not a selector.
    #[error("segment {0} is neither `[*]` nor `[key=value]`; write `segments: [...]` for a field of that name")]
    Selector(String),
    /// `-` is not the last segment.
    #[error("`-` appends to a list, so it must be the last segment")]
    Append,
    /// The path is that of the whole object.
    #[error("the path is empty: name a field")]
    Empty,
    /// Too many segments.
    #[error("the path has more than {MAX_SEGMENTS} segments")]
    TooLong,
}

/// The fields by which one entry of a list is found, each with its (nested) keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector(Vec<(Vec<String>, String)>);

impl Selector {
    /// Whether `entry` has all of these fields. Numbers and booleans are compared by their text.
    pub fn matches(&self, entry: &Value) -> bool {
        self.0.iter().all(|(keys, wanted)| {
            let field = keys.iter().try_fold(entry, |value, key| value.get(key));
            match field {
                Some(Value::String(text)) => text == wanted,
                Some(Value::Number(number)) => number.to_string() == *wanted,
                Some(Value::Bool(flag)) => (if *flag { "true" } else { "false" }) == wanted,
                _ => false,
            }
        })
    }

    /// The index of the one entry that matches, if any.
    ///
    /// # Errors
    /// The number of matching entries, where there are several.
    pub fn find(&self, entries: &[Value]) -> Result<Option<usize>, usize> {
        let mut matches = entries.iter().enumerate().filter(|(_, entry)| self.matches(entry)).map(|(index, _)| index);
        let first = matches.next();
        match matches.count() {
            0 => Ok(first),
            more => Err(more + 1),
        }
    }

    /// An entry that has these fields and no others.
    pub fn new_entry(&self) -> Value {
        let mut entry = Value::Object(Map::new());
        for (keys, value) in &self.0 {
            let mut field = &mut entry;
            for key in keys {
                if !field.is_object() {
                    *field = Value::Object(Map::new());
                }
                let Value::Object(fields) = field else { break };
                field = fields.entry(key.as_str()).or_insert(Value::Null);
            }
            *field = Value::from(value.as_str());
        }
        entry
    }

    /// The keys of each field.
    pub fn keys(&self) -> impl Iterator<Item = &[String]> {
        self.0.iter().map(|(keys, _)| keys.as_slice())
    }

    /// Whether both may match the same entry. They can't where they expect different values of the same field.
    fn may_be(&self, other: &Self) -> bool {
        !self.0.iter().any(|(keys, value)| other.0.iter().any(|(other, wanted)| keys == other && value != wanted))
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A field, or an index.
    Key(String),
    /// The one list entry that matches.
    Select(Selector),
    /// `[*]`: every entry.
    Every,
}

/// Where a rule reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(Vec<Segment>);

impl Path {
    /// The path in `text`.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn parse(text: &str) -> Result<Self, PathError> {
        let Some(pointer) = text.strip_prefix('/') else {
            return Err(if text.is_empty() { PathError::Empty } else { PathError::NoSlash(quote(text)) });
        };
        if pointer.is_empty() || pointer.ends_with('/') {
            return Err(PathError::TrailingSlash(quote(text)));
        }
        Self::new(pointer.split('/').map(Segment::parse).collect::<Result<_, _>>()?)
    }

    /// The path of these literal keys, for keys that a pointer can't express.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn of_keys(keys: Vec<String>) -> Result<Self, PathError> {
        Self::new(keys.into_iter().map(Segment::Key).collect())
    }

    fn new(segments: Vec<Segment>) -> Result<Self, PathError> {
        match segments.len() {
            0 => Err(PathError::Empty),
            1..=MAX_SEGMENTS => Ok(Self(segments)),
            _ => Err(PathError::TooLong),
        }
    }

    /// Its segments; there is at least one.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Adds the fields that are needed to find what the path leads to, and returns the fields of that.
    pub fn add_to<'f, 'a>(&'a self, fields: &'f mut Fields<'a>) -> &'f mut Fields<'a> {
        let mut fields = fields;
        for (depth, segment) in self.0.iter().enumerate() {
            fields = match segment {
                Segment::Key(key) if index(key).is_none() => fields.member(key),
                Segment::Key(_) | Segment::Every => fields.each(),
                // Entries of such lists are never added, and removed only as a whole.
                Segment::Select(selector) if self.is_container(depth) && depth + 1 < self.0.len() => {
                    let entry = fields.each();
                    selector.keys().for_each(|keys| {
                        keys.iter().fold(&mut *entry, |fields, key| fields.member(key)).set_whole();
                    });
                    entry
                }
                Segment::Select(_) => {
                    fields.set_whole();
                    return fields;
                }
            };
        }
        fields
    }

    /// Whether the segment at `depth` leads to an entry of a list of containers.
    fn is_container(&self, depth: usize) -> bool {
        let list = depth.checked_sub(1).and_then(|depth| self.0.get(depth));
        matches!(list, Some(Segment::Key(list)) if is_container_list(list))
    }

    /// Whether `other` may lead to the same place or to a part of its value, as far as can be told without an object.
    pub fn may_cover(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len() && self.0.iter().zip(&other.0).all(|(left, right)| left.may_be(right))
    }

    /// Whether appending to this path and writing `other` may change the same entry: `other` replaces the list, or
    /// addresses an entry by index.
    pub fn appends_into(&self, other: &Self) -> bool {
        other.may_cover(self) || (self.may_cover(other) && other.0.get(self.0.len()).is_some_and(Segment::is_index))
    }

    /// Whether `other` begins with all segments of this path and has more.
    pub fn contains(&self, other: &Self) -> bool {
        self.0.len() < other.0.len() && self.0.iter().zip(&other.0).all(|(left, right)| left == right)
    }

    /// Whether a `[*]` or an index in this path may stand for an entry that writing to `other` creates, or that it
    /// `appends` there. Containers are never created.
    pub fn meets_entry_of(&self, other: &Self, appends: bool) -> bool {
        let leads_to_same = |depth: usize| {
            other.0.len() >= depth && self.0.iter().zip(&other.0).take(depth).all(|(left, right)| left.may_be(right))
        };
        self.0.iter().enumerate().any(|(depth, segment)| {
            let is_every = *segment == Segment::Every;
            let is_created = match other.0.get(depth) {
                Some(Segment::Select(_)) => !self.is_container(depth),
                Some(Segment::Key(_)) => is_every,
                Some(Segment::Every) => false,
                None => appends && other.0.len() == depth,
            };
            (is_every || segment.is_index()) && is_created && leads_to_same(depth)
        })
    }

    /// Whether it leads to the `value` of an entry of a list `env`.
    pub fn is_env_value(&self) -> bool {
        let is_key = |segment: &Segment, key: &str| matches!(segment, Segment::Key(name) if name == key);
        matches!(self.0.as_slice(), [.., list, _, field] if is_key(list, "env") && is_key(field, "value"))
    }

    /// The path of the sibling field `key`.
    pub fn sibling(&self, key: &str) -> Self {
        let parents = self.0.iter().take(self.0.len().saturating_sub(1)).cloned();
        Self(parents.chain([Segment::Key(key.to_owned())]).collect())
    }
}

impl Segment {
    fn parse(token: &str) -> Result<Self, PathError> {
        if token == "-" {
            return Err(PathError::Append);
        }
        let Some(selector) = token.strip_prefix('[').and_then(|token| token.strip_suffix(']')) else {
            return unescape(token).map(Self::Key).ok_or_else(|| PathError::Escape(quote(token)));
        };
        if selector == "*" {
            return Ok(Self::Every);
        }
        let field = |pair: &str| {
            let (keys, value) = pair.split_once('=')?;
            let keys: Vec<String> = keys.trim().split('.').map(str::to_owned).collect();
            (!value.is_empty() && !keys.iter().any(String::is_empty)).then_some((keys, value.to_owned()))
        };
        let fields: Option<Vec<_>> = selector.split(',').map(field).collect();
        let mut fields = fields.ok_or_else(|| PathError::Selector(quote(token)))?;
        for (_, value) in &mut fields {
            *value = unescape(value).ok_or_else(|| PathError::Escape(quote(token)))?;
        }
        Ok(Self::Select(Selector(fields)))
    }

    fn is_index(&self) -> bool {
        matches!(self, Self::Key(key) if index(key).is_some())
    }

    /// Whether both may lead to the same field or entry.
    fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) | (_, Self::Every) => true,
            (Self::Select(left), Self::Select(right)) => left.may_be(right),
            (Self::Select(_), Self::Key(key)) | (Self::Key(key), Self::Select(_)) => index(key).is_some(),
            (Self::Key(left), Self::Key(right)) => left == right,
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|segment| write!(f, "/{segment}"))
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.write_str(&escape(key)),
            Self::Every => f.write_str("[*]"),
            Self::Select(selector) => selector.fmt(f),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (keys, value)) in self.0.iter().enumerate() {
            write!(f, "{}{}={}", if index == 0 { "[" } else { "," }, keys.join("."), escape(value))?;
        }
        f.write_str("]")
    }
}

/// Whether a list of that name holds containers, which rules never create.
pub(super) fn is_container_list(name: &str) -> bool {
    matches!(name, "containers" | "initContainers")
}

/// A canonical list index. Source: RFC 6901, section 4.
pub(super) fn index(key: &str) -> Option<usize> {
    let is_canonical = key == "0" || (!key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit()));
    if is_canonical { key.parse().ok() } else { None }
}

pub(super) fn unescape(token: &str) -> Option<String> {
    let mut text = String::with_capacity(token.len());
    let mut chars = token.chars();
    while let Some(c) = chars.next() {
        match c {
            '~' => text.push(match chars.next()? {
                '0' => '~',
                '1' => '/',
                _ => return None,
            }),
            c => text.push(c),
        }
    }
    Some(text)
}

pub(super) fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Path {
        Path::parse(text).unwrap()
    }

    #[test]
    fn paths_print_as_they_are_written() {
        for text in ["/spec/a~1b/~0", "/l/[a=x,b.c=y~1z]/v", "/m/[*]/0", "/a//b"] {
            assert_eq!(path(text).to_string(), text);
        }
    }

    #[test]
    fn text_that_is_not_a_path() {
        for (text, error) in [
            ("", PathError::Empty),
            ("a", PathError::NoSlash("`a`".to_owned())),
            ("/", PathError::TrailingSlash("`/`".to_owned())),
            ("/a/", PathError::TrailingSlash("`/a/`".to_owned())),
            ("/~2", PathError::Escape("`~2`".to_owned())),
            ("/[a=~]", PathError::Escape("`[a=~]`".to_owned())),
            ("/[]", PathError::Selector("`[]`".to_owned())),
            ("/[a]", PathError::Selector("`[a]`".to_owned())),
            ("/[a=]", PathError::Selector("`[a=]`".to_owned())),
            ("/[.a=x]", PathError::Selector("`[.a=x]`".to_owned())),
            ("/-/a", PathError::Append),
        ] {
            assert_eq!(Path::parse(text), Err(error), "{text}");
        }
        assert_eq!(Path::parse(&"/a".repeat(33)), Err(PathError::TooLong));
        assert!(Path::parse(&"/a".repeat(32)).is_ok());
    }

    #[test]
    fn what_may_be_the_same_place() {
        for (left, right, covers) in [
            ("/a", "/a", true),
            ("/a", "/a/b", true),
            ("/a/b", "/a", false),
            ("/a", "/b", false),
            ("/l/[name=a]", "/l/[name=b]/v", false),
            ("/l/[name=a]", "/l/[id=b]/v", true),
            ("/l/[name=a]", "/l/0", true),
            ("/l/[name=a]", "/l/v", false),
            ("/l/[*]", "/l/[name=a]", true),
        ] {
            assert_eq!(path(left).may_cover(&path(right)), covers, "{left} {right}");
        }
    }

    #[test]
    fn selectors_find_one_entry() {
        let Segment::Select(selector) = Segment::parse("[metadata.name=data,n=1]").unwrap() else { panic!() };
        let entry = |name: &str, n: Value| serde_json::json!({"metadata": {"name": name}, "n": n});
        let (data, other) = (entry("data", 1.into()), entry("other", 1.into()));
        assert_eq!(selector.find(&[other.clone(), data.clone()]), Ok(Some(1)));
        assert_eq!(selector.find(&[other, Value::Null]), Ok(None));
        assert_eq!(selector.find(&[data.clone(), data]), Err(2));
        assert_eq!(selector.new_entry(), serde_json::json!({"metadata": {"name": "data"}, "n": "1"}));
    }
}
