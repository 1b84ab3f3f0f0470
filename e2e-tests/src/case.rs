//! The corpus of cases: a folder each, `cases/<stage>/<behaviour>/`.
//!
//! | file | holds |
//! |---|---|
//! | `request.yaml` | the AdmissionRequest; or `from: FILE` with an AdmissionReview; or `manifest: FILE` or `object`, which is created with the `state` that was fed. Files are below `testdata/` |
//! | `settings.yaml` | the settings, if any; or `from: FILE`, below the project, and `at: POINTER` in it |
//! | `host.yaml` | what lookups find: `objects`, or what the host answers instead: `error`, `garbage` |
//! | `expected.yaml` | the answer |
//!
//! A case that comes from a public report has a `report.json` in place of the first three: the report's `source`, the input, and
//! what is wanted and `why`. That is held against the answer besides.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::host::Host;
use crate::policy::{Answer, Policy};
use crate::project;

/// One case.
pub struct Case {
    /// `<stage>/<behaviour>`.
    pub name: String,
    folder: PathBuf,
    /// The AdmissionRequest.
    pub request: Value,
    /// The settings.
    pub settings: Value,
    host: HostFile,
    report: Option<Report>,
}

/// A case that comes from a public report.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    /// Where it was reported, and what.
    #[serde(rename = "source")]
    _source: String,
    #[serde(default, rename = "title")]
    _title: String,
    #[serde(default, rename = "stage")]
    _stage: String,
    /// `validate` or `validate_settings`.
    function: String,
    #[serde(default)]
    request: Value,
    settings: Value,
    #[serde(default)]
    objects: Vec<Value>,
    want: Want,
    /// Why that is wanted.
    #[serde(rename = "why")]
    _why: String,
}

/// What a report wants.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct Want {
    /// Whether the request passes.
    allowed: Option<bool>,
    /// Whether the settings are valid.
    valid: Option<bool>,
    /// A part of the message.
    message_has: Option<String>,
    /// A part of some warning.
    warning_has: Option<String>,
    /// A part of no warning.
    no_warning_has: Option<String>,
    /// Values in the resulting object, by JSON pointer.
    fields: BTreeMap<String, Value>,
    /// The same, each one of several.
    fields_any: BTreeMap<String, Vec<Value>>,
    /// What is not in the resulting object.
    absent: Vec<String>,
    /// That the object stays as it came.
    unchanged: bool,
}

impl Want {
    fn check(&self, answer: &Answer, object: &Value) -> Result<()> {
        let message = answer.message.as_deref().unwrap_or_default();
        ensure!(
            self.allowed.is_none_or(|allowed| allowed == answer.accepted),
            "accepted is {}: {message}",
            answer.accepted
        );
        ensure!(message.contains(self.message_has.as_deref().unwrap_or_default()), "the message is {message:?}");
        let has = |part: &str| answer.warnings().iter().any(|warning| warning.contains(part));
        ensure!(self.warning_has.as_deref().is_none_or(has), "warnings are {:?}", answer.warnings());
        ensure!(!self.no_warning_has.as_deref().is_some_and(has), "warnings are {:?}", answer.warnings());
        ensure!(!self.unchanged || answer.mutated_object.is_none(), "the object is changed: {}", answer.patch(object));
        if !answer.accepted {
            return Ok(());
        }
        let result = answer.apply(object)?;
        for (path, value) in &self.fields {
            ensure!(result.pointer(path) == Some(value), "{path} is {:?}", result.pointer(path));
        }
        for (path, values) in &self.fields_any {
            ensure!(
                result.pointer(path).is_some_and(|value| values.contains(value)),
                "{path} is {:?}",
                result.pointer(path)
            );
        }
        for path in &self.absent {
            ensure!(result.pointer(path).is_none(), "{path} is {:?}", result.pointer(path));
        }
        Ok(())
    }
}

#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostFile {
    objects: Vec<Value>,
    error: Option<String>,
    garbage: Option<String>,
}

/// The answer to a case: all of it.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Expected {
    accepted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// How the object differs from the request's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patch: Vec<serde_yaml_ng::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit_annotations: Option<std::collections::BTreeMap<String, String>>,
    /// How many lookups the policy made.
    #[serde(default)]
    lookups: usize,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

/// All cases, by name.
///
/// # Errors
/// A file of one can't be read; the error says which.
pub fn all() -> Result<Vec<Case>> {
    let root = project("e2e-tests/cases");
    let mut cases = Vec::new();
    for stage in folders(&root)? {
        for folder in folders(&stage)? {
            let name = folder.strip_prefix(&root)?.display().to_string();
            cases.push(Case::read(name.clone(), folder).with_context(|| name)?);
        }
    }
    Ok(cases)
}

fn folders(parent: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(parent)?.collect::<std::io::Result<Vec<_>>>()?;
    let mut folders: Vec<PathBuf> =
        entries.into_iter().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

/// The CREATE of a manifest as Karmada's execution controller sends it, with the state that `feed` wrote.
///
/// # Errors
/// The manifest is not an object.
pub fn create(mut manifest: Value, state: &Value) -> Result<Value> {
    let text = |path: &str| manifest.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    let api_version = text("/apiVersion");
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let (kind, namespace, name) = (text("/kind"), text("/metadata/namespace"), text("/metadata/name"));
    let fields = manifest.as_object_mut().context("the manifest is not an object")?;
    fields.remove("status");
    if state.is_object() {
        if manifest["metadata"]["annotations"].is_null() {
            manifest["metadata"]["annotations"] = serde_json::json!({});
        }
        manifest["metadata"]["annotations"]["stateful-failover/state"] = Value::from(state.to_string());
    }
    Ok(serde_json::json!({
        "kind": {"group": group, "version": version, "kind": kind},
        "namespace": namespace, "name": name, "operation": "CREATE", "object": manifest,
    }))
}

fn read_yaml<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    serde_yaml_ng::from_str(&text).map(Some).with_context(|| path.display().to_string())
}

fn read_settings(folder: &Path) -> Result<Option<Value>> {
    let settings: Option<Value> = read_yaml(&folder.join("settings.yaml"))?;
    match settings.as_ref().and_then(|settings| settings.get("from")).and_then(Value::as_str) {
        Some(from) => {
            let file: Value = read_yaml(&project(from))?.context("there are no such settings")?;
            let at = settings.as_ref().and_then(|settings| settings.get("at")).and_then(Value::as_str);
            Ok(Some(file.pointer(at.unwrap_or_default()).context("there are no settings at that place")?.clone()))
        }
        None => Ok(settings),
    }
}

impl Case {
    fn read(name: String, folder: PathBuf) -> Result<Self> {
        if let Some(mut report) = read_yaml::<Report>(&folder.join("report.json"))? {
            let host = HostFile { objects: std::mem::take(&mut report.objects), ..HostFile::default() };
            let request = std::mem::take(&mut report.request);
            let settings = read_settings(&folder)?.unwrap_or_else(|| std::mem::take(&mut report.settings));
            return Ok(Self { name, folder, request, settings, host, report: Some(report) });
        }
        let mut request: Value = read_yaml(&folder.join("request.yaml"))?.context("there is no request.yaml")?;
        if let Some(manifest) = request.get("object").filter(|_| request.get("operation").is_none()) {
            request = create(manifest.clone(), &request["state"])?;
        } else if let Some(from) = request.get("from").and_then(Value::as_str) {
            let review: Value = serde_json::from_str(&fs::read_to_string(project("testdata").join(from))?)?;
            request = review["request"].clone();
        } else if let Some(manifest) = request.get("manifest").and_then(Value::as_str) {
            let manifest = read_yaml(&project("testdata").join(manifest))?.context("there is no such manifest")?;
            request = create(manifest, &request["state"])?;
        }
        let settings = read_settings(&folder)?;
        ensure!(settings.is_some() || !name.starts_with("restore/"), "without settings there is nothing to restore");
        let settings = settings.unwrap_or_default();
        let host = read_yaml(&folder.join("host.yaml"))?.unwrap_or_default();
        Ok(Self { name, folder, request, settings, host, report: None })
    }

    /// What lookups find.
    pub fn objects(&self) -> &[Value] {
        &self.host.objects
    }

    fn host(&self) -> Arc<Host> {
        let HostFile { objects, error, garbage } = self.host.clone();
        let mut host = Host::new(objects);
        host.error = error;
        host.garbage = garbage;
        Arc::new(host)
    }

    /// Runs the case: the answer must be the expected one, and what it makes of the object must be accepted as it is.
    /// With `UPDATE_CASES` in the environment, the answer becomes the expected one, to be reviewed like code.
    ///
    /// # Errors
    /// The answers differ.
    pub fn run(&self, policy: &dyn Policy) -> Result<()> {
        let host = self.host();
        if let Some(report) = self.report.as_ref().filter(|report| report.function == "validate_settings") {
            let message = policy.validate_settings(&self.settings)?;
            ensure!(report.want.valid == Some(message.is_none()), "{message:?}");
            let message = message.unwrap_or_default();
            ensure!(
                message.contains(report.want.message_has.as_deref().unwrap_or_default()),
                "the message is {message:?}"
            );
            return Ok(());
        }
        let answer = policy.validate(&self.request, &self.settings, &host)?;
        answer.check_messages()?;
        if let Some(report) = &self.report {
            report.want.check(&answer, &self.request["object"])?;
        }
        let object = self.request.get("object").cloned().unwrap_or_default();
        let actual = Expected::of(&answer, &object, &host)?;
        let path = self.folder.join("expected.yaml");
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, serde_yaml_ng::to_string(&actual)?)?;
        }
        let expected: Expected = read_yaml(&path)?.context("there is no expected.yaml")?;
        ensure!(
            actual == expected,
            "the answer is\n{}expected\n{}",
            serde_yaml_ng::to_string(&actual)?,
            serde_yaml_ng::to_string(&expected)?
        );
        if answer.accepted {
            let mut again = self.request.clone();
            again["object"] = answer.apply(&object)?;
            let second = policy.validate(&again, &self.settings, &self.host())?;
            ensure!(second.accepted && second.mutated_object.is_none(), "not idempotent: {second:?}");
        }
        Ok(())
    }
}

impl Expected {
    fn of(answer: &Answer, object: &Value, host: &Host) -> Result<Self> {
        // By way of text, of which every JSON is YAML: the two libraries hold numbers in different ways.
        let patch: serde_yaml_ng::Value = serde_yaml_ng::from_str(&serde_json::to_string(&answer.patch(object))?)?;
        Ok(Self {
            accepted: answer.accepted,
            message: answer.message.clone(),
            patch: patch.as_sequence().cloned().unwrap_or_default(),
            warnings: answer.warnings().to_vec(),
            audit_annotations: answer.audit_annotations.clone(),
            lookups: host.lookups().len(),
            log: host.log(),
        })
    }
}
