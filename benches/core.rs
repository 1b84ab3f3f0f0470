//! Benchmarks of the core: a state rule on a status, and each stage on a recorded request.

#![allow(missing_docs, reason = "benchmarks")]

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::Value;
use stateful_failover::cluster::{Get, LookupError};
use stateful_failover::jsonpath::{Budget, JsonPath};
use stateful_failover::{Request, Settings, evaluate};

fn recording() -> Vec<Value> {
    let lines = include_str!("../testdata/recordings/application-failover.jsonl").lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The status of the job that failed, and the same with a history of savepoints up to 16 KB.
fn statuses() -> [String; 2] {
    let mut status = recording()[5].pointer("/request/oldObject/status/aggregatedStatus/0/status").unwrap().clone();
    let small = status.to_string();
    let mut savepoints = Vec::new();
    while status.to_string().len() < 16 * 1024 {
        savepoints.push(serde_json::json!({"location": "s3://flink-state/savepoint-abcdef-0123456789ab", "timeStamp": savepoints.len()}));
        status["jobStatus"]["savepointInfo"] = Value::from(savepoints.clone());
    }
    [small, status.to_string()]
}

/// Karmada's own function took 17.8 µs for a status of 735 bytes and 269 µs for one of 16 KB on a machine like the
/// project's: unmarshalling, parsing the template and executing it.
fn jsonpath(c: &mut Criterion) {
    let mut group = c.benchmark_group("{.jobStatus.jobId}");
    for text in statuses() {
        let status: Value = serde_json::from_str(&text).unwrap();
        group.bench_function(format!("parse and evaluate, {} bytes", text.len()), |b| {
            b.iter(|| {
                JsonPath::template("{.jobStatus.jobId}").unwrap().value(&status, &mut Budget::default()).unwrap()
            });
        });
        group.bench_function(format!("unmarshal, parse and evaluate, {} bytes", text.len()), |b| {
            b.iter(|| {
                let status: Value = serde_json::from_str(&text).unwrap();
                JsonPath::template("{.jobStatus.jobId}").unwrap().value(&status, &mut Budget::default()).unwrap()
            });
        });
    }
}

fn stages(c: &mut Criterion) {
    let settings: Settings = Settings::from_json(&Value::Null).unwrap();
    let recording = recording();
    let binding = recording[6]["request"]["object"].clone();
    let cluster = |_: &Get<'_>| -> Result<Option<Value>, LookupError> { Ok(Some(binding.clone())) };
    let mut group = c.benchmark_group("evaluate");
    for (name, index) in [("lint", 0), ("preserve, an eviction", 5), ("preserve, nothing to do", 2), ("feed", 10)] {
        let request = recording[index]["request"].to_string();
        group.bench_function(name, |b| {
            b.iter(|| evaluate(&Request::from_json(&request).unwrap(), &settings, &cluster));
        });
    }
}

criterion_group!(benches, jsonpath, stages);
criterion_main!(benches);
