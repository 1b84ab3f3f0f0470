//! The match conditions of the members' policy, evaluated on recorded requests as an API server does: they hold for
//! what restore has to see, and not for workloads that never moved.

use cel::{Context, Program, Value as Cel};
use e2e_tests::policy::Module;
use e2e_tests::project;
use e2e_tests::recording::read;
use e2e_tests::replay::{Replay, Sides};
use serde_json::{Value, json};

use crate::recordings::settings;

fn condition() -> Program {
    let policy = std::fs::read_to_string(project("deploy/member/policy.yaml")).unwrap();
    let policy: Value = serde_yaml_ng::from_str(&policy).unwrap();
    let conditions = policy["spec"]["matchConditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1);
    Program::compile(conditions[0]["expression"].as_str().unwrap()).unwrap()
}

fn holds(condition: &Program, object: &Value, old_object: &Value) -> bool {
    let mut context = Context::default();
    for (name, object) in [("object", object), ("oldObject", old_object)] {
        // The expressions read annotations only, which may be missing.
        let metadata = match object.pointer("/metadata/annotations") {
            _ if object.is_null() => Value::Null,
            Some(annotations) => json!({"metadata": {"annotations": annotations}}),
            None => json!({"metadata": {}}),
        };
        context.add_variable(name, metadata).unwrap();
    }
    match condition.execute(&context) {
        Ok(Cel::Bool(holds)) => holds,
        other => panic!("{other:?}"),
    }
}

#[test]
fn restore_sees_what_moved_and_nothing_else() {
    let condition = condition();
    let settings = settings();
    let (mut created, mut updated, mut passed_over) = (0, 0, 0);
    for recording in ["application-failover-native", "cluster-failover", "repeated-failover", "unreachable-source"] {
        let requests = read(&project(&format!("testdata/recordings/{recording}.jsonl"))).unwrap();
        let (_, steps) = Replay::run(Module::built(), &Sides::members(settings.clone()), &requests).unwrap();
        for step in steps.iter().filter(|step| step.key.kind == "FlinkDeployment") {
            let is_changed = step.answer.mutated_object.is_some();
            let is_seen = holds(&condition, &step.request["object"], &step.request["oldObject"]);
            assert_eq!(is_seen, is_changed, "{recording}, request {}", step.index);
            match step.request["operation"].as_str().unwrap() {
                _ if !is_seen => passed_over += 1,
                "CREATE" => created += 1,
                _ => updated += 1,
            }
        }
    }
    println!("{created} created and {updated} updated copies seen, {passed_over} requests passed over");
    assert!(created >= 4 && passed_over >= 4);
}

/// Karmada removes its own label after the failover, and a person may remove all annotations. The conditions must hold
/// all the same, because of the stored object.
#[test]
fn restore_sees_the_update_that_removes_the_state() {
    let condition = condition();
    let restored = json!({"metadata": {"annotations": {"stateful-failover/restored": "{}"}}});
    let fed = json!({"metadata": {"annotations": {"stateful-failover/state": "{}"}}});
    for (object, old_object, expected) in [
        (json!({"metadata": {}}), &restored, true),
        (json!({"metadata": {"annotations": {"note": "x"}}}), &fed, true),
        (restored.clone(), &json!({"metadata": {}}), true),
        (fed.clone(), &Value::Null, true),
        (json!({"metadata": {"annotations": {"note": "x"}}}), &json!({"metadata": {}}), false),
        (json!({"metadata": {}}), &Value::Null, false),
    ] {
        assert_eq!(holds(&condition, &object, old_object), expected, "{object} {old_object}");
    }
}
