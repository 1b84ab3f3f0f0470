//! A failover to rehearse: a policy, a workload with its status, and what goes wrong.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Rehearsal, Step, Stop, binding_of};
use crate::Settings;
use crate::cluster::Cluster;
use crate::interpreted_kinds::{Interpretation, REFLECTED_ANNOTATIONS};
use crate::jsonpath::JsonPath;
use crate::karmada::{Binding, Failover, FailoverType, PurgeMode};
use crate::lint::unnoticed_failure;
use crate::metadata;
use crate::restore::record::RECORD_ANNOTATION;
use crate::state::{self, State, StateRule};

/// The prefix of the annotations that the customizations in `deploy/interpreters` reflect as `.reflected`.
const REFLECT_PREFIX: &str = "reflect.stateful-failover/";

/// The kinds whose customization in `deploy/interpreters` also reflects the object's uid.
const REFLECTED_UID: [(&str, &str); 2] = [("ray.io/v1", "RayCluster"), ("acid.zalan.do/v1", "postgresql")];

/// Why the application moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// The application was unhealthy for too long.
    #[default]
    Application,
    /// Its cluster has a NoExecute taint.
    Cluster,
    /// Its placement was changed, or it was rebalanced: there is no eviction task.
    Move,
}

impl Cause {
    /// The failover behaviour whose rules are read: for a move without a task, that of cluster failover.
    fn failover_type(self) -> FailoverType {
        match self {
            Self::Application => FailoverType::Application,
            Self::Cluster | Self::Move => FailoverType::Cluster,
        }
    }
}

/// The input of a rehearsal.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Scenario {
    /// The PropagationPolicy. The clusters are used in the order in which its placement names them.
    pub propagation_policy: Value,
    /// The resource template.
    pub workload: Value,
    /// What the object in the failed cluster has in addition: `{"metadata": {"annotations", "uid"}, "status"}`.
    pub status: Value,
    /// The same for the next cluster, for scenarios in which the application moves a second time. By default, a copy
    /// that never ran reports an empty status, and one that became healthy reports the status of the first copy.
    pub next_status: Value,
    /// Why the application moves.
    pub cause: Cause,
    /// The source cluster does not answer: its Work stays, and the new one is written only after the task timed out.
    pub source_unreachable: bool,
    /// The copy in the next cluster fails too, before it was ever healthy.
    pub second_failover: bool,
    /// The copy in the next cluster becomes healthy, and the placement is changed back.
    pub way_home: bool,
    /// The application runs in two clusters, of which one fails.
    pub two_clusters: bool,
    /// The first state rule finds nothing in the status.
    pub value_missing: bool,
    /// Karmada's feature gate `StatefulFailoverInjection`.
    pub injection: bool,
}

/// What a controller did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Act {
    /// The PropagationPolicy is created.
    CreatePolicy,
    /// The status of the copy in a cluster is collected.
    Report,
    /// The application is evicted from a cluster.
    Evict,
    /// The scheduler chooses clusters.
    Schedule,
    /// The eviction tasks are removed.
    RemoveTasks,
    /// The Work for a cluster is gone.
    RemoveWork,
    /// The Work for a cluster is written.
    WriteWork,
}

/// An action of a controller, and its result.
#[derive(Debug)]
pub struct Played {
    /// What a controller did.
    pub act: Act,
    /// The clusters that it concerns.
    pub clusters: Vec<String>,
    /// The request, where the policy saw one.
    pub step: Option<Step>,
    /// The binding afterwards.
    pub binding: Value,
}

/// How the rehearsal ended.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The cluster that the application left last; empty where it left none.
    pub from: String,
    /// The cluster that the application moves to.
    pub cluster: String,
    /// Why the application did not get there.
    pub stop: Option<String>,
    /// The manifest when the new copy was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started: Option<Value>,
    /// The manifest after Karmada's next sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub synced: Option<Value>,
    /// The state that the new copy was started with: alias to value.
    pub state: State,
    /// The fields that restore rules set: path to value.
    pub restored: BTreeMap<String, Value>,
    /// The running copy that was given the state of the one that failed.
    pub disturbed: Option<String>,
}

impl Outcome {
    fn between(from: &str, cluster: &str) -> Self {
        Self { from: from.to_owned(), cluster: cluster.to_owned(), ..Self::default() }
    }
}

/// The result of a rehearsal.
#[derive(Debug)]
pub struct Play {
    /// The actions, in order.
    pub acts: Vec<Played>,
    /// How it ended.
    pub outcome: Outcome,
}

impl Scenario {
    /// Rehearses the scenario with the policy of these settings, or with Karmada alone. `objects` is what lookups find.
    pub fn play(&self, settings: Option<&Settings>, objects: &impl Cluster) -> Play {
        let clusters = self.clusters();
        let [source, next, third] = [0, 1, 2].map(|index| clusters.get(index).map_or("", String::as_str));
        let running = if self.two_clusters { vec![source, next] } else { vec![source] };
        let binding = binding_of(&self.propagation_policy, &self.workload, &running);
        let rehearsal = Rehearsal::new(binding, self.workload.clone(), settings, objects, self.injection);
        let mut recorder = Recorder { rehearsal, acts: Vec::new(), outcome: Outcome::default() };
        if let Err(stop) = self.run(&mut recorder, settings, [source, next, third]) {
            recorder.outcome.stop = Some(stop.to_string());
        }
        Play { acts: recorder.acts, outcome: recorder.outcome }
    }

    fn run<C: Cluster>(
        &self,
        recorder: &mut Recorder<'_, C>,
        settings: Option<&Settings>,
        [source, next, third]: [&str; 3],
    ) -> Result<(), Stop> {
        let failover_type = self.cause.failover_type();
        recorder.act(Act::CreatePolicy, &[], |rehearsal| rehearsal.create_policy(&self.propagation_policy))?;
        let status = self.reflected(settings, &self.status, failover_type);
        let survivor = self.two_clusters.then_some(next);
        let (target, after) = if self.two_clusters { (third, next) } else { (next, third) };
        for cluster in [Some(source), survivor].into_iter().flatten() {
            recorder.write_work(cluster)?;
        }
        if let Some(survivor) = survivor {
            recorder.report(survivor, "Healthy", status.as_ref());
        }
        let health = if self.cause == Cause::Application { "Unhealthy" } else { "Healthy" };
        recorder.report(source, health, status.as_ref());

        recorder.outcome = Outcome::between(source, target);
        self.leave(recorder, settings, source, survivor, target)?;
        if self.second_failover {
            let disturbed = recorder.outcome.disturbed.take();
            recorder.outcome = Outcome { disturbed, ..Outcome::between(target, after) };
            let status = match &self.next_status {
                Value::Null => Some(Value::Object(Map::new())),
                status => self.reflected(settings, status, failover_type),
            };
            recorder.report(target, "Unhealthy", status.as_ref());
            recorder.evict(target, failover_type)?;
            recorder.schedule(&[after])?;
            recorder.remove_work(target);
            return self.start(recorder, after);
        }
        let next_status = if self.next_status.is_null() { &self.status } else { &self.next_status };
        let status = self.reflected(settings, next_status, failover_type);
        recorder.report(target, "Healthy", status.as_ref());
        recorder.act(Act::RemoveTasks, &[], Rehearsal::remove_tasks)?;
        recorder.write_work(target)?;
        recorder.outcome.synced = recorder.rehearsal.manifest(target).cloned();
        if self.way_home {
            recorder.outcome = Outcome::between(target, source);
            recorder.schedule(&[source])?;
            self.start(recorder, source)?;
            recorder.remove_work(target);
        }
        Ok(())
    }

    /// The actions from the source cluster to the first copy in the target cluster.
    fn leave<C: Cluster>(
        &self,
        recorder: &mut Recorder<'_, C>,
        settings: Option<&Settings>,
        source: &str,
        survivor: Option<&str>,
        target: &str,
    ) -> Result<(), Stop> {
        let mut targets: Vec<&str> = survivor.into_iter().collect();
        targets.push(target);
        if self.cause == Cause::Move {
            recorder.schedule(&targets)?;
            self.start(recorder, target)?;
            recorder.remove_work(source);
            return Ok(());
        }
        let failover_type = self.cause.failover_type();
        if self.cause == Cause::Application && !self.interpretation(settings).has_health {
            let (api_version, kind) = self.kind();
            let (problem, remedy) = unnoticed_failure(api_version, kind);
            return Err(Stop::Karmada(format!("{problem}; {remedy}")));
        }
        recorder.evict(source, failover_type)?;
        if let Some(survivor) = survivor {
            // The binding controller is faster than the scheduler.
            recorder.write_work(survivor)?;
            let manifest = recorder.rehearsal.manifest(survivor);
            let is_disturbed = manifest.is_some_and(|manifest| !self.state_of(manifest).is_empty());
            recorder.outcome.disturbed = is_disturbed.then(|| survivor.to_owned());
        }
        recorder.schedule(&targets)?;
        if let Some(survivor) = survivor {
            recorder.write_work(survivor)?;
        }
        let task = Binding::new(recorder.rehearsal.binding()).task(source).map(|task| task.purge_mode().to_owned());
        let is_direct = task.and_then(|mode| PurgeMode::from_name(&mode)) == Some(PurgeMode::Directly);
        if is_direct && self.source_unreachable {
            recorder.act(Act::RemoveTasks, &[], Rehearsal::remove_tasks)?;
        } else if is_direct {
            recorder.remove_work(source);
        }
        self.start(recorder, target)
    }

    /// The new copy is created in `cluster`.
    fn start<C: Cluster>(&self, recorder: &mut Recorder<'_, C>, cluster: &str) -> Result<(), Stop> {
        recorder.write_work(cluster)?;
        let manifest = recorder.rehearsal.manifest(cluster).cloned().unwrap_or_default();
        recorder.outcome.state = self.state_of(&manifest);
        recorder.outcome.restored = restored(&manifest);
        recorder.outcome.started = Some(manifest);
        Ok(())
    }

    /// The clusters of the placement, with added ones where it names too few.
    fn clusters(&self) -> Vec<String> {
        let named = self.propagation_policy.pointer("/spec/placement/clusterAffinity/clusterNames");
        let named = named.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut clusters: Vec<String> = Vec::new();
        for name in named.chain(["member1", "member2", "member3"]) {
            if !clusters.iter().any(|known| known == name) {
                clusters.push(name.to_owned());
            }
        }
        clusters
    }

    fn interpretation<'s>(&self, settings: Option<&'s Settings>) -> Interpretation<'s> {
        let own = settings.map(|settings| settings.lint_kinds.as_slice()).unwrap_or_default();
        let (api_version, kind) = self.kind();
        Interpretation::of(api_version, kind, own)
    }

    fn kind(&self) -> (&str, &str) {
        let text = |key| self.workload.get(key).and_then(Value::as_str).unwrap_or_default();
        (text("apiVersion"), text("kind"))
    }

    /// The fields of `collected` that Karmada reflects into the binding, or those of the customization that the
    /// settings list. `None` where there is no status.
    pub fn reflected(
        &self,
        settings: Option<&Settings>,
        collected: &Value,
        failover_type: FailoverType,
    ) -> Option<Value> {
        let known = self.interpretation(settings);
        let mut status = collected.get("status").and_then(Value::as_object)?.clone();
        if known.is_own {
            let annotations = collected.pointer("/metadata/annotations").and_then(Value::as_object);
            let reflected: Map<String, Value> = annotations
                .into_iter()
                .flatten()
                .filter_map(|(key, value)| Some((key.strip_prefix(REFLECT_PREFIX)?.to_owned(), value.clone())))
                .collect();
            if !reflected.is_empty() {
                status.insert(REFLECTED_ANNOTATIONS.to_owned(), Value::Object(reflected));
            }
            if let Some(uid) = collected.pointer("/metadata/uid")
                && REFLECTED_UID.contains(&self.kind())
            {
                status.insert("uid".to_owned(), uid.clone());
            }
        }
        status.retain(|field, _| known.reflects(field));
        let mut status = Value::Object(status);
        if self.value_missing {
            self.remove_first_value(&mut status, failover_type);
        }
        Some(status)
    }

    fn rules(&self, failover_type: FailoverType) -> Vec<StateRule> {
        let failover = Failover::of(&self.propagation_policy);
        let rules = failover.map(|failover| {
            let rules = failover.rules(failover_type);
            if rules.is_empty() { failover.rules(failover_type.other()) } else { rules }
        });
        rules.unwrap_or_default().into_iter().map(StateRule::new).collect()
    }

    /// Removes the field of the status that the first rule reads.
    fn remove_first_value(&self, status: &mut Value, failover_type: FailoverType) {
        let rules = self.rules(failover_type);
        let Some(Ok(path)) = rules.first().map(|rule| JsonPath::template(&rule.json_path)) else { return };
        let fields = path.leading_fields();
        let Some((last, parents)) = fields.split_last() else {
            // For a path that begins with a wildcard or a filter, only an empty status certainly has no value.
            *status = Value::Object(Map::new());
            return;
        };
        let parent = parents.iter().try_fold(status, |parent, field| parent.get_mut(*field));
        if let Some(parent) = parent.and_then(Value::as_object_mut) {
            parent.remove(*last);
        }
    }

    /// The state on a manifest: that of the policy, or the labels that Karmada's own injection wrote.
    fn state_of(&self, manifest: &Value) -> State {
        if let Some(state) = state::read_annotation(manifest) {
            return state;
        }
        let labels = manifest.pointer("/metadata/labels").and_then(Value::as_object);
        let rules = [FailoverType::Application, FailoverType::Cluster].map(|failover_type| self.rules(failover_type));
        let is_alias = |alias: &String| rules.iter().flatten().any(|rule| rule.alias == *alias);
        let labels = labels.map(state::of_labels).unwrap_or_default();
        labels.into_iter().filter(|(alias, _)| is_alias(alias)).collect()
    }
}

/// The fields that restore rules set in a manifest, by its restore record.
pub fn restored(manifest: &Value) -> BTreeMap<String, Value> {
    let record = metadata::annotation(manifest, RECORD_ANNOTATION).and_then(|text| serde_json::from_str(text).ok());
    let rules = record.as_ref().and_then(Value::as_object).into_iter().flatten();
    rules
        .filter_map(|(_, changes)| changes.as_object())
        .flatten()
        .filter_map(|(path, change)| Some((path.clone(), change.get("set")?.clone())))
        .collect()
}

/// Runs the rehearsal and records each action.
struct Recorder<'a, C> {
    rehearsal: Rehearsal<'a, C>,
    acts: Vec<Played>,
    outcome: Outcome,
}

impl<'a, C: Cluster> Recorder<'a, C> {
    fn act(
        &mut self,
        act: Act,
        clusters: &[&str],
        request: impl FnOnce(&mut Rehearsal<'a, C>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let before = self.rehearsal.steps().len();
        let result = request(&mut self.rehearsal);
        let step = self.rehearsal.steps().get(before).cloned();
        let clusters = clusters.iter().map(|&cluster| cluster.to_owned()).collect();
        self.acts.push(Played { act, clusters, step, binding: self.rehearsal.binding().clone() });
        result
    }

    fn report(&mut self, cluster: &str, health: &str, status: Option<&Value>) {
        // A report is not a request that could be denied.
        let _ = self.act(Act::Report, &[cluster], |rehearsal| {
            rehearsal.report(cluster, health, status);
            Ok(())
        });
    }

    fn evict(&mut self, cluster: &str, failover_type: FailoverType) -> Result<(), Stop> {
        self.act(Act::Evict, &[cluster], |rehearsal| rehearsal.evict(cluster, failover_type))
    }

    fn schedule(&mut self, clusters: &[&str]) -> Result<(), Stop> {
        self.act(Act::Schedule, clusters, |rehearsal| rehearsal.schedule(clusters))
    }

    fn remove_work(&mut self, cluster: &str) {
        // The policy sees no deletions and can't deny them.
        let _ = self.act(Act::RemoveWork, &[cluster], |rehearsal| {
            rehearsal.remove_work(cluster);
            Ok(())
        });
    }

    fn write_work(&mut self, cluster: &str) -> Result<(), Stop> {
        self.act(Act::WriteWork, &[cluster], |rehearsal| rehearsal.write_work(cluster))
    }
}
