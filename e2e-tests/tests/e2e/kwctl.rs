//! The checks of e2e.bats, with the same requests, settings and sessions, in the embedded engine.

use std::sync::Arc;

use e2e_tests::host::{Host, Lookup};
use e2e_tests::policy::{Answer, Module, Policy};
use e2e_tests::project;
use serde::Deserialize;
use serde_json::{Value, json};

/// One entry of a session file. Source: `kubewarden/adm-controller`, `crates/kwctl/src/callback_handler/proxy.rs`.
#[derive(Deserialize)]
struct Exchange {
    request: String,
    response: Response,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Response {
    Success { payload: String },
    Error { message: String },
}

#[derive(Debug, Deserialize)]
enum Request {
    KubernetesGetResource(Lookup),
}

fn file(name: &str) -> String {
    std::fs::read_to_string(project("e2e-tests/kwctl").join(name)).unwrap()
}

/// Evaluates a request. With a session, the policy must make exactly the lookups in it, as kwctl requires.
fn evaluate(request: &str, settings: &Value, session: Option<&str>) -> (Value, Answer) {
    let exchanges: Vec<Exchange> =
        session.map(|name| serde_yaml_ng::from_str(&file(name)).unwrap()).unwrap_or_default();
    let mut host = Host::default();
    for exchange in &exchanges {
        match &exchange.response {
            Response::Success { payload } => host.fixed = Some(Ok(payload.clone())),
            Response::Error { message } => host.fixed = Some(Err(message.clone())),
        }
    }
    let host = Arc::new(host);
    let request: Value = serde_json::from_str(&file(request)).unwrap();
    let answer = Module::built().validate(&request, settings, &host).unwrap();
    let expected: Vec<Lookup> = exchanges
        .iter()
        .map(|exchange| {
            let Request::KubernetesGetResource(lookup) = serde_yaml_ng::from_str(&exchange.request).unwrap();
            lookup
        })
        .collect();
    assert_eq!(host.lookups(), expected);
    (request, answer)
}

#[test]
fn lint_accepts_sound_state_rules() {
    let (_, answer) = evaluate("policy-create.json", &Value::Null, None);
    assert!(answer.accepted && answer.mutated_object.is_none() && answer.warnings().is_empty());
}

#[test]
fn preserve_writes_the_state_onto_the_task() {
    let (request, answer) = evaluate("binding-eviction.json", &Value::Null, None);
    let binding = answer.apply(&request["object"]).unwrap();
    let state = json!({"resourcebinding.karmada.io/failover-jobid": "b8b4ab8cbff349dda3acd97361d7f996"});
    assert_eq!(binding["spec"]["gracefulEvictionTasks"][0]["preservedLabelState"], state);
    let history: Value =
        serde_json::from_str(binding["metadata"]["annotations"]["stateful-failover/history"].as_str().unwrap())
            .unwrap();
    assert_eq!(history[0]["phase"], json!("Evicted"));
}

#[test]
fn feed_writes_the_state_of_the_binding_it_finds() {
    let (request, answer) = evaluate("work-create.json", &Value::Null, Some("session-found.yml"));
    let work = answer.apply(&request["object"]).unwrap();
    let labels = &work["spec"]["workload"]["manifests"][0]["metadata"]["labels"];
    assert_eq!(labels["resourcebinding.karmada.io/failover-jobid"], json!("b8b4ab8cbff349dda3acd97361d7f996"));
}

#[test]
fn feed_accepts_a_work_without_a_binding() {
    let (_, answer) = evaluate("work-create.json", &Value::Null, Some("session-not-found.yml"));
    assert!(answer.accepted && answer.mutated_object.is_none());
}

#[test]
fn feed_refuses_what_it_may_not_look_up() {
    let (_, answer) = evaluate("work-create.json", &Value::Null, Some("session-denied.yml"));
    assert!(!answer.accepted);
    assert_eq!(
        answer.message.unwrap(),
        "cannot read ResourceBinding `default/s1-appfailover-flinkdeployment`: forbidden by the API server; grant `get` on \
         this kind to the policy server's service account; Work `karmada-es-member2/s1-appfailover-7597bbcfbf` is held \
         back; Karmada will retry"
    );
}

#[test]
fn restore_sets_the_field_that_the_job_resumes_from() {
    let settings: Value =
        serde_yaml_ng::from_str(&std::fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap())
            .unwrap();
    let (request, answer) = evaluate("flinkdeployment-create.json", &settings, None);
    let path = answer.apply(&request["object"]).unwrap()["spec"]["job"]["initialSavepointPath"].clone();
    assert_eq!(path, json!("s3://flink-state/default/checkpoints/b8b4ab8cbff349dda3acd97361d7f996/latest"));
}

#[test]
fn settings_are_checked_as_a_whole() {
    let settings = serde_json::from_str(&file("settings-unknown-keys.json")).unwrap();
    let message = Module::built().validate_settings(&settings).unwrap().unwrap();
    assert!(message.contains("unknown field `lnit`, did you mean `lint`?"), "{message}");
    assert!(message.contains("feed.purgeModes[0]: unknown purge mode `Direct`"), "{message}");
}
