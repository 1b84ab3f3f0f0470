//! The failover history of a binding: what was preserved, where it has to go, and whether it arrived.
//!
//! Karmada forgets a failover with its eviction task. The history is what is left of it, in an annotation of the
//! binding, which survives Karmada's own writes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::karmada::{Binding, FailoverType, Task};
use crate::metadata;
use crate::state::State;

/// On bindings: JSON array of [`Record`]s, oldest first.
pub const HISTORY_ANNOTATION: &str = "stateful-failover/history";
/// Most bytes of the annotation: half of what an API server takes as annotations. Beyond it, the oldest closed records
/// go before the limit of their number is reached.
pub const MAX_HISTORY: usize = 128 * 1024;

/// How far a failover has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The eviction task is there.
    Evicted,
    /// The task is gone, and nothing was ever started in the new clusters: the state is still owed.
    Pending,
    /// The task is gone, and the application is healthy everywhere.
    Recovered,
    /// The task is gone, and the application was started but is not healthy.
    Expired,
    /// A later failover took over, before the application was healthy.
    Superseded,
}

impl Phase {
    /// Whether the failover is still going on.
    pub fn is_ongoing(self) -> bool {
        matches!(self, Self::Evicted | Self::Pending)
    }
}

/// One failover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// What failed.
    #[serde(rename = "type")]
    pub failover_type: FailoverType,
    /// The task's reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The task's producer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub producer: String,
    /// The task's purge mode, as it was written.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub purge_mode: String,
    /// The cluster that the application was evicted from.
    pub from: String,
    /// The clusters that it ran in before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The clusters that it was scheduled to: those that are not in `before`, and `from` if it was chosen again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The preserved state, legal as label values or not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub state: State,
    /// The aliases that had no value, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// The cluster whose status the state was read from, where that is not `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<String>,
    /// When the task was first seen by Karmada; RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// How far it has come.
    pub phase: Phase,
}

impl Record {
    /// The cluster whose status the state was read from.
    pub fn origin(&self) -> &str {
        self.carried_from.as_deref().unwrap_or(&self.from)
    }

    /// Whether the state was sent to a cluster but never made the application healthy there.
    fn was_fed_in_vain(&self) -> bool {
        self.phase != Phase::Recovered && !self.to.is_empty() && !self.state.is_empty()
    }
}

/// A history annotation that can't be read.
#[derive(Debug, Error)]
#[error("annotation `{HISTORY_ANNOTATION}` is not a failover history")]
pub struct HistoryError(#[source] serde_json::Error);

/// All failovers of one binding that are remembered, oldest first.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    /// The history in the binding's annotation; empty where there is none.
    ///
    /// # Errors
    /// [`HistoryError`], where the annotation does not hold one.
    pub fn read(binding: &Value) -> Result<Self, HistoryError> {
        match metadata::annotation(binding, HISTORY_ANNOTATION) {
            None => Ok(Self::default()),
            Some(text) => serde_json::from_str(text).map(|records| Self { records }).map_err(HistoryError),
        }
    }

    /// The records, oldest first.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The newest record.
    pub fn newest(&self) -> Option<&Record> {
        self.records.last()
    }

    /// The record of the ongoing failover from that cluster.
    pub fn ongoing(&self, from: &str) -> Option<&Record> {
        self.records.iter().rev().find(|record| record.from == from && record.phase.is_ongoing())
    }

    /// The state that is still owed to the application if its next copy fails too, whatever that copy's status says:
    /// that of a failover of which nothing ever started.
    pub fn owed(&self) -> Option<&Record> {
        self.newest().filter(|record| record.phase == Phase::Pending && !record.state.is_empty())
    }

    /// The newest state that was fed without success, where no later failover succeeded.
    pub fn fed_in_vain(&self) -> Option<&Record> {
        self.records
            .iter()
            .rev()
            .take_while(|record| record.phase != Phase::Recovered)
            .find(|record| record.was_fed_in_vain())
    }

    /// Brings `to`, `time` and `phase` up to date with `binding`, where `stored` is what Karmada last reported.
    pub fn update(&mut self, binding: Binding<'_>, stored: Binding<'_>) {
        let clusters = binding.clusters();
        let tasks = binding.tasks();
        let is_recovered = !clusters.is_empty() && clusters.iter().all(|cluster| stored.is_healthy(cluster));
        let newest = self.records.len().saturating_sub(1);
        for (index, record) in self.records.iter_mut().enumerate().filter(|(_, record)| record.phase.is_ongoing()) {
            let is_newest = index == newest;
            if is_newest {
                record.set_to(&clusters);
            }
            record.phase = if let Some(task) = tasks.iter().find(|task| task.from_cluster() == record.from) {
                record.set_time(*task);
                Phase::Evicted
            } else if is_recovered {
                Phase::Recovered
            } else if !is_newest {
                Phase::Superseded
            } else if record.to.iter().any(|cluster| stored.aggregated_status(cluster).is_some()) {
                Phase::Expired
            } else {
                Phase::Pending
            };
        }
    }

    /// Adds the record of a new failover. It takes over from one that is pending.
    pub fn append(&mut self, record: Record) {
        for pending in self.records.iter_mut().filter(|record| record.phase == Phase::Pending) {
            pending.phase = Phase::Superseded;
        }
        self.records.push(record);
    }

    /// Takes the oldest closed records away until at most `limit` are left, and at most [`MAX_HISTORY`] bytes.
    pub fn limit(&mut self, limit: usize) {
        while self.records.len() > limit && self.drop_oldest_closed() {}
        while self.to_annotation().is_some_and(|text| text.len() > MAX_HISTORY) && self.drop_oldest_closed() {}
    }

    fn drop_oldest_closed(&mut self) -> bool {
        let oldest = self.records.iter().position(|record| !record.phase.is_ongoing());
        if let Some(oldest) = oldest {
            self.records.remove(oldest);
        }
        oldest.is_some()
    }

    /// The annotation's text; `None` for an empty history.
    pub fn to_annotation(&self) -> Option<String> {
        if self.records.is_empty() {
            return None;
        }
        // Records hold nothing but strings, lists and maps of them: this can't fail.
        serde_json::to_string(&self.records).ok()
    }
}

impl Record {
    /// The record of a task that was just added.
    pub fn new(task: Task<'_>, failover_type: FailoverType) -> Self {
        let mut record = Self {
            failover_type,
            reason: task.reason().to_owned(),
            producer: task.producer().to_owned(),
            purge_mode: task.purge_mode().to_owned(),
            from: task.from_cluster().to_owned(),
            before: Vec::new(),
            to: Vec::new(),
            state: State::new(),
            missing: BTreeMap::new(),
            carried_from: None,
            time: None,
            phase: Phase::Evicted,
        };
        record.set_time(task);
        record
    }

    fn set_time(&mut self, task: Task<'_>) {
        if let Some(time) = task.creation_timestamp() {
            self.time = Some(time.to_owned());
        }
    }

    /// While nothing is scheduled, `to` stays what it was: it says where the state was sent.
    pub fn set_to(&mut self, clusters: &[&str]) {
        let is_new = |cluster: &str| cluster == self.from || !self.before.iter().any(|before| before == cluster);
        let to: Vec<String> =
            clusters.iter().filter(|cluster| is_new(cluster)).map(|&cluster| cluster.to_owned()).collect();
        if !to.is_empty() {
            self.to = to;
        }
    }
}
