//! Stateful failover as an admission policy: carries an application's state from the cluster it failed in to the
//! cluster that Karmada moves it to.
//!
//! ```text
//! PropagationPolicy ── lint ──►  ResourceBinding ── preserve ──►  Work ── feed, restore ──►  workload resumes
//! (Karmada API server)           (Karmada API server)             (Karmada API server)       (member; restore can run here)
//! ```
//!
//! The core is a pure function: [`evaluate`] takes a [`Request`], [`Settings`] and a [`Cluster`] to look objects up in,
//! and returns a [`Verdict`]. It knows no engine, clock or randomness. The shells around it are thin.
//!
//! ```
//! use stateful_failover::cluster::Objects;
//! use stateful_failover::{Outcome, Request, Settings, evaluate};
//!
//! // A ResourceBinding that is scheduled back into the cluster that its application is being evicted from.
//! let request = Request::from_json(
//!     r#"{
//!         "kind": {"group": "work.karmada.io", "version": "v1alpha2", "kind": "ResourceBinding"},
//!         "operation": "CREATE",
//!         "object": {"spec": {
//!             "resource": {"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "default", "name": "web"},
//!             "clusters": [{"name": "member1"}],
//!             "gracefulEvictionTasks": [{"fromCluster": "member1", "reason": "TaintUntolerated"}]
//!         }}
//!     }"#,
//! )?;
//! let verdict = evaluate(&request, &Settings::default(), &Objects(Vec::new()));
//! let Outcome::Deny { message, .. } = verdict.outcome else { panic!("it is denied") };
//! assert!(message.starts_with("cannot schedule Deployment `default/web`: it is being evicted from cluster `member1`"));
//! # Ok::<(), stateful_failover::request::RequestError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`lint`], [`preserve`], [`guard`], [`feed`], [`restore`] | the stages |
//! | [`karmada`] | views of Karmada's objects: every field name of its API |
//! | [`interpreted_kinds`] | the kinds whose health Karmada knows, and the fields of their status that it reflects |
//! | [`history`], [`state`] | what the policy remembers of a move, on the binding and on the workload |
//! | [`jsonpath`] | the dialects that state rules are written in |
//! | [`settings`], [`workload_match`], [`request`], [`json`], [`cluster`], [`verdict`], [`messages`] | the input and the output |
//! | [`object_reference`], [`metadata`], [`labels`] | kind and name of an object, its labels and annotations |
//! | [`rehearsal`] | a model of Karmada's controllers, for the tools that show a failover before it happens |
//! | `guest`, `playground` | the shells: the waPC engine's, and the browser's |

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic, clippy::unreachable)
)]

pub mod cluster;
pub mod feed;
pub mod guard;
#[cfg(not(all(feature = "playground", target_family = "wasm")))]
pub mod guest;
pub mod history;
pub mod interpreted_kinds;
pub mod json;
pub mod jsonpath;
pub mod karmada;
pub mod labels;
pub mod lint;
pub mod messages;
pub mod metadata;
pub mod object_reference;
#[cfg(feature = "playground")]
pub mod playground;
pub mod preserve;
pub mod rehearsal;
pub mod request;
pub mod restore;
pub mod settings;
pub mod state;
pub mod verdict;
pub mod workload_match;

pub use cluster::Cluster;
pub use request::Request;
pub use settings::Settings;
pub use verdict::{Outcome, Verdict};

use serde_json::Value;

use json::{Fields, NotRead};
use karmada::{POLICY_GROUP, WORK_GROUP};
use messages::chain;
use object_reference::ObjectReference;
use request::RequestError;

/// The map or set of these entries. `collect` would sort them first, which adds a sort of 5 KB to the module for every
/// type.
pub(crate) fn collected<Entries: Default + Extend<Entry>, Entry>(entries: impl IntoIterator<Item = Entry>) -> Entries {
    let mut collected = Entries::default();
    collected.extend(entries);
    collected
}

/// Which part of the policy a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Lint,
    Preserve,
    Feed,
    Restore,
}

impl Stage {
    pub(crate) fn of(request: &Request<'_>) -> Self {
        match (request.kind.group.as_ref(), request.kind.kind.as_ref()) {
            (POLICY_GROUP, "PropagationPolicy" | "ClusterPropagationPolicy") => Self::Lint,
            (WORK_GROUP, "ResourceBinding" | "ClusterResourceBinding") => Self::Preserve,
            (WORK_GROUP, "Work") => Self::Feed,
            _ => Self::Restore,
        }
    }
}

/// Decides the payload of an engine: `{"request": {…}, "settings": {…}}`, as in Kubewarden's `validate`. An invalid
/// payload is denied with a message: if this function returned an error, the user would see an internal error of the
/// policy server.
pub fn decide(payload: &[u8], cluster: &impl Cluster) -> Verdict<String> {
    let payload = std::str::from_utf8(payload).map_err(|error| error.to_string());
    let (request, settings) =
        match payload.and_then(|payload| request::read_payload(payload).map_err(|error| error.to_string())) {
            Ok(payload) => payload,
            Err(error) => {
                return Verdict::deny(format!("cannot read the request that the policy engine sent: {error}"));
            }
        };
    // Requests that no stage reads are accepted before the settings are read.
    if !request.is_write() {
        return Verdict::accept();
    }
    match Settings::for_request(settings, &request) {
        Ok(settings) => evaluate(&request, &settings, cluster),
        Err(error) => Verdict::deny(chain(&error)),
    }
}

/// Decides one admission request.
///
/// The verdict is deterministic, the same for a dry run, and idempotent: a request whose object is the result of this
/// function is accepted unchanged. So are requests for a subresource, operations other than CREATE and UPDATE, objects
/// that are being deleted, and objects that the policy does not understand.
///
/// The stage `feed` makes at most two lookups for a request (the second for a dependent of an application), `restore`
/// one for each ConfigMap, and the other stages none.
pub fn evaluate(request: &Request<'_>, settings: &Settings, cluster: &impl Cluster) -> Verdict<String> {
    if !request.is_write() {
        return Verdict::accept();
    }
    let stage = Stage::of(request);
    if stage == Stage::Restore && settings.restore.is_empty() {
        return Verdict::accept();
    }
    let verdict = match review_parts(stage, request, settings, cluster, &|parts| parts) {
        // It is rare that an edit goes beyond what was read: an object with a duplicate member needs it.
        Err(ReviewError::NotRead) => review_parts(stage, request, settings, cluster, &|_| Fields::whole()),
        verdict => verdict,
    };
    let verdict = verdict.unwrap_or_else(|error| match error {
        _ if request.is_terminating() => Verdict::accept(),
        error => Verdict::deny(format!("{}: {}", request.reference(), chain(&error))),
    });
    verdict.limited()
}

/// Why a request has no verdict.
#[derive(Debug, thiserror::Error)]
enum ReviewError {
    #[error(transparent)]
    Request(#[from] RequestError),
    #[error("cannot write the object")]
    NotRead,
}

/// The verdict on a request. `detail` extends what the stage needs to read of the request's objects.
fn review_parts(
    stage: Stage,
    request: &Request<'_>,
    settings: &Settings,
    cluster: &impl Cluster,
    detail: &dyn for<'f> Fn(Fields<'f>) -> Fields<'f>,
) -> Result<Verdict<String>, ReviewError> {
    let fields = detail(match stage {
        Stage::Lint => lint::fields(),
        Stage::Preserve => karmada::binding_fields(),
        Stage::Feed => karmada::work_fields(restore::fields(&settings.restore)),
        Stage::Restore => restore::fields(&settings.restore),
    });
    let old = request.old_object(&fields);
    let Some(mut object) = request.object(fields)? else { return Ok(Verdict::accept()) };
    if metadata::is_terminating(object.value()) {
        return Ok(Verdict::accept());
    }
    let mut old = old?;
    if stage == Stage::Preserve
        && let Some(clusters) = preserve::clusters_left(object.value(), old.as_ref(), &settings.preserve)
    {
        // Which statuses are needed is known only after the binding was read.
        match &mut old {
            Some(Value::Object(old)) => {
                let mut fields = Fields::default();
                karmada::add_statuses(&mut fields, clusters);
                let statuses = request.old_object(&fields)?;
                old.extend(statuses.and_then(|mut old| Some(("status".to_owned(), old.get_mut("status")?.take()))));
            }
            _ => {
                let mut fields = karmada::binding_fields();
                karmada::add_statuses(&mut fields, clusters);
                object = object.read_again(detail(fields)).map_err(RequestError::object)?;
            }
        }
    }
    let verdict = review(request, object.value(), old.as_ref(), settings, cluster);
    verdict.try_map(|edited| object.write(&edited).map_err(|NotRead| ReviewError::NotRead))
}

/// The verdict on the object of a write. At least what the stage needs was read of it and of the stored object.
pub fn review(
    request: &Request<'_>,
    object: &Value,
    old: Option<&Value>,
    settings: &Settings,
    cluster: &impl Cluster,
) -> Verdict {
    match Stage::of(request) {
        Stage::Lint => lint::review(object, old, &request.reference().to_string(), settings),
        Stage::Preserve => review_binding(object, old, settings),
        Stage::Feed => review_work(request, object, old, settings, cluster),
        Stage::Restore => restore::review(request, object, old, &settings.restore, cluster),
    }
}

/// Both stages for bindings, `guard` and `preserve`: each may deny the request.
fn review_binding(binding: &Value, old: Option<&Value>, settings: &Settings) -> Verdict {
    let mut guarded = guard::review(binding, old, settings.guard);
    if !guarded.is_allowed() {
        return guarded;
    }
    let mut verdict = preserve::review(binding, old, &settings.preserve);
    verdict.warnings.append(&mut guarded.warnings);
    verdict.audit_annotations.extend(guarded.audit_annotations);
    verdict
}

/// Both stages for Works: `feed` writes the state onto a manifest, and `restore` changes the manifest.
fn review_work(
    request: &Request<'_>,
    work: &Value,
    old: Option<&Value>,
    settings: &Settings,
    cluster: &impl Cluster,
) -> Verdict {
    let (mut verdict, owner) = feed::review(request, work, old, &settings.feed, cluster);
    if !verdict.is_allowed() || settings.restore.is_empty() {
        return verdict;
    }
    let fed = match &verdict.outcome {
        Outcome::Mutate(fed) => fed,
        _ => work,
    };
    let is_resource = |reference: ObjectReference<'_>| owner.propagates(reference);
    match restore::work::apply_in(fed, old, is_resource, &settings.restore, cluster) {
        Ok(mut restoration) => {
            if let Some(restored) = restoration.object {
                verdict.outcome = Verdict::mutate(work, restored).outcome;
            }
            if !restoration.done.is_empty() {
                verdict.audit_annotations.insert("restore", restoration.done.join("; "));
            }
            verdict.warnings.append(&mut restoration.warnings);
            verdict.notes.append(&mut restoration.notes);
        }
        Err(failure) => verdict = failure.into_verdict(Some(request.reference())),
    }
    verdict
}
