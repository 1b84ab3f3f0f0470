//! deploy/flink-checkpoints: its script against an S3 server, its kubectl against an API server's side on the loopback
//! interface.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use e2e_tests::project;
use serde_json::{Value, json};

use crate::documents::documents;

const JOB: &str = "e6fd0a8b5c4d4f3b9a7e112233445566";
const OTHER: &str = "4dd0c7f0a9be4d2187f6abcdef012345";

/// The tool that the container `list` has, installed once.
static RCLONE: LazyLock<PathBuf> = LazyLock::new(|| {
    let output = Command::new(project("tools/rclone.sh")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8(output.stdout).unwrap().trim())
});

/// An S3 server whose buckets are the folders in a folder of its own.
struct Storage {
    folder: PathBuf,
    address: String,
    server: Child,
}

impl Storage {
    fn start(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("flink-checkpoints-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("buckets/flink-state")).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let server = Command::new(&*RCLONE)
            .args([
                "serve",
                "s3",
                "--auth-key",
                "key,secret",
                "--addr",
                &address,
                "--vfs-cache-mode",
                "off",
                "--dir-cache-time",
                "0s",
            ])
            .arg(folder.join("buckets"))
            .env("RCLONE_CONFIG", "/dev/null")
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let storage = Self { folder, address, server };
        for _ in 0..200 {
            if TcpStream::connect(&storage.address).is_ok() {
                return storage;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("rclone serve s3 does not listen at {}", storage.address);
    }

    fn stop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }

    fn put(&self, path: &str) {
        let path = self.folder.join("buckets/flink-state").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, "x").unwrap();
    }

    fn remove(&self, path: &str) {
        fs::remove_dir_all(self.folder.join("buckets/flink-state").join(path)).unwrap();
    }

    fn file(&self) -> PathBuf {
        self.folder.join("latest-checkpoints.yaml")
    }

    /// The container `list` of the CronJob as it stands there, with this storage.
    fn list(&self, directories: &str, more: &[(&str, &str)]) -> Output {
        let container = &pod()["initContainers"][0];
        assert_eq!(
            container["command"],
            json!(["/bin/sh", "/script/list-checkpoints.sh", "/work/latest-checkpoints.yaml"])
        );
        let path = format!("{}:{}", RCLONE.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let endpoint = format!("http://{}", self.address);
        Command::new("/bin/sh")
            .arg(project("deploy/flink-checkpoints/list-checkpoints.sh"))
            .arg(self.file())
            .envs([
                ("PATH", path.as_str()),
                ("DIRECTORIES", directories),
                ("RCLONE_CONFIG", "/dev/null"),
                ("RCLONE_RETRIES", "1"),
                ("RCLONE_LOW_LEVEL_RETRIES", "1"),
                ("RCLONE_CONFIG_S3_TYPE", "s3"),
                ("RCLONE_CONFIG_S3_PROVIDER", "Rclone"),
                ("RCLONE_CONFIG_S3_ENDPOINT", endpoint.as_str()),
                ("RCLONE_CONFIG_S3_ACCESS_KEY_ID", "key"),
                ("RCLONE_CONFIG_S3_SECRET_ACCESS_KEY", "secret"),
            ])
            .envs(more.iter().copied())
            .output()
            .unwrap()
    }

    fn listed(&self, directories: &str, more: &[(&str, &str)]) -> Value {
        let output = self.list(directories, more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let config_map = documents(&fs::read_to_string(self.file()).unwrap()).remove(0);
        assert_eq!(config_map["kind"], "ConfigMap");
        assert_eq!(config_map["metadata"], json!({"name": "latest-checkpoints", "namespace": "flink-dr"}));
        config_map["data"].clone()
    }

    fn fails(&self, directories: &str) -> String {
        let before = fs::read(self.file()).ok();
        let output = self.list(directories, &[]);
        assert!(!output.status.success(), "{directories} is listed");
        assert_eq!(fs::read(self.file()).ok(), before, "what was listed before is gone");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The Pod of the CronJob.
fn pod() -> Value {
    let text = fs::read_to_string(project("deploy/flink-checkpoints/cronjob.yaml")).unwrap();
    let cron_job = documents(&text).into_iter().find(|document| document["kind"] == "CronJob").unwrap();
    cron_job["spec"]["jobTemplate"]["spec"]["template"]["spec"].clone()
}

#[test]
fn the_newest_checkpoint_of_each_job() {
    let mut storage = Storage::start("listing");
    assert!(storage.fails("s3:flink-state").contains("found no checkpoint"));
    for path in [
        "shop/clicks/checkpoints/{JOB}/chk-9/_metadata",
        "shop/clicks/checkpoints/{JOB}/chk-10/_metadata",
        // Still being written: no `_metadata`.
        "shop/clicks/checkpoints/{JOB}/chk-11/part",
        "shop/clicks/checkpoints/{JOB}/shared/chk-99/_metadata",
        "shop/clicks/checkpoints/{JOB}/taskowned/x",
        "shop/clicks/savepoints/savepoint-e6fd0a-0123456789ab/_metadata",
        "other/{OTHER}/chk-1/_metadata",
        // No ids of Flink's.
        "other/backup/chk-7/_metadata",
        "other/E6FD0A8B5C4D4F3B9A7E112233445566/chk-7/_metadata",
        "other/{OTHER}/chk-x/_metadata",
    ] {
        storage.put(&path.replace("{JOB}", JOB).replace("{OTHER}", OTHER));
    }
    assert_eq!(storage.listed("s3:flink-state", &[]), json!({JOB: "chk-10", OTHER: "chk-1"}));
    assert_eq!(storage.listed("s3:flink-state/shop", &[]), json!({JOB: "chk-10"}));
    let both = "s3:flink-state/shop\n  s3:flink-state/other";
    assert_eq!(storage.listed(both, &[]), json!({JOB: "chk-10", OTHER: "chk-1"}));
    // Which is applied, and applied again: the API server writes nothing for it.
    let first = fs::read(storage.file()).unwrap();
    storage.listed(both, &[]);
    assert_eq!(fs::read(storage.file()).unwrap(), first);

    // A job that went to another directory has its newest checkpoint there.
    storage.put(&format!("moved/{JOB}/chk-12/_metadata"));
    assert_eq!(storage.listed("s3:flink-state", &[]), json!({JOB: "chk-12", OTHER: "chk-1"}));
    storage.remove(&format!("moved/{JOB}"));
    // An id that is gone leaves the ConfigMap.
    storage.remove(&format!("other/{OTHER}"));
    assert_eq!(storage.listed("s3:flink-state", &[]), json!({JOB: "chk-10"}));

    // A listing that fails leaves what was listed, whatever the others are.
    assert!(storage.fails("s3:flink-state/nothing-here").contains("below s3:flink-state/nothing-here"));
    storage.fails("s3:flink-state/shop s3:no-such-bucket");
    storage.fails("unknown:flink-state s3:flink-state/shop");
    storage.stop();
    storage.fails("s3:flink-state/shop");
}

#[test]
fn the_jobs_with_the_newest_checkpoints_are_kept() {
    let storage = Storage::start("limit");
    let second = Duration::from_secs(1);
    for (age, job) in ["a", "b", "c"].iter().enumerate() {
        storage.put(&format!("{}/chk-1/_metadata", job.repeat(32)));
        let path = format!("buckets/flink-state/{}/chk-1/_metadata", job.repeat(32));
        let file = fs::File::options().write(true).open(storage.folder.join(path)).unwrap();
        file.set_modified(std::time::SystemTime::now() - second * 3600 * u32::try_from(age + 1).unwrap()).unwrap();
    }
    let kept = storage.listed("s3:flink-state", &[("MAX_JOBS", "2")]);
    assert_eq!(kept, json!({"a".repeat(32): "chk-1", "b".repeat(32): "chk-1"}));
}

/// The API server's side of `kubectl apply`: discovery of the core group, and the ConfigMap. Each request is kept.
fn serve(listener: &TcpListener, requests: &Mutex<Vec<(String, String)>>) {
    for stream in listener.incoming() {
        let Ok(mut stream) = stream else { return };
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut first, mut length) = (String::new(), 0);
        reader.read_line(&mut first).unwrap();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request = first.rsplit_once(' ').map(|(request, _)| request.to_owned()).unwrap_or_default();
        let body = String::from_utf8(body).unwrap();
        let group = json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "configmaps", "singularName": "configmap", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "patch"]},
        ]});
        let answer = match request.split('?').next().unwrap_or_default() {
            "GET /api" => json!({"kind": "APIVersions", "versions": ["v1"]}),
            "GET /apis" => json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}),
            "GET /api/v1" => group,
            "PATCH /api/v1/namespaces/flink-dr/configmaps/latest-checkpoints" => documents(&body).remove(0),
            _ => Value::Null,
        };
        requests.lock().unwrap().push((request, body));
        let (status, text) = match answer {
            Value::Null => (
                "404 Not Found",
                json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404}).to_string(),
            ),
            answer => ("200 OK", answer.to_string()),
        };
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
            text.len()
        )
        .unwrap();
    }
}

#[test]
fn the_config_map_is_applied_as_a_whole() {
    let folder = std::env::temp_dir().join(format!("flink-checkpoints-apply-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let requests: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
    let seen = Arc::clone(&requests);
    std::thread::spawn(move || serve(&listener, &seen));
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
        "clusters": [{"name": "karmada", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "flink-checkpoints"}}],
        "users": [{"name": "flink-checkpoints", "user": {"token": "secret-token"}}],
    });
    fs::write(folder.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "latest-checkpoints", "namespace": "flink-dr"}, "data": {JOB: "chk-10"},
    });
    fs::write(folder.join("latest-checkpoints.yaml"), config_map.to_string()).unwrap();

    let here = |path: &str| path.replace("/kubeconfig/", &at(&folder)).replace("/work/", &at(&folder));
    let arguments: Vec<String> = pod()["containers"][0]["args"]
        .as_array()
        .unwrap()
        .iter()
        .map(|argument| here(argument.as_str().unwrap()))
        .collect();
    let output = Command::new("kubectl").args(&arguments).env("HOME", &folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let requests = requests.lock().unwrap();
    let writes: Vec<_> = requests.iter().filter(|(request, _)| !request.starts_with("GET ")).collect();
    let [(request, body)] = writes.as_slice() else { panic!("{writes:?}") };
    assert!(request.contains("fieldManager=flink-checkpoints") && request.contains("force=true"), "{request}");
    assert_eq!(documents(body), [config_map]);
    // What it may do is what it does.
    let rbac = documents(&fs::read_to_string(project("deploy/flink-checkpoints/karmada/rbac.yaml")).unwrap());
    let role = rbac.iter().find(|document| document["kind"] == "Role").unwrap();
    assert_eq!(
        role["rules"],
        json!([{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["latest-checkpoints"], "verbs": ["get", "patch"]}])
    );
    for (request, _) in requests.iter().filter(|(request, _)| request.contains("/configmaps")) {
        assert!(request.contains("/flink-dr/configmaps/latest-checkpoints"), "{request}");
        assert!(request.starts_with("GET ") || request.starts_with("PATCH "), "{request}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

fn at(folder: &Path) -> String {
    format!("{}/", folder.display())
}

/// The parts of the deployment name one another.
#[test]
fn what_is_installed_fits_together() {
    let pod = pod();
    let volumes =
        |name: &str| pod["volumes"].as_array().unwrap().iter().find(|volume| volume["name"] == name).unwrap().clone();
    let kustomization =
        documents(&fs::read_to_string(project("deploy/flink-checkpoints/kustomization.yaml")).unwrap()).remove(0);
    let generator = &kustomization["configMapGenerator"][0];
    assert_eq!(generator["name"], volumes("script")["configMap"]["name"]);
    assert_eq!(generator["options"]["disableNameSuffixHash"], json!(true));
    for file in generator["files"].as_array().unwrap() {
        assert!(project("deploy/flink-checkpoints").join(file.as_str().unwrap()).exists(), "{file}");
    }
    // As make-kubeconfig.sh names it for the ServiceAccount.
    let rbac = documents(&fs::read_to_string(project("deploy/flink-checkpoints/karmada/rbac.yaml")).unwrap());
    let account = rbac.iter().find(|document| document["kind"] == "ServiceAccount").unwrap();
    let name = account["metadata"]["name"].as_str().unwrap();
    assert_eq!(volumes("kubeconfig")["secret"]["secretName"], json!(format!("{name}-kubeconfig")));
    let token = rbac.iter().find(|document| document["kind"] == "Secret").unwrap();
    assert_eq!(token["metadata"]["name"], json!(format!("{name}-token")));
    // Whose ConfigMap the policy's rules read.
    let policies = fs::read_to_string(project("deploy/control-plane/policy-server/policies.yml")).unwrap();
    let policies = documents(&policies);
    let rules = policies[0]["stateful-failover"]["settings"]["restore"]["rules"].as_array().unwrap();
    let rule = rules.iter().find(|rule| rule["name"] == "flink-from-latest-checkpoint").unwrap();
    let config_map = &rule["vars"]["checkpoint"]["configMap"];
    let kept = rbac.iter().find(|document| document["kind"] == "ConfigMap").unwrap();
    assert_eq!(config_map["name"], kept["metadata"]["name"]);
    assert_eq!(config_map["namespace"], kept["metadata"]["namespace"]);
    assert_eq!(config_map["key"], "{jobId}");
}
