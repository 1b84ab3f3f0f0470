//! Places in an object: the paths without `[*]` to which a [`Path`] expands. Reads, writes and removes the values
//! there.

use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use super::path::{Path, Segment, Selector, escape, index, is_container_list, unescape};
use crate::metadata::type_name;

/// Maximum number of places to which one path may expand.
pub const MAX_PLACES: usize = 1000;

/// Why a place can't be read or written in an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditError {
    /// A parent has another type.
    #[error("`{at}` is {found}, expected {expected}")]
    WrongType {
        /// The path of the value with the other type.
        at: String,
        /// Its type.
        found: &'static str,
        /// The expected type.
        expected: &'static str,
    },
    /// A list is addressed by the name of a field.
    #[error("`{0}` names a field of a list; select the entry with `[key=value]`")]
    NotAnIndex(String),
    /// There is no value, and none can be created.
    #[error("`{0}` matches nothing; add it to the template, or fix the path")]
    NoMatch(String),
    /// A container can't be created: it would have no image.
    #[error("`{0}` matches no container, and rules cannot create containers; name one that the template has")]
    NoContainer(String),
    /// A selector matches several entries.
    #[error("`{0}` matches {1} entries; add a key that tells them apart, or write `[*]` for all")]
    SeveralMatches(String, usize),
    /// The path expands to too many places.
    #[error("the path leads to more than {MAX_PLACES} places")]
    TooManyPlaces,
}

/// One step to a place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// A field, or an index of a list.
    Key(String),
    /// A field or an index that a `[*]` expanded to. It is never created.
    Existing(String),
    /// The one list entry that matches.
    Select(Selector),
}

/// A place in an object. It is printed as its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place(Vec<Step>);

impl Path {
    /// The places in `object` that this path expands to. Without a `[*]` that is one, whether there is a value or not.
    ///
    /// # Errors
    /// [`EditError`], where the value before a `[*]` is neither a list nor an object, or there are too many places.
    pub fn places(&self, object: &Value) -> Result<Vec<Place>, EditError> {
        let mut places = vec![Place(Vec::new())];
        for segment in self.segments() {
            match segment {
                Segment::Key(key) => places.iter_mut().for_each(|place| place.0.push(Step::Key(key.clone()))),
                Segment::Select(selector) => {
                    places.iter_mut().for_each(|place| place.0.push(Step::Select(selector.clone())));
                }
                Segment::Every => {
                    let mut entries = Vec::new();
                    for place in &places {
                        entries.extend(place.entries(object)?);
                        if entries.len() > MAX_PLACES {
                            return Err(EditError::TooManyPlaces);
                        }
                    }
                    places = entries;
                }
            }
        }
        Ok(places)
    }

    /// The value at the first place of this path; `None` where it is missing or null.
    ///
    /// # Errors
    /// [`EditError`], where a parent has another type than the path needs.
    pub fn first<'a>(&self, object: &'a Value) -> Result<Option<&'a Value>, EditError> {
        self.places(object)?.first().map_or(Ok(None), |place| place.get(object))
    }

    /// The rest of this path below `ancestor`; `None` where the path does not lead through it.
    pub fn place_below(&self, ancestor: &Place) -> Option<Place> {
        let (above, below) = self.segments().split_at_checked(ancestor.0.len())?;
        let leads_through = above.iter().zip(&ancestor.0).all(|(segment, step)| match (segment, step) {
            (Segment::Every, Step::Existing(_)) => true,
            (Segment::Key(left), Step::Key(right)) => left == right,
            (Segment::Select(left), Step::Select(right)) => left == right,
            _ => false,
        });
        let steps = below.iter().map(|segment| match segment {
            Segment::Key(key) => Some(Step::Key(key.clone())),
            Segment::Select(selector) => Some(Step::Select(selector.clone())),
            Segment::Every => None,
        });
        if leads_through { Some(Place(steps.collect::<Option<_>>()?)) } else { None }
    }

    /// The place of this path that is printed as `text`, if there is one.
    pub fn place_from(&self, text: &str) -> Option<Place> {
        let mut tokens = text.strip_prefix('/')?.split('/');
        let mut steps = Vec::with_capacity(self.segments().len());
        for segment in self.segments() {
            let token = tokens.next()?;
            let step = match segment {
                Segment::Every => Step::Existing(unescape(token)?),
                Segment::Key(key) => Step::Key(key.clone()),
                Segment::Select(selector) => Step::Select(selector.clone()),
            };
            if !matches!(segment, Segment::Every) && step.to_string() != token {
                return None;
            }
            steps.push(step);
        }
        tokens.next().is_none().then_some(Place(steps))
    }
}

impl Place {
    /// The value here; `None` where it is missing or null.
    ///
    /// # Errors
    /// [`EditError`], where a parent has another type than the path needs.
    pub fn get<'a>(&self, object: &'a Value) -> Result<Option<&'a Value>, EditError> {
        let mut value = object;
        for (depth, step) in self.0.iter().enumerate() {
            let next = match (step, value) {
                (_, Value::Null) => None,
                (Step::Key(key) | Step::Existing(key), Value::Object(fields)) => fields.get(key),
                (Step::Key(key) | Step::Existing(key), Value::Array(items)) => items.get(self.index(key, depth)?),
                (Step::Select(selector), Value::Array(items)) => {
                    self.find(selector, items, depth)?.and_then(|index| items.get(index))
                }
                (_, other) => return Err(self.wrong_type(depth, other)),
            };
            match next {
                Some(next) => value = next,
                None => return Ok(None),
            }
        }
        Ok(Some(value).filter(|value| !value.is_null()))
    }

    /// Writes `value` here. Missing parents are created: objects or, before a selector, a list with the entry.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn put(&self, object: &mut Value, value: Value) -> Result<(), EditError> {
        *self.get_or_create(object)? = value;
        Ok(())
    }

    /// The value here, mutable. A missing one is created as null.
    ///
    /// # Errors
    /// [`EditError`].
    pub fn get_or_create<'a>(&self, object: &'a mut Value) -> Result<&'a mut Value, EditError> {
        let mut value = object;
        for (depth, step) in self.0.iter().enumerate() {
            if value.is_null() && !matches!(step, Step::Existing(_)) {
                let is_list = matches!(step, Step::Select(_));
                *value = if is_list { Value::Array(Vec::new()) } else { Value::Object(Map::new()) };
            }
            value = match (step, value) {
                (Step::Key(key), Value::Object(fields)) => fields.entry(key).or_insert(Value::Null),
                (Step::Existing(key), Value::Object(fields)) => {
                    fields.get_mut(key).ok_or_else(|| self.no_match(depth))?
                }
                (Step::Key(key) | Step::Existing(key), Value::Array(items)) => {
                    let index = self.index(key, depth)?;
                    items.get_mut(index).ok_or_else(|| self.no_match(depth))?
                }
                (Step::Select(selector), Value::Array(items)) => {
                    let index = self.find(selector, items, depth)?.unwrap_or(items.len());
                    if index == items.len() {
                        items.push(selector.new_entry());
                    }
                    items.get_mut(index).ok_or_else(|| self.no_match(depth))?
                }
                (_, other) => return Err(self.wrong_type(depth, other)),
            };
        }
        Ok(value)
    }

    /// Removes the value here, if there is one.
    ///
    /// # Errors
    /// A selector in the path matches several entries.
    pub fn remove(&self, object: &mut Value) -> Result<(), EditError> {
        match self.get(object) {
            Ok(Some(_)) => {}
            Err(error @ EditError::SeveralMatches(..)) => return Err(error),
            // Where a parent has another type, there is no value of this name.
            Ok(None) | Err(_) => return Ok(()),
        }
        let Some((last, parents)) = self.0.split_last() else { return Ok(()) };
        match (Self(parents.to_vec()).get_or_create(object)?, last) {
            (Value::Object(fields), Step::Key(key)) => drop(fields.remove(key)),
            (Value::Array(items), Step::Select(selector)) => {
                if let Ok(Some(index)) = selector.find(items) {
                    items.remove(index);
                }
            }
            // Entries that are addressed by index, or that a `[*]` found, become null, so that the indexes of others
            // stay the same.
            (Value::Array(items), Step::Key(key) | Step::Existing(key)) => {
                if let Some(item) = index(key).and_then(|index| items.get_mut(index)) {
                    *item = Value::Null;
                }
            }
            (Value::Object(fields), Step::Existing(key)) => {
                if let Some(value) = fields.get_mut(key) {
                    *value = Value::Null;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes the value here if it is empty and not one of the places in `kept`. Returns whether the parent may be
    /// pruned next.
    pub fn prune(&self, object: &mut Value, kept: &[&str]) -> bool {
        match self.get(object) {
            Ok(None) => true,
            Ok(Some(value)) => {
                self.is_bare(value) && !kept.contains(&self.to_string().as_str()) && self.remove(object).is_ok()
            }
            Err(_) => false,
        }
    }

    /// The nearest existing parent, if it is empty.
    pub fn bare_parent(&self, object: &Value) -> Option<Place> {
        self.parents().find_map(|parent| match parent.get(object) {
            Ok(Some(value)) => Some(parent.is_bare(value).then_some(parent)),
            _ => None,
        })?
    }

    /// The parents of this place, the nearest first, without the object itself.
    pub fn parents(&self) -> impl Iterator<Item = Place> {
        (1..self.0.len()).rev().map(|depth| Self(self.0.iter().take(depth).cloned().collect()))
    }

    /// Whether `other` is this place or inside its value.
    pub fn covers(&self, other: &Self) -> bool {
        self.0.len() <= other.0.len()
            && self.0.iter().zip(&other.0).all(|(left, right)| left.to_string() == right.to_string())
    }

    /// Whether the sibling field `key` exists.
    pub fn has_sibling(&self, key: &str, object: &Value) -> bool {
        let parent = self.parents().next().and_then(|parent| parent.get(object).ok().flatten());
        parent.and_then(|parent| parent.get(key)).is_some_and(|sibling| !sibling.is_null())
    }

    /// The value with which this place is created: null, or an entry with the keys of its selector.
    pub fn created(&self) -> Value {
        match self.0.last() {
            Some(Step::Select(selector)) => selector.new_entry(),
            _ => Value::Null,
        }
    }

    /// Whether this is an entry that a `[*]` found before and that does not exist any more.
    pub fn is_entry_gone(&self, object: &Value) -> bool {
        let Some(Step::Existing(key)) = self.0.last() else { return false };
        match self.parents().next().and_then(|parent| parent.get(object).ok().flatten()) {
            Some(Value::Object(fields)) => !fields.contains_key(key),
            Some(Value::Array(items)) => index(key).is_none_or(|index| index >= items.len()),
            _ => true,
        }
    }

    /// Checks that writing here does not create a container.
    ///
    /// # Errors
    /// [`EditError::NoContainer`].
    pub fn check_containers(&self, object: &Value) -> Result<(), EditError> {
        for (depth, pair) in self.0.windows(2).enumerate() {
            if let [Step::Key(list), Step::Select(_)] = pair
                && is_container_list(list)
            {
                let container = Self(self.0.iter().take(depth + 2).cloned().collect());
                if container.get(object)?.is_none() {
                    return Err(EditError::NoContainer(container.to_string()));
                }
            }
        }
        Ok(())
    }

    /// The entries of the value here.
    fn entries(&self, object: &Value) -> Result<Vec<Self>, EditError> {
        let keys: Vec<String> = match self.get(object)? {
            None => Vec::new(),
            Some(Value::Array(items)) => (0..items.len()).map(|index| index.to_string()).collect(),
            Some(Value::Object(fields)) => fields.keys().cloned().collect(),
            Some(other) => {
                let (at, found) = (self.to_string(), type_name(other));
                return Err(EditError::WrongType { at, found, expected: "a list or an object" });
            }
        };
        let entry = |key| Self(self.0.iter().cloned().chain([Step::Existing(key)]).collect());
        Ok(keys.into_iter().map(entry).collect())
    }

    /// Whether `value`, which is the value here, is empty apart from nulls and the keys of the selector.
    fn is_bare(&self, value: &Value) -> bool {
        match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(fields) => *value == self.created() || fields.values().all(Value::is_null),
            _ => false,
        }
    }

    fn index(&self, key: &str, depth: usize) -> Result<usize, EditError> {
        index(key).ok_or_else(|| EditError::NotAnIndex(self.down_to(depth)))
    }

    fn find(&self, selector: &Selector, items: &[Value], depth: usize) -> Result<Option<usize>, EditError> {
        selector.find(items).map_err(|matches| EditError::SeveralMatches(self.down_to(depth), matches))
    }

    fn no_match(&self, depth: usize) -> EditError {
        EditError::NoMatch(self.down_to(depth))
    }

    fn wrong_type(&self, depth: usize, found: &Value) -> EditError {
        let expected = if matches!(self.0.get(depth), Some(Step::Select(_))) { "a list" } else { "an object" };
        let at = depth.checked_sub(1).map_or_else(|| "the object".to_owned(), |parent| self.down_to(parent));
        EditError::WrongType { at, found: type_name(found), expected }
    }

    /// The path as far as the step at `depth`.
    fn down_to(&self, depth: usize) -> String {
        self.0.iter().take(depth + 1).map(|step| format!("/{step}")).collect()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "/{step}"))
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) | Self::Existing(key) => f.write_str(&escape(key)),
            Self::Select(selector) => selector.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn places(path: &str, object: &Value) -> Result<Vec<Place>, EditError> {
        Path::parse(path).unwrap().places(object)
    }

    fn place(path: &str) -> Place {
        places(path, &Value::Null).unwrap().remove(0)
    }

    #[test]
    fn every_entry() {
        let object = json!({"l": [{"a": 1}, {"a": 2}], "m": {"x/y": {}}, "n": null, "t": "text"});
        let printed =
            |path| places(path, &object).map(|places| places.iter().map(Place::to_string).collect::<Vec<_>>());
        assert_eq!(printed("/l/[*]/a").unwrap(), ["/l/0/a", "/l/1/a"]);
        assert_eq!(printed("/m/[*]").unwrap(), ["/m/x~1y"]);
        assert_eq!(printed("/n/[*]/a").unwrap(), [""; 0]);
        assert_eq!(printed("/t/[*]").unwrap_err().to_string(), "`/t` is a string, expected a list or an object");
        let long = json!({"l": vec![0; MAX_PLACES + 1]});
        assert_eq!(places("/l/[*]", &long), Err(EditError::TooManyPlaces));
    }

    #[test]
    fn writing_creates_parents() {
        let mut object = json!({"spec": null});
        place("/spec/a/[name=x,kind.of=y]/v").put(&mut object, json!(1)).unwrap();
        assert_eq!(object, json!({"spec": {"a": [{"name": "x", "kind": {"of": "y"}, "v": 1}]}}));
        place("/spec/a/0/w").put(&mut object, json!(2)).unwrap();
        assert_eq!(object["spec"]["a"][0]["w"], 2);
    }

    #[test]
    fn what_cannot_be_written() {
        let object = json!({"t": "text", "l": [{"name": "a"}, {"name": "a"}], "containers": []});
        for (path, error) in [
            ("/t/x", "`/t` is a string, expected an object"),
            ("/t/[name=a]", "`/t` is a string, expected a list"),
            ("/l/name", "`/l/name` names a field of a list; select the entry with `[key=value]`"),
            ("/l/2/x", "`/l/2` matches nothing; add it to the template, or fix the path"),
            (
                "/l/[name=a]/x",
                "`/l/[name=a]` matches 2 entries; add a key that tells them apart, or write `[*]` for all",
            ),
        ] {
            assert_eq!(place(path).put(&mut object.clone(), json!(1)).unwrap_err().to_string(), error);
        }
        assert_eq!(
            place("/containers/[name=a]/env").check_containers(&object).unwrap_err().to_string(),
            "`/containers/[name=a]` matches no container, and rules cannot create containers; name one that the template has"
        );
    }

    #[test]
    fn removing_and_pruning_is_the_way_back() {
        for (object, path, kept) in [
            (json!({"spec": {"x": 1}}), "/spec/a/b/c", None),
            (json!({"spec": {"a": {}}}), "/spec/a/b/c", Some("/spec/a")),
            (json!({"spec": {"l": [{"name": "y"}]}}), "/spec/l/[name=x]/v", None),
            (json!({"spec": {"l": [{"name": "x"}]}}), "/spec/l/[name=x]/v", Some("/spec/l/[name=x]")),
            (json!({}), "/spec/a", None),
        ] {
            let place = place(path);
            assert_eq!(place.bare_parent(&object).map(|parent| parent.to_string()).as_deref(), kept, "{path}");
            let mut changed = object.clone();
            place.put(&mut changed, json!(1)).unwrap();
            place.remove(&mut changed).unwrap();
            let _ = place.parents().all(|parent| parent.prune(&mut changed, kept.as_slice()));
            assert_eq!(changed, object, "{path}");
        }
    }

    #[test]
    fn places_are_found_by_what_they_print() {
        let path = Path::parse("/l/[*]/[name=x]/a~1b").unwrap();
        assert_eq!(path.place_from("/l/0/[name=x]/a~1b").unwrap().to_string(), "/l/0/[name=x]/a~1b");
        for text in ["/l/0/[name=y]/a~1b", "/l/0/[name=x]", "/l/0/[name=x]/a~1b/c", "l/0"] {
            assert_eq!(path.place_from(text), None, "{text}");
        }
    }
}
