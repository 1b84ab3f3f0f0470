//! The stage feed, on the native core and on the module.

use std::sync::Arc;

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer};
use e2e_tests::project;
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
        "metadata": {"name": "x-1", "namespace": format!("karmada-es-{cluster}"), "labels": {id: "id-1"}, "annotations": annotations},
        "spec": {"workload": {"manifests": [manifest]}},
    })
}

/// Both policies' answer, which must be the same and idempotent, and how many lookups each made.
fn evaluate(work: &Value, old: &Value, settings: &Value, host: impl Fn() -> Host) -> (Answer, usize) {
    let request = json!({
        "kind": {"group": "work.karmada.io", "version": "v1alpha1", "kind": "Work"},
        "name": work["metadata"]["name"], "namespace": work["metadata"]["namespace"],
        "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": work, "oldObject": old,
    });
    let answers = policy::all().map(|implementation| {
        let host_now = Arc::new(host());
        let answer = implementation.validate(&request, settings, &host_now).unwrap();
        if answer.accepted {
            let mut again = request.clone();
            again["object"] = answer.apply(work).unwrap();
            let second = implementation.validate(&again, settings, &Arc::new(host())).unwrap();
            assert!(second.accepted && second.mutated_object.is_none(), "idempotent: {second:?}");
        }
        (answer, host_now.lookups().len())
    });
    let [native, module] = answers;
    assert_eq!(native, module);
    assert!(native.1 <= 1, "never more than one lookup");
    module
}

fn fed(work: &Value, old: &Value, binding: &Value) -> Value {
    let (answer, lookups) = evaluate(work, old, &json!({}), || Host::new(vec![binding.clone()]));
    assert!(answer.accepted, "{:?}", answer.message);
    assert_eq!(lookups, 1);
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

/// Every combination, with the outcome written down as a rule of its own: the conditions in docs/reference.md, read backwards.
#[test]
fn matrix() {
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

/// Nothing else fitted: the application comes back to the cluster that it was taken from, where its old copy is gone.
#[test]
fn back_to_where_it_came_from() {
    for (is_create, expected) in [(true, true), (false, false)] {
        let history = json!([record("a", &["a"], "Directly", "Pending")]).to_string();
        let binding = binding(
            Kind::Namespaced,
            json!({"clusters": [{"name": "a"}]}),
            json!({"stateful-failover/history": history}),
        );
        let work = work(Kind::Namespaced, "a", manifest(json!({})));
        let old = if is_create { Value::Null } else { work.clone() };
        let after = fed(&work, &old, &binding);
        assert_eq!(after.pointer("/metadata/annotations/stateful-failover~1state").is_some(), expected);
    }
}

#[test]
fn purge_modes_can_be_added() {
    let history = json!([record("a", &["a"], "Never", "Evicted")]).to_string();
    let binding =
        binding(Kind::Namespaced, json!({"clusters": [{"name": "b"}]}), json!({"stateful-failover/history": history}));
    let work = work(Kind::Namespaced, "b", manifest(json!({})));
    for (modes, expected) in [(json!(["Never"]), true), (json!(["Directly", "Gracefully"]), false), (json!([]), false)]
    {
        let settings = json!({"feed": {"purgeModes": modes}});
        let (answer, _) = evaluate(&work, &Value::Null, &settings, || Host::new(vec![binding.clone()]));
        assert_eq!(answer.mutated_object.is_some(), expected, "{modes}");
    }
}

fn owed(state: Value) -> Value {
    let mut record = record("a", &["a"], "Directly", "Pending");
    record["state"] = state;
    let annotations = json!({"stateful-failover/history": json!([record]).to_string()});
    binding(Kind::Namespaced, json!({"clusters": [{"name": "b"}]}), annotations)
}

/// What no label can hold is in the annotation, and says so. Labels of Karmada's own are left alone.
#[test]
fn what_is_written() {
    let state = json!({
        JOB: "7", "example.io/path": "s3://b/p", "example.io/long": "x".repeat(64), "karmada.io/managed": "false",
        "work.karmada.io/permanent-id": "z", "-x": "1", "stateful-failover/type": "x", "empty": "",
    });
    let labels = json!({"karmada.io/managed": "true", JOB: "old", "kept": "y"});
    let work = work(Kind::Namespaced, "b", manifest(json!({"labels": labels})));
    let binding = owed(state.clone());
    let (answer, _) = evaluate(&work, &Value::Null, &json!({}), || Host::new(vec![binding.clone()]));
    let after = answer.apply(&work).unwrap()["spec"]["workload"]["manifests"][0].clone();
    assert_eq!(
        after["metadata"]["labels"],
        json!({"karmada.io/managed": "true", JOB: "7", "kept": "y", "empty": "", "stateful-failover/type": "application", "stateful-failover/from": "a"})
    );
    let annotation: Value =
        serde_json::from_str(after["metadata"]["annotations"]["stateful-failover/state"].as_str().unwrap()).unwrap();
    assert_eq!(annotation, state);
    assert_eq!(
        answer.warnings(),
        [
            "`-x`: not a valid label name; it is in the annotation only",
            "`example.io/long`: not a valid label value; it is in the annotation only",
            "`example.io/path`: not a valid label value; it is in the annotation only",
            "`karmada.io/managed`: reserved by Karmada or this policy; it is in the annotation only",
            "`stateful-failover/type`: reserved by Karmada or this policy; it is in the annotation only",
            "`work.karmada.io/permanent-id`: reserved by Karmada or this policy; it is in the annotation only",
        ]
    );
    assert_eq!(after["spec"], manifest(json!({}))["spec"]);
}

#[test]
fn metadata_that_is_absent_null_or_of_a_wrong_type() {
    let binding = owed(json!({JOB: "7"}));
    for metadata in [json!({}), json!({"labels": null, "annotations": null}), json!({"labels": {}, "annotations": {}})]
    {
        let after = fed(&work(Kind::Namespaced, "b", manifest(metadata)), &Value::Null, &binding);
        assert_eq!(after["metadata"]["labels"][JOB], json!("7"));
    }
    for (field, found) in [("labels", json!("x")), ("annotations", json!([]))] {
        let work = work(Kind::Namespaced, "b", manifest(json!({field: found})));
        let (answer, _) = evaluate(&work, &Value::Null, &json!({}), || Host::new(vec![binding.clone()]));
        let message = answer.message.unwrap();
        assert!(message.starts_with("cannot feed the state to Deployment `default/x`: `metadata."), "{message}");
    }
}

/// Other manifests in the same Work, and those of another group, kind, namespace or name.
#[test]
fn only_the_bindings_resource_is_fed() {
    let binding = owed(json!({JOB: "7"}));
    for (pointer, value) in
        [("/apiVersion", "batch/v1"), ("/kind", "Job"), ("/metadata/namespace", "other"), ("/metadata/name", "other")]
    {
        let mut other = manifest(json!({}));
        *other.pointer_mut(pointer).unwrap() = json!(value);
        let mut work = work(Kind::Namespaced, "b", manifest(json!({})));
        work["spec"]["workload"]["manifests"].as_array_mut().unwrap().insert(0, other.clone());
        let (answer, _) = evaluate(&work, &Value::Null, &json!({}), || Host::new(vec![binding.clone()]));
        let manifests = answer.apply(&work).unwrap()["spec"]["workload"]["manifests"].clone();
        assert_eq!(manifests[0], other, "{pointer}");
        assert_eq!(manifests[1]["metadata"]["labels"][JOB], json!("7"));
    }
    let mut newer = manifest(json!({}));
    newer["apiVersion"] = json!("apps/v2");
    assert_eq!(fed(&work(Kind::Namespaced, "b", newer), &Value::Null, &binding)["metadata"]["labels"][JOB], json!("7"));
}

/// Once fed, the keys stay while Karmada rewrites the manifest from its template.
#[test]
fn fed_keys_are_kept() {
    let state = json!({JOB: "7", "example.io/path": "s3://b/p"});
    let first = fed(&work(Kind::Namespaced, "b", manifest(json!({}))), &Value::Null, &owed(state));
    let old = work(Kind::Namespaced, "b", first.clone());
    let recovered =
        json!({"stateful-failover/history": json!([record("a", &["a"], "Directly", "Recovered")]).to_string()});
    let over = binding(Kind::Namespaced, json!({"clusters": [{"name": "b"}]}), recovered);
    // Karmada rewrites the manifest; the template gains a label; the policy is edited and the application spreads.
    let labelled = manifest(json!({"labels": {"new": "1"}}));
    let after = fed(&work(Kind::Namespaced, "b", labelled), &old, &over);
    assert_eq!(after["metadata"]["labels"]["new"], json!("1"));
    assert_eq!(after["metadata"]["labels"][JOB], json!("7"));
    assert_eq!(after["metadata"]["annotations"], first["metadata"]["annotations"]);
    let spread = binding(Kind::Namespaced, json!({"clusters": [{"name": "b"}, {"name": "c"}]}), Value::Null);
    assert_eq!(fed(&work(Kind::Namespaced, "b", manifest(json!({}))), &old, &spread), first);
    // What the template sets itself is the template's, null or not.
    let own = manifest(json!({"labels": {JOB: "mine", "stateful-failover/from": "z"}}));
    let after = fed(&work(Kind::Namespaced, "b", own), &old, &over);
    assert_eq!(after["metadata"]["labels"][JOB], json!("mine"));
    assert_eq!(after["metadata"]["labels"]["stateful-failover/from"], json!("z"));
    // A label of the old manifest that is not in its state was not this policy's.
    let mut foreign = old.clone();
    foreign["spec"]["workload"]["manifests"][0]["metadata"]["labels"]["foreign"] = json!("x");
    assert_eq!(fed(&work(Kind::Namespaced, "b", manifest(json!({}))), &foreign, &over), first);
    // The next failover's state takes its place.
    let next = fed(&work(Kind::Namespaced, "b", manifest(json!({}))), &old, &owed(json!({JOB: "8"})));
    assert_eq!(next["metadata"]["labels"][JOB], json!("8"));
}

/// Every failure of the host, and the words that tell the operator what to do.
#[test]
fn lookup_failures() {
    let work = work(Kind::Namespaced, "b", manifest(json!({})));
    let granted = "has not been granted access";
    for (error, message) in [
        (
            format!("Policy {granted} to Kubernetes work.karmada.io/v1alpha2/ResourceBinding resources"),
            "the policy has not been granted access to this kind; add {apiVersion: work.karmada.io/v1alpha2, kind: ResourceBinding} to the policy's `contextAwareResources`",
        ),
        (
            format!("Policy {granted} to the host capability 'kubernetes/get_resource'"),
            "the policy has not been granted the host capability `kubernetes/get_resource`; add it to the policy's `hostCapabilities`",
        ),
        (
            "ApiError: resourcebindings is forbidden: User \"x\" cannot get: Forbidden (ErrorResponse)\n\nCaused by:\n    x".to_owned(),
            "forbidden by the API server; grant `get` on this kind to the policy server's service account",
        ),
        (
            "error finding resource work.karmada.io/v1alpha2 / ResourceBinding: the server could not find it".to_owned(),
            "the API server does not know this kind; install its CRD or fix the apiVersion",
        ),
        (
            "Cannot find resource ResourceBinding in work.karmada.io/v1alpha2".to_owned(),
            "the API server does not know this kind; install its CRD or fix the apiVersion",
        ),
        (
            "ServiceError: error trying to connect\n\nCaused by:\n    0: tcp connect error\n    1: Connection refused (os error 111)".to_owned(),
            "the API server did not answer (1: Connection refused (os error 111)); retrying is safe",
        ),
    ] {
        let host = || {
            let mut host = Host::default();
            host.fixed = Some(Err(error.clone()));
            host
        };
        let (rejected, lookups) = evaluate(&work, &Value::Null, &json!({}), host);
        assert_eq!(
            rejected.message.unwrap(),
            format!("cannot read ResourceBinding `default/x-deployment`: {message}; Work `karmada-es-b/x-1` is held back; Karmada will retry")
        );
        assert_eq!(lookups, 1);
        let accepting = json!({"feed": {"onLookupFailure": "Accept"}});
        let (accepted, _) = evaluate(&work, &Value::Null, &accepting, host);
        assert!(accepted.accepted && accepted.warnings()[0].starts_with("state not fed: cannot read ResourceBinding"));
        // What was fed before is kept all the same.
        let mut old = work.clone();
        let metadata = &mut old["spec"]["workload"]["manifests"][0]["metadata"];
        metadata["annotations"] = json!({"stateful-failover/state": "{\"a\":\"1\"}"});
        metadata["labels"] = json!({"stateful-failover/type": "cluster"});
        let (kept, _) = evaluate(&work, &old, &accepting, host);
        assert_eq!(kept.apply(&work).unwrap(), old);
    }
    for garbage in ["", "[]", "null", "{\"a\":", "\"x\""] {
        let host = || {
            let mut host = Host::default();
            host.fixed = Some(Ok(garbage.to_owned()));
            host
        };
        let (answer, _) = evaluate(&work, &Value::Null, &json!({}), host);
        let message = answer.message.unwrap();
        assert!(message.contains("the answer is not a Kubernetes object ("), "{garbage:?}: {message}");
    }
}

/// No lookup where there is nothing to look up, and none of its business.
#[test]
fn works_that_pass_as_they_came() {
    let binding = owed(json!({JOB: "7"}));
    let work = work(Kind::Namespaced, "b", manifest(json!({})));
    let pass = |work: &Value, host: Vec<Value>, lookups| {
        let (answer, made) = evaluate(work, &Value::Null, &json!({}), || Host::new(host.clone()));
        assert!(answer.accepted && answer.mutated_object.is_none() && answer.warnings().is_empty(), "{answer:?}");
        assert_eq!(made, lookups);
    };
    let mut unbound = work.clone();
    unbound["metadata"]["annotations"] = json!({"resourcebinding.karmada.io/name": "x-deployment"});
    pass(&unbound, vec![binding.clone()], 0);
    let mut elsewhere = work.clone();
    elsewhere["metadata"]["namespace"] = json!("default");
    pass(&elsewhere, vec![binding.clone()], 0);
    pass(&work, vec![], 1);
    let mut earlier = work.clone();
    earlier["metadata"]["labels"]["resourcebinding.karmada.io/permanent-id"] = json!("id-0");
    pass(&earlier, vec![binding], 1);
}
