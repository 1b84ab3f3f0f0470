//! Replays recorded real failovers through the policy, and checks how each ends.
//!
//! The replay evaluates every request twice, the second time on its own result, and fails if that changes anything.

use e2e_tests::policy;
use e2e_tests::project;
use e2e_tests::recording::read;
use e2e_tests::replay::{Replay, Sides, Step};
use serde_json::{Value, json};

pub(crate) const ALIAS: &str = "resourcebinding.karmada.io/failover-jobid";
const HISTORY: &str = "/metadata/annotations/stateful-failover~1history";
const STATE: &str = "/metadata/annotations/stateful-failover~1state";
const APPLICATION_CONTROLLER: &str = "resource-binding-application-failover-controller";

/// The settings that the recordings are replayed with.
pub(crate) fn settings() -> Value {
    serde_yaml_ng::from_str(&std::fs::read_to_string(project("examples/flinkdeployment/settings.yaml")).unwrap())
        .unwrap()
}

/// Replays a recording on the native core and on the module, with the restore rules at the control plane, in the
/// members, and in both, and checks where each ends.
fn replayed(recording: &str, check: impl Fn(&Replay<'_>, &[Step])) {
    let recording = read(&project(&format!("testdata/recordings/{recording}.jsonl"))).unwrap();
    for (name, sides) in [
        ("control plane", Sides::control_plane(settings())),
        ("members", Sides::members(settings())),
        ("both", Sides::both(settings())),
    ] {
        for policy in policy::all() {
            let (replay, steps) = Replay::run(policy, &sides, &recording)
                .unwrap_or_else(|error| panic!("{}, {name}: {error:#}", policy.name()));
            let refused = steps.iter().find(|step| !step.answer.accepted);
            assert!(refused.is_none(), "{}, {name}: {:?}", policy.name(), refused.map(|step| &step.answer));
            check(&replay, &steps);
            if sides.control_plane.get("restore").is_some() {
                assert_kept_in_works(&steps);
            }
        }
    }
}

/// From the Work's creation on, the field is in every manifest that is fed, through each later sync and template edit.
fn assert_kept_in_works(steps: &[Step]) {
    let works = steps.iter().filter(|step| step.key.kind == "Work" && step.is_stored);
    for step in works.filter(|step| step.request.pointer("/object/metadata/deletionTimestamp").is_none()) {
        let manifest = &step.result["spec"]["workload"]["manifests"][0];
        let Some(state) = manifest.pointer(STATE).and_then(Value::as_str) else { continue };
        let job_id = &serde_json::from_str::<Value>(state).unwrap()[ALIAS];
        let path = format!("s3://flink-state/default/checkpoints/{}/latest", job_id.as_str().unwrap());
        assert_eq!(manifest["spec"]["job"]["initialSavepointPath"], json!(path), "request {}", step.index);
    }
}

fn embedded(object: &Value, pointer: &str) -> Value {
    let text = object.pointer(pointer).unwrap_or_else(|| panic!("no {pointer}")).as_str().unwrap();
    serde_json::from_str(text).unwrap()
}

fn history(replay: &Replay<'_>, name: &str) -> Value {
    let binding = replay.object("karmada", "ResourceBinding", "default", &format!("{name}-flinkdeployment")).unwrap();
    embedded(binding, HISTORY)
}

/// The state is in the member2 object and in the Work that it came from, as labels and annotation, and in the field
/// that the job resumes from.
fn assert_resumes_in_member2(replay: &Replay<'_>, steps: &[Step], name: &str, failover_type: &str, job_id: &str) {
    let path = format!("s3://flink-state/default/checkpoints/{job_id}/latest");
    let workload = replay.object("member2", "FlinkDeployment", "default", name).unwrap();
    assert_eq!(workload["spec"]["job"]["initialSavepointPath"], json!(path));
    let record = json!({"flink-from-checkpoint": {"/spec/job/initialSavepointPath": {"set": path}}});
    assert_eq!(embedded(workload, "/metadata/annotations/stateful-failover~1restored"), record);
    let work = steps.iter().rfind(|step| step.key.namespace == "karmada-es-member2").unwrap();
    for object in [workload, &work.result["spec"]["workload"]["manifests"][0]] {
        assert_eq!(object["metadata"]["labels"][ALIAS], json!(job_id));
        assert_eq!(object["metadata"]["labels"]["stateful-failover/type"], json!(failover_type));
        assert_eq!(object["metadata"]["labels"]["stateful-failover/from"], json!("member1"));
        assert_eq!(embedded(object, STATE), json!({ALIAS: job_id}));
    }
    let old_copy = replay.object("member1", "FlinkDeployment", "default", name).unwrap();
    assert_eq!(old_copy.pointer(STATE), None, "the copy that failed is not fed");
    assert_eq!(old_copy.pointer("/spec/job/initialSavepointPath"), None);
}

fn record(fields: Value, time: &str, phase: &str, job_id: &str) -> Value {
    let mut record = json!({
        "from": "member1",
        "before": ["member1"],
        "to": ["member2"],
        "state": {ALIAS: job_id},
        "time": time,
        "phase": phase,
    });
    record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    record
}

fn application(purge_mode: &str) -> Value {
    json!({"type": "application", "reason": "ApplicationFailure", "producer": APPLICATION_CONTROLLER, "purgeMode": purge_mode})
}

fn cluster() -> Value {
    json!({"type": "cluster", "reason": "TaintUntolerated", "producer": "TaintManager", "purgeMode": "Directly"})
}

#[test]
fn application_failover() {
    replayed("application-failover", |replay, steps| {
        let job_id = "b8b4ab8cbff349dda3acd97361d7f996";
        // The job id of the status of the failed copy, in the request that evicts it.
        let status = "/oldObject/status/aggregatedStatus/0/status/jobStatus/jobId";
        assert_eq!(steps[5].request.pointer(status), Some(&json!(job_id)));
        let task = &steps[5].result["spec"]["gracefulEvictionTasks"][0];
        assert_eq!(task["preservedLabelState"], json!({ALIAS: job_id}));
        assert_eq!(task["clustersBeforeFailover"], json!(["member1"]));
        assert_resumes_in_member2(replay, steps, "s1-appfailover", "application", job_id);
        let expected = record(application("Directly"), "2026-11-30T03:30:46Z", "Recovered", job_id);
        assert_eq!(history(replay, "s1-appfailover"), json!([expected]));
    });
}

#[test]
fn application_failover_with_karmadas_own_injection() {
    replayed("application-failover-native", |replay, steps| {
        let job_id = "46ae21e1ad064a329e49e5a4a6be45a6";
        // After the end of the task, Karmada's controller writes the manifest without the label: it is put back.
        let (before, after) = (&steps[14].request, &steps[14].result);
        let label = format!("/spec/workload/manifests/0/metadata/labels/{}", ALIAS.replace('/', "~1"));
        assert_eq!(before["object"].pointer(&label), None);
        assert_eq!(after.pointer(&label), Some(&json!(job_id)));
        // The PUT on the member object carries the spec of the manifest: with the field, or the member's policy puts it
        // back.
        assert!(steps[15].result.pointer("/spec/job/initialSavepointPath").is_some());
        assert_resumes_in_member2(replay, steps, "s2-gateon", "application", job_id);
        let expected = record(application("Directly"), "2026-11-30T03:31:35Z", "Recovered", job_id);
        assert_eq!(history(replay, "s2-gateon"), json!([expected]));
    });
}

#[test]
fn application_failover_under_karmada_1_12() {
    replayed("application-failover-v1.12", |replay, steps| {
        let job_id = "160a9013d1704a5f90704a1ab3718cfe";
        assert_resumes_in_member2(replay, steps, "v112-app", "application", job_id);
        let expected = record(application("Immediately"), "2026-11-30T04:12:45Z", "Recovered", job_id);
        assert_eq!(history(replay, "v112-app"), json!([expected]));
    });
}

#[test]
fn cluster_failover() {
    replayed("cluster-failover", |replay, steps| {
        let job_id = "5542dfcfbbc942b0bc9cd9aa8c4ef7d0";
        assert_resumes_in_member2(replay, steps, "s3-taint", "cluster", job_id);
        let expected = record(cluster(), "2026-11-30T03:35:11Z", "Recovered", job_id);
        assert_eq!(history(replay, "s3-taint"), json!([expected]));
    });
}

/// The application is also evicted from member2 before the job was ever healthy there: the state of the job in member1
/// is carried over.
#[test]
fn repeated_failover() {
    replayed("repeated-failover", |replay, steps| {
        let job_id = "5bd4e50db44240b48f5b74d8449b8e02";
        let status = "/oldObject/status/aggregatedStatus/0/status/jobStatus/jobId";
        assert_eq!(steps[13].request.pointer(status), Some(&json!("231cd7ee46fd479fb66d2651f8a9601a")));
        let binding = replay.object("karmada", "ResourceBinding", "default", "s4-repeat-flinkdeployment").unwrap();
        let tasks = &binding["spec"]["gracefulEvictionTasks"];
        assert_eq!(tasks[1]["fromCluster"], json!("member2"));
        assert_eq!(tasks[1]["preservedLabelState"], json!({ALIAS: job_id}));
        let first = record(application("Directly"), "2026-11-30T03:35:30Z", "Evicted", job_id);
        let mut second = record(application("Directly"), "2026-11-30T03:35:36Z", "Evicted", job_id);
        second["from"] = json!("member2");
        second["before"] = json!(["member2"]);
        second["carriedFrom"] = json!("member1");
        second.as_object_mut().unwrap().remove("to");
        assert_eq!(history(replay, "s4-repeat"), json!([first, second]));
        assert_resumes_in_member2(replay, steps, "s4-repeat", "application", job_id);
    });
}

/// The Work for member2 is created only after the task has timed out; the record is pending then.
#[test]
fn unreachable_source() {
    replayed("unreachable-source", |replay, steps| {
        let job_id = "958bfae4f131410b806d6fe91b3f5e16";
        assert_eq!(steps[11].result.pointer("/spec/gracefulEvictionTasks"), None);
        let expected = record(cluster(), "2026-11-30T03:35:40Z", "Pending", job_id);
        assert_eq!(embedded(&steps[11].result, HISTORY), json!([expected]));
        assert_eq!(steps[12].key.kind, "Work");
        assert_resumes_in_member2(replay, steps, "s5-unreachable", "cluster", job_id);
    });
}

/// The state of the copy in member1 is not written into the healthy copy in member2, which Karmada alone does.
#[test]
fn two_clusters() {
    replayed("two-clusters-native", |replay, steps| {
        let task = &steps[17].result["spec"]["gracefulEvictionTasks"][0];
        assert_eq!(steps[17].request.pointer("/object/spec/gracefulEvictionTasks/0/clustersBeforeFailover"), None);
        assert_eq!(task["clustersBeforeFailover"], json!(["member1", "member2"]));
        assert_eq!(task["preservedLabelState"], json!({"example.io/ready": "2"}));
        for step in steps.iter().filter(|step| step.key.kind == "Work" || step.key.kind == "Deployment") {
            let text = step.result.to_string();
            assert!(
                !text.contains("stateful-failover/") && !text.contains("\"example.io/ready\":"),
                "request {}",
                step.index
            );
        }
        let binding = replay.object("karmada", "ResourceBinding", "default", "s6-two-clusters-deployment").unwrap();
        assert_eq!(embedded(binding, HISTORY)[0]["phase"], json!("Recovered"));
        // The ClusterResourceBinding's policy has no state rules: it is left alone.
        let binding = replay.object("karmada", "ClusterResourceBinding", "", "s6-two-clusters-clusterrole").unwrap();
        assert_eq!(binding.pointer(HISTORY), None);
    });
}

/// The job id and the restored path of the copy in a member cluster, and where it says it came from.
fn assert_resumes(replay: &Replay<'_>, member: &str, name: &str, job_id: &str, move_type: &str, from: &str) {
    let copy = replay.object(member, "FlinkDeployment", "default", name).unwrap();
    assert_eq!(embedded(copy, STATE), json!({ALIAS: job_id}));
    assert_eq!(copy["metadata"]["labels"]["stateful-failover/type"], json!(move_type));
    assert_eq!(copy["metadata"]["labels"]["stateful-failover/from"], json!(from));
    let path = format!("s3://flink-state/default/checkpoints/{job_id}/latest");
    assert_eq!(copy["spec"]["job"]["initialSavepointPath"], json!(path));
}

/// The placement is changed to member2 and back, without any eviction task: each copy resumes from the one before it.
#[test]
fn move_and_back() {
    replayed("move-and-back", |replay, steps| {
        let (first, second) = ("8a7c35fd222a4c8fa69d5e95ec9fbc2d", "a75eda445a4f4964a51cd4b865112889");
        assert!(steps.iter().all(|step| step.request.pointer("/object/spec/gracefulEvictionTasks").is_none()));
        assert_resumes(replay, "member2", "move-84b2", first, "move", "member1");
        assert_resumes(replay, "member1", "move-84b2", second, "move", "member2");
        let record = |from: &str, to: &str, job_id: &str, phase: &str| json!({"type": "move", "from": from, "before": [from], "to": [to], "state": {ALIAS: job_id}, "phase": phase});
        // Nothing writes the binding after the second move; its status alone is not seen.
        let expected =
            [record("member1", "member2", first, "Recovered"), record("member2", "member1", second, "Pending")];
        assert_eq!(history(replay, "move-84b2"), json!(expected));
        let warned = "FlinkDeployment `default/move-84b2` leaves member1 without a failover; its state is preserved and will be fed";
        assert_eq!(steps[7].answer.warnings(), [warned]);
    });
}

/// The application is evicted from member1; the task times out while member2 is unhealthy, which becomes healthy
/// afterwards. The move back takes member2's own state along, and not the older one of member1.
#[test]
fn late_health() {
    replayed("late-health", |replay, steps| {
        let (first, second) = ("5acb120e145f4863b675e73930382fc5", "0e0b36984bf04285be18cbbd33006be6");
        assert_eq!(embedded(&steps[18].result, HISTORY)[0]["phase"], json!("Expired"));
        assert_eq!(embedded(&steps[20].result, HISTORY)[0]["phase"], json!("Recovered"));
        assert_resumes(replay, "member2", "late-9232", first, "application", "member1");
        assert_resumes(replay, "member1", "late-9232", second, "move", "member2");
        let records = history(replay, "late-9232");
        assert_eq!(records.as_array().unwrap().len(), 2);
        assert_eq!(records[1]["state"], json!({ALIAS: second}));
        assert_eq!(records[1].get("carriedFrom"), None);
    });
}

/// One policy selects a FlinkDeployment, a ConfigMap and a Service, and Karmada copies its rules into all three
/// bindings: all of them leave the tainted cluster, and only the FlinkDeployment gets a record.
#[test]
fn siblings() {
    replayed("siblings", |replay, steps| {
        let job_id = "4d39f9a03f8743bda5f7627b00f3c0c7";
        assert_resumes(replay, "member2", "siblings-71ea", job_id, "cluster", "member1");
        assert_eq!(history(replay, "siblings-71ea").as_array().unwrap().len(), 1);
        for kind in ["configmap", "service"] {
            let name = format!("siblings-71ea-{kind}");
            let binding = replay.object("karmada", "ResourceBinding", "default", &name).unwrap();
            assert_eq!(binding["spec"]["clusters"], json!([{"name": "member2"}]));
            assert_eq!(binding.pointer(HISTORY), None);
            let requests = || steps.iter().filter(|step| step.key.name == name);
            assert!(requests().any(|step| step.request.pointer("/object/spec/gracefulEvictionTasks/0").is_some()));
            assert!(requests().all(|step| step.answer.mutated_object.is_none() && step.answer.warnings().is_empty()));
        }
    });
}

/// A Work is looked up once; nothing else is looked up with these settings.
#[test]
fn lookups() {
    for recording in ["application-failover", "two-clusters-native", "unreachable-source"] {
        replayed(recording, |_, steps| {
            for step in steps {
                let is_deleted = step.request.pointer("/object/metadata/deletionTimestamp").is_some();
                let expected = usize::from(step.key.kind == "Work" && !is_deleted);
                assert_eq!(step.lookups, expected, "request {}", step.index);
            }
        });
    }
}
