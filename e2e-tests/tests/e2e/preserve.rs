//! The stages preserve and guard, on the native core and on the module.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

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

/// Which behaviour an eviction follows. Source: facts on Karmada's producers, `taint_manager.go` and
/// `applicationfailover/common.go`; unknown ones as the design says.
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

/// What becomes of a status field. Source: vectors of Karmada's own function (facts, 7.2) for what it makes of them.
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
        (Value::Null, "no status of the application was collected from the cluster"),
    ] {
        let old = stored(status);
        let mut task = failed("a");
        task["preservedLabelState"] = json!({JOB: "null"});
        let object = evicted(&old, json!([task]));
        let answer = evaluate(&object, &old, &json!({}));
        assert_eq!(
            answer.message.unwrap(),
            format!(
                "cannot evict FlinkDeployment `default/x`, its state would be lost: from `a`: `example.io/job` (jsonPath \
                 `{{.jobId}}`): {why}; mend the jsonPath in `statePreservation` of its policy or wait until the status has \
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

#[test]
fn a_malformed_history_is_reported_and_started_anew() {
    let mut old = stored(json!({"jobId": "j"}));
    old["metadata"]["annotations"] = json!({"stateful-failover/history": "{\"a\":"});
    let object = evicted(&old, json!([failed("a")]));
    let answer = evaluate(&object, &old, &json!({}));
    assert_eq!(answer.warnings().len(), 1);
    assert!(answer.warnings()[0].starts_with("annotation `stateful-failover/history` is not a failover history: "));
    assert_eq!(history(&answer.apply(&object).unwrap()).as_array().unwrap().len(), 1);
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
    let findings =
        "cluster `a` is being evicted (`ApplicationFailure`); cluster `c` is being evicted (`TaintUntolerated`)";
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
    assert_eq!(warned.warnings(), [format!("guard: {findings}")]);
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
        "cannot preserve state: spec.gracefulEvictionTasks has 1001 items, more than 1000; remove tasks"
    );
}
