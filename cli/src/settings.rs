//! Reads the policy's settings from the files in which they are deployed.

use std::path::Path;

use serde_json::Value;
use stateful_failover::Settings;

use crate::arguments::SettingsSource;
use crate::documents;
use crate::failure::Failure;

/// The name that all modules of this policy contain.
const MODULE: &str = "stateful-failover";

/// The settings at the source; without one, the defaults.
///
/// # Errors
/// There are no settings, several, or invalid ones. Every error is reported, as by the engine.
pub fn read(source: &SettingsSource) -> Result<Settings, Failure> {
    let Some(path) = &source.settings else { return Ok(Settings::default()) };
    let (name, settings) = find(path, source.policy.as_deref())?;
    Settings::from_json(&settings).map_err(|error| {
        Failure::new(format!("{}: the settings of {name} are not valid: {error}", path.display()), "correct them")
    })
}

fn find(path: &Path, policy: Option<&str>) -> Result<(String, Value), Failure> {
    let mut found: Vec<(String, Value)> = documents::values(path)?.iter().flat_map(settings_in).collect();
    if let Some(policy) = policy {
        found.retain(|(name, _)| name == policy);
    }
    let names = |found: &[(String, Value)]| found.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(Failure::new(
            format!("{}: there is no policy whose module is {MODULE}", path.display()),
            "name policies.yml, the ClusterAdmissionPolicy, or a file with the settings alone",
        )),
        _ => Err(Failure::new(
            format!("{}: there are several policies: {}", path.display(), names(&found)),
            "choose one with --policy",
        )),
    }
}

/// The settings in a document, with the name of their policy.
fn settings_in(document: &Value) -> Vec<(String, Value)> {
    let text = |path: &str| document.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let settings = |policy: &Value| policy.get("settings").cloned().unwrap_or_default();
    let is_ours =
        |policy: &Value| policy.get("module").and_then(Value::as_str).is_some_and(|module| module.contains(MODULE));
    if matches!(text("/kind"), "ClusterAdmissionPolicy" | "AdmissionPolicy") {
        let policy = document.get("spec").filter(|policy| is_ours(policy));
        return policy.map(|policy| (text("/metadata/name").to_owned(), settings(policy))).into_iter().collect();
    }
    let Some(entries) = document.as_object() else { return Vec::new() };
    // A policies.yml in a ConfigMap.
    if text("/kind") == "ConfigMap" {
        let files = document.get("data").and_then(Value::as_object).into_iter().flatten();
        let documents = files.filter_map(|(file, text)| documents::parse(file, text.as_str()?).ok()).flatten();
        return documents.flat_map(|document| settings_in(&document.value)).collect();
    }
    if document.get("kind").is_some() {
        return Vec::new();
    }
    if entries.values().any(|policy| policy.get("module").is_some()) {
        let policies = entries.iter().filter(|(_, policy)| is_ours(policy));
        return policies.map(|(name, policy)| (name.clone(), settings(policy))).collect();
    }
    vec![("the file".to_owned(), document.clone())]
}
