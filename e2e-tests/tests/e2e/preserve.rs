//! The stages preserve and guard, on the native core and on the module.

use std::sync::Arc;
use std::time::Instant;

use e2e_tests::policy::{self, Answer, Module, Policy};
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
    let request = |kind: &str| {
        json!({
            "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": kind}, "name": "x", "namespace": "default",
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": old,
        })
    };
    let answers = policy::all().map(|implementation| {
        let answer = implementation.validate(&request("ResourceBinding"), settings, &Arc::default()).unwrap();
        let of_cluster =
            implementation.validate(&request("ClusterResourceBinding"), settings, &Arc::default()).unwrap();
        assert_eq!(answer.mutated_object, of_cluster.mutated_object);
        if answer.accepted {
            let mut again = request("ResourceBinding");
            again["object"] = answer.apply(object).unwrap();
            let second = implementation.validate(&again, settings, &Arc::default()).unwrap();
            assert!(second.accepted && second.mutated_object.is_none(), "idempotent: {second:?}");
        }
        answer
    });
    assert_eq!(answers[0], answers[1]);
    answers[0].clone()
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

/// Which behaviour an eviction follows. Source: `karmada-io/karmada`, `taint_manager.go` and
/// `applicationfailover/common.go`; an unknown one follows its producer.
#[test]
fn behaviours() {
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
fn purge_modes() {
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

/// What becomes of a status field. Source: vectors of Karmada's own function (testdata/vectors/feed.json) for what it makes of them.
#[test]
fn values() {
    let long = "x".repeat(64);
    let path = "s3://flink-state/savepoints/savepoint-b8b4ab-0123456789ab";
    for (value, in_history, on_task) in [
        (json!("j"), "j", Some("j")),
        (json!(1734462491693u64), "1734462491693", Some("1734462491693")),
        (json!(9007199254740993u64), "9007199254740993", Some("9007199254740993")),
        (json!(true), "true", Some("true")),
        (json!(path), path, None),
        (json!(long), &long, None),
        (json!({"b": 1, "a": "<"}), r#"{"a":"\u003c","b":1}"#, None),
    ] {
        let old = stored(json!({"jobId": value}));
        let mut task = failed("a");
        // What Karmada's own extraction writes, where its gate is on, is replaced.
        task["preservedLabelState"] = json!({JOB: "1.734462491693e+12"});
        let binding = accepted(&evicted(&old, json!([task])), &old, &json!({}));
        assert_eq!(history(&binding)[0]["state"], json!({JOB: in_history}));
        assert_eq!(labels(&binding), &on_task.map_or(Value::Null, |value| json!({JOB: value})));
    }
}

#[test]
fn a_rule_without_a_value_blocks_or_is_recorded() {
    for (status, why) in [
        (json!({"jobID": "j"}), "`jobId` is not found"),
        (json!({"jobId": null}), "the value is empty or null"),
        (json!({"jobId": ""}), "the value is empty or null"),
        (json!({"jobId": "x".repeat(4097)}), "the value has 4097 bytes, more than 4096"),
    ] {
        let old = stored(status);
        let mut task = failed("a");
        task["preservedLabelState"] = json!({JOB: "null"});
        let object = evicted(&old, json!([task]));
        let answer = evaluate(&object, &old, &json!({}));
        assert_eq!(
            answer.message.unwrap(),
            format!(
                "cannot evict FlinkDeployment `default/x` without losing its state: from `a`: `example.io/job` (jsonPath \
                 `{{.jobId}}`): {why}; fix the jsonPath in `statePreservation` of its policy or wait until the status has \
                 the value, or set `preserve.onMissingState: Proceed` to evict without it"
            )
        );
        let binding = accepted(&object, &old, &json!({"preserve": {"onMissingState": "Proceed"}}));
        assert_eq!(history(&binding)[0]["missing"], json!({JOB: why}));
        assert_eq!(history(&binding)[0].get("state"), None);
        assert_eq!(labels(&binding), &Value::Null, "what Karmada prints for a value that is none is taken away");
        assert_eq!(binding["spec"]["gracefulEvictionTasks"][0]["clustersBeforeFailover"], json!(["a"]));
    }
}

/// Karmada copies the rules of a policy into the binding of every resource that the policy selects. What has no state is not
/// held back in the cluster that failed.
#[test]
fn what_has_no_state_is_let_go() {
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
        // A Service has a status in Kubernetes, and no state.
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
    // Of a kind that may have state, somebody is told.
    for status in [Value::Null, json!({})] {
        let old = stored(Value::Null);
        let mut old = old;
        if status.is_object() {
            old["status"] = status;
        }
        let answer = evaluate(&evicted(&old, json!([failed("a")])), &old, &json!({}));
        assert!(answer.accepted && answer.mutated_object.is_none());
        assert_eq!(
            answer.warnings(),
            ["FlinkDeployment `default/x` leaves a without state: no status of it was collected there"]
        );
    }
}

/// A copy of which no status was collected, and which is owed the state of its predecessor, takes that along.
#[test]
fn owed_state_goes_along_without_a_status() {
    let old = stored(json!({"jobId": "j"}));
    let mut first = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    first["spec"]["clusters"] = json!([{"name": "b"}]);
    first["status"] = json!({"aggregatedStatus": [{"clusterName": "b", "health": "Unknown"}]});
    let first = accepted(&first, &first, &json!({}));
    let mut again = first.clone();
    again["spec"]["clusters"] = json!([]);
    again["spec"]["gracefulEvictionTasks"].as_array_mut().unwrap().push(failed("b"));
    let second = accepted(&again, &first, &json!({}));
    assert_eq!(history(&second)[1]["state"], json!({JOB: "j"}));
    assert_eq!(history(&second)[1]["carriedFrom"], json!("a"));
}

fn moved(stored: &Value, to: &[&str]) -> Value {
    let mut binding = stored.clone();
    binding["spec"]["clusters"] = to.iter().map(|name| json!({"name": name})).collect();
    binding
}

/// A changed placement, a rebalance, a way home: Karmada writes no task, and the state goes along all the same.
#[test]
fn moves_without_a_task() {
    let old = stored(json!({"jobId": "j"}));
    for to in [&["b"][..], &[]] {
        let object = moved(&old, to);
        let answer = evaluate(&object, &old, &json!({}));
        assert_eq!(
            answer.warnings(),
            ["FlinkDeployment `default/x` leaves a without a failover; its state is preserved and will be fed"]
        );
        let binding = answer.apply(&object).unwrap();
        let mut expected =
            json!({"type": "move", "from": "a", "before": ["a"], "state": {JOB: "j"}, "phase": "Pending"});
        if !to.is_empty() {
            expected["to"] = json!(to);
        }
        assert_eq!(history(&binding), json!([expected]), "{to:?}");
        assert_eq!(binding.pointer("/spec/gracefulEvictionTasks"), None);
        // Scheduled later, and healthy at last.
        let scheduled = accepted(&moved(&binding, &["b"]), &binding, &json!({}));
        assert_eq!(history(&scheduled)[0]["to"], json!(["b"]));
        let mut healthy = scheduled.clone();
        healthy["status"] =
            json!({"aggregatedStatus": [{"clusterName": "b", "health": "Healthy", "status": {"jobId": "k"}}]});
        assert_eq!(history(&accepted(&healthy, &healthy, &json!({})))[0]["phase"], json!("Recovered"));
    }
    for (to, settings) in [
        (&["a", "b"][..], json!({})),
        (&["a"], json!({})),
        (&["b", "c"], json!({})),
        (&["b"], json!({"preserve": {"moves": "Ignore"}})),
    ] {
        let object = moved(&old, to);
        let answer = evaluate(&object, &old, &settings);
        assert!(answer.accepted && answer.mutated_object.is_none(), "{to:?} {settings}");
    }
    // With a task from there it is a failover, now or before.
    let binding = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    assert_eq!(history(&accepted(&moved(&binding, &["b"]), &binding, &json!({}))).as_array().unwrap().len(), 1);
}

/// The rules of the cluster behaviour come first, then those of the application's, then the settings'.
#[test]
fn rules_of_moves() {
    let settings = json!({"preserve": {"rules": [{"match": {"apiGroups": ["*"], "kinds": ["FlinkDeployment"]},
        "rules": [{"aliasLabelName": "settings", "jsonPath": "{.jobId}"}]}]}});
    for (failover, alias) in [
        (
            json!({"cluster": rules(&[("cluster", "{.jobId}")]), "application": rules(&[("application", "{.jobId}")])}),
            "cluster",
        ),
        (json!({"application": rules(&[("application", "{.jobId}")])}), "application"),
        (json!({}), "settings"),
    ] {
        let mut old = stored(json!({"jobId": "j"}));
        old["spec"]["failover"] = failover;
        let binding = accepted(&moved(&old, &["b"]), &old, &settings);
        assert_eq!(history(&binding)[0]["state"], json!({alias: "j"}));
    }
}

/// A move is never denied: what it loses is a warning, and recorded.
#[test]
fn moves_that_lose_state() {
    let old = stored(json!({"other": 1}));
    let object = moved(&old, &["b"]);
    let answer = evaluate(&object, &old, &json!({}));
    assert_eq!(
        answer.warnings(),
        ["FlinkDeployment `default/x` leaves a and loses its state `example.io/job`: `jobId` is not found"]
    );
    assert_eq!(history(&answer.apply(&object).unwrap())[0]["missing"], json!({JOB: "`jobId` is not found"}));
    let mut sibling = stored(Value::Null);
    sibling["spec"]["resource"]["kind"] = json!("ConfigMap");
    sibling["spec"]["resource"]["apiVersion"] = json!("v1");
    let answer = evaluate(&moved(&sibling, &["b"]), &sibling, &json!({}));
    assert!(answer.mutated_object.is_none() && answer.warnings().is_empty());
}

/// An Expired record becomes Recovered when the application turns healthy after all: its state is not carried into later moves.
#[test]
fn a_late_recovery_counts() {
    let old = stored(json!({"jobId": "of-a"}));
    let evicted = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    let mut started = evicted.clone();
    started["spec"]["clusters"] = json!([{"name": "b"}]);
    started["status"] = json!({"aggregatedStatus": [{"clusterName": "b", "health": "Unhealthy"}]});
    let mut timed_out = started.clone();
    timed_out["spec"]["gracefulEvictionTasks"] = json!([]);
    let expired = accepted(&timed_out, &started, &json!({}));
    assert_eq!(history(&expired)[0]["phase"], json!("Expired"));
    let mut healthy = expired.clone();
    healthy["status"] =
        json!({"aggregatedStatus": [{"clusterName": "b", "health": "Healthy", "status": {"other": 1}}]});
    // A move that has no value of its own takes nothing old along, though the recovery is seen only now.
    let binding = accepted(&moved(&healthy, &["c"]), &healthy, &json!({}));
    assert_eq!(history(&binding)[0]["phase"], json!("Recovered"));
    assert_eq!(history(&binding)[1].get("state"), None);
    // Nor does an eviction under Block pass with it.
    let mut evicted_again = healthy.clone();
    evicted_again["spec"]["clusters"] = json!([]);
    evicted_again["spec"]["gracefulEvictionTasks"] = json!([failed("b")]);
    assert!(!evaluate(&evicted_again, &healthy, &json!({})).accepted);
}

/// The history stays below what an API server takes for all annotations, whatever is in it: the newest state is never lost.
#[test]
fn histories_have_an_end() {
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

/// Templates that would print without end, and many rules on a large status, are answered within one budget.
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

#[test]
fn all_missing_rules_are_in_one_message() {
    let mut old = stored(json!({"ok": "x"}));
    old["spec"]["failover"]["application"] = rules(&[("a", "{.a}"), ("ok", "{.ok}"), ("b", "{.b")]);
    let message = evaluate(&evicted(&old, json!([failed("a")])), &old, &json!({})).message.unwrap();
    assert!(
        message.contains(
            "from `a`: `a` (jsonPath `{.a}`): `a` is not found; from `a`: `b` (jsonPath `{.b`): does not parse"
        ),
        "{message}"
    );
    assert!(!message.contains("`ok`"), "{message}");
}

/// Evicted together, each has its own state.
#[test]
fn several_new_tasks() {
    let mut old = stored(json!({"jobId": "of-a"}));
    old["spec"]["clusters"] = json!([{"name": "a"}, {"name": "b"}]);
    let of_b = json!({"clusterName": "b", "health": "Unhealthy", "status": {"jobId": "of-b"}});
    old["status"]["aggregatedStatus"].as_array_mut().unwrap().push(of_b);
    let binding = accepted(&evicted(&old, json!([failed("a"), failed("b")])), &old, &json!({}));
    let records = history(&binding);
    assert_eq!(records[0]["state"], json!({JOB: "of-a"}));
    assert_eq!(records[1]["state"], json!({JOB: "of-b"}));
    assert_eq!(records[1].get("carriedFrom"), None);
    for task in binding["spec"]["gracefulEvictionTasks"].as_array().unwrap() {
        assert_eq!(task["clustersBeforeFailover"], json!(["a", "b"]));
    }
}

/// The second eviction comes from a copy that is healthy in the stored status: it has a state of its own, though the
/// first task was not taken away yet.
#[test]
fn a_healthy_copy_is_believed() {
    let old = stored(json!({"jobId": "first"}));
    let mut first = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    first["spec"]["clusters"] = json!([{"name": "b"}]);
    for (health, state) in [("Healthy", "second"), ("Unhealthy", "first"), ("Unknown", "first")] {
        first["status"]["aggregatedStatus"] =
            json!([{"clusterName": "b", "health": health, "status": {"jobId": "second"}}]);
        let mut second = first.clone();
        second["spec"]["clusters"] = json!([]);
        second["spec"]["gracefulEvictionTasks"].as_array_mut().unwrap().push(failed("b"));
        let binding = accepted(&second, &first, &json!({}));
        assert_eq!(history(&binding)[1]["state"], json!({JOB: state}), "{health}");
    }
}

/// A task of purge mode Never stays for ever: it does not say that the new copy was never healthy.
#[test]
fn a_task_that_is_kept_for_ever_carries_nothing_over() {
    let old = stored(json!({"jobId": "first"}));
    let mut task = failed("a");
    task["suppressDeletion"] = json!(true);
    let mut first = accepted(&evicted(&old, json!([task])), &old, &json!({}));
    first["spec"]["clusters"] = json!([{"name": "b"}]);
    first["status"]["aggregatedStatus"] =
        json!([{"clusterName": "b", "health": "Unhealthy", "status": {"jobId": "second"}}]);
    let mut second = first.clone();
    second["spec"]["clusters"] = json!([]);
    second["spec"]["gracefulEvictionTasks"].as_array_mut().unwrap().push(failed("b"));
    let binding = accepted(&second, &first, &json!({}));
    assert_eq!(history(&binding)[1]["state"], json!({JOB: "second"}));
}

/// The second copy never reported a value: what was fed to it goes on.
#[test]
fn state_that_was_fed_in_vain_is_carried_over() {
    let record = json!({"type": "application", "from": "a", "before": ["a"], "to": ["b"], "state": {JOB: "first"}, "phase": "Expired"});
    let mut old = stored(json!({}));
    old["metadata"]["annotations"] = json!({"stateful-failover/history": json!([record]).to_string()});
    old["spec"]["clusters"] = json!([{"name": "b"}]);
    old["status"]["aggregatedStatus"] = json!([{"clusterName": "b", "health": "Unhealthy", "status": {}}]);
    let binding = accepted(&evicted(&old, json!([failed("b")])), &old, &json!({}));
    assert_eq!(history(&binding)[1]["state"], json!({JOB: "first"}));
    assert_eq!(history(&binding)[1]["carriedFrom"], json!("a"));
}

#[test]
fn what_a_stale_writer_dropped_is_put_back() {
    let old = stored(json!({"jobId": "j"}));
    let binding = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    let stale = {
        let mut stale = binding.clone();
        stale["spec"]["gracefulEvictionTasks"] = json!([failed("a")]);
        stale["metadata"]["annotations"] = json!({"other": "kept"});
        stale
    };
    let mut expected = binding.clone();
    expected["metadata"]["annotations"]["other"] = json!("kept");
    assert_eq!(accepted(&stale, &binding, &json!({})), expected);
}

#[test]
fn a_task_that_comes_back_is_the_same_failover() {
    let old = stored(json!({"jobId": "j"}));
    let first = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    let mut gone = first.clone();
    gone["spec"].as_object_mut().unwrap().remove("gracefulEvictionTasks");
    let gone = accepted(&gone, &first, &json!({}));
    assert_eq!(history(&gone)[0]["phase"], json!("Pending"));
    let back = accepted(&evicted(&gone, json!([failed("a")])), &gone, &json!({}));
    assert_eq!(history(&back), history(&first));
    assert_eq!(labels(&back), &json!({JOB: "j"}));
}

#[test]
fn only_the_stored_status_is_believed() {
    let old = stored(json!({"jobId": "real"}));
    let mut object = evicted(&old, json!([failed("a")]));
    object["status"]["aggregatedStatus"][0]["status"]["jobId"] = json!("forged");
    assert_eq!(history(&accepted(&object, &old, &json!({})))[0]["state"], json!({JOB: "real"}));
}

#[test]
fn a_request_cannot_edit_the_history() {
    let old = stored(json!({"jobId": "j"}));
    let binding = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    for annotations in
        [json!(null), json!({}), json!({"stateful-failover/history": "[]"}), json!({"stateful-failover/history": "x"})]
    {
        let mut edited = binding.clone();
        edited["metadata"]["annotations"] = annotations;
        assert_eq!(history(&accepted(&edited, &binding, &json!({}))), history(&binding));
    }
    // Nor invent one.
    let mut invented = old.clone();
    invented["metadata"]["annotations"] = json!({"stateful-failover/history": history(&binding).to_string()});
    assert_eq!(history(&accepted(&invented, &old, &json!({}))), Value::Null);
}

/// A history of a later version, or one that is broken: it stays as it is, and the task gets its state all the same.
#[test]
fn an_unreadable_history_stays_as_it_is() {
    for text in
        ["{\"a\":", "{}", "[1]", "[{\"type\":\"teleport\",\"from\":\"a\",\"phase\":\"Evicted\"}]", "[{\"from\":\"a\"}]"]
    {
        let mut old = stored(json!({"jobId": "j"}));
        old["metadata"]["annotations"] = json!({"stateful-failover/history": text});
        let mut object = evicted(&old, json!([failed("a")]));
        let answer = evaluate(&object, &old, &json!({}));
        assert_eq!(
            answer.warnings(),
            [
                "FlinkDeployment `default/x`: stateful-failover/history is not a history that this version can read, and stays as it is"
            ]
        );
        let binding = answer.apply(&object).unwrap();
        assert_eq!(binding["metadata"]["annotations"]["stateful-failover/history"], json!(text));
        assert_eq!(labels(&binding)[JOB], json!("j"));
        // Nor can a request remove it.
        object["metadata"]["annotations"] = Value::Null;
        assert_eq!(
            accepted(&object, &old, &json!({}))["metadata"]["annotations"]["stateful-failover/history"],
            json!(text)
        );
    }
}

/// Fields and phases of a later version survive what this one writes.
#[test]
fn a_history_of_a_later_version_is_rewritten_whole() {
    let mut old = stored(json!({"jobId": "j"}));
    let later =
        json!({"type": "cluster", "from": "b", "phase": "Verified", "state": {JOB: "i"}, "checkedBy": {"n": 1.50}});
    old["metadata"]["annotations"] = json!({"stateful-failover/history": json!([later]).to_string()});
    let binding = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    assert_eq!(history(&binding)[0], later);
    assert_eq!(history(&binding)[1]["from"], json!("a"));
}

/// A binding that is created with tasks and a history, by a restore from a backup.
#[test]
fn create_with_tasks() {
    let old = stored(json!({"jobId": "j"}));
    let backup = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({}));
    let mut created = backup.clone();
    created.as_object_mut().unwrap().remove("status");
    assert_eq!(evaluate(&created, &Value::Null, &json!({})).mutated_object, None, "it keeps its history");
    created["metadata"]["annotations"] = Value::Null;
    let anew = accepted(&created, &Value::Null, &json!({}));
    assert_eq!(history(&anew)[0]["state"], json!({JOB: "j"}), "without a history, what the task holds is all there is");
}

#[test]
fn the_limit_drops_the_oldest_closed_records() {
    let record =
        |from: &str, phase: &str| json!({"type": "cluster", "from": from, "phase": phase, "state": {JOB: from}});
    let mut old = stored(json!({"jobId": "j"}));
    let records = json!([
        record("r1", "Recovered"),
        record("r2", "Superseded"),
        record("r3", "Expired"),
        record("r4", "Recovered")
    ]);
    old["metadata"]["annotations"] = json!({"stateful-failover/history": records.to_string()});
    let binding = accepted(&evicted(&old, json!([failed("a")])), &old, &json!({"preserve": {"historyLimit": 3}}));
    let from: Vec<Value> = history(&binding).as_array().unwrap().iter().map(|record| record["from"].clone()).collect();
    assert_eq!(from, ["r3", "r4", "a"]);
    let mut second = binding.clone();
    second["spec"]["gracefulEvictionTasks"].as_array_mut().unwrap().push(failed("b"));
    let both = accepted(&second, &binding, &json!({"preserve": {"historyLimit": 1}}));
    assert_eq!(history(&both).as_array().unwrap().len(), 2, "records of standing tasks are never dropped");
}

#[test]
fn guard() {
    let mut old = stored(json!({"jobId": "j"}));
    old["spec"]["gracefulEvictionTasks"] = json!([failed("a"), task("c", "TaintUntolerated", "TaintManager")]);
    old["spec"]["clusters"] = json!([{"name": "b"}]);
    let mut object = old.clone();
    object["spec"]["clusters"] = json!([{"name": "b"}, {"name": "a"}, {"name": "c"}]);
    let findings = "it is being evicted from cluster `a` (`ApplicationFailure`); it is being evicted from cluster `c` (`TaintUntolerated`)";
    let enforced = evaluate(&object, &old, &json!({}));
    assert_eq!(
        enforced.message.unwrap(),
        format!(
            "cannot schedule FlinkDeployment `default/x`: {findings}; choose another cluster or wait until the task in \
             `spec.gracefulEvictionTasks` is gone (`guard: Warn` in the policy's settings lets it pass)"
        )
    );
    let warned = evaluate(&object, &old, &json!({"guard": "Warn"}));
    assert!(warned.accepted);
    assert_eq!(
        warned.warnings(),
        [format!("FlinkDeployment `default/x`: {findings}").chars().take(119).chain(['…']).collect::<String>()]
    );
    assert_eq!(warned.audit_annotations.unwrap()["guard"], findings);
    let off = evaluate(&object, &old, &json!({"guard": "Off"}));
    assert!(off.accepted && off.warnings().is_empty());
    // What is scheduled already is not scheduled back.
    let unchanged = evaluate(&object, &object, &json!({}));
    assert!(unchanged.accepted && unchanged.warnings().is_empty());
}

/// A thousand clusters, 200 tasks, a status of a megabyte and a history of 64 KB: answered, within the memory that is
/// given here. The time is in the benchmark.
#[test]
fn large_bindings() {
    let mut old = stored(json!({"jobId": "j", "padding": "x".repeat(1024 * 1024)}));
    let items = old["status"]["aggregatedStatus"].as_array_mut().unwrap();
    items.extend((0..1000).map(|index| json!({"clusterName": format!("c{index}"), "health": "Healthy", "status": {"jobId": format!("j{index}")}})));
    let clusters: Vec<Value> = (0..1000).map(|index| json!({"name": format!("c{index}")})).collect();
    old["spec"]["clusters"] = Value::from(clusters);
    let record = json!({"type": "cluster", "from": "r", "phase": "Recovered", "state": {JOB: "x".repeat(4000)}});
    old["metadata"]["annotations"] = json!({"stateful-failover/history": Value::from(vec![record; 16]).to_string()});
    let tasks: Vec<Value> = (0..200).map(|index| failed(&format!("c{index}"))).collect();
    let object = evicted(&old, Value::from(tasks));
    let request = json!({
        "kind": {"group": "work.karmada.io", "kind": "ResourceBinding"}, "operation": "UPDATE", "object": object, "oldObject": old,
    });
    let start = Instant::now();
    let answer =
        Module::built().validate(&request, &json!({"preserve": {"historyLimit": 20}}), &Arc::default()).unwrap();
    println!("answered in {:?}", start.elapsed());
    assert!(answer.accepted, "{:?}", answer.message);
    let binding = answer.apply(&object).unwrap();
    assert_eq!(history(&binding).as_array().unwrap().len(), 200, "records of standing tasks are never dropped");
    assert_eq!(binding["spec"]["gracefulEvictionTasks"][199]["preservedLabelState"], json!({JOB: "j199"}));

    let tasks: Vec<Value> = (0..1001).map(|index| failed(&format!("c{index}"))).collect();
    let too_many = evaluate(&evicted(&stored(json!({})), Value::from(tasks)), &stored(json!({})), &json!({}));
    assert_eq!(
        too_many.message.unwrap(),
        "cannot preserve the state of FlinkDeployment `default/x`: spec.gracefulEvictionTasks has 1001 items, more than 1000; remove tasks"
    );
}
