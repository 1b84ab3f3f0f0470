//! The stage `lint`: a PropagationPolicy with state rules that would fail or have no effect when a failover happens is
//! rejected, or answered with a warning, when it is written.

use serde_json::Value;

use crate::interpreted_kinds::{Interpretation, shipped, shipped_reflection};
use crate::json::Fields;
use crate::jsonpath::{JsonPath, JsonPathError};
use crate::karmada::{self, Failover, FailoverType, PurgeMode, StatePreservationRule};
use crate::messages::{MAX_WARNING, chain, listed, quote, warning};
use crate::metadata;
use crate::object_reference::{ObjectReference, group};
use crate::settings::{InterpretedKind, Level, Settings};
use crate::state;
use crate::verdict::Verdict;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Denies the policy, with `lint: Enforce`.
    Error,
    /// A warning.
    Warning,
}

/// One finding.
#[derive(Debug)]
pub struct Finding {
    /// Its severity.
    pub severity: Severity,
    /// Path of the field from the root of the policy: `spec.failover.cluster.statePreservation.rules[0].jsonPath`.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
    /// What to do.
    pub remedy: String,
}

/// The fields of a policy that the stage reads.
pub fn fields() -> Fields<'static> {
    let mut fields = metadata::fields();
    fields.member("spec").set_whole();
    fields
}

/// Checks the state rules of `policy`, a PropagationPolicy or ClusterPropagationPolicy. `old` is the stored policy:
/// errors in a spec that the write does not change are warnings.
pub fn review(policy: &Value, old: Option<&Value>, described: &str, settings: &Settings) -> Verdict {
    let level = settings.lint;
    if level == Level::Off {
        return Verdict::accept();
    }
    let findings = find(policy, settings);
    let is_unchanged = old.is_some_and(|old| old.get("spec") == policy.get("spec"));
    let denies = |finding: &&Finding| finding.severity == Severity::Error && level == Level::Enforce && !is_unchanged;
    let errors: Vec<String> = findings.iter().filter(denies).map(Finding::message).collect();
    let mut verdict = if errors.is_empty() {
        Verdict::accept()
    } else {
        Verdict::deny(format!("{described} would lose state in a failover: {}", listed(&errors)))
    };
    verdict.warnings = findings.iter().filter(|finding| !denies(finding)).flat_map(Finding::warnings).collect();
    if !findings.is_empty() {
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let text = format!("{}, {}", count(errors, "error"), count(findings.len() - errors, "warning"));
        verdict.audit_annotations.insert("lint", text);
    }
    verdict
}

impl Finding {
    fn message(&self) -> String {
        format!("{}: {}; {}", self.path, self.problem, self.remedy)
    }

    /// The finding as one warning or, where that is too long, the remedy as a second one.
    fn warnings(&self) -> Vec<String> {
        let message = self.message();
        if message.chars().count() <= MAX_WARNING {
            return vec![warning(&message)];
        }
        vec![warning(&format!("{}: {}", self.path, self.problem)), warning(&format!("- {}", self.remedy))]
    }
}

/// All findings on the state rules of `policy`, whatever `lint` is set to.
pub fn find(policy: &Value, settings: &Settings) -> Vec<Finding> {
    let purge_modes = &settings.feed.purge_modes;
    let kinds = SelectedKind::of(policy, &settings.lint_kinds);
    let mut findings = Vec::new();
    let Some(failover) = Failover::of(policy) else {
        return findings;
    };
    let mut add = |severity, path: String, problem: String, remedy: String| {
        findings.push(Finding { severity, path, problem, remedy });
    };
    let mut has_rules = false;
    let mut roots: Vec<String> = Vec::new();
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
                "application failover needs it, Karmada rejects the policy".to_owned(),
                "write `propagateDeps: true`".to_owned(),
            );
        }
        let without_health = kinds.iter().filter(|kind| !kind.interpretation.has_health && !kind.is_stateless());
        for kind in without_health.filter(|_| failover_type == FailoverType::Application) {
            let (problem, remedy) = unnoticed_failure(kind.api_version, kind.kind);
            add(Severity::Warning, path.clone(), problem, remedy);
        }
        let rules = failover.rules(failover_type);
        let written = behavior.pointer("/statePreservation/rules").and_then(Value::as_array);
        if written.is_some_and(Vec::is_empty) {
            add(
                Severity::Warning,
                format!("{path}.statePreservation.rules"),
                "is empty, so no state is preserved".to_owned(),
                "add rules or remove statePreservation".to_owned(),
            );
        }
        if rules.is_empty() {
            continue;
        }
        has_rules = true;
        let purge_mode = behavior.get("purgeMode").and_then(Value::as_str).unwrap_or_default();
        if PurgeMode::from_name(purge_mode).is_some_and(|mode| !purge_modes.contains(&mode)) {
            let found = if purge_mode.is_empty() {
                "defaults to Gracefully".to_owned()
            } else {
                format!("is {}", quote(purge_mode))
            };
            add(
                Severity::Warning,
                format!("{path}.purgeMode"),
                format!("{found}: state is preserved but never fed"),
                format!("write `{}`", purge_modes.first().unwrap_or(&PurgeMode::Directly).as_str()),
            );
        }
        for (index, rule) in rules.iter().enumerate() {
            let path = format!("{path}.statePreservation.rules[{index}]");
            let parsed = JsonPath::template(rule.json_path);
            let root = parsed.as_ref().ok().and_then(|parsed| Some((*parsed.leading_fields().first()?).to_owned()));
            if let ([kind], Some(root)) = (kinds.as_slice(), &root)
                && let Some((problem, remedy)) = kind.check_reflected(root)
            {
                add(Severity::Warning, format!("{path}.jsonPath"), problem, remedy);
            }
            roots.extend(root);
            for (severity, problem, remedy) in check_json_path(rule.json_path, parsed) {
                add(severity, format!("{path}.jsonPath"), problem, remedy);
            }
            if let Some((problem, remedy)) = check_alias(rule, rules.get(..index).unwrap_or_default()) {
                add(Severity::Error, format!("{path}.aliasLabelName"), problem, remedy);
            }
        }
    }
    let roots: Vec<&str> = roots.iter().map(String::as_str).collect();
    if has_rules && let Some(offenders) = kinds_without_state(&kinds, &roots) {
        add(
            Severity::Warning,
            "spec.resourceSelectors".to_owned(),
            format!("{offenders} also get the rules, but have no such state"),
            "select them in a policy of their own".to_owned(),
        );
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
    if let Err(error) = state::check_alias(alias) {
        return Some((error.to_string(), "choose another name".to_owned()));
    }
    let first = earlier.iter().position(|earlier| earlier.alias_label_name == alias)?;
    Some((format!("{} is the alias of rules[{first}] too", quote(alias)), "choose another name".to_owned()))
}

/// Severity, problem and remedy.
type JsonPathFinding = (Severity, String, String);

fn check_json_path(text: &str, parsed: Result<JsonPath, JsonPathError>) -> Vec<JsonPathFinding> {
    if text.is_empty() {
        let remedy = "write a path in braces, as `{.field}`".to_owned();
        return vec![(Severity::Error, "is empty and has no value".to_owned(), remedy)];
    }
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let remedy = "try it with `kubectl get -o jsonpath=`".to_owned();
            return vec![(Severity::Error, format!("{} {}", quote(text), chain(&error)), remedy)];
        }
    };
    if parsed.is_constant() {
        return vec![check_constant(text)];
    }
    let mut findings = Vec::new();
    if parsed.has_open_range() {
        findings.push((
            Severity::Error,
            "has a `range` without an `end`".to_owned(),
            "close it with `{end}`".to_owned(),
        ));
    }
    findings.extend(check_root(text, &parsed));
    if let Some(escaped) = escape_quoted_names(text) {
        let problem = "a quoted name with dots is read as a path".to_owned();
        findings.push((Severity::Warning, problem, format!("write {}", quote(&escaped))));
    }
    let (first, last) = parsed.outer_text();
    let is_outside = |c: Option<char>| c.is_some_and(|c| c.is_whitespace() || matches!(c, ',' | ';' | ':' | '/'));
    if is_outside(first.and_then(|text| text.chars().next())) || is_outside(last.and_then(|text| text.chars().last())) {
        let problem = "has text at an end that no label can hold".to_owned();
        let remedy = "remove it, or the value is carried in the annotation only".to_owned();
        findings.push((Severity::Warning, problem, remedy));
    }
    findings
}

fn check_constant(text: &str) -> JsonPathFinding {
    if text.contains(['{', '}']) || !looks_like_path(text) {
        return (
            Severity::Warning,
            format!("{} is constant text", quote(text)),
            "the label always holds it".to_owned(),
        );
    }
    let problem = format!("{} has no braces and is taken as text", quote(text));
    let dot = if text.starts_with(['.', '$']) { "" } else { "." };
    let braced = format!("{{{dot}{text}}}");
    let corrected = without_status(&braced).unwrap_or(braced);
    let remedy = match check_json_path(&corrected, JsonPath::template(&corrected)).as_slice() {
        [] => format!("write {}", quote(&corrected)),
        _ => "write the path of a field of the status in braces".to_owned(),
    };
    (Severity::Error, problem, remedy)
}

/// The root of a rule is the status, not the object.
fn check_root(text: &str, parsed: &JsonPath) -> Option<JsonPathFinding> {
    match *parsed.leading_fields().first()? {
        "status" => {
            let remedy =
                without_status(text).map_or("remove `.status`".to_owned(), |text| format!("write {}", quote(&text)));
            Some((Severity::Warning, "the root is already `status`".to_owned(), remedy))
        }
        root @ ("metadata" | "spec" | "kind" | "apiVersion") => {
            let problem = format!("the root is `status`, which has no `{root}`");
            Some((Severity::Warning, problem, "write the path of a field of the status".to_owned()))
        }
        _ => None,
    }
}

/// `text` without the leading `.status` of its path.
fn without_status(text: &str) -> Option<String> {
    let at = text.find(".status")?;
    let after = text.get(at + ".status".len()..)?;
    let is_field = after.starts_with(|c: char| !c.is_alphanumeric() && c != '_' && c != '-');
    let root = if after.starts_with(['.', '[']) { "" } else { "@" };
    is_field.then(|| format!("{}{root}{after}", text.get(..at).unwrap_or_default()))
}

/// `text` with the dots in quoted names escaped; `None` where there are none. kubectl's dialect splits a quoted name in
/// brackets at its dots.
fn escape_quoted_names(text: &str) -> Option<String> {
    let mut escaped = String::new();
    let mut rest = text;
    let mut is_changed = false;
    while let Some((before, after)) = rest.split_once("['") {
        let (name, after) = after.split_once("']")?;
        escaped.push_str(before);
        escaped.push_str("['");
        let mut last = '\0';
        for c in name.chars() {
            if c == '.' && last != '\\' {
                escaped.push('\\');
                is_changed = true;
            }
            escaped.push(c);
            last = c;
        }
        escaped.push_str("']");
        rest = after;
    }
    escaped.push_str(rest);
    is_changed.then_some(escaped)
}

/// A kind that the policy selects.
struct SelectedKind<'a> {
    api_version: &'a str,
    kind: &'a str,
    interpretation: Interpretation<'a>,
}

impl<'a> SelectedKind<'a> {
    /// The kinds in `resourceSelectors`, each once.
    fn of(policy: &'a Value, own: &'a [InterpretedKind]) -> Vec<Self> {
        let mut kinds: Vec<Self> = Vec::new();
        let selectors = policy.pointer("/spec/resourceSelectors").and_then(Value::as_array);
        for selector in selectors.into_iter().flatten() {
            let text = |key: &str| selector.get(key).and_then(Value::as_str).unwrap_or_default();
            let (api_version, kind) = (text("apiVersion"), text("kind"));
            if !kinds.iter().any(|known| known.api_version == api_version && known.kind == kind) {
                kinds.push(Self { api_version, kind, interpretation: Interpretation::of(api_version, kind, own) });
            }
        }
        kinds
    }

    fn is_stateless(&self) -> bool {
        let group = group(self.api_version);
        karmada::is_stateless(ObjectReference { group, kind: self.kind, namespace: "", name: "" })
    }

    /// A rule that reads a field of the status that Karmada does not reflect.
    fn check_reflected(&self, root: &str) -> Option<(String, String)> {
        let is_reported_otherwise = matches!(root, "status" | "metadata" | "spec" | "kind" | "apiVersion");
        if is_reported_otherwise || self.interpretation.reflects(root) {
            return None;
        }
        let problem = format!("Karmada does not reflect {}", quote(root));
        let customize = shipped_reflection(self.api_version, self.kind).filter(|_| !self.interpretation.is_own);
        let customize = customize.map(remedy_of);
        let fields = self.interpretation.reflected.as_ref();
        let reads = fields.map(|fields| format!("what is reflected is {}", fields.join(", ")));
        let remedies: Vec<String> = customize.into_iter().chain(reads).collect();
        let remedy = if remedies.is_empty() { WRITE_ONE.to_owned() } else { remedies.join("; ") };
        Some((problem, remedy))
    }
}

/// The problem with a kind whose health Karmada does not know, and the remedy.
pub fn unnoticed_failure(api_version: &str, kind: &str) -> (String, String) {
    let problem = format!("Karmada does not know when a {kind} is unhealthy, and never moves it for that");
    (problem, shipped(api_version, kind).map_or_else(|| WRITE_ONE.to_owned(), remedy_of))
}

const WRITE_ONE: &str = "write a ResourceInterpreterCustomization and list the kind in `lintKinds`";

fn remedy_of(file: &str) -> String {
    format!("apply deploy/interpreters/{file} and list the kind in `lintKinds`")
}

/// The selected kinds that have no state, or not the fields that the rules read. Karmada copies the rules into the
/// binding of every resource that the policy selects.
fn kinds_without_state(kinds: &[SelectedKind<'_>], roots: &[&str]) -> Option<String> {
    if kinds.len() < 2 {
        return None;
    }
    let has_fields = |kind: &SelectedKind<'_>| roots.iter().all(|root| kind.interpretation.reflects(root));
    let is_read =
        |kind: &SelectedKind<'_>| !roots.is_empty() && roots.iter().all(|root| kind.interpretation.names(root));
    let is_for_one = kinds.iter().any(is_read);
    let is_without =
        |kind: &&SelectedKind<'_>| kind.is_stateless() || !has_fields(kind) || (is_for_one && !is_read(kind));
    let without: Vec<&str> = kinds.iter().filter(is_without).map(|kind| kind.kind).collect();
    (!without.is_empty()).then(|| without.join(", "))
}

/// Whether `text` was meant to be a path: it begins with a dot or `$`, or consists of names with dots or brackets
/// between them.
fn looks_like_path(text: &str) -> bool {
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'[' | b']' | b'*' | b'\''))
    };
    text.starts_with(['.', '$']) || (text.contains(['.', '[']) && text.split('.').all(is_name))
}

/// Whether the placement can't choose more than one cluster at a time. Source:
/// `pkg/apis/policy/v1alpha1/propagation_types.go`, `Placement`; a spread constraint without `spreadByField` is by
/// cluster.
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
