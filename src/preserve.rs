//! The stage `preserve`: when an eviction task appears on a binding, the state of the application is read out of the
//! failed cluster's status and written onto the task and into the binding's failover history.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::history::{HISTORY_ANNOTATION, History, Record};
use crate::karmada::{self, Binding, Task};
use crate::labels::is_label_value;
use crate::metadata;
use crate::settings::{OnMissingState, PreserveSettings};
use crate::state::{Reading, State, StateRule};
use crate::verdict::{Outcome, Verdict, chain, quote, warning};

/// Most eviction tasks and records that are looked at; Karmada itself has one a cluster.
const MAX_TASKS: usize = 1000;

/// Preserves the state of every task in `binding` that `old` does not have, keeps that of the others, and brings the
/// history up to date. `old` is the stored binding, `None` on a CREATE.
///
/// Only what is stored is believed: statuses are read from `old` (on a CREATE there is nothing else than `binding`),
/// and a request can't edit the history.
pub fn review(binding: &Value, old: Option<&Value>, settings: &PreserveSettings) -> Verdict {
    let mut warnings = Vec::new();
    let history = match History::read(old.unwrap_or(binding)) {
        Ok(history) => history,
        Err(error) => {
            warnings.push(warning(&format!("{}; started anew", chain(&error))));
            History::default()
        }
    };
    let tasks = Binding::new(binding).tasks();
    if tasks.len() > MAX_TASKS {
        return Verdict::deny(format!(
            "cannot preserve state: spec.gracefulEvictionTasks has {} items, more than {MAX_TASKS}; remove tasks",
            tasks.len()
        ));
    }
    if tasks.is_empty() && history.records().is_empty() && metadata::annotation(binding, HISTORY_ANNOTATION).is_none() {
        return Verdict { warnings, ..Verdict::accept() };
    }

    let mut preservation = Preservation {
        binding: Binding::new(binding),
        old: old.map(Binding::new),
        settings,
        history,
        evictions: Vec::new(),
        problems: Vec::new(),
        done: Vec::new(),
    };
    preservation.run(&tasks);
    preservation.finish(warnings)
}

/// One review under way.
struct Preservation<'a> {
    binding: Binding<'a>,
    old: Option<Binding<'a>>,
    settings: &'a PreserveSettings,
    history: History,
    /// What is to be written onto each task.
    evictions: Vec<Eviction>,
    /// Why the request must be denied.
    problems: Vec<String>,
    /// What was done, for the audit annotation.
    done: Vec<String>,
}

/// What is written onto one task.
struct Eviction {
    from: String,
    label_state: Option<Map<String, Value>>,
    clusters_before: Option<Vec<String>>,
}

impl<'a> Preservation<'a> {
    fn run(&mut self, tasks: &[Task<'a>]) {
        if let Some(old) = self.old {
            // Statuses change without a request that the policy sees: first what was stored, then what is to be.
            self.history.update(old, old);
            self.history.update(self.binding, old);
        }
        // The records that were there before this request: what is evicted together does not carry over to one another.
        let earlier = self.history.clone();
        for &task in tasks {
            match self.old.and_then(|old| old.task(task.from_cluster())) {
                Some(old_task) => self.keep(task, old_task),
                None if self.history.ongoing(task.from_cluster()).is_some() => self.keep(task, task),
                None => self.preserve(task, &earlier),
            }
        }
        self.history.limit(self.settings.history_limit);
    }

    /// A task that was there before: what a stale writer dropped from it is put back.
    fn keep(&mut self, task: Task<'a>, old_task: Task<'a>) {
        let record = self.history.ongoing(task.from_cluster());
        let label_state = match (task.preserved_label_state(), old_task.preserved_label_state()) {
            (Some(_), _) => None,
            (None, Some(state)) => Some(state.clone()),
            (None, None) => record.map(|record| legal_values(&record.state)).filter(|state| !state.is_empty()),
        };
        let clusters_before = match (task.clusters_before_failover(), old_task.clusters_before_failover()) {
            (Some(_), _) => None,
            (None, Some(clusters)) => Some(clusters.into_iter().map(str::to_owned).collect()),
            (None, None) => record.map(|record| record.before.clone()).filter(|before| !before.is_empty()),
        };
        if label_state.is_some() || clusters_before.is_some() {
            self.done.push(format!("put back the state of the task from {}", task.from_cluster()));
            self.evictions.push(Eviction { from: task.from_cluster().to_owned(), label_state, clusters_before });
        }
    }

    /// A task that was just added.
    fn preserve(&mut self, task: Task<'a>, earlier: &History) {
        let from = task.from_cluster();
        let rules = self.rules(task);
        if rules.is_empty() {
            return;
        }
        let mut record = Record::new(task, task.failover_type());
        record.before = match (task.clusters_before_failover(), self.old) {
            (Some(before), _) => before.into_iter().map(str::to_owned).collect(),
            (None, Some(old)) => old.clusters().into_iter().map(str::to_owned).collect(),
            (None, None) => Vec::new(),
        };
        record.set_to(&self.binding.clusters());

        // A copy that is healthy in the stored status has made progress of its own, whatever its predecessor was owed.
        let is_healthy = self.old.is_some_and(|old| old.is_healthy(from));
        if let Some(carried) = self.standing_state(earlier).filter(|_| !is_healthy) {
            carried.carry_into(&mut record);
        } else {
            let reading = self.read(task, &rules);
            match Carried::last_resort(earlier).filter(|_| reading.state.is_empty()) {
                Some(carried) => carried.carry_into(&mut record),
                None => self.take(reading, &mut record, &rules),
            }
        }

        let mut label_state = task.preserved_label_state().cloned().unwrap_or_default();
        label_state.retain(|alias, value| {
            !rules.iter().any(|rule| rule.alias == *alias) && value.as_str().is_some_and(is_label_value)
        });
        label_state.extend(legal_values(&record.state));
        self.evictions.push(Eviction {
            from: from.to_owned(),
            label_state: Some(label_state),
            clusters_before: (!record.before.is_empty()).then(|| record.before.clone()),
        });
        self.done.push(describe(&record));
        self.history.append(record);
    }

    /// The rules that apply to the task: those of the behaviour it follows, else (where it is not known which one it
    /// follows) those of the other, else those of the policy's settings.
    fn rules(&self, task: Task<'_>) -> Cow<'a, [StateRule]> {
        let failover_type = task.failover_type();
        let mut rules = Vec::new();
        if let Some(failover) = self.binding.failover() {
            rules = failover.rules(failover_type);
            if rules.is_empty() && !task.has_known_reason() {
                rules = failover.rules(failover_type.other());
            }
        }
        if rules.is_empty() {
            return Cow::Borrowed(self.settings.rules_for(self.binding.resource()));
        }
        rules.into_iter().map(StateRule::new).collect()
    }

    fn read(&self, task: Task<'_>, rules: &[StateRule]) -> Reading {
        let stored = self.old.unwrap_or(self.binding);
        let mut reading = Reading::of(rules, stored.status(task.from_cluster()));
        if self.old.is_none() {
            // A binding that is created with its tasks, by a restore from a backup, comes without a status:
            // what its tasks hold is all there is.
            for rule in rules {
                let kept = task.preserved_label_state().and_then(|state| state.get(&rule.alias)?.as_str());
                if let Some(kept) = kept.filter(|kept| !kept.is_empty() && reading.missing.contains_key(&rule.alias)) {
                    reading.missing.remove(&rule.alias);
                    reading.state.insert(rule.alias.clone(), kept.to_owned());
                }
            }
        }
        reading
    }

    /// State that goes before what the evicted copy's status says, because that copy was never healthy: that of an
    /// earlier task, or of a failover that is pending.
    fn standing_state(&self, earlier: &History) -> Option<Carried> {
        if let Some(record) = earlier.owed() {
            return Some(Carried::of(record));
        }
        let old = self.old?;
        let stands = |task: &Task<'_>| !task.is_kept_for_ever() && self.binding.task(task.from_cluster()).is_some();
        for task in old.tasks().into_iter().rev().filter(stands) {
            if let Some(record) = earlier.ongoing(task.from_cluster()).filter(|record| !record.state.is_empty()) {
                return Some(Carried::of(record));
            }
            if let Some(state) = task.preserved_label_state().filter(|state| !state.is_empty()) {
                return Some(Carried {
                    state: state
                        .iter()
                        .filter_map(|(alias, value)| Some((alias.clone(), value.as_str()?.to_owned())))
                        .collect(),
                    missing: BTreeMap::new(),
                    origin: task.from_cluster().to_owned(),
                });
            }
        }
        None
    }

    fn take(&mut self, reading: Reading, record: &mut Record, rules: &[StateRule]) {
        if !reading.missing.is_empty() && self.settings.on_missing_state == OnMissingState::Block {
            let from = quote(&record.from);
            for (alias, why) in &reading.missing {
                let json_path = rules.iter().rev().find(|rule| rule.alias == *alias).map_or("", |rule| &rule.json_path);
                self.problems.push(format!("from {from}: {} (jsonPath {}): {why}", quote(alias), quote(json_path)));
            }
        }
        record.state = reading.state;
        record.missing = reading.missing;
    }

    fn finish(self, warnings: Vec<String>) -> Verdict {
        let mut verdict = if self.problems.is_empty() {
            let mut binding = self.binding.object().clone();
            match self.write(&mut binding) {
                Ok(()) => Verdict::mutate(self.binding.object(), binding),
                Err(error) => {
                    Verdict::deny(format!("cannot write the failover history: {error}; mend the binding's metadata"))
                }
            }
        } else {
            Verdict::deny(format!(
                "cannot evict {}, its state would be lost: {}; mend the jsonPath in `statePreservation` of its policy or wait \
                 until the status has the value, or set `preserve.onMissingState: Proceed` to evict without it",
                self.binding.resource(),
                self.problems.join("; "),
            ))
        };
        verdict.warnings = warnings;
        if matches!(verdict.outcome, Outcome::Mutate(_)) {
            let done = if self.done.is_empty() {
                "brought the failover history up to date".to_owned()
            } else {
                self.done.join("; ")
            };
            verdict.audit_annotations.insert("preserve", done);
        }
        verdict
    }

    fn write(&self, binding: &mut Value) -> Result<(), metadata::MetadataError> {
        for eviction in &self.evictions {
            let Some(task) = karmada::task_mut(binding, &eviction.from) else {
                continue;
            };
            if let Some(state) = &eviction.label_state {
                karmada::set_preserved_label_state(task, state.clone());
            }
            if let Some(clusters) = &eviction.clusters_before {
                karmada::set_clusters_before_failover(task, clusters.iter().map(String::as_str));
            }
        }
        match self.history.to_annotation() {
            Some(history) => metadata::set_annotation(binding, HISTORY_ANNOTATION, history),
            None => {
                metadata::remove_annotation(binding, HISTORY_ANNOTATION);
                Ok(())
            }
        }
    }
}

/// The state of an earlier failover, for a record of which it becomes the state.
struct Carried {
    state: State,
    missing: BTreeMap<String, String>,
    origin: String,
}

impl Carried {
    fn of(record: &Record) -> Self {
        Self { state: record.state.clone(), missing: record.missing.clone(), origin: record.origin().to_owned() }
    }

    /// Where the status says nothing at all: state that was fed once and never made the application healthy.
    fn last_resort(earlier: &History) -> Option<Self> {
        earlier.fed_in_vain().map(Self::of)
    }

    fn carry_into(self, record: &mut Record) {
        record.state = self.state;
        record.missing = self.missing;
        record.carried_from = Some(self.origin);
    }
}

fn legal_values(state: &State) -> Map<String, Value> {
    state
        .iter()
        .filter(|(_, value)| is_label_value(value))
        .map(|(alias, value)| (alias.clone(), Value::from(value.as_str())))
        .collect()
}

fn describe(record: &Record) -> String {
    let aliases: Vec<&str> = record.state.keys().map(String::as_str).collect();
    let mut text = if aliases.is_empty() {
        format!("evicted from {} without state", record.from)
    } else {
        format!("preserved {} from {}", aliases.join(", "), record.origin())
    };
    if let Some(origin) = &record.carried_from {
        text = format!("carried {} over from {origin} for the task from {}", aliases.join(", "), record.from);
    }
    if !record.missing.is_empty() {
        let missing: Vec<&str> = record.missing.keys().map(String::as_str).collect();
        text.push_str(&format!(", missing {}", missing.join(", ")));
    }
    text
}
