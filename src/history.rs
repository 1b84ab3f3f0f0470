//! The history of a binding: each move of its application, what state was preserved, and whether it arrived.
//!
//! Karmada forgets a failover once its eviction task is gone, and does not remember other moves at all. The history outlives
//! both, in an annotation of the binding, which survives Karmada's own writes.

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
    /// Any other move: a changed placement, a rebalance, a way home. Karmada writes no task for it.
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

/// How far a move has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// The eviction task is there.
    Evicted,
    /// There is no task, and nothing was started in the new clusters yet: the state is still owed.
    Pending,
    /// The application is healthy everywhere.
    Recovered,
    /// There is no task, and the application was started but has not become healthy.
    Expired,
    /// A later move took over, before the application was healthy.
    Superseded,
    /// A phase of a later version of this policy: it counts as over.
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

    /// Whether the move is still going on.
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
    /// Why.
    #[serde(rename = "type")]
    pub move_type: MoveType,
    /// The task's reason.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The task's producer.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub producer: String,
    /// The task's purge mode, as it was written.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub purge_mode: String,
    /// The cluster that the application was taken from.
    pub from: String,
    /// The clusters that it ran in before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The clusters that it was scheduled to: those that are not in `before`, and `from` if it was chosen again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The preserved state, valid as label values or not.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub state: State,
    /// The aliases that had no value, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub missing: BTreeMap<String, String>,
    /// The cluster whose status the state was read from, where that is not `from`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub carried_from: Option<String>,
    /// When Karmada first saw the task; RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// How far it has come.
    pub phase: Phase,
    /// Fields of a later version of this policy. They are kept.
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Record {
    /// The record of a move that just began.
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

    /// The record of a task that was just added.
    pub fn of_task(task: Task<'_>) -> Self {
        let mut record = Self::new(MoveType::Failover(task.failover_type()), task.from_cluster(), Phase::Evicted);
        record.reason = task.reason().to_owned();
        record.producer = task.producer().to_owned();
        record.purge_mode = task.purge_mode().to_owned();
        record.set_time(task);
        record
    }

    /// The record of a move away from a cluster without a task.
    pub fn of_move(from: &str) -> Self {
        let mut record = Self::new(MoveType::Move, from, Phase::Pending);
        record.before = vec![from.to_owned()];
        record
    }

    /// The cluster whose status the state was read from.
    pub fn origin(&self) -> &str {
        self.carried_from.as_deref().unwrap_or(&self.from)
    }

    /// Whether an eviction task began it.
    pub fn is_failover(&self) -> bool {
        self.move_type != MoveType::Move
    }

    /// The purge mode of the old copy. A move without a task removes it directly.
    pub fn effective_purge_mode(&self) -> Option<PurgeMode> {
        match self.move_type {
            MoveType::Move => Some(PurgeMode::Directly),
            MoveType::Failover(_) => PurgeMode::from_name(&self.purge_mode),
        }
    }

    /// Whether the state was sent to a cluster but has not made the application healthy there.
    fn was_fed_in_vain(&self) -> bool {
        self.phase != Phase::Recovered && !self.to.is_empty() && !self.state.is_empty()
    }

    /// Bytes of its text in the annotation.
    fn size(&self) -> usize {
        serde_json::to_string(self).map_or(0, |text| text.len())
    }

    fn set_time(&mut self, task: Task<'_>) {
        if let Some(time) = task.creation_timestamp() {
            self.time = Some(time.to_owned());
        }
    }

    /// While nothing is scheduled, `to` stays what it was: it says where the state was sent.
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

/// A history annotation that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("annotation `{HISTORY_ANNOTATION}` is not a history that this version can read")]
pub struct HistoryError;

/// All moves of one binding that are remembered, oldest first.
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

    /// The record of the failover from that cluster which is still going on.
    pub fn ongoing(&self, from: &str) -> Option<&Record> {
        self.records
            .iter()
            .rev()
            .find(|record| record.from == from && record.is_failover() && record.phase.is_ongoing())
    }

    /// The newest state that was fed without success, where no later move succeeded.
    pub fn fed_in_vain(&self) -> Option<&Record> {
        self.records
            .iter()
            .rev()
            .take_while(|record| record.phase != Phase::Recovered)
            .find(|record| record.was_fed_in_vain())
    }

    /// Brings `to`, `time` and `phase` up to date with `binding`, where `stored` is what Karmada last reported.
    ///
    /// The newest record follows the stored status until the application is healthy. An older one is only waiting for the
    /// end of its task.
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

    /// Adds the record of a new move. It takes over from one that is pending.
    pub fn append(&mut self, record: Record) {
        for pending in self.records.iter_mut().filter(|record| record.phase == Phase::Pending) {
            pending.phase = Phase::Superseded;
        }
        self.records.push(record);
    }

    /// Takes the oldest records that are over away until at most `limit` are left, and then the least valuable parts until
    /// the annotation has at most `max_bytes`: the clusters before older moves, the reasons why values are missing, records
    /// that are over, older records, and what is not state in the newest one. The state of the newest record stays.
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

    /// Bytes of the annotation's text: the records, with commas between them, in brackets.
    fn size(&self) -> usize {
        self.records.iter().map(|record| record.size() + 1).sum::<usize>() + 1
    }

    /// The annotation's text; `None` for an empty history.
    pub fn to_annotation(&self) -> Option<String> {
        if self.records.is_empty() {
            return None;
        }
        // Records hold nothing but JSON: this can't fail.
        serde_json::to_string(&self.records).ok()
    }
}
