//! The requests that Karmada's controllers would make when an application moves, and the policy's answers to them: a
//! model of the controllers for the tools (the playground, the command line tool) that show a failover before it
//! happens. The policy does not use it, and it is not in the module.
//!
//! The model covers one binding. Each method of [`Rehearsal`] is one action of one controller: its request is decided
//! by [`evaluate`] and stored unless it is denied. Without settings, the same actions show what Karmada does alone.
//!
//! Source: `karmada-io/karmada` v1.19, `pkg/controllers/applicationfailover`,
//! `pkg/controllers/cluster/taint_manager.go`, `pkg/controllers/gracefuleviction`, `pkg/controllers/binding`,
//! `pkg/util/helper/failover.go`; the tests hold the model against recorded failovers.

pub mod scenario;

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::cluster::{Cluster, Get, LookupError};
use crate::jsonpath::JsonPath;
use crate::karmada::{self, BINDING_API_VERSION, Binding, BindingReference, FailoverType, PurgeMode};
use crate::labels::is_label_value;
use crate::messages::quote;
use crate::object_reference::{ObjectReference, group};
use crate::verdict::{Outcome, Verdict};
use crate::{Request, Settings, evaluate, metadata};

/// Why an action of a controller did not take place.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Stop {
    /// The policy denied the request.
    #[error("the policy denies it: {0}")]
    Denied(String),
    /// Karmada itself stops here.
    #[error("{0}")]
    Karmada(String),
}

/// One request and its answer.
#[derive(Debug, Clone)]
pub struct Step {
    /// The AdmissionRequest, as far as the policy reads it.
    pub request: Value,
    /// The policy's answer; without a policy, the request is accepted.
    pub verdict: Verdict,
    /// What lookups find: the binding as it is stored at that time.
    pub binding: Value,
}

impl Step {
    /// The object that is stored: the policy's, or the request's own. `None` where the request was denied.
    pub fn stored(&self) -> Option<&Value> {
        match &self.verdict.outcome {
            Outcome::Accept => self.request.get("object"),
            Outcome::Mutate(object) => Some(object),
            Outcome::Deny { .. } => None,
        }
    }
}

/// A binding, its resource template and its Works, in the Karmada API server of the rehearsal.
#[derive(Debug)]
pub struct Rehearsal<'a, C> {
    settings: Option<&'a Settings>,
    objects: &'a C,
    injection: bool,
    template: Value,
    binding: Value,
    works: BTreeMap<String, Value>,
    steps: Vec<Step>,
}

impl<'a, C: Cluster> Rehearsal<'a, C> {
    /// The rehearsal for `binding` as it is stored, with its status. `template` is the resource that it propagates.
    /// `settings` are the policy's, `None` for Karmada alone. `objects` is what lookups find besides the binding.
    /// `injection` is Karmada's feature gate `StatefulFailoverInjection`.
    pub fn new(
        mut binding: Value,
        mut template: Value,
        settings: Option<&'a Settings>,
        objects: &'a C,
        injection: bool,
    ) -> Self {
        let label = BindingReference::of(&binding).permanent_id_label;
        if metadata::label(&binding, label).is_none() {
            // A binding without metadata stays without the label; then its Works have none either.
            let _ = metadata::set_label(&mut binding, label, "00000000-0000-4000-8000-000000000001");
        }
        prune(&mut template);
        Self { settings, objects, injection, template, binding, works: BTreeMap::new(), steps: Vec::new() }
    }

    /// The binding as it is stored now.
    pub fn binding(&self) -> &Value {
        &self.binding
    }

    /// The manifest in the Work for that cluster: what Karmada applies there.
    pub fn manifest(&self, cluster: &str) -> Option<&Value> {
        self.works.get(cluster)?.pointer("/spec/workload/manifests/0")
    }

    /// All requests so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// A PropagationPolicy is created.
    ///
    /// # Errors
    /// [`Stop::Denied`].
    pub fn create_policy(&mut self, policy: &Value) -> Result<(), Stop> {
        self.write(policy.clone(), Value::Null).map(drop)
    }

    /// The taint manager or the application failover controller evicts the application from `from`.
    ///
    /// # Errors
    /// [`Stop::Denied`]; or [`Stop::Karmada`], where Karmada's own preservation is enabled and finds no value, and so
    /// does not evict.
    pub fn evict(&mut self, from: &str, failover_type: FailoverType) -> Result<(), Stop> {
        let task = self.task(from, failover_type)?;
        let mut evicted = self.binding.clone();
        let spec = field(&mut evicted, "spec");
        if let Some(clusters) = field(spec, "clusters").as_array_mut() {
            clusters.retain(|cluster| !is_cluster(cluster, "name", from));
        }
        push(field(spec, "gracefulEvictionTasks"), task);
        self.write_binding(evicted)
    }

    fn task(&self, from: &str, failover_type: FailoverType) -> Result<Value, Stop> {
        let binding = Binding::new(&self.binding);
        let behavior = binding.failover().and_then(|failover| failover.behavior(failover_type));
        let purge_mode = behavior.and_then(|behavior| behavior.get("purgeMode")).and_then(Value::as_str);
        let purge_mode = purge_mode.unwrap_or("Gracefully");
        let is_namespaced = BindingReference::of(&self.binding).namespace.is_some();
        let (reason, producer) = match (failover_type, is_namespaced) {
            (FailoverType::Application, true) => {
                ("ApplicationFailure", "resource-binding-application-failover-controller")
            }
            (FailoverType::Application, false) => {
                ("ApplicationFailure", "cluster-resource-binding-application-failover-controller")
            }
            (FailoverType::Cluster, _) => ("TaintUntolerated", "TaintManager"),
        };
        let mut task = json!({"fromCluster": from, "purgeMode": purge_mode, "reason": reason, "producer": producer});
        if failover_type == FailoverType::Application && PurgeMode::from_name(purge_mode) == Some(PurgeMode::Never) {
            *field(&mut task, "suppressDeletion") = Value::from(true);
        }
        if self.injection
            && let Some(state) = preserved_by_karmada(binding, from, failover_type)?
            && let Some(task) = task.as_object_mut()
        {
            karmada::set_preserved_label_state(task, state);
            if failover_type == FailoverType::Application {
                karmada::set_clusters_before_failover(task, binding.clusters());
            }
        }
        Ok(task)
    }

    /// The scheduler chooses these clusters.
    ///
    /// # Errors
    /// [`Stop::Denied`].
    pub fn schedule(&mut self, clusters: &[&str]) -> Result<(), Stop> {
        let mut scheduled = self.binding.clone();
        *field(field(&mut scheduled, "spec"), "clusters") = target_clusters(clusters);
        self.write_binding(scheduled)
    }

    /// The graceful eviction controller removes the eviction tasks: they have timed out, or the application is healthy.
    ///
    /// # Errors
    /// [`Stop::Denied`].
    pub fn remove_tasks(&mut self) -> Result<(), Stop> {
        let mut binding = self.binding.clone();
        let spec = binding.get_mut("spec").and_then(Value::as_object_mut);
        match spec.and_then(|spec| spec.remove("gracefulEvictionTasks")) {
            Some(_) => self.write_binding(binding),
            None => Ok(()),
        }
    }

    /// Karmada collects the status of the application in a cluster. This is a write of the subresource `status`, which
    /// the policy does not see.
    pub fn report(&mut self, cluster: &str, health: &str, status: Option<&Value>) {
        self.forget(cluster);
        let mut item = json!({"clusterName": cluster, "applied": true, "health": health});
        if let Some(status) = status {
            *field(&mut item, "status") = status.clone();
        }
        push(field(field(&mut self.binding, "status"), "aggregatedStatus"), item);
    }

    /// The Work for a cluster is gone, and with it the status from there. The policy sees no deletions.
    pub fn remove_work(&mut self, cluster: &str) {
        self.works.remove(cluster);
        self.forget(cluster);
    }

    fn forget(&mut self, cluster: &str) {
        if let Some(items) = self.binding.pointer_mut("/status/aggregatedStatus").and_then(Value::as_array_mut) {
            items.retain(|item| !is_cluster(item, "clusterName", cluster));
        }
    }

    /// The binding controller writes the Work for a cluster from the template on every sync.
    ///
    /// # Errors
    /// [`Stop::Denied`]; or [`Stop::Karmada`], where Karmada itself injects an invalid label value and the member's API
    /// server rejects the object.
    pub fn write_work(&mut self, cluster: &str) -> Result<(), Stop> {
        let mut manifest = self.template.clone();
        if self.injection
            && let Some(state) = injected_state(&self.binding, cluster)
        {
            for (alias, value) in state {
                let value = value.as_str().unwrap_or_default();
                if self.settings.is_none() && !is_label_value(value) {
                    let label = quote(&alias);
                    return Err(Stop::Karmada(format!(
                        "label {label} would be {}, which is not a label value: {cluster} rejects the object",
                        quote(value)
                    )));
                }
                // No API server would have stored a template whose labels are not an object.
                let _ = metadata::set_label(&mut manifest, &alias, value);
            }
        }
        let work = self.work(cluster, manifest);
        let old = self.works.get(cluster).cloned().unwrap_or_default();
        let stored = self.write(work, old)?;
        self.works.insert(cluster.to_owned(), stored);
        Ok(())
    }

    fn work(&self, cluster: &str, manifest: Value) -> Value {
        let binding = BindingReference::of(&self.binding);
        let label = binding.permanent_id_label;
        let labels: Map<String, Value> =
            metadata::label(&self.binding, label).map(|id| (label.to_owned(), Value::from(id))).into_iter().collect();
        json!({
            "apiVersion": "work.karmada.io/v1alpha1",
            "kind": "Work",
            "metadata": {
                "name": binding.name, "namespace": karmada::namespace_of_cluster(cluster),
                "labels": labels, "annotations": binding.annotations(),
            },
            "spec": {"workload": {"manifests": [manifest]}},
        })
    }

    fn write_binding(&mut self, mut binding: Value) -> Result<(), Stop> {
        let old = self.binding.clone();
        // The request has a status, but a write of the spec can't change it.
        if let Some(status) = old.get("status") {
            *field(&mut binding, "status") = status.clone();
        }
        self.binding = self.write(binding, old)?;
        Ok(())
    }

    fn write(&mut self, object: Value, old: Value) -> Result<Value, Stop> {
        let request = admission_request(object, old);
        let verdict = self.decide(&request);
        let step = Step { request, verdict, binding: self.binding.clone() };
        let stored = match &step.verdict.outcome {
            Outcome::Deny { message, .. } => Err(Stop::Denied(message.clone())),
            Outcome::Accept | Outcome::Mutate(_) => Ok(step.stored().cloned().unwrap_or_default()),
        };
        self.steps.push(step);
        stored
    }

    fn decide(&self, request: &Value) -> Verdict {
        let Some(settings) = self.settings else { return Verdict::accept() };
        let text = request.to_string();
        match Request::from_json(&text) {
            Ok(request) => {
                evaluate(&request, settings, &WithBinding { binding: &self.binding, others: self.objects }).parsed()
            }
            Err(error) => Verdict::deny(error.to_string()),
        }
    }
}

/// The objects that lookups find, with the binding as it is stored now.
struct WithBinding<'a, C> {
    binding: &'a Value,
    others: &'a C,
}

impl<C: Cluster> Cluster for WithBinding<'_, C> {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        if object.is_for(self.binding) { Ok(Some(self.binding.clone())) } else { self.others.get(object) }
    }
}

/// The binding that Karmada creates for a resource that a policy selects and that runs in these clusters.
pub fn binding_of(policy: &Value, template: &Value, clusters: &[&str]) -> Value {
    let resource = ObjectReference::of(template);
    let name = format!("{}-{}", resource.name, resource.kind).to_lowercase().replace(':', ".");
    let BindingReference { kind, namespace, .. } = BindingReference::new(resource.namespace, &name);
    let mut metadata = json!({"name": name, "labels": {}});
    if let Some(namespace) = namespace {
        *field(&mut metadata, "namespace") = Value::from(namespace);
    }
    let mut spec = json!({
        "resource": {
            "apiVersion": template.get("apiVersion"), "kind": resource.kind,
            "namespace": resource.namespace, "name": resource.name,
        },
        "clusters": target_clusters(clusters),
    });
    for key in ["failover", "placement", "propagateDeps"] {
        if let Some(value) = policy.pointer(&format!("/spec/{key}")) {
            *field(&mut spec, key) = value.clone();
        }
    }
    json!({"apiVersion": BINDING_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

/// What Karmada's own preservation writes on a task; `None` where the policy has no rules.
///
/// Source: `pkg/util/helper/failover.go`, `BuildPreservedLabelState`: the first rule without a value is an error.
fn preserved_by_karmada(
    binding: Binding<'_>,
    from: &str,
    failover_type: FailoverType,
) -> Result<Option<Map<String, Value>>, Stop> {
    let rules = binding.failover().map(|failover| failover.rules(failover_type)).unwrap_or_default();
    if rules.is_empty() {
        return Ok(None);
    }
    let Some(status) = binding.status(from) else {
        return Err(Stop::Karmada(format!(
            "the application's status has not yet been collected from {from}: Karmada does not evict it"
        )));
    };
    let status = as_karmada_prints(status);
    let mut state = Map::new();
    for rule in rules {
        let value = JsonPath::template(rule.json_path).and_then(|json_path| json_path.print(&status));
        let value = value.map_err(|error| {
            let rule = quote(rule.json_path);
            Stop::Karmada(format!("{rule} has no value in {from} ({error}): Karmada does not evict the application"))
        })?;
        state.insert(rule.alias_label_name.to_owned(), Value::from(value));
    }
    Ok(Some(state))
}

/// The document with large and very small numbers as strings, in the form in which Karmada prints them: it decodes
/// numbers to float64 and prints `1e+06` where kubectl prints `1000000`.
fn as_karmada_prints(document: &Value) -> Value {
    match document {
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), as_karmada_prints(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(as_karmada_prints).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if float != 0.0 && (float.abs() >= 1e6 || float.abs() < 1e-4) => {
                let text = format!("{float:e}");
                let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
                let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
                Value::from(format!("{digits}e{sign}{exponent:0>2}"))
            }
            _ => document.clone(),
        },
        other => other.clone(),
    }
}

/// The labels that Karmada's own injection writes onto the manifest for `cluster`; `None` where it writes none.
///
/// Source: `pkg/controllers/binding/common.go`, `injectReservedLabelState`.
pub fn injected_state(binding: &Value, cluster: &str) -> Option<Map<String, Value>> {
    let binding = Binding::new(binding);
    let task = binding.tasks().pop()?;
    let is_one_cluster = binding.clusters_with_required_by().len() <= 1;
    let is_direct =
        !task.purge_mode().is_empty() && PurgeMode::from_name(task.purge_mode()) == Some(PurgeMode::Directly);
    let was_there = task.clusters_before_failover().is_some_and(|before| before.contains(&cluster));
    (is_one_cluster && is_direct && !was_there).then(|| task.preserved_label_state().cloned())?
}

/// The AdmissionRequest that writes `object`: an UPDATE of `old`, or a CREATE where that is null.
/// Source: `k8s.io/api/admission/v1`, `AdmissionRequest`, of which it has the fields that the policy reads.
pub fn admission_request(object: Value, old: Value) -> Value {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    let api_version = text("apiVersion");
    let group = group(api_version);
    let version = api_version.rsplit('/').next().unwrap_or_default();
    let metadata = |key: &str| object.pointer(&format!("/metadata/{key}")).cloned().unwrap_or(Value::from(""));
    json!({
        "uid": "",
        "kind": {"group": group, "version": version, "kind": text("kind")},
        "name": metadata("name"),
        "namespace": metadata("namespace"),
        "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
        "object": object,
        "oldObject": old,
    })
}

/// Fields of a template's metadata that Karmada does not propagate.
const PRUNED: [&str; 10] = [
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
    "ownerReferences",
    "finalizers",
];

/// Removes what Karmada does not propagate. Source: `pkg/resourceinterpreter/default/native/prune/prune.go`,
/// `RemoveIrrelevantFields`.
fn prune(template: &mut Value) {
    if let Some(template) = template.as_object_mut() {
        template.remove("status");
    }
    if let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !PRUNED.contains(&key.as_str()));
    }
}

/// `spec.clusters` of a binding.
fn target_clusters(clusters: &[&str]) -> Value {
    clusters.iter().map(|cluster| json!({"name": cluster})).collect()
}

fn push(list: &mut Value, item: Value) {
    match list.as_array_mut() {
        Some(items) => items.push(item),
        None => *list = Value::Array(vec![item]),
    }
}

/// The field `key`, mutable. `object` becomes an object where it is not one.
fn field<'a>(object: &'a mut Value, key: &str) -> &'a mut Value {
    if !object.is_object() {
        // Which indexing turns into an object.
        *object = Value::Null;
    }
    &mut object[key]
}

fn is_cluster(item: &Value, key: &str, cluster: &str) -> bool {
    item.get(key).and_then(Value::as_str) == Some(cluster)
}
