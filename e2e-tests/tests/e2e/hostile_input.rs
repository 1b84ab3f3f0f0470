//! Hostile input: the answer is right, short and fast, nothing is lost, and no value is written that a rule would not
//! write otherwise.

use std::sync::Arc;

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer, Module};
use e2e_tests::request;
use serde_json::{Map, Value, json};

const RESTORED: &str = "stateful-failover/restored";
const STATE: &str = "stateful-failover/state";

fn evaluate(request: &Value, settings: &Value) -> Answer {
    policy::evaluate(request, settings, Host::default).0
}

/// The text that the module answers to a payload.
fn call(payload: &str) -> String {
    let answer = Module::built().call("validate", payload.as_bytes(), &Arc::default()).unwrap();
    String::from_utf8(answer).unwrap()
}

fn rules(rules: Value) -> Value {
    json!({"restore": {"rules": rules}})
}

fn rule(fields: Value) -> Value {
    let mut rule =
        json!({"name": "r", "match": {"apiGroups": ["x.io"], "kinds": ["Thing"]}, "vars": {"x": {"state": "x"}}});
    rule.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    rule
}

fn thing(spec: Value, annotations: Value) -> Value {
    let mut object = json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "n", "namespace": "ns", "annotations": {STATE: "{\"x\":\"job7\"}"}}, "spec": spec});
    object["metadata"]["annotations"].as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
    object
}

fn write(object: &Value, old: &Value, settings: &Value) -> Value {
    let answer = evaluate(&request::write(object, old), settings);
    assert!(answer.accepted, "{:?}", answer.message);
    answer.apply(object).unwrap()
}

/// A forged record, however large, writes nothing.
#[test]
fn forged_records_write_nothing() {
    let settings = rules(json!([rule(json!({"set": [{"path": "/spec/p", "template": "{x}"}]}))]));
    let entries = |count: usize, key: &dyn Fn(usize) -> String| -> Value {
        let entries: Map<String, Value> =
            (0..count).map(|index| (key(index), json!({"set": "evil", "was": "evil"}))).collect();
        json!({"r": entries})
    };
    let records = [
        entries(5000, &|index| format!("/spec/{index}")),
        entries(900, &|index| format!("/spec/{index}")),
        entries(1, &|_| "/spec/p".to_owned()),
        entries(1, &|_| "/spec/p/-".to_owned()),
        entries(1, &|_| "/metadata/labels/admin".to_owned()),
        json!({"r": {"/spec/p": 5, "": {}, "x": null}, "s": 7}),
        json!([]),
        json!("x"),
    ];
    for record in records {
        let padding = "x".repeat(100_000);
        let forged = thing(json!({"padding": padding, "p": "mine"}), json!({RESTORED: record.to_string()}));
        let honest = thing(json!({"padding": padding}), json!({}));
        for (object, old) in [(&forged, &Value::Null), (&honest, &forged), (&forged, &honest)] {
            let answer = evaluate(&request::write(object, old), &settings);
            let result = answer.apply(object).unwrap();
            let text = result["spec"]["p"].as_str().unwrap_or_default();
            assert!(["", "mine", "job7"].contains(&text), "{record}: {text}");
            assert_eq!(result["metadata"].get("labels"), None);
            assert!(answer.warnings().len() <= 17, "{}", answer.warnings().len());
        }
    }
}

/// A record that is too large for an API server is an error.
#[test]
fn records_have_a_maximum_size() {
    let settings =
        rules(json!([rule(json!({"remove": ["/spec/data"], "set": [{"path": "/spec/p", "template": "{x}"}]}))]));
    let answer =
        evaluate(&request::write(&thing(json!({"data": "x".repeat(300_000)}), json!({})), &Value::Null), &settings);
    let message = answer.message.unwrap();
    assert!(
        message.starts_with("cannot restore Thing `ns/n`: the annotation `stateful-failover/restored` would have 3000"),
        "{message}"
    );
    assert!(message.ends_with("replace or remove smaller parts of the object"), "{message}");
    let others = thing(json!({"data": "x".repeat(100_000)}), json!({"note": "x".repeat(200_000)}));
    assert!(!evaluate(&request::write(&others, &Value::Null), &settings).accepted, "other annotations count");
}

/// Denials have a limited length for any input, and escape control characters.
#[test]
fn messages_have_a_maximum_length() {
    let many: Vec<Value> = (0..20_000)
        .map(|index| json!({"aliasLabelName": format!("a\u{1}\n{index}"), "jsonPath": format!("{{.a{index}")}))
        .collect();
    let behavior = json!({"purgeMode": "Directly", "statePreservation": {"rules": many}});
    let policy = json!({
        "kind": {"group": "policy.karmada.io", "kind": "PropagationPolicy"}, "operation": "CREATE", "name": "a\nb",
        "object": {"metadata": {"name": "p"}, "spec": {"failover": {"cluster": behavior}}},
    });
    let stored = json!({
        "metadata": {"name": "x"}, "spec": {"clusters": [{"name": "a"}], "failover": {"cluster": behavior},
        "resource": {"apiVersion": "x.io/v1", "kind": "Thing", "namespace": "default", "name": "x"}},
        "status": {"aggregatedStatus": [{"clusterName": "a", "status": {"b": 1}}]},
    });
    let mut evicted = stored.clone();
    evicted["spec"]["clusters"] = json!([]);
    evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "a", "reason": "TaintUntolerated"}]);
    let eviction = json!({
        "kind": {"group": "work.karmada.io", "kind": "ResourceBinding"}, "operation": "UPDATE", "object": evicted, "oldObject": stored,
    });
    for request in [policy, eviction] {
        let answer = evaluate(&request, &json!({}));
        let message = answer.message.unwrap();
        assert!(
            message.chars().count() <= 4096 && !message.contains(['\n', '\u{1}']),
            "{} bytes: {message}",
            message.len()
        );
        assert!(message.contains("more"), "{message}");
    }
    let settings = rules(Value::from(vec![json!({"nme": 1}); 20_000]));
    for implementation in policy::all() {
        let message = implementation.validate_settings(&settings).unwrap().unwrap();
        assert!(message.len() < 10_000 && message.contains(" more"), "{} bytes", message.len());
    }
}

/// Settings with too many paths are invalid; the largest valid ones are checked in a short time.
#[test]
fn settings_of_many_paths() {
    let set = |count: usize| -> Value {
        (0..count).map(|index| json!({"path": format!("/spec/a{index}/b"), "value": 1})).collect()
    };
    for implementation in policy::all() {
        assert_eq!(implementation.validate_settings(&rules(json!([rule(json!({"set": set(2000)}))]))).unwrap(), None);
        let errors =
            implementation.validate_settings(&rules(json!([rule(json!({"set": set(2001)}))]))).unwrap().unwrap();
        assert_eq!(errors, "restore.rules: have more than 2000 paths in all; remove some");
    }
    assert_eq!(
        write(&thing(json!({}), json!({})), &Value::Null, &rules(json!([rule(json!({"set": set(900)}))])))["spec"]["a899"]
            ["b"],
        1
    );
}

/// The private keys of the JSON library are treated as any other key in every stage.
#[test]
fn private_keys_of_the_json_library() {
    let keys = ["$serde_json::private::Number", "$serde_json::private::RawValue"];
    for (key, value) in keys.into_iter().flat_map(|key| ["x", "5", "{\"a\":1}"].map(|value| (key, value))) {
        let odd = json!({"odd": 1}).to_string().replace("\"odd\":1", &format!("{}:{}", json!(key), json!(value)));
        let settings = rules(json!([rule(json!({"set": [{"path": "/spec/p", "template": "{x}"}]}))]));
        let payload = |text: &str| text.replace("\"ODD\"", &odd);
        let restored = json!({"request": request::write(&thing(json!({"z": "ODD"}), json!({})), &Value::Null), "settings": settings});
        let stored = json!({"metadata": {"name": "x", "annotations": {"a": "b"}}, "spec": {"clusters": [{"name": "a"}], "odd": "ODD",
            "failover": {"application": {"statePreservation": {"rules": [{"aliasLabelName": "job", "jsonPath": "{.job}"}]}}}},
            "status": {"aggregatedStatus": [{"clusterName": "a", "status": {"job": "j", "odd": "ODD"}}]}});
        let mut evicted = stored.clone();
        evicted["spec"]["clusters"] = json!([]);
        evicted["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "a", "reason": "ApplicationFailure"}]);
        let mut terminating = stored.clone();
        terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let binding = |object: &Value| {
            json!({"request": {"kind": {"group": "work.karmada.io", "kind": "ResourceBinding"}, "operation": "UPDATE",
                "object": object, "oldObject": stored}, "settings": {}})
        };
        for (request, is_mutated) in
            [(restored, true), (binding(&evicted), true), (binding(&terminating), false), (binding(&stored), false)]
        {
            let answer = call(&payload(&request.to_string()));
            assert!(answer.starts_with("{\"accepted\":true"), "{answer}");
            assert_eq!(answer.contains("\"mutated_object\":{"), is_mutated, "{answer}");
            assert_eq!(answer.contains(&odd), is_mutated, "{odd}: {answer}");
        }
    }
    // Nested as deeply as escaped text can be.
    let mut nested = "1".to_owned();
    for _ in 0..12 {
        nested = json!({"$serde_json::private::RawValue": nested}).to_string();
    }
    let request = format!(
        "{{\"request\":{{\"kind\":{{\"group\":\"work.karmada.io\",\"kind\":\"ResourceBinding\"}},\"operation\":\"UPDATE\",\"object\":{nested}}}}}"
    );
    call(&request);
}

/// Objects that are being deleted are accepted before they are parsed, so that their finalizers can be removed.
#[test]
fn terminating_objects_pass_unparsed() {
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let object = format!("{{\"metadata\":{{\"deletionTimestamp\":\"2026-01-01T00:00:00Z\"}},\"spec\":{deep}}}");
    for kind in ["ResourceBinding", "Work"] {
        let request = format!(
            "{{\"request\":{{\"kind\":{{\"group\":\"work.karmada.io\",\"kind\":\"{kind}\"}},\"operation\":\"UPDATE\",\"object\":{object}}}}}"
        );
        assert!(call(&request).starts_with("{\"accepted\":true"));
    }
}
