//! An HTTP server that answers as an API server does: lists with pages, single objects, discovery, watches.
//! Source: the Kubernetes API concepts, "Retrieving large results sets in chunks" and "Efficient detection of changes".

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// A resource that the server has.
pub(crate) struct Served {
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    is_namespaced: bool,
    pub(crate) objects: Vec<Value>,
}

pub(crate) fn served(
    api_version: &'static str,
    plural: &'static str,
    kind: &'static str,
    objects: Vec<Value>,
) -> Served {
    let is_namespaced = !matches!(kind, "ClusterResourceBinding" | "Cluster");
    Served { api_version, plural, kind, is_namespaced, objects }
}

/// What a control plane of two ready clusters has, with these bindings and templates.
pub(crate) fn control_plane(bindings: Vec<Value>, templates: Vec<Value>) -> Vec<Served> {
    let cluster = |name: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    vec![
        served("work.karmada.io/v1alpha2", "resourcebindings", "ResourceBinding", bindings),
        served("work.karmada.io/v1alpha2", "clusterresourcebindings", "ClusterResourceBinding", Vec::new()),
        served("cluster.karmada.io/v1alpha1", "clusters", "Cluster", vec![cluster("member1"), cluster("member2")]),
        served("flink.apache.org/v1beta1", "flinkdeployments", "FlinkDeployment", templates.clone()),
        served("apps/v1", "deployments", "Deployment", templates),
        served("v1", "configmaps", "ConfigMap", Vec::new()),
    ]
}

/// That many applications like the one of this binding and template.
pub(crate) fn many(count: usize, binding: &Value, template: &Value) -> (Vec<Value>, Vec<Value>) {
    let numbered = |index: usize| {
        let (mut binding, mut template) = (binding.clone(), template.clone());
        binding["metadata"]["name"] = json!(format!("app-{index}-flinkdeployment"));
        binding["spec"]["resource"]["name"] = json!(format!("app-{index}"));
        template["metadata"]["name"] = json!(format!("app-{index}"));
        (binding, template)
    };
    (0..count).map(numbered).unzip()
}

pub(crate) struct ApiServer {
    address: String,
    kubeconfig: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ApiServer {
    pub(crate) fn start(resources: Vec<Served>) -> Self {
        Self::start_with(resources, Vec::new(), |_| None)
    }

    /// `events` are what a watch of bindings gets after its begin; `refuse` gives a status code for paths.
    pub(crate) fn start_with(resources: Vec<Served>, events: Vec<Value>, refuse: fn(&str) -> Option<u16>) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!(
            "kubeconfig-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        ));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "karmada",
            "clusters": [{"name": "karmada", "cluster": {"server": address}}],
            "contexts": [{"name": "karmada", "context": {"cluster": "karmada", "user": "reader", "namespace": "default"}}],
            "users": [{"name": "reader", "user": {}}],
        });
        std::fs::write(&kubeconfig, config.to_string()).unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let serving =
            Serving { log: Arc::clone(&requests), resources: Arc::new(resources), events: Arc::new(events), refuse };
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(serving.serve(listener));
        });
        Self { address, kubeconfig, requests }
    }

    /// The command with this server.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = command(arguments);
        command.env("KUBECONFIG", &self.kubeconfig);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        Ran::of(self.command(arguments).output().unwrap())
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }
}

pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stateful-failover"));
    command.args(arguments).env_remove("KUBECONFIG").env("HOME", env!("CARGO_TARGET_TMPDIR")).env("NO_COLOR", "1");
    command
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code().unwrap(), out: text(output.stdout), error: text(output.stderr) }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[derive(Clone)]
struct Serving {
    log: Arc<Mutex<Vec<String>>>,
    resources: Arc<Vec<Served>>,
    events: Arc<Vec<Value>>,
    refuse: fn(&str) -> Option<u16>,
}

type Body = BoxBody<Bytes, Infallible>;

impl Serving {
    async fn serve(self, listener: std::net::TcpListener) {
        let listener = TcpListener::from_std(listener).unwrap();
        while let Ok((connection, _)) = listener.accept().await {
            let serving = self.clone();
            let service = service_fn(move |request: Request<Incoming>| {
                let response = serving.respond(request.method().as_str(), &request.uri().to_string());
                async move { Ok::<_, Infallible>(response) }
            });
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), service));
        }
    }

    fn respond(&self, method: &str, url: &str) -> Response<Body> {
        self.log.lock().unwrap().push(format!("{method} {url}"));
        let (code, body) = if url.contains("watch=true") {
            let lines: String = self.events.iter().map(|event| format!("{event}\n")).collect();
            // Then nothing, on an open connection.
            let frames = stream::iter([Ok(Frame::data(Bytes::from(lines)))]).chain(stream::pending());
            (200, BodyExt::boxed(StreamBody::new(frames)))
        } else {
            let (code, answer) = match (self.refuse)(url) {
                Some(code) => (code, status(code, "it says no")),
                None => answer(&self.resources, url),
            };
            (code, Full::new(Bytes::from(answer.to_string())).boxed())
        };
        Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
    }
}

fn status(code: u16, message: &str) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        _ => "InternalError",
    };
    json!({"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code})
}

fn answer(resources: &[Served], url: &str) -> (u16, Value) {
    let (path, query) = url.split_once('?').unwrap_or((url, ""));
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (api_version, rest) = match parts.as_slice() {
        ["apis", group, version, rest @ ..] => (format!("{group}/{version}"), rest.to_vec()),
        ["api", version, rest @ ..] => ((*version).to_owned(), rest.to_vec()),
        _ => return (404, status(404, "no such path")),
    };
    if rest.is_empty() {
        let known = resources.iter().filter(|served| served.api_version == api_version).map(|served| {
            json!({"name": served.plural, "kind": served.kind, "namespaced": served.is_namespaced, "singularName": "", "verbs": []})
        });
        let known: Vec<Value> = known.collect();
        return match known.is_empty() {
            true => (404, status(404, "no such group")),
            false => (200, json!({"kind": "APIResourceList", "groupVersion": api_version, "resources": known})),
        };
    }
    let (namespace, plural, name) = match rest.as_slice() {
        ["namespaces", namespace, plural] => (Some(*namespace), *plural, None),
        ["namespaces", namespace, plural, name] => (Some(*namespace), *plural, Some(*name)),
        [plural] => (None, *plural, None),
        [plural, name] => (None, *plural, Some(*name)),
        _ => return (404, status(404, "no such path")),
    };
    let Some(served) = resources.iter().find(|served| served.api_version == api_version && served.plural == plural)
    else {
        return (404, status(404, "the server could not find the requested resource"));
    };
    let in_namespace = |object: &&Value| namespace.is_none_or(|namespace| object["metadata"]["namespace"] == namespace);
    let mut objects = served.objects.iter().filter(in_namespace);
    if let Some(name) = name {
        return match objects.find(|object| {
            object["metadata"]["name"] == name && object["kind"].as_str().is_none_or(|kind| kind == served.kind)
        }) {
            Some(object) => (200, object.clone()),
            None => (404, status(404, "not found")),
        };
    }
    let parameter =
        |key: &str| query.split('&').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')?.parse().ok());
    let (from, limit): (usize, usize) = (parameter("continue").unwrap_or(0), parameter("limit").unwrap_or(usize::MAX));
    let all: Vec<&Value> = objects.collect();
    let page: Vec<Value> = all
        .iter()
        .skip(from)
        .take(limit)
        .map(|object| {
            // Lists leave the kind out.
            let mut object = (*object).clone();
            let fields = object.as_object_mut().unwrap();
            fields.remove("kind");
            fields.remove("apiVersion");
            object
        })
        .collect();
    let left = all.len() - from - page.len();
    let mut metadata = json!({"resourceVersion": "1"});
    if left > 0 {
        metadata["continue"] = Value::from((from + page.len()).to_string());
        metadata["remainingItemCount"] = Value::from(left);
    }
    (
        200,
        json!({"kind": format!("{}List", served.kind), "apiVersion": api_version, "metadata": metadata, "items": page}),
    )
}
