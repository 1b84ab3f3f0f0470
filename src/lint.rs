//! The stage `lint`: a PropagationPolicy with state rules that would fail, or do nothing, on the day of the failover is
//! refused or warned of when it is written.

use serde_json::Value;

use crate::jsonpath::JsonPath;
use crate::karmada::{Failover, FailoverType, PurgeMode, StatePreservationRule};
use crate::settings::{Level, alias_problem};
use crate::verdict::{MAX_WARNING, Verdict, chain, quote, warning};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Severity {
    Error,
    Warning,
}

/// One finding.
#[derive(Debug)]
struct Finding {
    severity: Severity,
    /// Path of the field from the root of the policy.
    path: String,
    problem: String,
    remedy: String,
}

/// Checks the state rules of `policy`, a PropagationPolicy or ClusterPropagationPolicy. `purge_modes` are those that are
/// fed. `old` is the stored policy: what it already says does not deny a later write of something else.
pub fn review(
    policy: &Value,
    old: Option<&Value>,
    described: &str,
    level: Level,
    purge_modes: &[PurgeMode],
) -> Verdict {
    if level == Level::Off {
        return Verdict::accept();
    }
    let findings = find(policy, purge_modes);
    let is_unchanged = old.is_some_and(|old| old.get("spec") == policy.get("spec"));
    let denies = |finding: &&Finding| finding.severity == Severity::Error && level == Level::Enforce && !is_unchanged;
    let errors: Vec<String> = findings.iter().filter(denies).map(Finding::message).collect();
    let mut verdict = if errors.is_empty() {
        Verdict::accept()
    } else {
        Verdict::deny(format!("{described} would lose state in a failover: {}", errors.join("; ")))
    };
    verdict.warnings = findings.iter().filter(|finding| !denies(finding)).flat_map(Finding::warnings).collect();
    if !findings.is_empty() {
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let text = format!("{errors} errors, {} warnings", findings.len() - errors);
        verdict.audit_annotations.insert("lint", text);
    }
    verdict
}

impl Finding {
    fn message(&self) -> String {
        format!("{}: {}; {}", self.path, self.problem, self.remedy)
    }

    /// The finding as warnings: on one line where there is room, else the remedy on a second one.
    fn warnings(&self) -> Vec<String> {
        let message = self.message();
        if message.chars().count() <= MAX_WARNING {
            return vec![warning(&message)];
        }
        vec![warning(&format!("{}: {}", self.path, self.problem)), warning(&format!("- {}", self.remedy))]
    }
}

fn find(policy: &Value, purge_modes: &[PurgeMode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(failover) = Failover::of(policy) else {
        return findings;
    };
    let mut add = |severity, path: String, problem: String, remedy: String| {
        findings.push(Finding { severity, path, problem, remedy });
    };
    let mut has_rules = false;
    for failover_type in [FailoverType::Application, FailoverType::Cluster] {
        let Some(behavior) = failover.behavior(failover_type) else {
            continue;
        };
        let path = format!("spec.failover.{failover_type}");
        if failover_type == FailoverType::Application
            && policy.pointer("/spec/propagateDeps") != Some(&Value::Bool(true))
        {
            add(
                Severity::Warning,
                "spec.propagateDeps".to_owned(),
                "application failover needs it, Karmada refuses the policy".to_owned(),
                "write `propagateDeps: true`".to_owned(),
            );
        }
        let rules = failover.rules(failover_type);
        let written = behavior.pointer("/statePreservation/rules").and_then(Value::as_array);
        if written.is_some_and(Vec::is_empty) {
            add(
                Severity::Warning,
                format!("{path}.statePreservation.rules"),
                "is empty, no state is preserved".to_owned(),
                "write rules, or take statePreservation away".to_owned(),
            );
        }
        if rules.is_empty() {
            continue;
        }
        has_rules = true;
        let purge_mode = behavior.get("purgeMode").and_then(Value::as_str).unwrap_or_default();
        if PurgeMode::from_name(purge_mode).is_some_and(|mode| !purge_modes.contains(&mode)) {
            let found = if purge_mode.is_empty() {
                "is Gracefully where absent".to_owned()
            } else {
                format!("is {}", quote(purge_mode))
            };
            add(
                Severity::Warning,
                format!("{path}.purgeMode"),
                format!("{found}: state is kept and never fed"),
                "write `Directly`".to_owned(),
            );
        }
        for (index, rule) in rules.iter().enumerate() {
            let path = format!("{path}.statePreservation.rules[{index}]");
            if let Some((severity, problem, remedy)) = check_json_path(rule.json_path) {
                add(severity, format!("{path}.jsonPath"), problem, remedy);
            }
            if let Some((problem, remedy)) = check_alias(rule, rules.get(..index).unwrap_or_default()) {
                add(Severity::Error, format!("{path}.aliasLabelName"), problem, remedy);
            }
        }
    }
    if has_rules && !chooses_one_cluster(policy) {
        add(
            Severity::Warning,
            "spec.placement".to_owned(),
            "can choose several clusters, state is fed to one only".to_owned(),
            "add {spreadByField: cluster, maxGroups: 1}".to_owned(),
        );
    }
    findings
}

fn check_alias(rule: &StatePreservationRule<'_>, earlier: &[StatePreservationRule<'_>]) -> Option<(String, String)> {
    let alias = rule.alias_label_name;
    if let Some(problem) = alias_problem(alias) {
        return Some((problem, "write another label name".to_owned()));
    }
    let first = earlier.iter().position(|earlier| earlier.alias_label_name == alias)?;
    Some((format!("{} is the alias of rules[{first}] too", quote(alias)), "write another label name".to_owned()))
}

fn check_json_path(text: &str) -> Option<(Severity, String, String)> {
    if text.is_empty() {
        return Some((
            Severity::Error,
            "is empty and has no value".to_owned(),
            "write a path in braces, as `{.field}`".to_owned(),
        ));
    }
    let parsed = match JsonPath::template(text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let remedy = "try it with `kubectl get -o jsonpath=`".to_owned();
            return Some((Severity::Error, format!("{} {}", quote(text), chain(&error)), remedy));
        }
    };
    if parsed.is_constant() {
        if !text.contains(['{', '}']) && looks_like_path(text) {
            let dot = if text.starts_with(['.', '$']) { "" } else { "." };
            let remedy = format!("write {}", quote(&format!("{{{dot}{text}}}")));
            return Some((Severity::Error, format!("{} has no braces and is taken as text", quote(text)), remedy));
        }
        let problem = format!("{} is constant text", quote(text));
        return Some((Severity::Warning, problem, "the label always holds it".to_owned()));
    }
    if parsed.leading_fields().first() == Some(&"status") {
        let root = if text.contains(".status.") { "" } else { "@" };
        let corrected = text.replacen(".status", root, 1);
        return Some((
            Severity::Warning,
            "the root is `status` already".to_owned(),
            format!("write {}", quote(&corrected)),
        ));
    }
    None
}

/// Text that was meant to be a path: it begins with a dot or `$`, or is names with dots or brackets between them.
fn looks_like_path(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'[' | b']' | b'*' | b'\''))
    };
    text.starts_with(['.', '$']) || (text.contains(['.', '[']) && text.split('.').all(is_name))
}

/// Whether the placement can't choose more than one cluster at a time.
/// Source: `pkg/apis/policy/v1alpha1/propagation_types.go`, `Placement`; a spread constraint without a field is by cluster.
fn chooses_one_cluster(policy: &Value) -> bool {
    let list = |path: &str| policy.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let is_one = |constraint: &Value| {
        let field = constraint.get("spreadByField").and_then(Value::as_str).unwrap_or_default();
        let by_cluster = field == "cluster" || (field.is_empty() && constraint.get("spreadByLabel").is_none());
        by_cluster && constraint.get("maxGroups").and_then(Value::as_i64) == Some(1)
    };
    let names_one =
        |affinity: &Value| affinity.get("clusterNames").and_then(Value::as_array).is_some_and(|names| names.len() == 1);
    let affinities = list("/spec/placement/clusterAffinities");
    list("/spec/placement/spreadConstraints").iter().any(is_one)
        || policy.pointer("/spec/placement/clusterAffinity").is_some_and(names_one)
        || (!affinities.is_empty() && affinities.iter().all(names_one))
}
