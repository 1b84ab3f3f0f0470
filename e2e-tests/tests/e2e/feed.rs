//! The stage feed: to which Works the state goes, as a table of all combinations. Single requests are in `cases/feed`.

use e2e_tests::host::Host;
use e2e_tests::{case, policy, project, request};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const JOB: &str = "example.io/job";

/// The two kinds of binding.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Namespaced,
    Cluster,
}

fn binding(kind: Kind, spec: Value, annotations: Value) -> Value {
    let (kind, namespace, id) = match kind {
        Kind::Namespaced => ("ResourceBinding", json!("default"), "resourcebinding.karmada.io/permanent-id"),
        Kind::Cluster => ("ClusterResourceBinding", Value::Null, "clusterresourcebinding.karmada.io/permanent-id"),
    };
    let mut binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": kind,
        "metadata": {"name": "x-deployment", "labels": {id: "id-1"}, "annotations": annotations},
        "spec": spec,
    });
    if !namespace.is_null() {
        binding["metadata"]["namespace"] = namespace;
    }
    binding["spec"]["resource"] =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "x"});
    binding
}

fn manifest(metadata: Value) -> Value {
    let mut manifest =
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1}});
    manifest["metadata"]["name"] = json!("x");
    manifest["metadata"]["namespace"] = json!("default");
    manifest
}

fn work(kind: Kind, cluster: &str, manifest: Value) -> Value {
    let (annotations, id) = match kind {
        Kind::Namespaced => (
            json!({"resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": "x-deployment"}),
            "resourcebinding.karmada.io/permanent-id",
        ),
        Kind::Cluster => (
            json!({"clusterresourcebinding.karmada.io/name": "x-deployment"}),
            "clusterresourcebinding.karmada.io/permanent-id",
        ),
    };
    json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {"name": "x-1", "namespace": format!("karmada-es-{cluster}"), "labels": {id: "id-1"}, "annotations": annotations},
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

fn fed(work: &Value, old: &Value, binding: &Value) -> Value {
    let (answer, host) = policy::evaluate(&request::write(work, old), &json!({}), || Host::new(vec![binding.clone()]));
    assert!(answer.accepted, "{:?}", answer.message);
    assert_eq!(host.lookups().len(), 1);
    answer.apply(work).unwrap()["spec"]["workload"]["manifests"][0].clone()
}

/// A vector of Karmada's own decision. `null` after the feed: nothing was fed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    target_clusters: Option<Vec<String>>,
    required_by_clusters: Option<Vec<String>>,
    graceful_eviction_tasks: Value,
    work_cluster: String,
    manifest_labels: Option<Map<String, Value>>,
    labels_after_feed: Option<Map<String, Value>>,
}

/// `testdata/vectors/feed.json`: what Karmada's own feed decides for bindings without a history.
#[test]
fn without_a_history_as_karmada_decides() {
    let vectors: Vec<Vector> =
        serde_json::from_str(&std::fs::read_to_string(project("testdata/vectors/feed.json")).unwrap()).unwrap();
    let mut fed_count = 0;
    for (index, vector) in vectors.iter().enumerate() {
        let clusters = |names: &Option<Vec<String>>| -> Vec<Value> {
            names.iter().flatten().map(|name| json!({"name": name})).collect()
        };
        let mut spec = json!({"clusters": clusters(&vector.target_clusters), "gracefulEvictionTasks": vector.graceful_eviction_tasks});
        if vector.required_by_clusters.is_some() {
            spec["requiredBy"] =
                json!([{"namespace": "default", "name": "y", "clusters": clusters(&vector.required_by_clusters)}]);
        }
        let before = manifest(json!({"labels": vector.manifest_labels}));
        let work = work(Kind::Namespaced, &vector.work_cluster, before.clone());
        let binding = binding(Kind::Namespaced, spec, Value::Null);
        for old in [Value::Null, work.clone()] {
            let after = fed(&work, &old, &binding);
            let mut labels = after["metadata"]["labels"].as_object().cloned().unwrap_or_default();
            labels.retain(|key, _| !key.starts_with("stateful-failover/"));
            let expected = vector.labels_after_feed.clone().unwrap_or_default();
            assert_eq!(labels, expected, "vector {index}");
            if after != before {
                fed_count += 1;
            }
        }
    }
    println!("{} vectors, {} fed", vectors.len(), fed_count / 2);
    assert_eq!(vectors.len(), 180);
    assert!(fed_count > 0);
}

fn record(from: &str, before: &[&str], purge_mode: &str, phase: &str) -> Value {
    json!({"type": "application", "from": from, "before": before, "purgeMode": purge_mode, "state": {JOB: "7"}, "phase": phase})
}

/// Every combination, with the outcome written down as a rule of its own: the conditions in docs/reference.md, read
/// backwards.
#[test]
fn state_is_fed_to_the_one_new_cluster_of_an_open_move() {
    let mut count = 0;
    for kind in [Kind::Namespaced, Kind::Cluster] {
        for purge_mode in ["Directly", "Immediately", "Gracefully", "Graciously", "Never", ""] {
            for clusters in [&["b"][..], &["b", "c"], &["a"], &[]] {
                for before in [&["a"][..], &["a", "b"], &[]] {
                    for phase in ["", "Evicted", "Pending", "Expired", "Recovered", "Superseded"] {
                        for is_create in [true, false] {
                            for is_native in [true, false] {
                                let outcome = check(kind, purge_mode, clusters, before, phase, is_create, is_native);
                                let is_direct = matches!(purge_mode, "Directly" | "Immediately");
                                let is_target = clusters == ["b"];
                                let was_there = before.contains(&"b");
                                let is_owed = match phase {
                                    // Without a history: the last task, as long as it stands.
                                    "" | "Evicted" | "Pending" => true,
                                    "Expired" => is_create,
                                    _ => false,
                                };
                                let expected = is_direct && is_target && !was_there && is_owed;
                                assert_eq!(
                                    outcome, expected,
                                    "{kind:?} {purge_mode} {clusters:?} {before:?} {phase} {is_create} {is_native}"
                                );
                                count += 1;
                            }
                        }
                    }
                }
            }
        }
    }
    println!("{count} combinations");
}

/// Whether the Work of cluster `b` is fed after a failover from `a`. `phase` is empty where there is no history.
fn check(
    kind: Kind,
    purge_mode: &str,
    clusters: &[&str],
    before: &[&str],
    phase: &str,
    is_create: bool,
    is_native: bool,
) -> bool {
    let clusters: Vec<Value> = clusters.iter().map(|name| json!({"name": name})).collect();
    let mut task = json!({"fromCluster": "a", "purgeMode": purge_mode, "reason": "ApplicationFailure", "producer": "x",
        "preservedLabelState": {JOB: "7"}, "clustersBeforeFailover": before});
    if before.is_empty() {
        task.as_object_mut().unwrap().remove("clustersBeforeFailover");
    }
    let has_task = matches!(phase, "" | "Evicted");
    let spec = json!({"clusters": clusters, "gracefulEvictionTasks": if has_task { json!([task]) } else { json!([]) }});
    let annotations = match phase {
        "" => Value::Null,
        phase => json!({"stateful-failover/history": json!([record("a", before, purge_mode, phase)]).to_string()}),
    };
    let binding = binding(kind, spec, annotations);
    // With its gate on, Karmada's own label may be there before the policy sees the Work: that feeds nothing by itself.
    let labels = if is_native { json!({JOB: "7"}) } else { json!({}) };
    let work = work(kind, "b", manifest(json!({"labels": labels})));
    let old = if is_create { Value::Null } else { work.clone() };
    let after = fed(&work, &old, &binding);
    let state = after.pointer("/metadata/annotations/stateful-failover~1state");
    if state.is_some() {
        assert_eq!(state, Some(&json!(json!({JOB: "7"}).to_string())));
        assert_eq!(
            after["metadata"]["labels"],
            json!({JOB: "7", "stateful-failover/type": "application", "stateful-failover/from": "a"})
        );
    }
    state.is_some()
}

/// With `onLookupFailure: Accept`, a Work passes unfed whatever the failure is, and what was fed before is kept.
#[test]
fn lookup_failures_can_be_accepted() {
    let accepting = json!({"feed": {"onLookupFailure": "Accept"}});
    let mut count = 0;
    for case in
        case::all().unwrap().iter().filter(|case| case.name.starts_with("feed/lookup-") && case.settings.is_null())
    {
        let work = &case.request.as_ref().unwrap()["object"];
        let (accepted, _) = policy::evaluate(&request::write(work, &Value::Null), &accepting, || case.host());
        assert!(accepted.accepted && accepted.mutated_object.is_none(), "{}", case.name);
        assert!(accepted.warnings()[0].starts_with("state not fed: cannot read ResourceBinding"), "{}", case.name);
        let mut old = work.clone();
        let metadata = &mut old["spec"]["workload"]["manifests"][0]["metadata"];
        metadata["annotations"] = json!({"stateful-failover/state": "{\"a\":\"1\"}"});
        metadata["labels"] = json!({"stateful-failover/type": "cluster"});
        let (kept, _) = policy::evaluate(&request::write(work, &old), &accepting, || case.host());
        assert_eq!(kept.apply(work).unwrap(), old, "{}", case.name);
        count += 1;
    }
    assert!(count >= 11, "{count} failures");
}
