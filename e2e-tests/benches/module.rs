//! The module against one that accepts without looking, in the same engine, each call on a fresh instance.

#![allow(missing_docs, clippy::unwrap_used, reason = "benchmarks")]

use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use e2e_tests::host::Host;
use e2e_tests::policy::Module;
use e2e_tests::project;
use e2e_tests::recording::read;
use serde_json::{Value, json};

const NO_OP: &str = r#"(module
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"accepted\":true}")
  (func (export "wapc_init"))
  (func (export "__guest_call") (param i32 i32) (result i32)
    (call $respond (i32.const 0) (i32.const 17))
    (i32.const 1)))"#;

fn stages(c: &mut Criterion) {
    let recording = read(&project("testdata/recordings/application-failover.jsonl")).unwrap();
    let text = std::fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap();
    let settings: Value = serde_yaml_ng::from_str(&text).unwrap();
    let binding = recording[6].request["object"].clone();
    let mut fed = recording[12].request.clone();
    fed["object"]["metadata"]["labels"]["resourcebinding.karmada.io/failover-jobid"] =
        json!("b8b4ab8cbff349dda3acd97361d7f996");
    let other = json!({"kind": {"group": "apps", "kind": "Deployment"}, "operation": "UPDATE",
        "object": recording[5].request["object"], "oldObject": recording[5].request["oldObject"]});
    let no_op = Module::load(NO_OP.as_bytes()).unwrap();
    let mut group = c.benchmark_group("module");
    for (name, request) in [
        ("not ours", &other),
        ("lint", &recording[0].request),
        ("preserve, an eviction", &recording[5].request),
        ("preserve, nothing to do", &recording[2].request),
        ("feed", &recording[10].request),
        ("restore", &fed),
    ] {
        let payload = json!({"request": request, "settings": settings}).to_string();
        let host = Arc::new(Host::new(vec![binding.clone()]));
        let name = format!("{name}, {} bytes", payload.len());
        group.bench_function(&name, |b| {
            b.iter(|| Module::built().call("validate", payload.as_bytes(), &host).unwrap());
        });
        group.bench_function(format!("{name}: no-op"), |b| {
            b.iter(|| no_op.call("validate", payload.as_bytes(), &host).unwrap());
        });
    }
}

criterion_group!(benches, stages);
criterion_main!(benches);
