//! The laws of the stage restore, for random rules and objects: in a member cluster, and on the manifest in a Work.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use serde_json::{Map, Value, json};
use stateful_failover::cluster::{Get, LookupError};
use stateful_failover::{Outcome, Request, Settings, evaluate};

const RECORD: &str = "stateful-failover/restored";
const STATE: &str = "stateful-failover/state";

/// Awkward values, such as numbers that a float can't represent.
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

/// Mostly an object with fields to which the paths of the rules lead.
pub(crate) fn spec() -> impl Strategy<Value = Value> {
    let fields = prop::collection::btree_map("[abc]", any_json(), 0..4);
    prop_oneof![4 => fields.prop_map(|fields| Value::Object(fields.into_iter().collect())), 1 => any_json()]
}

fn path() -> impl Strategy<Value = String> {
    let segment = prop::sample::select(vec!["a", "b", "c", "a~1b", "~0", "[name=a]", "[name=b]", "[*]", "0", "v"]);
    prop::collection::vec(segment, 1..3).prop_map(|segments| format!("/spec/{}", segments.join("/")))
}

fn edit() -> impl Strategy<Value = Value> {
    let written = prop_oneof![
        leaf().prop_filter("null is not a value", |value| !value.is_null()).prop_map(|value| ("value", value)),
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
pub(crate) struct Rules {
    pub(crate) json: Value,
    pub(crate) settings: Settings,
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.json.fmt(f)
    }
}

/// Valid rules.
pub(crate) fn rules() -> impl Strategy<Value = Rules> {
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

/// The object that the rules match, with state.
pub(crate) fn object(spec: &Value) -> Value {
    with_state(spec, "42")
}

fn with_state(spec: &Value, id: &str) -> Value {
    json!({
        "apiVersion": "x.io/v1", "kind": "Thing",
        "metadata": {"name": "n", "namespace": "ns", "labels": {"id": id}, "annotations": {STATE: json!({"id": id}).to_string()}},
        "spec": spec, "other": spec,
    })
}

/// Where the rules are applied.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// On the object in a member cluster.
    Member,
    /// On the manifest in a Work at the control plane.
    Work,
}

impl Way {
    const ALL: [Self; 2] = [Self::Member, Self::Work];

    /// The stored object; `None` where the request is denied.
    fn run(self, object: &Value, old: &Value, settings: &Settings) -> Option<Value> {
        let wrap = |object: &Value| match self {
            _ if object.is_null() => Value::Null,
            Self::Member => object.clone(),
            Self::Work => json!({
                "metadata": {"annotations": {"clusterresourcebinding.karmada.io/name": "b"}},
                "spec": {"workload": {"manifests": [object]}},
            }),
        };
        let (group, kind, namespace) = match self {
            Self::Member => ("x.io", "Thing", "ns"),
            Self::Work => ("work.karmada.io", "Work", "karmada-es-m"),
        };
        let request = json!({
            "kind": {"group": group, "version": "v1", "kind": kind}, "name": "n", "namespace": namespace,
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": wrap(object), "oldObject": wrap(old),
        })
        .to_string();
        let resource = json!({"apiVersion": "x.io/v1", "kind": "Thing", "namespace": "ns", "name": "n"});
        let binding =
            |_: &Get<'_>| -> Result<Option<Value>, LookupError> { Ok(Some(json!({"spec": {"resource": resource}}))) };
        match evaluate(&Request::from_json(&request).unwrap(), settings, &binding).parsed().outcome {
            Outcome::Accept => Some(object.clone()),
            Outcome::Mutate(result) => Some(match self {
                Self::Member => result,
                Self::Work => result["spec"]["workload"]["manifests"][0].clone(),
            }),
            Outcome::Deny { message, .. } => {
                assert!(message.len() < 1000, "{message}");
                None
            }
        }
    }
}

fn without_record(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"]["annotations"].as_object_mut().unwrap().remove(RECORD);
    object
}

/// The first segments of all paths that the rules write. Everything else must stay the same.
fn touched(settings: &Value) -> Vec<String> {
    let rules = settings["restore"]["rules"].as_array().unwrap();
    let paths = rules.iter().flat_map(|rule| {
        let set = rule["set"].as_array().unwrap().iter().map(|edit| edit["path"].clone());
        rule["remove"].as_array().unwrap().iter().cloned().chain(set).collect::<Vec<_>>()
    });
    paths.map(|path| path.as_str().unwrap().split('/').nth(2).unwrap().replace("~1", "/").replace("~0", "~")).collect()
}

/// Checks `law` on random input, on both sides: 1,000 cases, or `PROPTEST_CASES`. The law returns whether a request was
/// mutated; at least a third must be, since the law would not be tested otherwise.
fn holds<S: Strategy>(input: S, law: impl Fn(Way, &S::Value) -> Result<bool, TestCaseError>)
where
    S::Value: std::fmt::Debug,
{
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1000);
    let config =
        ProptestConfig { cases, max_local_rejects: u32::MAX, failure_persistence: None, ..ProptestConfig::default() };
    let mutated = Cell::new(0);
    let outcome = TestRunner::new(config).run(&input, |input| {
        for way in Way::ALL {
            mutated.set(mutated.get() + u32::from(law(way, &input)?));
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    assert!(mutated.get() >= 2 * cases / 3, "only {} of {} requests were mutated", mutated.get(), 2 * cases);
}

#[test]
fn done_twice_is_done_once() {
    holds((rules(), spec()), |way, (rules, spec)| {
        let Some(result) = way.run(&object(spec), &Value::Null, &rules.settings) else { return Ok(false) };
        prop_assert_eq!(way.run(&result, &Value::Null, &rules.settings), Some(result.clone()));
        Ok(result != object(spec))
    });
}

/// An object that comes from a Work does not change in a member with the same rules.
#[test]
fn both_ways_are_one() {
    holds((rules(), spec()), |_, (rules, spec)| {
        let in_work = Way::Work.run(&object(spec), &Value::Null, &rules.settings);
        prop_assert_eq!(&in_work, &Way::Member.run(&object(spec), &Value::Null, &rules.settings));
        let Some(in_work) = in_work else { return Ok(false) };
        prop_assert_eq!(Way::Member.run(&in_work, &Value::Null, &rules.settings), Some(in_work.clone()));
        Ok(in_work != object(spec))
    });
}

/// The record is complete: undoing it place by place gives the original object.
#[test]
fn what_is_outside_of_the_paths_stays() {
    holds((rules(), spec()), |way, (rules, spec)| {
        let before = object(spec);
        let Some(after) = way.run(&before, &Value::Null, &rules.settings) else { return Ok(false) };
        prop_assert_eq!(after["other"].to_string(), before["other"].to_string(), "number text and nulls too");
        prop_assert_eq!(&after["metadata"]["labels"], &before["metadata"]["labels"]);
        let touched = touched(&rules.json);
        if let (Value::Object(before), Value::Object(after)) = (&before["spec"], &after["spec"])
            && touched.iter().all(|key| key != "[*]")
        {
            let rest = |fields: &Map<String, Value>| -> Map<String, Value> {
                let rest = fields.iter().filter(|(key, _)| !touched.contains(key));
                rest.map(|(key, value)| (key.clone(), value.clone())).collect()
            };
            prop_assert_eq!(Value::Object(rest(after)).to_string(), Value::Object(rest(before)).to_string());
        }
        Ok(after != before)
    });
}

/// The record is exact: places that are not in it have not changed.
#[test]
fn what_changed_is_in_the_record() {
    holds((rules(), spec()), |way, (rules, spec)| {
        let Some(after) = way.run(&object(spec), &Value::Null, &rules.settings) else { return Ok(false) };
        let record =
            after["metadata"]["annotations"][RECORD].as_str().map(|text| serde_json::from_str::<Value>(text).unwrap());
        let says_something =
            record.iter().flat_map(|record| record.as_object()).flatten().any(|(_, changes)| changes != &json!({}));
        prop_assert_eq!(without_record(&after) != object(spec), says_something);
        Ok(after != object(spec))
    });
}

/// A later write with the spec of the template, as by Karmada and GitOps tools, has the same result as the CREATE; and
/// a write that keeps everything changes nothing.
#[test]
fn a_revert_is_undone() {
    holds((rules(), spec()), |way, (rules, spec)| {
        let run = |object: &Value, old: &Value| way.run(object, old, &rules.settings);
        let Some(created) = run(&object(spec), &Value::Null) else { return Ok(false) };
        prop_assert_eq!(run(&created, &created), Some(created.clone()));
        let mut reverted = object(spec);
        reverted["metadata"]["annotations"] = created["metadata"]["annotations"].clone();
        let Some(kept) = run(&reverted, &created) else { panic!("a revert is never refused") };
        prop_assert_eq!(&kept, &created);
        let without_annotation = run(&without_record(&reverted), &created).unwrap();
        prop_assert_eq!(&without_annotation, &created);
        prop_assert_eq!(run(&kept, &created), Some(kept), "idempotent on UPDATE too");
        Ok(created != object(spec))
    });
}

/// Any write by a person has an answer, which is deterministic.
#[test]
fn any_update_is_answered() {
    holds((rules(), spec(), spec()), |way, (rules, spec, edited)| {
        let run = |object: &Value, old: &Value| way.run(object, old, &rules.settings);
        let Some(created) = run(&object(spec), &Value::Null) else { return Ok(false) };
        // With another state, rules with `onUpdate: Apply` are applied again.
        for id in ["42", "43"] {
            if let Some(updated) = run(&with_state(edited, id), &created) {
                prop_assert_eq!(run(&updated, &created), Some(updated));
            }
        }
        Ok(created != object(spec))
    });
}

/// A value that a person sets at a place which a rule wrote stays, also in every later write.
#[test]
fn a_persons_edit_stays() {
    holds((rules(), spec()), |way, (rules, spec)| {
        let run = |object: &Value, old: &Value| way.run(object, old, &rules.settings);
        let Some(created) = run(&object(spec), &Value::Null) else { return Ok(false) };
        let Some(fields) = created["spec"].as_object() else { return Ok(created != object(spec)) };
        for (key, value) in fields.iter().filter(|(key, value)| spec.get(key.as_str()) != Some(*value)) {
            let is_whole = touched_whole(&rules.json, key);
            let mut edited = created.clone();
            edited["spec"][key] = json!("a person's");
            let Some(stored) = run(&edited, &created) else { continue };
            if is_whole && !value.is_string() {
                prop_assert_eq!(&stored["spec"][key], &edited["spec"][key]);
                let again = run(&edited, &stored).unwrap();
                prop_assert_eq!(&again["spec"][key], &edited["spec"][key]);
            }
        }
        Ok(created != object(spec))
    });
}

/// Whether the rules write `/spec/<key>` only as a whole.
fn touched_whole(settings: &Value, key: &str) -> bool {
    let rules = settings["restore"]["rules"].as_array().unwrap();
    let escaped = key.replace('~', "~0").replace('/', "~1");
    let mut edits = rules.iter().flat_map(|rule| rule["set"].as_array().unwrap());
    let is_here =
        |path: &Value| path.as_str().unwrap().split('/').nth(2).is_some_and(|first| first == escaped || first == "[*]");
    let removes_here = rules.iter().flat_map(|rule| rule["remove"].as_array().unwrap()).any(is_here);
    !removes_here
        && edits.all(|edit| {
            !is_here(&edit["path"]) || (edit["path"] == json!(format!("/spec/{escaped}")) && edit.get("mode").is_none())
        })
}

/// A forged record, in the stored or in the new object, makes no rule write a value that it would not write otherwise.
#[test]
fn a_forged_record_writes_nothing() {
    let input = (rules(), spec(), path());
    holds(input, |way, (rules, spec, place)| {
        let honest = object(spec);
        let mut forged = honest.clone();
        let record = json!({
            "r0": {place: {"set": "forged", "was": "forged"}, "/spec/b": {"set": true, "was": "forged"}},
            "r1": {"/spec/a": {"set": "forged", "was": null}}, "z": {"/spec/b": {"set": "forged"}},
        });
        forged["metadata"]["annotations"][RECORD] = json!(record.to_string());
        let created = way.run(&honest, &Value::Null, &rules.settings);
        for (object, old) in [(&honest, &forged), (&forged, &honest), (&forged, &Value::Null)] {
            if let Some(updated) = way.run(object, old, &rules.settings) {
                prop_assert!(!updated["spec"].to_string().contains("forged"));
            }
        }
        Ok(created.is_some_and(|created| created != honest))
    });
}
