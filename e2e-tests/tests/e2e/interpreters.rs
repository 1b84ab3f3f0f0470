//! Tests of the customizations in deploy/interpreters, in the Lua version of Karmada.

use std::collections::BTreeSet;

use e2e_tests::project;
use serde_json::{Value, json};
use stateful_failover::interpreted_kinds::{Interpretation, SHIPPED};

use crate::interpreter::{self, Customization, Health};

fn customizations() -> Vec<Customization> {
    interpreter::all().unwrap_or_else(|error| panic!("{error:#}"))
}

/// `testdata/facts/status-examples.json`: statuses that the operators write, each with the health that a failover
/// needs. A question mark marks a matter of judgement.
#[test]
fn health_is_what_a_failover_needs() {
    let text = std::fs::read_to_string(project("testdata/facts/status-examples.json")).unwrap();
    let examples: Vec<Value> = serde_json::from_str(&text).unwrap();
    let (mut checked, mut with) = (0, BTreeSet::new());
    for example in &examples {
        let object = &example["object"];
        let want = match example["want"].as_str().unwrap() {
            "Healthy" | "Healthy?" => Health::Healthy,
            "Unhealthy" => Health::Unhealthy,
            _ => continue,
        };
        for customization in customizations().iter().filter(|customization| customization.is_for(object)) {
            let health = customization.health(object).unwrap_or_else(|error| panic!("{error:#}"));
            let Some(health) = health else { continue };
            assert_eq!(health, want, "{} {}", customization.file, object["metadata"]["name"]);
            with.insert(customization.file.clone());
            checked += 1;
        }
    }
    println!("{checked} statuses, {} customizations", with.len());
    assert!(checked >= 50 && with.len() >= 18, "{checked} {with:?}");
}

/// For any status, no script fails, health is a boolean, and the reflected status is a table.
#[test]
fn nothing_errors_on_any_status() {
    let statuses = [
        Value::Null,
        json!({}),
        json!([]),
        json!("text"),
        json!(5),
        json!({"conditions": null}),
        json!({"conditions": []}),
        json!({"conditions": "x"}),
        json!({"conditions": [null, 1, "x", {}, {"type": "Ready"}, {"type": 5, "status": []}]}),
        json!({"jobStatus": "x", "applicationState": 1, "currentState": [], "state": "x", "health": {}, "phase": []}),
        json!({"currentState": {"currentStateSummary": "ResourceReleased"}, "stateTransitionHistory": {"x": 1, "2": "y", "3": {}}}),
        json!({"printableStatus": {}, "PostgresClusterStatus": [], "jobStatus": {"state": 7}, "state": {"phase": {}}}),
        json!({"phase": "Invented", "state": {"phase": "Invented"}, "jobStatus": {"state": "INVENTED"}, "health": "purple"}),
    ];
    let specs = [Value::Null, json!({}), json!({"job": {}}), json!({"job": "x", "template": []})];
    for customization in customizations() {
        for (status, spec) in statuses.iter().flat_map(|status| specs.iter().map(move |spec| (status, spec))) {
            let object = json!({
                "apiVersion": customization.api_version, "kind": customization.kind, "spec": spec, "status": status,
                "metadata": {"name": "x", "annotations": {"reflect.stateful-failover/point": "p-17"}},
            });
            let desired = json!({"spec": spec, "metadata": {"name": "x"}});
            let item = json!([{"clusterName": "m1", "status": status}]);
            let outcome = customization
                .health(&object)
                .and_then(|_| customization.reflect(&object))
                .and_then(|_| customization.retain(&desired, &object))
                .and_then(|_| customization.aggregate(&desired, &item))
                .and_then(|_| customization.aggregate(&desired, &json!([])))
                .and_then(|_| customization.aggregate(&desired, &Value::Null));
            outcome.unwrap_or_else(|error| panic!("{error:#}: {object}"));
        }
    }
}

/// A customization that reflects the whole status changes nothing in it, and adds only annotations with the prefix.
#[test]
fn reflection_keeps_the_status() {
    let status =
        json!({"phase": "x", "nested": {"list": [1, {"a": "b"}], "flag": false}, "number": 1_734_462_491_693_u64});
    let mut checked = 0;
    for customization in customizations() {
        let annotations = json!({"reflect.stateful-failover/point": "p-17", "reflect.stateful-failoverx": "no", "other": "no",
            "resourcetemplate.karmada.io/generation": "3"});
        let object = json!({"metadata": {"uid": "u", "generation": 4, "annotations": annotations}, "status": status});
        let Some(reflected) = customization.reflect(&object).unwrap() else { continue };
        // For kinds of which Karmada reflects only parts, these parts stay the same.
        if reflected.get("resourceTemplateGeneration").is_none() {
            for (key, value) in status.as_object().unwrap() {
                assert_eq!(&reflected[key], value, "{}", customization.file);
            }
        } else {
            assert_eq!((&reflected["generation"], &reflected["resourceTemplateGeneration"]), (&json!(4), &json!(3)));
        }
        if reflected.get("uid").is_none() {
            assert_eq!(reflected["reflected"], json!({"point": "p-17"}), "{}", customization.file);
        }
        checked += 1;
    }
    assert!(checked >= 14, "{checked}");
}

/// Karmada's next write does not revert what a controller in the member wrote into the spec.
#[test]
fn what_controllers_write_into_the_spec_is_retained() {
    for (file, desired, observed, retained) in [
        (
            "sparkapplication-kubeflow.yaml",
            json!({"driver": {"memory": "1g"}, "executor": {}}),
            json!({"type": "Scala", "mode": "cluster", "driver": {"cores": 1, "memory": "2g"}, "executor": {"instances": 2, "x": 1}}),
            json!({"type": "Scala", "mode": "cluster", "driver": {"cores": 1, "memory": "1g"}, "executor": {"instances": 2}}),
        ),
        (
            "raycluster.yaml",
            json!({"enableInTreeAutoscaling": true, "workerGroupSpecs": [{"groupName": "a", "replicas": 1}, {"groupName": "b", "replicas": 1}]}),
            json!({"workerGroupSpecs": [{"groupName": "a", "replicas": 5}]}),
            json!({"enableInTreeAutoscaling": true, "workerGroupSpecs": [{"groupName": "a", "replicas": 5}, {"groupName": "b", "replicas": 1}]}),
        ),
        (
            "raycluster.yaml",
            json!({"workerGroupSpecs": [{"groupName": "a", "replicas": 1}]}),
            json!({"workerGroupSpecs": [{"groupName": "a", "replicas": 5}]}),
            json!({"workerGroupSpecs": [{"groupName": "a", "replicas": 1}]}),
        ),
        (
            "virtualmachine.yaml",
            json!({"template": {"spec": {"domain": {"cpu": {"cores": 2}}}}}),
            json!({"template": {"spec": {"domain": {"firmware": {"uuid": "u", "serial": "s"}}}}}),
            json!({"template": {"spec": {"domain": {"cpu": {"cores": 2}, "firmware": {"uuid": "u", "serial": "s"}}}}}),
        ),
        (
            "volcano-job.yaml",
            json!({"minAvailable": 1}),
            json!({"minAvailable": 1, "queue": "default"}),
            json!({"minAvailable": 1, "queue": "default"}),
        ),
    ] {
        let customization = customizations().into_iter().find(|customization| customization.file == file).unwrap();
        let result = customization.retain(&json!({"spec": desired}), &json!({"spec": observed})).unwrap().unwrap();
        assert_eq!(result["spec"], retained, "{file}");
    }
}

/// Karmada's webhook rejects two customizations for the same kind and operation, and names are unique.
#[test]
fn customizations_do_not_collide() {
    let mut targets = BTreeSet::new();
    for customization in customizations() {
        assert!(
            targets.insert((customization.api_version.clone(), customization.kind.clone())),
            "{}",
            customization.file
        );
    }
    let kustomization: Value =
        serde_yaml_ng::from_str(&std::fs::read_to_string(project("deploy/interpreters/kustomization.yaml")).unwrap())
            .unwrap();
    let files: BTreeSet<String> = customizations().into_iter().map(|customization| customization.file).collect();
    let listed: BTreeSet<String> =
        kustomization["resources"].as_array().unwrap().iter().map(|file| file.as_str().unwrap().to_owned()).collect();
    assert_eq!(files, listed);
}

/// Every customization that the stage `lint` suggests exists, and gives its kind a health.
#[test]
fn lint_offers_what_is_shipped() {
    let customizations = customizations();
    let expected: BTreeSet<(&str, &str, &str, bool)> = customizations
        .iter()
        .map(|customization| {
            let Customization { api_version, kind, file, .. } = customization;
            let has_health = Interpretation::of(api_version, kind, &[]).has_health;
            assert!(has_health || customization.has("healthInterpretation"), "{file}: {kind} has no health");
            (api_version.as_str(), kind.as_str(), file.as_str(), customization.has("statusReflection"))
        })
        .collect();
    assert_eq!(SHIPPED.iter().copied().collect::<BTreeSet<_>>(), expected);
}
