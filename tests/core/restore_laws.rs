//! The laws of the stage restore, for random rules and objects.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stateful_failover::cluster::NoCluster;
use stateful_failover::{Outcome, Request, Settings, evaluate};

/// Numbers whose text a parser that keeps numbers as floats would change, and other awkward values.
fn leaf() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        "null",
        "true",
        "\"x\"",
        "\"\"",
        "\"a,b\"",
        "1",
        "1.0",
        "1.50",
        "-0",
        "9007199254740993",
        "123456789012345678901234567890",
        "[]",
        "{}",
        "\"{{ jobId }} ${HOME}\"",
    ])
    .prop_map(|text| serde_json::from_str(text).unwrap())
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(vec!["a", "b"]), inner.clone()), 0..3).prop_map(|entries| {
                let entries: Vec<Value> =
                    entries.into_iter().map(|(name, value)| json!({"name": name, "v": value})).collect();
                Value::from(entries)
            }),
            prop::collection::btree_map("[abc]|a/b|~", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "a~1b", "~0", "[name=a]", "[name=b]", "[*]", "0", "v"]);
    prop::collection::vec(segment, 1..4).prop_map(|segments| format!("/spec/{}", segments.join("/")))
}

fn edit() -> impl Strategy<Value = Value> {
    let written = prop_oneof![
        leaf().prop_filter("null is no value", |value| !value.is_null()).prop_map(|value| ("value", value)),
        Just(("template", json!("s3://{id}/{name}"))),
        Just(("valueFrom", json!({"var": "id", "as": "Integer"}))),
    ];
    let mode = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({"mode": "IfAbsent"})),
        1 => Just(json!({"mode": "Append"})),
        1 => Just(json!({"mode": "Append", "separator": ","})),
    ];
    (path(), written, mode).prop_map(|(path, (key, value), mut edit)| {
        edit["path"] = json!(path);
        edit[key] = value;
        edit
    })
}

/// Settings with one to three rules.
struct Rules {
    json: Value,
    settings: Settings,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.json.fmt(f)
    }
}

/// Rules that the settings take.
fn rules() -> impl Strategy<Value = Rules> {
    let rule = (
        prop::collection::vec(path(), 0..2),
        prop::collection::vec(edit(), 0..3),
        prop::sample::select(vec!["Keep", "Apply"]),
    );
    prop::collection::vec(rule, 1..4).prop_filter_map("the settings refuse it", |rules| {
        let rules: Vec<Value> = rules
            .into_iter()
            .enumerate()
            .map(|(index, (remove, set, on_update))| {
                json!({
                    "name": format!("r{index}"), "match": {"apiGroups": ["x.io"], "kinds": ["Thing"]},
                    "vars": {"id": {"state": "id", "pattern": "[0-9]+"}}, "remove": remove, "set": set, "onUpdate": on_update,
                })
            })
            .collect();
        let settings = json!({"restore": {"rules": rules}});
        Settings::from_json(&settings).ok().map(|parsed| Rules { json: settings, settings: parsed })
    })
}

fn object(spec: &Value) -> Value {
    json!({"metadata": {"name": "n", "namespace": "ns", "labels": {"id": "42"}}, "spec": spec, "other": spec})
}

fn run(object: &Value, old: &Value, settings: &Settings) -> Option<Value> {
    let request = json!({
        "kind": {"group": "x.io", "version": "v1", "kind": "Thing"}, "name": "n", "namespace": "ns",
        "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": old,
    })
    .to_string();
    match evaluate(&Request::from_json(&request).unwrap(), settings, &NoCluster).outcome {
        Outcome::Accept => Some(object.clone()),
        Outcome::Mutate(result) => Some(result),
        Outcome::Deny { message, .. } => {
            assert!(message.len() < 1000, "{message}");
            None
        }
    }
}

fn without_record(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove("stateful-failover/restored");
    }
    object
}

/// The first segments of all paths that the rules write: what is outside of them must stay.
fn touched(settings: &Value) -> Vec<String> {
    let rules = settings["restore"]["rules"].as_array().unwrap();
    let paths = rules.iter().flat_map(|rule| {
        let set = rule["set"].as_array().unwrap().iter().map(|edit| edit["path"].clone());
        rule["remove"].as_array().unwrap().iter().cloned().chain(set).collect::<Vec<_>>()
    });
    paths.map(|path| path.as_str().unwrap().split('/').nth(2).unwrap().replace("~1", "/").replace("~0", "~")).collect()
}

/// More of them by `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_local_rejects: u32::MAX, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn done_twice_is_done_once(rules in rules(), spec in any_json()) {
        if let Some(result) = run(&object(&spec), &Value::Null, &rules.settings) {
            prop_assert_eq!(run(&result, &Value::Null, &rules.settings), Some(result));
        }
    }

    #[test]
    fn what_is_outside_of_the_paths_stays(rules in rules(), spec in any_json()) {
        let before = object(&spec);
        let Some(after) = run(&before, &Value::Null, &rules.settings) else { return Ok(()) };
        prop_assert_eq!(after["other"].to_string(), before["other"].to_string(), "number text and nulls too");
        prop_assert_eq!(&after["metadata"]["labels"], &before["metadata"]["labels"]);
        let touched = touched(&rules.json);
        if let (Value::Object(before), Value::Object(after)) = (&before["spec"], &after["spec"]) {
            if touched.iter().any(|key| key == "[*]") {
                return Ok(());
            }
            let rest = |fields: &Map<String, Value>| -> Map<String, Value> {
                fields.iter().filter(|(key, _)| !touched.contains(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            prop_assert_eq!(Value::Object(rest(after)).to_string(), Value::Object(rest(before)).to_string());
        }
    }

    /// A later write with the spec of the template, as Karmada's and GitOps tools' are, ends as the CREATE did; and a write
    /// that keeps everything changes nothing.
    #[test]
    fn a_revert_is_undone(rules in rules(), spec in any_json()) {
        let Some(created) = run(&object(&spec), &Value::Null, &rules.settings) else { return Ok(()) };
        prop_assert_eq!(run(&created, &created, &rules.settings), Some(created.clone()));
        let mut reverted = object(&spec);
        if let Some(annotations) = created["metadata"].get("annotations") {
            reverted["metadata"]["annotations"] = annotations.clone();
        }
        let Some(kept) = run(&reverted, &created, &rules.settings) else { panic!("a revert is never refused") };
        prop_assert_eq!(&kept, &created);
        let without_annotation = run(&without_record(&reverted), &created, &rules.settings).unwrap();
        prop_assert_eq!(without_record(&without_annotation), without_record(&created));
        prop_assert_eq!(run(&kept, &created, &rules.settings), Some(kept), "idempotent on UPDATE too");
    }

    /// An object that is written anew by a person, whatever is in it, is answered; and the same when asked again.
    #[test]
    fn any_update_is_answered(rules in rules(), spec in any_json(), edited in any_json()) {
        let Some(created) = run(&object(&spec), &Value::Null, &rules.settings) else { return Ok(()) };
        // With another state, rules of `onUpdate: Apply` are carried out anew.
        for id in ["42", "43"] {
            let mut edited = object(&edited);
            edited["metadata"]["labels"]["id"] = json!(id);
            if let Some(updated) = run(&edited, &created, &rules.settings) {
                prop_assert_eq!(run(&updated, &created, &rules.settings), Some(updated));
            }
        }
    }

    /// A forged record makes a rule write nothing that it would not write by itself.
    #[test]
    fn a_forged_record_writes_nothing(rules in rules(), spec in any_json(), place in path()) {
        let mut forged = object(&spec);
        let record = json!({"r0": {place: {"set": "forged"}}, "r1": {"/spec/a": {"set": "forged", "was": null}}, "z": {"/spec/b": {"set": "forged"}}});
        forged["metadata"]["annotations"] = json!({"stateful-failover/restored": record.to_string()});
        if let Some(updated) = run(&object(&spec), &forged, &rules.settings) {
            prop_assert!(!updated["spec"].to_string().contains("forged"));
        }
    }
}
