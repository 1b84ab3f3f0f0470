//! Compares the model of Karmada's controllers with failovers that were recorded on real control planes.

use std::convert::Infallible;
use std::fs;

use e2e_tests::host::Host;
use e2e_tests::policy::{self, Module};
use e2e_tests::project;
use e2e_tests::recording::{Recorded, read};
use e2e_tests::replay::End;
use serde_json::{Map, Value, json};
use stateful_failover::Settings;
use stateful_failover::guest::respond;
use stateful_failover::rehearsal::injected_state;
use stateful_failover::rehearsal::scenario::{Outcome, Scenario};

use crate::recordings::{ALIAS, settings};

/// The scenario for each recording, and the cluster in which the recorded application was started last. The recordings
/// have two clusters; where the application is evicted from both, or ran in both, the model uses a third one.
const RECORDINGS: [(&str, &str, &str); 10] = [
    ("application-failover", r#"{"cause": "application"}"#, "member2"),
    ("application-failover-native", r#"{"cause": "application", "injection": true}"#, "member2"),
    ("application-failover-v1.12", r#"{"cause": "application"}"#, "member2"),
    ("cluster-failover", r#"{"cause": "cluster"}"#, "member2"),
    ("late-health", r#"{"cause": "application", "wayHome": true}"#, "member1"),
    ("move-and-back", r#"{"cause": "move", "wayHome": true}"#, "member1"),
    ("repeated-failover", r#"{"cause": "application", "secondFailover": true}"#, "member2"),
    ("siblings", r#"{"cause": "cluster"}"#, "member2"),
    ("two-clusters-native", r#"{"cause": "cluster", "twoClusters": true, "injection": true}"#, "member2"),
    ("unreachable-source", r#"{"cause": "cluster", "sourceUnreachable": true}"#, "member2"),
];

fn recording(name: &str) -> Vec<Recorded> {
    read(&project(&format!("testdata/recordings/{name}.jsonl"))).unwrap()
}

/// The object as the user wrote it, without the fields that Karmada and the API server add.
fn as_written(object: &Value) -> Value {
    let mut object = object.clone();
    object.as_object_mut().unwrap().remove("status");
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| matches!(key.as_str(), "name" | "namespace" | "labels" | "annotations"));
    for key in ["labels", "annotations"] {
        let Some(entries) = metadata.get_mut(key).and_then(Value::as_object_mut) else { continue };
        let is_added = |key: &str| key.contains("karmada.io/") || key.starts_with("kubectl.kubernetes.io/");
        entries.retain(|key, _| !is_added(key));
        if entries.is_empty() {
            metadata.remove(key);
        }
    }
    object
}

/// The scenario of a recording: its policy, its workload, and the statuses that its copies had when they left.
fn scenario_of(name: &str, switches: &str) -> Value {
    let recording = recording(name);
    let find = |is_it: &dyn Fn(&Recorded) -> bool| recording.iter().find(|recorded| is_it(recorded)).unwrap();
    let policy = find(&|recorded| recorded.text("/kind/kind") == "PropagationPolicy");
    let is_workload = |recorded: &Recorded| {
        recorded.apiserver == "member1" && matches!(recorded.text("/kind/kind"), "FlinkDeployment" | "Deployment")
    };
    let workload = find(&is_workload);
    let bindings = recording.iter().filter(|recorded| {
        recorded.text("/kind/kind") == "ResourceBinding"
            && recorded.request["object"]["spec"]["resource"]["kind"] == workload.request["kind"]["kind"]
    });
    let clusters = |binding: &Value| -> Vec<String> {
        let clusters = binding.pointer("/spec/clusters").and_then(Value::as_array);
        clusters.into_iter().flatten().map(|cluster| cluster["name"].as_str().unwrap().to_owned()).collect()
    };
    let mut statuses: Vec<Value> = Vec::new();
    let mut left = String::new();
    for request in bindings.map(|recorded| &recorded.request) {
        let now = clusters(&request["object"]);
        let gone = clusters(&request["oldObject"]).into_iter().find(|cluster| !now.contains(cluster));
        let Some(gone) = gone.filter(|gone| *gone != left) else { continue };
        let items = request["oldObject"]["status"]["aggregatedStatus"].as_array().unwrap();
        let item = items.iter().find(|item| item["clusterName"] == *gone).unwrap();
        statuses.push(json!({"status": item["status"]}));
        left = gone;
    }
    let mut scenario: Map<String, Value> = serde_json::from_str(switches).unwrap();
    scenario.insert("propagationPolicy".to_owned(), as_written(&policy.request["object"]));
    scenario.insert("workload".to_owned(), as_written(&workload.request["object"]));
    let mut statuses = statuses.into_iter();
    scenario.insert("status".to_owned(), statuses.next().unwrap());
    if let Some(next) = statuses.next() {
        scenario.insert("nextStatus".to_owned(), next);
    }
    Value::Object(scenario)
}

fn read_scenario(json: &Value) -> Scenario {
    serde_json::from_value(json.clone()).unwrap()
}

/// Rehearses with the native core, and compares each answer with the module's. Returns the warnings, too.
pub(crate) fn play(scenario: &Scenario, settings: &Value, objects: &[Value]) -> (Outcome, Vec<String>) {
    let mut warnings = Vec::new();
    let host = Host::new(objects.to_vec());
    let played = scenario.play(Some(&Settings::from_json(settings).unwrap()), &&host);
    for step in played.acts.into_iter().filter_map(|played| played.step) {
        let with_binding = || {
            let mut objects = objects.to_vec();
            objects.push(step.binding.clone());
            Host::new(objects)
        };
        let (answer, _) = policy::evaluate(&step.request, settings, with_binding);
        warnings.extend_from_slice(answer.warnings());
        let Ok(verdict) = step.verdict.try_map(|object| Ok::<_, Infallible>(object.to_string()));
        assert_eq!(answer, serde_json::from_slice(&respond(verdict).unwrap()).unwrap(), "{}", step.request);
    }
    (played.outcome, warnings)
}

fn karmada_alone(scenario: &Scenario) -> Outcome {
    scenario.play(None, &&Host::default()).outcome
}

fn end_of(name: &str, cluster: &str) -> End {
    End::of(Module::built(), settings(), &recording(name), cluster).unwrap()
}

/// The playground's file for each recording: the input, the reported statuses, and the final binding with the policy.
/// With `UPDATE_CASES` in the environment, the files are written.
#[test]
fn the_recordings_of_the_playground() {
    let folder = project("playground/recordings");
    for (name, switches, cluster) in RECORDINGS {
        let mut scenario = scenario_of(name, switches);
        let End { mut binding, .. } = end_of(name, cluster);
        binding["metadata"].as_object_mut().unwrap().remove("managedFields");
        scenario["binding"] = binding;
        let path = folder.join(format!("{name}.yaml"));
        if std::env::var_os("UPDATE_CASES").is_some() {
            let value: serde_yaml_ng::Value = serde_yaml_ng::from_str(&scenario.to_string()).unwrap();
            let text = serde_yaml_ng::to_string(&value).unwrap();
            fs::create_dir_all(&folder).unwrap();
            fs::write(
                &path,
                format!("# Made from testdata/recordings/{name}.jsonl by the tests, with UPDATE_CASES=1.\n{text}"),
            )
            .unwrap();
        }
        let written: Value = serde_yaml_ng::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(written, scenario, "{name}");
    }
    assert_eq!(fs::read_dir(folder).unwrap().count(), RECORDINGS.len());
}

#[test]
fn a_recording_played_beforehand_ends_as_it_was_recorded() {
    for (name, switches, cluster) in RECORDINGS {
        println!("{name}");
        let scenario = read_scenario(&scenario_of(name, switches));
        let (outcome, _) = play(&scenario, &settings(), &[]);
        assert_eq!(outcome.stop, None, "{name}");
        let end = end_of(name, cluster);
        assert_eq!(serde_json::to_value(&outcome.state).unwrap(), end.state, "{name}");
        assert_eq!(outcome.restored.into_values().collect::<Vec<_>>(), end.restored, "{name}");
    }
}

/// What Karmada does without the policy, as the recordings show it, and facts of its code where there is no recording.
#[test]
fn karmada_alone_as_recorded() {
    let play = |name: &str, changes: Value| {
        let (_, switches, _) = RECORDINGS.into_iter().find(|(known, ..)| *known == name).unwrap();
        let mut scenario = scenario_of(name, switches);
        scenario.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        karmada_alone(&read_scenario(&scenario))
    };
    for (name, changes, is_started_with_state) in [
        ("application-failover", json!({}), false),
        ("application-failover-native", json!({}), true),
        ("application-failover-v1.12", json!({}), false),
        ("cluster-failover", json!({}), false),
        ("cluster-failover", json!({"injection": true}), true),
        ("late-health", json!({"injection": true}), false),
        ("move-and-back", json!({"injection": true}), false),
        ("siblings", json!({}), false),
        ("unreachable-source", json!({"injection": true}), false),
    ] {
        let outcome = play(name, changes.clone());
        assert_eq!(outcome.stop, None, "{name}");
        assert_eq!(!outcome.state.is_empty(), is_started_with_state, "{name} {changes}");
        assert_eq!(outcome.restored.len(), 0, "{name}: Karmada restores nothing");
        let synced = outcome.synced.unwrap_or_default();
        assert_eq!(synced.pointer("/metadata/labels"), None, "{name}: the label goes with the task");
    }

    // The label is in the Work and in the member's object, and gone at the end of the task.
    let native = play("application-failover-native", json!({}));
    let recording = recording("application-failover-native");
    let in_member: Vec<Option<&Value>> = recording
        .iter()
        .filter(|recorded| recorded.apiserver == "member2")
        .map(|recorded| recorded.request["object"]["metadata"]["labels"].get(ALIAS))
        .collect();
    assert_eq!(in_member.first().unwrap().unwrap().as_str(), native.state.get(ALIAS).map(String::as_str));
    assert_eq!(in_member.last().unwrap(), &None);

    // The state of the copy in member1 is written into the healthy one in member2.
    let disturbed = play("two-clusters-native", json!({}));
    assert_eq!(disturbed.disturbed.as_deref(), Some("member2"));
    assert!(disturbed.state.is_empty());
    assert_eq!(play("two-clusters-native", json!({"injection": false})).disturbed, None);

    // The state that is fed after the second failover is that of the job that was never healthy.
    let repeated = play("repeated-failover", json!({"injection": true}));
    assert_eq!(repeated.state[ALIAS], "231cd7ee46fd479fb66d2651f8a9601a");

    // Source: `applicationfailover/common.go`: an error of a rule ends the eviction.
    let missing = play("application-failover-native", json!({"valueMissing": true})).stop.unwrap();
    assert!(missing.contains("`jobId` is not found") && missing.contains("does not evict"), "{missing}");
}

/// A number of the size of a timestamp makes a label that no API server takes (a vector in testdata/vectors/feed.json);
/// the policy keeps its digits.
#[test]
fn karmada_prints_large_numbers_as_floats() {
    let mut scenario = scenario_of("application-failover-native", r#"{"cause": "application", "injection": true}"#);
    for failover in ["application", "cluster"] {
        let rules = &mut scenario["propagationPolicy"]["spec"]["failover"][failover]["statePreservation"]["rules"];
        rules[0]["jsonPath"] = json!("{.jobStatus.checkpointInfo.lastPeriodicCheckpointTimestamp}");
    }
    let stop = karmada_alone(&read_scenario(&scenario)).stop.unwrap();
    assert!(stop.contains("`1.734462491693e+12`"), "{stop}");
    let (outcome, _) = play(&read_scenario(&scenario), &json!({}), &[]);
    assert_eq!(outcome.state[ALIAS], "1734462491693");
}

/// Source: testdata/vectors/feed.json, decisions of Karmada's own injection.
#[test]
fn karmada_injects_as_its_own_function_decides() {
    let vectors: Vec<Value> =
        serde_json::from_str(&fs::read_to_string(project("testdata/vectors/feed.json")).unwrap()).unwrap();
    for vector in &vectors {
        let names = |names: &Value| -> Value {
            names.as_array().into_iter().flatten().map(|name| json!({"name": name})).collect()
        };
        let binding = json!({"spec": {
            "clusters": names(&vector["targetClusters"]),
            "requiredBy": [{"clusters": names(&vector["requiredByClusters"])}],
            "gracefulEvictionTasks": vector["gracefulEvictionTasks"],
        }});
        let mut labels = vector["manifestLabels"].as_object().cloned().unwrap_or_default();
        let injected = injected_state(&binding, vector["workCluster"].as_str().unwrap());
        labels.extend(injected.unwrap_or_default());
        let expected = vector["labelsAfterFeed"].as_object().cloned().unwrap_or_default();
        assert_eq!(labels, expected, "{vector}");
    }
    assert!(vectors.len() > 100, "{}", vectors.len());
}
