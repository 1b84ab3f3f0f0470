//! Replays a recorded failover through the module and shows what happens to the state.
//!
//! Usage: `demo [--recording FILE] [--settings FILE] [--member-settings FILE]`; fails if the state did not arrive.
//! `--settings` are those at the Karmada control plane. Member clusters run no policy unless `--member-settings` are
//! given.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use e2e_tests::policy::Module;
use e2e_tests::project;
use e2e_tests::recording::{Key, read};
use e2e_tests::replay::{Replay, Sides, Step};
use serde_json::Value;
use stateful_failover::history::{History, Record};
use stateful_failover::metadata::annotation;
use stateful_failover::restore::path::Path;
use stateful_failover::restore::record::RECORD_ANNOTATION;
use stateful_failover::state::STATE_ANNOTATION;

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse()?;
    let paint = Paint { is_on: std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() };
    let sides = Sides {
        control_plane: read_settings(&arguments.settings)?,
        members: arguments.member_settings.as_deref().map(read_settings).transpose()?,
    };
    let recording = read(&arguments.recording)?;

    let members = arguments.member_settings.as_deref().map_or("no policy".to_owned(), shown);
    println!("{} replayed through policy.wasm", shown(&arguments.recording));
    println!("settings at the control plane: {}; in the members: {members}\n", shown(&arguments.settings));
    let (replay, steps) = Replay::run(Module::built(), &sides, &recording)?;
    for step in &steps {
        print!("{}", describe(step, paint));
    }
    for (key, object) in replay.objects().filter(|(key, _)| key.kind.ends_with("ResourceBinding")) {
        print!("{}", history_table(key, object)?);
    }
    let has_rules = [Some(&sides.control_plane), sides.members.as_ref()].into_iter().flatten().any(|settings| {
        settings.pointer("/restore/rules").and_then(Value::as_array).is_some_and(|rules| !rules.is_empty())
    });
    let arrivals = arrivals(&replay, &steps, has_rules);
    println!("\nHow the state travelled:");
    for arrival in &arrivals {
        println!("  {}", paint.green(arrival));
    }
    if arrivals.is_empty() {
        println!("  {}", paint.red("no state arrived in any member cluster"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

fn read_settings(path: &std::path::Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_yaml_ng::from_str(&text).with_context(|| path.display().to_string())
}

struct Arguments {
    recording: PathBuf,
    settings: PathBuf,
    member_settings: Option<PathBuf>,
}

impl Arguments {
    fn parse() -> Result<Self> {
        let mut parsed = Self {
            recording: project("testdata/recordings/application-failover.jsonl"),
            settings: project("examples/flinkdeployment/settings.yaml"),
            member_settings: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            let target = match name.as_str() {
                "--recording" => &mut parsed.recording,
                "--settings" => &mut parsed.settings,
                "--member-settings" => parsed.member_settings.get_or_insert_default(),
                other => bail!(
                    "unknown argument `{other}`; usage: demo [--recording FILE] [--settings FILE] [--member-settings FILE]"
                ),
            };
            *target = arguments.next().with_context(|| format!("`{name}` needs a file"))?.into();
        }
        Ok(parsed)
    }
}

fn shown(path: &std::path::Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |name| name.to_string_lossy().into_owned())
}

#[derive(Clone, Copy)]
struct Paint {
    is_on: bool,
}

impl Paint {
    fn paint(self, code: &str, text: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn red(self, text: &str) -> String {
        self.paint("31", text)
    }

    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// One line for the request, and below it the patch and the warnings.
fn describe(step: &Step, paint: Paint) -> String {
    let Key { apiserver, kind, name, .. } = &step.key;
    let operation = step.request["operation"].as_str().unwrap_or_default();
    let patch = step.answer.patch(&step.request["object"]);
    let verdict = match (step.answer.accepted, patch.is_empty()) {
        (false, _) => paint.red("denied "),
        (true, true) => paint.dim("accept "),
        (true, false) => paint.green("mutate "),
    };
    let done = step.answer.audit_annotations.iter().flatten().map(|(stage, done)| format!("{stage}: {done}"));
    let conflict = if step.is_stored || !step.answer.accepted { "" } else { " (met a conflict, comes again)" };
    let done = done.collect::<Vec<_>>().join("; ") + conflict;
    let mut text = format!("{:>3}  {apiserver:<8} {operation:<7} {kind:<18} {name:<32} {verdict} {done}\n", step.index);
    if step.is_stored {
        for operation in patch.iter() {
            let operation = serde_json::to_string(operation).unwrap_or_default();
            let _ = writeln!(text, "       {}", paint.dim(&operation));
        }
    }
    for warning in step.answer.warnings() {
        let _ = writeln!(text, "       {}", paint.paint("33", &format!("Warning: {warning}")));
    }
    if let Some(message) = &step.answer.message {
        let _ = writeln!(text, "       {}", paint.red(message));
    }
    text
}

/// The failover history of a binding in readable form.
fn history_table(key: &Key, binding: &Value) -> Result<String> {
    let history = History::read(binding)?;
    if history.records().is_empty() {
        return Ok(String::new());
    }
    let row = |cells: [&str; 6]| {
        let [time, kind, from, to, phase, state] = cells;
        format!("  {time:<20}  {kind:<11}  {from:<9}  {to:<9}  {phase:<10}  {state}\n")
    };
    let mut table = format!("\nFailover history of {} {}:\n", key.kind, key.name);
    table += &row(["TIME", "TYPE", "FROM", "TO", "PHASE", "STATE"]);
    for record in history.records() {
        let phase = format!("{:?}", record.phase);
        let time = record.time.as_deref().unwrap_or("-");
        table += &row([time, record.move_type.as_str(), &record.from, &record.to.join(","), &phase, &state(record)]);
    }
    Ok(table)
}

fn state(record: &Record) -> String {
    let mut parts: Vec<String> = record.state.iter().map(|(alias, value)| format!("{alias}={value}")).collect();
    parts.extend(record.missing.keys().map(|alias| format!("{alias} missing")));
    parts.extend(record.carried_from.iter().map(|from| format!("(carried over from {from})")));
    parts.join(" ")
}

/// For each value of a fed state: where it was read, and where it arrived. With restore rules, it must arrive in a
/// field; without, in the label that another policy in the member reads.
fn arrivals(replay: &Replay<'_>, steps: &[Step], has_rules: bool) -> Vec<String> {
    let mut arrivals = Vec::new();
    for (key, object) in replay.objects().filter(|(key, _)| key.apiserver != "karmada") {
        let Some(state) =
            annotation(object, STATE_ANNOTATION).and_then(|text| serde_json::from_str::<Value>(text).ok())
        else {
            continue;
        };
        for (alias, value) in state.as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default();
            let Some((from, path)) = source(steps, value) else { continue };
            let fields = restored(object, value);
            let Key { apiserver, kind, name, .. } = key;
            let ends = if fields.is_empty() && !has_rules { vec![format!("label {alias}")] } else { fields };
            let in_work = work_of(replay, object).map(|manifest| restored(manifest, value)).unwrap_or_default();
            for end in ends {
                let work = if in_work.contains(&end) { "Work, where the rule is applied" } else { "Work" };
                arrivals.push(format!("{from} {path} = {value}"));
                arrivals.push(format!("  -> task in the binding -> {work} -> {end} of {kind} {name} in {apiserver}"));
            }
        }
    }
    arrivals
}

/// The manifest in the Work that an object in a member cluster came from.
fn work_of<'a>(replay: &'a Replay<'_>, object: &Value) -> Option<&'a Value> {
    let key = |name| annotation(object, name);
    let work = replay.object("karmada", "Work", key("work.karmada.io/namespace")?, key("work.karmada.io/name")?)?;
    work.pointer("/spec/workload/manifests/0")
}

/// The cluster and the field of the status that had a value.
fn source(steps: &[Step], value: &str) -> Option<(String, String)> {
    steps.iter().rev().find_map(|step| {
        let items = step.request.pointer("/oldObject/status/aggregatedStatus")?.as_array()?;
        items.iter().find_map(|item| {
            let path = find(&item["status"], value, ".status")?;
            Some((item["clusterName"].as_str()?.to_owned(), path))
        })
    })
}

fn find(value: &Value, wanted: &str, path: &str) -> Option<String> {
    match value {
        Value::Object(fields) => fields.iter().find_map(|(key, value)| find(value, wanted, &format!("{path}.{key}"))),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(index, value)| find(value, wanted, &format!("{path}[{index}]")))
        }
        Value::String(text) => (text == wanted).then(|| path.to_owned()),
        Value::Number(number) => (number.to_string() == wanted).then(|| path.to_owned()),
        _ => None,
    }
}

/// The fields into which restore wrote the value, and which still have it.
fn restored(object: &Value, value: &str) -> Vec<String> {
    let record = annotation(object, RECORD_ANNOTATION).and_then(|text| serde_json::from_str::<Value>(text).ok());
    let changes =
        record.iter().flat_map(|record| record.as_object()).flatten().filter_map(|(_, changes)| changes.as_object());
    changes
        .flatten()
        .filter(|(path, change)| Path::parse(path).is_ok_and(|path| path.first(object) == Ok(change.get("set"))))
        .filter_map(|(path, change)| {
            let set = change["set"].as_str().filter(|set| set.contains(value))?;
            Some(format!("{} = {set}", path.trim_start_matches('/').replace('/', ".")))
        })
        .collect()
}
