//! `rehearse -A` on 1,000 bindings, against an API server on loopback: seconds on one core, and peak memory (Linux
//! only).

#![allow(
    clippy::unwrap_used,
    dead_code,
    missing_docs,
    unreachable_pub,
    reason = "a benchmark, which takes the tests' server"
)]

#[path = "../tests/command/server.rs"]
mod server;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use e2e_tests::project;
use e2e_tests::recording::read;
use server::{ApiServer, control_plane, many};

const BINDINGS: usize = 1000;

fn main() {
    let recording = read(&project("testdata/recordings/application-failover.jsonl")).unwrap();
    // The request that evicts, and the object in member1.
    let (binding, template) = (&recording[5].request["oldObject"], &recording[4].request["object"]);
    let (bindings, templates) = many(BINDINGS, binding, template);
    let server = ApiServer::start(control_plane(bindings, templates));
    let settings = project("examples/flinkdeployment/settings.yaml").display().to_string();
    for _ in 0..3 {
        let command = server.command(&["rehearse", "-A", "-o", "json", "--settings", &settings]);
        let mut pinned = Command::new("taskset");
        pinned.args(["-c", "0"]).arg(command.get_program()).args(command.get_args()).stdout(Stdio::null());
        pinned.envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
        let begin = Instant::now();
        let mut child = pinned.spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = String::new();
        while child.try_wait().unwrap().is_none() {
            let lines = std::fs::read_to_string(&status).unwrap_or_default();
            if let Some(line) = lines.lines().find_map(|line| line.strip_prefix("VmHWM:")) {
                peak = line.trim().to_owned();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        println!("{BINDINGS} bindings: {:.2} s on one core, {peak} at most", begin.elapsed().as_secs_f64());
    }
}
