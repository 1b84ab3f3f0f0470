//! The stage `restore`: writes the state that was fed to a workload into the fields that the application resumes from,
//! and keeps it there. The workload is a manifest in a Work at the Karmada control plane, or the object itself in a
//! member cluster.
//!
//! A CREATE applies the rules and records what they changed. An UPDATE follows that record: what Karmada or a GitOps
//! tool reverted is written back, what a person changed is left.

mod edit;
pub mod path;
pub mod place;
pub mod record;
pub mod rule;
pub mod variable;
pub mod work;

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::cluster::{Cluster, LookupError};
use crate::collected;
use crate::json::Fields;
use crate::messages::{chain, quote, warning};
use crate::metadata::{self, MetadataError};
use crate::object_reference::ObjectReference;
use crate::request::Request;
use crate::verdict::Verdict;
use place::{EditError, MAX_PLACES};
use record::{Entry, Fate, RECORD_ANNOTATION, RestoreRecord, Versions, undo};
use rule::{OnUpdate, Rule};
use variable::{ConfigMaps, FedState, Readiness, Source, Values, resolve};

/// Set by a person, with the reason as its value: rules do not change the object.
pub const SKIP_ANNOTATION: &str = "stateful-failover/skip";

/// Why a rule can't be applied.
#[derive(Debug, Error)]
enum RuleError {
    #[error("variable `{name}` is {}, expected {expected}{}; check {remedy}", quote(.value), if *.is_rejected { " and not listed in `reject`" } else { "" })]
    Invalid { name: String, value: String, expected: String, is_rejected: bool, remedy: String },
    #[error("variable `{name}` has no value ({why}) and `onMissing` is Reject; provide it, or write `onMissing: Skip`")]
    Missing { name: String, why: String },
    #[error("cannot read {object}")]
    Lookup {
        object: String,
        #[source]
        cause: LookupError,
    },
    #[error("`{{{name}}}` has no value: {}; remove it from the rule", if .name == "name" { "the object has a generateName and no name yet" } else { "the object is cluster-scoped" })]
    NoBuiltIn { name: String },
    #[error("variable `{name}` is {}, expected {expected}; check what it is read from", quote(.value))]
    Type { name: String, value: String, expected: &'static str },
    #[error("cannot write `{path}`")]
    Edit {
        path: String,
        #[source]
        cause: EditError,
    },
    #[error("cannot append to `{path}`: it is {found}, expected {expected}")]
    Append { path: String, found: &'static str, expected: &'static str },
    #[error("`{path}` overlaps `{other}`, which rule {} writes; move both into one rule", quote(.rule))]
    Overlap { path: String, other: String, rule: String },
    #[error("the rule leads to more than {MAX_PLACES} places")]
    TooManyPlaces,
    #[error(
        "the annotation `{RECORD_ANNOTATION}` would have {size} bytes, where the object's other annotations leave {room} of what an \
         API server takes; replace or remove smaller parts of the object"
    )]
    TooLarge { size: usize, room: usize },
    #[error("cannot write the restore record")]
    Metadata(#[from] MetadataError),
}

impl RuleError {
    fn at(path: impl fmt::Display, cause: EditError) -> Self {
        Self::Edit { path: path.to_string(), cause }
    }
}

/// A workload that a request writes: an object in a member cluster, or a manifest in a Work.
#[derive(Debug, Clone, Copy)]
pub struct Workload<'a> {
    /// Group, kind and names, as far as they are known before the object is stored.
    pub reference: ObjectReference<'a>,
    /// The object.
    pub object: &'a Value,
    /// The stored object; `None` where it is created.
    pub old: Option<&'a Value>,
}

/// What the rules did to a workload.
#[derive(Debug, Default)]
pub struct Restoration {
    /// The changed object; `None` where nothing changed.
    pub object: Option<Value>,
    /// What was done, for the audit annotation.
    pub done: Vec<String>,
    /// For the client.
    pub warnings: Vec<String>,
    /// For the engine's log.
    pub notes: Vec<String>,
}

/// Why a workload can't be restored. Prints as ``cannot restore <workload>: rule `name`: <why>``.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot restore {workload}: {}{why}", .rule.iter().map(|rule| format!("{rule}: ")).collect::<String>())]
pub struct Failure {
    /// ``rule `name` ``; `None` where it is not due to a single rule.
    rule: Option<String>,
    /// The workload, as messages name it.
    workload: String,
    why: String,
}

impl Failure {
    /// The denial of the request. `container` is the Work that the workload is in, if any.
    pub fn into_verdict(mut self, container: Option<ObjectReference<'_>>) -> Verdict {
        if let Some(container) = container {
            self.workload = format!("{} in {container}", self.workload);
        }
        let mut verdict = Verdict::deny(self.to_string());
        let what = self.rule.unwrap_or_else(|| "restore".to_owned());
        verdict.audit_annotations.insert("restore", format!("{what} failed"));
        verdict
    }
}

/// The fields of an object that the rules read and write.
pub fn fields(rules: &[Rule]) -> Fields<'_> {
    let mut fields = metadata::fields();
    rules.iter().for_each(|rule| rule.add_fields(&mut fields));
    fields
}

/// Applies `rules` to the object of a request in a member cluster, or keeps what they changed before.
pub fn review(
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    rules: &[Rule],
    cluster: &impl Cluster,
) -> Verdict {
    match apply(Workload { reference: request.reference(), object, old }, rules, cluster) {
        Ok(restoration) => {
            let mut verdict = restoration.object.map_or_else(Verdict::accept, |result| Verdict::mutate(object, result));
            if !restoration.done.is_empty() {
                verdict.audit_annotations.insert("restore", restoration.done.join("; "));
            }
            verdict.warnings = restoration.warnings;
            verdict.notes = restoration.notes;
            verdict
        }
        Err(failure) => failure.into_verdict(None),
    }
}

/// Applies `rules` to a workload that is created, or keeps what they changed on one that is updated.
///
/// # Errors
/// [`Failure`], where a rule can't be applied. The request must be denied then.
pub fn apply(workload: Workload<'_>, rules: &[Rule], cluster: &impl Cluster) -> Result<Restoration, Failure> {
    let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.workloads.accepts(workload.reference)).collect();
    if rules.is_empty() {
        return Ok(Restoration::default());
    }
    if let Some(reason) = metadata::annotation(workload.object, SKIP_ANNOTATION).filter(|reason| !reason.is_empty()) {
        let text = format!("restore skipped, `{SKIP_ANNOTATION}` says: {}", quote(reason));
        return Ok(Restoration { warnings: vec![warning(&text)], done: vec![text], ..Restoration::default() });
    }
    let mut review = Review {
        object: workload.object,
        rules: &rules,
        incoming: RestoreRecord::read(workload.object, &rules),
        built_ins: built_ins(workload),
        config_maps: ConfigMaps::new(cluster),
        restoration: Restoration::default(),
    };
    let outcome = match workload.old {
        None => review.create(),
        Some(old) => review.update(old),
    };
    match outcome {
        Ok(()) => Ok(review.restoration),
        Err((rule, error)) => Err(Failure {
            rule: rule.map(|rule| format!("rule {}", quote(&rule.name))),
            workload: workload.reference.to_string(),
            why: chain(&error),
        }),
    }
}

fn built_ins(workload: Workload<'_>) -> Values {
    let reference = workload.reference;
    let name = workload.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(reference.name);
    let candidates = [("namespace", reference.namespace), ("name", name), ("kind", reference.kind)];
    let known = candidates.into_iter().filter(|(_, value)| !value.is_empty());
    collected(known.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// An error, and the rule that caused it, if it was a single one.
type RuleFailure<'a> = (Option<&'a Rule>, RuleError);

/// The state of one review.
struct Review<'a, C> {
    /// The request's object.
    object: &'a Value,
    /// The rules that match the object's kind and namespace.
    rules: &'a [&'a Rule],
    /// The record that came with the object.
    incoming: RestoreRecord,
    built_ins: Values,
    config_maps: ConfigMaps<'a, C>,
    restoration: Restoration,
}

/// The result of applying the rules to an object without any changes of theirs.
struct Applied<'a> {
    result: Cow<'a, Value>,
    record: RestoreRecord,
    done: Vec<&'a Rule>,
    notes: Vec<String>,
}

impl<'a, C: Cluster> Review<'a, C> {
    fn create(&mut self) -> Result<(), RuleFailure<'a>> {
        // API servers may call a webhook again on its own result, and the policy at the control plane may have changed
        // the object before. The object's record is trusted where undoing it and applying the rules gives the same
        // changes again.
        let object = self.object;
        let changes = self.present_changes();
        let mut confirmed = None;
        if !changes.is_empty() {
            let applied = self.apply_rules(without(object, &changes)).ok();
            confirmed = applied.filter(|applied| changes.iter().all(|entry| applied.record.confirms(entry)));
        }
        let applied = match confirmed {
            Some(applied) => applied,
            None => self.apply_rules(without(object, &[]))?,
        };
        self.restoration.notes.extend(applied.notes);
        if applied.done.is_empty() && self.incoming.is_empty() && FedState::of(self.object).is_fed() {
            let why = self.restoration.notes.last().map(String::as_str).unwrap_or_default();
            self.restoration.warnings.push(warning(&format!("state was fed but not restored: {why}")));
        }
        let mut record = applied.record;
        record.pass_on(&self.incoming);
        if self.shows(&record) {
            return Ok(());
        }
        self.note_set(&record, &applied.done);
        self.finish(applied.result.into_owned(), record)
    }

    /// The changes in the object's own record that are present in the object.
    fn present_changes(&self) -> Vec<Entry<'a>> {
        present(&self.believed(&self.incoming), self.object)
    }

    /// Whether the object has exactly this record, and all changes in it.
    fn shows(&self, record: &RestoreRecord) -> bool {
        !record.is_empty() && *record == self.incoming && self.present_changes().len() == record.len()
    }

    /// The changes of a record that the rules could have made, in the order in which they are applied.
    fn believed(&self, record: &RestoreRecord) -> Vec<Entry<'a>> {
        let entries = self.rules.iter().flat_map(|rule| record.entries_of(rule));
        entries.filter(|entry| self.could_have_written(entry)).collect()
    }

    fn could_have_written(&self, entry: &Entry<'_>) -> bool {
        let accepts = |name: &str, value: &str| match entry.rule.variables.get(name) {
            Some(variable) => variable.accepts(value),
            None => self.built_ins.get(name).is_some_and(|built_in| built_in == value),
        };
        let Some(set) = &entry.change.set else { return entry.site.edit.is_none() };
        entry.rule.could_write(&entry.site, set, &accepts)
    }

    /// Applies the rules to `base`.
    fn apply_rules(&mut self, base: Cow<'a, Value>) -> Result<Applied<'a>, RuleFailure<'a>> {
        let mut notes = Vec::new();
        let mut ready = Vec::new();
        for rule in self.rules {
            match self.prepare(rule, &base)? {
                Readiness::Ready(values) => ready.push((*rule, values)),
                Readiness::NotFor(why) => notes.push(format!("rule {} not applied: {why}", quote(&rule.name))),
            }
        }
        check_overlaps(&ready)?;
        let mut record = RestoreRecord::default();
        if ready.is_empty() {
            return Ok(Applied { result: base, record, done: Vec::new(), notes });
        }
        let mut result = base.as_ref().clone();
        let mut touched = Vec::new();
        for (rule, values) in &ready {
            touched.push((*rule, rule.apply(values, &mut result).map_err(|error| (Some(*rule), error))?));
            record.note_done(&rule.name);
        }
        record.note_differences(&base, &result, &touched);
        record.drop_empty(self.rules);
        let done = ready.into_iter().map(|(rule, _)| rule).collect();
        Ok(Applied { result: Cow::Owned(result), record, done, notes })
    }

    fn prepare(&mut self, rule: &'a Rule, base: &Value) -> Result<Readiness, RuleFailure<'a>> {
        if let Some(why) = rule.mismatch(base) {
            return Ok(Readiness::NotFor(why));
        }
        resolve(&rule.variables, base, &self.built_ins, &mut self.config_maps).map_err(|error| (Some(rule), error))
    }

    fn update(&mut self, old: &Value) -> Result<(), RuleFailure<'a>> {
        let stored = RestoreRecord::read(old, self.rules);
        let due: Vec<&Rule> = self.rules.iter().copied().filter(|rule| self.is_due(rule, &stored, old)).collect();
        self.warn_of_kept_rules(old);
        if stored.is_empty() && self.incoming.is_empty() && due.is_empty() {
            return Ok(());
        }
        self.warn_of_changed_rules(&stored, old);
        let entries = self.entries(&stored);
        let object = self.object;
        let old_base = without(old, &present(&self.believed(&stored), old));
        let new_base = without(object, &present(&entries, object));
        let old = Versions { object: old, base: &old_base };
        let new = Versions { object, base: &new_base };

        let mut result = self.object.clone();
        let mut record = RestoreRecord::default();
        let mut ready = Vec::new();
        for rule in due {
            match self.prepare(rule, &new_base)? {
                Readiness::Ready(values) => ready.push((rule, values)),
                Readiness::NotFor(why) => {
                    self.restoration.notes.push(format!("rule {} not applied again: {why}", quote(&rule.name)));
                }
            }
        }
        check_overlaps(&ready)?;
        // Everything is undone first, so that what a rule appended for an older state is removed.
        let is_ready = |entry: &&Entry<'_>| ready.iter().any(|(rule, _)| rule.name == entry.rule.name);
        let undone: Vec<&Entry<'_>> =
            entries.iter().filter(is_ready).filter(|entry| entry.is_in(&result).unwrap_or(false)).collect();
        undo(&undone, &mut result);
        let mut done = Vec::new();
        for rule in self.rules {
            if stored.has(&rule.name) || self.incoming.has(&rule.name) {
                record.note_done(&rule.name);
            }
            match ready.iter().find(|(ready, _)| ready.name == rule.name) {
                Some((_, values)) => {
                    let touched = rule.apply(values, &mut result).map_err(|error| (Some(*rule), error))?;
                    record.note_done(&rule.name);
                    record.note_differences(&new_base, &result, &[(*rule, touched)]);
                    done.push(*rule);
                }
                None => {
                    let entries = entries.iter().filter(|entry| entry.rule.name == rule.name);
                    self.keep(entries.cloned(), old, new, &mut result, &mut record);
                }
            }
        }
        record.pass_on(&self.incoming);
        record.drop_empty(self.rules);
        if self.shows(&record) {
            return Ok(());
        }
        self.note_set(&record, &done);
        self.finish(result, record)
    }

    /// Warns where state arrives at an existing object whose rules have `onUpdate: Keep` and so do not restore it.
    fn warn_of_kept_rules(&mut self, old: &Value) {
        let kept = |rule: &&&Rule| rule.on_update == OnUpdate::Keep;
        for rule in self.rules.iter().filter(kept) {
            if self.is_state_changed(rule, Some(old)) && rule.mismatch(self.object).is_none() {
                let name = quote(&rule.name);
                let text = format!(
                    "state was fed but not restored: rule {name} keeps running copies as they are; set `onUpdate: Apply`"
                );
                self.restoration.warnings.push(warning(&text));
            }
        }
    }

    /// Warns of changes that can't be kept, because the rule was edited and would not make them any more.
    fn warn_of_changed_rules(&mut self, stored: &RestoreRecord, old: &Value) {
        for entry in self.rules.iter().flat_map(|rule| stored.entries_of(rule)) {
            let stands = |object| entry.is_in(object).unwrap_or(false);
            if !self.could_have_written(&entry) && stands(old) && !stands(self.object) {
                let name = quote(&entry.rule.name);
                let text =
                    format!("rule {name}: {} not kept: the rule has changed since it wrote it", entry.site.key());
                self.restoration.warnings.push(warning(&text));
            }
        }
    }

    /// Whether the rule has to be applied again: its state differs from that of the stored object, or the rule was
    /// added to the settings after the object was created.
    fn is_due(&self, rule: &Rule, stored: &RestoreRecord, old: &Value) -> bool {
        if rule.on_update != OnUpdate::Apply {
            return false;
        }
        let is_new = !stored.has(&rule.name) && !self.incoming.has(&rule.name);
        self.is_state_changed(rule, Some(old).filter(|_| !is_new))
    }

    /// Whether a variable of the rule has a state that `old` does not have.
    fn is_state_changed(&self, rule: &Rule, old: Option<&Value>) -> bool {
        let (state, old) = (FedState::of(self.object), old.map(FedState::of));
        rule.variables.values().any(|variable| match &variable.source {
            Source::State(alias) => {
                let value = state.get(alias);
                value.is_some() && old.as_ref().is_none_or(|old| value != old.get(alias))
            }
            Source::ConfigMap { .. } | Source::Field(_) => false,
        })
    }

    /// What the rules have changed. The object's own record counts for changes that are present in the object, since
    /// this policy may be called again and another installation may have applied the same rule; otherwise the stored
    /// record counts.
    fn entries(&self, stored: &RestoreRecord) -> Vec<Entry<'a>> {
        let mut entries = self.present_changes();
        let mut stored = self.believed(stored);
        stored.retain(|entry| {
            // A place has one owner, an appended value one for each rule.
            let is_same = |claim: &Entry<'_>| {
                claim.site.key() == entry.site.key() && (!entry.site.appends() || claim.rule.name == entry.rule.name)
            };
            !entries.iter().any(is_same)
        });
        entries.append(&mut stored);
        entries
    }

    /// Puts back the changes of a rule that this request reverts. What a person changed is removed from the record.
    fn keep(
        &mut self,
        entries: impl Iterator<Item = Entry<'a>>,
        old: Versions<'_>,
        new: Versions<'_>,
        result: &mut Value,
        record: &mut RestoreRecord,
    ) {
        let mut put_back = Vec::new();
        let mut name = "";
        for mut entry in entries {
            name = &entry.rule.name;
            let key = entry.site.key();
            let fate = match entry.fate(old, new) {
                // Such a rule only keeps track of what is still present.
                Ok(Fate::Reverted) if entry.rule.on_update == OnUpdate::Ignore => Ok(Fate::Left),
                fate => fate,
            };
            let error = match fate {
                Ok(Fate::Left) => {
                    self.restoration.notes.push(format!("rule {}: {key} was changed and is left", quote(name)));
                    continue;
                }
                Ok(fate) => {
                    let stands = entry.is_in(result).unwrap_or(false);
                    let error = if stands { None } else { entry.put_back(result).err().map(|error| chain(&error)) };
                    if fate == Fate::Reverted && error.is_none() {
                        put_back.push(key.clone());
                        entry.change = entry.renewed(new.base, result);
                    }
                    error
                }
                Err(error) => Some(chain(&error)),
            };
            match error {
                None => record.note(name, &entry.site, entry.change),
                Some(error) => {
                    let text = format!("rule {}: {key} not kept: {error}", quote(name));
                    self.restoration.warnings.push(warning(&text));
                }
            }
        }
        if !put_back.is_empty() {
            self.restoration.done.push(format!("rule {} put back {}", quote(name), put_back.join(", ")));
        }
    }

    fn note_set(&mut self, record: &RestoreRecord, done: &[&Rule]) {
        for rule in done {
            let paths = record.paths(&rule.name);
            if !paths.is_empty() {
                self.restoration.done.push(format!("rule {} set {}", quote(&rule.name), paths.join(", ")));
            }
        }
    }

    fn finish(&mut self, mut result: Value, record: RestoreRecord) -> Result<(), RuleFailure<'a>> {
        record.write(&mut result).map_err(|error| (None, error))?;
        if result == *self.object {
            self.restoration.done.clear();
        } else {
            self.restoration.object = Some(result);
        }
        Ok(())
    }
}

/// `object` without these changes and without the record.
fn without<'v>(object: &'v Value, changes: &[Entry<'_>]) -> Cow<'v, Value> {
    let mut object = Cow::Borrowed(object);
    if !changes.is_empty() {
        undo(&changes.iter().collect::<Vec<_>>(), object.to_mut());
    }
    if metadata::annotation(&object, RECORD_ANNOTATION).is_some() {
        let object = object.to_mut();
        metadata::remove_annotation(object, RECORD_ANNOTATION);
        // API servers do not store empty annotations, so there were none.
        if object.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    object
}

/// The changes that are present in `object`.
fn present<'r>(entries: &[Entry<'r>], object: &Value) -> Vec<Entry<'r>> {
    entries.iter().filter(|entry| entry.is_in(object).unwrap_or(false)).cloned().collect()
}

/// Checks that no rule writes a part of what another rule writes or removes: it could not be kept, and applying it
/// twice would give another result. Several rules may set the same path, and the last one wins.
fn check_overlaps<'a>(ready: &[(&'a Rule, Values)]) -> Result<(), RuleFailure<'a>> {
    for (index, (rule, _)) in ready.iter().enumerate() {
        for (earlier, _) in ready.iter().take(index) {
            if let Some((path, other)) = rule.overlap(earlier) {
                let (path, other) = (path.to_string(), other.to_string());
                return Err((Some(rule), RuleError::Overlap { path, other, rule: earlier.name.clone() }));
            }
        }
    }
    Ok(())
}
