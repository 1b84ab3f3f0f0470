//! The restore record: what the rules changed on an object, and the values before.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::RuleError;
use super::edit::{Touched, append_item, append_text, covers, has_token, without_token};
use super::place::{EditError, MAX_PLACES, Place};
use super::rule::{Mode, OnUpdate, Rule, Site};
use crate::collected;
use crate::metadata;

/// On workloads: JSON object `{"<rule>": {"<path>": {"was": …, "set": …}}}`. `was` is left out where there was no
/// value, `set` where the rule removed the field. Appended values are under `<path>/-`, as a list or as text. `parent`
/// names an empty parent that existed before: other parents are removed with the field once they are empty. A rule with
/// `onUpdate: Apply` none of whose changes is left has no paths: it says that the rule was applied.
pub const RECORD_ANNOTATION: &str = "stateful-failover/restored";

/// What a rule did at one site.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// The value before.
    pub was: Option<Value>,
    /// The value that the rule wrote or appended.
    pub set: Option<Value>,
    /// The empty parent that existed before.
    pub parent: Option<String>,
}

/// What the rules did, by rule and site.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RestoreRecord {
    rules: BTreeMap<String, BTreeMap<String, Change>>,
    /// The record of rules that are not in these settings but in those of another installation. It is passed on
    /// unchanged.
    others: Map<String, Value>,
}

/// A change of a rule at one of its sites.
#[derive(Debug, Clone)]
pub struct Entry<'r> {
    /// The rule.
    pub rule: &'r Rule,
    /// The site that it changed.
    pub site: Site<'r>,
    /// The change.
    pub change: Change,
}

impl RestoreRecord {
    /// The record of `rules` in the object's annotation. An annotation that can't be read, or that has more sites than
    /// rules may have, counts as absent: the policy did not write it.
    pub fn read(object: &Value, rules: &[&Rule]) -> Self {
        let mut record = Self::default();
        let annotation = metadata::annotation(object, RECORD_ANNOTATION);
        let Some(Ok(Value::Object(written))) = annotation.map(serde_json::from_str) else {
            return record;
        };
        let sites: usize = written.values().filter_map(Value::as_object).map(Map::len).sum();
        if sites > MAX_PLACES {
            return record;
        }
        for (name, changes) in written {
            match changes {
                Value::Object(changes) if rules.iter().any(|rule| rule.name == name) => {
                    let changes = changes.into_iter().filter_map(|(key, change)| Some((key, Change::read(change)?)));
                    record.rules.insert(name, collected(changes));
                }
                changes => drop(record.others.insert(name, changes)),
            }
        }
        record
    }

    /// Whether the record says that the rule of that name was applied.
    pub fn has(&self, rule: &str) -> bool {
        self.rules.contains_key(rule)
    }

    /// The changes at sites of `rule`, in the order in which the rule makes them.
    pub fn entries_of<'r>(&self, rule: &'r Rule) -> Vec<Entry<'r>> {
        let changes = self.rules.get(&rule.name).into_iter().flatten();
        let mut entries: Vec<(usize, Entry<'r>)> = Vec::new();
        for (key, change) in changes {
            let Some((rank, site)) = rule.site(key) else { continue };
            let at = entries.partition_point(|(earlier, _)| *earlier <= rank);
            entries.insert(at, (rank, Entry { rule, site, change: change.clone() }));
        }
        entries.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Copies the record of rules that are not in these settings from `other`.
    pub fn pass_on(&mut self, other: &Self) {
        self.others = other.others.clone();
    }

    /// The number of changes.
    pub fn len(&self) -> usize {
        self.rules.values().map(BTreeMap::len).sum()
    }

    /// Notes that the rule was applied, whether it changed anything or not.
    pub fn note_done(&mut self, rule: &str) {
        self.rules.entry(rule.to_owned()).or_default();
    }

    /// Notes a change. A place has one owner: the last rule that wrote it.
    pub fn note(&mut self, rule: &str, site: &Site<'_>, change: Change) {
        let key = site.key();
        if !site.appends() {
            self.rules.values_mut().for_each(|changes| drop(changes.remove(&key)));
        }
        self.rules.entry(rule.to_owned()).or_default().insert(key, change);
    }

    /// Notes the differences between `base` and `result` at the sites that rules have changed.
    pub(super) fn note_differences(&mut self, base: &Value, result: &Value, touched: &[(&Rule, Vec<Touched<'_>>)]) {
        for (rule, touched) in touched {
            for touched in touched {
                let Some(change) = touched.difference(base, result) else { continue };
                let known = self.rules.get(&rule.name).and_then(|changes| changes.get(&touched.site.key()));
                // The values that several edits append to one list are one change.
                let change = match (known, change) {
                    (Some(Change { set: Some(Value::Array(known)), was, parent }), change)
                        if touched.site.appends() =>
                    {
                        let more = change.set.iter().filter_map(Value::as_array).flatten();
                        let items = known.iter().chain(more.filter(|item| !known.contains(item))).cloned().collect();
                        Change { was: was.clone(), set: Some(items), parent: parent.clone() }
                    }
                    (_, change) => change,
                };
                self.note(&rule.name, &touched.site, change);
            }
        }
    }

    /// The recorded paths of a rule.
    pub fn paths(&self, rule: &str) -> Vec<&str> {
        self.rules.get(rule).into_iter().flat_map(BTreeMap::keys).map(String::as_str).collect()
    }

    /// Whether the record has the same change at the entry's site.
    pub fn confirms(&self, entry: &Entry<'_>) -> bool {
        let change = self.rules.get(&entry.rule.name).and_then(|changes| changes.get(&entry.site.key()));
        change.is_some_and(|change| change.set == entry.change.set)
    }

    /// Whether the record is empty.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.others.is_empty()
    }

    /// Drops rules without changes, except those with `onUpdate: Apply`, which would be applied again otherwise.
    pub fn drop_empty(&mut self, rules: &[&Rule]) {
        let applies = |name: &str| rules.iter().any(|rule| rule.name == name && rule.on_update == OnUpdate::Apply);
        self.rules.retain(|name, changes| !changes.is_empty() || applies(name));
    }

    /// Writes the annotation, or removes it where the record is empty.
    ///
    /// # Errors
    /// The object's metadata can't hold it.
    pub(super) fn write(self, object: &mut Value) -> Result<(), RuleError> {
        if self.is_empty() {
            metadata::remove_annotation(object, RECORD_ANNOTATION);
            return Ok(());
        }
        let text = self.to_json().to_string();
        let room = metadata::annotations_left(object, RECORD_ANNOTATION);
        if text.len() > room {
            return Err(RuleError::TooLarge { size: text.len(), room });
        }
        Ok(metadata::set_annotation(object, RECORD_ANNOTATION, text)?)
    }

    fn to_json(&self) -> Value {
        let mut json = self.others.clone();
        for (rule, changes) in &self.rules {
            let changes = changes.iter().map(|(key, change)| (key.clone(), change.to_json()));
            json.insert(rule.clone(), Value::Object(collected(changes)));
        }
        Value::Object(json)
    }
}

impl Change {
    fn read(json: Value) -> Option<Self> {
        let Value::Object(mut fields) = json else { return None };
        let parent = fields.remove("parent").and_then(|parent| parent.as_str().map(str::to_owned));
        Some(Self { was: fields.remove("was"), set: fields.remove("set"), parent })
    }

    fn to_json(&self) -> Value {
        let mut fields = Map::new();
        fields.extend(self.was.clone().map(|was| ("was".to_owned(), was)));
        fields.extend(self.set.clone().map(|set| ("set".to_owned(), set)));
        fields.extend(self.parent.clone().map(|parent| ("parent".to_owned(), Value::from(parent))));
        Value::Object(fields)
    }
}

impl Touched<'_> {
    /// What the rule changed here, if it did.
    fn difference(&self, base: &Value, result: &Value) -> Option<Change> {
        let place = &self.site.place;
        let stood = place.get(base).ok().flatten();
        let stands = place.get(result).ok().flatten();
        let parent = || place.bare_parent(base).map(|parent| parent.to_string());
        match (self.site.edit.map(|edit| &edit.mode), &self.appended) {
            (Some(Mode::Append), Some(item)) => {
                let was_there = stood.and_then(Value::as_array).is_some_and(|items| items.contains(item));
                let is_bare = stood.and_then(Value::as_array).is_some_and(Vec::is_empty);
                let parent = if is_bare { Some(place.to_string()) } else { parent().filter(|_| stood.is_none()) };
                (!was_there).then(|| Change { was: None, set: Some(Value::from(vec![item.clone()])), parent })
            }
            (Some(Mode::AppendText(separator)), Some(Value::String(token))) => {
                let text = stood.and_then(Value::as_str);
                if text.is_some_and(|text| has_token(text, token, separator)) {
                    return None;
                }
                let undone = stands.and_then(Value::as_str).map(|text| without_token(text, token, separator));
                let is_exact = undone.as_deref() == Some(text.unwrap_or_default()) && text != Some("");
                let was = text.filter(|_| !is_exact).map(Value::from);
                Some(Change {
                    was,
                    set: Some(Value::from(token.as_str())),
                    parent: parent().filter(|_| text.is_none()),
                })
            }
            _ if stood == stands => None,
            _ => {
                Some(Change { was: stood.cloned(), set: stands.cloned(), parent: parent().filter(|_| stood.is_none()) })
            }
        }
    }
}

/// What a later request does to a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// The change is present.
    Stands,
    /// The request reverts it: Karmada or a GitOps tool wrote the value of the template.
    Reverted,
    /// The value is another one, which a person wanted.
    Left,
}

/// An object with and without the changes of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Versions<'a> {
    /// The object.
    pub object: &'a Value,
    /// The object without the changes of any rule.
    pub base: &'a Value,
}

impl Entry<'_> {
    /// Whether what the rule wrote is in `object`.
    pub fn is_in(&self, object: &Value) -> Result<bool, EditError> {
        let value = self.site.place.get(object)?;
        let Some(set) = &self.change.set else { return Ok(value.is_none()) };
        let Some(value) = value else { return Ok(false) };
        Ok(match self.site.edit.map(|edit| &edit.mode) {
            Some(Mode::Append) => self.appended().iter().all(|item| contains(value, item)),
            Some(Mode::AppendText(separator)) => {
                value.as_str().zip(set.as_str()).is_some_and(|(text, token)| has_token(text, token, separator))
            }
            _ => value == set || (covers(value, set) && self.change.was.as_ref() != Some(value)),
        })
    }

    fn appended(&self) -> &[Value] {
        self.change.set.as_ref().and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// Undoes the change. Parents that it created stay, but empty.
    fn undo(&self, object: &mut Value) {
        let place = &self.site.place;
        // A value that can't be found was not changed.
        let Ok(value) = place.get(object) else { return };
        let undone = match (self.site.edit.map(|edit| &edit.mode), value) {
            (Some(Mode::Append), Some(Value::Array(items))) => {
                let mut items = items.clone();
                for item in self.appended() {
                    if let Some(index) = items.iter().rposition(|other| other == item) {
                        items.remove(index);
                    }
                }
                Some(Value::Array(items))
            }
            (Some(Mode::AppendText(separator)), Some(Value::String(text))) if self.change.was.is_none() => {
                let token = self.change.set.as_ref().and_then(Value::as_str).unwrap_or_default();
                Some(without_token(text, token, separator)).filter(|text| !text.is_empty()).map(Value::from)
            }
            (Some(Mode::Append), _) => return,
            _ => self.change.was.clone(),
        };
        // It was found above.
        let _ = match undone {
            Some(value) => place.put(object, value),
            None => place.remove(object),
        };
    }

    /// What happens to the change when `new` replaces `old`.
    ///
    /// The request reverts the change if `old` still has it and `new` has no value there, or the value from before the
    /// change. If `old` does not have it any more, or a parent that the rules did not create is gone, a person wanted
    /// it so.
    pub fn fate(&mut self, old: Versions<'_>, new: Versions<'_>) -> Result<Fate, EditError> {
        if self.is_in(new.object)? {
            return Ok(Fate::Stands);
        }
        let place = &self.site.place;
        let is_gone = |place: &Place| {
            let stands = |object| place.get(object).is_ok_and(|value| value.is_some());
            stands(old.base) && !stands(new.base)
        };
        let appends_to_list = matches!(self.site.edit.map(|edit| &edit.mode), Some(Mode::Append));
        if place.parents().any(|parent| is_gone(&parent))
            || place.is_entry_gone(new.object)
            || (appends_to_list && is_gone(place))
        {
            return Ok(Fate::Left);
        }
        if appends_to_list {
            return Ok(self.fate_of_items(old.object, new.object));
        }
        let value = place.get(new.object)?;
        let is_text = self.site.appends() && value.is_some_and(Value::is_string);
        let is_as_before = value.is_none() || value == self.change.was.as_ref() || is_text;
        let is_reverted = is_as_before && self.is_in(old.object).unwrap_or(false);
        Ok(if is_reverted { Fate::Reverted } else { Fate::Left })
    }

    /// Some of several appended items may be present, some reverted, and some removed by a person: the latter leave the
    /// change.
    fn fate_of_items(&mut self, old: &Value, new: &Value) -> Fate {
        let list = |object| self.site.place.get(object).ok().flatten().cloned().unwrap_or_default();
        let (old, new) = (list(old), list(new));
        let items: Vec<Value> =
            self.appended().iter().filter(|item| contains(&new, item) || contains(&old, item)).cloned().collect();
        let fate = if items.is_empty() {
            Fate::Left
        } else if items.iter().all(|item| contains(&new, item)) {
            Fate::Stands
        } else {
            Fate::Reverted
        };
        self.change.set = Some(Value::from(items));
        fate
    }

    /// The change between `base`, which is the object without the rules, and `result`.
    pub fn renewed(&self, base: &Value, result: &Value) -> Change {
        let appended = match &self.change.set {
            Some(Value::Array(items)) if self.site.appends() => items.first(),
            set => set.as_ref(),
        };
        let touched = Touched { site: self.site.clone(), appended: appended.cloned() };
        match touched.difference(base, result) {
            Some(change) => Change { set: self.change.set.clone(), ..change },
            None => self.change.clone(),
        }
    }

    /// Writes the rule's value again.
    pub(super) fn put_back(&self, object: &mut Value) -> Result<(), RuleError> {
        let place = &self.site.place;
        match (self.site.edit.map(|edit| &edit.mode), &self.change.set) {
            (_, None) => place.remove(object).map_err(|cause| RuleError::at(place, cause)),
            (Some(Mode::AppendText(separator)), Some(token)) => append_text(place, object, token, separator),
            (Some(Mode::Append), Some(_)) => {
                for item in self.appended() {
                    if !place.get(object).is_ok_and(|list| list.is_some_and(|list| contains(list, item))) {
                        append_item(place, object, item)?;
                    }
                }
                Ok(())
            }
            (_, Some(set)) => place.put(object, set.clone()).map_err(|cause| RuleError::at(place, cause)),
        }
    }
}

/// Undoes `changes` in `object`, and removes the parents that they created.
pub fn undo(changes: &[&Entry<'_>], object: &mut Value) {
    changes.iter().for_each(|entry| entry.undo(object));
    let kept: Vec<&str> = changes.iter().filter_map(|entry| entry.change.parent.as_deref()).collect();
    for Entry { site, change, .. } in changes.iter().filter(|entry| entry.change.was.is_none()) {
        // A list that is empty after this may have been created, too.
        let is_list = change.set.as_ref().is_some_and(Value::is_array) && site.appends();
        let list = is_list.then(|| site.place.clone());
        let _ = list.into_iter().chain(site.place.parents()).all(|place| place.prune(object, &kept));
    }
}

fn contains(list: &Value, item: &Value) -> bool {
    list.as_array().is_some_and(|items| items.contains(item))
}
