//! Reads `match` of a rule. Values that can't match any workload are errors that show the right form.

use super::reader::{Errors, FieldPath, Object};
use crate::labels::is_dns_subdomain;
use crate::messages::quote;
use crate::workload_match::{ALL, WorkloadMatch};

/// Kinds that users write rules for: those of Kubernetes that have state, and those of the examples.
const KNOWN_KINDS: [&str; 36] = [
    "Pod",
    "PersistentVolumeClaim",
    "PersistentVolume",
    "ConfigMap",
    "Secret",
    "Service",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "ReplicaSet",
    "Job",
    "CronJob",
    "Workflow",
    "Cluster",
    "DebeziumServer",
    "Elasticsearch",
    "FlinkDeployment",
    "FlinkSessionJob",
    "FlinkBlueGreenDeployment",
    "FlinkStateSnapshot",
    "JobSet",
    "KafkaConnect",
    "KafkaConnector",
    "MPIJob",
    "PyTorchJob",
    "TFJob",
    "Notebook",
    "RayCluster",
    "RayJob",
    "RayService",
    "PipelineRun",
    "ScheduledSparkApplication",
    "SparkApplication",
    "TrainJob",
    "VirtualMachine",
    "postgresql",
];

/// Reads `apiGroups`, `kinds` and `namespaces` of `object`.
pub(super) fn read(object: &Object<'_>, errors: &mut Errors) -> WorkloadMatch {
    for key in ["apiGroups", "kinds"] {
        if object.get(key).and_then(serde_json::Value::as_array).is_none_or(Vec::is_empty) {
            errors.add(&object.path, format_args!("`{key}` is missing or empty"));
        }
    }
    let read = |key: &str, problem: fn(&str) -> Option<String>, errors: &mut Errors| {
        let items = object.strings(key, errors);
        for (index, item) in items.iter().enumerate() {
            if let Some(problem) = problem(item) {
                errors.add(&item_path(object, key, index), format_args!("{} {problem}", quote(item)));
            }
        }
        items
    };
    let api_groups = read("apiGroups", group_problem, errors);
    let kinds = read("kinds", kind_problem, errors);
    let namespaces = read("namespaces", namespace_problem, errors);
    let is_all = |items: &[String]| items.iter().any(|item| item == ALL);
    if is_all(&api_groups) && is_all(&kinds) {
        errors.add(
            &object.path,
            format_args!("`{ALL}` for both groups and kinds matches every object; name one of them"),
        );
    }
    WorkloadMatch { api_groups, kinds, namespaces }
}

fn item_path(object: &Object<'_>, key: &str, index: usize) -> FieldPath {
    object.path_of(key).item(index)
}

fn group_problem(group: &str) -> Option<String> {
    if group.is_empty() || group == ALL {
        return None;
    }
    if let Some((name, _)) = group.split_once('/') {
        let name = if name == "core" { "" } else { name };
        return Some(format!("has a version, write the group alone: `{name}`"));
    }
    if group == "core" || is_version(group) {
        return Some("is not a group; the core group is written `\"\"`".to_owned());
    }
    if group.contains('*') {
        return Some(format!("is a pattern, which groups can't be; name the groups, or write `{ALL}` for all"));
    }
    (!is_dns_subdomain(group)).then(|| "is not a group: expected a DNS subdomain in lower case, as `apps`".to_owned())
}

/// `v1`, `v1beta1`, `v2alpha3`. Source: `k8s.io/apimachinery/pkg/version`, `kubeVersionRegex`.
fn is_version(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('v') else { return false };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits(rest)
        || ["alpha", "beta"]
            .iter()
            .any(|stage| rest.split_once(stage).is_some_and(|(major, minor)| digits(major) && digits(minor)))
}

fn kind_problem(kind: &str) -> Option<String> {
    if kind == ALL {
        return None;
    }
    if kind.is_empty() {
        return Some("is empty, name a kind".to_owned());
    }
    if kind.contains('*') {
        return Some(format!("is a pattern, which kinds can't be; name the kinds, or write `{ALL}` for all"));
    }
    if let Some((first, rest)) = kind.split_once('/') {
        let last = rest.rsplit('/').next().unwrap_or(rest);
        let is_subresource = rest == last && last.starts_with(|c: char| c.is_ascii_lowercase()) && !is_version(last);
        let (name, what) = if is_subresource {
            (first, "is a subresource, which the policy never sees")
        } else {
            (last, "has a group or version")
        };
        return Some(format!("{what}; write the kind alone: `{}`", singular(name)));
    }
    if let Some((name, group)) = kind.split_once('.') {
        let group = group.split_once('.').filter(|(version, _)| is_version(version)).map_or(group, |(_, group)| group);
        return Some(format!("has a group; write the kind `{}`, and `{group}` in `apiGroups`", singular(name)));
    }
    if !kind.bytes().all(|b| b.is_ascii_alphanumeric()) {
        return Some("is not a kind: expected letters and digits, as `Deployment`".to_owned());
    }
    let right = singular(kind);
    let is_plural = kind.ends_with('s') && kind.starts_with(|c: char| c.is_ascii_lowercase());
    (right != kind || is_plural).then(|| format!("is not a kind, expected its singular as in manifests: `{right}`"))
}

/// The kind that a resource name, or a kind in the wrong case, most likely means.
fn singular(name: &str) -> String {
    let known =
        |name: &str| KNOWN_KINDS.iter().find(|known| known.eq_ignore_ascii_case(name)).map(|known| (*known).to_owned());
    let stem = name.strip_suffix('s').unwrap_or(name);
    let is_resource = name.starts_with(|c: char| c.is_ascii_lowercase());
    known(name).or_else(|| known(stem)).unwrap_or_else(|| if is_resource { stem.to_owned() } else { name.to_owned() })
}

fn namespace_problem(glob: &str) -> Option<String> {
    if glob.is_empty() {
        return Some(
            "is empty and matches nothing; leave `namespaces` out for all and for cluster-scoped kinds".to_owned(),
        );
    }
    let is_legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'*' | b'?');
    (!glob.bytes().all(is_legal)).then(|| {
        "matches no namespace: expected lower case letters, digits, `-`, and the wildcards `*` and `?`".to_owned()
    })
}
