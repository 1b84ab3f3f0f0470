//! The stage restore: the admission requests of a failover's other end, and settings that can't be used.

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Answer};
use e2e_tests::project;
use serde_json::{Value, json};

const PATH: &str =
    "s3://dr-shared-state/stream-prod/clickstream-agg/checkpoints/e6fd0a8b5c4d4f3b9a7e112233445566/chk-1187";
const RESTORED: &str = "stateful-failover/restored";

/// The rule that the expected results of the requests are given for.
fn settings() -> Value {
    json!({"restore": {"rules": [{
        "name": "flink-from-checkpoint",
        "match": {"apiGroups": ["flink.apache.org"], "kinds": ["FlinkDeployment"], "conditions": [{"path": "/spec/job", "exists": true}]},
        "vars": {
            "jobId": {"state": "failover.example.io/jobid", "pattern": "[0-9a-f]{32}", "reject": ["00000000000000000000000000000000"]},
            "checkpoint": {"configMap": {"namespace": "flink-dr", "name": "latest-checkpoints", "key": "{jobId}"}, "pattern": "chk-[0-9]+", "onMissing": "Reject"},
        },
        "set": [{"path": "/spec/job/initialSavepointPath", "template": "s3://dr-shared-state/{namespace}/{name}/checkpoints/{jobId}/{checkpoint}"}],
    }]}})
}

fn checkpoints() -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "flink-dr", "name": "latest-checkpoints"},
        "data": {"e6fd0a8b5c4d4f3b9a7e112233445566": "chk-1187"}})
}

fn review(file: &str) -> Value {
    let text = std::fs::read_to_string(project("testdata/samples").join(format!("review-{file}.json"))).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["request"].clone()
}

fn evaluate(request: &Value, settings: &Value) -> Answer {
    policy::evaluate(request, settings, || Host::new(vec![checkpoints()])).0
}

fn result(request: &Value, settings: &Value) -> Value {
    let answer = evaluate(request, settings);
    assert!(answer.accepted, "{:?}", answer.message);
    answer.apply(&request["object"]).unwrap()
}

fn untouched(request: &Value) {
    let answer = evaluate(request, &settings());
    assert!(answer.accepted && answer.mutated_object.is_none(), "{answer:?}");
}

fn record() -> Value {
    json!(json!({"flink-from-checkpoint": {"/spec/job/initialSavepointPath": {"set": PATH}}}).to_string())
}

/// A CREATE, dry run or not.
#[test]
fn create() {
    for file in ["01-create", "02-create-dryrun"] {
        let request = review(file);
        let mut expected = request["object"].clone();
        expected["spec"]["job"]["initialSavepointPath"] = json!(PATH);
        expected["metadata"]["annotations"][RESTORED] = record();
        assert_eq!(result(&request, &settings()), expected, "{file}");
    }
}

/// Karmada's UPDATE after the end of the task has neither the label nor the path. With the record of the CREATE, the
/// path is put back and the label stays away; without one, nothing is known.
#[test]
fn update_that_removes_label_and_path() {
    let mut request = review("03-update-label-and-path-removed");
    untouched(&request);
    request["oldObject"]["metadata"]["annotations"][RESTORED] = record();
    let mut expected = request["object"].clone();
    expected["spec"]["job"]["initialSavepointPath"] = json!(PATH);
    expected["metadata"]["annotations"][RESTORED] = record();
    assert_eq!(result(&request, &settings()), expected);
}

/// A person's edit of something else.
#[test]
fn update_of_another_field() {
    let mut request = review("05-update-label-changed");
    request["object"]["metadata"]["labels"] = request["oldObject"]["metadata"]["labels"].clone();
    request["object"]["spec"]["job"]["parallelism"] = json!(8);
    untouched(&request);
}

/// The label has another value, or it appears on a running copy. Neither restarts anything.
#[test]
fn update_of_the_state_is_no_failover() {
    untouched(&review("05-update-label-changed"));
    let mut appears = review("05-update-label-changed");
    appears["oldObject"]["metadata"]["labels"].as_object_mut().unwrap().remove("failover.example.io/jobid");
    for object in ["object", "oldObject"] {
        appears[object]["spec"]["job"].as_object_mut().unwrap().remove("initialSavepointPath");
    }
    untouched(&appears);
}

/// The same with `onUpdate: Apply`: the new state is carried out, and what stood there first stays in the record.
#[test]
fn update_of_the_state_with_apply() {
    let mut settings = settings();
    settings["restore"]["rules"][0]["onUpdate"] = json!("Apply");
    settings["restore"]["rules"][0]["vars"].as_object_mut().unwrap().remove("checkpoint");
    settings["restore"]["rules"][0]["set"] = json!([
        {"path": "/spec/job/initialSavepointPath", "template": "s3://b/{jobId}"},
        {"path": "/spec/job/args", "mode": "Append", "template": "--resume={jobId}"},
    ]);
    let created = result(&review("01-create"), &settings);
    let mut request = review("01-create");
    request["operation"] = json!("UPDATE");
    request["oldObject"] = created.clone();
    request["object"] = created;
    request["object"]["metadata"]["labels"]["failover.example.io/jobid"] = json!("b1946ac92492d2347c6235b4d2611184");
    let updated = result(&request, &settings);
    assert_eq!(updated["spec"]["job"]["initialSavepointPath"], json!("s3://b/b1946ac92492d2347c6235b4d2611184"));
    let args = updated["spec"]["job"]["args"].as_array().unwrap();
    assert_eq!(args.last(), Some(&json!("--resume=b1946ac92492d2347c6235b4d2611184")));
    assert!(
        !args.contains(&json!("--resume=e6fd0a8b5c4d4f3b9a7e112233445566")),
        "what was appended for the old state is gone"
    );
    let record: Value = serde_json::from_str(updated["metadata"]["annotations"][RESTORED].as_str().unwrap()).unwrap();
    assert_eq!(record["flink-from-checkpoint"]["/spec/job/initialSavepointPath"].get("was"), None);
}

/// Nothing is ever returned for a subresource, a deletion, or an object that is being deleted.
#[test]
fn requests_that_pass() {
    for file in ["06-status-subresource", "07-delete", "08-update-terminating"] {
        untouched(&review(file));
    }
    let mut connect = review("01-create");
    connect["operation"] = json!("CONNECT");
    untouched(&connect);
}

/// What the template sets is replaced, and remembered; or kept, where a person says so.
#[test]
fn create_with_a_path_of_its_own() {
    let manual = "s3://dr-shared-state/manual/savepoint-aaaaaa-0123456789ab";
    let mut request = review("01-create");
    request["object"]["spec"]["job"]["initialSavepointPath"] = json!(manual);
    let restored = result(&request, &settings());
    assert_eq!(restored["spec"]["job"]["initialSavepointPath"], json!(PATH));
    assert!(restored["metadata"]["annotations"][RESTORED].as_str().unwrap().contains(manual));
    request["object"]["metadata"]["annotations"]["stateful-failover/skip"] = json!("restored by hand");
    let answer = evaluate(&request, &settings());
    assert_eq!(answer.mutated_object, None);
    assert_eq!(answer.warnings(), ["restore skipped, `stateful-failover/skip` says: `restored by hand`"]);
    request["object"]["metadata"]["annotations"]["stateful-failover/skip"] = json!("");
    assert_eq!(result(&request, &settings())["spec"]["job"]["initialSavepointPath"], json!(PATH));
}

/// Values that are no job id are refused, with the variable, the value and what was expected.
#[test]
fn invalid_state_is_refused() {
    let long = "a".repeat(70);
    for (file, label, shown) in [
        (Some("10-create-label-empty"), "", "``"),
        (Some("11-create-label-literal-null"), "null", "`null`"),
        (Some("12-create-label-zero-jobid"), "00000000000000000000000000000000", "`00000000000000000000000000000000`"),
        (None, "..-.._x", "`..-.._x`"),
        (Some("14-create-label-uri-invalid-label"), "s3://bucket/a/b", "`s3://"),
        (None, "1.655371e+06", "`1.655371e+06`"),
        (Some("16-create-label-too-long"), &long, "`"),
        (None, "a\nb", "`a\\nb`"),
    ] {
        let request = match file {
            Some(file) => review(file),
            None => {
                let mut request = review("01-create");
                request["object"]["metadata"]["labels"]["failover.example.io/jobid"] = json!(label);
                request
            }
        };
        let message = evaluate(&request, &settings()).message.unwrap();
        let start = format!(
            "rule `flink-from-checkpoint`: FlinkDeployment `stream-prod/clickstream-agg`: variable `jobId` is {shown}"
        );
        assert!(message.starts_with(&start), "{message}");
        assert!(message.contains("expected a match of `[0-9a-f]{32}`"), "{message}");
        assert!(message.ends_with("; check `statePreservation` of its PropagationPolicy"), "{message}");
        let is_rejected = label.starts_with("0000");
        assert_eq!(message.contains(" and not listed in `reject`"), is_rejected, "{message}");
    }
}

/// Another kind, an object without a name yet, and one without any label.
#[test]
fn what_the_rule_is_not_for() {
    untouched(&review("17-create-pod-generatename"));
    let mut fresh = review("01-create");
    fresh["object"]["metadata"]["labels"].as_object_mut().unwrap().remove("failover.example.io/jobid");
    untouched(&fresh);
}

/// A FlinkDeployment without a job, and one whose `job` is null.
#[test]
fn parents_that_do_not_fit() {
    untouched(&review("19-create-missing-parent"));
    let mut request = review("01-create");
    request["object"]["spec"]["job"] = json!("oops");
    let message = evaluate(&request, &settings()).message.unwrap();
    assert_eq!(
        message,
        "rule `flink-from-checkpoint`: FlinkDeployment `stream-prod/clickstream-agg`: cannot write \
         `/spec/job/initialSavepointPath`: `/spec/job` is a string, expected an object"
    );
}

/// A TrainJob's trainer can't be changed, so what was set is put back into a write that lacks it.
#[test]
fn update_of_an_immutable_field() {
    let text = |file: &str| std::fs::read_to_string(project(file)).unwrap();
    let settings: Value = serde_yaml_ng::from_str(&text("examples/trainjob/settings.yaml")).unwrap();
    let template: Value = serde_yaml_ng::from_str(&text("testdata/samples/trainjob.yaml")).unwrap();
    let mut created = template.clone();
    created["metadata"]["labels"]["example.io/checkpoint"] = json!("global_step_4200");
    let mut request = json!({"kind": {"group": "trainer.kubeflow.org", "kind": "TrainJob"}, "operation": "CREATE",
        "name": "llama-sft", "namespace": "ml-prod", "object": created});
    let old = result(&request, &settings);
    request["operation"] = json!("UPDATE");
    request["oldObject"] = old.clone();
    request["object"] = template;
    assert_eq!(result(&request, &settings)["spec"], old["spec"]);
}

/// A person's later edit wins, and stays.
#[test]
fn a_persons_edit_wins() {
    let old = result(&review("01-create"), &settings());
    let mut request = review("01-create");
    request["operation"] = json!("UPDATE");
    request["oldObject"] = old.clone();
    request["object"] = old;
    request["object"]["spec"]["job"]["initialSavepointPath"] = json!("s3://mine");
    let edited = result(&request, &settings());
    assert_eq!(edited["spec"]["job"]["initialSavepointPath"], json!("s3://mine"));
    assert_eq!(edited["metadata"]["annotations"].get(RESTORED), None, "the path leaves the record");
    request["oldObject"] = edited;
    request["object"]["spec"]["job"].as_object_mut().unwrap().remove("initialSavepointPath");
    request["object"]["metadata"]["annotations"].as_object_mut().unwrap().remove(RESTORED);
    untouched(&request);
}

/// Lookups: one for each ConfigMap variable, and what each failure says.
#[test]
fn config_maps() {
    let request = review("01-create");
    let object = "FlinkDeployment `stream-prod/clickstream-agg`";
    let (answer, host) = policy::evaluate(&request, &settings(), || Host::new(vec![checkpoints()]));
    assert!(answer.accepted);
    let lookup = &host.lookups()[0];
    assert_eq!(
        (lookup.kind.as_str(), lookup.name.as_str(), lookup.disable_cache),
        ("ConfigMap", "latest-checkpoints", true)
    );
    assert_eq!((host.lookups().len(), lookup.field_masks.clone()), (1, Some(vec!["data".to_owned()])));
    let mut empty = checkpoints();
    empty["data"] = json!({});
    let mut wrong = checkpoints();
    wrong["data"]["e6fd0a8b5c4d4f3b9a7e112233445566"] = json!("../chk-1");
    for (objects, why) in [
        (
            vec![],
            "variable `checkpoint` has no value (ConfigMap `flink-dr/latest-checkpoints` does not exist) and `onMissing` is Reject",
        ),
        (
            vec![empty],
            "variable `checkpoint` has no value (ConfigMap `flink-dr/latest-checkpoints` has no key \
             `e6fd0a8b5c4d4f3b9a7e112233445566`) and `onMissing` is Reject",
        ),
        (
            vec![wrong],
            "variable `checkpoint` is `../chk-1`, expected a match of `chk-[0-9]+`; check key \
             `e6fd0a8b5c4d4f3b9a7e112233445566` of ConfigMap `flink-dr/latest-checkpoints`",
        ),
    ] {
        let (answer, _) = policy::evaluate(&request, &settings(), || Host::new(objects.clone()));
        assert_eq!(answer.message.unwrap(), format!("rule `flink-from-checkpoint`: {object}: {why}"));
    }
    let (answer, _) = policy::evaluate(&request, &settings(), || {
        let mut host = Host::default();
        host.fixed = Some(Err("configmaps is forbidden: Forbidden".to_owned()));
        host
    });
    assert_eq!(
        answer.message.unwrap(),
        format!(
            "rule `flink-from-checkpoint`: {object}: cannot read ConfigMap `flink-dr/latest-checkpoints`: forbidden by the API \
             server; grant `get` on this kind to the policy server's service account"
        )
    );
}

/// State that was fed and that no rule restored is a message, not a silent cold start.
#[test]
fn state_that_no_rule_restores_is_a_warning() {
    let mut request = review("19-create-missing-parent");
    request["object"]["metadata"]["annotations"] =
        json!({"stateful-failover/state": "{\"failover.example.io/jobid\":\"x\"}"});
    let (answer, host) = policy::evaluate(&request, &settings(), Host::default);
    assert_eq!(
        answer.warnings(),
        [
            "state was fed but not restored: rule `flink-from-checkpoint` not applied: the condition on `/spec/job` does not hold"
        ]
    );
    assert_eq!(host.log(), ["rule `flink-from-checkpoint` not applied: the condition on `/spec/job` does not hold"]);
}

/// Every trap of writing a rule, and its message.
#[test]
fn settings_that_cannot_be_used() {
    let rule = |changes: Value| {
        let mut rule = json!({"name": "r", "match": {"apiGroups": ["x"], "kinds": ["Y"]}, "vars": {"jobId": {"state": "a"}},
            "set": [{"path": "/spec/a", "value": 1}]});
        rule.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        json!({"restore": {"rules": [rule]}})
    };
    let set = |edit: Value| rule(json!({"set": [edit]}));
    let at = "restore.rules[0]";
    for (settings, message) in [
        (
            set(json!({"path": "/spec/a", "template": {"jobId": null}})),
            "set[0].template: is an object, expected a string; quote the template: in YAML, {name} without quotes is a map",
        ),
        (
            set(json!({"path": "/spec/a", "template": "{jobid}"})),
            "set[0].template: `{jobid}` is not a variable that can be used here; expected one of jobId, namespace, name, kind, or `value` for literal text",
        ),
        (
            set(json!({"path": "/spec/a/", "value": 1})),
            "set[0].path: `/spec/a/` ends with `/`; remove the slash, or write `segments: [..., \"\"]` for a field with an empty name",
        ),
        (set(json!({"path": "spec/a", "value": 1})), "set[0].path: `spec/a` does not begin with `/`"),
        (
            set(json!({"path": "/spec/~2", "value": 1})),
            "set[0].path: `~2` has a `~` that is neither `~0` (for `~`) nor `~1` (for `/`)",
        ),
        (
            set(json!({"path": "/spec/[x]/a", "value": 1})),
            "set[0].path: segment `[x]` is neither `[*]` nor `[key=value]`; write `segments: [...]` for a field of that name",
        ),
        (
            set(json!({"path": "/spec/-/a", "value": 1})),
            "set[0].path: `-` appends to a list, so it must be the last segment",
        ),
        (
            set(json!({"path": "/apiVersion", "value": "v2"})),
            "set[0].path: `/apiVersion` can't be changed by a rule: it says what the object is",
        ),
        (
            set(json!({"path": "/status/a", "value": 1})),
            "set[0].path: `/status/a` can't be changed by a rule: the API server drops it from such requests",
        ),
        (
            set(json!({"path": "/metadata/finalizers", "value": []})),
            "set[0].path: `/metadata/finalizers` can't be changed by a rule: it is the API server's own",
        ),
        (
            set(json!({"path": "/metadata/labels", "value": {}})),
            "set[0].path: `/metadata/labels` can't be changed by a rule: name the label or annotation in it",
        ),
        (
            set(json!({"path": "/metadata/annotations/stateful-failover~1restored", "value": "x"})),
            "set[0].path: `/metadata/annotations/stateful-failover~1restored` can't be changed by a rule: it is this policy's own",
        ),
        (
            set(json!({"path": "/spec/a", "value": 1, "template": "x"})),
            "set[0]: has `value` and `template`, expected one of them",
        ),
        (
            set(json!({"path": "/spec/a"})),
            "set[0]: has none of `value`, `template` and `valueFrom`, expected one of them",
        ),
        (set(json!({"path": "/spec/a", "value": null})), "set[0].value: is null; write `remove` to take a field away"),
        (
            set(json!({"path": "/spec/a", "segments": ["a"], "value": 1})),
            "set[0]: has `path` and `segments`, expected one of them",
        ),
        (
            set(json!({"path": "/spec/a", "valueFrom": {"var": "jobld"}})),
            "set[0].valueFrom.var: unknown variable `jobld`, did you mean `jobId`?",
        ),
        (
            set(json!({"path": "/spec/a", "valueFrom": {"var": "jobId", "as": "Int"}})),
            "set[0].valueFrom.as: unknown value `Int`, expected `String`, `Integer`, `Boolean`",
        ),
        (
            set(json!({"path": "/spec/a", "value": 1, "mode": "ifAbsent"})),
            "set[0].mode: unknown value `ifAbsent`, did you mean `IfAbsent`?",
        ),
        (
            set(json!({"path": "/spec/a", "value": "x", "separator": ","})),
            "set[0].separator: is for `mode: Append` to a string only",
        ),
        (
            set(json!({"path": "/spec/l/[name=a]", "value": {"name": "b"}})),
            "set[0].path: `/spec/l/[name=a]` would change the key its own selector matches on; set other fields of the entry",
        ),
        (
            set(json!({"path": "/spec/l/[name=a]/name", "value": "b"})),
            "set[0].path: `/spec/l/[name=a]/name` would change the key its own selector matches on; set other fields of the entry",
        ),
        (rule(json!({"vars": {"jobId": {"state": "a", "pattern": "[0-9"}}})), "vars.jobId.pattern: does not compile: "),
        (rule(json!({"vars": {"name": {"state": "a"}}})), "vars.name: `name` is built in; choose another name"),
        (
            rule(json!({"vars": {"job-id": {"state": "a"}}})),
            "vars.job-id: `job-id` is not a variable name; use letters, digits and `_`, not starting with a digit",
        ),
        (
            rule(json!({"vars": {"x": {}}})),
            "vars.x: has none of `state`, `configMap` and `field`, expected one of them",
        ),
        (
            rule(json!({"vars": {"x": {"configMap": {"namespace": "n", "name": "m", "key": "{y}"}}}})),
            "vars.x.configMap.key: `{y}` is not a variable that can be used here; expected one of namespace, name, kind",
        ),
        (
            rule(json!({"set": [{"path": "/spec/a", "value": 1}, {"path": "/spec/a", "value": 2}]})),
            " `/spec/a` is named twice; a rule writes a path once",
        ),
        (
            rule(json!({"set": [{"path": "/spec/a", "value": {}}, {"path": "/spec/a/b", "value": 2}]})),
            " `/spec/a/b` and `/spec/a` overlap; write only one of them",
        ),
        (
            rule(json!({"remove": ["/spec/l/0"]})),
            "remove[0]: `/spec/l/0` removes entries by index, which is not repeatable; select one with `[key=value]`, or remove the whole list or map",
        ),
        (rule(json!({"set": []})), " has neither `set` nor `remove`: the rule does nothing"),
        (rule(json!({"onUpdate": "keep"})), "onUpdate: unknown value `keep`, did you mean `Keep`?"),
        (rule(json!({"name": ""})), "name: is empty"),
        (
            rule(json!({"edits": []})),
            " unknown field `edits`, expected `name`, `match`, `vars`, `remove`, `set` and 1 more",
        ),
        (
            rule(
                json!({"match": {"apiGroups": ["x"], "kinds": ["Y"], "labelSelector": {"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}}}),
            ),
            "match.labelSelector.matchExpressions[0].operator: unknown operator `in`, did you mean `In`?",
        ),
        (
            rule(json!({"match": {"apiGroups": ["x"], "kinds": ["Y"], "conditions": [{"path": "/a"}]}})),
            "match.conditions[0]: has neither `exists` nor `equals`",
        ),
    ] {
        for implementation in policy::all() {
            let errors = implementation.validate_settings(&settings).unwrap().unwrap_or_default();
            let expected = if message.starts_with(' ') { format!("{at}:{message}") } else { format!("{at}.{message}") };
            assert!(errors.contains(&expected), "{}: {errors:?}\n{expected:?}", implementation.name());
        }
    }
    let twice =
        json!({"restore": {"rules": [rule(json!({}))["restore"]["rules"][0], rule(json!({}))["restore"]["rules"][0]]}});
    let errors = policy::all()[1].validate_settings(&twice).unwrap().unwrap();
    assert_eq!(errors, "restore.rules[1].name: `r` is the name of an earlier rule");
}

/// All operators of a LabelSelector. Source: `k8s.io/apimachinery/pkg/apis/meta/v1`, `LabelSelectorAsSelector`.
#[test]
fn label_selectors() {
    let request = review("01-create");
    for (selector, matches) in [
        (json!({}), true),
        (json!({"matchLabels": {"app.kubernetes.io/name": "clickstream-agg"}}), true),
        (json!({"matchLabels": {"app.kubernetes.io/name": "other"}}), false),
        (
            json!({"matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "In", "values": ["x", "clickstream-agg"]}]}),
            true,
        ),
        (json!({"matchExpressions": [{"key": "absent", "operator": "In", "values": ["x"]}]}), false),
        (json!({"matchExpressions": [{"key": "absent", "operator": "NotIn", "values": ["x"]}]}), true),
        (json!({"matchExpressions": [{"key": "karmada.io/managed", "operator": "NotIn", "values": ["true"]}]}), false),
        (json!({"matchExpressions": [{"key": "karmada.io/managed", "operator": "Exists"}]}), true),
        (json!({"matchExpressions": [{"key": "karmada.io/managed", "operator": "DoesNotExist"}]}), false),
        (json!({"matchExpressions": [{"key": "absent", "operator": "DoesNotExist"}]}), true),
    ] {
        let mut settings = settings();
        settings["restore"]["rules"][0]["match"]["labelSelector"] = selector.clone();
        assert_eq!(evaluate(&request, &settings).mutated_object.is_some(), matches, "{selector}");
    }
    for (namespaces, matches) in [
        (json!(["stream-*"]), true),
        (json!(["stream"]), false),
        (json!(["*"]), true),
        (json!(["a", "stream-prod"]), true),
    ] {
        let mut settings = settings();
        settings["restore"]["rules"][0]["match"]["namespaces"] = namespaces.clone();
        assert_eq!(evaluate(&request, &settings).mutated_object.is_some(), matches, "{namespaces}");
    }
}

/// Only canonical text becomes a number or boolean.
#[test]
fn typed_values() {
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
        let settings = json!({"restore": {"rules": [{"name": "r", "match": {"apiGroups": [""], "kinds": ["Pod"]},
            "vars": {"x": {"state": "x", "pattern": ".*"}}, "set": [{"path": "/spec/x", "valueFrom": {"var": "x", "as": as_type}}]}]}});
        let request = json!({"kind": {"group": "", "kind": "Pod"}, "operation": "CREATE", "namespace": "n",
            "object": {"metadata": {"annotations": {"stateful-failover/state": json!({"x": text}).to_string()}}}});
        let answer = evaluate(&request, &settings);
        match value {
            Some(value) => assert_eq!(answer.apply(&request["object"]).unwrap()["spec"]["x"], value, "{text}"),
            None => {
                assert!(answer.message.unwrap().contains(&format!("variable `x` is `{text}`, expected ")), "{text}")
            }
        }
    }
}
