//! The corpus of cases: one folder for each, `cases/<stage>/<behaviour>/`. The README there explains the files.

mod report;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::report::{Function, Report, Want};
use crate::host::Host;
use crate::policy::{Answer, Policy, check_message};
use crate::{project, request};

/// One case.
pub struct Case {
    /// `<stage>/<behaviour>`.
    pub name: String,
    folder: PathBuf,
    /// The AdmissionRequest; `None` for a case that is only about settings.
    pub request: Option<Value>,
    /// The settings.
    pub settings: Value,
    host: HostFile,
    want: Option<Want>,
}

/// `host.yaml`.
#[derive(Debug, Default, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HostFile {
    objects: Vec<Value>,
    error: Option<String>,
    answer: Option<String>,
}

/// `expected.yaml` of a request: the whole answer, and the policy's lookups and log.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Expected {
    accepted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    /// The JSON patch from the request's object to the answer's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    patch: Vec<serde_yaml_ng::Value>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    audit_annotations: Option<BTreeMap<String, String>>,
    /// The policy's lookups, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    lookups: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<String>,
}

/// `expected.yaml` of settings.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectedOfSettings {
    valid: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

/// All cases, by name.
///
/// # Errors
/// A file of a case can't be read. The error names it.
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

fn read_yaml<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(path)?;
    serde_yaml_ng::from_str(&text).map(Some).with_context(|| path.display().to_string())
}

/// `request.yaml`: an AdmissionRequest, or one of its short forms.
fn read_request(folder: &Path) -> Result<Option<Value>> {
    let Some(mut file) = read_yaml::<Value>(&folder.join("request.yaml"))? else { return Ok(None) };
    let of_testdata = |path: Value| -> Result<Value> {
        let path = project("testdata").join(path.as_str().context("the name of a file is not a string")?);
        read_yaml(&path)?.with_context(|| format!("{} does not exist", path.display()))
    };
    if file.get("operation").is_some() {
        return Ok(Some(file));
    }
    let mut take = |key: &str| file.as_object_mut().and_then(|fields| fields.remove(key));
    if let Some(review) = take("from") {
        let mut request = of_testdata(review)?["request"].take();
        json_patch::merge(&mut request, &file);
        return Ok(Some(request));
    }
    let object = take("manifest").map(of_testdata).transpose()?.or_else(|| take("object"));
    let (old, state, merge_patch) = (take("oldObject"), take("state").unwrap_or_default(), take("mergePatch"));
    ensure!(file == json!({}), "request.yaml has unknown keys: {file}");
    let mut request = match (object, old) {
        (Some(object), None) => request::create(object, &state)?,
        (Some(object), Some(old)) => request::write(&object, &old),
        (None, Some(old)) => request::write(&old, &old),
        (None, None) => bail!("request.yaml has none of `operation`, `from`, `manifest`, `object` and `oldObject`"),
    };
    if let Some(merge_patch) = merge_patch {
        json_patch::merge(&mut request["object"], &merge_patch);
    }
    Ok(Some(request))
}

/// `settings.yaml`: the settings, or a reference to a file.
fn read_settings(folder: &Path) -> Result<Option<Value>> {
    let Some(settings) = read_yaml::<Value>(&folder.join("settings.yaml"))? else { return Ok(None) };
    let Some(from) = settings.get("from").and_then(Value::as_str) else { return Ok(Some(settings)) };
    let file: Value = read_yaml(&project(from))?.with_context(|| format!("{from} does not exist"))?;
    let at = settings.get("at").and_then(Value::as_str).unwrap_or_default();
    Ok(Some(file.pointer(at).with_context(|| format!("{from} has nothing at {at}"))?.clone()))
}

impl Case {
    fn read(name: String, folder: PathBuf) -> Result<Self> {
        let settings = read_settings(&folder)?;
        if let Some(report) = read_yaml::<Report>(&folder.join("report.json"))? {
            let Report { function, request, settings: reported, objects, want, .. } = report;
            let request = Some(request).filter(|_| function == Function::Validate);
            let host = HostFile { objects, ..HostFile::default() };
            return Ok(Self { name, folder, request, settings: settings.unwrap_or(reported), host, want: Some(want) });
        }
        let request = read_request(&folder)?;
        ensure!(settings.is_some() || request.is_some(), "the folder has neither request.yaml nor settings.yaml");
        ensure!(settings.is_some() || !name.starts_with("restore/"), "without settings there is nothing to restore");
        let host = read_yaml(&folder.join("host.yaml"))?.unwrap_or_default();
        Ok(Self { name, folder, request, settings: settings.unwrap_or_default(), host, want: None })
    }

    /// The host, which has answered nothing yet.
    pub fn host(&self) -> Host {
        let HostFile { objects, error, answer } = self.host.clone();
        match error.map(Err).or(answer.map(Ok)) {
            Some(answer) => Host::fixed(answer),
            None => Host::new(objects),
        }
    }

    /// Runs the case: the answer must be the expected one, and idempotent. With `UPDATE_CASES` in the environment, the
    /// answer is written to `expected.yaml`, to be reviewed like code.
    ///
    /// # Errors
    /// The answers differ.
    pub fn run(&self, policy: &dyn Policy) -> Result<()> {
        match &self.request {
            Some(request) => self.run_request(policy, request),
            None => self.run_settings(policy),
        }
    }

    /// The answer to a request, with the case's settings and lookups.
    ///
    /// # Errors
    /// The policy trapped.
    pub fn answer(&self, policy: &dyn Policy, request: &Value) -> Result<Answer> {
        policy.validate(request, &self.settings, &Arc::new(self.host()))
    }

    fn run_request(&self, policy: &dyn Policy, request: &Value) -> Result<()> {
        let host = Arc::new(self.host());
        let answer = policy.validate(request, &self.settings, &host)?;
        answer.check_messages()?;
        let object = request.get("object").cloned().unwrap_or_default();
        if let Some(want) = &self.want {
            want.check(&answer, &object)?;
        }
        self.compare(&Expected::of(&answer, &object, &host)?)?;
        if answer.accepted {
            let mut again = request.clone();
            again["object"] = answer.apply(&object)?;
            let second = self.answer(policy, &again)?;
            ensure!(second.accepted && second.mutated_object.is_none(), "not idempotent: {second:?}");
        }
        Ok(())
    }

    fn run_settings(&self, policy: &dyn Policy) -> Result<()> {
        let message = policy.validate_settings(&self.settings)?;
        if let Some(message) = &message {
            check_message(message)?;
        }
        if let Some(want) = &self.want {
            want.check_settings(message.as_deref())?;
        }
        self.compare(&ExpectedOfSettings { valid: message.is_none(), message })
    }

    /// Compares the answer with `expected.yaml`, or writes it there.
    fn compare<T: PartialEq + Serialize + DeserializeOwned>(&self, actual: &T) -> Result<()> {
        let path = self.folder.join("expected.yaml");
        let text = serde_yaml_ng::to_string(actual)?;
        if std::env::var_os("UPDATE_CASES").is_some() {
            fs::write(&path, &text)?;
        }
        let expected: T = read_yaml(&path)?.context("there is no expected.yaml")?;
        ensure!(*actual == expected, "the answer is\n{text}expected\n{}", serde_yaml_ng::to_string(&expected)?);
        Ok(())
    }
}

impl Expected {
    fn of(answer: &Answer, object: &Value, host: &Host) -> Result<Self> {
        // Converted by way of text (all JSON is YAML), since the two libraries represent numbers in different ways.
        let patch: serde_yaml_ng::Value = serde_yaml_ng::from_str(&serde_json::to_string(&answer.patch(object))?)?;
        Ok(Self {
            accepted: answer.accepted,
            message: answer.message.clone(),
            patch: patch.as_sequence().cloned().unwrap_or_default(),
            warnings: answer.warnings().to_vec(),
            audit_annotations: answer.audit_annotations.clone(),
            lookups: host.lookups().iter().map(ToString::to_string).collect(),
            log: host.log(),
        })
    }
}
