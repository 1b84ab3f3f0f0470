//! Shared code of the benchmarks: the requests, a fast host, and fresh instances.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use e2e_tests::host::Host;
use e2e_tests::project;
use e2e_tests::recording::{Recorded, read};
use serde_json::{Value, json};
use wapc::WapcHost;
use wasmtime_provider::WasmtimeEngineProviderPre;

/// A module that accepts every payload without reading it.
pub(crate) const NO_OP: &str = r#"(module
  (import "wapc" "__guest_response" (func $respond (param i32 i32)))
  (memory (export "memory") 32)
  (data (i32.const 0) "{\"accepted\":true}")
  (func (export "wapc_init"))
  (func (export "__guest_call") (param i32 i32) (result i32)
    (call $respond (i32.const 0) (i32.const 17))
    (i32.const 1)))"#;

/// A host that answers at once: the time that a lookup takes in the policy server is not part of the module.
#[derive(Default)]
pub(crate) struct QuickHost {
    host: Host,
    answers: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl QuickHost {
    pub(crate) fn new(objects: Vec<Value>) -> Arc<Self> {
        Arc::new(Self { host: Host::new(objects), answers: Mutex::default() })
    }

    fn call(&self, binding: &str, namespace: &str, operation: &str, payload: &[u8]) -> Result<Vec<u8>, String> {
        if namespace == "tracing" {
            return Ok(Vec::new());
        }
        let mut answers = self.answers.lock().unwrap();
        if let Some(answer) = answers.get(payload) {
            return Ok(answer.clone());
        }
        let answer = self.host.call(binding, namespace, operation, payload)?;
        answers.insert(payload.to_vec(), answer.clone());
        Ok(answer)
    }
}

pub(crate) fn instance(
    prepared: &WasmtimeEngineProviderPre,
    host: &Arc<QuickHost>,
) -> Result<WapcHost, wapc::errors::Error> {
    let host = Arc::clone(host);
    let callback = move |_: u64, binding: &str, namespace: &str, operation: &str, payload: &[u8]| {
        host.call(binding, namespace, operation, payload).map_err(Into::into)
    };
    WapcHost::new(Box::new(prepared.rehydrate(None).unwrap()), Some(Box::new(callback)))
}

pub(crate) fn call(
    prepared: &WasmtimeEngineProviderPre,
    payload: &[u8],
    host: &Arc<QuickHost>,
) -> Result<Vec<u8>, wapc::errors::Error> {
    instance(prepared, host)?.call("validate", payload)
}

/// The expected answer of a case.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    NotOurs,
    NothingToDo,
    Mutated,
}

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) class: Class,
    /// Whether it is of a recorded size, 5 to 12 KB.
    pub(crate) is_small: bool,
    pub(crate) request: Value,
    pub(crate) settings: Value,
    pub(crate) objects: Vec<Value>,
}

impl Case {
    /// Checks that the module's answer is the expected one.
    pub(crate) fn check_answer(&self, answer: &[u8]) {
        let answer: Value = serde_json::from_slice(answer).unwrap();
        let is_mutated = answer.get("mutated_object").is_some_and(|object| !object.is_null());
        let found = (&answer["accepted"], is_mutated);
        assert_eq!(found, (&json!(true), self.class == Class::Mutated), "{}: {answer}", self.name);
    }
}

fn rule(kind: &str, name: &str) -> Value {
    json!({
        "name": name,
        "match": {"apiGroups": ["flink.apache.org"], "kinds": [kind], "conditions": [{"path": "/spec/job", "exists": true}]},
        "vars": {"jobId": {"state": "resourcebinding.karmada.io/failover-jobid", "pattern": "[0-9a-f]{32}"}},
        "set": [{"path": "/spec/job/initialSavepointPath", "template": "s3://flink/{namespace}/{name}/{jobId}"}],
    })
}

fn settings(rules: Vec<Value>) -> Value {
    json!({"restore": {"rules": rules}})
}

pub(crate) fn cases() -> Vec<Case> {
    let recording = read(&project("testdata/recordings/application-failover.jsonl")).unwrap();
    let request =
        |is_it: &dyn Fn(&Recorded) -> bool| recording.iter().find(|recorded| is_it(recorded)).unwrap().request.clone();
    let has_tasks = |recorded: &Recorded| recorded.request.pointer("/object/spec/gracefulEvictionTasks").is_some();
    let has_status = |recorded: &Recorded| recorded.request.pointer("/object/status/aggregatedStatus").is_some();
    let is_binding = |recorded: &Recorded| recorded.text("/kind/kind") == "ResourceBinding" && !recorded.is_create();
    let idle = request(&|recorded| is_binding(recorded) && !has_tasks(recorded) && has_status(recorded));
    let evict = request(&|recorded| is_binding(recorded) && has_tasks(recorded));
    let created = |kind: &str, cluster: &str| {
        request(&|recorded| {
            recorded.is_create()
                && recorded.text("/kind/kind") == kind
                && (recorded.apiserver == cluster || recorded.text("/namespace") == format!("karmada-es-{cluster}"))
        })
    };
    let (first_work, work) = (created("Work", "member1"), created("Work", "member2"));
    let workload = created("FlinkDeployment", "member2");
    let mut fed = workload.clone();
    let job_id = json!("b8b4ab8cbff349dda3acd97361d7f996");
    fed["object"]["metadata"]["labels"]["resourcebinding.karmada.io/failover-jobid"] = job_id.clone();
    let mut binding = request(&|recorded| {
        is_binding(recorded) && has_tasks(recorded) && recorded.request.pointer("/object/spec/clusters/0").is_some()
    })["object"]
        .clone();
    let task = &mut binding["spec"]["gracefulEvictionTasks"][0];
    task["preservedLabelState"] = json!({"resourcebinding.karmada.io/failover-jobid": job_id});
    task["clustersBeforeFailover"] = json!(["member1"]);
    let mut other = evict.clone();
    other["kind"] = json!({"group": "apps", "version": "v1", "kind": "Deployment"});

    let one = settings(vec![rule("FlinkDeployment", "flink")]);
    let none_of_20 = settings((0..20).map(|index| rule("FlinkSessionJob", &format!("job-{index}"))).collect());
    let one_of_20 = settings(
        (0..19)
            .map(|index| rule("FlinkSessionJob", &format!("job-{index}")))
            .chain([rule("FlinkDeployment", "flink")])
            .collect(),
    );
    let mut wide = grow_binding(&evict, 0);
    for object in ["object", "oldObject"] {
        let status = wide[object]["status"]["aggregatedStatus"][0].clone();
        let names = (0..999).map(|index| format!("cluster-{index:04}"));
        let mut clusters = wide[object]["spec"]["clusters"].as_array().cloned().unwrap_or_default();
        clusters.extend(names.clone().map(|name| json!({"name": name, "replicas": 1})));
        wide[object]["spec"]["clusters"] = Value::from(clusters);
        let statuses = wide[object]["status"]["aggregatedStatus"].as_array_mut().unwrap();
        statuses.extend(names.map(|name| {
            let mut status = status.clone();
            status["clusterName"] = json!(name);
            status
        }));
    }
    let mut cases = vec![Case {
        name: "1,000 clusters: binding, eviction".to_owned(),
        class: Class::Mutated,
        is_small: false,
        request: wide,
        settings: json!({}),
        objects: Vec::new(),
    }];
    for (size, bytes) in [("recorded", 0), ("64 KB", 64_000), ("770 KB", 770_000)] {
        let is_small = bytes == 0;
        let mut add = |name: &str, class, request: Value, settings: &Value, objects: &[Value]| {
            cases.push(Case {
                name: format!("{size}: {name}"),
                class,
                is_small,
                request,
                settings: settings.clone(),
                objects: objects.to_vec(),
            });
        };
        let plain = json!({});
        add("not ours", Class::NotOurs, grow_binding(&other, bytes), &plain, &[]);
        add("not ours, 20 rules", Class::NotOurs, grow_binding(&other, bytes), &none_of_20, &[]);
        add("binding, nothing to do", Class::NothingToDo, grow_binding(&idle, bytes), &plain, &[]);
        add("binding, eviction", Class::Mutated, grow_binding(&evict, bytes), &plain, &[]);
        add(
            "Work, nothing to feed",
            Class::NothingToDo,
            grow_manifest(&first_work, bytes),
            &plain,
            &[idle["object"].clone()],
        );
        add("Work, fed", Class::Mutated, grow_manifest(&work, bytes), &plain, &[binding.clone()]);
        add("Work, fed and restored", Class::Mutated, grow_manifest(&work, bytes), &one, &[binding.clone()]);
        add("workload, not restored", Class::NothingToDo, grow_manifest(&workload, bytes), &one, &[]);
        add("workload, restored", Class::Mutated, grow_manifest(&fed, bytes), &one, &[]);
        add("workload, restored by one of 20 rules", Class::Mutated, grow_manifest(&fed, bytes), &one_of_20, &[]);
    }
    cases
}

/// The case with added clusters, so that the request has that size.
fn grow_binding(request: &Value, bytes: usize) -> Value {
    let mut request = request.clone();
    for object in ["object", "oldObject"] {
        let Some(items) = request[object].pointer_mut("/status/aggregatedStatus").and_then(Value::as_array_mut) else {
            continue;
        };
        let one = items[0].clone();
        let count = bytes / 2 / one.to_string().len();
        items.extend((0..count).map(|index| {
            let mut item = one.clone();
            item["clusterName"] = json!(format!("cluster-{index:05}"));
            item
        }));
    }
    request
}

/// The case with added environment variables, so that the request has that size.
fn grow_manifest(request: &Value, bytes: usize) -> Value {
    let mut request = request.clone();
    if bytes == 0 {
        return request;
    }
    let env: Vec<Value> =
        (0..bytes / 75).map(|index| json!({"name": format!("SETTING_{index}"), "value": "x".repeat(40)})).collect();
    let is_work = request["kind"]["kind"] == "Work";
    let object = &mut request["object"];
    let spec = if is_work { &mut object["spec"]["workload"]["manifests"][0]["spec"] } else { &mut object["spec"] };
    spec["podTemplate"] = json!({"spec": {"containers": [{"name": "flink-main-container", "env": env}]}});
    request
}
