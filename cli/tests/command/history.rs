//! `history`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use e2e_tests::policy::Native;
use e2e_tests::project;
use e2e_tests::recording::read;
use e2e_tests::replay::End;
use serde_json::{Value, json};

use crate::server::{ApiServer, control_plane};

/// The binding at the end of a recording.
fn binding(name: &str, cluster: &str) -> Value {
    let settings =
        serde_yaml_ng::from_str(&std::fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap())
            .unwrap();
    let recording = read(&project(&format!("testdata/recordings/{name}.jsonl"))).unwrap();
    End::of(&Native, settings, &recording, cluster).unwrap().binding
}

#[test]
fn newest_first_with_what_was_carried() {
    let bindings = vec![binding("application-failover", "member2"), binding("late-health", "member1")];
    let server = ApiServer::start(control_plane(bindings, Vec::new()));
    let ran = server.run(&["history"]);
    assert_eq!((ran.code, ran.error.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = ran.out.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAMESPACE", "BINDING", "TIME", "TYPE", "FROM", "TO", "PHASE", "STATE", "MISSING"]);
    let cells = |row: usize, columns: std::ops::Range<usize>| rows[row][columns].to_vec();
    assert_eq!(cells(1, 1..7), ["late-9232-flinkdeployment", "-", "move", "member2", "member1", "Pending"]);
    assert_eq!(
        cells(2, 1..7),
        ["late-9232-flinkdeployment", "2026-12-01T00:27:02Z", "application", "member1", "member2", "Recovered"]
    );
    assert_eq!(cells(3, 2..4), ["2026-11-30T03:30:46Z", "application"]);
    assert_eq!(cells(3, 7..8), ["failover-jobid=b8b4ab8cbff349dda3acd97361d7f996"]);
    let rows = server.run(&["history", "late-9232-flinkdeployment", "-o", "json"]).json();
    assert_eq!(rows.as_array().unwrap().len(), 2);
    assert_eq!(rows[1]["producer"], "resource-binding-application-failover-controller");
    let none = ApiServer::start(control_plane(Vec::new(), Vec::new())).run(&["history", "-A"]);
    assert_eq!((none.code, none.out.as_str()), (0, "no failovers yet\n"));
}

#[test]
fn a_history_that_cannot_be_read_hides_no_other() {
    let mut broken = binding("cluster-failover", "member2");
    broken["metadata"]["annotations"]["stateful-failover/history"] = json!("not a history");
    let bindings = vec![broken, binding("application-failover", "member2")];
    let ran = ApiServer::start(control_plane(bindings, Vec::new())).run(&["history"]);
    assert_eq!(ran.code, 0);
    assert!(ran.error.starts_with("warning: ResourceBinding `default/"), "{}", ran.error);
    assert_eq!(ran.out.lines().count(), 2);
}

#[test]
fn a_watch_prints_what_changes() {
    let stored = binding("application-failover", "member2");
    let mut changed = stored.clone();
    let time = "2026-12-01T01:02:03Z";
    let record =
        json!([{"type": "cluster", "from": "member2", "before": ["member2"], "phase": "Evicted", "time": time}]);
    changed["spec"]["clusters"] = json!([{"name": "member1"}]);
    changed["spec"]["gracefulEvictionTasks"] = json!([{"fromCluster": "member2", "creationTimestamp": time}]);
    changed["metadata"]["annotations"]["stateful-failover/history"] = json!(record.to_string());
    changed["metadata"]["resourceVersion"] = json!("9999");
    let event = json!({"type": "MODIFIED", "object": changed});
    let server = ApiServer::start_with(control_plane(vec![stored], Vec::new()), vec![event], |_| None);
    let mut watching = server.command(&["history", "--watch"]).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let found = lines.map_while(Result::ok).find(|line| line.contains(time));
    watching.kill().unwrap();
    watching.wait().unwrap();
    let found = found.unwrap();
    assert_eq!(
        found.split_whitespace().skip(3).take(4).collect::<Vec<_>>(),
        ["cluster", "member2", "member1", "Evicted"]
    );
    assert!(server.requests().iter().all(|request| request.starts_with("GET ")));
}
