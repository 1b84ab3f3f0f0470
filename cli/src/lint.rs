//! `lint`: PropagationPolicies in files, checked as on admission.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::{Value, json};
use stateful_failover::Settings;
use stateful_failover::karmada::POLICY_GROUP;
use stateful_failover::lint::{Severity, find};
use stateful_failover::object_reference::{ObjectReference, group};
use stateful_failover::settings::Level;

use crate::Ending;
use crate::arguments::{Format, Lint, LintFormat};
use crate::documents::{self, Document};
use crate::failure::Failure;
use crate::output::{Tone, print, print_structured};
use crate::settings;

/// A finding, with its position.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Located {
    file: String,
    line: usize,
    column: usize,
    level: &'static str,
    policy: String,
    path: String,
    problem: String,
    remedy: String,
}

/// Checks the files.
///
/// # Errors
/// A file or the settings can't be read.
pub fn run(arguments: &Lint) -> Result<Ending, Failure> {
    let settings = settings::read(&arguments.settings)?;
    let documents = documents::read(&arguments.files)?;
    let policies: Vec<&Document> = documents.iter().filter(|document| is_policy(&document.value)).collect();
    let findings: Vec<Located> = policies.iter().flat_map(|policy| check(policy, &settings)).collect();
    match arguments.output {
        LintFormat::Text => print(&text(&findings, policies.len()))?,
        LintFormat::Json => print_structured(&findings, Format::Json)?,
        LintFormat::Sarif => print_structured(&sarif(&findings), Format::Json)?,
        LintFormat::Github => print(&github(&findings))?,
    }
    let has_errors = findings.iter().any(|finding| finding.level == "error");
    Ok(if has_errors { Ending::Findings } else { Ending::Clean })
}

fn is_policy(document: &Value) -> bool {
    let text = |key: &str| document.get(key).and_then(Value::as_str).unwrap_or_default();
    group(text("apiVersion")) == POLICY_GROUP
        && matches!(text("kind"), "PropagationPolicy" | "ClusterPropagationPolicy")
}

fn check(document: &Document, settings: &Settings) -> Vec<Located> {
    if settings.lint == Level::Off {
        return Vec::new();
    }
    let policy = ObjectReference::of(&document.value).to_string();
    let findings = find(&document.value, settings).into_iter();
    findings
        .map(|finding| {
            let place = document.place(&finding.path);
            let is_error = finding.severity == Severity::Error && settings.lint == Level::Enforce;
            Located {
                file: document.file.clone(),
                line: place.line,
                column: place.column,
                level: if is_error { "error" } else { "warning" },
                policy: policy.clone(),
                path: finding.path,
                problem: finding.problem,
                remedy: finding.remedy,
            }
        })
        .collect()
}

fn text(findings: &[Located], policies: usize) -> String {
    let mut text = String::new();
    for finding in findings {
        let Located { file, line, column, level, policy, path, problem, remedy } = finding;
        let style = if *level == "error" { Tone::Bad } else { Tone::Doubtful }.style();
        // Writing to a string can't fail.
        let _ =
            writeln!(text, "{file}:{line}:{column}: {style}{level}{style:#}: {policy}: {path}: {problem}; {remedy}");
    }
    let count = |level: &str| findings.iter().filter(|finding| finding.level == level).count();
    let _ = writeln!(text, "policies: {policies}, errors: {}, warnings: {}", count("error"), count("warning"));
    text
}

/// Source: GitHub Actions, "Workflow commands": the message and the properties are escaped in different ways.
fn github(findings: &[Located]) -> String {
    let escape = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    let mut text = String::new();
    for Located { file, line, column, level, path, problem, remedy, .. } in findings {
        let message = escape(&format!("{path}: {problem}; {remedy}"));
        let _ = writeln!(text, "::{level} file={},line={line},col={column}::{message}", property(file));
    }
    text
}

/// Source: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0".
fn sarif(findings: &[Located]) -> Value {
    let results = findings.iter().map(|finding| {
        json!({
            "ruleId": "state-preservation",
            "level": finding.level,
            "message": {"text": format!("{}: {}; {}", finding.path, finding.problem, finding.remedy)},
            "locations": [{"physicalLocation": {
                "artifactLocation": {"uri": finding.file},
                "region": {"startLine": finding.line, "startColumn": finding.column},
            }}],
        })
    });
    let results: Vec<Value> = results.collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": {"driver": {
                "name": "stateful-failover",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": [{"id": "state-preservation", "shortDescription": {"text": "State rules that fail or do nothing in a failover"}}],
            }},
            "results": results,
        }],
    })
}
