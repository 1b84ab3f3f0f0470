//! The policy reads parts of objects and edits their text. Here its answers are compared with those of the same stages
//! on whole serde_json values: the same verdict, the same object, and the same bytes where nothing changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{TestRng, TestRunner};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};
use stateful_failover::cluster::{Get, LookupError};
use stateful_failover::{Outcome, Request, Settings, Verdict, evaluate, metadata, review};

use crate::restore_laws;

/// The number of requests: `DIFFERENTIAL_RUNS`, by default 3,000.
fn runs() -> u32 {
    std::env::var("DIFFERENTIAL_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(3000)
}

/// A request with the text of its objects, as they are fuzzed.
#[derive(Debug, Clone)]
struct Case {
    /// The request without the objects.
    request: Value,
    object: Value,
    old: Value,
    settings: Value,
    /// The object that every lookup finds.
    found: Value,
}

/// Every recorded write, with restore rules that use every feature; and each manifest as a workload that is created.
fn corpus() -> Vec<Case> {
    let mut cases = Vec::new();
    for recording in files("testdata/recordings", "jsonl") {
        let mut binding = json!({"metadata": {}, "spec": {}});
        for line in fs::read_to_string(recording).unwrap().lines() {
            let recorded: Value = serde_json::from_str(line).unwrap();
            let mut request = recorded["request"].clone();
            if request["kind"]["kind"] == "ResourceBinding" {
                binding = request["object"].clone();
            }
            let (object, old) = (request["object"].take(), request["oldObject"].take());
            cases.push(Case { request, object, old, settings: rules(), found: binding.clone() });
        }
    }
    for manifest in files("testdata/manifests", "yaml") {
        let text = fs::read_to_string(manifest).unwrap();
        for object in serde_yaml_ng::Deserializer::from_str(&text) {
            let Ok(mut object) = <Value as serde::Deserialize>::deserialize(object) else { continue };
            let Some(api_version) = object["apiVersion"].as_str() else { continue };
            let group = api_version.split_once('/').map_or("", |(group, _)| group).to_owned();
            let kind = object["kind"].clone();
            if object["metadata"].is_object() {
                object["metadata"]["annotations"]["stateful-failover/state"] = json!(r#"{"id":"42"}"#);
            }
            let request =
                json!({"kind": {"group": group, "kind": kind}, "operation": "CREATE", "namespace": "ns", "name": "n"});
            cases.push(Case { request, object, old: Value::Null, settings: rules(), found: Value::Null });
        }
    }
    assert!(cases.len() > 250, "{} cases", cases.len());
    cases
}

/// Rules with all kinds of paths and edits: names, selectors, indexes and `[*]`; remove, replace and append.
fn rules() -> Value {
    let rule = |name: &str, set: Value, remove: Value| {
        json!({"name": name, "match": {"apiGroups": ["*"], "kinds": [
                "FlinkDeployment", "Deployment", "StatefulSet", "Pod", "Job", "CronJob", "RayJob", "Workflow", "Cluster", "Kafka"]},
            "vars": {"id": {"state": "id", "pattern": ".*", "onMissing": "Skip"},
                     "job": {"state": "resourcebinding.karmada.io/failover-jobid", "pattern": ".*", "onMissing": "Skip"}},
            "set": set, "remove": remove, "onUpdate": "Apply"})
    };
    json!({"restore": {"rules": [
        rule("names", json!([{"path": "/spec/job/initialSavepointPath", "template": "s3://{id}"}, {"path": "/spec/new/deep", "value": 1.50}]),
            json!(["/spec/job/state", "/spec/replicas"])),
        rule("lists", json!([
            {"path": "/spec/template/spec/containers/[*]/image", "value": "x"},
            {"path": "/spec/list/[name=a]/v", "value": [1, {}]}, {"path": "/spec/args", "mode": "Append", "value": "--x"}]),
            json!(["/spec/volumes/[name=data]", "/spec/containers/0/env"])),
    ]}})
}

fn files(folder: &str, extension: &str) -> Vec<std::path::PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    files
}

/// The value of a duplicate member.
const TWICE: &str = "the first of two";

/// Writes an odd value to a random place, or removes a value.
fn change(value: &mut Value, rng: &mut TestRng) {
    match value {
        Value::Object(fields) if !fields.is_empty() && rng.random_range(0..8) > 0 => {
            let key = fields.keys().nth(rng.random_range(0..fields.len())).unwrap().clone();
            match rng.random_range(0..12) {
                0 => drop(fields.remove(&key)),
                1 => drop(fields.insert(key + "x", odd(rng))),
                _ => change(fields.get_mut(&key).unwrap(), rng),
            }
        }
        Value::Array(items) if !items.is_empty() && rng.random_range(0..8) > 0 => {
            let index = rng.random_range(0..items.len());
            match rng.random_range(0..8) {
                0 => drop(items.remove(index)),
                1 => items.push(items[index].clone()),
                2 => items.insert(index, odd(rng)),
                _ => change(&mut items[index], rng),
            }
        }
        value => *value = odd(rng),
    }
}

fn odd(rng: &mut TestRng) -> Value {
    let odd = [
        json!(null),
        json!(true),
        json!(""),
        json!("a"),
        json!("a\"b\\\n\u{1}é\u{1f600}"),
        json!(0),
        json!(-0.0),
        json!(1e300),
        json!(18_446_744_073_709_551_615_u64),
        json!([]),
        json!({}),
        json!([[{"name": "a"}]]),
        json!({"name": "a", "v": {}}),
        json!({"metadata": {"name": "x"}}),
        json!([{"name": "a", "v": 1}, {"name": "a"}]),
        json!({"$serde_json::private::Number": "1"}),
    ];
    odd[rng.random_range(0..odd.len())].clone()
}

/// The value in unusual text: white space, escapes, numbers with unnecessary digits, duplicate members.
fn spell(value: &Value, rng: &mut TestRng, is_odd: bool, text: &mut String) {
    let mut space = |text: &mut String| {
        if is_odd && rng.random_range(0..6) == 0 {
            text.push_str([" ", "\n", "\t ", "\r\n"][rng.random_range(0..4)]);
        }
    };
    space(text);
    match value {
        Value::Object(fields) => {
            text.push('{');
            let mut separator = "";
            let twice = Value::from(TWICE);
            for (key, value) in fields {
                let is_twice = is_odd && rng.random_range(0..60) == 0;
                for value in is_twice.then_some(&twice).into_iter().chain([value]) {
                    text.push_str(std::mem::replace(&mut separator, ","));
                    spell(&Value::from(key.as_str()), rng, is_odd, text);
                    text.push(':');
                    spell(value, rng, is_odd, text);
                }
            }
            text.push('}');
        }
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                text.push_str(if index == 0 { "" } else { "," });
                spell(item, rng, is_odd, text);
            }
            text.push(']');
        }
        Value::String(string) if is_odd && string != TWICE && rng.random_range(0..8) == 0 => {
            text.push('"');
            for unit in string.encode_utf16() {
                text.push_str(&format!("\\u{unit:04X}"));
            }
            text.push('"');
        }
        Value::Number(number) if is_odd && number.is_u64() && rng.random_range(0..8) == 0 => {
            text.push_str(&format!("{number}.000"));
        }
        value => text.push_str(&value.to_string()),
    }
    if is_odd && rng.random_range(0..20) == 0 {
        text.push(' ');
    }
}

/// Damaged text, which is mostly not JSON any more.
fn damage(text: &mut String, rng: &mut TestRng) {
    let mut at = rng.random_range(0..=text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    match rng.random_range(0..5) {
        0 => text.truncate(at),
        1 => text.insert_str(at, "\\ud800"),
        2 => text.insert_str(at, &"[".repeat(200)),
        3 => text.insert(at, ['"', '{', '}', ',', ':', '\u{0}'][rng.random_range(0..6)]),
        _ => text.insert_str(at, "nul"),
    }
}

/// The policy on values, with both objects parsed as a whole.
fn on_values(request: &Request<'_>, object: &Value, old: &Value, case: &Case, settings: &Settings) -> Verdict {
    let old = (!request.is_create() && old.is_object()).then_some(old);
    let is_workload = !request.kind.group.ends_with("karmada.io");
    if !request.is_write()
        || !object.is_object()
        || metadata::is_terminating(object)
        || (is_workload && settings.restore.is_empty())
    {
        return Verdict::accept();
    }
    review(request, object, old, settings, &|_: &Get<'_>| found(case)).limited()
}

fn found(case: &Case) -> Result<Option<Value>, LookupError> {
    Ok(Some(case.found.clone()).filter(Value::is_object))
}

/// Runs one case, and returns its outcome.
fn compare(case: &Case, object: &str, old: &str) -> &'static str {
    let mut request = case.request.clone();
    request["object"] = json!("OBJECT");
    request["oldObject"] = json!("OLD");
    let text = request.to_string().replacen("\"OBJECT\"", object, 1).replacen("\"OLD\"", old, 1);
    let settings = Settings::from_json(&case.settings).unwrap();
    let Ok(request) = Request::from_json(&text) else { return "not read" };
    let verdict = evaluate(&request, &settings, &|_: &Get<'_>| found(case));
    let parsed = (serde_json::from_str::<Value>(object), serde_json::from_str::<Value>(old));
    let (Ok(whole), Ok(whole_old)) = parsed else {
        // The policy does not check what it does not read. The engine rejects an object that is not JSON.
        if let Outcome::Mutate(mutated) = &verdict.outcome {
            let is_json = serde_json::from_str::<Value>(mutated).is_ok();
            assert!(!is_json || serde_json::from_str::<Value>(object).is_ok(), "{text}");
        }
        return "no JSON";
    };
    let expected = on_values(&request, &whole, &whole_old, case, &settings);
    // An object with a duplicate member is serialized again.
    if let Outcome::Mutate(mutated) = &verdict.outcome
        && !object.contains(TWICE)
    {
        assert_untouched(object, mutated);
    }
    let is_mutated = matches!(verdict.outcome, Outcome::Mutate(_));
    assert_eq!(verdict.parsed(), expected, "{text}");
    match expected.outcome {
        Outcome::Deny { .. } => "denied",
        _ if is_mutated => "mutated",
        _ => "accepted",
    }
}

/// Checks that equal members of two objects have equal texts.
fn assert_untouched(before: &str, after: &str) {
    let (Some(before), Some(after)) = (members(before), members(after)) else { return };
    for (key, before) in before {
        let Some(after) = after.get(&key) else { continue };
        if serde_json::from_str::<Value>(before).ok() == serde_json::from_str(after).ok() {
            assert_eq!(before, *after, "{key}");
        } else {
            assert_untouched(before, after);
        }
    }
}

/// The text of each member of an object, as serde_json delimits it.
fn members(text: &str) -> Option<BTreeMap<String, &str>> {
    let mut members = BTreeMap::new();
    let mut rest = text.trim_start().strip_prefix('{')?.trim_start();
    while !rest.starts_with('}') {
        let mut keys = serde_json::Deserializer::from_str(rest).into_iter::<String>();
        let key = keys.next()?.ok()?;
        let value = rest[keys.byte_offset()..].trim_start().strip_prefix(':')?.trim_start();
        let mut values = serde_json::Deserializer::from_str(value).into_iter::<IgnoredAny>();
        values.next()?.ok()?;
        let (value, behind) = value.split_at(values.byte_offset());
        members.insert(key, value);
        rest = behind.trim_start();
        rest = rest.strip_prefix(',').unwrap_or(rest).trim_start();
    }
    Some(members)
}

#[test]
fn the_text_is_edited_as_the_value_is() {
    let corpus = corpus();
    // Most requests are accepted unchanged; half of the runs are for those that are not.
    let (mutated, others): (Vec<Case>, Vec<Case>) = corpus
        .into_iter()
        .partition(|case| compare(case, &case.object.to_string(), &case.old.to_string()) == "mutated");
    let mut runner = TestRunner::deterministic();
    let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
    for run in 0..runs() {
        // Every run has its own random stream, so that it can be repeated alone.
        let mut rng = runner.new_rng();
        let cases = if run % 2 == 0 { &mutated } else { &others };
        let mut case = cases[run as usize / 2 % cases.len()].clone();
        for _ in 0..rng.random_range(0..4) {
            change(&mut case.object, &mut rng);
            if rng.random_range(0..2) == 0 {
                change(&mut case.old, &mut rng);
            }
        }
        if rng.random_range(0..12) == 0 && case.object["metadata"].is_object() {
            case.object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        let is_odd = rng.random_range(0..3) > 0;
        let [mut object, mut old] = [String::new(), String::new()];
        spell(&case.object, &mut rng, is_odd, &mut object);
        spell(&case.old, &mut rng, is_odd, &mut old);
        if rng.random_range(0..8) == 0 {
            damage(if rng.random_range(0..2) == 0 { &mut object } else { &mut old }, &mut rng);
        }
        *counts.entry(compare(&case, object.trim(), old.trim())).or_default() += 1;
    }
    // The comparison is only meaningful if enough requests are mutated or denied.
    for (outcome, share) in [("mutated", 5), ("accepted", 5), ("denied", 1000), ("no JSON", 50)] {
        assert!(counts.get(outcome).is_some_and(|count| *count > runs() / share), "{counts:?}");
    }
}

#[test]
fn random_rules_edit_the_text_as_they_edit_the_value() {
    let input = (restore_laws::rules(), restore_laws::spec(), restore_laws::spec());
    crate::model::hold(input.prop_map(|(rules, spec, old)| (rules.json, spec, old)), 1500, |(settings, spec, old)| {
        let request = |operation| json!({"kind": {"group": "x.io", "version": "v1", "kind": "Thing"}, "name": "n", "namespace": "ns", "operation": operation});
        let [object, old] = [spec, old].map(|spec| restore_laws::object(&spec));
        let case = |operation| Case {
            request: request(operation),
            object: object.clone(),
            old: old.clone(),
            settings: settings.clone(),
            found: Value::Object(Map::new()),
        };
        compare(&case("CREATE"), &object.to_string(), "null");
        compare(&case("UPDATE"), &object.to_string(), &old.to_string());
    });
}
