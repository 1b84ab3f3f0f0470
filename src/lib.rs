//! Stateful failover as an admission policy: carries an application's state from the cluster it failed in to the
//! cluster that Karmada moves it to.
//!
//! ```text
//! PropagationPolicy ── lint ──►  ResourceBinding ── preserve ──►  Work ── feed, restore ──►  workload resumes
//! (Karmada API server)           (Karmada API server)             (Karmada API server)       (member; restore can run here)
//! ```
//!
//! Everything is a function from values to a [`Verdict`]: [`evaluate`] takes a [`Request`], [`Settings`] and a
//! [`Cluster`] to look objects up in, and knows no engine, clock or randomness. The shells around it are thin.
//!
//! | module | what it holds |
//! |---|---|
//! | [`lint`], [`preserve`], [`guard`], [`feed`], [`restore`] | the stages |
//! | [`karmada`] | views of Karmada's objects: every field name of its API |
//! | [`interpreted_kinds`] | of which kinds Karmada knows the health, and what of their status it reflects |
//! | [`history`], [`state`] | what the policy remembers of a move, on the binding and on the workload |
//! | [`jsonpath`] | the dialects that state rules are written in |
//! | [`settings`], [`workload_match`], [`request`], [`json`], [`cluster`], [`verdict`] | what goes in and what comes out |
//! | [`metadata`], [`labels`] | labels and annotations, and what is valid in them |
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
pub mod metadata;
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

use karmada::{POLICY_GROUP, WORK_GROUP};
use request::RequestError;
use verdict::chain;

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

/// Decides one admission request.
///
/// Deterministic, the same on a dry run, and idempotent: evaluating a request on its own result accepts it as it is.
/// Requests for a subresource, other operations than CREATE and UPDATE, and objects that are being deleted pass as they
/// came, as does whatever the policy does not understand.
///
/// A request costs at most two lookups in the stage `feed` (the second for a dependent of an application), one for each
/// ConfigMap in `restore`, and no others.
pub fn evaluate(request: &Request<'_>, settings: &Settings, cluster: &impl Cluster) -> Verdict {
    if !request.is_write() {
        return Verdict::accept();
    }
    let stage = Stage::of(request);
    if stage == Stage::Restore && settings.restore.is_empty() {
        return Verdict::accept();
    }
    if request.is_terminating() {
        return Verdict::accept();
    }
    let verdict = match objects(request) {
        Ok(Some((object, old))) => {
            let old = old.as_ref();
            match stage {
                Stage::Lint => lint::review(&object, old, &request.describe(), settings),
                Stage::Preserve => review_binding(&object, old, settings),
                Stage::Feed => review_work(request, &object, old, settings, cluster),
                Stage::Restore => restore::review(request, &object, old, &settings.restore, cluster),
            }
        }
        Ok(None) => Verdict::accept(),
        Err(error) => Verdict::deny(format!("{}: {}", request.describe(), chain(&error))),
    };
    verdict.limited()
}

/// The object and the stored one, where the object is one at all.
fn objects(request: &Request<'_>) -> Result<Option<(Value, Option<Value>)>, RequestError> {
    match request.object()? {
        Some(object) if object.is_object() => Ok(Some((object, request.old_object()?.filter(Value::is_object)))),
        _ => Ok(None),
    }
}

/// Both stages that look at bindings: what either refuses is refused.
fn review_binding(binding: &Value, old: Option<&Value>, settings: &Settings) -> Verdict {
    let mut guarded = guard::review(binding, old, settings.guard);
    if !guarded.is_allowed() {
        return guarded;
    }
    let mut verdict = preserve::review(binding, old, &settings.preserve);
    verdict.warnings.append(&mut guarded.warnings);
    verdict.audit_annotations.append(&mut guarded.audit_annotations);
    verdict
}

/// Both stages that look at Works: the state is fed to a manifest, and restored in it.
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
    let is_resource = |reference: karmada::ObjectReference<'_>| owner.propagates(reference);
    match restore::work::carry_out_in(fed, old, is_resource, &settings.restore, cluster) {
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
        Err(mut failure) => {
            failure.workload = format!("{} in {}", failure.workload, request.describe());
            let audit_annotations = [("restore", format!("{} failed", failure.what()))].into();
            verdict = Verdict { audit_annotations, ..Verdict::deny(failure.to_string()) };
        }
    }
    verdict
}
