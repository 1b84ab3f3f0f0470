//! The Karmada API server, which is only read.

use std::cell::RefCell;
use std::collections::BTreeMap;

use kube::api::{ListParams, Request};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, Config, Resource};
use serde_json::Value;
use stateful_failover::cluster::{Cluster, Get, LookupError};
use stateful_failover::object_reference::group;

use crate::arguments::{Connection, Selection};
use crate::failure::{Failure, chain};

/// The number of objects in one page of a list.
pub const PAGE: u32 = 250;

/// A kind of binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    /// ResourceBinding, which is namespaced.
    ResourceBinding,
    /// ClusterResourceBinding.
    ClusterResourceBinding,
}

impl BindingKind {
    /// Its resource.
    pub fn api(self) -> ApiResource {
        let kind = match self {
            Self::ResourceBinding => "ResourceBinding",
            Self::ClusterResourceBinding => "ClusterResourceBinding",
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk("work.karmada.io", "v1alpha2", kind))
    }
}

/// A client of the Karmada API server that can only read.
pub struct ControlPlane {
    client: Client,
    namespace: String,
    resources: RefCell<Resources>,
}

/// The resource of an apiVersion and kind, and whether it is namespaced; `None` for a kind that the API server does not
/// have.
type Resources = BTreeMap<(String, String), Option<(ApiResource, bool)>>;

impl ControlPlane {
    /// The API server of the kubeconfig and context.
    ///
    /// # Errors
    /// There is no kubeconfig, or it is not valid.
    pub async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let remedy = "name the kubeconfig of the Karmada API server with --kubeconfig or KUBECONFIG";
        let kubeconfig = match &connection.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|error| Failure::new(chain(&error), remedy))?;
        let contexts: Vec<String> = kubeconfig.contexts.iter().map(|context| context.name.clone()).collect();
        let options = KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| {
            let remedy = match contexts.as_slice() {
                [] => remedy.to_owned(),
                contexts => format!("choose one of its contexts with --context: {}", contexts.join(", ")),
            };
            Failure::new(chain(&error), remedy)
        })?;
        let namespace = config.default_namespace.clone();
        let client = Client::try_from(config).map_err(|error| {
            Failure::new(chain(&error), "look at the server, the certificates and the user in the kubeconfig")
        })?;
        Ok(Self { client, namespace, resources: RefCell::default() })
    }

    /// The client, for watches.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Which bindings are selected: their kinds, and the namespace.
    pub fn scopes<'a>(&'a self, selection: &'a Selection) -> Vec<(BindingKind, Option<&'a str>)> {
        let namespaced = match (&selection.namespace, selection.all_namespaces) {
            (_, true) => None,
            (Some(namespace), false) => Some(namespace.as_str()),
            (None, false) => Some(self.namespace.as_str()),
        };
        let mut scopes = vec![(BindingKind::ResourceBinding, namespaced)];
        // A name may be that of either kind.
        if selection.all_namespaces || (!selection.names.is_empty() && selection.namespace.is_none()) {
            scopes.push((BindingKind::ClusterResourceBinding, None));
        }
        scopes
    }

    /// Calls `visit` with the selected bindings, page by page.
    ///
    /// # Errors
    /// A named binding does not exist, or the API server does not answer.
    pub async fn for_each_page(&self, selection: &Selection, mut visit: impl AsyncFnMut(Page)) -> Result<(), Failure> {
        if !selection.names.is_empty() {
            let items = self.named(selection).await?;
            visit(Page { items, after: None, left: 0 }).await;
            return Ok(());
        }
        for (kind, namespace) in self.scopes(selection) {
            self.pages(&kind.api(), namespace, &mut visit).await?;
        }
        Ok(())
    }

    async fn pages(
        &self,
        api: &ApiResource,
        namespace: Option<&str>,
        visit: &mut impl AsyncFnMut(Page),
    ) -> Result<(), Failure> {
        let mut after = None;
        loop {
            let mut params = ListParams::default().limit(PAGE);
            params.continue_token = after;
            let list = self.list(api, namespace, &params).await.map_err(|error| Failure::api(&plural(api), &error))?;
            let page = Page::of(list, api);
            after = page.after.clone();
            visit(page).await;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn named(&self, selection: &Selection) -> Result<Vec<Value>, Failure> {
        if selection.all_namespaces {
            return Err(Failure::new(
                format!("{} can't be looked for in all namespaces", selection.names.join(", ")),
                "name a namespace with -n, or leave the names out",
            ));
        }
        let scopes = self.scopes(selection);
        let mut bindings = Vec::new();
        for name in &selection.names {
            let before = bindings.len();
            for (kind, namespace) in &scopes {
                let api = kind.api();
                let found = self.get(&api, *namespace, name).await;
                bindings.extend(found.map_err(|error| Failure::api(&plural(&api), &error))?);
            }
            if bindings.len() == before {
                let places = scopes.iter().map(|(_, namespace)| match namespace {
                    Some(namespace) => format!("ResourceBinding in namespace {namespace}"),
                    None => "ClusterResourceBinding".to_owned(),
                });
                let places = places.collect::<Vec<_>>().join(", and no ");
                return Err(Failure::new(
                    format!("there is no {places} of the name {name}"),
                    "look the name up with `kubectl get resourcebindings -A`: it is the resource's with its kind, as in clicks-flinkdeployment",
                ));
            }
        }
        Ok(bindings)
    }

    /// All member clusters.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn clusters(&self) -> Result<Vec<Value>, Failure> {
        let api = ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.karmada.io", "v1alpha1", "Cluster"));
        let mut clusters = Vec::new();
        self.pages(&api, None, &mut async |page: Page| clusters.extend(page.items)).await?;
        Ok(clusters)
    }

    /// The object, as a lookup of the policy answers.
    ///
    /// # Errors
    /// As in the engine.
    pub async fn look_up(
        &self,
        api_version: &str,
        kind: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, LookupError> {
        let unavailable = |error: &kube::Error| match error {
            kube::Error::Api(status) if status.code == 403 => LookupError::Forbidden,
            kube::Error::Api(status) => LookupError::Unavailable(status.message.clone()),
            other => LookupError::Unavailable(chain(other)),
        };
        let Some((api, is_namespaced)) = self.resource(api_version, kind).await.map_err(|error| unavailable(&error))?
        else {
            return Err(LookupError::UnknownKind);
        };
        let namespace = namespace.filter(|_| is_namespaced);
        self.get(&api, namespace, name).await.map_err(|error| unavailable(&error))
    }

    async fn resource(&self, api_version: &str, kind: &str) -> Result<Option<(ApiResource, bool)>, kube::Error> {
        let key = (api_version.to_owned(), kind.to_owned());
        if let Some(known) = self.resources.borrow().get(&key) {
            return Ok(known.clone());
        }
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        let list = if group(api_version).is_empty() {
            self.client.list_core_api_resources(version).await
        } else {
            self.client.list_api_group_resources(api_version).await
        };
        let list = match list {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            list => Some(list?),
        };
        let resources = list.map(|list| list.resources).unwrap_or_default();
        let found =
            resources.iter().find(|resource| resource.kind == kind && !resource.name.contains('/')).map(|found| {
                let kind = GroupVersionKind::gvk(group(api_version), version, kind);
                (ApiResource::from_gvk_with_plural(&kind, &found.name), found.namespaced)
            });
        self.resources.borrow_mut().insert(key, found.clone());
        Ok(found)
    }

    async fn list(
        &self,
        api: &ApiResource,
        namespace: Option<&str>,
        params: &ListParams,
    ) -> Result<Value, kube::Error> {
        let request = Request::new(DynamicObject::url_path(api, namespace)).list(params);
        self.read(request.map_err(kube::Error::BuildRequest)?).await
    }

    async fn get(&self, api: &ApiResource, namespace: Option<&str>, name: &str) -> Result<Option<Value>, kube::Error> {
        let request = Request::new(DynamicObject::url_path(api, namespace)).get(name, &Default::default());
        match self.read(request.map_err(kube::Error::BuildRequest)?).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            object => object.map(Some),
        }
    }

    /// The answer, parsed as the core parses JSON.
    async fn read(&self, request: http::Request<Vec<u8>>) -> Result<Value, kube::Error> {
        let text = self.client.request_text(request).await?;
        serde_json::from_str(&text).map_err(kube::Error::SerdeError)
    }
}

fn plural(api: &ApiResource) -> String {
    format!("{}.{}", api.plural, api.group)
}

/// A page of a list.
#[derive(Debug)]
pub struct Page {
    /// The objects, with their apiVersion and kind, which lists leave out.
    pub items: Vec<Value>,
    /// The continue token; `None` for the last page.
    pub after: Option<String>,
    /// The number of remaining objects, where the API server gives it.
    pub left: u64,
}

impl Page {
    fn of(mut list: Value, api: &ApiResource) -> Self {
        let after = list.pointer("/metadata/continue").and_then(Value::as_str).filter(|after| !after.is_empty());
        let after = after.map(str::to_owned);
        let left = list.pointer("/metadata/remainingItemCount").and_then(Value::as_u64).unwrap_or_default();
        let mut items = match list.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.insert("apiVersion".to_owned(), Value::from(api.api_version.as_str()));
            item.insert("kind".to_owned(), Value::from(api.kind.as_str()));
        }
        Self { items, after, left }
    }
}

/// apiVersion, kind, namespace and name of an object.
pub type Key = (String, String, Option<String>, String);

/// The objects that were read for lookups, shared by all rehearsals.
pub type Found = RefCell<BTreeMap<Key, Result<Option<Value>, LookupError>>>;

/// The lookups of one rehearsal, answered from what was read before. The core can't wait for an answer, so missing
/// objects are recorded and read before the next attempt.
#[derive(Debug)]
pub struct Lookups<'a> {
    found: &'a Found,
    wanted: RefCell<Vec<Key>>,
}

impl<'a> Lookups<'a> {
    /// Lookups that share what was found.
    pub fn new(found: &'a Found) -> Self {
        Self { found, wanted: RefCell::default() }
    }

    /// Reads the recorded objects. Returns whether there were any.
    pub async fn read(&self, control_plane: &ControlPlane) -> bool {
        let wanted = self.wanted.take();
        let is_new = !wanted.is_empty();
        for key in wanted {
            let (api_version, kind, namespace, name) = &key;
            let found = control_plane.look_up(api_version, kind, namespace.as_deref(), name).await;
            self.found.borrow_mut().insert(key, found);
        }
        is_new
    }
}

impl Cluster for Lookups<'_> {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        let namespace = object.namespace.map(str::to_owned);
        let key = (object.api_version.to_owned(), object.kind.to_owned(), namespace, object.name.to_owned());
        if let Some(found) = self.found.borrow().get(&key) {
            return found.clone();
        }
        self.wanted.borrow_mut().push(key);
        Err(LookupError::Unavailable("not read yet".to_owned()))
    }
}
