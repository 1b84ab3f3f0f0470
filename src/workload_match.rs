//! Matches workloads by API group, kind and namespace.

use wildmatch::WildMatch;

use crate::object_reference::ObjectReference;

/// Matches all groups, or all kinds.
pub const ALL: &str = "*";

/// `match` of a rule: group, kind and namespace must all match.
#[derive(Debug, Default)]
pub struct WorkloadMatch {
    /// API groups, `""` for the core group. Never empty.
    pub api_groups: Vec<String>,
    /// Kinds. Never empty.
    pub kinds: Vec<String>,
    /// Globs over whole names; empty for all namespaces (and cluster-scoped kinds).
    pub namespaces: Vec<String>,
}

impl WorkloadMatch {
    /// Whether `resource` matches.
    pub fn accepts(&self, resource: ObjectReference<'_>) -> bool {
        self.api_groups.iter().any(|group| group == ALL || group == resource.group)
            && self.kinds.iter().any(|kind| kind == ALL || kind == resource.kind)
            && (self.namespaces.is_empty()
                || self.namespaces.iter().any(|glob| WildMatch::new(glob).matches(resource.namespace)))
    }

    /// Whether some object can match both, judging by group and kind.
    pub fn may_meet(&self, other: &Self) -> bool {
        let meet = |left: &[String], right: &[String]| {
            left.iter().any(|left| left == ALL || right.iter().any(|right| right == ALL || left == right))
        };
        meet(&self.api_groups, &other.api_groups) && meet(&self.kinds, &other.kinds)
    }
}
