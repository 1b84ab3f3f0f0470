//! Random hostile input by a grammar for each part that people can write: long templates, patterns with anchors, histories,
//! large records, nested private keys of the JSON library. Every answer comes, is bounded, and is the same when asked again.

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use stateful_failover::cluster::{Get, LookupError};
use stateful_failover::{Outcome, Request, Settings, evaluate};

use crate::model::hold;

const KEYS: [&str; 8] = [
    "a",
    "state",
    "from",
    "phase",
    "metadata",
    "$serde_json::private::Number",
    "$serde_json::private::RawValue",
    "\u{f8ff}a",
];

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        prop::sample::select(vec![
            "null",
            "true",
            "1",
            "1.50",
            "123456789012345678901234567890",
            "\"x\"",
            "\"a\\nb\"",
            "[]",
            "{}"
        ])
        .prop_map(|text| serde_json::from_str(text).unwrap()),
        "[a-z\\PC]{0,40}".prop_map(Value::from),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(5, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((prop::sample::select(KEYS.to_vec()), inner), 0..5).prop_map(|fields| Value::Object(
                fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
            )),
        ]
    })
}

/// Templates of the parts that cost: ranges that are closed or not, whole documents, descents, filters, unions.
fn template() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "{range}",
        "{range .l[*]}",
        "{range ..a}",
        "{end}",
        "{}",
        "{@}",
        "{..a}",
        "{..*}",
        "{.l[?(@.a)]}",
        "{.l[?(@.a==1)].a}",
        "{['a.b','c']}",
        "{.l[0,1,-1]}",
        "{.l[::2]}",
        "text",
        ",",
        "\n",
        "{\"x\"}",
        "{.a.b.c}",
        "{$}",
        "{.",
        "}",
        "'",
        "{.l[*]['a']}",
    ]);
    (prop::collection::vec(part, 0..12), 1..60_usize).prop_map(|(parts, times)| {
        let mut text = parts.concat().repeat(times);
        while text.len() > 4096 || !text.is_char_boundary(text.len()) {
            text.truncate(text.len().min(4096) - 1);
        }
        text
    })
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "", "../x", "a\u{1}", "\u{202e}"]).prop_map(str::to_owned)
}

fn history() -> impl Strategy<Value = String> {
    let text = |texts: &[&'static str]| prop::sample::select(texts.to_vec());
    let record = (
        text(&["application", "cluster", "move", "other"]),
        (name(), prop::collection::vec(name(), 0..4), prop::collection::vec(name(), 0..4)),
        text(&["Evicted", "Pending", "Recovered", "Expired", "Superseded", "Later"]),
        prop::collection::btree_map(name(), "[a-z]{0,9}", 0..3),
        any_json(),
    )
        .prop_map(|(kind, (from, before, to), phase, state, other)| {
            json!({"type": kind, "from": from, "before": before, "to": to, "phase": phase, "state": state, "purgeMode": "Directly", "later": other})
        });
    prop_oneof![
        8 => prop::collection::vec(record, 0..8).prop_map(|records| Value::from(records).to_string()),
        1 => any_json().prop_map(|json| json.to_string()),
        1 => "[\\[\\]{}\",a-z]{0,40}",
    ]
}

fn record() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec![
        "/spec/p",
        "/spec/p/-",
        "/spec/l/-",
        "/spec/l/[name=x]/v",
        "/spec/l/0/v",
        "/spec/m/a",
        "/spec",
        "",
        "/",
        "/spec/p/q",
    ]);
    let change = (any_json(), any_json(), key.clone(), any::<[bool; 3]>()).prop_map(|(was, set, parent, has)| {
        let fields =
            [("was", was), ("set", set), ("parent", json!(parent))].into_iter().zip(has).filter(|(_, has)| *has);
        Value::Object(fields.map(|((key, value), _)| (key.to_owned(), value)).collect())
    });
    let changes = prop::collection::vec((key, change), 0..6)
        .prop_map(|changes| Value::Object(changes.into_iter().map(|(key, change)| (key.to_owned(), change)).collect()));
    prop::collection::vec((prop::sample::select(vec!["r", "s", "other"]), changes), 0..4).prop_map(|rules| {
        Value::Object(rules.into_iter().map(|(rule, changes)| (rule.to_owned(), changes)).collect()).to_string()
    })
}

fn answer(request: &Value, settings: &Settings, found: &Value) -> Option<Value> {
    let cluster = |_: &Get<'_>| -> Result<Option<Value>, LookupError> { Ok(Some(found.clone())) };
    let text = request.to_string();
    let verdict = evaluate(&Request::from_json(&text).unwrap(), settings, &cluster).parsed();
    assert!(verdict.warnings.len() <= 17 && verdict.warnings.iter().all(|warning| warning.chars().count() <= 120));
    match verdict.outcome {
        Outcome::Accept => Some(request["object"].clone()),
        Outcome::Mutate(object) => Some(object),
        Outcome::Deny { message, .. } => {
            assert!(message.chars().count() <= 4096 && !message.contains('\n'), "{message}");
            None
        }
    }
}

fn answered_twice(request: &Value, settings: &Settings, found: &Value) -> Option<Value> {
    let first = answer(request, settings, found)?;
    let mut again = request.clone();
    again["object"] = first.clone();
    assert_eq!(answer(&again, settings, found), Some(first.clone()), "{request}");
    Some(first)
}

#[test]
fn bindings() {
    let clusters = || prop::collection::vec(name(), 0..3);
    let input = (
        (template(), template()),
        (history(), history()),
        (clusters(), clusters(), clusters()),
        (any_json(), prop::sample::select(vec!["Healthy", "Unhealthy", "Unknown"])),
        any::<bool>(),
    );
    hold(
        input,
        400,
        |((first, second), (stored, sent), (old_clusters, clusters, tasks), (status, health), proceed)| {
            let names = |names: &[String]| -> Value { names.iter().map(|name| json!({"name": name})).collect() };
            let rules = json!({"purgeMode": "Directly", "statePreservation": {"rules": [
                {"aliasLabelName": "a", "jsonPath": first}, {"aliasLabelName": "b", "jsonPath": second},
            ]}});
            let tasks: Value = tasks
                .iter()
                .map(|from| json!({"fromCluster": from, "reason": "ApplicationFailure", "purgeMode": "Directly"}))
                .collect();
            let binding = |clusters: &[String], history: &str| {
                json!({
                    "metadata": {"name": "x", "namespace": "n", "annotations": {"stateful-failover/history": history, "odd": "x"}, "odd": status},
                    "spec": {"clusters": names(clusters), "failover": {"application": rules, "cluster": rules},
                        "resource": {"apiVersion": "x.io/v1", "kind": "Thing", "name": "x", "namespace": "n"}},
                    "status": {"aggregatedStatus": [{"clusterName": "a", "health": health, "status": {"l": [status, {"a": 1}], "a": status}}]},
                })
            };
            let old = binding(&old_clusters, &stored);
            let mut object = binding(&clusters, &sent);
            object["spec"]["gracefulEvictionTasks"] = tasks;
            let settings = json!({"preserve": {"onMissingState": if proceed { "Proceed" } else { "Block" }}});
            let settings = Settings::from_json(&settings).unwrap();
            for (operation, old) in [("UPDATE", &old), ("CREATE", &Value::Null)] {
                let request = json!({"kind": {"group": "work.karmada.io", "kind": "ResourceBinding"}, "operation": operation,
                "object": object, "oldObject": old});
                let Some(result) = answered_twice(&request, &settings, &Value::Null) else { continue };
                assert_eq!(result["status"].to_string(), object["status"].to_string(), "untouched, to the last digit");
                let work = json!({
                    "metadata": {"name": "w", "annotations": {"resourcebinding.karmada.io/namespace": "n", "resourcebinding.karmada.io/name": "x"}},
                    "spec": {"workload": {"manifests": [{"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "n"}, "odd": status}]}},
                });
                let request = json!({"kind": {"group": "work.karmada.io", "kind": "Work"}, "namespace": "karmada-es-a", "name": "w",
                "operation": "CREATE", "object": work});
                answered_twice(&request, &settings, &result);
            }
        },
    );
}

#[test]
fn workloads() {
    let pattern = prop::sample::select(vec!["^[a-z]+$", "[0-9]*", "^(?:a|b.c)+$", ".*", "(a)|(b)", "^$"]);
    let template = prop::sample::select(vec!["{x}", "b/{x}/{y}", "{x}{y}{x}", "{name}-{x}", "x"]);
    let spec = || {
        prop::collection::vec((prop::sample::select(vec!["p", "l", "m", "q"]), any_json()), 0..4).prop_map(|fields| {
            Value::Object(fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect::<Map<_, _>>())
        })
    };
    let input =
        ((pattern, template), (record(), record()), (spec(), spec()), ("[a-z]{0,6}", "[a-z]{0,6}"), any::<bool>());
    hold(input, 400, |((pattern, template), (stored, sent), (old_spec, spec), (x, y), applies)| {
        let rule = |name: &str, set: Value| {
            json!({"name": name, "match": {"apiGroups": ["x.io"], "kinds": ["Thing"]}, "onUpdate": if applies { "Apply" } else { "Keep" },
                "vars": {"x": {"state": "x", "pattern": pattern, "onInvalid": "Skip"}, "y": {"state": "y", "pattern": ".*"}}, "set": set})
        };
        let settings = Settings::from_json(&json!({"restore": {"rules": [
            rule("r", json!([{"path": "/spec/p", "template": template}, {"path": "/spec/m/[*]", "value": 1}])),
            rule("s", json!([{"path": "/spec/l/-", "template": template}, {"path": "/spec/q", "mode": "Append", "separator": ",", "template": template}])),
        ]}}))
        .unwrap();
        let object = |spec: &Value, record: &str| {
            json!({"metadata": {"name": "n", "namespace": "ns", "annotations": {
                "stateful-failover/state": json!({"x": x, "y": y}).to_string(), "stateful-failover/restored": record}}, "spec": spec})
        };
        let (old, new) = (object(&old_spec, &stored), object(&spec, &sent));
        for (operation, old) in [("CREATE", &Value::Null), ("UPDATE", &old)] {
            let request = json!({"kind": {"group": "x.io", "kind": "Thing"}, "namespace": "ns", "name": "n", "operation": operation,
                "object": new, "oldObject": old});
            answered_twice(&request, &settings, &Value::Null);
        }
    });
}
