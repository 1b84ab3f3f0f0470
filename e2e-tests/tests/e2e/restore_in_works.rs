//! Restore rules in the control plane's settings: carried out on the manifest in a Work, on the native core and on the module.

use e2e_tests::case;
use e2e_tests::host::Host;
use e2e_tests::policy::{Answer, evaluate};
use serde_json::{Value, json};

const JOB: &str = "example.io/job";
const RESTORED: &str = "stateful-failover/restored";
const STATE: &str = "stateful-failover/state";

/// A binding for `resource` whose application moved from m1 to m2 with `state`.
fn binding(kind: &str, resource: &Value, state: &Value) -> Value {
    let id = format!("{}.karmada.io/permanent-id", kind.to_lowercase());
    let history = json!([{"type": "application", "from": "m1", "before": ["m1"], "to": ["m2"], "purgeMode": "Directly",
        "state": state, "phase": "Evicted"}]);
    let metadata = &resource["metadata"];
    let mut binding = json!({
        "apiVersion": "work.karmada.io/v1alpha2", "kind": kind,
        "metadata": {"name": "x", "labels": {id: "1"}, "annotations": {"stateful-failover/history": history.to_string()}},
        "spec": {"clusters": [{"name": "m2"}], "resource": {
            "apiVersion": resource["apiVersion"], "kind": resource["kind"],
            "namespace": metadata["namespace"], "name": metadata["name"],
        }},
    });
    if kind == "ResourceBinding" {
        binding["metadata"]["namespace"] = json!("default");
    }
    binding
}

fn work(kind: &str, manifests: &[Value]) -> Value {
    let annotations = match kind {
        "ResourceBinding" => {
            json!({"resourcebinding.karmada.io/namespace": "default", "resourcebinding.karmada.io/name": "x"})
        }
        _ => json!({"clusterresourcebinding.karmada.io/name": "x"}),
    };
    let id = format!("{}.karmada.io/permanent-id", kind.to_lowercase());
    json!({
        "metadata": {"name": "x-1", "namespace": "karmada-es-m2", "labels": {id: "1"}, "annotations": annotations},
        "spec": {"workload": {"manifests": manifests}},
    })
}

fn request(group: &str, kind: &str, object: &Value, old: &Value) -> Value {
    json!({
        "kind": {"group": group, "version": "v1", "kind": kind},
        "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
        "operation": if old.is_null() { "CREATE" } else { "UPDATE" }, "object": object, "oldObject": old,
    })
}

fn write(work: &Value, old: &Value, settings: &Value, objects: &[Value]) -> (Answer, Value) {
    let request = request("work.karmada.io", "Work", work, old);
    let (answer, _) = evaluate(&request, settings, || Host::new(objects.to_vec()));
    let result = answer.apply(work).unwrap();
    (answer, result)
}

fn manifest_of(work: &Value, index: usize) -> &Value {
    &work["spec"]["workload"]["manifests"][index]
}

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "app", "namespace": "shop"}, "spec": {"replicas": 1}})
}

/// A rule that writes the job's name into a Deployment.
fn settings(on_update: &str) -> Value {
    json!({"restore": {"rules": [{
        "name": "resume", "match": {"apiGroups": ["apps"], "kinds": ["Deployment"]},
        "vars": {"job": {"state": JOB}},
        "set": [{"path": "/spec/job", "template": "{namespace}/{name}/{job}"}], "onUpdate": on_update,
    }]}})
}

/// Each case of a workload that is created with state, the examples among them, ends with the same object, whether its rules are carried out in the Work or in the member cluster.
#[test]
fn examples_end_the_same_on_both_sides() {
    let (mut count, mut changed) = (0, 0);
    for case in case::all().unwrap() {
        let Some(of_case) = case.request.as_ref().filter(|request| request["operation"] == "CREATE") else { continue };
        let Some(state) = of_case["object"]["metadata"]["annotations"][STATE].as_str() else { continue };
        if case.fails_lookups() {
            continue;
        }
        let state: Value = serde_json::from_str(state).unwrap();
        let mut template = of_case["object"].clone();
        template["metadata"]["annotations"].as_object_mut().unwrap().remove(STATE);
        if template["metadata"].get("name").is_none() {
            // Karmada propagates no objects without a name.
            template["metadata"]["name"] = json!("x");
        }
        let mut objects = case.objects().to_vec();
        objects.push(binding("ResourceBinding", &template, &state));
        let created = work("ResourceBinding", &[template]);

        let (at_control_plane, in_work) = write(&created, &Value::Null, &case.settings, &objects);
        let (_, fed) = write(&created, &Value::Null, &json!({}), &objects);
        let kind = &of_case["kind"];
        let (group, kind) = (kind["group"].as_str().unwrap(), kind["kind"].as_str().unwrap());
        let request = request(group, kind, manifest_of(&fed, 0), &Value::Null);
        let (answer, _) = evaluate(&request, &case.settings, || Host::new(objects.clone()));
        assert_eq!(answer.accepted, at_control_plane.accepted, "{}: {:?}", case.name, answer.message);
        if !answer.accepted {
            continue;
        }
        let in_member = answer.apply(&request["object"]).unwrap();
        assert_eq!(*manifest_of(&in_work, 0), in_member, "{}", case.name);
        changed += usize::from(in_member["metadata"]["annotations"].get(RESTORED).is_some());

        // Both at once: what arrives from the Work is done already.
        let mut arrived = request.clone();
        arrived["object"] = in_member;
        let (answer, _) = evaluate(&arrived, &case.settings, || Host::new(objects.clone()));
        assert_eq!(answer.mutated_object, None, "{}", case.name);
        count += 1;
    }
    assert!(count >= 27 && changed >= 27, "{changed} of {count} are changed");
}

/// Only the binding's resource is restored, whatever else is in the Work and in whichever version it is written.
#[test]
fn only_the_resource_of_the_binding() {
    let mut other = deployment();
    other["metadata"]["name"] = json!("other");
    other["metadata"]["annotations"] = json!({STATE: json!({JOB: "j1"}).to_string()});
    let mut other_version = deployment();
    other_version["apiVersion"] = json!("apps/v1beta2");
    let config_map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "app", "namespace": "shop"}});
    for kind in ["ResourceBinding", "ClusterResourceBinding"] {
        let binding = binding(kind, &deployment(), &json!({JOB: "j1"}));
        let created = work(kind, &[config_map.clone(), other.clone(), other_version.clone()]);
        let (answer, result) = write(&created, &Value::Null, &settings("Keep"), &[binding]);
        assert_eq!(manifest_of(&result, 0), &config_map);
        assert_eq!(manifest_of(&result, 1), &other, "it is another application's");
        assert_eq!(manifest_of(&result, 2)["spec"]["job"], json!("shop/app/j1"), "built-ins come from the manifest");
        let record = json!({"resume": {"/spec/job": {"set": "shop/app/j1"}}}).to_string();
        assert_eq!(manifest_of(&result, 2)["metadata"]["annotations"][RESTORED], json!(record));
        assert_eq!(answer.audit_annotations.unwrap()["restore"], "rule `resume` set /spec/job");
    }
}

/// Karmada's later syncs rewrite the manifest from the template: the field stays, until the template sets it itself.
#[test]
fn later_syncs() {
    let objects = [binding("ResourceBinding", &deployment(), &json!({JOB: "j1"}))];
    let created = work("ResourceBinding", &[deployment()]);
    let (_, stored) = write(&created, &Value::Null, &settings("Keep"), &objects);

    let mut recovered = objects[0].clone();
    recovered["metadata"]["annotations"] = json!({});
    let mut edited = deployment();
    edited["spec"]["image"] = json!("v2");
    let (answer, synced) =
        write(&work("ResourceBinding", &[edited.clone()]), &stored, &settings("Keep"), &[recovered.clone()]);
    assert_eq!(manifest_of(&synced, 0)["spec"], json!({"replicas": 1, "image": "v2", "job": "shop/app/j1"}));
    assert_eq!(answer.audit_annotations.unwrap()["restore"], "rule `resume` put back /spec/job");

    edited["spec"]["job"] = json!("mine");
    let (_, wished) =
        write(&work("ResourceBinding", &[edited.clone()]), &synced, &settings("Keep"), &[recovered.clone()]);
    assert_eq!(manifest_of(&wished, 0)["spec"]["job"], json!("mine"), "a person's wish stays");
    assert_eq!(manifest_of(&wished, 0)["metadata"]["annotations"].get(RESTORED), None);
    let (_, again) = write(&work("ResourceBinding", &[edited]), &wished, &settings("Keep"), &[recovered]);
    assert_eq!(manifest_of(&again, 0)["spec"]["job"], json!("mine"));
}

/// A rule that comes into the settings after the failover.
#[test]
fn a_rule_that_is_added_later() {
    let objects = [binding("ResourceBinding", &deployment(), &json!({JOB: "j1"}))];
    let created = work("ResourceBinding", &[deployment()]);
    let (_, stored) = write(&created, &Value::Null, &json!({}), &objects);
    for (on_update, job) in [("Keep", None), ("Ignore", None), ("Apply", Some(json!("shop/app/j1")))] {
        let (_, synced) = write(&created, &stored, &settings(on_update), &objects);
        assert_eq!(manifest_of(&synced, 0)["spec"].get("job"), job.as_ref(), "{on_update}");
        let mut mine = deployment();
        mine["spec"]["job"] = json!("mine");
        let (_, wished) = write(&work("ResourceBinding", &[mine.clone()]), &synced, &settings(on_update), &objects);
        let (_, wished) = write(&work("ResourceBinding", &[mine]), &wished, &settings(on_update), &objects);
        assert_eq!(manifest_of(&wished, 0)["spec"]["job"], json!("mine"), "{on_update}: an edit stays");
    }
}

/// The state changes while the copy runs, as in a second move to the same cluster.
#[test]
fn another_state() {
    let binding = |job: &str| [binding("ResourceBinding", &deployment(), &json!({JOB: job}))];
    let created = work("ResourceBinding", &[deployment()]);
    for (on_update, job) in [("Keep", "shop/app/j1"), ("Apply", "shop/app/j2")] {
        let (_, stored) = write(&created, &Value::Null, &settings(on_update), &binding("j1"));
        let (_, synced) = write(&created, &stored, &settings(on_update), &binding("j2"));
        assert_eq!(manifest_of(&synced, 0)["spec"]["job"], json!(job), "{on_update}");
    }
}

/// A failing rule denies the Work; the message names the rule, the manifest and the Work.
#[test]
fn a_rule_that_fails() {
    let mut broken = deployment();
    broken["spec"] = json!("text");
    let objects = [binding("ResourceBinding", &broken, &json!({JOB: "j1"}))];
    let (answer, _) = write(&work("ResourceBinding", &[broken]), &Value::Null, &settings("Keep"), &objects);
    assert!(!answer.accepted);
    assert_eq!(
        answer.message.unwrap(),
        "rule `resume`: Deployment `shop/app` in Work `karmada-es-m2/x-1`: cannot write `/spec/job`: `/spec` is a string, \
         expected an object"
    );
    assert_eq!(answer.audit_annotations.unwrap()["restore"], "rule `resume` failed");
}

/// ConfigMaps come from the API server that the Work is written to, each read once.
#[test]
fn config_maps_of_the_control_plane() {
    let mut settings = settings("Keep");
    let config_map = json!({"namespace": "dr", "name": "latest", "key": "{job}"});
    settings["restore"]["rules"][0]["vars"]["checkpoint"] = json!({"configMap": config_map, "onMissing": "Reject"});
    settings["restore"]["rules"][0]["set"][0]["template"] = json!("{job}/{checkpoint}");
    let mut second = settings["restore"]["rules"][0].clone();
    second["name"] = json!("second");
    second["set"][0]["path"] = json!("/spec/second");
    settings["restore"]["rules"].as_array_mut().unwrap().push(second);
    let latest = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "dr", "name": "latest"},
        "data": {"j1": "chk-7"}});
    let binding = binding("ResourceBinding", &deployment(), &json!({JOB: "j1"}));
    let created = work("ResourceBinding", &[deployment()]);
    let request = request("work.karmada.io", "Work", &created, &Value::Null);
    let (answer, host) = evaluate(&request, &settings, || Host::new(vec![binding.clone(), latest.clone()]));
    let result = answer.apply(&created).unwrap();
    assert_eq!(manifest_of(&result, 0)["spec"], json!({"replicas": 1, "job": "j1/chk-7", "second": "j1/chk-7"}));
    let looked_up: Vec<String> = host.lookups().into_iter().map(|lookup| lookup.kind).collect();
    assert_eq!(looked_up, ["ResourceBinding", "ConfigMap"]);
    let (answer, _) = evaluate(&request, &settings, || Host::new(vec![binding.clone()]));
    assert_eq!(
        answer.message.unwrap(),
        "rule `resume`: Deployment `shop/app` in Work `karmada-es-m2/x-1`: variable `checkpoint` has no value (ConfigMap \
         `dr/latest` does not exist) and `onMissing` is Reject"
    );
}

/// What was restored is kept while the binding can't be read; nothing is restored that was not fed.
#[test]
fn a_binding_that_cannot_be_read() {
    let objects = [binding("ResourceBinding", &deployment(), &json!({JOB: "j1"}))];
    let created = work("ResourceBinding", &[deployment()]);
    let (_, stored) = write(&created, &Value::Null, &settings("Keep"), &objects);
    let unreadable = || {
        let mut host = Host::default();
        host.fixed = Some(Err("bindings is forbidden: Forbidden".to_owned()));
        host
    };
    for (old, job) in [(&stored, Some(json!("shop/app/j1"))), (&Value::Null, None)] {
        let request = request("work.karmada.io", "Work", &created, old);
        let (answer, _) = evaluate(&request, &settings("Keep"), unreadable);
        assert!(!answer.accepted, "Reject is the default");
        let mut settings = settings("Keep");
        settings["feed"] = json!({"onLookupFailure": "Accept"});
        let (answer, _) = evaluate(&request, &settings, unreadable);
        assert!(answer.warnings()[0].starts_with("state not fed: cannot read ResourceBinding `default/x`"));
        assert_eq!(manifest_of(&answer.apply(&created).unwrap(), 0)["spec"].get("job"), job.as_ref());
    }
}

/// A person's annotation on the template switches the rules off, here as in a member.
#[test]
fn skip() {
    let mut template = deployment();
    template["metadata"]["annotations"] = json!({"stateful-failover/skip": "restored by hand"});
    let objects = [binding("ResourceBinding", &template, &json!({JOB: "j1"}))];
    let (answer, result) = write(&work("ResourceBinding", &[template]), &Value::Null, &settings("Keep"), &objects);
    assert_eq!(manifest_of(&result, 0)["spec"], json!({"replicas": 1}));
    assert_eq!(answer.warnings(), ["restore skipped, `stateful-failover/skip` says: `restored by hand`"]);
}

/// Other rules in a member do not undo those of the control plane, nor the other way round.
#[test]
fn different_rules_on_both_sides() {
    let objects = [binding("ResourceBinding", &deployment(), &json!({JOB: "j1"}))];
    let created = work("ResourceBinding", &[deployment()]);
    let (_, stored) = write(&created, &Value::Null, &settings("Keep"), &objects);
    let manifest = manifest_of(&stored, 0);
    let mut members = settings("Keep");
    members["restore"]["rules"][0]["name"] = json!("second");
    members["restore"]["rules"][0]["set"] = json!([{"path": "/spec/second", "template": "{job}"}]);

    let create = request("apps", "Deployment", manifest, &Value::Null);
    let (answer, _) = evaluate(&create, &members, Host::default);
    let in_member = answer.apply(manifest).unwrap();
    assert_eq!(in_member["spec"], json!({"replicas": 1, "job": "shop/app/j1", "second": "j1"}));
    let record = json!({"resume": {"/spec/job": {"set": "shop/app/j1"}}, "second": {"/spec/second": {"set": "j1"}}});
    assert_eq!(in_member["metadata"]["annotations"][RESTORED], json!(record.to_string()));

    // Karmada applies the manifest again, with its own annotation: the member's field is put back, the other one stays.
    let update = request("apps", "Deployment", manifest, &in_member);
    let (answer, _) = evaluate(&update, &members, Host::default);
    assert_eq!(answer.apply(manifest).unwrap(), in_member);
}
