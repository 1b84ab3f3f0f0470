//! The stage lint: laws that hold for all findings. The findings are in `cases/lint`.

use std::sync::Arc;

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer};
use e2e_tests::recording::read;
use e2e_tests::{case, project, request};
use serde_json::{Value, json};

const JSON_PATH: &str = "/spec/failover/application/statePreservation/rules/0/jsonPath";
const ALIAS: &str = "/spec/failover/application/statePreservation/rules/0/aliasLabelName";

/// A policy without a finding.
fn sound() -> Value {
    json!({
        "apiVersion": "policy.karmada.io/v1alpha1",
        "kind": "PropagationPolicy",
        "metadata": {"name": "clicks", "namespace": "default"},
        "spec": {
            "propagateDeps": true,
            "placement": {"spreadConstraints": [{"spreadByField": "cluster", "maxGroups": 1}]},
            "failover": {"application": {
                "purgeMode": "Directly",
                "statePreservation": {"rules": [{"aliasLabelName": "example.io/job", "jsonPath": "{.jobStatus.jobId}"}]},
            }},
        },
    })
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut policy = sound();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = policy.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
        match parent {
            Value::Array(items) => items[key.parse::<usize>().unwrap()] = value.clone(),
            parent if value.is_null() => drop(parent.as_object_mut().unwrap().remove(key)),
            parent => parent[key] = value.clone(),
        }
    }
    policy
}

fn evaluate(policy: &Value, old: &Value, settings: &Value) -> Answer {
    policy::evaluate(&request::write(policy, old), settings, Host::default).0
}

/// An error is a warning with `Warn` and ignored with `Off`; and errors that are stored already do not deny Karmada's
/// own writes.
#[test]
fn denials_follow_the_setting() {
    let mut count = 0;
    for case in case::all().unwrap().iter().filter(|case| case.name.starts_with("lint/") && case.settings.is_null()) {
        let policy = &case.request.as_ref().unwrap()["object"];
        if evaluate(policy, &Value::Null, &Value::Null).accepted {
            continue;
        }
        let warned = evaluate(policy, &Value::Null, &json!({"lint": "Warn"}));
        assert!(warned.accepted && !warned.warnings().is_empty(), "{}: Warn", case.name);
        let off = evaluate(policy, &Value::Null, &json!({"lint": "Off"}));
        assert!(off.accepted && off.warnings.is_none() && off.audit_annotations.is_none(), "{}: Off", case.name);
        let unchanged = evaluate(policy, policy, &Value::Null);
        assert!(unchanged.accepted && !unchanged.warnings().is_empty(), "{}: unchanged", case.name);
        assert!(!evaluate(policy, &sound(), &Value::Null).accepted, "{}: changed", case.name);
        count += 1;
    }
    assert!(count >= 12, "{count} denials");
}

/// The form that a remedy suggests never has a finding itself.
#[test]
fn remedies_are_sound() {
    let mut count = 0;
    for path in [
        ".status.jobId",
        "$.status.jobId",
        "status.jobId",
        "jobStatus.jobId",
        ".jobId",
        "$.jobId",
        "{.status.jobId}",
        "{$.status.jobId}",
        "{ .status }",
        ".status",
        "metadata.name",
        ".spec.x",
        "{.a['b.c']}",
        ".status.a['b.c']",
    ] {
        let policy = with(&[(JSON_PATH, json!(path))]);
        let answer = evaluate(&policy, &Value::Null, &json!({"lint": "Warn"}));
        let text = answer.warnings().join("\n");
        let Some((_, shown)) = text.rsplit_once("write `") else { continue };
        let shown = shown.split('`').next().unwrap();
        let again = evaluate(&with(&[(JSON_PATH, json!(shown))]), &Value::Null, &json!({}));
        assert!(again.accepted && again.warnings().is_empty(), "{path} -> {shown}: {again:?}");
        count += 1;
    }
    assert!(count >= 9, "{count} remedies");
}

/// Rules for kinds and fields that Karmada does not interpret are warned about; `lintKinds` names the kinds that the
/// user interprets. Source: `testdata/facts/interpreted-kinds.json`.
#[test]
fn kinds_that_karmada_does_not_interpret() {
    const JSON_PATH_OF_THE_RULE: &str = "spec.failover.application.statePreservation.rules[0].jsonPath";
    // Cut at the end of a warning.
    const SPARK: &str = "what is reflected is applicationState, driverInfo, executionAttempts, executorState, lastSubmissionAttemptTime, spark…";
    const JOB: &str = "apply deploy/interpreters/job.yaml and list the kind in `lintKinds`; what is reflected is active, completionTime, con…";
    const HEALTH: &str = "spec.failover.application: Karmada does not know when a";
    let no_health = |kind: &str, remedy: &str| {
        format!("{HEALTH} {kind} is unhealthy, and never moves it for that; {remedy} and list the kind in `lintKinds`")
    };
    let not_reflected =
        |field: &str, remedy: &str| format!("{JSON_PATH_OF_THE_RULE}: Karmada does not reflect `{field}`; {remedy}");
    let own = |kind: &Value, fields: Value| {
        let mut kind = kind.clone();
        if !fields.is_null() {
            kind["reflected"] = fields;
        }
        json!([kind])
    };
    let kind = |api_version: &str, kind: &str| json!({"apiVersion": api_version, "kind": kind});
    let flink = kind("flink.apache.org/v1beta1", "FlinkDeployment");
    let job = kind("batch/v1", "Job");
    let stream = kind("acme.io/v1", "Stream");
    let claim = kind("v1", "PersistentVolumeClaim");
    let spark = kind("sparkoperator.k8s.io/v1beta2", "SparkApplication");
    let (write, job_file) = ("write a ResourceInterpreterCustomization", "apply deploy/interpreters/job.yaml");
    let list = "and list the kind in `lintKinds`";
    for (kind, path, lint_kinds, expected) in [
        (&flink, "{.jobStatus.jobId}", json!([]), vec![]),
        (&job, "{.failed}", json!([]), vec![no_health("Job", job_file)]),
        (&job, "{.failed}", own(&job, Value::Null), vec![]),
        (
            &job,
            "{.completedIndexes}",
            json!([]),
            vec![no_health("Job", job_file), not_reflected("completedIndexes", JOB)],
        ),
        (&job, "{.completedIndexes}", own(&job, Value::Null), vec![]),
        (&job, "{.completedIndexes}", own(&job, json!(["completedIndexes"])), vec![]),
        (
            &job,
            "{.failed}",
            own(&job, json!(["completedIndexes"])),
            vec![not_reflected("failed", "what is reflected is completedIndexes")],
        ),
        // The status of a kind that Karmada does not know is reflected whole, and is always healthy.
        (&stream, "{.point}", json!([]), vec![no_health("Stream", write)]),
        (&stream, "{.point}", own(&stream, Value::Null), vec![]),
        (
            &stream,
            "{.reflected.point}",
            own(&job, Value::Null),
            vec![no_health("Stream", write), not_reflected("reflected", &format!("{write} {list}"))],
        ),
        (&claim, "{.phase}", json!([]), vec![]),
        (
            &claim,
            "{.reflected.snapshot}",
            json!([]),
            vec![not_reflected("reflected", &format!("apply deploy/interpreters/persistentvolumeclaim.yaml {list}"))],
        ),
        (&claim, "{.reflected.snapshot}", own(&claim, Value::Null), vec![]),
        // This project's customization interprets the health and leaves the status to Karmada.
        (&spark, "{.sparkApplicationId}", json!([]), vec![]),
        (&spark, "{.checkpoint}", json!([]), vec![not_reflected("checkpoint", SPARK)]),
        // The path does not begin with the name of a field.
        (&job, "{..failed}", own(&job, json!(["active"])), vec![]),
    ] {
        let policy = with(&[("/spec/resourceSelectors", json!([kind])), (JSON_PATH, json!(path))]);
        let answer = evaluate(&policy, &Value::Null, &json!({"lintKinds": lint_kinds}));
        assert!(answer.accepted, "{answer:?}");
        let found = answer.warnings().join("\n").replace("\n- ", "; ");
        assert_eq!(found, expected.join("\n"), "{kind} {path} {lint_kinds}");
    }
}

/// More findings than a message of 400 characters has room for, so without the check of messages.
#[test]
fn all_findings_are_in_one_answer() {
    let rules = json!([{"aliasLabelName": "a", "jsonPath": "{.status.x}"}, {"aliasLabelName": "a", "jsonPath": "b.c"}]);
    let policy = with(&[
        (JSON_PATH, json!("{")),
        ("/spec/failover/cluster", json!({"statePreservation": {"rules": rules}})),
        ("/spec/placement/spreadConstraints", json!([])),
    ]);
    for implementation in policy::all() {
        let request = request::write(&policy, &Value::Null);
        let answer = implementation.validate(&request, &json!({}), &Arc::default()).unwrap();
        let message = answer.message.unwrap();
        for path in [
            "application.statePreservation.rules[0].jsonPath: ",
            "cluster.statePreservation.rules[1].jsonPath: ",
            "cluster.statePreservation.rules[1].aliasLabelName: ",
        ] {
            assert!(message.contains(&format!("spec.failover.{path}")), "{message}");
        }
        assert_eq!(answer.warnings.unwrap().len(), 3, "purge mode, root and placement");
        assert_eq!(answer.audit_annotations.unwrap()["lint"], "3 errors, 3 warnings");
    }
}

/// Long texts of a user are cut in warnings and denials.
#[test]
fn long_texts_are_cut() {
    let long = "x".repeat(2000);
    let policy = with(&[(JSON_PATH, json!(long)), (ALIAS, json!(format!("-{long}")))]);
    let denied = evaluate(&policy, &Value::Null, &json!({}));
    assert!(denied.message.unwrap().len() < 700);
    let warned = evaluate(&with(&[(JSON_PATH, json!(long))]), &Value::Null, &json!({}));
    assert!(warned.accepted && !warned.warnings().is_empty());
}

/// Of the recorded policies, only two have a finding: the one that chooses two clusters, and the one that selects
/// several kinds.
#[test]
fn two_recorded_policies_have_a_finding() {
    for entry in std::fs::read_dir(project("testdata/recordings")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        for recorded in
            read(&path).unwrap().iter().filter(|recorded| recorded.text("/kind/kind").ends_with("PropagationPolicy"))
        {
            let (answer, _) = policy::evaluate(&recorded.request, &json!({}), Host::default);
            assert!(answer.accepted);
            let is_namespaced = recorded.request["object"]["kind"] == "PropagationPolicy";
            let expected = if is_namespaced && path.ends_with("two-clusters-native.jsonl") {
                vec![
                    "spec.placement: can choose several clusters, state is fed to one only; add {spreadByField: cluster, maxGroups: 1}",
                ]
            } else if path.ends_with("siblings.jsonl") {
                vec![
                    "spec.resourceSelectors: ConfigMap, Service also get the rules, but have no such state",
                    "- select them in a policy of their own",
                ]
            } else {
                vec![]
            };
            assert_eq!(answer.warnings(), expected, "{}", path.display());
        }
    }
}
