//! Karmada's objects. This is the only place that knows the field names of Karmada's API.
//!
//! Source: `karmada-io/karmada`, `pkg/apis/work/v1alpha2/binding_types.go`, `pkg/apis/work/v1alpha1/work_types.go`,
//! `pkg/apis/policy/v1alpha1/propagation_types.go`. Objects are read through small views that borrow from the JSON:
//! a field of an unexpected type reads as absent, since the API server's own schema check reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::collected;
use crate::json::Fields;
use crate::metadata;
use crate::object_reference::ObjectReference;

/// API group of PropagationPolicy and ClusterPropagationPolicy.
pub const POLICY_GROUP: &str = "policy.karmada.io";
/// API group of ResourceBinding, ClusterResourceBinding and Work.
pub const WORK_GROUP: &str = "work.karmada.io";
/// apiVersion in which bindings are read.
pub const BINDING_API_VERSION: &str = "work.karmada.io/v1alpha2";

const WORK_NAMESPACE_PREFIX: &str = "karmada-es-";
const BINDING_NAMESPACE: &str = "resourcebinding.karmada.io/namespace";
const BINDING_NAME: &str = "resourcebinding.karmada.io/name";
const CLUSTER_BINDING_NAME: &str = "clusterresourcebinding.karmada.io/name";
const BINDING_PERMANENT_ID: &str = "resourcebinding.karmada.io/permanent-id";
const CLUSTER_BINDING_PERMANENT_ID: &str = "clusterresourcebinding.karmada.io/permanent-id";

/// Whether Karmada itself sets the label `key` on manifests; nobody else may then.
/// Source: `pkg/controllers/binding/common.go`, `mergeLabel`; `pkg/util/constants.go`.
pub fn is_own_label(key: &str) -> bool {
    key == "karmada.io/managed" || key.ends_with(".karmada.io/permanent-id")
}

/// Whether objects of that kind never have state. Their bindings may carry state rules all the same, since Karmada
/// copies the rules of a policy into the binding of every resource that the policy selects.
pub fn is_stateless(resource: ObjectReference<'_>) -> bool {
    matches!(
        (resource.group, resource.kind),
        ("", "ConfigMap" | "Secret" | "Service" | "ServiceAccount")
            | ("networking.k8s.io", "Ingress" | "NetworkPolicy")
            | ("policy", "PodDisruptionBudget")
            | ("autoscaling", "HorizontalPodAutoscaler")
            | ("rbac.authorization.k8s.io", "Role" | "RoleBinding" | "ClusterRole" | "ClusterRoleBinding")
    )
}

/// What failed: the application or its cluster. Karmada has a failover behaviour for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailoverType {
    /// `spec.failover.application`: the application was unhealthy for too long.
    Application,
    /// `spec.failover.cluster`: the cluster has a NoExecute taint that the application does not tolerate.
    Cluster,
}

impl FailoverType {
    /// The other type.
    pub fn other(self) -> Self {
        match self {
            Self::Application => Self::Cluster,
            Self::Cluster => Self::Application,
        }
    }

    /// `application` or `cluster`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Cluster => "cluster",
        }
    }
}

impl fmt::Display for FailoverType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the application is removed from its old cluster. Karmada before v1.19 has other names for two of the modes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PurgeMode {
    /// `Directly`, `Immediately`: removed at once, before the new copy starts.
    Directly,
    /// `Gracefully`, `Graciously`, and the default: kept until the new copy is healthy.
    Gracefully,
    /// `Never`: the old copy is kept.
    Never,
}

impl PurgeMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::Directly, Self::Gracefully, Self::Never];

    /// The mode of that name in any version of Karmada; `None` for an unknown one.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "Directly" | "Immediately" => Some(Self::Directly),
            "Gracefully" | "Graciously" | "" => Some(Self::Gracefully),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Its name in Karmada v1.19.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Directly => "Directly",
            Self::Gracefully => "Gracefully",
            Self::Never => "Never",
        }
    }
}

/// A rule of `statePreservation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatePreservationRule<'a> {
    /// `aliasLabelName`: the label that the value becomes.
    pub alias_label_name: &'a str,
    /// `jsonPath`: a JSONPath template whose root is the status.
    pub json_path: &'a str,
}

/// The failover behaviours of a policy or of a binding, which holds a copy of its policy's: `spec.failover`.
#[derive(Debug, Clone, Copy)]
pub struct Failover<'a>(&'a Value);

impl<'a> Failover<'a> {
    /// The `spec.failover` of `object`.
    pub fn of(object: &'a Value) -> Option<Self> {
        object.pointer("/spec/failover").filter(|failover| failover.is_object()).map(Self)
    }

    /// The behaviour for failovers of that type.
    pub fn behavior(self, failover_type: FailoverType) -> Option<&'a Value> {
        self.0.get(failover_type.as_str()).filter(|behavior| behavior.is_object())
    }

    /// `statePreservation.rules` of that behaviour. Rules that lack one of their two strings are left out: no API
    /// server stores them.
    pub fn rules(self, failover_type: FailoverType) -> Vec<StatePreservationRule<'a>> {
        let rules = self
            .behavior(failover_type)
            .and_then(|behavior| behavior.pointer("/statePreservation/rules"))
            .and_then(Value::as_array);
        rules
            .into_iter()
            .flatten()
            .filter_map(|rule| {
                Some(StatePreservationRule {
                    alias_label_name: rule.get("aliasLabelName")?.as_str()?,
                    json_path: rule.get("jsonPath")?.as_str()?,
                })
            })
            .collect()
    }
}

/// A ResourceBinding or ClusterResourceBinding.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a>(&'a Value);

/// The fields that [`Binding`] reads, without the statuses.
pub fn binding_fields() -> Fields<'static> {
    let mut fields = metadata::fields();
    for name in ["clusters", "failover", "gracefulEvictionTasks", "requiredBy", "resource"] {
        fields.member("spec").member(name).set_whole();
    }
    fields
}

/// Adds the application's status in these clusters, and only its health in all others.
pub fn add_statuses(fields: &mut Fields<'_>, clusters: Vec<String>) {
    let statuses = fields.at("status.aggregatedStatus");
    let status = statuses.each();
    status.member("clusterName");
    status.member("health");
    status.set_exact();
    statuses.set_whole_items("clusterName", clusters);
}

impl<'a> Binding<'a> {
    /// The view of `binding`.
    pub fn new(binding: &'a Value) -> Self {
        Self(binding)
    }

    /// The object itself.
    pub fn object(self) -> &'a Value {
        self.0
    }

    /// Names in `spec.clusters`: where the application is scheduled to.
    pub fn clusters(self) -> Vec<&'a str> {
        names(self.0.pointer("/spec/clusters"))
    }

    /// `spec.clusters` with the clusters of the bindings that require this one, each name once.
    /// Source: `pkg/controllers/binding/common.go`, `mergeTargetClusters`.
    pub fn clusters_with_required_by(self) -> Vec<&'a str> {
        let mut clusters = self.clusters();
        let mut known: BTreeSet<&str> = collected(clusters.iter().copied());
        let required_by = self.0.pointer("/spec/requiredBy").and_then(Value::as_array);
        for snapshot in required_by.into_iter().flatten() {
            clusters.extend(names(snapshot.get("clusters")).into_iter().filter(|name| known.insert(name)));
        }
        clusters
    }

    /// `spec.gracefulEvictionTasks`, oldest first.
    pub fn tasks(self) -> Vec<Task<'a>> {
        let tasks = self.0.pointer("/spec/gracefulEvictionTasks").and_then(Value::as_array);
        tasks.into_iter().flatten().map(Task).collect()
    }

    /// The eviction task from that cluster. Karmada never adds a second one.
    /// Source: `binding_types_helper.go`, `GracefulEvictCluster`.
    pub fn task(self, from_cluster: &str) -> Option<Task<'a>> {
        self.tasks().into_iter().find(|task| task.from_cluster() == from_cluster)
    }

    /// The binding's copy of its policy's failover behaviours.
    pub fn failover(self) -> Option<Failover<'a>> {
        Failover::of(self.0)
    }

    /// The item of `status.aggregatedStatus` for that cluster: there is one once the application was started there,
    /// until its Work is gone.
    pub fn aggregated_status(self, cluster: &str) -> Option<&'a Value> {
        self.0
            .pointer("/status/aggregatedStatus")?
            .as_array()?
            .iter()
            .find(|item| item.get("clusterName").and_then(Value::as_str) == Some(cluster))
    }

    /// The application's status in that cluster, as Karmada's interpreter reflects it.
    pub fn status(self, cluster: &str) -> Option<&'a Value> {
        self.aggregated_status(cluster)?.get("status").filter(|status| !status.is_null())
    }

    /// Whether the application is healthy in that cluster. `Unknown` is not healthy.
    pub fn is_healthy(self, cluster: &str) -> bool {
        let health = self.aggregated_status(cluster).and_then(|item| item.get("health"));
        health.and_then(Value::as_str) == Some("Healthy")
    }

    /// The clusters in `status.aggregatedStatus`, each with whether the application is healthy there.
    pub fn health(self) -> BTreeMap<&'a str, bool> {
        let items = self.0.pointer("/status/aggregatedStatus").and_then(Value::as_array);
        let mut health = BTreeMap::new();
        for item in items.into_iter().flatten() {
            health.entry(text(item, "clusterName")).or_insert(text(item, "health") == "Healthy");
        }
        health
    }

    /// Namespace and name of the binding that requires this one in `cluster`, if there is exactly one: this binding is
    /// attached to it then and follows it. Source: `pkg/dependenciesdistributor/dependencies_distributor.go`,
    /// `createOrUpdateAttachedBinding`.
    pub fn requirer_in(self, cluster: &str) -> Option<(&'a str, &'a str)> {
        let required_by = self.0.pointer("/spec/requiredBy").and_then(Value::as_array);
        let in_cluster = |snapshot: &&Value| names(snapshot.get("clusters")).contains(&cluster);
        let mut requirers = required_by.into_iter().flatten().filter(in_cluster);
        let requirer = requirers.next()?;
        let name = text(requirer, "name");
        (requirers.next().is_none() && !name.is_empty()).then(|| (text(requirer, "namespace"), name))
    }

    /// What the binding propagates.
    pub fn resource(self) -> ObjectReference<'a> {
        ObjectReference::new(self.0.pointer("/spec/resource").unwrap_or(&Value::Null))
    }
}

/// An item of `spec.gracefulEvictionTasks`.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a>(&'a Value);

impl<'a> Task<'a> {
    /// The cluster that the application is evicted from.
    pub fn from_cluster(self) -> &'a str {
        text(self.0, "fromCluster")
    }

    /// The reason that the producer gives.
    pub fn reason(self) -> &'a str {
        text(self.0, "reason")
    }

    /// The component that wrote the task.
    pub fn producer(self) -> &'a str {
        text(self.0, "producer")
    }

    /// The name of the purge mode; empty where there is none.
    pub fn purge_mode(self) -> &'a str {
        text(self.0, "purgeMode")
    }

    /// Set by the graceful eviction controller when it first sees the task; RFC 3339.
    pub fn creation_timestamp(self) -> Option<&'a str> {
        self.0.get("creationTimestamp")?.as_str()
    }

    /// The state that Karmada feeds; absent and null are `None`.
    pub fn preserved_label_state(self) -> Option<&'a Map<String, Value>> {
        self.0.get("preservedLabelState")?.as_object()
    }

    /// Where the application ran before; absent and null are `None`.
    pub fn clusters_before_failover(self) -> Option<Vec<&'a str>> {
        let clusters = self.0.get("clustersBeforeFailover")?.as_array()?;
        Some(clusters.iter().filter_map(Value::as_str).collect())
    }

    /// Whether the task stays even after the new copy is healthy (`suppressDeletion`, purge mode Never). Such a task
    /// does not mean that the new copy was never healthy. Source: `pkg/controllers/gracefuleviction/evictiontask.go`,
    /// `assessSingleTask`.
    pub fn is_kept_forever(self) -> bool {
        self.0.get("suppressDeletion").and_then(Value::as_bool) == Some(true)
    }

    /// Which behaviour of the policy the eviction follows.
    /// Source: `pkg/controllers/cluster/taint_manager.go`, `pkg/controllers/applicationfailover/common.go`.
    pub fn failover_type(self) -> FailoverType {
        if self.reason() == "TaintUntolerated" || self.producer() == "TaintManager" {
            FailoverType::Cluster
        } else {
            FailoverType::Application
        }
    }

    /// Whether the reason is one of Karmada's own, so that its behaviour is known.
    pub fn has_known_reason(self) -> bool {
        matches!(self.reason(), "ApplicationFailure" | "TaintUntolerated")
    }
}

/// The item of `spec.gracefulEvictionTasks` from that cluster, mutable.
pub fn task_mut<'a>(binding: &'a mut Value, from_cluster: &str) -> Option<&'a mut Map<String, Value>> {
    binding
        .pointer_mut("/spec/gracefulEvictionTasks")?
        .as_array_mut()?
        .iter_mut()
        .find(|task| Task(task).from_cluster() == from_cluster)?
        .as_object_mut()
}

/// Writes `preservedLabelState` of a task, or removes it where it would be empty.
pub fn set_preserved_label_state(task: &mut Map<String, Value>, state: Map<String, Value>) {
    if state.is_empty() {
        task.remove("preservedLabelState");
    } else {
        task.insert("preservedLabelState".to_owned(), Value::Object(state));
    }
}

/// Writes `clustersBeforeFailover` of a task.
pub fn set_clusters_before_failover<'a>(task: &mut Map<String, Value>, clusters: impl IntoIterator<Item = &'a str>) {
    let clusters = clusters.into_iter().map(Value::from).collect();
    task.insert("clustersBeforeFailover".to_owned(), Value::Array(clusters));
}

/// The binding that a Work was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindingReference<'a> {
    /// `ResourceBinding` or `ClusterResourceBinding`.
    pub kind: &'static str,
    /// `None` for a ClusterResourceBinding.
    pub namespace: Option<&'a str>,
    /// Name of the binding.
    pub name: &'a str,
    /// The label that holds the permanent id, on the binding and on the Work.
    pub permanent_id_label: &'static str,
}

impl fmt::Display for BindingReference<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = *self;
        ObjectReference { group: WORK_GROUP, kind, namespace: namespace.unwrap_or_default(), name }.fmt(f)
    }
}

/// A Work: the manifests that go to one cluster.
#[derive(Debug, Clone, Copy)]
pub struct Work<'a>(&'a Value);

impl<'a> BindingReference<'a> {
    /// The ResourceBinding of that namespace and name; without a namespace, the ClusterResourceBinding.
    pub fn new(namespace: &'a str, name: &'a str) -> Self {
        if namespace.is_empty() {
            let permanent_id_label = CLUSTER_BINDING_PERMANENT_ID;
            return Self { kind: "ClusterResourceBinding", namespace: None, name, permanent_id_label };
        }
        let permanent_id_label = BINDING_PERMANENT_ID;
        Self { kind: "ResourceBinding", namespace: Some(namespace), name, permanent_id_label }
    }

    /// The reference of a whole binding.
    pub fn of(binding: &'a Value) -> Self {
        let reference = ObjectReference::of(binding);
        Self::new(reference.namespace, reference.name)
    }

    /// The annotations by which a Work names it, as [`Work::binding`] reads them.
    pub fn annotations(&self) -> Map<String, Value> {
        let annotations = match self.namespace {
            Some(namespace) => vec![(BINDING_NAMESPACE, namespace), (BINDING_NAME, self.name)],
            None => vec![(CLUSTER_BINDING_NAME, self.name)],
        };
        annotations.into_iter().map(|(key, value)| (key.to_owned(), Value::from(value))).collect()
    }
}

/// The fields that [`Work`] reads, with these fields of each manifest.
pub fn work_fields(of_manifest: Fields<'_>) -> Fields<'_> {
    let mut fields = metadata::fields();
    *fields.at("spec.workload.manifests").each() = of_manifest;
    fields
}

impl<'a> Work<'a> {
    /// The view of `work`.
    pub fn new(work: &'a Value) -> Self {
        Self(work)
    }

    /// The binding that the Work's annotations name. Source: `pkg/controllers/binding/common.go`, `mergeAnnotations`.
    pub fn binding(self) -> Option<BindingReference<'a>> {
        let annotation = |key| metadata::annotation(self.0, key).filter(|value| !value.is_empty());
        if let (Some(namespace), Some(name)) = (annotation(BINDING_NAMESPACE), annotation(BINDING_NAME)) {
            return Some(BindingReference::new(namespace, name));
        }
        Some(BindingReference::new("", annotation(CLUSTER_BINDING_NAME)?))
    }

    /// `spec.workload.manifests`.
    pub fn manifests(self) -> &'a [Value] {
        let manifests = self.0.pointer("/spec/workload/manifests").and_then(Value::as_array);
        manifests.map(Vec::as_slice).unwrap_or_default()
    }
}

/// `spec.workload.manifests`, mutable.
pub fn manifests_mut(work: &mut Value) -> &mut [Value] {
    let manifests = work.pointer_mut("/spec/workload/manifests").and_then(Value::as_array_mut);
    manifests.map(Vec::as_mut_slice).unwrap_or_default()
}

/// The member cluster whose Works are in that namespace. Source: `pkg/util/names/names.go`,
/// `GenerateExecutionSpaceName`.
pub fn cluster_of_namespace(namespace: &str) -> Option<&str> {
    namespace.strip_prefix(WORK_NAMESPACE_PREFIX).filter(|cluster| !cluster.is_empty())
}

/// The namespace of the Works for that member cluster.
pub fn namespace_of_cluster(cluster: &str) -> String {
    format!("{WORK_NAMESPACE_PREFIX}{cluster}")
}

fn names(items: Option<&Value>) -> Vec<&str> {
    let items = items.and_then(Value::as_array);
    items.into_iter().flatten().filter_map(|item| item.get("name")?.as_str()).collect()
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}
