//! Random writers of one restored workload: Karmada's syncs, an autoscaler by way of `/scale`, people who edit the
//! object or its template, and the annotation that switches restore off. Nobody's edit is overwritten, and what Karmada
//! reverts comes back.

use proptest::prelude::*;
use serde_json::{Value, json};
use stateful_failover::cluster::NoCluster;
use stateful_failover::{Outcome, Request, Settings, evaluate};

use crate::model::hold;

const RESTORED: i64 = 7;

#[derive(Debug, Clone)]
enum Event {
    /// Karmada applies the template again.
    Sync,
    /// Somebody changes the field in the template; `None` removes it.
    EditTemplate(Option<i64>),
    /// Somebody changes another field in the template.
    EditOther(i64),
    /// Somebody changes the field in the object.
    Edit(Option<i64>),
    /// An autoscaler changes the field by way of a subresource, which the policy does not see.
    Scale(i64),
    /// Somebody switches restore off or on, in the template.
    Skip(bool),
}

fn event() -> impl Strategy<Value = Event> {
    let value = || prop_oneof![3 => (1..6_i64).prop_map(Some), 1 => Just(Some(RESTORED)), 1 => Just(None)];
    prop_oneof![
        6 => Just(Event::Sync),
        1 => value().prop_map(Event::EditTemplate),
        1 => any::<i64>().prop_map(Event::EditOther),
        2 => value().prop_map(Event::Edit),
        2 => prop_oneof![1..6_i64, Just(RESTORED)].prop_map(Event::Scale),
        2 => any::<bool>().prop_map(Event::Skip),
    ]
}

fn template(replicas: Option<i64>) -> Value {
    let mut template = json!({
        "metadata": {"name": "x", "namespace": "default", "annotations": {"stateful-failover/state": "{\"ready\":\"7\"}"}},
        "spec": {"other": 0},
    });
    set(&mut template, replicas);
    template
}

fn set(object: &mut Value, replicas: Option<i64>) {
    match replicas {
        Some(replicas) => object["spec"]["replicas"] = json!(replicas),
        None => drop(object["spec"].as_object_mut().unwrap().remove("replicas")),
    }
}

fn replicas(object: &Value) -> Option<i64> {
    object["spec"]["replicas"].as_i64()
}

struct Model {
    settings: Settings,
    template: Value,
    stored: Value,
    /// The value before the rule, while the field is the rule's; `None` once a person has changed it.
    was: Option<Option<i64>>,
}

impl Model {
    fn new(replicas: Option<i64>, on_update: &str) -> Self {
        let settings = json!({"restore": {"rules": [{
            "name": "r", "match": {"apiGroups": ["apps"], "kinds": ["Deployment"]},
            "vars": {"ready": {"state": "ready"}}, "onUpdate": on_update,
            "set": [{"path": "/spec/replicas", "valueFrom": {"var": "ready", "as": "Integer"}}],
        }]}});
        let template = template(replicas);
        let mut model =
            Self { settings: Settings::from_json(&settings).unwrap(), stored: Value::Null, template, was: None };
        model.stored = model.evaluate(&model.template);
        assert_eq!(self::replicas(&model.stored), Some(RESTORED));
        // Where the template has the value already, there is nothing to restore or to keep.
        model.was = (replicas != Some(RESTORED)).then_some(replicas);
        model
    }

    fn evaluate(&self, object: &Value) -> Value {
        let request = json!({
            "kind": {"group": "apps", "kind": "Deployment"}, "namespace": "default", "name": "x",
            "operation": if self.stored.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": self.stored,
        })
        .to_string();
        match evaluate(&Request::from_json(&request).unwrap(), &self.settings, &NoCluster).parsed().outcome {
            Outcome::Accept => object.clone(),
            Outcome::Mutate(result) => result,
            Outcome::Deny { message, .. } => panic!("{message}"),
        }
    }

    /// Writes `object`, and checks the field.
    fn write(&mut self, object: Value) {
        let result = self.evaluate(&object);
        assert_eq!(result["spec"]["other"], object["spec"]["other"]);
        let (wanted, stands) = (replicas(&object), replicas(&self.stored) == Some(RESTORED));
        let is_skipped = object["metadata"]["annotations"].get("stateful-failover/skip").is_some();
        let expected = match self.was {
            // The rule's own value, or one that the rule finds reverted.
            Some(was) if !is_skipped && stands && (wanted.is_none() || wanted == was) => Some(RESTORED),
            _ => wanted,
        };
        assert_eq!(replicas(&result), expected, "{object} on {}", self.stored);
        if expected != Some(RESTORED) && !is_skipped {
            self.was = None;
        } else if wanted != Some(RESTORED) && self.was.is_some() && !is_skipped {
            self.was = Some(wanted);
        }
        let again = {
            let request = self.evaluate(&result);
            assert_eq!(request, result, "idempotent");
            request
        };
        self.stored = again;
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::Sync => {
                let mut object = self.template.clone();
                // Karmada keeps the annotations that do not come from the template.
                if let Some(record) = self.stored["metadata"]["annotations"].get("stateful-failover/restored") {
                    object["metadata"]["annotations"]["stateful-failover/restored"] = record.clone();
                }
                self.write(object);
            }
            Event::EditTemplate(replicas) => set(&mut self.template, *replicas),
            Event::EditOther(value) => self.template["spec"]["other"] = json!(value),
            Event::Edit(replicas) => {
                let mut object = self.stored.clone();
                set(&mut object, *replicas);
                self.write(object);
            }
            Event::Scale(replicas) => set(&mut self.stored, Some(*replicas)),
            Event::Skip(is_on) => {
                let annotations = self.template["metadata"]["annotations"].as_object_mut().unwrap();
                match is_on {
                    true => drop(annotations.insert("stateful-failover/skip".to_owned(), json!("by hand"))),
                    false => drop(annotations.remove("stateful-failover/skip")),
                }
            }
        }
    }
}

#[test]
fn nobodys_edit_is_overwritten() {
    let replicas = prop_oneof![Just(None), Just(Some(RESTORED)), (1..6_i64).prop_map(Some)];
    let on_update = prop::sample::select(vec!["Keep", "Apply"]);
    hold((replicas, on_update, prop::collection::vec(event(), 1..30)), 600, |(replicas, on_update, events)| {
        let mut model = Model::new(replicas, on_update);
        events.iter().for_each(|event| model.apply(event));
    });
}
