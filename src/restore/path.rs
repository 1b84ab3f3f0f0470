//! Paths of restore rules: RFC 6901 pointers with selector segments, and what is done at their end.
//!
//! | segment | meaning |
//! |---|---|
//! | `name` | field of an object (`~1` is `/`, `~0` is `~`), or the index of a list |
//! | `[name=x]`, `[a=x,b=y]`, `[metadata.name=x]` | the one list entry whose fields have these values |
//! | `[*]` | every entry of a list, or every value of a map |
//! | `-` | at the end: append to the list |
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

use crate::metadata::type_name;
use crate::verdict::quote;

/// Longest path in segments.
const MAX_SEGMENTS: usize = 32;
/// Most places that the `[*]` of one path may lead to.
const MAX_PLACES: usize = 1000;

/// Why a path can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PathError {
    /// A pointer begins with a slash.
    #[error("{0} does not begin with `/`")]
    NoSlash(String),
    /// An empty last segment, which means a field with an empty name.
    #[error("{0} ends with `/`; take it away, or write `segments: [..., \"\"]` for a field with an empty name")]
    TrailingSlash(String),
    /// `~` that is neither `~0` nor `~1`.
    #[error("{0} has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)")]
    Escape(String),
    /// A segment in brackets that is no selector.
    #[error("segment {0} is neither `[*]` nor `[key=value]`; write `segments: [...]` for a field of that name")]
    Selector(String),
    /// `-` in the middle.
    #[error("`-` appends to a list, so it must be the last segment")]
    Append,
    /// The whole object.
    #[error("the path is empty: name a field")]
    Empty,
    /// Too many segments.
    #[error("the path has more than {MAX_SEGMENTS} segments")]
    TooLong,
    /// What a selector looks for would be changed, so that it would not be found again.
    #[error("{0} changes what its selector looks for; write the other fields of the entry")]
    SelectorKey(String),
    /// Entries that can't be told apart once some are gone.
    #[error("{0} removes entries by their place; select one with `[key=value]`, or remove the whole list or map")]
    RemovedIndex(String),
    /// A field that the policy does not write.
    #[error("{0} can't be changed by a rule: {1}")]
    Forbidden(String, &'static str),
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A field, or an index.
    Key(String),
    /// A field or an index that a `[*]` stood for: it is not created.
    Existing(String),
    /// The one list entry that has these values at these (nested) fields.
    Select(Vec<(Vec<String>, String)>),
    /// Every entry.
    Every,
}

/// Where a rule reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    segments: Vec<Segment>,
    /// Whether it ended with `-`.
    pub appends: bool,
}

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
        let mut tokens: Vec<&str> = pointer.split('/').collect();
        let appends = tokens.last() == Some(&"-");
        if appends {
            tokens.pop();
        }
        let segments = tokens.into_iter().map(parse_token).collect::<Result<_, _>>()?;
        Self::new(segments, appends)
    }

    /// The path of the literal `keys`, for those that a pointer can't spell.
    ///
    /// # Errors
    /// [`PathError`].
    pub fn of_keys(keys: Vec<String>) -> Result<Self, PathError> {
        Self::new(keys.into_iter().map(Segment::Key).collect(), false)
    }

    fn new(segments: Vec<Segment>, appends: bool) -> Result<Self, PathError> {
        if segments.is_empty() {
            return Err(PathError::Empty);
        }
        if segments.len() > MAX_SEGMENTS {
            return Err(PathError::TooLong);
        }
        Ok(Self { segments, appends })
    }

    /// Whether a rule may write here.
    ///
    /// # Errors
    /// [`PathError::Forbidden`] for what identifies the object, what the server owns, and what the policy itself keeps.
    pub fn check_target(&self) -> Result<(), PathError> {
        let key = |index: usize| match self.segments.get(index) {
            Some(Segment::Key(key)) => Some(key.as_str()),
            _ => None,
        };
        let why = match (key(0), key(1), key(2)) {
            (Some("apiVersion" | "kind"), ..) => "it says what the object is",
            (Some("status"), ..) => "the API server drops it from such requests",
            (Some("metadata"), None, _) => "name the label or annotation in it",
            (Some("metadata"), Some("labels" | "annotations"), None) => "name the label or annotation in it",
            (Some("metadata"), Some("labels" | "annotations"), Some(own)) if own.starts_with(crate::state::PREFIX) => {
                "it is this policy's own"
            }
            (Some("metadata"), Some("labels" | "annotations"), _) => return Ok(()),
            (Some("metadata"), Some(_), _) => "it is the API server's own",
            (None, ..) => "name a field of the object",
            _ => return Ok(()),
        };
        Err(PathError::Forbidden(quote(&self.to_string()), why))
    }

    /// Whether what is written here (`None`: taken away) leaves alone what the path's selectors look for, so that they find
    /// it again. A whole entry may be written, with these fields.
    ///
    /// # Errors
    /// [`PathError::SelectorKey`].
    pub fn check_selectors(&self, written: Option<&Value>) -> Result<(), PathError> {
        for (index, segment) in self.segments.iter().enumerate() {
            let Segment::Select(wanted) = segment else { continue };
            let below: Vec<Option<&str>> = self.segments.iter().skip(index + 1).map(Segment::as_key).collect();
            let is_kept = |(path, value): &(Vec<String>, String)| match (below.is_empty(), written) {
                (true, Some(entry)) => has(entry, path, value),
                (true, None) => true,
                (false, _) => !path.iter().zip(&below).all(|(key, below)| below.is_none_or(|below| below == key)),
            };
            if !wanted.iter().all(is_kept) {
                return Err(PathError::SelectorKey(quote(&self.to_string())));
            }
        }
        Ok(())
    }

    /// The places in `object` that this path leads to, with every `[*]` replaced by what is there. Without a `[*]`,
    /// that is the path itself, whether there is something or not.
    ///
    /// # Errors
    /// [`EditError`], where something on the way is not of the type that the path expects.
    pub fn places(&self, object: &Value) -> Result<Vec<Path>, EditError> {
        let mut places = vec![Vec::new()];
        for (depth, segment) in self.segments.iter().enumerate() {
            if *segment != Segment::Every {
                places.iter_mut().for_each(|place: &mut Vec<Segment>| place.push(segment.clone()));
                continue;
            }
            let mut expanded = Vec::new();
            for place in places {
                let keys: Vec<String> = match find(object, &place)? {
                    None | Some(Value::Null) => Vec::new(),
                    Some(Value::Array(items)) => (0..items.len()).map(|index| index.to_string()).collect(),
                    Some(Value::Object(fields)) => fields.keys().cloned().collect(),
                    Some(other) => {
                        return Err(EditError::wrong_type(
                            &self.segments,
                            depth,
                            type_name(other),
                            "a list or an object",
                        ));
                    }
                };
                for key in keys {
                    let mut place = place.clone();
                    place.push(Segment::Existing(key));
                    expanded.push(place);
                }
                if expanded.len() > MAX_PLACES {
                    return Err(EditError::TooManyPlaces);
                }
            }
            places = expanded;
        }
        Ok(places.into_iter().map(|segments| Self { segments, appends: self.appends }).collect())
    }

    /// Whether `other` is a part of what stands at this place.
    pub fn contains(&self, other: &Path) -> bool {
        let is_longer = other.segments.len() > self.segments.len()
            || (other.appends && !self.appends && other.segments.len() == self.segments.len());
        is_longer && self.segments.iter().zip(&other.segments).all(|(left, right)| left.may_be(right))
    }

    /// Whether both lead to the same place, as far as can be told without an object.
    pub fn may_equal(&self, other: &Path) -> bool {
        self.appends == other.appends
            && self.segments.len() == other.segments.len()
            && self.segments.iter().zip(&other.segments).all(|(left, right)| left.may_be(right))
    }

    /// The place that `text`, printed for one of this path's places, stands for.
    pub fn place_from(&self, text: &str) -> Option<Path> {
        let mut tokens: Vec<&str> = text.strip_prefix('/')?.split('/').collect();
        let appends = tokens.len() == self.segments.len() + 1 && tokens.last() == Some(&"-");
        if appends {
            tokens.pop();
        }
        if tokens.len() != self.segments.len() {
            return None;
        }
        let segments = self
            .segments
            .iter()
            .zip(tokens)
            .map(|(segment, token)| match segment {
                Segment::Every => Some(Segment::Existing(unescape(token)?)),
                segment => (segment.to_string() == token).then(|| segment.clone()),
            })
            .collect::<Option<_>>()?;
        Some(Self { segments, appends })
    }

    /// What stands at this place; `None` where there is nothing, or null.
    ///
    /// # Errors
    /// [`EditError`], where something on the way is not of the type that the path expects.
    pub fn get<'a>(&self, object: &'a Value) -> Result<Option<&'a Value>, EditError> {
        Ok(find(object, &self.segments)?.filter(|value| !value.is_null()))
    }

    /// Writes `value` at this place. Missing parents are created.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn set(&self, object: &mut Value, value: Value) -> Result<(), EditError> {
        *self.create(object)? = value;
        Ok(())
    }

    /// The value at this place, null where it was created just now.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn create<'a>(&self, object: &'a mut Value) -> Result<&'a mut Value, EditError> {
        let mut value = object;
        for (depth, segment) in self.segments.iter().enumerate() {
            value = match segment {
                Segment::Key(key) | Segment::Existing(key) => self.child(value, key, depth)?,
                Segment::Select(wanted) => self.entry(value, wanted, depth)?,
                Segment::Every => return Err(EditError::no_match(&self.segments, depth)),
            };
        }
        Ok(value)
    }

    fn child<'a>(&self, parent: &'a mut Value, key: &str, depth: usize) -> Result<&'a mut Value, EditError> {
        let may_create = matches!(self.segments.get(depth), Some(Segment::Key(_)));
        if parent.is_null() && may_create {
            *parent = Value::Object(Map::new());
        }
        let found = type_name(parent);
        match parent {
            Value::Object(fields) if may_create || fields.contains_key(key) => {
                Ok(fields.entry(key).or_insert(Value::Null))
            }
            Value::Object(_) => Err(EditError::no_match(&self.segments, depth)),
            Value::Array(items) => {
                let index = index(key).ok_or_else(|| EditError::NotAnIndex(printed(&self.segments, depth)))?;
                items.get_mut(index).ok_or_else(|| EditError::no_match(&self.segments, depth))
            }
            _ => Err(EditError::wrong_type(&self.segments, depth, found, "an object")),
        }
    }

    /// The selected entry; it is created with its keys, unless it would be a container.
    fn entry<'a>(
        &self,
        parent: &'a mut Value,
        wanted: &[(Vec<String>, String)],
        depth: usize,
    ) -> Result<&'a mut Value, EditError> {
        if parent.is_null() {
            *parent = Value::Array(Vec::new());
        }
        let Value::Array(items) = parent else {
            return Err(EditError::wrong_type(&self.segments, depth, type_name(parent), "a list"));
        };
        let index = match only(items, wanted) {
            Some(Ok(index)) => index,
            Some(Err(matches)) => {
                return Err(EditError::SeveralMatches(printed(&self.segments, depth), matches));
            }
            None => {
                let list = depth.checked_sub(1).and_then(|depth| self.segments.get(depth));
                if matches!(list, Some(Segment::Key(list)) if list == "containers" || list == "initContainers") {
                    return Err(EditError::NoContainer(printed(&self.segments, depth)));
                }
                items.push(new_entry(wanted));
                items.len() - 1
            }
        };
        items.get_mut(index).ok_or_else(|| EditError::no_match(&self.segments, depth))
    }

    /// Takes away what stands at this place, and gives it; `None` where there was nothing (or null), also because
    /// something on the way is of another type than the path expects.
    ///
    /// # Errors
    /// [`EditError::SeveralMatches`].
    pub fn remove(&self, object: &mut Value) -> Result<Option<Value>, EditError> {
        match self.get(object) {
            Ok(Some(_)) => {}
            Err(error @ EditError::SeveralMatches(..)) => return Err(error),
            Ok(None) | Err(_) => return Ok(None),
        }
        let Some((last, parents)) = self.segments.split_last() else { return Ok(None) };
        let parent = Self { segments: parents.to_vec(), appends: false };
        match (parent.create(object)?, last) {
            (Value::Object(fields), Segment::Key(key) | Segment::Existing(key)) => Ok(fields.remove(key)),
            (Value::Array(items), Segment::Select(wanted)) => {
                Ok(only(items, wanted).and_then(Result::ok).map(|index| items.remove(index)))
            }
            _ => Ok(None),
        }
    }

    /// Whether this can be removed: an entry of a list by its keys only. By its index, doing it twice would take away two.
    ///
    /// # Errors
    /// [`PathError::RemovedIndex`].
    pub fn check_removed(&self) -> Result<(), PathError> {
        match self.segments.last() {
            Some(Segment::Key(key)) if index(key).is_some() => Err(PathError::RemovedIndex(quote(&self.to_string()))),
            Some(Segment::Every) => Err(PathError::RemovedIndex(quote(&self.to_string()))),
            _ => Ok(()),
        }
    }
}

impl Segment {
    fn as_key(&self) -> Option<&str> {
        match self {
            Self::Key(key) | Self::Existing(key) => Some(key),
            Self::Select(_) | Self::Every => None,
        }
    }

    /// Whether both may lead to the same entry: only fields of different names, and entries with different values of the
    /// same key, certainly do not.
    fn may_be(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Every, _) | (_, Self::Every) => true,
            (Self::Select(left), Self::Select(right)) => {
                !left.iter().any(|(key, value)| right.iter().any(|(other, wanted)| key == other && value != wanted))
            }
            (Self::Select(_), key) | (key, Self::Select(_)) => key.as_key().is_some_and(|key| index(key).is_some()),
            (left, right) => left.as_key() == right.as_key(),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for segment in &self.segments {
            write!(f, "/{segment}")?;
        }
        f.write_str(if self.appends { "/-" } else { "" })
    }
}

impl fmt::Display for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) | Self::Existing(key) => f.write_str(&escape(key)),
            Self::Every => f.write_str("[*]"),
            Self::Select(wanted) => {
                let wanted: Vec<String> =
                    wanted.iter().map(|(path, value)| format!("{}={}", path.join("."), escape(value))).collect();
                write!(f, "[{}]", wanted.join(","))
            }
        }
    }
}

/// Why a path can't be followed or written in an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditError {
    /// Something on the way is of another type.
    #[error("`{0}` is {1}, expected {2}")]
    WrongType(String, &'static str, &'static str),
    /// A list is addressed by name.
    #[error("`{0}` names a field of a list; select the entry with `[key=value]`")]
    NotAnIndex(String),
    /// Nothing is there and nothing can be created.
    #[error("`{0}` matches nothing")]
    NoMatch(String),
    /// A container can't be created: it would have no image.
    #[error("`{0}` matches no container, and a rule creates none")]
    NoContainer(String),
    /// A selector must be unambiguous.
    #[error("`{0}` matches {1} entries; add a key that tells them apart, or write `[*]` for all")]
    SeveralMatches(String, usize),
    /// `[*]` leads to too much.
    #[error("the path leads to more than {MAX_PLACES} places")]
    TooManyPlaces,
}

impl EditError {
    fn wrong_type(segments: &[Segment], depth: usize, found: &'static str, expected: &'static str) -> Self {
        let parent = printed(segments, depth.wrapping_sub(1));
        let parent = if depth == 0 { "the object".to_owned() } else { parent };
        Self::WrongType(parent, found, expected)
    }

    fn no_match(segments: &[Segment], depth: usize) -> Self {
        Self::NoMatch(printed(segments, depth))
    }
}

/// The path down to `depth`.
fn printed(segments: &[Segment], depth: usize) -> String {
    segments.iter().take(depth.saturating_add(1)).map(|segment| format!("/{segment}")).collect()
}

fn find<'a>(object: &'a Value, segments: &[Segment]) -> Result<Option<&'a Value>, EditError> {
    let mut value = object;
    for (depth, segment) in segments.iter().enumerate() {
        let next = match (segment, value) {
            (_, Value::Null) => None,
            (Segment::Key(key) | Segment::Existing(key), Value::Object(fields)) => fields.get(key),
            (Segment::Key(key) | Segment::Existing(key), Value::Array(items)) => {
                let index = index(key).ok_or_else(|| EditError::NotAnIndex(printed(segments, depth)))?;
                items.get(index)
            }
            (Segment::Select(wanted), Value::Array(items)) => match only(items, wanted) {
                None => None,
                Some(Ok(index)) => items.get(index),
                Some(Err(matches)) => {
                    return Err(EditError::SeveralMatches(printed(segments, depth), matches));
                }
            },
            (Segment::Select(_), other) => {
                return Err(EditError::wrong_type(segments, depth, type_name(other), "a list"));
            }
            (_, other) => {
                return Err(EditError::wrong_type(segments, depth, type_name(other), "an object"));
            }
        };
        match next {
            Some(next) => value = next,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// The one entry that has all of `wanted`: its index, or how many there are if it is not one.
fn only(items: &[Value], wanted: &[(Vec<String>, String)]) -> Option<Result<usize, usize>> {
    let has_all = |item: &Value| wanted.iter().all(|(path, value)| has(item, path, value));
    let mut matches = items.iter().enumerate().filter(|(_, item)| has_all(item)).map(|(index, _)| index);
    let first = matches.next()?;
    match matches.count() {
        0 => Some(Ok(first)),
        more => Some(Err(more + 1)),
    }
}

fn has(item: &Value, path: &[String], wanted: &str) -> bool {
    let mut value = item;
    for key in path {
        match value.get(key) {
            Some(next) => value = next,
            None => return false,
        }
    }
    match value {
        Value::String(text) => text == wanted,
        Value::Number(number) => number.to_string() == wanted,
        Value::Bool(flag) => flag.to_string() == wanted,
        _ => false,
    }
}

fn new_entry(wanted: &[(Vec<String>, String)]) -> Value {
    let mut entry = Value::Object(Map::new());
    for (path, value) in wanted {
        let mut field = &mut entry;
        for key in path {
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

/// A canonical list index. Source: RFC 6901, section 4.
fn index(key: &str) -> Option<usize> {
    let is_canonical = key == "0" || (!key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit()));
    if is_canonical { key.parse().ok() } else { None }
}

fn parse_token(token: &str) -> Result<Segment, PathError> {
    if token == "-" {
        return Err(PathError::Append);
    }
    let Some(selector) = token.strip_prefix('[').and_then(|token| token.strip_suffix(']')) else {
        return unescape(token).map(Segment::Key).ok_or_else(|| PathError::Escape(quote(token)));
    };
    if selector == "*" {
        return Ok(Segment::Every);
    }
    let wanted = selector
        .split(',')
        .map(|pair| {
            let (path, value) = pair.split_once('=').ok_or_else(|| PathError::Selector(quote(token)))?;
            let path: Vec<String> = path.trim().split('.').map(str::to_owned).collect();
            if path.iter().any(String::is_empty) || value.is_empty() {
                return Err(PathError::Selector(quote(token)));
            }
            Ok((path, unescape(value).ok_or_else(|| PathError::Escape(quote(token)))?))
        })
        .collect::<Result<_, _>>()?;
    Ok(Segment::Select(wanted))
}

fn unescape(token: &str) -> Option<String> {
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

fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}
