//! The stage preserve: tables and large input. Single requests are in `cases/preserve` and `cases/guard`.

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer};
use e2e_tests::request;
use serde_json::{Value, json};

const JOB: &str = "example.io/job";

fn rules(rules: &[(&str, &str)]) -> Value {
    let rules: Vec<Value> =
        rules.iter().map(|(alias, path)| json!({"aliasLabelName": alias, "jsonPath": path})).collect();
    json!({"purgeMode": "Directly", "statePreservation": {"rules": rules}})
}

fn task(from: &str, reason: &str, producer: &str) -> Value {
    json!({"fromCluster": from, "purgeMode": "Directly", "reason": reason, "producer": producer})
}

fn failed(from: &str) -> Value {
    task(from, "ApplicationFailure", "resource-binding-application-failover-controller")
}

/// A binding in cluster `a`, whose status has a job id.
fn stored(status: Value) -> Value {
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {
            "resource": {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "namespace": "default", "name": "x"},
            "failover": {"application": rules(&[(JOB, "{.jobId}")])},
            "clusters": [{"name": "a"}],
        },
        "status": {"aggregatedStatus": [{"clusterName": "a", "health": "Unhealthy", "status": status}]},
    })
}

fn evicted(stored: &Value, tasks: Value) -> Value {
    let mut binding = stored.clone();
    binding["spec"]["clusters"] = json!([]);
    binding["spec"]["gracefulEvictionTasks"] = tasks;
    binding
}

fn evaluate(object: &Value, old: &Value, settings: &Value) -> Answer {
    policy::evaluate(&request::write(object, old), settings, Host::default).0
}

fn accepted(object: &Value, old: &Value, settings: &Value) -> Value {
    let answer = evaluate(object, old, settings);
    assert!(answer.accepted, "{:?}", answer.message);
    answer.apply(object).unwrap()
}

fn history(binding: &Value) -> Value {
    let text = binding.pointer("/metadata/annotations/stateful-failover~1history").map(|text| text.as_str().unwrap());
    text.map_or(Value::Null, |text| serde_json::from_str(text).unwrap())
}

fn labels(binding: &Value) -> &Value {
    &binding["spec"]["gracefulEvictionTasks"][0]["preservedLabelState"]
}

/// The behaviour that an eviction follows. Source: `karmada-io/karmada`, `taint_manager.go` and
/// `applicationfailover/common.go`; with an unknown reason, the producer decides.
#[test]
fn an_eviction_follows_the_behaviour_of_its_reason() {
    let application = rules(&[(JOB, "{.of.application}")]);
    let cluster = rules(&[(JOB, "{.of.cluster}")]);
    let status =
        json!({"of": {"application": "from-application", "cluster": "from-cluster", "settings": "from-settings"}});
    let settings = json!({"preserve": {"rules": [{
        "match": {"apiGroups": ["flink.apache.org"], "kinds": ["FlinkDeployment"], "namespaces": ["def*"]},
        "rules": [{"aliasLabelName": JOB, "jsonPath": "$.of.settings"}],
    }]}});
    let both = json!({"application": application, "cluster": cluster});
    let only_application = json!({"application": application, "cluster": {"purgeMode": "Directly"}});
    let only_cluster = json!({"cluster": cluster});
    let none = json!({"application": {"statePreservation": {"rules": []}}});
    for (reason, producer, failover, failover_type, value) in [
        ("TaintUntolerated", "TaintManager", &both, "cluster", "from-cluster"),
        ("TaintUntolerated", "other", &both, "cluster", "from-cluster"),
        ("Other", "TaintManager", &both, "cluster", "from-cluster"),
        (
            "ApplicationFailure",
            "resource-binding-application-failover-controller",
            &both,
            "application",
            "from-application",
        ),
        (
            "ApplicationFailure",
            "cluster-resource-binding-application-failover-controller",
            &both,
            "application",
            "from-application",
        ),
        ("Other", "other", &both, "application", "from-application"),
        ("Other", "other", &only_cluster, "application", "from-cluster"),
        ("Other", "TaintManager", &only_application, "cluster", "from-application"),
        ("ApplicationFailure", "x", &only_cluster, "application", "from-settings"),
        ("TaintUntolerated", "TaintManager", &only_application, "cluster", "from-settings"),
        ("Other", "other", &none, "application", "from-settings"),
        ("TaintUntolerated", "TaintManager", &Value::Null, "cluster", "from-settings"),
    ] {
        let mut old = stored(status.clone());
        old["spec"]["failover"] = failover.clone();
        let binding = accepted(&evicted(&old, json!([task("a", reason, producer)])), &old, &settings);
        assert_eq!(labels(&binding)[JOB], json!(value), "{reason} {producer} {failover}");
        assert_eq!(history(&binding)[0]["type"], json!(failover_type), "{reason} {producer}");
    }
    // No rules: the task is left alone.
    let mut old = stored(status);
    old["spec"]["failover"] = Value::Null;
    let object = evicted(&old, json!([failed("a")]));
    assert_eq!(evaluate(&object, &old, &json!({})).mutated_object, None);
}

/// The names of all versions are recorded as they are.
#[test]
fn purge_modes_are_recorded_by_their_names() {
    for purge_mode in
        [json!("Directly"), json!("Immediately"), json!("Gracefully"), json!("Graciously"), json!("Never"), Value::Null]
    {
        let old = stored(json!({"jobId": "j"}));
        let mut task = failed("a");
        task["purgeMode"] = purge_mode.clone();
        let binding = accepted(&evicted(&old, json!([task])), &old, &json!({}));
        assert_eq!(labels(&binding), &json!({JOB: "j"}));
        assert_eq!(history(&binding)[0].get("purgeMode").cloned().unwrap_or_default(), purge_mode);
    }
}

/// A value of more than 4,096 bytes counts as missing.
#[test]
fn a_value_has_a_maximum_length() {
    let why = "the value has 4097 bytes, more than 4096";
    let old = stored(json!({"jobId": "x".repeat(4097)}));
    let mut task = failed("a");
    task["preservedLabelState"] = json!({JOB: "null"});
    let object = evicted(&old, json!([task]));
    let denied = evaluate(&object, &old, &json!({}));
    assert_eq!(
        denied.message.unwrap(),
        format!(
            "cannot evict FlinkDeployment `default/x` without losing its state: from `a`: `example.io/job` (jsonPath \
             `{{.jobId}}`): {why}; fix the jsonPath in `statePreservation` of its policy or wait until the status has \
             the value, or set `preserve.onMissingState: Proceed` to evict without it"
        )
    );
    let binding = accepted(&object, &old, &json!({"preserve": {"onMissingState": "Proceed"}}));
    assert_eq!(history(&binding)[0]["missing"], json!({JOB: why}));
    assert_eq!(history(&binding)[0].get("state"), None);
    assert_eq!(labels(&binding), &Value::Null);
    assert_eq!(binding["spec"]["gracefulEvictionTasks"][0]["clustersBeforeFailover"], json!(["a"]));
}

/// Karmada copies the rules of a policy into the binding of every resource that the policy selects. Resources without
/// state are evicted all the same.
#[test]
fn resources_without_state_are_evicted() {
    let reference = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind, "namespace": "default", "name": "x"});
    let stateless = [
        reference("v1", "ConfigMap"),
        reference("v1", "Secret"),
        reference("v1", "Service"),
        reference("v1", "ServiceAccount"),
        reference("networking.k8s.io/v1", "Ingress"),
        reference("networking.k8s.io/v1", "NetworkPolicy"),
        reference("policy/v1", "PodDisruptionBudget"),
        reference("autoscaling/v2", "HorizontalPodAutoscaler"),
        reference("rbac.authorization.k8s.io/v1", "ClusterRole"),
        reference("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ];
    for resource in stateless {
        // A Service has a status in Kubernetes, but no state.
        for status in [Value::Null, json!({"loadBalancer": {}})] {
            for item in [true, false] {
                let mut old = stored(status.clone());
                old["spec"]["resource"] = resource.clone();
                if !item {
                    old["status"] = Value::Null;
                }
                let answer = evaluate(&evicted(&old, json!([failed("a")])), &old, &json!({}));
                assert!(
                    answer.accepted && answer.mutated_object.is_none() && answer.warnings().is_empty(),
                    "{resource}: {answer:?}"
                );
            }
        }
    }
}

/// The history never exceeds the API server's limit for annotations, and the newest state is never lost.
#[test]
fn histories_have_a_maximum_size() {
    let alias = |index: usize| format!("{}{index}", "a".repeat(40));
    let long: Vec<(String, String)> = (0..8).map(|index| (alias(index), format!("{{.l{index}}}"))).collect();
    let long: Vec<(&str, &str)> = long.iter().map(|(alias, path)| (alias.as_str(), path.as_str())).collect();
    let status: serde_json::Map<String, Value> =
        (0..8).map(|index| (format!("l{index}"), json!("\u{1}".repeat(4000)))).collect();
    let mut binding = stored(Value::Null);
    binding["spec"]["failover"]["application"] = rules(&long);
    binding["metadata"]["annotations"] = json!({"note": "x".repeat(20_000)});
    let clusters: Vec<String> = (0..5).map(|index| format!("cluster-{index}-{}", "x".repeat(40))).collect();
    binding["spec"]["clusters"] = clusters.iter().map(|name| json!({"name": name})).collect();
    binding["status"]["aggregatedStatus"] =
        clusters.iter().map(|name| json!({"clusterName": name, "health": "Unhealthy", "status": status})).collect();
    for evicted in 0..clusters.len() {
        let mut object = binding.clone();
        object["spec"]["clusters"].as_array_mut().unwrap().remove(0);
        let tasks: Vec<Value> = clusters[..=evicted].iter().map(|name| failed(name)).collect();
        object["spec"]["gracefulEvictionTasks"] = Value::from(tasks);
        binding = accepted(&object, &binding, &json!({"preserve": {"historyLimit": 20, "onMissingState": "Proceed"}}));
        let annotations = binding["metadata"]["annotations"].as_object().unwrap();
        let size: usize = annotations.iter().map(|(key, value)| key.len() + value.as_str().unwrap().len()).sum();
        assert!(size <= 256 * 1024, "{size} bytes after {evicted} evictions");
        let newest = history(&binding).as_array().unwrap().last().unwrap().clone();
        assert_eq!(newest["from"], json!(clusters[evicted]));
        assert!(!newest["state"].as_object().unwrap().is_empty());
    }
}

/// Templates that would print without end, and many rules on a large status, stay within one budget.
#[test]
fn rules_have_one_budget() {
    let list: Vec<Value> = (0..8000).map(|index| json!({"a": index})).collect();
    let old_with = |rules_of: &[(&str, &str)], status: Value| {
        let mut old = stored(status);
        old["spec"]["failover"]["application"] = rules(rules_of);
        old
    };
    let unclosed = format!("{}{}", "{range}".repeat(13), "{}".repeat(2002));
    let over_a_list = format!("{{range .l[*]}}{}", "{}".repeat(2030));
    let aliases: Vec<String> = (0..100).map(|index| format!("a{index}")).collect();
    let descents: Vec<(&str, &str)> = aliases.iter().map(|alias| (alias.as_str(), "{..a}")).collect();
    let filters: Vec<(&str, &str)> = aliases.iter().map(|alias| (alias.as_str(), "{.l[?(@.a>9)].a}")).collect();
    for (rules_of, limit) in [
        (vec![("x", unclosed.as_str())], "limit exceeded"),
        (vec![("x", over_a_list.as_str())], "limit exceeded"),
        (descents, "limit exceeded: more than 200000 values to visit"),
        (filters, "limit exceeded: more than 200000 values to visit"),
    ] {
        let old = old_with(&rules_of, json!({"l": list}));
        let object = evicted(&old, json!([failed("a")]));
        // The module runs in 64 MiB here.
        let binding = accepted(&object, &old, &json!({"preserve": {"onMissingState": "Proceed"}}));
        let missing = history(&binding)[0]["missing"].to_string();
        assert!(missing.contains(limit), "{missing}");
    }
}

/// A binding of a thousand clusters with 200 tasks, a status of a megabyte and a history of 64 KB fits into the memory
/// limit of these tests.
#[test]
fn large_bindings_fit_into_the_memory_limit() {
    let mut old = stored(json!({"jobId": "j", "padding": "x".repeat(1024 * 1024)}));
    let items = old["status"]["aggregatedStatus"].as_array_mut().unwrap();
    items.extend((0..1000).map(|index| json!({"clusterName": format!("c{index}"), "health": "Healthy", "status": {"jobId": format!("j{index}")}})));
    let clusters: Vec<Value> = (0..1000).map(|index| json!({"name": format!("c{index}")})).collect();
    old["spec"]["clusters"] = Value::from(clusters);
    let record = json!({"type": "cluster", "from": "r", "phase": "Recovered", "state": {JOB: "x".repeat(4000)}});
    old["metadata"]["annotations"] = json!({"stateful-failover/history": Value::from(vec![record; 16]).to_string()});
    let tasks: Vec<Value> = (0..200).map(|index| failed(&format!("c{index}"))).collect();
    let object = evicted(&old, Value::from(tasks));
    let binding = accepted(&object, &old, &json!({"preserve": {"historyLimit": 20}}));
    assert_eq!(history(&binding).as_array().unwrap().len(), 200, "records of standing tasks are never dropped");
    assert_eq!(binding["spec"]["gracefulEvictionTasks"][199]["preservedLabelState"], json!({JOB: "j199"}));

    let tasks: Vec<Value> = (0..1001).map(|index| failed(&format!("c{index}"))).collect();
    let too_many = evaluate(&evicted(&stored(json!({})), Value::from(tasks)), &stored(json!({})), &json!({}));
    assert_eq!(
        too_many.message.unwrap(),
        "cannot preserve the state of FlinkDeployment `default/x`: spec.gracefulEvictionTasks has 1001 items, more than 1000; remove tasks"
    );
}
