//! The stage `restore`: in the member cluster, the state that was fed to a workload is turned into the fields that the
//! application resumes from, and kept there.
//!
//! A CREATE carries the rules out and notes in the object's annotation what they changed. An UPDATE goes by that
//! record: what Karmada or GitOps reverted is put back, what a person changed is left.

mod edit;
pub mod path;
pub mod record;
pub mod rule;
pub mod variable;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use thiserror::Error;

use crate::cluster::{Cluster, Get, LookupError};
use crate::karmada::ObjectReference;
use crate::metadata::{self, MetadataError};
use crate::request::Request;
use crate::state::{self, State};
use crate::verdict::{Outcome, Verdict, chain, quote, warning};
use edit::{append_to_list, append_to_text, covers};
use path::{EditError, Path};
use record::{Change, Earlier, Record, Records};
use rule::{Edit, Mode, OnUpdate, Rule};
use variable::{Otherwise, Source, Values, Variable};

/// Set by a person, with a reason: rules leave the object alone.
pub const SKIP_ANNOTATION: &str = "stateful-failover/skip";

/// Why a rule can't be carried out.
#[derive(Debug, Error)]
enum RuleError {
    #[error("variable `{name}` is {}, expected {expected}{}; check `statePreservation` of the PropagationPolicy that moved it", quote(.value), rejected(*.is_rejected))]
    Invalid { name: String, value: String, expected: String, is_rejected: bool },
    #[error("variable `{name}` has no value ({why}); it is `onMissing: Reject`")]
    Missing { name: String, why: String },
    #[error("cannot read {object}")]
    Lookup {
        object: String,
        #[source]
        cause: LookupError,
    },
    #[error("`{0}` has no value yet: the object has a generateName")]
    NoBuiltIn(String),
    #[error("variable `{name}` is {}, expected {expected}", quote(.value))]
    Type { name: String, value: String, expected: &'static str },
    #[error("cannot write `{path}`")]
    Edit {
        path: String,
        #[source]
        cause: EditError,
    },
    #[error("cannot append to `{path}`: it is {found}, expected {expected}")]
    Append { path: String, found: &'static str, expected: &'static str },
    #[error("cannot write `{path}`: rule {} writes `{other}`; let one rule write both", quote(.rule))]
    Overlap { path: String, other: String, rule: String },
    #[error("cannot write the restore record")]
    Record(#[from] MetadataError),
}

/// A rule that failed (or none, where it is the record), and why.
type Failure<'a> = (Option<&'a Rule>, RuleError);

fn rejected(is_rejected: bool) -> &'static str {
    if is_rejected { " and none of `reject`" } else { "" }
}

/// How often rules are carried out or kept until nothing changes; more than once only where they build on one another.
const MAX_PASSES: usize = 8;

/// Carries out `rules` on `object`, or keeps what they once changed in `old`, the stored object.
pub fn review(
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    rules: &[Rule],
    cluster: &impl Cluster,
) -> Verdict {
    let reference = ObjectReference {
        group: &request.kind.group,
        kind: &request.kind.kind,
        namespace: &request.namespace,
        name: &request.name,
    };
    let rules: Vec<&Rule> = rules.iter().filter(|rule| rule.is_for(reference)).collect();
    if rules.is_empty() {
        return Verdict::accept();
    }
    if let Some(reason) = metadata::annotation(object, SKIP_ANNOTATION).filter(|reason| !reason.is_empty()) {
        let mut verdict = Verdict::accept();
        let text = format!("restore skipped, `{SKIP_ANNOTATION}` says: {}", quote(reason));
        verdict.warnings.push(warning(&text));
        verdict.audit_annotations.insert("restore", text);
        return verdict;
    }
    let mut restoration = Restoration {
        object,
        state: FedState::of(object),
        built_ins: built_ins(request, object),
        cluster,
        result: object.clone(),
        records: Records::default(),
        written: Vec::new(),
        done: Vec::new(),
        notes: Vec::new(),
        warnings: Vec::new(),
    };
    let outcome = match old {
        None => restoration.create(&rules),
        Some(old) => restoration.update(&rules, old),
    };
    match outcome {
        Ok(()) => restoration.finish(),
        Err((rule, error)) => {
            let what = rule.map_or_else(|| "restore".to_owned(), |rule| format!("rule {}", quote(&rule.name)));
            let mut verdict = Verdict::deny(format!("{what}: {}: {}", request.describe(), chain(&error)));
            verdict.audit_annotations.insert("restore", format!("{what} failed"));
            verdict
        }
    }
}

/// The state that an object brought, and its labels in place of what the annotation does not have.
struct FedState<'a> {
    annotation: State,
    object: &'a Value,
}

impl<'a> FedState<'a> {
    fn of(object: &'a Value) -> Self {
        // A malformed annotation counts as none: the labels are as good, and a rule's pattern checks them.
        let annotation = state::read_annotation(object).ok().flatten().unwrap_or_default();
        Self { annotation, object }
    }

    fn get(&self, alias: &str) -> Option<&str> {
        self.annotation.get(alias).map(String::as_str).or_else(|| metadata::label(self.object, alias))
    }
}

fn built_ins(request: &Request<'_>, object: &Value) -> Values {
    let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or(&request.name);
    let candidates = [("namespace", request.namespace.as_ref()), ("name", name), ("kind", request.kind.kind.as_ref())];
    candidates
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// One review under way.
struct Restoration<'a, C> {
    /// The object as it came: what conditions and variables look at.
    object: &'a Value,
    state: FedState<'a>,
    built_ins: Values,
    cluster: &'a C,
    result: Value,
    records: Records,
    /// The paths of the rules that are carried out, and whether they are set or removed.
    written: Vec<(&'a Rule, &'a Path, bool)>,
    done: Vec<String>,
    notes: Vec<String>,
    warnings: Vec<String>,
}

impl<'a, C: Cluster> Restoration<'a, C> {
    fn create(&mut self, rules: &[&'a Rule]) -> Result<(), Failure<'a>> {
        let incoming = Records::read(self.object);
        let mut ready = Vec::new();
        for rule in rules {
            match self.prepare(rule).map_err(|error| (Some(*rule), error))? {
                Ok(values) => ready.push((*rule, values)),
                Err(why) => {
                    // What the rule sets may be what its own conditions look at: called twice by the API server, it no
                    // longer matches, but what it wrote still stands.
                    let standing = incoming.get(&rule.name).map(|record| self.standing(rule, record));
                    self.records.put(&rule.name, standing.unwrap_or_default());
                    self.notes.push(format!("rule {} not applied: {why}", quote(&rule.name)));
                }
            }
        }
        if ready.is_empty() && self.records.is_empty() && !self.state.annotation.is_empty() {
            let why = self.notes.last().map(String::as_str).unwrap_or_default();
            self.warnings.push(warning(&format!("state was fed but not restored: {why}")));
        }
        self.carry_out_all(&ready, &incoming, &Records::default())?;
        if incoming.is_empty() && self.records.is_empty() {
            return Ok(());
        }
        self.records.write(&mut self.result).map_err(|error| (None, error.into()))
    }

    fn update(&mut self, rules: &[&'a Rule], old: &Value) -> Result<(), Failure<'a>> {
        let stored = Records::read(old);
        let old_state = FedState::of(old);
        self.records = stored.clone();
        let (mut ready, mut kept) = (Vec::new(), Vec::new());
        for rule in rules {
            if rule.on_update == OnUpdate::Ignore {
                self.notes.push(format!("rule {} not applied: onUpdate is Ignore", quote(&rule.name)));
                continue;
            }
            if rule.on_update == OnUpdate::Apply && self.is_state_changed(rule, &old_state) {
                match self.prepare(rule).map_err(|error| (Some(*rule), error))? {
                    Ok(values) => {
                        self.records.put(&rule.name, Record::default());
                        ready.push((*rule, values));
                        continue;
                    }
                    Err(why) => self.notes.push(format!("rule {} not applied anew: {why}", quote(&rule.name))),
                }
            }
            kept.extend(stored.get(&rule.name).map(|record| (*rule, record)));
        }
        if stored.is_empty() && ready.is_empty() {
            return Ok(());
        }
        self.keep_all(&kept);
        self.carry_out_all(&ready, &Records::read(self.object), &stored)?;
        self.records.write(&mut self.result).map_err(|error| (None, error.into()))
    }

    /// Carries rules out in their order. What one writes may be what another's `[*]` stands for, so this goes on until
    /// nothing changes.
    fn carry_out_all(
        &mut self,
        ready: &[(&'a Rule, Values)],
        incoming: &Records,
        stored: &Records,
    ) -> Result<(), Failure<'a>> {
        for _ in 0..MAX_PASSES {
            let before = self.result.clone();
            for (rule, values) in ready {
                let earlier = Earlier { incoming: incoming.get(&rule.name), stored: stored.get(&rule.name) };
                self.carry_out(rule, values, earlier).map_err(|error| (Some(*rule), error))?;
            }
            if self.result == before {
                break;
            }
        }
        for (rule, _) in ready {
            if let Some(record) = self.records.get(&rule.name) {
                let paths: Vec<&str> = record.paths().collect();
                self.done.push(format!("rule {} set {}", quote(&rule.name), paths.join(", ")));
            }
        }
        Ok(())
    }

    /// Puts back what was reverted of all changes. What one rule puts back may be what another needs, so this goes on
    /// until nothing changes.
    fn keep_all(&mut self, kept: &[(&Rule, &Record)]) {
        let mut put_back = BTreeMap::new();
        for _ in 0..MAX_PASSES {
            let before = self.result.clone();
            let notes = self.notes.len();
            self.warnings.clear();
            for (rule, record) in kept {
                let standing = self.keep(rule, record, put_back.entry(rule.name.as_str()).or_default());
                self.records.put(&rule.name, standing);
            }
            if self.result == before {
                break;
            }
            self.notes.truncate(notes);
        }
        for (rule, paths) in put_back.into_iter().filter(|(_, paths)| !paths.is_empty()) {
            let paths: Vec<&str> = paths.into_iter().collect();
            self.done.push(format!("rule {} put back {}", quote(rule), paths.join(", ")));
        }
    }

    /// What of a record stands in the object as it came.
    fn standing(&self, rule: &Rule, record: &Record) -> Record {
        let mut standing = Record::default();
        for (text, change) in record.changes() {
            let mut object = self.object.clone();
            if let Ok(Standing::AsWritten) = keep_change(rule, text, change, &self.built_ins, &mut object) {
                standing.put(text, change.clone());
            }
        }
        standing
    }

    /// Whether a variable of the rule has another value than in the stored object.
    fn is_state_changed(&self, rule: &Rule, old: &FedState<'_>) -> bool {
        rule.variables.values().any(|variable| match &variable.source {
            Source::State(alias) => {
                let value = self.state.get(alias);
                value.is_some() && value != old.get(alias)
            }
            Source::ConfigMap { .. } => false,
        })
    }

    /// The values of the rule's variables, if the rule is to be carried out; else why not.
    fn prepare(&mut self, rule: &'a Rule) -> Result<Result<Values, String>, RuleError> {
        if let Some(why) = rule.mismatch(self.object) {
            return Ok(Err(why));
        }
        let values = self.resolve(rule)?;
        if values.is_ok() {
            self.check_overlap(rule)?;
        }
        Ok(values)
    }

    /// Carries the rule out on the result so far: wholly, or not at all.
    fn carry_out(&mut self, rule: &Rule, values: &Values, earlier: Earlier<'_>) -> Result<(), RuleError> {
        let mut result = self.result.clone();
        let before = self.records.get(&rule.name).cloned().unwrap_or_default();
        let mut record = before.clone();
        let mut places = Vec::new();
        for path in &rule.remove {
            // What is of another type than the path expects has no such part.
            for place in path.places(&result).unwrap_or_default() {
                let removed = place.remove(&mut result).map_err(|cause| at(&place, cause))?;
                let change = removed.map(|was| Change { was: Some(was), set: None });
                record.note(&place, change, None, self.as_it_came(&place), earlier);
                places.push(place);
            }
        }
        for edit in &rule.set {
            let value = edit.value(values)?;
            let targets = edit.path.places(&result).map_err(|cause| at(&edit.path, cause))?;
            if targets.is_empty() {
                let cause = EditError::NoMatch(edit.path.to_string());
                return Err(at(&edit.path, cause));
            }
            for place in targets {
                if let Some(stored) = earlier.stored {
                    edit.take_back(&place, &mut result, &value, stored);
                }
                edit.write(&place, &mut result, &value, &mut record, self.as_it_came(&place), earlier)?;
                places.push(place);
            }
        }
        for text in places.iter().filter(|place| !place.appends).map(Path::to_string) {
            // What an earlier request or pass noted says what stood there first already.
            let noted = record.get(&text);
            let mut known = [Some(&before), earlier.incoming, earlier.stored].into_iter().flatten();
            let is_settled = known.any(|record| noted == record.get(&text));
            self.records.take_over(&rule.name, &text, &mut record, is_settled);
        }
        self.records.put(&rule.name, record);
        self.result = result;
        Ok(())
    }

    /// What stood at a place in the object as it came; a place that does not fit it held nothing.
    fn as_it_came(&self, place: &Path) -> Option<&'a Value> {
        place.get(self.object).ok().flatten()
    }

    /// That one rule writes a part of what another writes, or removes it, can't be kept, nor done twice with the same result.
    fn check_overlap(&mut self, rule: &'a Rule) -> Result<(), RuleError> {
        for (path, is_set) in rule.paths() {
            for (owner, written, is_written) in &self.written {
                // The same path may be set twice; the same place by way of another path may not.
                let is_same = is_set == *is_written && path == *written;
                if (path.may_equal(written) && !is_same) || path.contains(written) || written.contains(path) {
                    let (path, other) = (path.to_string(), written.to_string());
                    return Err(RuleError::Overlap { path, other, rule: owner.name.clone() });
                }
            }
        }
        self.written.extend(rule.paths().map(|(path, is_set)| (rule, path, is_set)));
        Ok(())
    }

    /// The values of the rule's variables, or why the rule is left out.
    fn resolve(&self, rule: &Rule) -> Result<Result<Values, String>, RuleError> {
        let mut values = self.built_ins.clone();
        // ConfigMaps are found by what the state says, so they come last; each in the order of names, since the
        // engine's recorded sessions expect the same lookups in the same order.
        let is_lookup = |variable: &Variable| matches!(variable.source, Source::ConfigMap { .. });
        let (lookups, aliases): (Vec<_>, Vec<_>) = rule.variables.iter().partition(|(_, variable)| is_lookup(variable));
        for (name, variable) in aliases.into_iter().chain(lookups) {
            let found = match &variable.source {
                Source::State(alias) => self
                    .state
                    .get(alias)
                    .map(str::to_owned)
                    .ok_or_else(|| format!("neither the state nor a label {}", quote(alias))),
                Source::ConfigMap { namespace, name, key } => {
                    let text = |template: &variable::Template| {
                        template.render(&values).map_err(|name| RuleError::NoBuiltIn(name.to_owned()))
                    };
                    self.look_up(&text(namespace)?, &text(name)?, &text(key)?)?
                }
            };
            match found {
                Ok(value) if variable.accepts(&value) => {
                    values.insert(name.clone(), value);
                }
                Ok(value) => {
                    let invalid = RuleError::Invalid {
                        name: name.clone(),
                        expected: variable.pattern.to_string(),
                        is_rejected: variable.pattern.matches(&value),
                        value,
                    };
                    match variable.on_invalid {
                        Otherwise::Reject => return Err(invalid),
                        Otherwise::Skip => return Ok(Err(invalid.to_string())),
                    }
                }
                Err(why) => {
                    let why = match variable.on_missing {
                        Otherwise::Reject => {
                            return Err(RuleError::Missing { name: name.clone(), why });
                        }
                        Otherwise::Skip => format!("variable `{name}` has no value ({why})"),
                    };
                    return Ok(Err(why));
                }
            }
        }
        Ok(Ok(values))
    }

    /// A key of a ConfigMap, or why there is none.
    fn look_up(&self, namespace: &str, name: &str, key: &str) -> Result<Result<String, String>, RuleError> {
        let get = Get { api_version: "v1", kind: "ConfigMap", namespace: Some(namespace), name, fields: &["data"] };
        let found = self.cluster.get(&get).map_err(|cause| RuleError::Lookup { object: get.describe(), cause })?;
        let Some(config_map) = found else {
            return Ok(Err(format!("{} does not exist", get.describe())));
        };
        let value = config_map.get("data").and_then(|data| data.get(key)).and_then(Value::as_str);
        Ok(value.map(str::to_owned).ok_or_else(|| format!("{} has no key {}", get.describe(), quote(key))))
    }

    /// Puts back what was reverted of the rule's changes; what a person changed leaves the record.
    fn keep<'r>(&mut self, rule: &Rule, record: &'r Record, put_back: &mut BTreeSet<&'r str>) -> Record {
        let mut kept = Record::default();
        // In the rule's own order, in which list entries were created.
        let mut changes: Vec<(&str, &Change)> = record.changes().collect();
        changes.sort_by_key(|(text, change)| rule.position(text, change.set.is_some()));
        for (text, change) in changes {
            let mut result = self.result.clone();
            match keep_change(rule, text, change, &self.built_ins, &mut result) {
                Ok(Standing::AsWritten) => kept.put(text, change.clone()),
                Ok(Standing::PutBack) => {
                    self.result = result;
                    put_back.insert(text);
                    kept.put(text, change.clone());
                }
                Ok(Standing::Changed) => {
                    self.notes.push(format!("rule {}: {text} was changed and is left", quote(&rule.name)))
                }
                Err(error) => {
                    let text = format!("rule {}: {text} not kept: {}", quote(&rule.name), chain(&error));
                    self.warnings.push(warning(&text));
                }
            }
        }
        kept
    }

    fn finish(self) -> Verdict {
        let mut verdict = Verdict::mutate(self.object, self.result);
        if !self.done.is_empty() && verdict.outcome != Outcome::Accept {
            verdict.audit_annotations.insert("restore", self.done.join("; "));
        }
        verdict.warnings = self.warnings;
        verdict.notes = self.notes;
        verdict
    }
}

/// What became of a rule's change in a later request.
enum Standing {
    /// It is there.
    AsWritten,
    /// It had been reverted and is there again.
    PutBack,
    /// Something else is there, which is a person's wish; or the rule no longer makes such a change.
    Changed,
}

impl Standing {
    fn put_back(is_reverted: bool) -> Self {
        if is_reverted { Self::PutBack } else { Self::AsWritten }
    }
}

/// Looks what became of `change` in `object`, and makes it again where it was reverted.
fn keep_change(
    rule: &Rule,
    text: &str,
    change: &Change,
    built_ins: &Values,
    object: &mut Value,
) -> Result<Standing, RuleError> {
    let Some(set) = &change.set else {
        let place = rule.remove.iter().find_map(|path| path.place_from(text));
        return place.map_or(Ok(Standing::Changed), |place| keep_removed(&place, change, object));
    };
    let could_write = |edit: &Edit, value: &Value| edit.could_write(value, &rule.variables, built_ins);
    let mut standing = Standing::Changed;
    for edit in &rule.set {
        let Some(place) = edit.path.place_from(text) else {
            continue;
        };
        match &edit.mode {
            // One record holds what several edits appended to the same list.
            Mode::Append => {
                for item in change.appended().iter().filter(|item| could_write(edit, item)) {
                    let is_reverted = append_to_list(&place, object, item)? || matches!(standing, Standing::PutBack);
                    standing = Standing::put_back(is_reverted);
                }
            }
            _ if !could_write(edit, set) => {}
            Mode::AppendText(separator) => {
                return append_to_text(&place, object, set, separator).map(Standing::put_back);
            }
            Mode::Replace | Mode::IfAbsent => return keep_written(&place, set, change, object),
        }
    }
    Ok(standing)
}

fn keep_removed(place: &Path, change: &Change, object: &mut Value) -> Result<Standing, RuleError> {
    match place.get(object).map_err(|cause| at(place, cause))? {
        None => Ok(Standing::AsWritten),
        Some(current) if Some(current) == change.was.as_ref() => {
            place.remove(object).map_err(|cause| at(place, cause))?;
            Ok(Standing::PutBack)
        }
        Some(_) => Ok(Standing::Changed),
    }
}

fn keep_written(place: &Path, set: &Value, change: &Change, object: &mut Value) -> Result<Standing, RuleError> {
    match place.get(object).map_err(|cause| at(place, cause))? {
        Some(current) if current == set => Ok(Standing::AsWritten),
        Some(current) if Some(current) != change.was.as_ref() => {
            Ok(if covers(current, set) { Standing::AsWritten } else { Standing::Changed })
        }
        _ => {
            place.set(object, set.clone()).map_err(|cause| at(place, cause))?;
            Ok(Standing::PutBack)
        }
    }
}

fn at(path: &Path, cause: EditError) -> RuleError {
    RuleError::Edit { path: path.to_string(), cause }
}
