//! The stage lint: for each row of its table a policy that triggers it and one that just does not.

use std::sync::Arc;

use e2e_tests::policy::{self, Answer};
use e2e_tests::project;
use e2e_tests::recording::read;
use serde_json::{Value, json};

const RULES: &str = "/spec/failover/application/statePreservation/rules";
const JSON_PATH: &str = "/spec/failover/application/statePreservation/rules/0/jsonPath";
const ALIAS: &str = "/spec/failover/application/statePreservation/rules/0/aliasLabelName";
const CONSTRAINTS: &str = "/spec/placement/spreadConstraints";

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

/// Both policies' answer to a CREATE of that policy, as either kind.
fn evaluate(policy: &Value, old: &Value, settings: &Value) -> Answer {
    let request = |kind: &str, namespace: &str| {
        json!({
            "kind": {"group": "policy.karmada.io", "version": "v1alpha1", "kind": kind},
            "name": "clicks", "namespace": namespace,
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" },
            "object": policy, "oldObject": old,
        })
    };
    let answers = policy::all().map(|implementation| {
        let cluster =
            implementation.validate(&request("ClusterPropagationPolicy", ""), settings, &Arc::default()).unwrap();
        let namespaced =
            implementation.validate(&request("PropagationPolicy", "default"), settings, &Arc::default()).unwrap();
        assert_eq!(cluster.accepted, namespaced.accepted);
        assert_eq!(cluster.warnings, namespaced.warnings);
        assert_eq!(namespaced.mutated_object, None);
        namespaced
    });
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].warnings().iter().all(|line| line.chars().count() <= 120), "{:?}", answers[0].warnings());
    answers[0].clone()
}

fn denial(policy: &Value) -> String {
    let answer = evaluate(policy, &Value::Null, &json!({}));
    assert!(!answer.accepted, "{policy} is accepted: {answer:?}");
    let message = answer.message.unwrap();
    message
        .strip_prefix("PropagationPolicy `default/clicks` would lose state in a failover: ")
        .unwrap_or(&message)
        .to_owned()
}

fn warnings(policy: &Value) -> Vec<String> {
    let answer = evaluate(policy, &Value::Null, &json!({}));
    assert!(answer.accepted, "{:?}", answer.message);
    answer.warnings().to_vec()
}

#[test]
fn errors_deny() {
    let application = "spec.failover.application.statePreservation.rules[0]";
    let dry = "try it with `kubectl get -o jsonpath=`";
    let other = "choose another name";
    for (change, finding) in [
        (
            (JSON_PATH, json!("{.a")),
            format!(
                "{application}.jsonPath: `{{.a` does not parse, at character 4: the action is not closed with `}}`; {dry}"
            ),
        ),
        (
            (JSON_PATH, json!("{ %x }")),
            format!(
                "{application}.jsonPath: `{{ %x }}` does not parse, at character 3: unexpected character `%`; {dry}"
            ),
        ),
        (
            (JSON_PATH, json!(".jobStatus.jobId")),
            format!(
                "{application}.jsonPath: `.jobStatus.jobId` has no braces and is taken as text; write `{{.jobStatus.jobId}}`"
            ),
        ),
        (
            (JSON_PATH, json!("$.jobStatus.jobId")),
            format!(
                "{application}.jsonPath: `$.jobStatus.jobId` has no braces and is taken as text; write `{{$.jobStatus.jobId}}`"
            ),
        ),
        (
            (JSON_PATH, json!("jobStatus.jobId")),
            format!(
                "{application}.jsonPath: `jobStatus.jobId` has no braces and is taken as text; write `{{.jobStatus.jobId}}`"
            ),
        ),
        (
            (JSON_PATH, json!("items[0].id")),
            format!(
                "{application}.jsonPath: `items[0].id` has no braces and is taken as text; write `{{.items[0].id}}`"
            ),
        ),
        (
            (JSON_PATH, json!("")),
            format!("{application}.jsonPath: is empty and has no value; write a path in braces, as `{{.field}}`"),
        ),
        (
            (ALIAS, json!("karmada.io/managed")),
            format!("{application}.aliasLabelName: `karmada.io/managed` is set by Karmada itself; {other}"),
        ),
        (
            (ALIAS, json!("work.karmada.io/permanent-id")),
            format!("{application}.aliasLabelName: `work.karmada.io/permanent-id` is set by Karmada itself; {other}"),
        ),
        (
            (ALIAS, json!("stateful-failover/type")),
            format!(
                "{application}.aliasLabelName: `stateful-failover/type` is reserved by this policy, as is everything that begins with `stateful-failover/`; {other}"
            ),
        ),
        (
            (ALIAS, json!("-x")),
            format!(
                "{application}.aliasLabelName: `-x` is not a label name: expected `name` or `dns.prefix/name`, the name of at most 63 letters, digits, `-`, `_`, `.`; {other}"
            ),
        ),
    ] {
        let policy = with(&[change]);
        assert_eq!(denial(&policy), finding);
        let warned = evaluate(&policy, &Value::Null, &json!({"lint": "Warn"}));
        assert!(warned.accepted && !warned.warnings().is_empty(), "Warn");
        let off = evaluate(&policy, &Value::Null, &json!({"lint": "Off"}));
        assert!(off.accepted && off.warnings.is_none() && off.audit_annotations.is_none(), "Off");
        // What is stored already does not stand in the way of Karmada's own writes.
        let unchanged = evaluate(&policy, &policy, &json!({}));
        assert!(unchanged.accepted && !unchanged.warnings().is_empty(), "unchanged");
        assert!(!evaluate(&policy, &sound(), &json!({})).accepted, "changed");
    }
    let twice = json!([{"aliasLabelName": "a", "jsonPath": "{.a}"}, {"aliasLabelName": "a", "jsonPath": "{.b}"}]);
    let path = "spec.failover.application.statePreservation.rules[1].aliasLabelName";
    assert_eq!(denial(&with(&[(RULES, twice)])), format!("{path}: `a` is the alias of rules[0] too; {other}"));
}

#[test]
fn what_just_has_no_finding() {
    for changes in [
        vec![],
        vec![(JSON_PATH, json!("{ .jobStatus.jobID }"))],
        vec![(JSON_PATH, json!("x-{.a}"))],
        vec![(JSON_PATH, json!("{.a.status}"))],
        vec![(JSON_PATH, json!("{.statuses}"))],
        vec![(ALIAS, json!("resourcebinding.karmada.io/failover-jobid"))],
        vec![(ALIAS, json!("application.karmada.io/failover-jobid"))],
        vec![("/spec/failover/application/purgeMode", json!("Immediately"))],
        vec![(CONSTRAINTS, json!([])), ("/spec/placement/clusterAffinity", json!({"clusterNames": ["a"]}))],
        vec![
            (CONSTRAINTS, json!([])),
            ("/spec/placement/clusterAffinities", json!([{"clusterNames": ["a"]}, {"clusterNames": ["b"]}])),
        ],
        vec![(CONSTRAINTS, json!([{"spreadByField": "region", "maxGroups": 2}, {"maxGroups": 1}]))],
        vec![("/spec/failover", Value::Null), ("/spec/propagateDeps", json!(false)), (CONSTRAINTS, json!([]))],
        vec![("/spec/failover/application/statePreservation", Value::Null), (CONSTRAINTS, json!([]))],
        // The same alias in both behaviours is one label that either of them feeds.
        vec![("/spec/failover/cluster", sound()["spec"]["failover"]["application"].clone())],
    ] {
        assert_eq!(warnings(&with(&changes)), [] as [&str; 0], "{changes:?}");
    }
}

#[test]
fn warnings_let_pass() {
    let rule = "spec.failover.application.statePreservation.rules[0].jsonPath";
    let constant = |text: &str| vec![format!("{rule}: `{text}` is constant text; the label always holds it")];
    let root = |path: &str| format!("{rule}: the root is already `status`; write `{path}`");
    let several = "spec.placement: can choose several clusters, state is fed to one only; add {spreadByField: cluster, maxGroups: 1}";
    let never_fed = |found: &str| {
        format!("spec.failover.application.purgeMode: {found}: state is preserved but never fed; write `Directly`")
    };
    for (changes, expected) in [
        (vec![(JSON_PATH, json!("true"))], constant("true")),
        (vec![(JSON_PATH, json!("{\"a.b\"}"))], constant("{\"a.b\"}")),
        (vec![(JSON_PATH, json!("{.status.jobId}"))], vec![root("{.jobId}")]),
        (vec![(JSON_PATH, json!("{ .status }"))], vec![root("{ @ }")]),
        (vec![("/spec/failover/application/purgeMode", json!("Never"))], vec![never_fed("is `Never`")]),
        (vec![("/spec/failover/application/purgeMode", json!("Graciously"))], vec![never_fed("is `Graciously`")]),
        (vec![("/spec/failover/application/purgeMode", Value::Null)], vec![never_fed("defaults to Gracefully")]),
        (vec![(CONSTRAINTS, Value::Null)], vec![several.to_owned()]),
        (vec![(CONSTRAINTS, json!([{"spreadByField": "cluster", "maxGroups": 2}]))], vec![several.to_owned()]),
        (vec![(CONSTRAINTS, json!([{"spreadByField": "region", "maxGroups": 1}]))], vec![several.to_owned()]),
        (vec![(CONSTRAINTS, json!([])), ("/spec/placement/clusterAffinity", json!({"clusterNames": ["a", "b"]}))], vec![several.to_owned()]),
        (
            vec![("/spec/propagateDeps", Value::Null)],
            vec!["spec.propagateDeps: application failover needs it, Karmada refuses the policy; write `propagateDeps: true`".to_owned()],
        ),
        (
            vec![(RULES, json!([]))],
            vec![
                "spec.failover.application.statePreservation.rules: is empty, so no state is preserved".to_owned(),
                "- add rules or remove statePreservation".to_owned(),
            ],
        ),
    ] {
        assert_eq!(warnings(&with(&changes)), expected, "{changes:?}");
    }
    let fed = json!({"feed": {"purgeModes": ["Directly", "Never"]}});
    let policy = with(&[("/spec/failover/application/purgeMode", json!("Never"))]);
    assert_eq!(evaluate(&policy, &Value::Null, &fed).warnings(), [] as [&str; 0], "Never is fed");
}

/// What would surely fail or do nothing, in the dialect's own ways.
#[test]
fn json_paths_that_mislead() {
    let rule = "spec.failover.application.statePreservation.rules[0].jsonPath";
    for (path, expected) in [
        (
            "{.offsets['orders.eu']}",
            &["a quoted name with dots is read as a path; write `{.offsets['orders\\.eu']}`"][..],
        ),
        (
            "{.a['x'].b['c.d']['e.f']}",
            &["a quoted name with dots is read as a path; write `{.a['x'].b['c\\.d']['e\\.f']}`"],
        ),
        ("{.offsets['orders\\.eu']}", &[]),
        (
            "{.jobId}\n",
            &["has text at an end that no label can hold; remove it, or the value is carried in the annotation only"],
        ),
        (
            "{range .l[*]}{.a},{end}",
            &["has text at an end that no label can hold; remove it, or the value is carried in the annotation only"],
        ),
        (
            " {.jobId}",
            &["has text at an end that no label can hold; remove it, or the value is carried in the annotation only"],
        ),
        ("v{.jobId}", &[]),
        (
            "{.metadata.name}",
            &["the root is `status`, which has no `metadata`; write the path of a field of the status"],
        ),
        ("{$.spec.x}", &["the root is `status`, which has no `spec`; write the path of a field of the status"]),
        ("{.statusCode}", &[]),
    ] {
        let found = warnings(&with(&[(JSON_PATH, json!(path))]));
        // A finding that is longer than a warning has its remedy on a second line.
        let found = found.join("\n").replace("\n- ", "; ");
        let expected: Vec<String> = expected.iter().map(|text| format!("{rule}: {text}")).collect();
        assert_eq!(found, expected.join("\n"), "{path}");
    }
    let open = evaluate(&with(&[(JSON_PATH, json!("{range .l[*]}{.a}"))]), &Value::Null, &json!({}));
    assert!(open.message.unwrap().contains("has a `range` without an `end`; close it with `{end}`"));
}

/// Every form that a remedy shows has no finding of its own.
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

/// Karmada copies the rules into the binding of every resource that the policy selects.
#[test]
fn policies_of_several_kinds() {
    let selectors = |kinds: &[(&str, &str)]| -> Value {
        kinds.iter().map(|(api_version, kind)| json!({"apiVersion": api_version, "kind": kind})).collect()
    };
    let flink = ("flink.apache.org/v1beta1", "FlinkDeployment");
    for (kinds, path, offenders) in [
        (vec![flink, ("v1", "ConfigMap"), ("v1", "Service")], "{.jobStatus.jobId}", Some("ConfigMap, Service")),
        (vec![flink, ("apps/v1", "Deployment")], "{.jobStatus.jobId}", Some("Deployment")),
        (vec![flink, ("networking.k8s.io/v1", "Ingress")], "{.jobStatus.jobId}", Some("Ingress")),
        (vec![("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")], "{.readyReplicas}", None),
        (vec![flink, flink], "{.jobStatus.jobId}", None),
        (vec![flink], "{.jobStatus.jobId}", None),
    ] {
        let policy = with(&[("/spec/resourceSelectors", selectors(&kinds)), (JSON_PATH, json!(path))]);
        let expected: Vec<String> = offenders.into_iter().map(|offenders| {
            format!("spec.resourceSelectors: {offenders} get the rules too, and have no such state; select them in a policy of their own")
        }).collect();
        let found = warnings(&policy).join("\n").replace("\n- ", "; ");
        assert_eq!(found, expected.join("\n"), "{kinds:?}");
    }
}

/// What Karmada does not interpret, a rule can't wait for or read; `lintKinds` says which kinds the user interprets himself.
/// Source: `testdata/facts/interpreted-kinds.json`.
#[test]
fn kinds_that_karmada_does_not_interpret() {
    const JSON_PATH_OF_THE_RULE: &str = "spec.failover.application.statePreservation.rules[0].jsonPath";
    // Cut where a warning ends.
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
        // This project's customization has its health, and leaves its status to Karmada.
        (&spark, "{.sparkApplicationId}", json!([]), vec![]),
        (&spark, "{.checkpoint}", json!([]), vec![not_reflected("checkpoint", SPARK)]),
        // A filter has no field to look for.
        (&job, "{..failed}", own(&job, json!(["active"])), vec![]),
    ] {
        let policy = with(&[("/spec/resourceSelectors", json!([kind])), (JSON_PATH, json!(path))]);
        let answer = evaluate(&policy, &Value::Null, &json!({"lintKinds": lint_kinds}));
        assert!(answer.accepted, "{answer:?}");
        let found = answer.warnings().join("\n").replace("\n- ", "; ");
        assert_eq!(found, expected.join("\n"), "{kind} {path} {lint_kinds}");
    }
}

#[test]
fn all_findings_at_once() {
    let cluster = json!({"statePreservation": {"rules": [{"aliasLabelName": "a", "jsonPath": "{.status.x}"}, {"aliasLabelName": "a", "jsonPath": "b.c"}]}});
    let policy = with(&[(JSON_PATH, json!("{")), ("/spec/failover/cluster", cluster), (CONSTRAINTS, json!([]))]);
    let answer = evaluate(&policy, &Value::Null, &json!({}));
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

/// Long texts of a user are cut in warnings and denials.
#[test]
fn long_texts_are_cut() {
    let long = "x".repeat(2000);
    let policy = with(&[(JSON_PATH, json!(long)), (ALIAS, json!(format!("-{long}")))]);
    assert!(denial(&policy).len() < 600);
    assert!(!warnings(&with(&[(JSON_PATH, json!(long))])).is_empty());
}

/// But for the one that sends an application to two clusters, of which state is fed to none.
#[test]
fn recorded_policies_have_no_other_finding() {
    for entry in std::fs::read_dir(project("testdata/recordings")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        for recorded in
            read(&path).unwrap().iter().filter(|recorded| recorded.text("/kind/kind").ends_with("PropagationPolicy"))
        {
            for implementation in policy::all() {
                let answer = implementation.validate(&recorded.request, &json!({}), &Arc::default()).unwrap();
                assert!(answer.accepted);
                let expected = if recorded.request["object"]["kind"] == "PropagationPolicy"
                    && path.ends_with("two-clusters-native.jsonl")
                {
                    vec![
                        "spec.placement: can choose several clusters, state is fed to one only; add {spreadByField: cluster, maxGroups: 1}",
                    ]
                } else if path.ends_with("siblings.jsonl") {
                    vec![
                        "spec.resourceSelectors: ConfigMap, Service get the rules too, and have no such state",
                        "- select them in a policy of their own",
                    ]
                } else {
                    vec![]
                };
                assert_eq!(answer.warnings(), expected, "{}", path.display());
            }
        }
    }
}
