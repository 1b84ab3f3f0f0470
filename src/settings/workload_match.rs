//! Reads which workloads a rule is for.

use super::reader::{Errors, Object};
use crate::karmada;
use crate::verdict::quote;
use crate::workload_match::WorkloadMatch;

/// Reads `apiGroups`, `kinds` and `namespaces` of `object`.
pub(super) fn read(object: &Object<'_>, errors: &mut Errors) -> WorkloadMatch {
    for key in ["apiGroups", "kinds"] {
        if object.get(key).and_then(serde_json::Value::as_array).is_none_or(Vec::is_empty) {
            errors.add(&object.path, format_args!("`{key}` is missing or empty"));
        }
    }
    let api_groups = object.strings("apiGroups", errors);
    for (index, group) in api_groups.iter().enumerate().filter(|(_, group)| group.contains('/')) {
        let name = karmada::group(group);
        errors.add(
            &object.path_of("apiGroups").item(index),
            format_args!("{} has a version, write the group alone: `{name}`", quote(group)),
        );
    }
    WorkloadMatch {
        api_groups,
        kinds: object.strings("kinds", errors),
        namespaces: object.strings("namespaces", errors),
    }
}
