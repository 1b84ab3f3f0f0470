//! The annotated module, pushed to a real registry on this machine, pulled back and run.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use e2e_tests::policy::{Module, Policy};
use e2e_tests::{install_commands, project};
use publish::{Access, policy_metadata, pull};
use serde_json::Value;

/// Debian's docker-registry, with its storage in a folder of its own; it ends with the test.
struct Registry {
    process: Child,
    folder: PathBuf,
    host: String,
}

impl Registry {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let folder = std::env::temp_dir().join(format!("registry-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {}}}}}\nhttp: {{addr: \"127.0.0.1:{port}\"}}\n",
            folder.join("data").display()
        );
        std::fs::write(folder.join("config.yml"), config).unwrap();
        let process = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("docker-registry is there: `make test` installs it");
        let registry = Self { process, folder, host: format!("127.0.0.1:{port}") };
        for _ in 0..100 {
            if TcpStream::connect(&registry.host).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("docker-registry does not listen on port {port}");
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A copy of the project to work in: `deploy` is its own, since the commands change it.
fn working_copy(folder: &Path) -> PathBuf {
    let copy = folder.join("project");
    std::fs::create_dir_all(&copy).unwrap();
    for entry in std::fs::read_dir(project("")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == "deploy" {
            let copied = Command::new("cp").arg("-r").arg(entry.path()).arg(&copy).status().unwrap();
            assert!(copied.success());
        } else {
            std::os::unix::fs::symlink(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    copy
}

/// The README's commands that publish the module and name it in the manifests, as they stand there; then what a policy
/// server does with `policies.yml`: it pulls the module that is named, and runs it with the settings beside it.
#[tokio::test]
async fn publish_pull_run() {
    let registry = Registry::start();
    let copy = working_copy(&registry.folder);
    let output = Command::new("sh")
        .args(["-euc", &install_commands()[0]])
        .env("REGISTRY", format!("{}/policies", registry.host))
        .env("MAKEFLAGS", "--no-print-directory --silent")
        .env("PUBLISH", env!("CARGO_BIN_EXE_publish"))
        .current_dir(&copy)
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(output.status.success(), "{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    let reference = format!("{}/policies/stateful-failover:v{}", registry.host, env!("CARGO_PKG_VERSION"));
    assert!(printed.lines().last().unwrap().starts_with(&format!("{reference}@sha256:")), "{printed}");

    let policies: Value = serde_yaml_ng::from_str(
        &std::fs::read_to_string(copy.join("deploy/control-plane/policy-server/policies.yml")).unwrap(),
    )
    .unwrap();
    let policy = &policies["stateful-failover"];
    assert_eq!(policy["module"], format!("registry://{reference}"));
    let member: Value =
        serde_yaml_ng::from_str(&std::fs::read_to_string(copy.join("deploy/member/policy.yaml")).unwrap()).unwrap();
    assert_eq!(member["spec"]["module"], policy["module"]);

    let (module, manifest) = pull(&reference, &Access { is_insecure: true, credentials: None }).await.unwrap();
    assert_eq!(module, std::fs::read(project("annotated-policy.wasm")).unwrap());
    assert_eq!(manifest.config.media_type, "application/vnd.wasm.config.v1+json");
    assert_eq!(manifest.layers[0].media_type, "application/vnd.wasm.content.layer.v1+wasm");
    let annotations = manifest.annotations.unwrap_or_default();
    assert_eq!(annotations.get("io.kubewarden.policy.title").map(String::as_str), Some("stateful-failover"));

    let pulled = policy_metadata::read(&module).unwrap();
    assert_eq!(pulled.protocol_version.as_deref(), Some("v1"));
    let request = std::fs::read_to_string(project("e2e-tests/kwctl/binding-eviction.json")).unwrap();
    let request: Value = serde_json::from_str(&request).unwrap();
    let answer = Module::load(&module).unwrap().validate(&request, &policy["settings"], &Arc::default()).unwrap();
    assert!(answer.accepted && answer.mutated_object.is_some(), "the pulled module preserves state");
}
