//! The examples, each from the status in the failed cluster to the manifest that the next cluster gets.

use std::fs;

use e2e_tests::host::Host;
use e2e_tests::project;
use serde_json::{Map, Value, json};
use stateful_failover::Settings;
use stateful_failover::interpreted_kinds::Interpretation;
use stateful_failover::karmada::FailoverType;
use stateful_failover::rehearsal::scenario::Scenario;
use stateful_failover::rehearsal::{Rehearsal, binding_of};

use crate::interpreter::{self, Customization, Health};
use crate::rehearsal::play;

/// A folder of examples/.
struct Example {
    name: String,
    settings: Value,
    propagation_policy: Value,
    /// The template in Karmada.
    workload: Value,
    /// The workload as it is in the failed cluster.
    failed: Value,
    /// The customization in deploy/interpreters, if its settings say that it is there.
    customization: Option<Customization>,
    objects: Vec<Value>,
}

fn yaml(path: &str) -> Value {
    let text = fs::read_to_string(project(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn examples() -> Vec<Example> {
    let customizations = interpreter::all().unwrap();
    let mut folders: Vec<_> = fs::read_dir(project("examples")).unwrap().map(Result::unwrap).collect();
    folders.retain(|entry| entry.path().is_dir());
    folders.sort_by_key(fs::DirEntry::file_name);
    let read = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().unwrap();
        let file = |file: &str| yaml(&format!("examples/{name}/{file}.yaml"));
        let (settings, workload, status) = (file("settings"), file("workload"), file("status"));
        let mut failed = workload.clone();
        failed["status"] = status["status"].clone();
        failed["metadata"]["uid"] = status["metadata"]["uid"].clone();
        let annotations = failed["metadata"].as_object_mut().unwrap().entry("annotations").or_insert(json!({}));
        annotations
            .as_object_mut()
            .unwrap()
            .extend(status["metadata"]["annotations"].as_object().cloned().unwrap_or_default());
        let kinds = settings["lintKinds"].as_array().cloned().unwrap_or_default();
        let is_listed = |customization: &&Customization| {
            let kind = json!({"apiVersion": customization.api_version, "kind": customization.kind});
            customization.is_for(&workload) && kinds.contains(&kind)
        };
        let customization = customizations.iter().find(is_listed).cloned();
        let config_map = format!("examples/{name}/latest-checkpoints.yaml");
        let objects = project(&config_map).exists().then(|| yaml(&config_map)).into_iter().collect();
        let propagation_policy = file("propagationpolicy");
        Example { settings, propagation_policy, failed, customization, objects, workload, name }
    };
    folders.into_iter().map(read).collect()
}

impl Example {
    fn text(&self, pointer: &str) -> &str {
        self.workload.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn interpretation(&self) -> Interpretation<'static> {
        Interpretation::of(self.text("/apiVersion"), self.text("/kind"), &[])
    }

    /// The failover that the example is about.
    fn failover(&self) -> &'static str {
        if self.moves_when_unhealthy() { "application" } else { "cluster" }
    }

    fn rules(&self, failover: &str) -> &Vec<Value> {
        self.propagation_policy["spec"]["failover"][failover]["statePreservation"]["rules"].as_array().unwrap()
    }

    fn moves_when_unhealthy(&self) -> bool {
        self.propagation_policy["spec"]["failover"].get("application").is_some()
    }

    /// What Karmada reflects without a customization.
    fn reflected_by_karmada(&self) -> Value {
        let known = self.interpretation();
        let fields = self.failed["status"].as_object().unwrap();
        let fields: Map<String, Value> =
            fields.iter().filter(|(field, _)| known.reflects(field)).map(|(k, v)| (k.clone(), v.clone())).collect();
        Value::Object(fields)
    }

    fn reflected(&self) -> Value {
        let own = self.customization.as_ref().and_then(|customization| customization.reflect(&self.failed).unwrap());
        own.unwrap_or_else(|| self.reflected_by_karmada())
    }

    /// The stages from the eviction to the Work in the next cluster: its manifest, or why there is none.
    fn fail_over(&self, status: &Value, failover: &str) -> Result<Value, String> {
        let failover_type = match failover {
            "application" => FailoverType::Application,
            _ => FailoverType::Cluster,
        };
        let settings = Settings::from_json(&self.settings).unwrap();
        let host = Host::new(self.objects.clone());
        let host = &host;
        let binding = binding_of(&self.propagation_policy, &self.workload, &["member1"]);
        let mut rehearsal = Rehearsal::new(binding, self.workload.clone(), Some(&settings), &host, false);
        rehearsal.report("member1", "Unhealthy", Some(status));
        let moved = rehearsal
            .evict("member1", failover_type)
            .and_then(|()| rehearsal.schedule(&["member2"]))
            .and_then(|()| rehearsal.write_work("member2"));
        // A label can't hold every value; the annotation does.
        let warnings = rehearsal.steps().iter().flat_map(|step| &step.verdict.warnings);
        let losses: Vec<&String> =
            warnings.filter(|warning| !warning.ends_with("it is in the annotation only")).collect();
        match moved {
            Ok(()) if losses.is_empty() => Ok(rehearsal.manifest("member2").unwrap().clone()),
            Ok(()) => Err(format!("{losses:?}")),
            Err(stop) => Err(stop.to_string()),
        }
    }

    /// What the playground plays: the same, with the status as the cluster has it.
    fn scenario(&self) -> Scenario {
        let scenario = json!({
            "propagationPolicy": self.propagation_policy, "workload": self.workload, "cause": self.failover(),
            "status": {"metadata": self.failed["metadata"], "status": self.failed["status"]},
        });
        serde_json::from_value(scenario).unwrap()
    }
}
/// With `UPDATE_CASES` in the environment, what the next cluster gets is written to restored.yaml, to be reviewed like
/// code.
#[test]
fn every_example_is_a_chain() {
    let mut count = 0;
    for example in examples() {
        let name = &example.name;
        println!("{name}");
        for policy in e2e_tests::policy::all() {
            assert_eq!(policy.validate_settings(&example.settings).unwrap(), None, "{name}");
        }
        let policy = &example.propagation_policy;
        let selector = &policy["spec"]["resourceSelectors"][0];
        for (key, pointer) in [("apiVersion", "/apiVersion"), ("kind", "/kind"), ("name", "/metadata/name")] {
            assert_eq!(selector[key], example.text(pointer), "{name}");
        }

        // Karmada moves what it knows to be unhealthy.
        let own =
            example.customization.as_ref().and_then(|customization| customization.health(&example.failed).unwrap());
        if example.moves_when_unhealthy() {
            match own {
                Some(health) => assert_eq!(health, Health::Unhealthy, "{name}"),
                None => assert!(example.interpretation().has_health, "{name}"),
            }
        }
        let fail_over = |failover: &str| {
            let restored =
                example.fail_over(&example.reflected(), failover).unwrap_or_else(|error| panic!("{name}: {error}"));
            let annotations = &restored["metadata"]["annotations"];
            let state: Map<String, Value> =
                serde_json::from_str(annotations["stateful-failover/state"].as_str().unwrap()).unwrap();
            let rules = example.rules(failover).iter();
            let aliases: Vec<&str> = rules.map(|rule| rule["aliasLabelName"].as_str().unwrap()).collect();
            assert_eq!(state.keys().collect::<Vec<_>>(), aliases, "{name}");
            assert!(annotations["stateful-failover/restored"].is_string(), "{name}");
            restored
        };
        let restored = fail_over(example.failover());
        // Core and module; and the PropagationPolicy passes without a warning.
        let (outcome, warnings) = play(&example.scenario(), &example.settings, &example.objects);
        assert_eq!(warnings.iter().filter(|warning| warning.starts_with("spec.")).count(), 0, "{name}: {warnings:?}");
        assert_eq!(outcome.stop, None, "{name}");
        assert_eq!(outcome.started.as_ref(), Some(&restored), "{name}");
        // After the next sync it is still there.
        assert_eq!(outcome.synced.unwrap()["spec"], restored["spec"], "{name}");
        // A lost cluster moves every kind, and to the same fields.
        let mut after_lost_cluster = fail_over("cluster");
        if name != "flinkdeployment-failed" {
            after_lost_cluster["metadata"]["labels"]["stateful-failover/type"] =
                restored["metadata"]["labels"]["stateful-failover/type"].clone();
            assert_eq!(after_lost_cluster, restored, "{name}");
        }
        assert_eq!(after_lost_cluster["spec"], restored["spec"], "{name}");

        let path = project(&format!("examples/{name}/restored.yaml"));
        if std::env::var_os("UPDATE_CASES").is_some() {
            // By way of text: the two libraries hold numbers in different ways.
            let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&restored.to_string()).unwrap();
            let text = serde_yaml_ng::to_string(&value).unwrap();
            fs::write(&path, format!("# What the next cluster gets.\n{text}")).unwrap();
        }
        assert_eq!(restored, yaml(&format!("examples/{name}/restored.yaml")), "{name}");

        // What controllers in the member wrote into the object does not take away what was restored.
        if let Some(customization) = &example.customization
            && let Some(retained) = customization.retain(&restored, &example.failed).unwrap()
        {
            assert_eq!(retained["metadata"]["annotations"], restored["metadata"]["annotations"], "{name}");
        }
        count += 1;
    }
    assert_eq!(count, 27, "examples");
}

/// An example lists its customization where, and only where, its failover would not start, or would move nothing,
/// without.
#[test]
fn customizations_are_where_they_are_needed() {
    let (mut before, mut after) = (0, 0);
    for example in examples() {
        let name = &example.name;
        after += 1;
        let starts = example.interpretation().has_health || !example.moves_when_unhealthy();
        let arrives = example.fail_over(&example.reflected_by_karmada(), example.failover()).is_ok();
        before += usize::from(starts && arrives);
        if !starts || !arrives {
            assert!(example.customization.is_some(), "{name}: starts: {starts}, arrives: {arrives}");
        }
    }
    println!("{before} of {after} without a customization");
    assert!(before < after);
}

/// The table in examples/README.md is what the folders hold.
#[test]
fn the_table_of_kinds() {
    let text = fs::read_to_string(project("examples/README.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| ["))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let mut expected: Vec<[String; 3]> = examples()
        .iter()
        .map(|example| {
            let health = match (&example.customization, example.moves_when_unhealthy()) {
                (_, false) => "none".to_owned(),
                (Some(customization), _) if customization.has("healthInterpretation") => {
                    let file = &customization.file;
                    format!("[{file}](../deploy/interpreters/{file})")
                }
                _ => "Karmada".to_owned(),
            };
            let paths: Vec<String> = example
                .rules(example.failover())
                .iter()
                .map(|rule| format!("`{}`", rule["jsonPath"].as_str().unwrap()))
                .collect();
            [format!("[{0}]({0})", example.name), health, paths.join(", ")]
        })
        .collect();
    let mut actual: Vec<[String; 3]> = rows.iter().map(|row| [0, 2, 3].map(|index| row[index].to_owned())).collect();
    actual.sort();
    expected.sort();
    assert_eq!(actual, expected);
}

/// Each file that a user copies from an example is one that the tests know.
#[test]
fn nothing_else_is_in_the_folders() {
    for example in examples() {
        let mut files: Vec<String> = fs::read_dir(project(&format!("examples/{}", example.name)))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.retain(|file| file != "latest-checkpoints.yaml");
        files.sort();
        let expected = ["propagationpolicy.yaml", "restored.yaml", "settings.yaml", "status.yaml", "workload.yaml"];
        assert_eq!(files, expected, "{}", example.name);
    }
}
