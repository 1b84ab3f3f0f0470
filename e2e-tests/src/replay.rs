//! Replays a recording through the policy on API servers in memory.
//!
//! The recordings were made without the policy, and what the policy adds must persist as it would in a real control
//! plane. So each recorded request is completed with what the real writer would have copied from its cache before it is
//! evaluated:
//!
//! - a writer of a binding copies the annotations that it does not own, and of the eviction tasks that it knows the fields
//!   that it does not set;
//! - Karmada's binding controller writes the manifest in a Work from the template each time, and where its own injection is
//!   on (the recording shows it), the labels of the state that is now in the binding;
//! - the execution controller applies the manifest that the Work now holds to the member cluster, with what the policy wrote
//!   into its spec, and keeps of the object there the labels and annotations that did not come from a manifest.
//!
//! Source: `karmada-io/karmada`, `pkg/controllers/binding/common.go`, `pkg/controllers/ctrlutil/work.go`,
//! `pkg/util/label.go` and `annotation.go` (`RetainLabels`, `RetainAnnotations`, `RecordManagedLabels`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};
use stateful_failover::rehearsal::injected_state;
use stateful_failover::rehearsal::scenario::restored;

use crate::host::Host;
use crate::policy::{Answer, Policy};
use crate::recording::{Key, Recorded, stored};

const PREFIX: &str = "stateful-failover/";
const MANAGED: [(&str, &str); 2] = [
    ("labels", "resourcetemplate.karmada.io/managed-labels"),
    ("annotations", "resourcetemplate.karmada.io/managed-annotations"),
];

/// One evaluated request and its result.
#[derive(Debug)]
pub struct Step {
    /// Its index in the recording, from 0.
    pub index: usize,
    /// The object and its API server.
    pub key: Key,
    /// The completed request.
    pub request: Value,
    /// The policy's answer.
    pub answer: Answer,
    /// The object after the policy's patch; where the request was denied, the request's object.
    pub result: Value,
    /// Whether the API server stored it: it was not denied, and there was no conflict.
    pub is_stored: bool,
    /// The number of the policy's lookups.
    pub lookups: usize,
}

/// The policy's settings on both sides.
#[derive(Debug, Clone, Default)]
pub struct Sides {
    /// The settings at the Karmada control plane.
    pub control_plane: Value,
    /// The settings in the member clusters; `None` where they do not run the policy.
    pub members: Option<Value>,
}

impl Sides {
    /// One installation at the control plane, which restores in the Works.
    pub fn control_plane(settings: Value) -> Self {
        Self { control_plane: settings, members: None }
    }

    /// The control plane preserves and feeds, the members restore.
    pub fn members(settings: Value) -> Self {
        let mut control_plane = settings.clone();
        if let Some(fields) = control_plane.as_object_mut() {
            fields.remove("restore");
        }
        Self { control_plane, members: Some(settings) }
    }

    /// The same settings everywhere.
    pub fn both(settings: Value) -> Self {
        Self { control_plane: settings.clone(), members: Some(settings) }
    }

    fn of(&self, apiserver: &str) -> Option<&Value> {
        if apiserver == "karmada" { Some(&self.control_plane) } else { self.members.as_ref() }
    }
}

/// The API servers, and the policy that they call.
pub struct Replay<'a> {
    policy: &'a dyn Policy,
    sides: &'a Sides,
    objects: BTreeMap<Key, Value>,
    /// Keys that Karmada's own injection wrote in the recording.
    injected: BTreeSet<String>,
}

impl<'a> Replay<'a> {
    /// Replays all requests of a recording.
    ///
    /// # Errors
    /// The policy trapped, or its answer is not idempotent: evaluated on its own result, it must change nothing.
    pub fn run(policy: &'a dyn Policy, sides: &'a Sides, recording: &[Recorded]) -> Result<(Self, Vec<Step>)> {
        let mut replay = Self { policy, sides, objects: BTreeMap::new(), injected: injected_keys(recording) };
        let stored = stored(recording);
        let steps = recording
            .iter()
            .zip(stored)
            .enumerate()
            .map(|(index, (recorded, is_stored))| {
                replay.step(index, recorded, is_stored).with_context(|| format!("request {index}"))
            })
            .collect::<Result<_>>()?;
        Ok((replay, steps))
    }

    /// The object that is stored now.
    pub fn object(&self, apiserver: &str, kind: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = Key {
            apiserver: apiserver.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.objects.get(&key)
    }

    /// All objects that are stored now.
    pub fn objects(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.objects.iter()
    }

    fn step(&mut self, index: usize, recorded: &Recorded, is_stored: bool) -> Result<Step> {
        let key = recorded.key();
        let mut request = recorded.request.clone();
        self.carry(&key, recorded, &mut request);
        let host = self.host(&key.apiserver);
        let answer = match self.sides.of(&key.apiserver) {
            Some(settings) => self.policy.validate(&request, settings, &host)?,
            None => Answer::untouched(),
        };
        let result = answer.apply(&request["object"])?;
        if answer.accepted {
            self.check_idempotence(&key.apiserver, &request, &result)?;
        }
        let is_stored = is_stored && answer.accepted;
        if is_stored && is_deleted(&result) {
            self.objects.remove(&key);
        } else if is_stored {
            self.objects.insert(key.clone(), result.clone());
        }
        Ok(Step { index, key, request, answer, result, is_stored, lookups: host.lookups().len() })
    }

    fn check_idempotence(&self, apiserver: &str, request: &Value, result: &Value) -> Result<()> {
        let mut again = request.clone();
        again["object"] = result.clone();
        let Some(settings) = self.sides.of(apiserver) else { return Ok(()) };
        let answer = self.policy.validate(&again, settings, &self.host(apiserver))?;
        ensure!(
            answer.accepted && answer.mutated_object.is_none(),
            "evaluated on its own result, the policy changes it again: {}",
            answer.patch(result)
        );
        Ok(())
    }

    fn host(&self, apiserver: &str) -> Arc<Host> {
        let objects = self.objects.iter().filter(|(key, _)| key.apiserver == apiserver);
        Arc::new(Host::new(objects.map(|(_, object)| object.clone()).collect()))
    }

    /// Completes the request with what its writer would have copied from its cache, and sets the stored object.
    fn carry(&self, key: &Key, recorded: &Recorded, request: &mut Value) {
        let ours = self.objects.get(key).filter(|_| !recorded.is_create());
        match key.kind.as_str() {
            "ResourceBinding" | "ClusterResourceBinding" => {
                let Some(ours) = ours else { return };
                carry_binding(ours, None, &mut request["oldObject"]);
                let known = request["oldObject"].clone();
                carry_binding(ours, Some(&known), &mut request["object"]);
            }
            "Work" => {
                if let Some(ours) = ours {
                    request["oldObject"]["spec"] = ours["spec"].clone();
                }
                match ours.filter(|_| is_deleted(&request["object"])) {
                    // The execution controller removes the finalizer from the object in its cache.
                    Some(ours) => request["object"]["spec"] = ours["spec"].clone(),
                    None => self.write_manifests(&mut request["object"]),
                }
            }
            _ if key.apiserver != "karmada" => {
                if let Some(ours) = ours {
                    carry_member(ours, &mut request["oldObject"]);
                }
                self.apply_manifest(key, ours, &mut request["object"]);
            }
            _ => {}
        }
    }

    /// Karmada's binding controller: the manifests as the template has them, with the labels that its own injection
    /// writes, if it is on.
    fn write_manifests(&self, work: &mut Value) {
        let binding = self.binding_of(work).cloned();
        let cluster =
            work["metadata"]["namespace"].as_str().and_then(|namespace| namespace.strip_prefix("karmada-es-"));
        let state = binding.as_ref().zip(cluster).and_then(|(binding, cluster)| injected_state(binding, cluster));
        for manifest in work.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut).into_iter().flatten()
        {
            let Some(labels) = manifest.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) else {
                continue;
            };
            labels.retain(|key, _| !self.injected.contains(key));
            if !self.injected.is_empty() {
                labels.extend(state.clone().unwrap_or_default());
            }
            record_managed(manifest);
        }
    }

    fn binding_of(&self, work: &Value) -> Option<&Value> {
        let annotations = work.pointer("/metadata/annotations")?;
        let text = |key: &str| annotations.get(key).and_then(Value::as_str);
        match text("resourcebinding.karmada.io/name") {
            Some(name) => {
                self.object("karmada", "ResourceBinding", text("resourcebinding.karmada.io/namespace")?, name)
            }
            None => {
                self.object("karmada", "ClusterResourceBinding", "", text("clusterresourcebinding.karmada.io/name")?)
            }
        }
    }

    /// Karmada's execution controller: the manifest that the Work holds, with what it keeps of the object in the
    /// member.
    fn apply_manifest(&self, key: &Key, ours: Option<&Value>, object: &mut Value) {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let work = self.object(
            "karmada",
            "Work",
            &format!("karmada-es-{}", key.apiserver),
            &text("/metadata/annotations/work.karmada.io~1name"),
        );
        let Some(mut manifest) = work.and_then(|work| work.pointer("/spec/workload/manifests/0")).cloned() else {
            return;
        };
        json_patch::merge(&mut object["spec"], &manifest["spec"]);
        record_managed(&mut manifest);
        for (field, managed_key) in MANAGED {
            let mut values = manifest["metadata"][field].as_object().cloned().unwrap_or_default();
            for (key, value) in ours.and_then(|ours| ours["metadata"][field].as_object()).into_iter().flatten() {
                let managed =
                    ours.and_then(|ours| ours["metadata"]["annotations"][managed_key].as_str()).unwrap_or_default();
                if !managed.split(',').any(|managed| managed == key) {
                    values.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
            object["metadata"][field] = Value::Object(values);
        }
    }
}

/// How a recorded failover ended with the policy.
#[derive(Debug)]
pub struct End {
    /// The state of its newest copy in the cluster: alias to value; empty where it started cold.
    pub state: Value,
    /// The values of the fields that were restored there.
    pub restored: Vec<Value>,
    /// The binding of the application.
    pub binding: Value,
}

impl End {
    /// Replays a recording with the policy at the control plane.
    ///
    /// # Errors
    /// The replay fails, or the application was never in that cluster.
    pub fn of(policy: &dyn Policy, settings: Value, recording: &[Recorded], cluster: &str) -> Result<Self> {
        let sides = Sides::control_plane(settings);
        let (replay, steps) = Replay::run(policy, &sides, recording)?;
        let is_application = |kind: &str| matches!(kind, "FlinkDeployment" | "Deployment");
        let created = steps.iter().rfind(|step| step.key.apiserver == cluster && is_application(&step.key.kind));
        let object = &created.context("the application was never there")?.result;
        let state = object.pointer("/metadata/annotations/stateful-failover~1state").and_then(Value::as_str);
        let binding = replay.objects().find(|(key, object)| {
            key.kind == "ResourceBinding"
                && is_application(object["spec"]["resource"]["kind"].as_str().unwrap_or_default())
        });
        Ok(Self {
            state: state.map_or(Ok(json!({})), serde_json::from_str)?,
            restored: restored(object).into_values().collect(),
            binding: binding.context("the application has no binding")?.1.clone(),
        })
    }
}

/// Whether the object is being deleted and has no finalizers.
fn is_deleted(object: &Value) -> bool {
    let finalizers = object.pointer("/metadata/finalizers").and_then(Value::as_array);
    object.pointer("/metadata/deletionTimestamp").is_some() && finalizers.is_none_or(Vec::is_empty)
}

/// The aliases in the state of a task in the recording: they are there where Karmada's own injection was on.
fn injected_keys(recording: &[Recorded]) -> BTreeSet<String> {
    let tasks = recording.iter().filter_map(|recorded| recorded.request.pointer("/object/spec/gracefulEvictionTasks"));
    let states = tasks.filter_map(Value::as_array).flatten().filter_map(|task| task["preservedLabelState"].as_object());
    states.flat_map(Map::keys).cloned().collect()
}

/// Karmada lists the labels and annotations of a manifest in two annotations, so that it knows later which it may
/// remove.
fn record_managed(manifest: &mut Value) {
    let Some(annotations) = manifest.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) else {
        return;
    };
    for (_, managed_key) in MANAGED {
        annotations.entry(managed_key).or_insert(Value::Null);
    }
    for (field, managed_key) in MANAGED {
        let keys: Vec<&str> =
            manifest["metadata"][field].as_object().into_iter().flat_map(Map::keys).map(String::as_str).collect();
        manifest["metadata"]["annotations"][managed_key] = Value::from(keys.join(","));
    }
}

/// Copies the annotations of the policy, and the fields of eviction tasks that Karmada does not set. `known` is the
/// binding in the writer's cache; tasks that are not in it are left as they are.
fn carry_binding(ours: &Value, known: Option<&Value>, binding: &mut Value) {
    carry_annotations(ours, binding);
    let find = |binding: &Value, from: &Value| {
        let tasks = binding.pointer("/spec/gracefulEvictionTasks").and_then(Value::as_array);
        tasks.into_iter().flatten().find(|task| task["fromCluster"] == *from).cloned()
    };
    let tasks = binding.pointer_mut("/spec/gracefulEvictionTasks").and_then(Value::as_array_mut);
    for task in tasks.into_iter().flatten().filter_map(Value::as_object_mut) {
        let from = task.get("fromCluster").cloned().unwrap_or_default();
        let Some(ours) = find(ours, &from) else { continue };
        if known.is_some_and(|known| find(known, &from).is_none()) {
            continue;
        }
        for field in ["preservedLabelState", "clustersBeforeFailover"] {
            match ours.get(field) {
                Some(value) => task.insert(field.to_owned(), value.clone()),
                None => task.remove(field),
            };
        }
    }
}

fn carry_annotations(ours: &Value, object: &mut Value) {
    let annotations = ours.pointer("/metadata/annotations").and_then(Value::as_object);
    for (key, value) in annotations.into_iter().flatten().filter(|(key, _)| key.starts_with(PREFIX)) {
        object["metadata"]["annotations"][key] = value.clone();
    }
}

/// The stored object in a member cluster: as it was recorded, with the metadata and spec that the policy made.
fn carry_member(ours: &Value, object: &mut Value) {
    for field in ["labels", "annotations"] {
        object["metadata"][field] = ours["metadata"][field].clone();
    }
    object["spec"] = ours["spec"].clone();
}
