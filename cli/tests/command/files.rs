//! What needs no cluster: `lint`, `restore`, completions, manual pages.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Stdio;

use e2e_tests::project;
use serde_json::{Value, json};

use crate::server::{Ran, command};

fn run(arguments: &[&str]) -> Ran {
    Ran::of(command(arguments).output().unwrap())
}

fn with_input(arguments: &[&str], input: &str) -> Ran {
    let mut child =
        command(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    Ran::of(child.wait_with_output().unwrap())
}

/// A document before it, so that the line is not the document's own.
const POLICIES: &str = "kind: Namespace
---
apiVersion: policy.karmada.io/v1alpha1
kind: PropagationPolicy
metadata: {name: clicks, namespace: default}
spec:
  propagateDeps: true
  placement: {clusterAffinity: {clusterNames: [a]}}
  failover:
    application:
      purgeMode: Gracefully
      statePreservation:
        rules:
        - aliasLabelName: example.io/job
          jsonPath: jobStatus.jobId
";

#[test]
fn findings_have_their_place() {
    let ran = with_input(&["lint", "-"], POLICIES);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert_eq!(
        ran.out,
        "-:11:7: warning: PropagationPolicy `default/clicks`: spec.failover.application.purgeMode: is `Gracefully`: state is preserved but never fed; write `Directly`
-:15:11: error: PropagationPolicy `default/clicks`: spec.failover.application.statePreservation.rules[0].jsonPath: `jobStatus.jobId` has no braces and is taken as text; write `{.jobStatus.jobId}`
policies: 1, errors: 1, warnings: 1
"
    );
    let json = with_input(&["lint", "-", "-o", "json"], POLICIES).json();
    assert_eq!(json[1]["line"], 15);
    assert_eq!(json[1]["remedy"], "write `{.jobStatus.jobId}`");
    let sarif = with_input(&["lint", "-", "-o", "sarif"], POLICIES).json();
    assert_eq!(sarif["version"], "2.1.0");
    let result = &sarif["runs"][0]["results"][1];
    assert_eq!(result["level"], "error");
    assert_eq!(
        result["locations"][0]["physicalLocation"],
        json!({"artifactLocation": {"uri": "-"}, "region": {"startLine": 15, "startColumn": 11}})
    );
    let github = with_input(&["lint", "-", "-o", "github"], POLICIES);
    assert!(
        github.out.starts_with("::warning file=-,line=11,col=7::spec.failover.application.purgeMode: is"),
        "{}",
        github.out
    );
}

#[test]
fn the_settings_decide_what_is_an_error() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for (settings, code, out) in [
        ("lint: Warn", 0, "errors: 0, warnings: 2"),
        ("lint: \"Off\"", 0, "errors: 0, warnings: 0"),
        ("feed: {purgeModes: [Gracefully]}", 1, "errors: 1, warnings: 0"),
    ] {
        let file = folder.join("lint-settings.yaml");
        std::fs::write(&file, settings).unwrap();
        let ran = with_input(&["lint", "-", "--settings", file.to_str().unwrap()], POLICIES);
        assert_eq!(ran.code, code, "{settings}: {ran:?}");
        assert!(ran.out.contains(out), "{settings}: {}", ran.out);
    }
}

/// Each example lists its kind in its settings; the policies of all are sound with those.
#[test]
fn folders_are_read_whole() {
    let examples = project("examples").display().to_string();
    let ran = run(&["lint", &examples]);
    assert_eq!(ran.code, 0, "{}", ran.out);
    assert!(ran.out.contains("policies: 27, errors: 0"), "{}", ran.out);
}

#[test]
fn a_file_that_is_no_yaml_is_named() {
    let ran = with_input(&["lint", "-"], "a: [1\nb: 2");
    assert_eq!(ran.code, 2);
    assert!(ran.error.starts_with("error: -: ") && ran.error.lines().count() == 2, "{}", ran.error);
    let ran = run(&["lint", "/no/such/file"]);
    assert!(ran.error.contains("/no/such/file"), "{}", ran.error);
}

#[test]
fn a_restore_is_shown_as_a_difference() {
    let file = |name: &str| project(&format!("examples/flinkdeployment/{name}.yaml")).display().to_string();
    let state = "resourcebinding.karmada.io/failover-jobid=e6fd0a8b5c4d4f3b9a7e112233445566";
    let ran = run(&["restore", "--settings", &file("settings"), "--state", state, &file("workload")]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let restored: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(file("restored")).unwrap()).unwrap();
    let path = restored["spec"]["job"]["initialSavepointPath"].as_str().unwrap();
    assert!(ran.out.lines().any(|line| line == format!("+    initialSavepointPath: {path}")), "{}", ran.out);
    let changed: Vec<&str> = ran.out.lines().filter(|line| line.starts_with(['-', '+'])).collect();
    assert_eq!(changed.len(), 2, "the field and the record: {changed:?}");

    let nothing = run(&["restore", "--settings", &file("settings"), &file("workload")]);
    assert!(nothing.out.contains("no restore rule changes the manifest"), "{}", nothing.out);
    let invalid = run(&[
        "restore",
        "--settings",
        &file("settings"),
        "--state",
        "resourcebinding.karmada.io/failover-jobid=x y",
        &file("workload"),
    ]);
    assert_eq!(invalid.code, 1);
    assert!(invalid.out.starts_with("denied: "), "{}", invalid.out);
}

#[test]
fn what_rules_look_up_comes_from_files() {
    let file = |name: &str| project(&format!("examples/flinkdeployment-configmap/{name}.yaml")).display().to_string();
    let status: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(file("status")).unwrap()).unwrap();
    let state = format!(
        "resourcebinding.karmada.io/failover-jobid={}",
        status["status"]["jobStatus"]["jobId"].as_str().unwrap()
    );
    let arguments = ["restore", "--settings", &file("settings"), "--state", &state, &file("workload")];
    assert_eq!(run(&arguments).code, 1);
    let ran = run(&[arguments.as_slice(), &["--objects", &file("latest-checkpoints")]].concat());
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.out.contains("+    initialSavepointPath: "), "{}", ran.out);
}

#[test]
fn completions_manual_pages_and_versions() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(run(&["completions", shell]).out.contains("rehearse"), "{shell}");
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("man");
    std::fs::create_dir_all(&folder).unwrap();
    assert_eq!(run(&["manpages", folder.to_str().unwrap()]).code, 0);
    let page = std::fs::read_to_string(folder.join("stateful-failover-rehearse.1")).unwrap();
    assert!(page.contains("restored\\-elsewhere"), "{page}");
    assert_eq!(run(&["--version"]).out, format!("stateful-failover {}\n", env!("CARGO_PKG_VERSION")));
    // By the name that kubectl looks for.
    let plugin =
        std::process::Command::new(env!("CARGO_BIN_EXE_kubectl-stateful_failover")).arg("--version").output().unwrap();
    assert!(plugin.status.success());
}
