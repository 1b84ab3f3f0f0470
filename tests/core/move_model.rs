//! Random moves of one application through the whole chain: a model of Karmada's controllers writes the binding and the
//! Works, copies run, report and fail, and the policy selects resources without state, too.
//!
//! The laws: a preserved state is fed, still has to be fed, or was reported as missing; it is never fed to a healthy
//! copy, and never older than the application's newer progress; and a resource without state is never held back.

use proptest::prelude::*;
use serde_json::{Value, json};
use stateful_failover::cluster::{Get, LookupError};
use stateful_failover::history::History;
use stateful_failover::{Outcome, Request, Settings, Verdict, evaluate};

use crate::model::hold;

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const ALIAS: &str = "example.io/job";
const STATE: &str = "stateful-failover/state";

#[derive(Debug, Clone)]
enum Event {
    /// An eviction, by the application's health or by a taint.
    Evict { by_taint: bool },
    /// The scheduler chooses a cluster: after an eviction, or because the placement was changed.
    Schedule { cluster: usize },
    /// The graceful eviction controller removes the tasks: the copy is healthy, or they have timed out.
    RemoveTasks,
    /// The binding controller writes the Work for the chosen cluster, and removes those of the others.
    SyncWorks,
    /// The copy in a cluster runs and reports: a job of its own, healthy or not, or no status yet.
    Report { healthy: bool, has_status: bool },
    /// The copy in the chosen cluster reports that it is not healthy any more.
    Fail,
    /// Somebody edits the template.
    EditTemplate { value: i64 },
    /// A Work is deleted, and created again with the next sync.
    DeleteWork,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => any::<bool>().prop_map(|by_taint| Event::Evict { by_taint }),
        4 => (0..CLUSTERS.len()).prop_map(|cluster| Event::Schedule { cluster }),
        2 => Just(Event::RemoveTasks),
        5 => Just(Event::SyncWorks),
        4 => (any::<bool>(), prop::bool::weighted(0.9)).prop_map(|(healthy, has_status)| Event::Report { healthy, has_status }),
        2 => Just(Event::Fail),
        1 => any::<i64>().prop_map(|value| Event::EditTemplate { value }),
        1 => Just(Event::DeleteWork),
    ]
}

struct Model {
    settings: Settings,
    binding: Value,
    /// A ConfigMap that the same policy selects: the same rules, no status.
    sibling: Value,
    works: [Option<Value>; CLUSTERS.len()],
    template: Value,
    jobs: usize,
    /// The newest job that was healthy in the stored status when the binding was written, which is what a policy can
    /// know.
    newest_healthy: usize,
}

fn binding(kind: &str, api_version: &str) -> Value {
    let rules = json!({"purgeMode": "Directly", "statePreservation": {"rules": [{"aliasLabelName": ALIAS, "jsonPath": "{.jobId}"}]}});
    json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": "ResourceBinding",
        "metadata": {"name": "x", "namespace": "default", "annotations": {}},
        "spec": {
            "resource": {"apiVersion": api_version, "kind": kind, "namespace": "default", "name": "x"},
            "failover": {"application": rules, "cluster": rules},
            "clusters": [{"name": "a"}],
        },
        "status": {"aggregatedStatus": [{"clusterName": "a", "health": "Healthy"}]},
    })
}

fn job(text: &str) -> usize {
    text.strip_prefix("job-").unwrap().parse().unwrap()
}

impl Model {
    fn new(on_missing: &str) -> Self {
        let settings = json!({
            "preserve": {"onMissingState": on_missing, "historyLimit": 3},
            "restore": {"rules": [{"name": "r", "match": {"apiGroups": ["x.io"], "kinds": ["Thing"]}, "vars": {"job": {"state": ALIAS}},
                "set": [{"path": "/spec/resume", "template": "{job}"}]}]},
        });
        let mut model = Self {
            settings: Settings::from_json(&settings).unwrap(),
            binding: binding("Thing", "x.io/v1"),
            sibling: binding("ConfigMap", "v1"),
            works: [const { None }; CLUSTERS.len()],
            template: json!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "x", "namespace": "default"}, "spec": {}}),
            jobs: 0,
            newest_healthy: 0,
        };
        model.binding["status"] = json!({"aggregatedStatus": []});
        model.sync_works();
        model.report(true, true);
        model
    }

    fn evaluate(&self, kind: &str, object: &Value, old: &Value) -> Verdict {
        let request = json!({
            "kind": {"group": "work.karmada.io", "kind": kind}, "name": object["metadata"]["name"],
            "namespace": object["metadata"]["namespace"],
            "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": old,
        })
        .to_string();
        let cluster = |_: &Get<'_>| -> Result<Option<Value>, LookupError> { Ok(Some(self.binding.clone())) };
        evaluate(&Request::from_json(&request).unwrap(), &self.settings, &cluster).parsed()
    }

    fn chosen(&self) -> Option<usize> {
        let name = self.binding["spec"]["clusters"].get(0)?["name"].as_str().unwrap();
        CLUSTERS.iter().position(|cluster| *cluster == name)
    }

    fn item(&self, cluster: usize) -> Option<&Value> {
        let items = self.binding["status"]["aggregatedStatus"].as_array().unwrap();
        items.iter().find(|item| item["clusterName"] == CLUSTERS[cluster])
    }

    fn set_item(&mut self, cluster: usize, item: Option<Value>) {
        let items = self.binding["status"]["aggregatedStatus"].as_array_mut().unwrap();
        items.retain(|item| item["clusterName"] != CLUSTERS[cluster]);
        items.extend(item);
    }

    fn has_task(&self, cluster: usize) -> bool {
        let tasks = self.binding["spec"]["gracefulEvictionTasks"].as_array();
        tasks.into_iter().flatten().any(|task| task["fromCluster"] == CLUSTERS[cluster])
    }

    fn history(&self) -> History {
        History::read(&self.binding).unwrap()
    }

    /// Writes the binding, and makes the same change to that of the ConfigMap, which must never be held back.
    fn write(&mut self, change: impl Fn(&mut Value)) {
        let mut sibling = self.sibling.clone();
        change(&mut sibling);
        let verdict = self.evaluate("ResourceBinding", &sibling, &self.sibling);
        assert_eq!(verdict, Verdict::accept(), "a ConfigMap has no state: nothing holds it up, nothing is written");
        self.sibling = sibling;

        let mut object = self.binding.clone();
        change(&mut object);
        let verdict = self.evaluate("ResourceBinding", &object, &self.binding);
        let stored = match &verdict.outcome {
            Outcome::Accept => object,
            Outcome::Mutate(result) => result.clone(),
            Outcome::Deny { .. } => {
                // An eviction is denied only for a status without the value, and only as long as there is a status.
                let left = self.chosen().unwrap();
                let status = self.item(left).and_then(|item| item.get("status"));
                assert!(status.is_some_and(|status| status.get("jobId").is_none()), "{verdict:?}");
                // The ConfigMap is evicted first, and is scheduled together with the application again.
                self.sibling["spec"] = self.binding["spec"].clone();
                self.sibling["spec"]["resource"]["kind"] = json!("ConfigMap");
                self.sibling["spec"]["resource"]["apiVersion"] = json!("v1");
                return;
            }
        };
        self.see_health();
        let again = self.evaluate("ResourceBinding", &stored, &self.binding);
        assert_eq!(again.outcome, Outcome::Accept, "idempotent");
        self.check_leaving(&stored, &verdict);
        self.binding = stored;
    }

    /// The job of a healthy stored status is the application's newest progress.
    fn see_health(&mut self) {
        let Some(item) = self.chosen().and_then(|chosen| self.item(chosen)) else { return };
        if item["health"] == "Healthy"
            && let Some(text) = item["status"]["jobId"].as_str()
        {
            self.newest_healthy = self.newest_healthy.max(job(text));
        }
    }

    /// An application leaves a cluster with its state, or the missing state is reported.
    fn check_leaving(&self, stored: &Value, verdict: &Verdict) {
        let Some(left) = self.chosen() else { return };
        if stored["spec"]["clusters"].get(0) == self.binding["spec"]["clusters"].get(0) {
            return;
        }
        let history = History::read(stored).unwrap();
        let newest = history.newest().filter(|record| record.from == CLUSTERS[left] && record.phase.is_ongoing());
        let has_status = self.item(left).is_some_and(|item| item.get("status").is_some());
        match newest {
            Some(record) => assert!(!record.state.is_empty() || !record.missing.is_empty(), "{record:?}"),
            None => assert!(!has_status && !verdict.warnings.is_empty(), "left in silence: {verdict:?}"),
        }
    }

    fn sync_works(&mut self) {
        let chosen = self.chosen();
        for cluster in (0..CLUSTERS.len()).filter(|cluster| Some(*cluster) != chosen) {
            self.works[cluster] = None;
            self.set_item(cluster, None);
        }
        let Some(chosen) = chosen else { return };
        let mut object = json!({
            "metadata": {"name": "w", "namespace": format!("karmada-es-{}", CLUSTERS[chosen]),
                "annotations": {"resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": "x"}},
            "spec": {"workload": {"manifests": [self.template]}},
        });
        let old = self.works[chosen].clone().unwrap_or_default();
        let verdict = self.evaluate("Work", &object, &old);
        match verdict.outcome {
            Outcome::Accept => {}
            Outcome::Mutate(result) => object = result,
            Outcome::Deny { message, .. } => panic!("{message}"),
        }
        self.check_work(chosen, &object, &old);
        self.works[chosen] = Some(object);
        if self.item(chosen).is_none() {
            self.set_item(chosen, Some(json!({"clusterName": CLUSTERS[chosen], "health": "Unknown"})));
        }
    }

    fn check_work(&self, cluster: usize, work: &Value, old: &Value) {
        let state = |work: &Value| -> Option<Value> {
            let manifest = work.pointer("/spec/workload/manifests/0")?;
            serde_json::from_str(manifest["metadata"]["annotations"][STATE].as_str()?).ok()
        };
        let (fed, kept) = (state(work), state(old));
        let field = work.pointer("/spec/workload/manifests/0/spec/resume").and_then(Value::as_str);
        let is_healthy = self.item(cluster).is_some_and(|item| item["health"] == "Healthy");
        if is_healthy {
            assert_eq!(fed, kept, "nothing is fed to a copy that is healthy");
        }
        if old.is_null()
            && let Some(fed) = &fed
        {
            let text = fed[ALIAS].as_str().unwrap();
            assert_eq!(field, Some(text), "what is fed is restored");
            assert!(job(text) >= self.newest_healthy, "{text} is older than job-{}", self.newest_healthy);
        }
        let mut history = self.history();
        let view = stateful_failover::karmada::Binding::new(&self.binding);
        history.update(view, view);
        if let Some(record) = history.newest().filter(|record| record.phase.is_ongoing() && !record.state.is_empty())
            && old.is_null()
            && !is_healthy
        {
            assert_eq!(fed, Some(json!(record.state)), "what is owed is delivered: {record:?}");
        }
        if !old.is_null() && fed == kept {
            let was = old.pointer("/spec/workload/manifests/0/spec/resume").and_then(Value::as_str);
            assert_eq!(field, was, "the restored field stays through every sync");
        }
    }

    fn report(&mut self, healthy: bool, has_status: bool) {
        let Some(chosen) = self.chosen().filter(|chosen| self.works[*chosen].is_some()) else { return };
        let health = if healthy && has_status { "Healthy" } else { "Unhealthy" };
        let mut item = json!({"clusterName": CLUSTERS[chosen], "health": health});
        if has_status {
            self.jobs += 1;
            item["status"] = json!({"jobId": format!("job-{}", self.jobs)});
        }
        self.set_item(chosen, Some(item));
    }

    /// Karmada's graceful eviction controller removes the tasks of a healthy application at once.
    fn remove_tasks_of_healthy(&mut self) {
        let is_healthy =
            self.chosen().and_then(|chosen| self.item(chosen)).is_some_and(|item| item["health"] == "Healthy");
        if is_healthy {
            self.write(|object| drop(object["spec"].as_object_mut().unwrap().remove("gracefulEvictionTasks")));
        }
    }

    fn apply(&mut self, event: &Event) {
        if !matches!(event, Event::SyncWorks | Event::EditTemplate { .. } | Event::DeleteWork) {
            self.remove_tasks_of_healthy();
        }
        match event {
            Event::Evict { by_taint } => {
                let Some(chosen) = self.chosen().filter(|chosen| !self.has_task(*chosen)) else { return };
                let (reason, producer) = match by_taint {
                    true => ("TaintUntolerated", "TaintManager"),
                    false => ("ApplicationFailure", "resource-binding-application-failover-controller"),
                };
                let task = json!({"fromCluster": CLUSTERS[chosen], "purgeMode": "Directly", "reason": reason, "producer": producer});
                self.write(|object| {
                    object["spec"]["clusters"] = json!([]);
                    let tasks =
                        object["spec"].as_object_mut().unwrap().entry("gracefulEvictionTasks").or_insert(json!([]));
                    tasks.as_array_mut().unwrap().push(task.clone());
                });
            }
            Event::Schedule { cluster } if !self.has_task(*cluster) => {
                self.write(|object| object["spec"]["clusters"] = json!([{"name": CLUSTERS[*cluster]}]));
            }
            Event::RemoveTasks => {
                self.write(|object| drop(object["spec"].as_object_mut().unwrap().remove("gracefulEvictionTasks")));
            }
            Event::SyncWorks => self.sync_works(),
            Event::Report { healthy, has_status } => self.report(*healthy, *has_status),
            Event::Fail => {
                let Some(chosen) = self.chosen() else { return };
                if let Some(mut item) = self.item(chosen).cloned() {
                    item["health"] = json!("Unhealthy");
                    self.set_item(chosen, Some(item));
                }
            }
            Event::EditTemplate { value } => self.template["spec"]["other"] = json!(value),
            Event::DeleteWork => {
                if let Some(chosen) = self.chosen() {
                    self.works[chosen] = None;
                }
            }
            Event::Schedule { .. } => {}
        }
    }
}

#[test]
fn state_is_delivered_or_owed_or_said_to_be_missing() {
    hold((prop::collection::vec(event(), 1..40), any::<bool>()), 600, |(events, proceed)| {
        let mut model = Model::new(if proceed { "Proceed" } else { "Block" });
        events.iter().for_each(|event| model.apply(event));
    });
}
