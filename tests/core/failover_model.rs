//! Random failovers in a small model of Karmada's controllers. The laws hold for all events in any order.
//!
//! The model's writers work as the real ones do (source for each, in `karmada-io/karmada`: `GracefulEvictCluster`
//! removes the cluster and appends at most one task for it; the scheduler keeps clear of clusters with a task; statuses
//! change without a request that the policy sees; a stale or an old client replaces the task array without the fields
//! that it does not know).

use proptest::prelude::*;
use serde_json::{Value, json};
use stateful_failover::cluster::NoCluster;
use stateful_failover::history::{History, Phase, Record};
use stateful_failover::{Outcome, Request, Settings, evaluate};

use crate::model::hold;

const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const ALIAS: &str = "example.io/job";

#[derive(Debug, Clone)]
enum Event {
    /// An eviction controller evicts the application from a cluster.
    Evict {
        cluster: usize,
        by_taint: bool,
        keep: bool,
    },
    /// The copies in both clusters are evicted in one write.
    EvictAll,
    Schedule {
        cluster: usize,
    },
    ScheduleTwo {
        first: usize,
        second: usize,
    },
    StampTasks,
    RemoveTask {
        cluster: usize,
    },
    RemoveAllTasks,
    /// The Work was created: the binding has an item for the cluster, without a status yet.
    Start {
        cluster: usize,
    },
    Healthy {
        cluster: usize,
    },
    Unhealthy {
        cluster: usize,
    },
    WorkGone {
        cluster: usize,
    },
    /// A client of an older API version writes the binding and drops the fields that it does not know.
    StaleWriter,
    /// Someone edits or removes the history.
    ForgeHistory {
        remove: bool,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let cluster = || 0..CLUSTERS.len();
    prop_oneof![
        4 => (cluster(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(cluster, by_taint, keep)| Event::Evict { cluster, by_taint, keep }),
        1 => Just(Event::EvictAll),
        4 => cluster().prop_map(|cluster| Event::Schedule { cluster }),
        1 => (cluster(), cluster()).prop_map(|(first, second)| Event::ScheduleTwo { first, second }),
        2 => Just(Event::StampTasks),
        2 => cluster().prop_map(|cluster| Event::RemoveTask { cluster }),
        1 => Just(Event::RemoveAllTasks),
        3 => cluster().prop_map(|cluster| Event::Start { cluster }),
        3 => cluster().prop_map(|cluster| Event::Healthy { cluster }),
        2 => cluster().prop_map(|cluster| Event::Unhealthy { cluster }),
        2 => cluster().prop_map(|cluster| Event::WorkGone { cluster }),
        1 => Just(Event::StaleWriter),
        1 => any::<bool>().prop_map(|remove| Event::ForgeHistory { remove }),
    ]
}

struct Model {
    stored: Value,
    settings: Settings,
    jobs: usize,
}

impl Model {
    fn new(on_missing: &str) -> Self {
        let rules = json!({"purgeMode": "Directly", "statePreservation": {"rules": [{"aliasLabelName": ALIAS, "jsonPath": "{.jobId}"}]}});
        Self {
            stored: json!({
                "metadata": {"name": "x", "namespace": "default", "annotations": {}},
                "spec": {
                    "resource": {"apiVersion": "flink.apache.org/v1beta1", "kind": "FlinkDeployment", "namespace": "default", "name": "x"},
                    "failover": {"application": rules, "cluster": rules},
                    "clusters": [{"name": "a"}],
                },
                "status": {"aggregatedStatus": [{"clusterName": "a", "health": "Healthy", "status": {"jobId": "job-0"}}]},
            }),
            settings: Settings::from_json(&json!({"preserve": {"onMissingState": on_missing, "historyLimit": 4}}))
                .unwrap(),
            jobs: 0,
        }
    }

    fn clusters(&self) -> Vec<String> {
        let clusters = self.stored["spec"]["clusters"].as_array().unwrap();
        clusters.iter().map(|cluster| cluster["name"].as_str().unwrap().to_owned()).collect()
    }

    fn has_task(&self, cluster: &str) -> bool {
        tasks(&self.stored).iter().any(|task| task["fromCluster"] == cluster)
    }

    fn history(&self) -> Vec<Record> {
        History::read(&self.stored).unwrap().records().to_vec()
    }

    fn is_healthy(&self, cluster: &str) -> bool {
        self.item(cluster).is_some_and(|item| item["health"] == "Healthy")
    }

    fn item(&self, cluster: &str) -> Option<&Value> {
        self.stored["status"]["aggregatedStatus"].as_array().unwrap().iter().find(|item| item["clusterName"] == cluster)
    }

    fn set_item(&mut self, cluster: &str, item: Option<Value>) {
        let items = self.stored["status"]["aggregatedStatus"].as_array_mut().unwrap();
        items.retain(|item| item["clusterName"] != cluster);
        items.extend(item);
    }

    /// Sends a write through the policy, and stores the result.
    fn write(&mut self, object: Value) {
        let before = self.history();
        let owed = before.last().filter(|record| record.phase.is_ongoing() && !record.state.is_empty()).cloned();
        let Some(result) = self.evaluate(&object) else { return };

        let again = self.evaluate(&result).expect("what was allowed is allowed again");
        assert_eq!(again, result, "idempotent");
        let mut forged = object.clone();
        forged["status"] = json!({"aggregatedStatus": CLUSTERS.map(|cluster| json!({"clusterName": cluster, "health": "Healthy", "status": {"jobId": "forged"}}))});
        let mut of_forged = self.evaluate(&forged).expect("a status of the request changes nothing");
        of_forged["status"] = result["status"].clone();
        assert_eq!(of_forged, result, "only the stored status is believed");

        let after = History::read(&result).unwrap().records().to_vec();
        check_monotone(&before, &after);
        check_tasks(&result, &after);
        if let Some(owed) = owed {
            self.check_owed(&owed, &after, &result);
        }
        self.stored = result;
    }

    fn evaluate(&self, object: &Value) -> Option<Value> {
        let request = json!({
            "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
            "namespace": "default", "name": "x", "operation": "UPDATE", "object": object, "oldObject": self.stored,
        })
        .to_string();
        let verdict = evaluate(&Request::from_json(&request).unwrap(), &self.settings, &NoCluster).parsed();
        match verdict.outcome {
            Outcome::Accept => Some(object.clone()),
            Outcome::Mutate(result) => Some(result),
            Outcome::Deny { .. } => None,
        }
    }

    /// A state that still has to be fed is kept until the application is healthy; the status of a copy that was never
    /// healthy does not replace it.
    fn check_owed(&self, owed: &Record, after: &[Record], result: &Value) {
        let record = after
            .iter()
            .rfind(|record| record.from == owed.from && record.time == owed.time || record.state == owed.state);
        assert!(record.is_some(), "the record of an owed state is gone: {owed:?} {after:?}");
        let newest = after.last().unwrap();
        if newest.state == owed.state || newest.phase == Phase::Recovered {
            return;
        }
        let was_healthy = self.is_healthy(&newest.from);
        let stands = owed.phase == Phase::Pending
            || tasks(result).iter().any(|task| task["fromCluster"] == *owed.from && task["suppressDeletion"] != true);
        // The stored status may show that the failover had ended before the write.
        let had_ended = self.had_started(owed);
        let ran_before = owed.from != newest.from && owed.before.contains(&newest.from);
        assert!(was_healthy || ran_before || !stands || had_ended, "{owed:?} was replaced by {newest:?}");
    }

    fn had_started(&self, owed: &Record) -> bool {
        owed.phase == Phase::Pending && owed.to.iter().any(|cluster| self.item(cluster).is_some())
    }

    fn apply(&mut self, event: &Event) {
        let mut object = self.stored.clone();
        match event {
            Event::Evict { cluster, by_taint, keep } => {
                if !self.evict(&mut object, CLUSTERS[*cluster], *by_taint, *keep) {
                    return;
                }
                self.write(object);
            }
            Event::EvictAll => {
                for cluster in self.clusters() {
                    self.evict(&mut object, &cluster, false, false);
                }
                self.write(object);
            }
            Event::Schedule { cluster } if !self.has_task(CLUSTERS[*cluster]) => {
                object["spec"]["clusters"] = json!([{"name": CLUSTERS[*cluster]}]);
                self.write(object);
            }
            Event::ScheduleTwo { first, second }
                if first != second && !self.has_task(CLUSTERS[*first]) && !self.has_task(CLUSTERS[*second]) =>
            {
                object["spec"]["clusters"] = json!([{"name": CLUSTERS[*first]}, {"name": CLUSTERS[*second]}]);
                self.write(object);
            }
            Event::StampTasks => {
                for task in tasks_mut(&mut object) {
                    task.as_object_mut().unwrap().entry("creationTimestamp").or_insert(json!("2026-11-30T03:30:46Z"));
                }
                self.write(object);
            }
            Event::RemoveTask { cluster } => {
                tasks_mut(&mut object).retain(|task| task["fromCluster"] != CLUSTERS[*cluster]);
                self.write(object);
            }
            Event::RemoveAllTasks => {
                object["spec"].as_object_mut().unwrap().remove("gracefulEvictionTasks");
                self.write(object);
            }
            Event::Start { cluster }
                if self.clusters().contains(&CLUSTERS[*cluster].to_owned())
                    && self.item(CLUSTERS[*cluster]).is_none() =>
            {
                self.set_item(
                    CLUSTERS[*cluster],
                    Some(json!({"clusterName": CLUSTERS[*cluster], "health": "Unknown"})),
                );
            }
            Event::Healthy { cluster } | Event::Unhealthy { cluster } if self.item(CLUSTERS[*cluster]).is_some() => {
                self.jobs += 1;
                let health = if matches!(event, Event::Healthy { .. }) { "Healthy" } else { "Unhealthy" };
                let status = json!({"jobId": format!("job-{}", self.jobs)});
                self.set_item(
                    CLUSTERS[*cluster],
                    Some(json!({"clusterName": CLUSTERS[*cluster], "health": health, "status": status})),
                );
            }
            Event::WorkGone { cluster } if !self.clusters().contains(&CLUSTERS[*cluster].to_owned()) => {
                self.set_item(CLUSTERS[*cluster], None);
            }
            Event::StaleWriter => {
                for task in tasks_mut(&mut object) {
                    let task = task.as_object_mut().unwrap();
                    task.remove("preservedLabelState");
                    task.remove("clustersBeforeFailover");
                }
                self.write(object);
            }
            Event::ForgeHistory { remove } => {
                let annotations = object["metadata"]["annotations"].as_object_mut().unwrap();
                annotations.remove("stateful-failover/history");
                if !remove {
                    annotations.insert("stateful-failover/history".to_owned(), json!("[{\"type\":\"cluster\",\"from\":\"z\",\"state\":{\"example.io/job\":\"forged\"},\"phase\":\"Pending\"}]"));
                }
                self.write(object);
            }
            _ => {}
        }
    }

    fn evict(&self, object: &mut Value, cluster: &str, by_taint: bool, keep: bool) -> bool {
        let clusters = object["spec"]["clusters"].as_array_mut().unwrap();
        let count = clusters.len();
        clusters.retain(|scheduled| scheduled["name"] != cluster);
        if clusters.len() == count {
            return false;
        }
        if !self.has_task(cluster) {
            let (reason, producer) = if by_taint {
                ("TaintUntolerated", "TaintManager")
            } else {
                ("ApplicationFailure", "resource-binding-application-failover-controller")
            };
            let mut task =
                json!({"fromCluster": cluster, "purgeMode": "Directly", "reason": reason, "producer": producer});
            if keep {
                task["purgeMode"] = json!("Never");
                task["suppressDeletion"] = json!(true);
            }
            tasks_mut(object).push(task);
        }
        true
    }
}

fn tasks(binding: &Value) -> Vec<Value> {
    binding["spec"]["gracefulEvictionTasks"].as_array().cloned().unwrap_or_default()
}

fn tasks_mut(binding: &mut Value) -> &mut Vec<Value> {
    let tasks = binding["spec"].as_object_mut().unwrap().entry("gracefulEvictionTasks").or_insert(json!([]));
    tasks.as_array_mut().unwrap()
}

/// Records keep their order and their content; closed ones stay closed, and open ones are never dropped.
fn check_monotone(before: &[Record], after: &[Record]) {
    let identity = |record: &Record| {
        (
            record.move_type,
            record.from.clone(),
            record.before.clone(),
            record.state.clone(),
            record.missing.clone(),
            record.carried_from.clone(),
        )
    };
    // Compared from the newest record on, since the oldest ones may be dropped.
    let mut rest = after.iter().rev();
    for old in before.iter().rev() {
        let mut candidates = rest.clone();
        let is_it = |new: &&Record| {
            let is_same = identity(new) == identity(old) && (old.time.is_none() || new.time == old.time);
            is_same && (old.phase.is_ongoing() || new.to == old.to)
        };
        match candidates.find(is_it) {
            Some(_) => rest = candidates,
            None => assert!(!old.phase.is_ongoing(), "the open record {old:?} is gone or reopened: {after:?}"),
        }
    }
    let open = after.iter().filter(|record| record.phase == Phase::Pending).count();
    assert!(open <= 1, "{after:?}");
    assert!(
        after.len() <= 4 || after.iter().all(|record| record.phase.is_ongoing()),
        "the limit drops closed records: {after:?}"
    );
}

/// The task of a record has what Karmada's own feed needs.
fn check_tasks(binding: &Value, history: &[Record]) {
    for task in tasks(binding) {
        let Some(record) =
            history.iter().rfind(|record| task["fromCluster"] == record.from && record.phase == Phase::Evicted)
        else {
            continue;
        };
        if !record.state.is_empty() {
            assert_eq!(task["preservedLabelState"], json!(record.state), "{record:?}");
        }
        assert_eq!(task["clustersBeforeFailover"], json!(record.before), "{record:?}");
    }
    assert!(!history.iter().any(|record| record.state.values().any(|value| value == "forged")));
}

#[test]
fn the_laws_hold() {
    hold((prop::collection::vec(event(), 1..40), any::<bool>()), 600, |(events, proceed)| {
        let mut model = Model::new(if proceed { "Proceed" } else { "Block" });
        events.iter().for_each(|event| model.apply(event));
    });
}
