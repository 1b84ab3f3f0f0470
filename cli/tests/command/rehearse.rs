//! `rehearse`.

use std::path::PathBuf;

use e2e_tests::policy::Native;
use e2e_tests::project;
use e2e_tests::recording::{Recorded, read};
use e2e_tests::replay::End;
use serde_json::{Value, json};

use crate::server::{ApiServer, Ran, command, control_plane, many};

const SETTINGS: &str = "examples/flinkdeployment/settings.yaml";

fn settings() -> String {
    project(SETTINGS).display().to_string()
}

fn recording(name: &str) -> Vec<Recorded> {
    read(&project(&format!("testdata/recordings/{name}.jsonl"))).unwrap()
}

fn clusters(binding: &Value) -> Vec<&str> {
    let clusters = binding.pointer("/spec/clusters").and_then(Value::as_array);
    clusters.into_iter().flatten().filter_map(|cluster| cluster["name"].as_str()).collect()
}

/// The binding as it was stored before the application first left a cluster, and the object in member1 as a template.
fn before_the_failover(recording: &[Recorded]) -> (Value, Value) {
    let is_workload = |recorded: &&Recorded| {
        recorded.apiserver == "member1" && matches!(recorded.text("/kind/kind"), "FlinkDeployment" | "Deployment")
    };
    let workload = &recording.iter().find(is_workload).unwrap().request;
    let binding = recording.iter().find(|recorded| {
        let (object, old) = (&recorded.request["object"], &recorded.request["oldObject"]);
        recorded.text("/kind/kind") == "ResourceBinding"
            && object["spec"]["resource"]["kind"] == workload["kind"]["kind"]
            && clusters(old).iter().any(|cluster| !clusters(object).contains(cluster))
    });
    let mut template = workload["object"].clone();
    for field in ["labels", "annotations"] {
        template["metadata"].as_object_mut().unwrap().remove(field);
    }
    (binding.unwrap().request["oldObject"].clone(), template)
}

fn server_before(name: &str) -> ApiServer {
    let (binding, template) = before_the_failover(&recording(name));
    ApiServer::start(control_plane(vec![binding], vec![template]))
}

fn only(ran: &Ran) -> Value {
    let rows = ran.json();
    assert_eq!(rows.as_array().unwrap().len(), 1, "{rows}");
    rows[0].clone()
}

/// The recorded failover really ended with that state, and in that field.
#[test]
fn a_recording_rehearsed_beforehand_ends_as_it_was_recorded() {
    let settings_value: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(project(SETTINGS)).unwrap()).unwrap();
    for name in [
        "application-failover",
        "application-failover-native",
        "application-failover-v1.12",
        "cluster-failover",
        "late-health",
        "move-and-back",
        "repeated-failover",
        "siblings",
        "unreachable-source",
    ] {
        let ran = server_before(name).run(&["rehearse", "--settings", &settings(), "-o", "json"]);
        assert_eq!((ran.code, ran.error.as_str()), (0, ""), "{name}: {ran:?}");
        let recording = recording(name);
        // The copy that was fed first: a recorded way home is another move.
        let first: Vec<Recorded> = recording
            .iter()
            .take_while(|recorded| {
                !(recorded.text("/kind/kind") == "ResourceBinding"
                    && clusters(&recorded.request["oldObject"]) == ["member2"]
                    && clusters(&recorded.request["object"]) == ["member1"])
            })
            .cloned()
            .collect();
        let end = End::of(&Native, settings_value.clone(), &first, "member2").unwrap();
        let row = only(&ran);
        assert_eq!((row["from"].as_str(), row["to"].as_str()), (Some("member1"), Some("member2")), "{name}");
        assert_eq!(row["state"], end.state, "{name}");
        let restored: Vec<Value> = row["restored"].as_object().unwrap().values().cloned().collect();
        assert_eq!(restored, end.restored, "{name}");
        assert_eq!(row["verdict"], "ready", "{name}: {row}");
    }
}

#[test]
fn a_table_for_people() {
    let ran = server_before("application-failover").run(&["rehearse", "--settings", &settings()]);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["NAMESPACE", "BINDING", "FAILOVER", "FROM", "TO", "STATE", "RESTORED", "VERDICT"]
    );
    assert_eq!(
        lines[1].split_whitespace().collect::<Vec<_>>(),
        [
            "default",
            "s1-appfailover-flinkdeployment",
            "application,cluster",
            "member1",
            "member2",
            "failover-jobid=b8b4ab8cbff349dda3acd97361d7f996",
            "/spec/job/initialSavepointPath",
            "ready"
        ]
    );
    // The recorded status has a checkpoint of December 2024.
    assert!(ran.out.contains("the newest time in the status of member1 is"), "{}", ran.out);
    assert!(lines.last().unwrap().starts_with("ready: 1, degraded: 0, blocked: 0; bindings without state rules: 0"));
    assert!(!ran.out.contains('\u{1b}'), "no colours where there is not a terminal");

    let wide = server_before("application-failover").run(&["rehearse", "--settings", &settings(), "-o", "wide"]);
    assert!(wide.out.contains("/latest"), "{}", wide.out);
    assert!(wide.out.contains("2024-12-17T19:08:11.693Z"), "{}", wide.out);
    let yaml = server_before("application-failover").run(&["rehearse", "--settings", &settings(), "-o", "yaml"]);
    let rows: Value = serde_yaml_ng::from_str(&yaml.out).unwrap();
    assert_eq!(rows[0]["failover"], json!(["application", "cluster"]));
}

/// A change to what is in the API server, and what it makes of the rehearsal.
type Change = fn(&mut Vec<crate::server::Served>);

#[test]
fn what_stands_in_the_way_is_said_with_its_remedy() {
    let cases: [(&str, Change, &str, &str); 8] = [
        (
            "a value is missing",
            |served| served[0].objects[0]["status"]["aggregatedStatus"][0]["status"]["jobStatus"] = json!({}),
            "blocked",
            "`jobId` is not found; fix the jsonPath",
        ),
        (
            "no other cluster",
            |served| served[2].objects.truncate(1),
            "blocked",
            "the placement allows no other cluster than member1; add one",
        ),
        ("no template", |served| served[3].objects.clear(), "blocked", "does not exist"),
        ("no such kind", |served| drop(served.remove(3)), "blocked", "install its CRD"),
        (
            "no status",
            |served| served[0].objects[0]["status"] = json!({}),
            "degraded",
            "no status of the application was collected from member1",
        ),
        (
            "not ready",
            |served| served[2].objects[1]["status"] = json!({}),
            "degraded",
            "member2 is not ready now; see `kubectl describe cluster member2`",
        ),
        (
            "not fed",
            |served| {
                for failover in ["application", "cluster"] {
                    served[0].objects[0]["spec"]["failover"][failover]["purgeMode"] = json!("Gracefully");
                }
            },
            "degraded",
            "purge mode Gracefully is not fed; write `purgeMode: Directly`",
        ),
        (
            "several clusters",
            |served| {
                let clusters = json!([{"name": "member1"}, {"name": "member3"}]);
                served[0].objects[0]["spec"]["clusters"] = clusters;
            },
            "degraded",
            "state is fed to one cluster only",
        ),
    ];
    for (name, change, verdict, reason) in cases {
        let (binding, template) = before_the_failover(&recording("application-failover"));
        let mut served = control_plane(vec![binding], vec![template]);
        change(&mut served);
        let ran = ApiServer::start(served).run(&["rehearse", "--settings", &settings(), "-o", "json"]);
        assert_eq!(ran.code, i32::from(verdict == "blocked"), "{name}: {ran:?}");
        let rows = ran.json();
        let row = rows.as_array().unwrap().iter().find(|row| row["from"] == "member1").unwrap();
        assert_eq!(row["verdict"], verdict, "{name}: {row}");
        let reasons = row["reasons"].to_string();
        assert!(reasons.contains(reason), "{name}: {reasons}");
    }
}

#[test]
fn a_kind_without_health_and_a_state_that_nothing_restores() {
    let (binding, template) = before_the_failover(&recording("application-failover"));
    let server = ApiServer::start(control_plane(vec![binding], vec![template]));
    let ran = server.run(&["rehearse", "-o", "json"]);
    assert_eq!(ran.code, 0);
    let rows = ran.json();
    assert_eq!(rows[0]["verdict"], "degraded");
    assert!(
        rows[0]["reasons"].to_string().contains("no restore rule writes the state into a FlinkDeployment"),
        "{rows}"
    );
    let rows = server.run(&["rehearse", "--restored-elsewhere", "-o", "json"]).json();
    assert_eq!(rows[0]["verdict"], "ready", "{rows}");
}

/// A ConfigMap that a rule needs is looked up where the policy would look it up.
#[test]
fn lookups_go_to_the_api_server() {
    let (binding, template) = before_the_failover(&recording("application-failover"));
    let configmap_settings = project("examples/flinkdeployment-configmap/settings.yaml").display().to_string();
    let rehearse = |objects: Vec<Value>| {
        let mut template = template.clone();
        template["spec"]["flinkConfiguration"]["state.checkpoints.dir"] = json!("s3://flink/checkpoints");
        let mut served = control_plane(vec![binding.clone()], vec![template]);
        served[5].objects = objects;
        let server = ApiServer::start(served);
        let ran = server.run(&["rehearse", "--settings", &configmap_settings, "-o", "json"]);
        (ran, server.requests())
    };
    let (ran, requests) = rehearse(Vec::new());
    assert_eq!(ran.code, 1, "{ran:?}");
    let latest = requests.iter().filter(|request| request.contains("/configmaps/")).collect::<Vec<_>>();
    assert_eq!(latest.len(), 1, "one lookup, however often it is asked: {requests:?}");
    let configmap = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "flink-dr", "name": "latest-checkpoints"},
        "data": {"b8b4ab8cbff349dda3acd97361d7f996": "chk-42"},
    });
    let (ran, _) = rehearse(vec![configmap]);
    assert!(ran.out.contains("b8b4ab8cbff349dda3acd97361d7f996/chk-42"), "{ran:?}");
}

/// Nothing is ever written to a cluster.
#[test]
fn only_reads() {
    let server = server_before("application-failover");
    for arguments in [
        vec!["rehearse", "-A"],
        vec!["rehearse", "s1-appfailover-flinkdeployment", "-n", "default"],
        vec!["rehearse", "s1-appfailover-flinkdeployment"],
        vec!["history", "-A"],
    ] {
        let ran = server.run(&arguments);
        assert_ne!(ran.code, 2, "{ran:?}");
    }
    let requests = server.requests();
    assert!(requests.len() > 10, "{requests:?}");
    // GET is also what LIST and WATCH are sent as.
    assert!(requests.iter().all(|request| request.starts_with("GET ")), "{requests:?}");
}

#[test]
fn many_bindings_come_in_pages() {
    let (binding, template) = before_the_failover(&recording("application-failover"));
    let (bindings, templates) = many(1000, &binding, &template);
    let server = ApiServer::start(control_plane(bindings, templates));
    let ran = server.run(&["rehearse", "-A", "--settings", &settings(), "-o", "json"]);
    assert_eq!(ran.code, 0, "{}", ran.error);
    assert_eq!(ran.json().as_array().unwrap().len(), 1000);
    let requests = server.requests();
    let lists = requests.iter().filter(|request| request.contains("/resourcebindings?")).count();
    assert_eq!(lists, 4, "250 at once");
    assert!(requests.iter().any(|request| request.contains("continue=750")));
    let discoveries = requests.iter().filter(|request| request.ends_with("/apis/flink.apache.org/v1beta1")).count();
    assert!(discoveries <= 16, "{discoveries}");
}

#[test]
fn failures_say_what_and_what_to_do() {
    let two_lines = |ran: &Ran, what: &str, remedy: &str| {
        assert_eq!(ran.code, 2, "{ran:?}");
        let lines: Vec<&str> = ran.error.lines().collect();
        assert_eq!(lines.len(), 2, "{}", ran.error);
        assert!(lines[0].starts_with("error: ") && lines[0].contains(what), "{}", ran.error);
        assert!(lines[1].starts_with("hint: ") && lines[1].contains(remedy), "{}", ran.error);
    };
    let server = server_before("application-failover");
    let no_file = Ran::of(command(&["rehearse", "--kubeconfig", "/no/such/file"]).output().unwrap());
    two_lines(&no_file, "/no/such/file", "--kubeconfig");
    two_lines(
        &server.run(&["rehearse", "--context", "nowhere"]),
        "nowhere",
        "choose one of its contexts with --context: karmada",
    );
    two_lines(&server.run(&["rehearse", "no-such-binding"]), "no-such-binding", "kubectl get resourcebindings -A");
    two_lines(&server.run(&["rehearse", "--settings", "/no/such/settings"]), "/no/such/settings", "exists");
    let refusing = |refuse: fn(&str) -> Option<u16>| {
        ApiServer::start_with(control_plane(Vec::new(), Vec::new()), Vec::new(), refuse)
    };
    two_lines(&refusing(|_| Some(401)).run(&["rehearse"]), "does not know who you are", "renew the credentials");
    let forbidden = refusing(|url| url.contains("resourcebindings").then_some(403)).run(&["rehearse"]);
    two_lines(
        &forbidden,
        "resourcebindings.work.karmada.io: forbidden",
        "get, list and watch on resourcebindings.work.karmada.io",
    );
    let missing = ApiServer::start(Vec::new()).run(&["history"]);
    two_lines(
        &missing,
        "the API server has no resourcebindings.work.karmada.io",
        "the context of the Karmada API server",
    );
    two_lines(&refusing(|_| Some(500)).run(&["history"]), "it says no (500)", "try again");

    // A port on which nobody listens.
    let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("nobody");
    let text = std::fs::read_to_string(
        server.command(&[]).get_envs().find(|(key, _)| *key == "KUBECONFIG").unwrap().1.unwrap(),
    )
    .unwrap();
    std::fs::write(&kubeconfig, text.replace(server.address(), "http://127.0.0.1:9")).unwrap();
    let silent = Ran::of(command(&["history", "--kubeconfig", kubeconfig.to_str().unwrap()]).output().unwrap());
    two_lines(&silent, "cannot read resourcebindings.work.karmada.io", "kubectl get --raw /version");
}

#[test]
fn the_settings_as_they_are_deployed() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("settings");
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let server = server_before("application-failover");
    let rehearse = |settings: &str, more: &[&str]| {
        server.run(&[&["rehearse", "-o", "json", "--settings", settings], more].concat())
    };
    let rule = std::fs::read_to_string(project(SETTINGS)).unwrap();
    let indented = |by: &str| rule.lines().map(|line| format!("{by}{line}\n")).collect::<String>();
    let module = "registry://ghcr.io/stateful-failover/policies/stateful-failover:v0.1.0";
    let policy = |name: &str| {
        format!(
            "apiVersion: policies.kubewarden.io/v1\nkind: ClusterAdmissionPolicy\nmetadata: {{name: {name}}}\nspec:\n  module: {module}\n  settings:\n{}",
            indented("    ")
        )
    };
    let others = "other:\n  module: registry://example.test/other:v1\n  settings: {x: 1}\n";
    for path in [
        file("policies.yml", &format!("{others}ours:\n  module: {module}\n  settings:\n{}", indented("    "))),
        file("policy.yaml", &format!("kind: Namespace\n---\n{}", policy("a"))),
    ] {
        assert_eq!(only(&rehearse(&path, &[]))["verdict"], "ready", "{path}");
    }
    let several = file("several.yaml", &format!("{}---\n{}", policy("a"), policy("b")));
    assert!(rehearse(&several, &[]).error.contains("there are several policies: a, b\nhint: choose one with --policy"));
    assert_eq!(only(&rehearse(&several, &["--policy", "b"]))["verdict"], "ready");
    assert!(
        rehearse(&file("none.yml", others), &[]).error.contains("there is no policy whose module is stateful-failover")
    );
    let invalid = rehearse(&file("invalid.yaml", "guard: Maybe\nfeeed: 1\n"), &[]);
    assert_eq!(invalid.code, 2);
    assert!(
        invalid.error.contains("unknown field `feeed`") && invalid.error.contains("unknown value `Maybe`"),
        "{}",
        invalid.error
    );
    // What is shipped.
    let shipped = project("deploy/control-plane/policy-server/policies.yml").display().to_string();
    assert_ne!(rehearse(&shipped, &[]).code, 2);
    let shipped = project("deploy/member/policy.yaml").display().to_string();
    assert_ne!(rehearse(&shipped, &[]).code, 2);
}
