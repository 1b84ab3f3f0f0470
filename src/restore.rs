//! The stage `restore`: the state that was fed to a workload is turned into the fields that the application resumes from,
//! and kept there. In the Karmada control plane that is a manifest in a Work, in a member cluster the object itself.
//!
//! A CREATE carries the rules out and records what they changed. An UPDATE follows that record: what Karmada or a GitOps
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

/// Set by a person, with a reason: rules leave the object alone.
pub const SKIP_ANNOTATION: &str = "stateful-failover/skip";

/// Why a rule can't be carried out.
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

/// A workload on its way into storage: an object in a member cluster, or a manifest in a Work.
#[derive(Debug, Clone, Copy)]
pub struct Workload<'a> {
    /// Group and kind, and the names as far as they are known before it is stored.
    pub reference: ObjectReference<'a>,
    /// The object.
    pub object: &'a Value,
    /// What is stored of it; `None` where it is created.
    pub old: Option<&'a Value>,
}

/// What the rules did to a workload.
#[derive(Debug, Default)]
pub struct Restoration {
    /// The object with the rules carried out; `None` where it stays as it came.
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
    /// The denial of the request. `container` is what the workload is in, if it is not the request's own object.
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

/// What of an object the rules read and write.
pub fn fields(rules: &[Rule]) -> Fields<'_> {
    let mut fields = metadata::fields();
    rules.iter().for_each(|rule| rule.add_fields(&mut fields));
    fields
}

/// Carries out `rules` on the object of a request in a member cluster, or keeps what they once changed there.
pub fn review(
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    rules: &[Rule],
    cluster: &impl Cluster,
) -> Verdict {
    match carry_out(Workload { reference: request.reference(), object, old }, rules, cluster) {
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

/// Carries out `rules` on a workload that is created, or keeps what they once changed on one that is updated.
///
/// # Errors
/// [`Failure`], where a rule can't be carried out: nothing of any rule may be stored then.
pub fn carry_out(workload: Workload<'_>, rules: &[Rule], cluster: &impl Cluster) -> Result<Restoration, Failure> {
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

/// An error, and the rule it is of, if it is one's.
type RuleFailure<'a> = (Option<&'a Rule>, RuleError);

/// One review under way.
struct Review<'a, C> {
    /// The object as it came.
    object: &'a Value,
    /// The rules for this kind and namespace.
    rules: &'a [&'a Rule],
    /// The record that came with the object.
    incoming: RestoreRecord,
    built_ins: Values,
    config_maps: ConfigMaps<'a, C>,
    restoration: Restoration,
}

/// The rules carried out on an object that has no changes of theirs.
struct Trial<'a> {
    result: Cow<'a, Value>,
    record: RestoreRecord,
    done: Vec<&'a Rule>,
    notes: Vec<String>,
}

impl<'a, C: Cluster> Review<'a, C> {
    fn create(&mut self) -> Result<(), RuleFailure<'a>> {
        // API servers call a webhook again on its own result, and an object may have passed the policy before, in the
        // control plane. What its record says counts where taking it back and carrying the rules out makes the same again.
        let object = self.object;
        let claimed = self.standing_claims();
        let mut confirmed = None;
        if !claimed.is_empty() {
            let trial = self.try_on(without(object, &claimed)).ok();
            confirmed = trial.filter(|trial| claimed.iter().all(|entry| trial.record.confirms(entry)));
        }
        let trial = match confirmed {
            Some(trial) => trial,
            None => self.try_on(without(object, &[]))?,
        };
        self.restoration.notes.extend(trial.notes);
        if trial.done.is_empty() && self.incoming.is_empty() && FedState::of(self.object).is_fed() {
            let why = self.restoration.notes.last().map(String::as_str).unwrap_or_default();
            self.restoration.warnings.push(warning(&format!("state was fed but not restored: {why}")));
        }
        let mut record = trial.record;
        record.pass_on(&self.incoming);
        if self.shows(&record) {
            return Ok(());
        }
        self.note_set(&record, &trial.done);
        self.finish(trial.result.into_owned(), record)
    }

    /// What the record that came with the object says and the object shows.
    fn standing_claims(&self) -> Vec<Entry<'a>> {
        let mut claims = self.believed(&self.incoming);
        claims.retain(|entry| entry.stands_in(self.object).unwrap_or(false));
        claims
    }

    /// Whether the object came with this very record, and with all that it says.
    fn shows(&self, record: &RestoreRecord) -> bool {
        !record.is_empty() && *record == self.incoming && self.standing_claims().len() == record.len()
    }

    /// What of a record the rules could have written, in the order in which they work.
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

    /// Carries the rules out on `base`.
    fn try_on(&mut self, base: Cow<'a, Value>) -> Result<Trial<'a>, RuleFailure<'a>> {
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
            return Ok(Trial { result: base, record, done: Vec::new(), notes });
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
        Ok(Trial { result: Cow::Owned(result), record, done, notes })
    }

    fn prepare(&mut self, rule: &'a Rule, base: &Value) -> Result<Readiness, RuleFailure<'a>> {
        if let Some(why) = rule.mismatch(base) {
            return Ok(Readiness::NotFor(why));
        }
        resolve(&rule.variables, base, &self.built_ins, &mut self.config_maps).map_err(|error| (Some(rule), error))
    }

    fn update(&mut self, old: &Value) -> Result<(), RuleFailure<'a>> {
        let stored = RestoreRecord::read(old, self.rules);
        let afresh: Vec<&Rule> = self.rules.iter().copied().filter(|rule| self.is_due(rule, &stored, old)).collect();
        self.warn_of_kept_rules(old);
        if stored.is_empty() && self.incoming.is_empty() && afresh.is_empty() {
            return Ok(());
        }
        self.warn_of_changed_rules(&stored, old);
        let entries = self.entries(&stored);
        let object = self.object;
        let old_base = without(old, &standing(&self.believed(&stored), old));
        let new_base = without(object, &standing(&entries, object));
        let old = Versions { object: old, base: &old_base };
        let new = Versions { object, base: &new_base };

        let mut result = self.object.clone();
        let mut record = RestoreRecord::default();
        let mut ready = Vec::new();
        for rule in afresh {
            match self.prepare(rule, &new_base)? {
                Readiness::Ready(values) => ready.push((rule, values)),
                Readiness::NotFor(why) => {
                    self.restoration.notes.push(format!("rule {} not applied again: {why}", quote(&rule.name)));
                }
            }
        }
        check_overlaps(&ready)?;
        // First all that is taken back: what a rule appended for an older state goes.
        let is_ready = |entry: &&Entry<'_>| ready.iter().any(|(rule, _)| rule.name == entry.rule.name);
        let undone: Vec<&Entry<'_>> =
            entries.iter().filter(is_ready).filter(|entry| entry.stands_in(&result).unwrap_or(false)).collect();
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

    /// State that arrives at an object which is there already changes nothing under `onUpdate: Keep`: somebody has to know.
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

    /// What a rule once wrote and would not write any more, since its settings have changed, can't be kept.
    fn warn_of_changed_rules(&mut self, stored: &RestoreRecord, old: &Value) {
        for entry in self.rules.iter().flat_map(|rule| stored.entries_of(rule)) {
            let stands = |object| entry.stands_in(object).unwrap_or(false);
            if !self.could_have_written(&entry) && stands(old) && !stands(self.object) {
                let name = quote(&entry.rule.name);
                let text =
                    format!("rule {name}: {} not kept: the rule has changed since it wrote it", entry.site.key());
                self.restoration.warnings.push(warning(&text));
            }
        }
    }

    /// Whether the rule is to be carried out again: its state is another than that of the stored object, or it came into the
    /// settings after the object was created.
    fn is_due(&self, rule: &Rule, stored: &RestoreRecord, old: &Value) -> bool {
        if rule.on_update != OnUpdate::Apply {
            return false;
        }
        let is_new = !stored.has(&rule.name) && !self.incoming.has(&rule.name);
        self.is_state_changed(rule, Some(old).filter(|_| !is_new))
    }

    /// Whether a variable of the rule has state that `old`, if there is one, does not have.
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

    /// What rules have changed: as the record says that came with the object, where the object shows it, since this policy may
    /// be called again, and another installation's may have carried out the same rule; else as the stored one says.
    fn entries(&self, stored: &RestoreRecord) -> Vec<Entry<'a>> {
        let mut entries = self.standing_claims();
        let mut stored = self.believed(stored);
        stored.retain(|entry| {
            // A place has one owner; what is appended has one for each rule.
            let is_same = |claim: &Entry<'_>| {
                claim.site.key() == entry.site.key() && (!entry.site.appends() || claim.rule.name == entry.rule.name)
            };
            !entries.iter().any(is_same)
        });
        entries.append(&mut stored);
        entries
    }

    /// Puts back what this request reverts of a rule's changes; what a person changed leaves the record.
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
                // Of what happens later, such a rule only follows what still stands.
                Ok(Fate::Reverted) if entry.rule.on_update == OnUpdate::Ignore => Ok(Fate::Left),
                fate => fate,
            };
            let error = match fate {
                Ok(Fate::Left) => {
                    self.restoration.notes.push(format!("rule {}: {key} was changed and is left", quote(name)));
                    continue;
                }
                Ok(fate) => {
                    let stands = entry.stands_in(result).unwrap_or(false);
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

/// `object` as it would be without these changes and the record of them.
fn without<'v>(object: &'v Value, changes: &[Entry<'_>]) -> Cow<'v, Value> {
    let mut object = Cow::Borrowed(object);
    if !changes.is_empty() {
        undo(&changes.iter().collect::<Vec<_>>(), object.to_mut());
    }
    if metadata::annotation(&object, RECORD_ANNOTATION).is_some() {
        let object = object.to_mut();
        metadata::remove_annotation(object, RECORD_ANNOTATION);
        // API servers store no empty ones: there were none.
        if object.pointer("/metadata/annotations").and_then(Value::as_object).is_some_and(Map::is_empty)
            && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("annotations");
        }
    }
    object
}

/// Those of the changes that `object` shows.
fn standing<'r>(entries: &[Entry<'r>], object: &Value) -> Vec<Entry<'r>> {
    entries.iter().filter(|entry| entry.stands_in(object).unwrap_or(false)).cloned().collect()
}

/// That one rule writes a part of what another writes or removes could not be kept, nor done twice with the same result.
/// The same path may be set by several: the last one counts.
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
