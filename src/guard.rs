//! The stage `guard`: an application is not scheduled back into a cluster that it is being evicted from.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::collected;
use crate::karmada::Binding;
use crate::messages::{quote, warning};
use crate::settings::Level;
use crate::verdict::Verdict;

/// Denies (or warns about) every cluster that the write adds to `spec.clusters` although one of the binding's eviction
/// tasks is from it. `old` is the stored binding.
pub fn review(binding: &Value, old: Option<&Value>, level: Level) -> Verdict {
    let binding = Binding::new(binding);
    let tasks = binding.tasks();
    if tasks.is_empty() {
        return Verdict::accept();
    }
    let scheduled: BTreeSet<&str> = collected(old.map(|old| Binding::new(old).clusters()).unwrap_or_default());
    let findings: Vec<String> = binding
        .clusters()
        .into_iter()
        .filter(|cluster| !scheduled.contains(cluster))
        .filter_map(|cluster| {
            let task = tasks.iter().find(|task| task.from_cluster() == cluster)?;
            Some(format!("it is being evicted from cluster {} ({})", quote(cluster), quote(task.reason())))
        })
        .collect();
    if findings.is_empty() {
        return Verdict::accept();
    }
    let findings = findings.join("; ");
    match level {
        Level::Off => Verdict::accept(),
        Level::Warn => {
            let mut verdict = Verdict::accept();
            verdict.warnings.push(warning(&format!("{}: {findings}", binding.resource())));
            verdict.audit_annotations.insert("guard", findings);
            verdict
        }
        Level::Enforce => {
            let mut verdict = Verdict::deny(format!(
                "cannot schedule {}: {findings}; choose another cluster or wait until the task in \
                 `spec.gracefulEvictionTasks` is gone (`guard: Warn` in the policy's settings lets it pass)",
                binding.resource(),
            ));
            verdict.audit_annotations.insert("guard", findings);
            verdict
        }
    }
}
