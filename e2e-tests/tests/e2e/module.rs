//! The built module: its imports, its metadata, its size, and that no input makes it trap.

use std::fs;
use std::sync::Arc;

use e2e_tests::policy::{self, Module, Policy};
use e2e_tests::{project, size};
use publish::policy_metadata::{self, ContextAwareResource, Metadata, PROTOCOL_VERSION, annotate};
use serde_json::{Value, json};
use wasmparser::{Parser, Payload};

fn module() -> Vec<u8> {
    fs::read(project("policy.wasm")).unwrap()
}

fn policy_metadata() -> Metadata {
    Metadata::parse(&fs::read_to_string(project("policy-metadata.yml")).unwrap()).unwrap()
}

/// What the module imports: namespace and name.
fn imports(module: &[u8]) -> Vec<(String, String)> {
    let mut imports = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(section) = payload.unwrap() {
            for import in section.into_imports() {
                let import = import.unwrap();
                imports.push((import.module.to_owned(), import.name.to_owned()));
            }
        }
    }
    imports
}

/// No clock, no files, no randomness: nothing but waPC. Source: design of the waPC protocol, `wapc-guest`.
#[test]
fn imports_only_wapc_functions() {
    let imports = imports(&module());
    assert!(!imports.is_empty());
    for (namespace, name) in imports {
        assert_eq!(namespace, "wapc", "{name}");
    }
}

/// The policy server compiles the module when it starts and keeps it in memory. Raising a budget needs a reason; `make
/// size` prints the size of each crate.
#[test]
fn the_size_has_a_budget() {
    const BUDGET: usize = 880_000;
    // The crates of the module, in KiB. All others share the last budget.
    const CRATES: [(&str, usize); 7] = [
        ("stateful_failover", 405),
        ("jsonpath_rust", 135),
        ("serde_json", 66),
        ("regex_lite", 38),
        ("std", 100),
        (size::DATA, 105),
        ("others", 40),
    ];
    let module = module();
    assert!(module.len() <= BUDGET, "{} bytes, the budget is {BUDGET}", module.len());
    let mut sizes = size::by_crate(&fs::read(project("target/named.wasm")).unwrap()).unwrap();
    for (name, budget) in CRATES {
        let bytes = sizes.remove(name).unwrap_or_else(|| sizes.values().sum());
        assert!(bytes <= budget * 1024, "{name}: {bytes} bytes, the budget is {budget} KiB; {sizes:?}");
    }
}

#[test]
fn answers_the_protocol_version() {
    let answer = Module::built().call("protocol_version", b"", &Arc::default()).unwrap();
    assert_eq!(serde_json::from_slice::<String>(&answer).unwrap(), PROTOCOL_VERSION);
}

#[test]
fn metadata_is_written_and_read_back() {
    let metadata = policy_metadata().annotated("# Usage");
    let annotated = annotate(&module(), &metadata).unwrap();
    assert_eq!(policy_metadata::read(&annotated).unwrap(), metadata);
    assert_eq!(annotate(&annotated, &metadata).unwrap(), annotated, "a section of its own is replaced");
    Module::load(&annotated).unwrap();
}

/// The artifact that is published, made by `make annotated-policy.wasm` (with `kwctl`, where it is there).
#[test]
fn the_annotated_module_has_this_projects_metadata() {
    let annotated = policy_metadata::read(&fs::read(project("annotated-policy.wasm")).unwrap()).unwrap();
    let expected = policy_metadata().annotated(&fs::read_to_string(project("README.md")).unwrap());
    let mut annotated_without_tool = annotated;
    annotated_without_tool.annotations.remove("io.kubewarden.kwctl");
    assert_eq!(annotated_without_tool, expected);
}

#[test]
fn metadata_grants_what_the_policy_asks_for() {
    let metadata = policy_metadata();
    assert!(metadata.mutating);
    assert_eq!(metadata.execution_mode, "kubewarden-wapc");
    assert_eq!(metadata.host_capabilities, ["kubernetes/get_resource"]);
    let resource =
        |api_version: &str, kind: &str| ContextAwareResource { api_version: api_version.into(), kind: kind.into() };
    assert_eq!(
        metadata.context_aware_resources,
        [
            resource("v1", "ConfigMap"),
            resource("work.karmada.io/v1alpha2", "ClusterResourceBinding"),
            resource("work.karmada.io/v1alpha2", "ResourceBinding"),
        ]
    );
    assert_eq!(metadata.annotations["io.kubewarden.policy.version"], env!("CARGO_PKG_VERSION"));
}

fn call(payload: &[u8]) -> Value {
    let answer = Module::built().call("validate", payload, &Arc::default());
    serde_json::from_slice(&answer.unwrap_or_else(|error| panic!("{:?}: {error:#}", String::from_utf8_lossy(payload))))
        .unwrap()
}

/// An invalid payload is denied with a message, and is not an internal error of the server.
#[test]
fn unreadable_payloads_are_denied() {
    for payload in
        [&b""[..], b"{", b"\xff\xfe", b"null", b"[]", b"{}", b"{\"request\":[1,2]}", b"{\"request\":{\"kind\":5}}"]
    {
        let answer = call(payload);
        assert_eq!(answer["accepted"], json!(false), "{payload:?}");
        let message = answer["message"].as_str().unwrap();
        assert!(message.starts_with("cannot read the "), "{message}");
    }
    let deep = format!(
        "{{\"request\":{{\"kind\":{{\"group\":\"work.karmada.io\",\"kind\":\"Work\"}},\"operation\":\"CREATE\",\"object\":{{\"spec\":{}1{}}}}}}}",
        "[".repeat(5000),
        "]".repeat(5000)
    );
    let message = call(deep.as_bytes())["message"].as_str().unwrap().to_owned();
    assert!(message.contains("`request.object`: nested more than 127 levels deep"), "{message}");
}

const KINDS: [(&str, &str); 7] = [
    ("policy.karmada.io", "PropagationPolicy"),
    ("policy.karmada.io", "ClusterPropagationPolicy"),
    ("work.karmada.io", "ResourceBinding"),
    ("work.karmada.io", "ClusterResourceBinding"),
    ("work.karmada.io", "Work"),
    ("flink.apache.org", "FlinkDeployment"),
    ("", "ConfigMap"),
];

/// Objects of other kinds, missing ones, and ones of the wrong type are accepted unchanged.
#[test]
fn what_is_not_understood_is_accepted() {
    let settings: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap())
            .unwrap();
    let objects = [
        Value::Null,
        json!(true),
        json!(1e300),
        json!("text"),
        json!([]),
        json!({}),
        json!({"metadata": null, "spec": null, "status": null}),
        json!({"metadata": [], "spec": "x", "status": 1}),
        json!({"metadata": {"annotations": [1], "labels": "x"}, "spec": {"clusters": {}, "gracefulEvictionTasks": "x"}}),
        json!({"spec": {"clusters": [1, null, {"name": 5}], "gracefulEvictionTasks": [1, null, [], {}, {"fromCluster": 5}]}}),
        json!({"spec": {"failover": {"application": "x", "cluster": []}, "workload": {"manifests": [1, null, {}]}}}),
        json!({"status": {"aggregatedStatus": [null, 1, {"clusterName": 1}]}}),
    ];
    for (group, kind) in KINDS {
        for operation in ["CREATE", "UPDATE", "DELETE", "CONNECT", ""] {
            for object in &objects {
                for old in
                    [&Value::Null, object, &json!({"metadata": {"annotations": {"stateful-failover/history": 5}}})]
                {
                    let request = json!({"kind": {"group": group, "kind": kind}, "operation": operation, "object": object, "oldObject": old});
                    for policy in policy::all() {
                        let answer = policy.validate(&request, &settings, &Arc::default()).unwrap();
                        assert!(
                            answer.accepted && answer.mutated_object.is_none(),
                            "{}: {request}: {answer:?}",
                            policy.name()
                        );
                    }
                }
            }
        }
    }
}

/// Each part of a real binding, Work and workload is replaced by a value of the wrong type. The request is accepted or
/// denied with a message, and never traps.
#[test]
fn no_part_of_a_real_request_makes_it_trap() {
    let settings: Value =
        serde_yaml_ng::from_str(&fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap())
            .unwrap();
    let recording =
        e2e_tests::recording::read(&project("testdata/recordings/application-failover-native.jsonl")).unwrap();
    for index in [0, 5, 9, 13, 14, 15] {
        let request = &recording[index].request;
        let mut pointers = Vec::new();
        collect_pointers(request, String::new(), &mut pointers);
        for pointer in pointers.iter().filter(|pointer| !pointer.contains("managedFields")) {
            for wrong in [Value::Null, json!(7), json!("x"), json!([]), json!({})] {
                let mut broken = request.clone();
                *broken.pointer_mut(pointer).unwrap() = wrong;
                let answer = policy::Native.validate(&broken, &settings, &Arc::default());
                if let Ok(answer) = answer {
                    assert!(answer.accepted || answer.message.is_some_and(|message| message.len() < 2000), "{pointer}");
                }
            }
        }
        // The module has the same code: every hundredth request shows that nothing depends on the target.
        for pointer in pointers.iter().step_by(100) {
            let mut broken = request.clone();
            *broken.pointer_mut(pointer).unwrap() = json!([7]);
            let payload = json!({"request": broken, "settings": settings}).to_string();
            call(payload.as_bytes());
        }
    }
}

fn collect_pointers(value: &Value, pointer: String, pointers: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let key = key.replace('~', "~0").replace('/', "~1");
                collect_pointers(value, format!("{pointer}/{key}"), pointers);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                collect_pointers(value, format!("{pointer}/{index}"), pointers);
            }
        }
        _ => {}
    }
    if !pointer.is_empty() {
        pointers.push(pointer);
    }
}
