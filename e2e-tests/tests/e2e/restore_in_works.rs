//! Restore rules have the same effect at the control plane, on the manifest in a Work, as in the member cluster. Single
//! requests are in `cases/restore`, with names that begin with `work`.

use e2e_tests::host::Host;
use e2e_tests::policy::{Answer, evaluate};
use e2e_tests::{case, request};
use serde_json::{Value, json};

const RESTORED: &str = "stateful-failover/restored";
const STATE: &str = "stateful-failover/state";

/// A binding for `resource` whose application moved from m1 to m2 with `state`.
fn binding(resource: &Value, state: &Value) -> Value {
    let history = json!([{"type": "application", "from": "m1", "before": ["m1"], "to": ["m2"], "purgeMode": "Directly",
        "state": state, "phase": "Evicted"}]);
    let metadata = &resource["metadata"];
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {
            "name": "x", "namespace": "default",
            "labels": {"resourcebinding.karmada.io/permanent-id": "1"},
            "annotations": {"stateful-failover/history": history.to_string()},
        },
        "spec": {"clusters": [{"name": "m2"}], "resource": {
            "apiVersion": resource["apiVersion"], "kind": resource["kind"],
            "namespace": metadata["namespace"], "name": metadata["name"],
        }},
    })
}

/// What becomes of the manifest in a Work that is created for the binding in `objects`.
fn create_work(manifest: &Value, settings: &Value, objects: &[Value]) -> (Answer, Value) {
    let work = json!({
        "apiVersion": "work.karmada.io/v1alpha1", "kind": "Work",
        "metadata": {
            "name": "x-1", "namespace": "karmada-es-m2",
            "labels": {"resourcebinding.karmada.io/permanent-id": "1"},
            "annotations": {"resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": "x"},
        },
        "spec": {"workload": {"manifests": [manifest]}},
    });
    let (answer, _) = evaluate(&request::write(&work, &Value::Null), settings, || Host::new(objects.to_vec()));
    let result = answer.apply(&work).unwrap()["spec"]["workload"]["manifests"][0].take();
    (answer, result)
}

/// Of each case of a workload that is created with state, those of the examples among them.
#[test]
fn both_sides_end_with_the_same_object() {
    let (mut count, mut changed) = (0, 0);
    for case in case::all().unwrap().iter().filter(|case| case.host().fixed.is_none()) {
        let Some(create) = case.request.as_ref().filter(|request| request["operation"] == "CREATE") else { continue };
        let Some(state) = create["object"]["metadata"]["annotations"][STATE].as_str() else { continue };
        let state: Value = serde_json::from_str(state).unwrap();
        let mut template = create["object"].clone();
        template["metadata"]["annotations"].as_object_mut().unwrap().remove(STATE);
        if template["metadata"].get("name").is_none() {
            // Karmada propagates no objects without a name.
            template["metadata"]["name"] = json!("x");
        }
        let mut objects = case.host().objects;
        objects.push(binding(&template, &state));
        let (at_control_plane, in_work) = create_work(&template, &case.settings, &objects);
        let (_, fed) = create_work(&template, &json!({}), &objects);

        let (answer, _) = evaluate(&request::write(&fed, &Value::Null), &case.settings, || Host::new(objects.clone()));
        assert_eq!(answer.accepted, at_control_plane.accepted, "{}: {:?}", case.name, answer.message);
        if !answer.accepted {
            continue;
        }
        let in_member = answer.apply(&fed).unwrap();
        assert_eq!(in_work, in_member, "{}", case.name);
        changed += usize::from(in_member["metadata"]["annotations"].get(RESTORED).is_some());

        // With the same rules on both sides, what arrives from the Work stays as it is.
        let (answer, _) =
            evaluate(&request::write(&in_work, &Value::Null), &case.settings, || Host::new(objects.clone()));
        assert_eq!(answer.mutated_object, None, "{}", case.name);
        count += 1;
    }
    assert!(count >= 40 && changed >= 40, "{changed} of {count} are changed");
}
