//! Runs the README's commands with a replacement for kubectl, and checks that the applied objects fit together.
//! (tests/registry.rs in `publish` checks that the module can be published and pulled.)

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e_tests::{install_commands, project};
use serde_json::{Value, json};

use crate::documents::documents;

/// The objects in the API servers after the commands.
struct Installed(PathBuf);

impl Installed {
    fn by_readme() -> Self {
        // The first block publishes.
        Self::by("readme", &install_commands()[1..].concat())
    }

    fn by(name: &str, commands: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("install-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = format!("{}:{}", project("e2e-tests/tests/e2e/install").display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-euc", commands])
            .envs([("PATH", path.as_str()), ("KARMADA", "karmada.config")])
            .envs([("REGION", "eu-west-1"), ("KEY", "key"), ("SECRET", "secret")])
            .env("APPLIED", &folder)
            .current_dir(project(""))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(folder)
    }

    fn objects(&self, server: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.0.join(server).with_extension("yaml")).unwrap();
        documents(&text).into_iter().filter(|document| !document.is_null()).collect()
    }

    fn object(&self, server: &str, kind: &str, name: &str) -> Value {
        let is_it = |object: &Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.objects(server).into_iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name} in {server}"))
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Decodes base64 with the tool that the scripts use.
fn decode(encoded: &Value, file: &Path) -> String {
    fs::write(file, encoded.as_str().unwrap()).unwrap();
    let output = Command::new("base64").arg("--decode").arg(file).output().unwrap();
    assert!(output.status.success());
    let decoded = String::from_utf8(output.stdout).unwrap();
    fs::write(file, &decoded).unwrap();
    decoded
}

#[test]
fn what_the_readme_installs_fits_together() {
    let installed = Installed::by_readme();

    let token = decode(
        &installed.object("host", "Secret", "stateful-failover-kubeconfig")["data"]["kubeconfig"],
        &installed.0.join("kubeconfig"),
    );
    let kubeconfig: Value = serde_yaml_ng::from_str(&token).unwrap();
    assert_eq!(kubeconfig["users"][0]["user"]["token"], "secret-token");
    assert_eq!(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"], "Y2VydGlmaWNhdGU=");

    // The webhook reaches the Service, which reaches the server, whose certificate the CA in the webhook has signed.
    let webhook = &installed.object("karmada", "MutatingWebhookConfiguration", "stateful-failover")["webhooks"][0];
    let service = installed.object("host", "Service", "stateful-failover");
    let deployment = installed.object("host", "Deployment", "stateful-failover");
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let host = format!(
        "{}.{}.svc",
        service["metadata"]["name"].as_str().unwrap(),
        service["metadata"]["namespace"].as_str().unwrap()
    );
    let policies: Value = serde_yaml_ng::from_str(
        &fs::read_to_string(project("deploy/control-plane/policy-server/policies.yml")).unwrap(),
    )
    .unwrap();
    let policy = policies.as_object().unwrap().keys().next().unwrap();
    assert_eq!(
        webhook["clientConfig"]["url"],
        json!(format!("https://{host}:{}/validate/{policy}", service["spec"]["ports"][0]["port"]))
    );
    assert_eq!(service["spec"]["selector"], pod["metadata"]["labels"]);
    assert_eq!(service["spec"]["ports"][0]["targetPort"], container["ports"][0]["name"]);
    assert_eq!(container["ports"][0]["containerPort"].to_string(), environment(container, "KUBEWARDEN_PORT"));

    let tls = installed.object("host", "Secret", "stateful-failover-tls");
    assert_eq!(webhook["clientConfig"]["caBundle"], tls["data"]["ca.crt"]);
    for file in ["ca.crt", "tls.crt", "tls.key"] {
        decode(&tls["data"][file], &installed.0.join(file));
    }
    let openssl = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(&installed.0).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    openssl(&["verify", "-purpose", "sslserver", "-verify_hostname", &host, "-CAfile", "ca.crt", "tls.crt"]);
    assert_eq!(
        openssl(&["x509", "-in", "tls.crt", "-noout", "-pubkey"]),
        openssl(&["pkey", "-in", "tls.key", "-pubout"])
    );

    // Every Secret that the pod mounts exists, and every file in the server's configuration is in a mount.
    for volume in pod["spec"]["volumes"].as_array().unwrap() {
        if let Some(name) = volume["secret"]["secretName"].as_str() {
            installed.object("host", "Secret", name);
        }
    }
    let mounts: Vec<&str> = container["volumeMounts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|mount| mount["mountPath"].as_str().unwrap())
        .collect();
    for name in ["KUBECONFIG", "KUBEWARDEN_POLICIES", "KUBEWARDEN_CERT_FILE", "KUBEWARDEN_KEY_FILE"] {
        let file = environment(container, name);
        assert!(mounts.iter().any(|mount| file.starts_with(&format!("{mount}/"))), "{file}");
    }

    // The server's identity may read what the stage feed looks up, and nothing else.
    assert_eq!(
        installed.object("karmada", "Secret", "stateful-failover-token")["metadata"]["annotations"]["kubernetes.io/service-account.name"],
        installed.object("karmada", "ServiceAccount", "stateful-failover")["metadata"]["name"]
    );
    assert_eq!(
        installed.object("karmada", "ClusterRole", "stateful-failover")["rules"],
        json!([{"apiGroups": ["work.karmada.io"], "resources": ["resourcebindings", "clusterresourcebindings"], "verbs": ["get"]}])
    );

    // The order matters: a webhook without a server would block all of Karmada's writes.
    let calls = fs::read_to_string(installed.0.join("calls")).unwrap();
    let position =
        |call: &str| calls.lines().position(|line| line == call).unwrap_or_else(|| panic!("{call}\n{calls}"));
    assert!(
        position("host: rollout status deployment/stateful-failover")
            < position("host: get secret stateful-failover-tls")
    );
    assert_eq!(calls.lines().filter(|line| *line == "karmada: apply -f -").count(), 1);

    // The server may read every ConfigMap that the shipped rules look up.
    let role = installed.object("karmada", "Role", "stateful-failover");
    installed.object("karmada", "Namespace", role["metadata"]["namespace"].as_str().unwrap());
    let rules = policies[policy]["settings"]["restore"]["rules"].as_array().unwrap();
    let config_maps: Vec<&Value> = rules
        .iter()
        .flat_map(|rule| rule["vars"].as_object().unwrap().values())
        .filter_map(|variable| variable.get("configMap"))
        .collect();
    assert!(!config_maps.is_empty());
    for config_map in config_maps {
        assert_eq!(config_map["namespace"], role["metadata"]["namespace"]);
        assert!(role["rules"][0]["resourceNames"].as_array().unwrap().contains(&config_map["name"]));
    }
}

fn environment(container: &Value, name: &str) -> String {
    let variable = container["env"].as_array().unwrap().iter().find(|variable| variable["name"] == name);
    variable.unwrap_or_else(|| panic!("{name} is not set"))["value"].as_str().unwrap().to_owned()
}

/// The guide's commands for deploy/flink-checkpoints.
#[test]
fn what_the_guide_installs_for_checkpoints() {
    let guide = fs::read_to_string(project("docs/guide.md")).unwrap();
    let (_, section) = guide.split_once("## 3. The newest checkpoints\n").unwrap();
    let commands: Vec<&str> = section
        .lines()
        .skip_while(|line| !line.starts_with("    "))
        .take_while(|line| line.starts_with("    "))
        .collect();
    assert!(commands.len() >= 7, "{commands:?}");
    let installed = Installed::by("checkpoints", &commands.join("\n"));
    let secret = installed.object("host", "Secret", "flink-checkpoints-kubeconfig");
    let kubeconfig = decode(&secret["data"]["kubeconfig"], &installed.0.join("kubeconfig"));
    let kubeconfig: Value = serde_yaml_ng::from_str(&kubeconfig).unwrap();
    assert_eq!(kubeconfig["users"][0], json!({"name": "flink-checkpoints", "user": {"token": "secret-token"}}));
    assert_eq!(kubeconfig["contexts"][0]["context"]["user"], "flink-checkpoints");
    installed.object("host", "CronJob", "flink-checkpoints");
    installed.object("karmada", "ConfigMap", "latest-checkpoints");
}
