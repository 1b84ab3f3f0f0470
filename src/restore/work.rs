//! Applies the rules to the manifests of a Work. Karmada brings the changed manifests to the member cluster.

use serde_json::Value;

use super::rule::Rule;
use super::{Failure, Restoration, Workload, apply};
use crate::cluster::Cluster;
use crate::karmada::{self, Work};
use crate::metadata;
use crate::object_reference::ObjectReference;
use crate::state::STATE_ANNOTATION;

/// Applies `rules` to the manifests of `work` for which `is_resource` holds and which carry state. `old` is the stored
/// Work: a manifest that it has is updated, any other is created.
///
/// # Errors
/// [`Failure`], where a rule can't be applied.
pub fn apply_in(
    work: &Value,
    old: Option<&Value>,
    is_resource: impl Fn(ObjectReference<'_>) -> bool,
    rules: &[Rule],
    cluster: &impl Cluster,
) -> Result<Restoration, Failure> {
    let old_manifests = old.map(|old| Work::new(old).manifests()).unwrap_or_default();
    let mut restored = Restoration::default();
    for (index, manifest) in Work::new(work).manifests().iter().enumerate() {
        let reference = ObjectReference::of(manifest);
        if metadata::annotation(manifest, STATE_ANNOTATION).is_none() || !is_resource(reference) {
            continue;
        }
        let old = old_manifests.iter().find(|old| ObjectReference::of(old) == reference);
        let mut of_manifest = apply(Workload { reference, object: manifest, old }, rules, cluster)?;
        if let Some(manifest) = of_manifest.object.take() {
            let result = restored.object.get_or_insert_with(|| work.clone());
            if let Some(place) = karmada::manifests_mut(result).get_mut(index) {
                *place = manifest;
            }
        }
        restored.done.append(&mut of_manifest.done);
        restored.warnings.append(&mut of_manifest.warnings);
        restored.notes.append(&mut of_manifest.notes);
    }
    Ok(restored)
}
