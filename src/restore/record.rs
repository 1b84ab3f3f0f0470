//! The restore record: what the rules changed on an object, and what stood there before.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::path::Path;
use crate::metadata::{self, MetadataError};

/// On workloads: JSON object `{"rule": {"<path>": {"was": …, "set": …}}}`. `was` is left out where nothing stood
/// there, `set` where the rule took the field away. What was appended to a list stands under `<path>/-` as a list.
pub const RECORD_ANNOTATION: &str = "stateful-failover/restored";

/// What a rule did at one place.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// What stood there before.
    pub was: Option<Value>,
    /// What the rule wrote.
    pub set: Option<Value>,
}

/// What one rule did, by place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Record(BTreeMap<String, Change>);

impl Record {
    /// What the rule did at the place that prints as `text`.
    pub fn get(&self, text: &str) -> Option<&Change> {
        self.0.get(text)
    }

    /// Every place and what was done there.
    pub fn changes(&self) -> impl Iterator<Item = (&str, &Change)> {
        self.0.iter().map(|(text, change)| (text.as_str(), change))
    }

    /// Every place.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Notes a change as it is.
    pub fn put(&mut self, text: &str, change: Change) {
        self.0.insert(text.to_owned(), change);
    }

    /// Notes what an edit that wants `set` at `place` did: `change`, or nothing. The record that came with the object is
    /// believed where the object `came` with exactly what that and the edit want: then it is as it was. Where the edit
    /// wants something else than the stored record says, what stood there first is what that names.
    pub fn note(
        &mut self,
        place: &Path,
        change: Option<Change>,
        set: Option<&Value>,
        came: Option<&Value>,
        earlier: Earlier<'_>,
    ) {
        let text = place.to_string();
        if self.get(&text).is_some_and(|noted| noted.set.as_ref() == set) {
            return;
        }
        let find = |record: Option<&Record>| record.and_then(|record| record.get(&text)).cloned();
        match (change, find(earlier.incoming), find(earlier.stored)) {
            (_, Some(incoming), _) if incoming.set.as_ref() == set && came == set => self.put(&text, incoming),
            (Some(Change { was, set }), _, Some(stored)) if was == stored.set => {
                self.put(&text, Change { was: stored.was, set });
            }
            (Some(change), ..) => self.put(&text, change),
            (None, ..) => {}
        }
    }

    /// Notes that `items` are in the list at `place` because a rule appended them, now or as an earlier record says.
    pub fn note_appended(&mut self, place: &Path, item: &Value, was_appended: bool, earlier: Earlier<'_>) {
        let text = place.to_string();
        let mut known = [earlier.incoming, earlier.stored].into_iter().flatten().filter_map(|record| record.get(&text));
        let is_known = known.any(|change| change.appended().contains(item));
        if !was_appended && !is_known {
            return;
        }
        let change = self.0.entry(text).or_insert(Change { was: None, set: Some(Value::Array(Vec::new())) });
        if let Some(Value::Array(items)) = &mut change.set
            && !items.contains(item)
        {
            items.push(item.clone());
        }
    }

    /// Whether nothing was changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What is known of what a rule did before.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    /// The record that came with the object: that of a first call of the same request, or a claim.
    pub incoming: Option<&'a Record>,
    /// The record of the stored object, on an UPDATE.
    pub stored: Option<&'a Record>,
}

impl Change {
    /// The items that were appended to a list.
    pub fn appended(&self) -> &[Value] {
        self.set.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The records of all rules.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Records(BTreeMap<String, Record>);

impl Records {
    /// The records in the object's annotation. One that can't be read is none: what it would make a rule do is not
    /// worth a denial.
    pub fn read(object: &Value) -> Self {
        let annotation = metadata::annotation(object, RECORD_ANNOTATION);
        let Some(Ok(Value::Object(rules))) = annotation.map(serde_json::from_str) else {
            return Self::default();
        };
        let records = rules.into_iter().filter_map(|(rule, changes)| {
            let Value::Object(changes) = changes else {
                return None;
            };
            let changes = changes.into_iter().filter_map(|(path, change)| {
                let Value::Object(mut change) = change else {
                    return None;
                };
                Some((path, Change { was: change.remove("was"), set: change.remove("set") }))
            });
            Some((rule, Record(changes.collect())))
        });
        Self(records.collect())
    }

    /// What the rule of that name did.
    pub fn get(&self, rule: &str) -> Option<&Record> {
        self.0.get(rule)
    }

    /// Gives a place over to `record`, that of `rule`, which wrote it last: of several rules that write the same place the
    /// last one wins. No other record says any more that it wrote there, and what stood there first is what that one names,
    /// unless it `is_settled`.
    pub fn take_over(&mut self, rule: &str, text: &str, record: &mut Record, is_settled: bool) {
        let Some(change) = record.0.get_mut(text) else { return };
        for (_, owner) in self.0.iter_mut().filter(|(owner, _)| *owner != rule) {
            let Some(owned) = owner.0.remove(text) else { continue };
            if !is_settled && change.was == owned.set {
                change.was = owned.was;
            }
        }
    }

    /// Notes what the rule of that name did.
    pub fn put(&mut self, rule: &str, record: Record) {
        if record.is_empty() {
            self.0.remove(rule);
        } else {
            self.0.insert(rule.to_owned(), record);
        }
    }

    /// Whether no rule changed anything.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(Record::is_empty)
    }

    /// Writes the annotation, or takes it away where there is nothing to say.
    ///
    /// # Errors
    /// The object's metadata can't hold it.
    pub fn write(&self, object: &mut Value) -> Result<(), MetadataError> {
        let annotation = (!self.is_empty()).then(|| self.to_json().to_string());
        metadata::set_annotation(object, RECORD_ANNOTATION, annotation)
    }

    fn to_json(&self) -> Value {
        let rules = self.0.iter().filter(|(_, record)| !record.is_empty()).map(|(rule, record)| {
            let changes = record.changes().map(|(path, change)| {
                let mut fields = Map::new();
                fields.extend(change.was.clone().map(|was| ("was".to_owned(), was)));
                fields.extend(change.set.clone().map(|set| ("set".to_owned(), set)));
                (path.to_owned(), Value::Object(fields))
            });
            (rule.clone(), Value::Object(changes.collect()))
        });
        Value::Object(rules.collect())
    }
}
