//! The stage restore: which objects a rule is for, and typed values, as tables. Single requests are in `cases/restore`.

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer};
use e2e_tests::request;
use serde_json::{Value, json};

/// The answer to the CREATE of a Pod that is fed `state` as `x`.
fn create(state: &str, settings: &Value) -> (Value, Answer) {
    let labels = json!({"app": "clicks", "karmada.io/managed": "true"});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {},
        "metadata": {"name": "clicks", "namespace": "stream-prod", "labels": labels}});
    let request = request::create(pod, &json!({"x": state})).unwrap();
    let (answer, _) = policy::evaluate(&request, settings, Host::default);
    (request["object"].clone(), answer)
}

/// A rule that sets `/spec/x` to the state `x`.
fn settings(as_type: &str) -> Value {
    json!({"restore": {"rules": [{
        "name": "r", "match": {"apiGroups": [""], "kinds": ["Pod"]},
        "vars": {"x": {"state": "x", "pattern": ".*"}},
        "set": [{"path": "/spec/x", "valueFrom": {"var": "x", "as": as_type}}],
    }]}})
}

fn is_matched(field: &str, value: &Value) -> bool {
    let mut settings = settings("String");
    settings["restore"]["rules"][0]["match"][field] = value.clone();
    create("7", &settings).1.mutated_object.is_some()
}

/// All operators of a LabelSelector. Source: `k8s.io/apimachinery/pkg/apis/meta/v1`, `LabelSelectorAsSelector`.
#[test]
fn label_selectors_match_as_in_kubernetes() {
    let expression = |expression: Value| json!({"matchExpressions": [expression]});
    for (selector, expected) in [
        (json!({}), true),
        (json!({"matchLabels": {"app": "clicks"}}), true),
        (json!({"matchLabels": {"app": "other"}}), false),
        (expression(json!({"key": "app", "operator": "In", "values": ["x", "clicks"]})), true),
        (expression(json!({"key": "absent", "operator": "In", "values": ["x"]})), false),
        (expression(json!({"key": "absent", "operator": "NotIn", "values": ["x"]})), true),
        (expression(json!({"key": "karmada.io/managed", "operator": "NotIn", "values": ["true"]})), false),
        (expression(json!({"key": "karmada.io/managed", "operator": "Exists"})), true),
        (expression(json!({"key": "karmada.io/managed", "operator": "DoesNotExist"})), false),
        (expression(json!({"key": "absent", "operator": "DoesNotExist"})), true),
    ] {
        assert_eq!(is_matched("labelSelector", &selector), expected, "{selector}");
    }
}

#[test]
fn namespaces_are_globs() {
    for (namespaces, expected) in [
        (json!(["stream-*"]), true),
        (json!(["stream"]), false),
        (json!(["*"]), true),
        (json!(["a", "stream-prod"]), true),
    ] {
        assert_eq!(is_matched("namespaces", &namespaces), expected, "{namespaces}");
    }
}

#[test]
fn only_canonical_text_becomes_a_number_or_boolean() {
    for (text, as_type, value) in [
        ("7", "Integer", Some(json!(7))),
        ("-3", "Integer", Some(json!(-3))),
        ("0", "Integer", Some(json!(0))),
        ("9223372036854775807", "Integer", Some(json!(i64::MAX))),
        ("9223372036854775808", "Integer", None),
        ("007", "Integer", None),
        ("1e5", "Integer", None),
        ("0x1F", "Integer", None),
        ("1_000", "Integer", None),
        ("+1", "Integer", None),
        ("-0", "Integer", None),
        ("true", "Boolean", Some(json!(true))),
        ("True", "Boolean", None),
        ("1", "Boolean", None),
        ("007", "String", Some(json!("007"))),
    ] {
        let (object, answer) = create(text, &settings(as_type));
        match value {
            Some(value) => assert_eq!(answer.apply(&object).unwrap()["spec"]["x"], value, "{text}"),
            None => {
                assert!(answer.message.unwrap().contains(&format!("variable `x` is `{text}`, expected ")), "{text}");
            }
        }
    }
}
