//! The stage `feed`: the preserved state is written onto the manifest that goes to the new cluster, and kept there.
//!
//! Karmada writes the whole manifest anew from its template on every sync, so on every request this stage decides from
//! the start: there is state to feed, or there was and it is kept, or neither.

use serde_json::{Map, Value};

use crate::cluster::{Cluster, Get, LookupError};
use crate::history::{History, Phase, Record};
use crate::karmada::{
    self, BINDING_API_VERSION, Binding, BindingReference, FailoverType, ObjectReference, PurgeMode, Work,
};
use crate::labels::{is_label_value, is_qualified_name};
use crate::metadata::{self, MetadataError};
use crate::request::Request;
use crate::settings::{FeedSettings, OnLookupFailure};
use crate::state::{self, FROM_LABEL, PREFIX, STATE_ANNOTATION, State, TYPE_LABEL};
use crate::verdict::{Verdict, chain, quote, warning};

/// What is read of a binding; its metadata comes along.
const BINDING_FIELDS: [&str; 4] = ["spec.clusters", "spec.gracefulEvictionTasks", "spec.requiredBy", "spec.resource"];

/// The Work's binding, as far as this stage could see it.
#[derive(Debug)]
pub enum Owner {
    /// This one.
    Binding(Value),
    /// It could not be read, and the settings let the Work pass.
    Unknown,
    /// The Work is not Karmada's, or its binding is gone.
    None,
}

impl Owner {
    /// Whether the binding propagates the object of that reference, as far as is known.
    pub fn propagates(&self, reference: ObjectReference<'_>) -> bool {
        match self {
            Self::Binding(binding) => Binding::new(binding).resource() == reference,
            Self::Unknown => true,
            Self::None => false,
        }
    }
}

/// Feeds the state of the Work's binding into `work`, or keeps what was fed into `old`, the stored Work.
pub fn review(
    request: &Request<'_>,
    work: &Value,
    old: Option<&Value>,
    settings: &FeedSettings,
    cluster: &impl Cluster,
) -> (Verdict, Owner) {
    let view = Work::new(work);
    let Some(reference) = view.binding() else {
        return (Verdict::accept().with_note("the Work's annotations name no binding"), Owner::None);
    };
    let Some(member) = karmada::cluster_of_namespace(&request.namespace) else {
        let note = "the Work is not in the namespace of a member cluster";
        return (Verdict::accept().with_note(note), Owner::None);
    };

    let mut warnings = Vec::new();
    let error = match find_binding(work, &reference, cluster) {
        Ok(Ok(binding)) => {
            let view = Binding::new(&binding);
            let feed = Feed::choose(view, member, request.is_create(), settings, &mut warnings);
            let verdict = write(work, old, feed.as_ref(), Some(view.resource()), warnings);
            return (verdict, Owner::Binding(binding));
        }
        Ok(Err(why_not)) => return (Verdict::accept().with_note(why_not), Owner::None),
        Err(error) => error,
    };
    let problem = format!("cannot read {}: {error}", describe(&reference));
    let verdict = match settings.on_lookup_failure {
        OnLookupFailure::Reject => {
            Verdict::deny(format!("{problem}; {} is held back; Karmada will retry", request.describe()))
        }
        OnLookupFailure::Accept => {
            warnings.push(warning(&format!("state not fed: {problem}")));
            write(work, old, None, None, warnings)
        }
    };
    (verdict, Owner::Unknown)
}

/// The binding of the Work, or why it does not count.
fn find_binding(
    work: &Value,
    reference: &BindingReference<'_>,
    cluster: &impl Cluster,
) -> Result<Result<Value, &'static str>, LookupError> {
    let binding = cluster.get(&Get {
        api_version: BINDING_API_VERSION,
        kind: reference.kind,
        namespace: reference.namespace,
        name: reference.name,
        fields: &BINDING_FIELDS,
    })?;
    let Some(binding) = binding else {
        return Ok(Err("the Work's binding does not exist"));
    };
    if !binding.is_object() {
        return Err(LookupError::Garbage(format!("it is {}", metadata::type_name(&binding))));
    }
    // A binding of the same name that was made anew is another application.
    let id = metadata::label(&binding, reference.permanent_id_label);
    if id != metadata::label(work, reference.permanent_id_label) {
        return Ok(Err("the Work belongs to an earlier binding of the same name"));
    }
    Ok(Ok(binding))
}

fn describe(reference: &BindingReference<'_>) -> String {
    match reference.namespace {
        Some(namespace) => format!("{} {}", reference.kind, quote(&format!("{namespace}/{}", reference.name))),
        None => format!("{} {}", reference.kind, quote(reference.name)),
    }
}

/// State that goes into a Work.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Feed {
    state: State,
    failover_type: FailoverType,
    from: String,
}

impl Feed {
    /// What goes into the Work for `member`: the state of the newest failover in the binding's history, or without a
    /// history that of its last eviction task, as Karmada itself does.
    fn choose(
        binding: Binding<'_>,
        member: &str,
        is_create: bool,
        settings: &FeedSettings,
        warnings: &mut Vec<String>,
    ) -> Option<Self> {
        // State goes to one cluster: it would be resumed twice.
        if binding.clusters_with_required_by() != [member] {
            return None;
        }
        let is_fed = |purge_mode: &str| {
            PurgeMode::from_name(purge_mode).is_some_and(|mode| settings.purge_modes.contains(&mode))
        };
        let history = History::read(binding.object()).unwrap_or_else(|error| {
            warnings.push(warning(&format!("{}: {}", binding.resource(), chain(&error))));
            History::default()
        });
        match history.newest() {
            Some(record) => {
                let is_owed = record.phase.is_ongoing() || (record.phase == Phase::Expired && is_create);
                // Where nothing else fitted, the application comes back to the cluster it was taken from.
                let is_new_here =
                    !record.before.iter().any(|before| before == member) || (record.from == member && is_create);
                (is_owed && is_new_here && is_fed(&record.purge_mode)).then(|| Self::of_record(record))
            }
            None => {
                let task = *binding.tasks().last()?;
                let before = task.clusters_before_failover().unwrap_or_default();
                if !is_fed(task.purge_mode()) || before.contains(&member) {
                    return None;
                }
                let state = task.preserved_label_state()?;
                Some(Self {
                    state: state
                        .iter()
                        .filter_map(|(alias, value)| Some((alias.clone(), value.as_str()?.to_owned())))
                        .collect(),
                    failover_type: task.failover_type(),
                    from: task.from_cluster().to_owned(),
                })
            }
        }
        .filter(|feed| !feed.state.is_empty())
    }

    fn of_record(record: &Record) -> Self {
        Self { state: record.state.clone(), failover_type: record.failover_type, from: record.from.clone() }
    }

    /// Writes the state onto a manifest.
    fn write(&self, manifest: &mut Value, warnings: &mut Vec<String>) -> Result<(), MetadataError> {
        for (alias, value) in &self.state {
            match label_problem(alias, value) {
                None => metadata::set_label(manifest, alias, value)?,
                Some(problem) => {
                    warnings.push(warning(&format!("{}: {problem}; it is in the annotation only", ellipsis(alias))));
                }
            }
        }
        metadata::set_annotation(manifest, STATE_ANNOTATION, state::to_annotation(&self.state))?;
        metadata::set_label(manifest, TYPE_LABEL, self.failover_type.as_str())?;
        if is_label_value(&self.from) {
            metadata::set_label(manifest, FROM_LABEL, &self.from)?;
        }
        Ok(())
    }
}

/// Why a value can't be written as the label `alias`.
fn label_problem(alias: &str, value: &str) -> Option<&'static str> {
    if karmada::is_own_label(alias) || alias.starts_with(PREFIX) {
        Some("the label has an owner")
    } else if !is_qualified_name(alias) {
        Some("not a legal label name")
    } else if !is_label_value(value) {
        Some("the value is not legal as a label")
    } else {
        None
    }
}

/// The end of a label name, which is what tells it from others, for a line of little room.
fn ellipsis(alias: &str) -> String {
    const MAX: usize = 40;
    let length = alias.chars().count();
    if length <= MAX {
        return quote(alias);
    }
    let end: String = alias.chars().skip(length - MAX + 1).collect();
    quote(&format!("…{end}"))
}

/// The Work with `feed` on its manifests, or with what was fed into the manifests of `old`.
fn write(
    work: &Value,
    old: Option<&Value>,
    feed: Option<&Feed>,
    resource: Option<ObjectReference<'_>>,
    mut warnings: Vec<String>,
) -> Verdict {
    let old_manifests = old.map(|old| Work::new(old).manifests()).unwrap_or_default();
    let mut fed = work.clone();
    let mut done = Vec::new();
    for manifest in karmada::manifests_mut(&mut fed) {
        let before = manifest.clone();
        let reference = ObjectReference::of(&before);
        let written = match feed {
            Some(feed) if resource == Some(reference) => {
                done.push(format!("fed {reference} the state from {}", feed.from));
                feed.write(manifest, &mut warnings)
            }
            _ => match old_manifests.iter().find(|old| ObjectReference::of(old) == reference) {
                Some(old) => keep(manifest, old),
                None => Ok(()),
            },
        };
        if let Err(error) = written {
            return Verdict::deny(format!(
                "cannot feed the state to {reference}: {error} in its manifest; mend the resource template"
            ));
        }
        if feed.is_none() && *manifest != before {
            done.push(format!("kept the state of {reference}"));
        }
    }
    let mut verdict = Verdict::mutate(work, fed);
    if !done.is_empty() && verdict != Verdict::accept() {
        verdict.audit_annotations.insert("feed", done.join("; "));
    }
    verdict.warnings = warnings;
    verdict
}

/// Copies what this policy wrote onto `old` to `manifest`, where that does not set the same keys itself.
/// The annotation with the state says which labels they were.
fn keep(manifest: &mut Value, old: &Value) -> Result<(), MetadataError> {
    let Ok(Some(state)) = state::read_annotation(old) else {
        return Ok(());
    };
    if metadata::annotation(manifest, STATE_ANNOTATION).is_none() {
        metadata::set_annotation(manifest, STATE_ANNOTATION, state::to_annotation(&state))?;
    }
    let aliases = state
        .iter()
        .filter(|(alias, value)| label_problem(alias, value).is_none() && metadata::label(old, alias) == Some(value));
    let own = [TYPE_LABEL, FROM_LABEL].into_iter();
    for key in aliases.map(|(alias, _)| alias.as_str()).chain(own) {
        if let Some(value) = metadata::label(old, key).filter(|_| !has_label(manifest, key)) {
            metadata::set_label(manifest, key, value)?;
        }
    }
    Ok(())
}

fn has_label(object: &Value, key: &str) -> bool {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.is_some_and(|labels: &Map<String, Value>| labels.contains_key(key))
}
