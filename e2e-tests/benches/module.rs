//! What the module costs beside one that accepts without looking and one as most are written on the SDK, in the same engine and in
//! one run, each call on a fresh instance, as in the policy server.
//!
//! Prints a table in Markdown, writes the figures to `target/bench.json`, and fails where a target is missed. `BENCH_RUNS` is how
//! often each case is evaluated by each module, in turn; `BENCH_ONLY` a part of the names of the cases that are.

#![allow(missing_docs, clippy::unwrap_used, reason = "a benchmark")]

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use e2e_tests::host::Host;
use e2e_tests::project;
use e2e_tests::recording::{Recorded, read};
use serde_json::{Value, json};
use wapc::WapcHost;
use wasmtime_provider::{ResourceLimits, WasmtimeEngineProviderBuilder, WasmtimeEngineProviderPre, wasmtime};

const NO_OP: &str = r#"(module
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))
  (memory (export "memory") 32)
  (data (i32.const 0) "{\"accepted\":true}")
  (func (export "wapc_init"))
  (func (export "__guest_call") (param i32 i32) (result i32)
    (call $respond (i32.const 0) (i32.const 17))
    (i32.const 1)))"#;
const PAGE: usize = 64 * 1024;

fn main() -> ExitCode {
    let modules = Modules::load();
    let mut report = Report::default();
    report.general(&modules);
    let only = std::env::var("BENCH_ONLY").unwrap_or_default();
    for case in cases().into_iter().filter(|case| case.name.contains(&only)) {
        report.case(&modules, &case);
    }
    report.write();
    if report.missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

struct Loaded {
    bytes: Vec<u8>,
    compiled: wasmtime::Module,
    compile_ms: f64,
}

struct Modules {
    engine: wasmtime::Engine,
    no_op: Loaded,
    ours: Loaded,
    sdk: Loaded,
}

impl Modules {
    fn load() -> Self {
        let engine = wasmtime::Engine::new(&wasmtime::Config::new()).unwrap();
        let file = |variable: &str, path: &str| {
            let path = std::env::var_os(variable).map_or_else(|| project(path), Into::into);
            std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}; run `make bench`", path.display()))
        };
        let load = |bytes: Vec<u8>| {
            let begin = Instant::now();
            let compiled = wasmtime::Module::new(&engine, &bytes).unwrap();
            Loaded { bytes, compiled, compile_ms: begin.elapsed().as_secs_f64() * 1000.0 }
        };
        let no_op = load(NO_OP.as_bytes().to_vec());
        let ours = load(file("POLICY_WASM", "policy.wasm"));
        let sdk = load(file("SDK_POLICY_WASM", "target/wasm32-unknown-unknown/baseline/sdk_policy.wasm"));
        Self { engine, no_op, ours, sdk }
    }

    fn prepare(&self, module: &Loaded, max_memory: Option<usize>) -> WasmtimeEngineProviderPre {
        let mut builder =
            WasmtimeEngineProviderBuilder::new().engine(self.engine.clone()).module(module.compiled.clone());
        if let Some(max_memory) = max_memory {
            let limits = ResourceLimits { max_memory_size: Some(max_memory), max_table_elements: None };
            builder = builder.enable_resource_limits(limits);
        }
        builder.build_pre().unwrap()
    }

    /// The least linear memory in bytes with which the module answers.
    fn peak_memory(&self, module: &Loaded, payload: &[u8], host: &Arc<QuickHost>) -> usize {
        let answers = |pages: usize| {
            let prepared = self.prepare(module, Some(pages * PAGE));
            prepared.rehydrate(None).is_ok() && call(&prepared, payload, host).is_ok()
        };
        let (mut too_few, mut enough) = (0, 2048);
        while enough - too_few > 1 {
            let middle = usize::midpoint(too_few, enough);
            if answers(middle) { enough = middle } else { too_few = middle }
        }
        enough * PAGE
    }
}

/// A host of which every answer is there at once: what a lookup costs the policy server is not the module's.
#[derive(Default)]
struct QuickHost {
    host: Host,
    answers: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl QuickHost {
    fn new(objects: Vec<Value>) -> Arc<Self> {
        Arc::new(Self { host: Host::new(objects), answers: Mutex::default() })
    }

    fn call(&self, binding: &str, namespace: &str, operation: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
        if namespace == "tracing" {
            return Ok(Vec::new());
        }
        let mut answers = self.answers.lock().unwrap();
        if let Some(answer) = answers.get(payload) {
            return Ok(answer.clone());
        }
        let answer = self.host.call(binding, namespace, operation, payload)?;
        answers.insert(payload.to_vec(), answer.clone());
        Ok(answer)
    }
}

fn instance(prepared: &WasmtimeEngineProviderPre, host: &Arc<QuickHost>) -> Result<WapcHost, wapc::errors::Error> {
    let host = Arc::clone(host);
    let callback = move |_: u64, binding: &str, namespace: &str, operation: &str, payload: &[u8]| {
        host.call(binding, namespace, operation, payload).map_err(Into::into)
    };
    WapcHost::new(Box::new(prepared.rehydrate(None).unwrap()), Some(Box::new(callback)))
}

fn call(
    prepared: &WasmtimeEngineProviderPre,
    payload: &[u8],
    host: &Arc<QuickHost>,
) -> Result<Vec<u8>, wapc::errors::Error> {
    instance(prepared, host)?.call("validate", payload)
}

/// What is expected of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    NotOurs,
    NothingToDo,
    Mutated,
}

struct Case {
    name: String,
    class: Class,
    /// Whether it is of a recorded size, 5 to 12 KB.
    is_small: bool,
    request: Value,
    settings: Value,
    objects: Vec<Value>,
}

fn rule(kind: &str, name: &str) -> Value {
    json!({
        "name": name,
        "match": {"apiGroups": ["flink.apache.org"], "kinds": [kind], "conditions": [{"path": "/spec/job", "exists": true}]},
        "vars": {"jobId": {"state": "resourcebinding.karmada.io/failover-jobid", "pattern": "[0-9a-f]{32}"}},
        "set": [{"path": "/spec/job/initialSavepointPath", "template": "s3://flink/{namespace}/{name}/{jobId}"}],
    })
}

fn settings(rules: Vec<Value>) -> Value {
    json!({"restore": {"rules": rules}})
}

fn cases() -> Vec<Case> {
    let recording = read(&project("testdata/recordings/application-failover.jsonl")).unwrap();
    let request =
        |is_it: &dyn Fn(&Recorded) -> bool| recording.iter().find(|recorded| is_it(recorded)).unwrap().request.clone();
    let has_tasks = |recorded: &Recorded| recorded.request.pointer("/object/spec/gracefulEvictionTasks").is_some();
    let has_status = |recorded: &Recorded| recorded.request.pointer("/object/status/aggregatedStatus").is_some();
    let is_binding = |recorded: &Recorded| recorded.text("/kind/kind") == "ResourceBinding" && !recorded.is_create();
    let idle = request(&|recorded| is_binding(recorded) && !has_tasks(recorded) && has_status(recorded));
    let evict = request(&|recorded| is_binding(recorded) && has_tasks(recorded));
    let created = |kind: &str, cluster: &str| {
        request(&|recorded| {
            recorded.is_create()
                && recorded.text("/kind/kind") == kind
                && (recorded.apiserver == cluster || recorded.text("/namespace") == format!("karmada-es-{cluster}"))
        })
    };
    let (first_work, work) = (created("Work", "member1"), created("Work", "member2"));
    let workload = created("FlinkDeployment", "member2");
    let mut fed = workload.clone();
    let job_id = json!("b8b4ab8cbff349dda3acd97361d7f996");
    fed["object"]["metadata"]["labels"]["resourcebinding.karmada.io/failover-jobid"] = job_id.clone();
    let mut binding = request(&|recorded| {
        is_binding(recorded) && has_tasks(recorded) && recorded.request.pointer("/object/spec/clusters/0").is_some()
    })["object"]
        .clone();
    let task = &mut binding["spec"]["gracefulEvictionTasks"][0];
    task["preservedLabelState"] = json!({"resourcebinding.karmada.io/failover-jobid": job_id});
    task["clustersBeforeFailover"] = json!(["member1"]);
    let mut other = evict.clone();
    other["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"});

    let one = settings(vec![rule("FlinkDeployment", "flink")]);
    let none_of_20 = settings((0..20).map(|index| rule("FlinkSessionJob", &format!("job-{index}"))).collect());
    let one_of_20 = settings(
        (0..19)
            .map(|index| rule("FlinkSessionJob", &format!("job-{index}")))
            .chain([rule("FlinkDeployment", "flink")])
            .collect(),
    );
    let mut wide = grow_binding(&evict, 0);
    for object in ["object", "oldObject"] {
        let status = wide[object]["status"]["aggregatedStatus"][0].clone();
        let names = (0..999).map(|index| format!("cluster-{index:04}"));
        let mut clusters = wide[object]["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        clusters.extend(names.clone().map(|name| json!({"name": name, "replicas": 1})));
        wide[object]["spec"]["clusters"] = Value::from(clusters);
        let statuses = wide[object]["status"]["aggregatedStatus"].as_array_mut().unwrap();
        statuses.extend(names.map(|name| {
            let mut status = status.clone();
            status["clusterName"] = json!(name);
            status
        }));
    }
    let mut cases = vec![Case {
        name: "1,000 clusters: binding, eviction".to_owned(),
        class: Class::Mutated,
        is_small: false,
        request: wide,
        settings: json!({}),
        objects: Vec::new(),
    }];
    for (size, bytes) in [("recorded", 0), ("64 KB", 64_000), ("770 KB", 770_000)] {
        let is_small = bytes == 0;
        let mut add = |name: &str, class, request: Value, settings: &Value, objects: &[Value]| {
            cases.push(Case {
                name: format!("{size}: {name}"),
                class,
                is_small,
                request,
                settings: settings.clone(),
                objects: objects.to_vec(),
            });
        };
        let plain = json!({});
        add("not ours", Class::NotOurs, grow_binding(&other, bytes), &plain, &[]);
        add("not ours, 20 rules", Class::NotOurs, grow_binding(&other, bytes), &none_of_20, &[]);
        add("binding, nothing to do", Class::NothingToDo, grow_binding(&idle, bytes), &plain, &[]);
        add("binding, eviction", Class::Mutated, grow_binding(&evict, bytes), &plain, &[]);
        add(
            "Work, nothing to feed",
            Class::NothingToDo,
            grow_manifest(&first_work, bytes),
            &plain,
            &[idle["object"].clone()],
        );
        add("Work, fed", Class::Mutated, grow_manifest(&work, bytes), &plain, &[binding.clone()]);
        add("Work, fed and restored", Class::Mutated, grow_manifest(&work, bytes), &one, &[binding.clone()]);
        add("workload, not restored", Class::NothingToDo, grow_manifest(&workload, bytes), &one, &[]);
        add("workload, restored", Class::Mutated, grow_manifest(&fed, bytes), &one, &[]);
        add("workload, restored by one of 20 rules", Class::Mutated, grow_manifest(&fed, bytes), &one_of_20, &[]);
    }
    cases
}

/// With as many more clusters as make the request that much larger.
fn grow_binding(request: &Value, bytes: usize) -> Value {
    let mut request = request.clone();
    for object in ["object", "oldObject"] {
        let Some(items) = request[object].pointer_mut("/status/aggregatedStatus").and_then(Value::as_array_mut) else {
            continue;
        };
        let one = items[0].clone();
        let count = bytes / 2 / one.to_string().len();
        items.extend((0..count).map(|index| {
            let mut item = one.clone();
            item["clusterName"] = json!(format!("cluster-{index:05}"));
            item
        }));
    }
    request
}

/// With as many more environment variables.
fn grow_manifest(request: &Value, bytes: usize) -> Value {
    let mut request = request.clone();
    if bytes == 0 {
        return request;
    }
    let env: Vec<Value> =
        (0..bytes / 75).map(|index| json!({"name": format!("SETTING_{index}"), "value": "x".repeat(40)})).collect();
    let is_work = request["kind"]["kind"] == "Work";
    let object = &mut request["object"];
    let spec = if is_work { &mut object["spec"]["workload"]["manifests"][0]["spec"] } else { &mut object["spec"] };
    spec["podTemplate"] = json!({"spec": {"containers": [{"name": "flink-main-container", "env": env}]}});
    request
}

/// Microseconds, of all runs.
struct Times(Vec<f64>);

impl Times {
    fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[(sorted.len() - 1) * percent / 100]
    }
}

#[derive(Default)]
struct Report {
    table: String,
    figures: Vec<Value>,
    missed: Vec<String>,
}

impl Report {
    fn runs() -> usize {
        std::env::var("BENCH_RUNS").ok().and_then(|runs| runs.parse().ok()).unwrap_or(200)
    }

    fn check(&mut self, what: String, value: f64, target: f64) -> String {
        let is_met = value <= target;
        if !is_met {
            self.missed.push(format!("{what}: {value:.2}, target {target}"));
        }
        format!("{value:.2}{} (≤ {target})", if is_met { "" } else { " **missed**" })
    }

    /// Size, compilation, and an instance with its initialisation.
    fn general(&mut self, modules: &Modules) {
        let host = Arc::<QuickHost>::default();
        let all = [&modules.no_op, &modules.ours, &modules.sdk];
        let prepared = all.map(|module| modules.prepare(module, None));
        let mut times = [const { Vec::new() }; 3];
        for _ in 0..Self::runs() {
            for (prepared, times) in prepared.iter().zip(&mut times) {
                let begin = Instant::now();
                drop(std::hint::black_box(instance(prepared, &host).unwrap()));
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [no_op, ours, sdk] = times.map(|times| Times(times).percentile(50));
        let _ = writeln!(self.table, "| | no-op | module | SDK |\n|---|---|---|---|");
        let size = self.check("size of the module in KiB".to_owned(), modules.ours.bytes.len() as f64 / 1024.0, 500.0);
        let _ = writeln!(
            self.table,
            "| size, KiB | {:.2} | {size} | {:.0} |",
            modules.no_op.bytes.len() as f64 / 1024.0,
            modules.sdk.bytes.len() as f64 / 1024.0
        );
        let _ = writeln!(
            self.table,
            "| compiled, ms | {:.0} | {:.0} | {:.0} |",
            modules.no_op.compile_ms, modules.ours.compile_ms, modules.sdk.compile_ms
        );
        let ratio = self.check("instance with wapc_init, by that of the no-op".to_owned(), ours / no_op, 1.3);
        let _ = writeln!(
            self.table,
            "| instance with `wapc_init`, µs | {no_op:.0} | {ours:.0}, by no-op {ratio} | {sdk:.0} |\n"
        );
        let _ = writeln!(
            self.table,
            "| case | KB | no-op p50 | module p50 | p99 | SDK accept p50 | SDK mutate p50 | ratio | memory, by SDK |\n|---|---|---|---|---|---|---|---|---|"
        );
        self.figures.push(json!({
            "bytes": modules.ours.bytes.len(), "compileMs": modules.ours.compile_ms, "instanceByNoOp": ours / no_op,
        }));
    }

    fn case(&mut self, modules: &Modules, case: &Case) {
        let host = QuickHost::new(case.objects.clone());
        let payload =
            |settings: &Value| json!({"request": case.request, "settings": settings}).to_string().into_bytes();
        let (own, accept, mutate) = (payload(&case.settings), payload(&json!({})), payload(&json!({"mutate": true})));
        let runs = [(&modules.no_op, &own), (&modules.ours, &own), (&modules.sdk, &accept), (&modules.sdk, &mutate)];
        let prepared = runs.map(|(module, _)| modules.prepare(module, None));
        let answer: Value = serde_json::from_slice(&call(&prepared[1], &own, &host).unwrap()).unwrap();
        let is_mutated = answer.get("mutated_object").is_some_and(|object| !object.is_null());
        assert_eq!(
            (&answer["accepted"], is_mutated),
            (&json!(true), case.class == Class::Mutated),
            "{}: {answer}",
            case.name
        );
        let mut times = [const { Vec::new() }; 4];
        let count = if case.is_small { Self::runs() } else { Self::runs() / 4 + 1 };
        for _ in 0..count {
            for ((prepared, (_, payload)), times) in prepared.iter().zip(&runs).zip(&mut times) {
                let begin = Instant::now();
                std::hint::black_box(call(prepared, payload, &host).unwrap());
                times.push(begin.elapsed().as_secs_f64() * 1e6);
            }
        }
        let times = times.map(Times);
        let [no_op, ours, accept_time, mutate_time] = [0, 1, 2, 3].map(|index: usize| times[index].percentile(50));
        let (base, target) = match (case.class, case.is_small) {
            (Class::NotOurs, true) => (accept_time, 0.40),
            (Class::NotOurs, false) => (accept_time, 0.15),
            (Class::NothingToDo, true) => (accept_time, 0.60),
            (Class::NothingToDo, false) => (accept_time, 0.30),
            (Class::Mutated, true) => (mutate_time, 0.90),
            (Class::Mutated, false) => (mutate_time, 0.45),
        };
        let ratio = self.check(case.name.clone(), ours / base, target);
        let base_payload = if case.class == Class::Mutated { &mutate } else { &accept };
        let memory =
            [modules.peak_memory(&modules.ours, &own, &host), modules.peak_memory(&modules.sdk, base_payload, &host)];
        let by_sdk = memory[0] as f64 / memory[1] as f64;
        let memory_ratio = self.check(format!("{}: memory", case.name), by_sdk, 0.34);
        let _ = writeln!(
            self.table,
            "| {} | {} | {no_op:.0} | {ours:.0} | {:.0} | {accept_time:.0} | {mutate_time:.0} | {ratio} | {} KiB, {memory_ratio} |",
            case.name,
            own.len() / 1000,
            times[1].percentile(99),
            memory[0] / 1024,
        );
        self.figures.push(json!({
            "case": case.name, "bytes": own.len(), "noOp": no_op, "p50": ours, "p99": times[1].percentile(99),
            "sdkAccept": accept_time, "sdkMutate": mutate_time, "ratio": ours / base, "target": target,
            "memory": memory[0], "memoryBySdk": by_sdk,
        }));
    }

    fn write(&self) {
        println!("{}", self.table);
        let json = serde_json::to_string_pretty(&self.figures).unwrap();
        std::fs::write(project("target/bench.json"), json).unwrap();
        for missed in &self.missed {
            eprintln!("missed: {missed}");
        }
        eprintln!("{} of the targets missed", self.missed.len());
    }
}
