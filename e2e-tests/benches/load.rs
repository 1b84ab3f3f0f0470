//! The module under load on all cores: requests a second for each stage, memory over many requests, and the loss of a
//! cluster with many applications.
//!
//! Prints a table in Markdown, and fails where memory grows. `LOAD_REQUESTS` is the number of requests between the two
//! measurements of the memory.

#![allow(missing_docs, reason = "a benchmark")]

mod support;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use e2e_tests::project;
use serde_json::{Value, json};
use support::{Case, NO_OP, QuickHost, call, cases};
use wasmtime_provider::{WasmtimeEngineProviderBuilder, WasmtimeEngineProviderPre};

/// The number of applications that the lost cluster had.
const BINDINGS: usize = 2000;

fn main() -> ExitCode {
    let module = prepare(&std::fs::read(project("policy.wasm")).unwrap());
    let no_op = prepare(NO_OP.as_bytes());
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.is_small).collect();
    let cores = std::thread::available_parallelism().unwrap().get();

    println!("| stage, recorded sizes, {cores} cores | requests/s | with the no-op |\n|---|---|---|");
    for case in &cases {
        let job = Job::new(case, &case.request);
        case.check_answer(&call(&module, &job.payload, &job.host).unwrap());
        let [ours, idle] = [&module, &no_op].map(|module| {
            let count = 20_000;
            count as f64 / run(module, std::slice::from_ref(&job), count, cores).as_secs_f64()
        });
        println!("| {} | {ours:.0} | {idle:.0} |", case.name.trim_start_matches("recorded: "));
    }

    let jobs: Vec<Job> = cases.iter().map(|case| Job::new(case, &case.request)).collect();
    let requests = std::env::var("LOAD_REQUESTS").ok().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    run(&module, &jobs, requests / 10, cores);
    let before = resident();
    run(&module, &jobs, requests, cores);
    let after = resident();
    println!("\nResident memory after {} requests: {before} KiB; after {requests} more: {after} KiB.", requests / 10);

    let storm = storm(&cases);
    let [ours, idle] = [&module, &no_op].map(|module| run(module, &storm, storm.len(), cores));
    println!(
        "\nA cluster with {BINDINGS} applications is lost: {} requests (evictions, Works with their lookups, workloads) take \
         {:.2} s on {cores} cores, of which {:.2} s are the engine's own, as the no-op takes them; {:.0} µs an application.",
        storm.len(),
        ours.as_secs_f64(),
        idle.as_secs_f64(),
        ours.as_secs_f64() * 1e6 / BINDINGS as f64,
    );
    // A tenth is allowed for the host's allocator.
    if after > before + before / 10 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn prepare(module: &[u8]) -> WasmtimeEngineProviderPre {
    WasmtimeEngineProviderBuilder::new().module_bytes(module).build_pre().unwrap()
}

/// One request, with the objects that lookups find.
struct Job {
    payload: Vec<u8>,
    host: Arc<QuickHost>,
}

impl Job {
    fn new(case: &Case, request: &Value) -> Self {
        let payload = json!({"request": request, "settings": case.settings}).to_string().into_bytes();
        Self { payload, host: QuickHost::new(case.objects.clone()) }
    }
}

/// The requests for each application when a cluster is lost: the eviction, the Work in the new cluster, and the
/// workload there.
fn storm(cases: &[Case]) -> Vec<Job> {
    let case = |name: &str| cases.iter().find(|case| case.name.ends_with(name)).unwrap();
    let parts = [case("binding, eviction"), case("Work, fed and restored"), case("workload, restored")];
    let requests = (0..BINDINGS).flat_map(|index| parts.map(|case| (index, case)));
    requests
        .map(|(index, case)| {
            let mut request = case.request.clone();
            request["uid"] = json!(format!("{index}"));
            Job::new(case, &request)
        })
        .collect()
}

/// The time to evaluate `count` of the jobs, in turn, on that many threads.
fn run(module: &WasmtimeEngineProviderPre, jobs: &[Job], count: usize, threads: usize) -> Duration {
    let next = AtomicUsize::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        break;
                    }
                    let job = &jobs[index % jobs.len()];
                    std::hint::black_box(call(module, &job.payload, &job.host).unwrap());
                }
            });
        }
    });
    begin.elapsed()
}

/// Resident memory of this process in KiB. Source: `proc(5)`, `/proc/self/status`.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
