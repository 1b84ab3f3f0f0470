//! The stage `preserve`: when an application leaves a cluster, its state is read from the status that it had there, and
//! written into the binding's history and onto the eviction task, if there is one.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::collected;
use crate::history::{HISTORY_ANNOTATION, History, Phase, Record};
use crate::jsonpath::Budget;
use crate::karmada::{self, Binding, FailoverType, Task};
use crate::labels::is_label_value;
use crate::messages::{listed, quote, warning};
use crate::metadata;
use crate::settings::{Moves, OnMissingState, PreserveSettings};
use crate::state::{self, Reading, State, StateRule};
use crate::verdict::{Outcome, Verdict};

/// Maximum number of eviction tasks of a binding. Karmada itself adds at most one for each cluster.
const MAX_TASKS: usize = 1000;

/// The clusters that the application leaves with this request; [`review`] reads the statuses from them. `None` where it
/// has nothing to do.
pub fn clusters_left(binding: &Value, old: Option<&Value>, settings: &PreserveSettings) -> Option<Vec<String>> {
    let view = Binding::new(binding);
    let moved_from = moved_from(view, old, settings);
    if is_at_rest(view, old, moved_from) {
        return None;
    }
    let (tasks, old_tasks) = (view.tasks(), old.map(|old| Binding::new(old).tasks()).unwrap_or_default());
    let known: BTreeSet<&str> = collected(old_tasks.iter().map(|task| task.from_cluster()));
    let evicted_from = tasks.iter().map(|task| task.from_cluster()).filter(|from| !known.contains(from));
    Some(evicted_from.chain(moved_from).take(MAX_TASKS).map(str::to_owned).collect())
}

/// Whether the application neither leaves a cluster nor has a history of moves.
fn is_at_rest(binding: Binding<'_>, old: Option<&Value>, moved_from: Option<&str>) -> bool {
    let has_history = |object| metadata::annotation(object, HISTORY_ANNOTATION).is_some();
    let objects = old.into_iter().chain([binding.object()]);
    moved_from.is_none() && binding.tasks().is_empty() && !objects.into_iter().any(has_history)
}

/// Preserves the state for every eviction task that the request adds and for a move without a task, keeps the state of
/// the other tasks, and updates the history. `old` is the stored binding, `None` on a CREATE.
///
/// Only stored data is trusted: statuses are read from `old` (from `binding` on a CREATE), and a request can't edit the
/// history.
pub fn review(binding: &Value, old: Option<&Value>, settings: &PreserveSettings) -> Verdict {
    let stored = old.unwrap_or(binding);
    let history = History::read(stored);
    let view = Binding::new(binding);
    let moved_from = moved_from(view, old, settings);
    if is_at_rest(view, old, moved_from) {
        return Verdict::accept();
    }
    let tasks = view.tasks();
    if tasks.len() > MAX_TASKS {
        return Verdict::deny(format!(
            "cannot preserve the state of {}: spec.gracefulEvictionTasks has {} items, more than {MAX_TASKS}; remove tasks",
            view.resource(),
            tasks.len()
        ));
    }

    let unreadable = history.as_ref().err().map(|error| warning(&format!("{}: {error}", view.resource())));
    let mut preservation = Preservation {
        binding: view,
        old: old.map(Binding::new),
        settings,
        is_readable: history.is_ok(),
        history: history.unwrap_or_default(),
        budget: Budget::default(),
        edits: Vec::new(),
        problems: Vec::new(),
        warnings: unreadable.into_iter().collect(),
        done: Vec::new(),
    };
    preservation.run(&tasks, moved_from);
    preservation.finish()
}

/// The cluster that the application leaves without an eviction task: it ran in this cluster only, and is now scheduled
/// to one other cluster, or to none.
fn moved_from<'a>(new: Binding<'_>, old: Option<&'a Value>, settings: &PreserveSettings) -> Option<&'a str> {
    let old = old.filter(|_| settings.moves == Moves::Preserve).map(Binding::new)?;
    let [from] = old.clusters()[..] else { return None };
    let is_elsewhere = match new.clusters()[..] {
        [] => true,
        [to] => to != from,
        _ => false,
    };
    (is_elsewhere && new.task(from).is_none() && old.task(from).is_none()).then_some(from)
}

/// The state of one review.
struct Preservation<'a> {
    binding: Binding<'a>,
    old: Option<Binding<'a>>,
    settings: &'a PreserveSettings,
    history: History,
    /// Whether the stored history can be read. Otherwise it is left as it is.
    is_readable: bool,
    /// What the evaluation of the rules may still cost.
    budget: Budget,
    /// The changes of each task.
    edits: Vec<TaskEdit>,
    /// Why the request must be denied.
    problems: Vec<String>,
    warnings: Vec<String>,
    /// What was done, for the audit annotation.
    done: Vec<String>,
}

/// What is written onto one task.
struct TaskEdit {
    from: String,
    label_state: Option<Map<String, Value>>,
    clusters_before: Option<Vec<String>>,
}

/// How the application leaves a cluster.
#[derive(Clone, Copy, PartialEq)]
enum Leaving {
    /// By an eviction task. It can be denied, since Karmada retries.
    Evicted,
    /// By a move without a task. It is never denied.
    Moved,
}

impl<'a> Preservation<'a> {
    fn run(&mut self, tasks: &[Task<'a>], moved_from: Option<&'a str>) {
        // Statuses change without a request that the policy sees, so the stored binding comes first, then the requested
        // one.
        let stored = self.old.unwrap_or(self.binding);
        self.history.update(stored, stored);
        self.history.update(self.binding, stored);
        // The records from before this request: of applications evicted together, none inherits the state of another.
        let earlier = self.history.clone();
        for &task in tasks {
            match self.old.and_then(|old| old.task(task.from_cluster())) {
                Some(old_task) => self.keep(task, old_task),
                None if self.history.ongoing(task.from_cluster()).is_some() => self.keep(task, task),
                None => self.preserve(task, &earlier),
            }
        }
        if let Some(from) = moved_from {
            self.preserve_move(from, &earlier);
        }
    }

    /// Keeps a task that exists already: what a stale writer removed from it is put back.
    fn keep(&mut self, task: Task<'a>, old_task: Task<'a>) {
        let record = self.history.ongoing(task.from_cluster());
        let label_state = match (task.preserved_label_state(), old_task.preserved_label_state()) {
            (Some(_), _) => None,
            (None, Some(state)) => Some(state.clone()),
            (None, None) => record.map(|record| valid_labels(&record.state)).filter(|state| !state.is_empty()),
        };
        let clusters_before = match (task.clusters_before_failover(), old_task.clusters_before_failover()) {
            (Some(_), _) => None,
            (None, Some(clusters)) => Some(clusters.into_iter().map(str::to_owned).collect()),
            (None, None) => record.map(|record| record.before.clone()).filter(|before| !before.is_empty()),
        };
        if label_state.is_some() || clusters_before.is_some() {
            self.done.push(format!("put back the state of the task from {}", task.from_cluster()));
            self.edits.push(TaskEdit { from: task.from_cluster().to_owned(), label_state, clusters_before });
        }
    }

    /// Preserves the state for a task that this request adds.
    fn preserve(&mut self, task: Task<'a>, earlier: &History) {
        let rules = self.rules_of(task);
        if rules.is_empty() {
            return;
        }
        let mut record = Record::of_task(task);
        record.before = match (task.clusters_before_failover(), self.old) {
            (Some(before), _) => before.into_iter().map(str::to_owned).collect(),
            (None, Some(old)) => old.clusters().into_iter().map(str::to_owned).collect(),
            (None, None) => Vec::new(),
        };
        record.set_to(&self.binding.clusters());
        let on_task = task.preserved_label_state();
        if !self.fill(&mut record, &rules, earlier, on_task, Leaving::Evicted) {
            return;
        }
        let mut label_state = on_task.cloned().unwrap_or_default();
        label_state.retain(|alias, value| {
            !rules.iter().any(|rule| rule.alias == *alias) && value.as_str().is_some_and(is_label_value)
        });
        label_state.extend(valid_labels(&record.state));
        self.edits.push(TaskEdit {
            from: record.from.clone(),
            label_state: Some(label_state),
            clusters_before: (!record.before.is_empty()).then(|| record.before.clone()),
        });
        self.done.push(describe(&record));
        self.history.append(record);
    }

    /// Preserves the state of a move without a task.
    fn preserve_move(&mut self, from: &str, earlier: &History) {
        let rules = self.rules(&[FailoverType::Cluster, FailoverType::Application]);
        if rules.is_empty() {
            return;
        }
        let mut record = Record::of_move(from);
        record.set_to(&self.binding.clusters());
        if !self.fill(&mut record, &rules, earlier, None, Leaving::Moved) {
            return;
        }
        let resource = self.binding.resource();
        for (alias, why) in &record.missing {
            let text = format!("{resource} leaves {from} and loses its state {}: {why}", quote(alias));
            self.warnings.push(warning(&text));
        }
        if !record.state.is_empty() {
            let text = format!("{resource} leaves {from} without a failover; its state is preserved and will be fed");
            self.warnings.push(warning(&text));
        }
        self.done.push(describe(&record));
        self.history.append(record);
    }

    /// Fills in the state that the application leaves with. Returns `false` where it has no state, and no record is
    /// written.
    fn fill(
        &mut self,
        record: &mut Record,
        rules: &[StateRule],
        earlier: &History,
        on_task: Option<&Map<String, Value>>,
        leaving: Leaving,
    ) -> bool {
        let stored = self.old.unwrap_or(self.binding);
        // A copy that is healthy in the stored status has made progress, so its own state counts.
        let is_healthy = self.old.is_some_and(|old| old.is_healthy(&record.from));
        if let Some(carried) = self.inherited_state(&record.from, earlier).filter(|_| !is_healthy) {
            carried.carry_into(record);
            return true;
        }
        let status = stored.status(&record.from);
        // A binding that is restored from a backup is created with its tasks but without a status, so the state in the
        // tasks is all there is.
        let on_task = on_task.filter(|state| self.old.is_none() && !state.is_empty());
        let resource = stored.resource();
        let has_state = (status.is_some() && !karmada::is_stateless(resource)) || on_task.is_some();
        // A created binding has no moves but those in its own history.
        let last_resort = || self.old.and_then(|_| Carried::last_resort(earlier));
        if !has_state {
            let Some(carried) = last_resort() else {
                if !karmada::is_stateless(resource) {
                    let text =
                        format!("{resource} leaves {} without state: no status of it was collected there", record.from);
                    self.warnings.push(warning(&text));
                }
                return false;
            };
            carried.carry_into(record);
            return true;
        }
        let mut reading = Reading::of(rules, status, &mut self.budget);
        for (alias, value) in on_task.into_iter().flatten() {
            if let Some(value) = value.as_str().filter(|value| !value.is_empty())
                && reading.missing.remove(alias).is_some()
            {
                reading.state.insert(alias.clone(), value.to_owned());
            }
        }
        match last_resort().filter(|_| reading.state.is_empty()) {
            Some(carried) => carried.carry_into(record),
            None => self.take(reading, record, rules, leaving),
        }
        true
    }

    fn take(&mut self, reading: Reading, record: &mut Record, rules: &[StateRule], leaving: Leaving) {
        if leaving == Leaving::Evicted && self.settings.on_missing_state == OnMissingState::Block {
            let from = quote(&record.from);
            for (alias, why) in &reading.missing {
                let json_path = rules.iter().rev().find(|rule| rule.alias == *alias).map_or("", |rule| &rule.json_path);
                self.problems.push(format!("from {from}: {} (jsonPath {}): {why}", quote(alias), quote(json_path)));
            }
        }
        record.state = reading.state;
        record.missing = reading.missing;
    }

    /// The rules for the task: those of the behaviour that it follows, else (where its reason is unknown) those of the
    /// other behaviour, else those of the settings.
    fn rules_of(&self, task: Task<'a>) -> Cow<'a, [StateRule]> {
        let followed = task.failover_type();
        if task.has_known_reason() { self.rules(&[followed]) } else { self.rules(&[followed, followed.other()]) }
    }

    /// The rules of the first of these behaviours that has any, else those of the settings.
    fn rules(&self, behaviors: &[FailoverType]) -> Cow<'a, [StateRule]> {
        let rules = self.binding.failover().and_then(|failover| {
            behaviors.iter().map(|behavior| failover.rules(*behavior)).find(|rules| !rules.is_empty())
        });
        match rules {
            Some(rules) => rules.into_iter().map(StateRule::new).collect(),
            None => Cow::Borrowed(self.settings.rules_for(self.binding.resource())),
        }
    }

    /// The state of the newest ongoing move that has any. It takes precedence over the copy's own status, since that
    /// copy was never healthy.
    fn inherited_state(&self, from: &str, earlier: &History) -> Option<Carried> {
        let standing_task = |from: &str| {
            let task = self.binding.task(from).filter(|task| !task.is_kept_forever())?;
            self.old?.task(task.from_cluster())
        };
        for record in earlier.records().iter().rev() {
            match &record.phase {
                Phase::Superseded | Phase::Other(_) => {}
                phase if !phase.is_ongoing() => return None,
                Phase::Evicted if standing_task(&record.from).is_none() => {}
                // A copy that ran before the move has its own state.
                _ if record.from != from && record.before.iter().any(|before| before == from) => {}
                _ if record.state.is_empty() => {}
                _ => return Some(Carried::of(record)),
            }
        }
        // The state of a task that Karmada wrote before this policy was installed.
        let tasks = self.old?.tasks();
        let mut standing = tasks.into_iter().rev().filter_map(|task| standing_task(task.from_cluster()));
        standing.find_map(|task| {
            let state = task.preserved_label_state().filter(|state| !state.is_empty())?;
            Some(Carried {
                state: state::of_labels(state),
                missing: BTreeMap::new(),
                origin: task.from_cluster().to_owned(),
            })
        })
    }

    fn finish(mut self) -> Verdict {
        let resource = self.binding.resource();
        let mut verdict = if self.problems.is_empty() {
            let mut binding = self.binding.object().clone();
            match self.write(&mut binding) {
                Ok(()) => Verdict::mutate(self.binding.object(), binding),
                Err(error) => Verdict::deny(format!(
                    "cannot write the history of {resource}: {error}; fix the binding's metadata"
                )),
            }
        } else {
            Verdict::deny(format!(
                "cannot evict {resource} without losing its state: {}; fix the jsonPath in `statePreservation` of its policy or \
                 wait until the status has the value, or set `preserve.onMissingState: Proceed` to evict without it",
                listed(&self.problems),
            ))
        };
        verdict.warnings = self.warnings;
        if matches!(verdict.outcome, Outcome::Mutate(_)) {
            let done =
                if self.done.is_empty() { "brought the history up to date".to_owned() } else { listed(&self.done) };
            verdict.audit_annotations.insert("preserve", done);
        }
        verdict
    }

    fn write(&mut self, binding: &mut Value) -> Result<(), metadata::MetadataError> {
        for edit in &self.edits {
            let Some(task) = karmada::task_mut(binding, &edit.from) else {
                continue;
            };
            if let Some(state) = &edit.label_state {
                karmada::set_preserved_label_state(task, state.clone());
            }
            if let Some(clusters) = &edit.clusters_before {
                karmada::set_clusters_before_failover(task, clusters.iter().map(String::as_str));
            }
        }
        let stored = self.old.unwrap_or(self.binding).object();
        let room = metadata::annotations_left(binding, HISTORY_ANNOTATION);
        self.history.limit(self.settings.history_limit, room);
        let written = match self.history.to_annotation() {
            _ if !self.is_readable => metadata::annotation(stored, HISTORY_ANNOTATION).map(str::to_owned),
            Some(history) if history.len() > room => {
                let resource = self.binding.resource();
                let text =
                    format!("{resource}: no room for its history, other annotations leave {room} bytes; remove some");
                self.warnings.push(warning(&text));
                metadata::annotation(stored, HISTORY_ANNOTATION).map(str::to_owned)
            }
            history => history,
        };
        match written {
            Some(history) => metadata::set_annotation(binding, HISTORY_ANNOTATION, history),
            None => {
                metadata::remove_annotation(binding, HISTORY_ANNOTATION);
                Ok(())
            }
        }
    }
}

/// The state of an earlier move that a new record takes over.
struct Carried {
    state: State,
    missing: BTreeMap<String, String>,
    origin: String,
}

impl Carried {
    fn of(record: &Record) -> Self {
        Self { state: record.state.clone(), missing: record.missing.clone(), origin: record.origin().to_owned() }
    }

    /// The state that was fed in vain, for a copy whose status has none of the values.
    fn last_resort(earlier: &History) -> Option<Self> {
        earlier.fed_in_vain().map(Self::of)
    }

    fn carry_into(self, record: &mut Record) {
        record.state = self.state;
        record.missing = self.missing;
        record.carried_from = Some(self.origin);
    }
}

fn valid_labels(state: &State) -> Map<String, Value> {
    let valid = state.iter().filter(|(_, value)| is_label_value(value));
    collected(valid.map(|(alias, value)| (alias.clone(), Value::from(value.as_str()))))
}

fn describe(record: &Record) -> String {
    let aliases = record.state.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
    let from = &record.from;
    let mut text = match (&record.carried_from, record.is_failover()) {
        _ if aliases.is_empty() => format!("no state left with the application from {from}"),
        (Some(origin), true) => format!("carried {aliases} over from {origin} for the task from {from}"),
        (Some(origin), false) => format!("carried {aliases} over from {origin} for the move from {from}"),
        (None, _) => format!("preserved {aliases} from {from}"),
    };
    if !record.missing.is_empty() {
        let missing: Vec<&str> = record.missing.keys().map(String::as_str).collect();
        text.push_str(&format!(", missing {}", missing.join(", ")));
    }
    text
}
