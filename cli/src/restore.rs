//! `restore`: the changes that restore rules would make to a manifest.

use std::fmt::Write as _;

use anstyle::Style;
use serde_json::{Map, Value, json};
use similar::{ChangeTag, TextDiff};
use stateful_failover::cluster::Objects;
use stateful_failover::metadata::set_annotation;
use stateful_failover::object_reference::{ObjectReference, group};
use stateful_failover::state::STATE_ANNOTATION;
use stateful_failover::verdict::Outcome;
use stateful_failover::{Request, evaluate};

use crate::Ending;
use crate::arguments::Restore;
use crate::documents;
use crate::failure::Failure;
use crate::output::{Tone, print};
use crate::settings;

/// Applies the restore rules to the manifest and prints the difference.
///
/// # Errors
/// The settings or the manifest can't be read.
pub fn run(arguments: &Restore) -> Result<Ending, Failure> {
    let settings = settings::read(&arguments.settings)?;
    let mut manifests = documents::values(&arguments.file)?;
    let file = arguments.file.display();
    let (Some(manifest), true) = (manifests.pop(), manifests.is_empty()) else {
        return Err(Failure::new(format!("{file}: expected one manifest"), "name a file with one document"));
    };
    let objects = match &arguments.objects {
        Some(path) => documents::values(path)?,
        None => Vec::new(),
    };

    let state: Map<String, Value> =
        arguments.state.iter().map(|(alias, value)| (alias.clone(), Value::from(value.as_str()))).collect();
    let mut fed = manifest.clone();
    set_annotation(&mut fed, STATE_ANNOTATION, Value::Object(state).to_string())
        .map_err(|error| Failure::new(format!("{file}: {error}"), "name a Kubernetes manifest"))?;
    let request = create(&fed).to_string();
    let request = Request::from_json(&request)
        .map_err(|error| Failure::new(format!("{file}: {error}"), "name a Kubernetes manifest"))?;
    let verdict = evaluate(&request, &settings, &Objects(objects)).parsed();
    let mut text = String::new();
    for note in verdict.warnings.iter().map(|warning| format!("warning: {warning}")).chain(verdict.notes) {
        let style = Tone::Doubtful.style();
        let _ = writeln!(text, "{style}{note}{style:#}");
    }
    let restored = match verdict.outcome {
        Outcome::Deny { message, .. } => {
            let style = Tone::Bad.style();
            print(&format!("{text}{style}denied: {message}{style:#}\n"))?;
            return Ok(Ending::Findings);
        }
        Outcome::Mutate(restored) => restored,
        Outcome::Accept => fed.clone(),
    };
    if restored == fed {
        text += "no restore rule changes the manifest\n";
    }
    text += &diff(&yaml(&fed)?, &yaml(&restored)?);
    print(&text)?;
    Ok(Ending::Clean)
}

fn create(manifest: &Value) -> Value {
    let reference = ObjectReference::of(manifest);
    let api_version = manifest.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    json!({
        "kind": {
            "group": group(api_version),
            "version": api_version.rsplit('/').next(),
            "kind": reference.kind,
        },
        "namespace": reference.namespace, "name": reference.name, "operation": "CREATE", "object": manifest,
    })
}

fn yaml(value: &Value) -> Result<String, Failure> {
    // Converted by way of text (all JSON is YAML), since the two libraries represent numbers in different ways.
    let value: Result<serde_yaml_ng::Value, _> = serde_yaml_ng::from_str(&value.to_string());
    value
        .and_then(|value| serde_yaml_ng::to_string(&value))
        .map_err(|error| Failure::new(format!("cannot write the manifest as YAML: {error}"), "report this as a fault"))
}

fn diff(before: &str, after: &str) -> String {
    let diff = TextDiff::from_lines(before, after);
    let mut text = String::new();
    for group in diff.grouped_ops(3) {
        if !text.is_empty() {
            text.push_str("...\n");
        }
        for change in group.iter().flat_map(|operation| diff.iter_changes(operation)) {
            let (sign, style) = match change.tag() {
                ChangeTag::Delete => ('-', Tone::Bad.style()),
                ChangeTag::Insert => ('+', Tone::Good.style()),
                ChangeTag::Equal => (' ', Style::new()),
            };
            // Writing to a string can't fail.
            let _ = writeln!(text, "{style}{sign}{}{style:#}", change.value().trim_end_matches('\n'));
        }
    }
    text
}
