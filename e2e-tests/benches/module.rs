//! Measures the module beside a no-op module and an ordinary policy on the SDK, in the same engine and in one run, with
//! a fresh instance for each call, as in the policy server.
//!
//! Prints a table in Markdown, writes the figures to `target/bench.json`, and fails where a target is missed.
//! `BENCH_RUNS` is the number of evaluations of each case by each module, in turn; `BENCH_ONLY` selects the cases whose
//! names contain this text.

#![allow(missing_docs, reason = "a benchmark")]

mod support;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use e2e_tests::project;
use serde_json::{Value, json};
use support::{Case, Class, NO_OP, QuickHost, call, cases, instance};
use wasmtime_provider::{ResourceLimits, WasmtimeEngineProviderBuilder, WasmtimeEngineProviderPre, wasmtime};

/// The suffix of cases with settings that do not match their request.
const RULES: &str = ", 20 rules";
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

/// The times of all runs, in microseconds.
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
    p50: HashMap<String, f64>,
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

    /// Size, time to compile, and time to create an instance with its initialization.
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
        // 350 ms where the SDK policy takes 160.
        let compiled = modules.ours.compile_ms / modules.sdk.compile_ms;
        let compiled = self.check("compilation, by that of the SDK policy".to_owned(), compiled, 2.2);
        let _ = writeln!(
            self.table,
            "| compiled, ms | {:.0} | {:.0}, by SDK {compiled} | {:.0} |",
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
        case.check_answer(&call(&prepared[1], &own, &host).unwrap());
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
        self.p50.insert(case.name.clone(), ours);
        let without_rules = case.name.strip_suffix(RULES).and_then(|name| self.p50.get(name)).copied();
        let (base, target) = match (case.class, case.is_small) {
            _ if without_rules.is_some() => (without_rules.unwrap_or(ours), 1.2),
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
