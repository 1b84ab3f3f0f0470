//! Prints the module's answer to every recorded request, case, AdmissionReview and manifest, one evaluation a line. The
//! tests of the playground compare the browser's answers with it: `{"request", "settings", "objects", "answer":
//! {"allowed", "message", "code", "object", "warnings", "auditAnnotations"}}`, everything but the answer is text, and
//! so is the object in the answer.

use std::io::Write as _;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use e2e_tests::host::Host;
use e2e_tests::policy::{Answer, Module, Policy};
use e2e_tests::replay::{Replay, Sides};
use e2e_tests::{case, project, recording, request};
use serde::de::IgnoredAny;
use serde_json::{Value, json};

/// The module, with a record of its answers.
struct Written {
    lines: Mutex<Vec<String>>,
}

impl Policy for Written {
    fn name(&self) -> &'static str {
        "module"
    }

    fn validate(&self, request: &Value, settings: &Value, host: &Arc<Host>) -> Result<Answer> {
        let payload = json!({"request": request, "settings": settings}).to_string();
        let response = String::from_utf8(Module::built().call("validate", payload.as_bytes(), host)?)?;
        let answer: Answer = serde_json::from_str(&response)?;
        // The browser's lookups never fail.
        if host.fixed.is_none() {
            let objects: Vec<&Value> = host.objects.iter().filter(|object| host.was_looked_up(object)).collect();
            let line = json!({
                "request": request.to_string(),
                "settings": settings.to_string(),
                "objects": serde_json::to_string(&objects)?,
                "answer": {
                    "allowed": answer.accepted,
                    "message": answer.message,
                    "code": answer.code,
                    "object": answer.mutated_object.as_ref().and_then(|_| object_text(&response)),
                    "warnings": answer.warnings(),
                    "auditAnnotations": answer.audit_annotations.clone().unwrap_or_default(),
                },
            });
            self.lines.lock().map_err(|_| anyhow::anyhow!("an evaluation panicked"))?.push(line.to_string());
        }
        Ok(answer)
    }

    fn validate_settings(&self, settings: &Value) -> Result<Option<String>> {
        Module::built().validate_settings(settings)
    }
}

/// The text of the object in the module's response.
fn object_text(response: &str) -> Option<&str> {
    // Quotes within strings are escaped, so this is the key.
    let (_, object) = response.split_once("\"mutated_object\":")?;
    let mut values = serde_json::Deserializer::from_str(object).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    object.get(..values.byte_offset())
}

fn main() -> Result<()> {
    let policy = Written { lines: Mutex::default() };
    let flink: Value = read_yaml("examples/flinkdeployment/settings.yaml")?;
    for file in files("testdata/recordings", "jsonl")? {
        let recording = recording::read(&file)?;
        for sides in [Sides::control_plane(flink.clone()), Sides::members(flink.clone())] {
            Replay::run(&policy, &sides, &recording)?;
        }
    }
    for case in case::all()? {
        case.run(&policy).with_context(|| case.name.clone())?;
    }
    for file in files("testdata/reviews", "json")? {
        let review: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        policy.validate(&review["request"], &flink, &Arc::default())?;
    }
    for file in files("testdata/manifests", "yaml")? {
        let manifest: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(&file)?)?;
        let request = request::create(manifest, &Value::Null)?;
        for example in std::fs::read_dir(project("examples"))? {
            let settings = example?.path().join("settings.yaml");
            if settings.exists() {
                let settings: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(settings)?)?;
                policy.validate(&request, &settings, &Arc::default())?;
            }
        }
    }
    let mut out = std::io::stdout().lock();
    for line in policy.lines.lock().map_err(|_| anyhow::anyhow!("an evaluation panicked"))?.iter() {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

fn read_yaml(path: &str) -> Result<Value> {
    Ok(serde_yaml_ng::from_str(&std::fs::read_to_string(project(path))?)?)
}

fn files(folder: &str, extension: &str) -> Result<Vec<std::path::PathBuf>> {
    let entries = std::fs::read_dir(project(folder))?.collect::<std::io::Result<Vec<_>>>()?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|found| found == extension));
    files.sort();
    Ok(files)
}
