//! Lookups: objects of the cluster whose API server sent the request. The core asks its host for nothing else.

use serde_json::Value;
use thiserror::Error;

use crate::object_reference::{ObjectReference, group};
use crate::{json, metadata};

/// An object to read, and the parts of it that are needed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get<'a> {
    /// `v1`, or `group/version`.
    pub api_version: &'a str,
    /// PascalCase, as in the object itself.
    pub kind: &'a str,
    /// `None` for cluster-scoped kinds.
    pub namespace: Option<&'a str>,
    /// Name of the object.
    pub name: &'a str,
    /// The fields that are needed, as dotted paths; `metadata` is always included. The answer may lack all others.
    pub fields: &'a [&'a str],
}

impl Get<'_> {
    /// Whether `candidate` is the object.
    pub fn is_for(&self, candidate: &Value) -> bool {
        candidate.get("apiVersion").and_then(Value::as_str) == Some(self.api_version)
            && ObjectReference::of(candidate) == self.reference()
    }

    /// Reads the requested fields of the object in the answer to the lookup.
    ///
    /// # Errors
    /// [`LookupError::Garbage`].
    pub fn read(&self, answer: &[u8]) -> Result<Value, LookupError> {
        let answer = std::str::from_utf8(answer).map_err(|error| LookupError::Garbage(error.to_string()))?;
        let mut fields = metadata::fields();
        self.fields.iter().for_each(|field| fields.at(field).set_whole());
        json::read(answer, &fields).map_err(|error| LookupError::Garbage(error.to_string()))
    }

    /// The object's kind and name.
    pub fn reference(&self) -> ObjectReference<'_> {
        let namespace = self.namespace.unwrap_or_default();
        ObjectReference { group: group(self.api_version), kind: self.kind, namespace, name: self.name }
    }
}

/// Why an object could not be read. An object that does not exist is not an error.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LookupError {
    /// The engine does not let this policy use the host capability (`hostCapabilities`).
    #[error(
        "the policy has not been granted the host capability `kubernetes/get_resource`; add it to the policy's `hostCapabilities`"
    )]
    CapabilityNotGranted,
    /// The engine does not let this policy read objects of this kind (`contextAwareResources`).
    #[error(
        "the policy has not been granted access to this kind; add {{apiVersion: {api_version}, kind: {kind}}} to the policy's `contextAwareResources`"
    )]
    KindNotGranted {
        /// The apiVersion to grant.
        api_version: String,
        /// The kind to grant.
        kind: String,
    },
    /// The API server refused: RBAC.
    #[error("forbidden by the API server; grant `get` on this kind to the policy server's service account")]
    Forbidden,
    /// The API server has no such kind: the CRD is not installed or serves another version.
    #[error("the API server does not know this kind; install its CRD or fix the apiVersion")]
    UnknownKind,
    /// No answer, or an error that says nothing about the object.
    #[error("the API server did not answer ({0}); retrying is safe")]
    Unavailable(String),
    /// An answer that is not an object.
    #[error("the answer is not a Kubernetes object ({0})")]
    Garbage(String),
}

/// Reads objects of the cluster that the policy serves. Nothing is cached, since what is read decides where state goes.
pub trait Cluster {
    /// The object, or `None` where it does not exist.
    ///
    /// # Errors
    /// [`LookupError`], where it is unknown whether the object exists or what it holds.
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError>;
}

impl<F> Cluster for F
where
    F: Fn(&Get<'_>) -> Result<Option<Value>, LookupError>,
{
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        self(object)
    }
}

/// Without a cluster, every lookup fails.
#[derive(Debug, Clone, Copy)]
pub struct NoCluster;

impl Cluster for NoCluster {
    fn get(&self, _: &Get<'_>) -> Result<Option<Value>, LookupError> {
        Err(LookupError::Unavailable("no cluster is connected".to_owned()))
    }
}

/// A cluster that holds these objects, for tools that read them from files.
#[derive(Debug, Default)]
pub struct Objects(pub Vec<Value>);

impl Cluster for Objects {
    fn get(&self, object: &Get<'_>) -> Result<Option<Value>, LookupError> {
        Ok(self.0.iter().find(|candidate| object.is_for(candidate)).cloned())
    }
}
