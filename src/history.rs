//! The history of a binding: each move of its application, the state that was preserved, and whether the application
//! recovered.
//!
//! Karmada forgets a failover once its eviction task is gone, and never records other moves. The history outlives both:
//! it is an annotation of the binding, which Karmada's own writes keep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::collected;
use crate::karmada::{Binding, FailoverType, PurgeMode, Task};
use crate::metadata;
use crate::state::State;

/// On bindings: JSON array of [`Record`]s, oldest first.
pub const HISTORY_ANNOTATION: &str = "stateful-failover/history";

/// Why an application moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MoveType {
    /// A failover of the application or of its cluster, by an eviction task.
    Failover(FailoverType),
    /// Any other move, such as a changed placement or a rebalance. Karmada writes no eviction task for it.
    Move,
}

impl MoveType {
    /// `application`, `cluster` or `move`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Failover(failover_type) => failover_type.as_str(),
            Self::Move => "move",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        [FailoverType::Application, FailoverType::Cluster]
            .into_iter()
            .map(Self::Failover)
            .chain([Self::Move])
            .find(|known| known.as_str() == name)
    }
}

impl fmt::Display for MoveType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for MoveType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// The progress of a move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The eviction task exists.
    Evicted,
    /// There is no task, and no new copy was started yet: the state still has to be fed.
    Pending,
    /// The application is healthy in all of its clusters.
    Recovered,
    /// There is no task, and the application was started but has not become healthy yet.
    Expired,
    /// A later move began before the application was healthy.
    Superseded,
    /// A phase of a later version of this policy. Its record counts as closed.
    Other(String),
}

impl Phase {
    /// Its name in the annotation.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Evicted => "Evicted",
            Self::Pending => "Pending",
            Self::Recovered => "Recovered",
            Self::Expired => "Expired",
            Self::Superseded => "Superseded",
            Self::Other(name) => name,
        }
    }

    fn from_name(name: &str) -> Self {
        let known = [Self::Evicted, Self::Pending, Self::Recovered, Self::Expired, Self::Superseded];
        known.into_iter().find(|phase| phase.as_str() == name).unwrap_or_else(|| Self::Other(name.to_owned()))
    }

    /// Whether the move has not ended yet.
    pub fn is_ongoing(&self) -> bool {
        matches!(self, Self::Evicted | Self::Pending)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Phase {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One move.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// The kind of move.
    #[serde(rename = "type")]
    pub move_type: MoveType,
    /// The task's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The task's producer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub producer: String,
    /// The task's purge mode, under the name that Karmada wrote.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub purge_mode: String,
    /// The cluster that the application left.
    pub from: String,
    /// The clusters that the application ran in before the move.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The clusters that the application was scheduled to: those that are not in `before`, and `from` if it was chosen
    /// again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The preserved state, including values that no label can hold.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub state: State,
    /// The aliases without a value, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// The cluster whose status the state was read from, where that is not `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<String>,
    /// When Karmada first saw the task; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// The progress of the move.
    pub phase: Phase,
    /// Fields that a later version of this policy wrote. They are kept.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Record {
    /// The record of a move that begins with this request.
    fn new(move_type: MoveType, from: &str, phase: Phase) -> Self {
        Self {
            move_type,
            reason: String::new(),
            producer: String::new(),
            purge_mode: String::new(),
            from: from.to_owned(),
            before: Vec::new(),
            to: Vec::new(),
            state: State::new(),
            missing: BTreeMap::new(),
            carried_from: None,
            time: None,
            phase,
            others: Map::new(),
        }
    }

    /// The record of an eviction task that this request adds.
    pub fn of_task(task: Task<'_>) -> Self {
        let mut record = Self::new(MoveType::Failover(task.failover_type()), task.from_cluster(), Phase::Evicted);
        record.reason = task.reason().to_owned();
        record.producer = task.producer().to_owned();
        record.purge_mode = task.purge_mode().to_owned();
        record.set_time(task);
        record
    }

    /// The record of a move without an eviction task.
    pub fn of_move(from: &str) -> Self {
        let mut record = Self::new(MoveType::Move, from, Phase::Pending);
        record.before = vec![from.to_owned()];
        record
    }

    /// The cluster whose status the state was read from.
    pub fn origin(&self) -> &str {
        self.carried_from.as_deref().unwrap_or(&self.from)
    }

    /// Whether the move began with an eviction task.
    pub fn is_failover(&self) -> bool {
        self.move_type != MoveType::Move
    }

    /// The purge mode by which the old copy is removed. A move without a task removes it directly.
    pub fn effective_purge_mode(&self) -> Option<PurgeMode> {
        match self.move_type {
            MoveType::Move => Some(PurgeMode::Directly),
            MoveType::Failover(_) => PurgeMode::from_name(&self.purge_mode),
        }
    }

    /// Whether the state was fed to a cluster without the application becoming healthy there.
    fn was_fed_in_vain(&self) -> bool {
        self.phase != Phase::Recovered && !self.to.is_empty() && !self.state.is_empty()
    }

    /// The length of the record in the annotation, in bytes.
    fn size(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }

    fn set_time(&mut self, task: Task<'_>) {
        if let Some(time) = task.creation_timestamp() {
            self.time = Some(time.to_owned());
        }
    }

    /// While the application has no clusters, `to` does not change: it says where the state was fed.
    pub fn set_to(&mut self, clusters: &[&str]) {
        let before: BTreeSet<&str> = collected(self.before.iter().map(String::as_str));
        let is_new = |cluster: &str| cluster == self.from || !before.contains(cluster);
        let to: Vec<String> =
            clusters.iter().filter(|cluster| is_new(cluster)).map(|&cluster| cluster.to_owned()).collect();
        if !to.is_empty() {
            self.to = to;
        }
    }

    fn read(json: Value) -> Option<Self> {
        let Value::Object(mut fields) = json else { return None };
        let mut text = |key: &str| match fields.remove(key) {
            None | Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => None,
        };
        let mut record =
            Self::new(MoveType::from_name(&text("type")??)?, &text("from")??, Phase::from_name(&text("phase")??));
        record.reason = text("reason")?.unwrap_or_default();
        record.producer = text("producer")?.unwrap_or_default();
        record.purge_mode = text("purgeMode")?.unwrap_or_default();
        record.carried_from = text("carriedFrom")?;
        record.time = text("time")?;
        record.before = strings(fields.remove("before"))?;
        record.to = strings(fields.remove("to"))?;
        record.state = map_of_strings(fields.remove("state"))?;
        record.missing = map_of_strings(fields.remove("missing"))?;
        record.others = fields;
        Some(record)
    }
}

fn strings(list: Option<Value>) -> Option<Vec<String>> {
    match list {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect(),
        Some(_) => None,
    }
}

fn map_of_strings(map: Option<Value>) -> Option<BTreeMap<String, String>> {
    match map {
        None | Some(Value::Null) => Some(BTreeMap::new()),
        Some(Value::Object(fields)) => {
            let mut strings = BTreeMap::new();
            for (key, value) in fields {
                strings.insert(key, value.as_str()?.to_owned());
            }
            Some(strings)
        }
        Some(_) => None,
    }
}

/// The history annotation can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot read `{HISTORY_ANNOTATION}`; use the version of the policy that wrote it")]
pub struct HistoryError;

/// The recorded moves of one binding, oldest first.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct History {
    records: Vec<Record>,
}

impl History {
    /// The history in the binding's annotation; empty where there is none.
    ///
    /// # Errors
    /// [`HistoryError`], where the annotation does not hold a history.
    pub fn read(binding: &Value) -> Result<Self, HistoryError> {
        let Some(text) = metadata::annotation(binding, HISTORY_ANNOTATION) else { return Ok(Self::default()) };
        let Ok(Value::Array(records)) = serde_json::from_str(text) else { return Err(HistoryError) };
        let records: Option<Vec<Record>> = records.into_iter().map(Record::read).collect();
        records.map(|records| Self { records }).ok_or(HistoryError)
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
        self.records
            .iter()
            .rev()
            .find(|record| record.from == from && record.is_failover() && record.phase.is_ongoing())
    }

    /// The newest record whose state was fed in vain, if no later move succeeded.
    pub fn fed_in_vain(&self) -> Option<&Record> {
        self.records
            .iter()
            .rev()
            .take_while(|record| record.phase != Phase::Recovered)
            .find(|record| record.was_fed_in_vain())
    }

    /// Brings `to`, `time` and `phase` up to date with `binding`, where `stored` is what Karmada last reported.
    ///
    /// The newest record follows the stored status until the application is healthy. An older one is only waiting for
    /// the end of its task.
    pub fn update(&mut self, binding: Binding<'_>, stored: Binding<'_>) {
        let clusters = binding.clusters();
        let tasks = binding.tasks();
        if self.records.is_empty() {
            return;
        }
        let health = stored.health();
        let is_recovered = !clusters.is_empty() && clusters.iter().all(|cluster| health.get(cluster) == Some(&true));
        let newest = self.records.len().saturating_sub(1);
        for (index, record) in self.records.iter_mut().enumerate() {
            let is_newest = index == newest;
            let is_followed = record.phase.is_ongoing() || (is_newest && record.phase == Phase::Expired);
            if !is_followed {
                continue;
            }
            if is_newest {
                record.set_to(&clusters);
            }
            let task = tasks.iter().find(|task| task.from_cluster() == record.from);
            record.phase = match task.filter(|_| record.is_failover() && record.phase.is_ongoing()) {
                Some(task) => {
                    record.set_time(*task);
                    Phase::Evicted
                }
                None if is_recovered => Phase::Recovered,
                None if !is_newest => Phase::Superseded,
                None if record.phase == Phase::Expired => Phase::Expired,
                None if record.to.iter().any(|cluster| health.contains_key(cluster.as_str())) => Phase::Expired,
                None => Phase::Pending,
            };
        }
    }

    /// Adds the record of a new move, which supersedes a pending one.
    pub fn append(&mut self, record: Record) {
        for pending in self.records.iter_mut().filter(|record| record.phase == Phase::Pending) {
            pending.phase = Phase::Superseded;
        }
        self.records.push(record);
    }

    /// Removes the oldest closed records until at most `limit` are left, and then the least valuable parts until the
    /// annotation has at most `max_bytes`: `before` of older records, the reasons for missing values, closed records,
    /// older records, and everything but the state in the newest one. The state of the newest record is never removed.
    pub fn limit(&mut self, limit: usize, max_bytes: usize) {
        while self.records.len() > limit && self.drop_oldest_over() {}
        if self.size() <= max_bytes {
            return;
        }
        if let Some((_, older)) = self.records.split_last_mut() {
            older.iter_mut().for_each(|record| record.before.clear());
        }
        let reasons = self.records.iter_mut().flat_map(|record| record.missing.values_mut());
        reasons.for_each(String::clear);
        let mut size = self.size();
        self.records = {
            let newest = self.records.len().saturating_sub(1);
            let mut records: Vec<Option<Record>> = std::mem::take(&mut self.records).into_iter().map(Some).collect();
            for over in [true, false] {
                for record in records.iter_mut().take(newest) {
                    let is_next = record.as_ref().is_some_and(|record| !over || !record.phase.is_ongoing());
                    if size > max_bytes && is_next {
                        size -= record.take().map_or(0, |record| record.size() + 1);
                    }
                }
            }
            records.into_iter().flatten().collect()
        };
        if size > max_bytes
            && let Some(newest) = self.records.last_mut()
        {
            newest.before.clear();
            newest.missing.clear();
        }
    }

    fn drop_oldest_over(&mut self) -> bool {
        let oldest = self.records.iter().position(|record| !record.phase.is_ongoing());
        if let Some(oldest) = oldest {
            self.records.remove(oldest);
        }
        oldest.is_some()
    }

    /// The length of the annotation in bytes: the records, with commas between them, in brackets.
    fn size(&self) -> usize {
        self.records.iter().map(|record| record.size() + 1).sum::<usize>() + 1
    }

    /// The annotation's text; `None` for an empty history.
    pub fn to_annotation(&self) -> Option<String> {
        if self.records.is_empty() {
            return None;
        }
        // Records are made of JSON values, so this can't fail.
        serde_json::to_string(&self.records).ok()
    }
}
