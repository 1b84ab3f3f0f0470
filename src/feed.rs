//! The stage `feed`: the preserved state is written onto the manifest that goes to the new cluster, and kept there.
//!
//! Karmada rewrites the whole manifest from its template on every sync, so this stage decides again on every request:
//! it feeds the state, keeps what was fed before, or does nothing.

use serde_json::{Map, Value};

use crate::cluster::{Cluster, Get, LookupError};
use crate::history::{HISTORY_ANNOTATION, History, MoveType, Phase, Record};
use crate::karmada::{self, BINDING_API_VERSION, Binding, BindingReference, PurgeMode, Work};
use crate::labels::is_label_value;
use crate::messages::{chain, quote, warning};
use crate::metadata::{self, MetadataError};
use crate::object_reference::ObjectReference;
use crate::request::Request;
use crate::settings::{FeedSettings, OnLookupFailure};
use crate::state::{self, AliasError, FROM_LABEL, STATE_ANNOTATION, State, TYPE_LABEL};
use crate::verdict::Verdict;

/// The fields of a binding that this stage reads, besides its metadata.
const BINDING_FIELDS: [&str; 6] = [
    "spec.clusters",
    "spec.gracefulEvictionTasks",
    "spec.requiredBy",
    "spec.resource",
    "status.aggregatedStatus.clusterName",
    "status.aggregatedStatus.health",
];

/// What this stage knows about the Work's binding.
#[derive(Debug)]
pub enum Owner {
    /// The binding.
    Binding(Value),
    /// It could not be read, and the settings let the Work pass.
    Unknown,
    /// The Work is not Karmada's, or its binding is gone.
    None,
}

impl Owner {
    /// Whether the binding propagates that object; true where the binding is unknown.
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
    let (reference, error) = match find_binding(work, &reference, cluster) {
        Ok(Ok(binding)) => match find_requirer(Binding::new(&binding), member, cluster) {
            Ok(requirer) => {
                let view = Binding::new(&binding);
                let source = requirer.as_ref().map_or(view, Binding::new);
                let feed = Feed::choose(source, member, request.is_create(), settings, &mut warnings);
                let feed = feed.filter(|_| view.clusters_with_required_by() == [member]);
                let verdict = write(work, old, feed.as_ref(), Some(view.resource()), warnings);
                return (verdict, Owner::Binding(binding));
            }
            Err((reference, error)) => (reference, error),
        },
        Ok(Err(why_not)) => return (Verdict::accept().with_note(why_not), Owner::None),
        Err(error) => (reference.to_string(), error),
    };
    let problem = format!("cannot read {reference}: {error}");
    let verdict = match settings.on_lookup_failure {
        OnLookupFailure::Reject => {
            Verdict::deny(format!("{problem}; {} is held back; Karmada will retry", request.reference()))
        }
        OnLookupFailure::Accept => {
            warnings.push(warning(&format!("state not fed: {problem}")));
            write(work, old, None, None, warnings)
        }
    };
    (verdict, Owner::Unknown)
}

/// The Work's binding, or why the Work has none.
fn find_binding(
    work: &Value,
    reference: &BindingReference<'_>,
    cluster: &impl Cluster,
) -> Result<Result<Value, &'static str>, LookupError> {
    let Some(binding) = get_binding(reference, cluster)? else {
        return Ok(Err("the Work's binding does not exist"));
    };
    // A binding that was deleted and created again under the same name is another application.
    let id = metadata::label(&binding, reference.permanent_id_label);
    if id != metadata::label(work, reference.permanent_id_label) {
        return Ok(Err("the Work belongs to an earlier binding of the same name"));
    }
    Ok(Ok(binding))
}

/// The binding that requires `binding`, if `binding` is attached: a dependent has no moves of its own and follows those
/// of its application.
fn find_requirer(
    binding: Binding<'_>,
    member: &str,
    cluster: &impl Cluster,
) -> Result<Option<Value>, (String, LookupError)> {
    let has_moves = metadata::annotation(binding.object(), HISTORY_ANNOTATION).is_some() || !binding.tasks().is_empty();
    let Some((namespace, name)) = binding.requirer_in(member) else { return Ok(None) };
    if has_moves || karmada::is_stateless(binding.resource()) {
        return Ok(None);
    }
    let reference = BindingReference::new(namespace, name);
    get_binding(&reference, cluster).map_err(|error| (reference.to_string(), error))
}

fn get_binding(reference: &BindingReference<'_>, cluster: &impl Cluster) -> Result<Option<Value>, LookupError> {
    let binding = cluster.get(&Get {
        api_version: BINDING_API_VERSION,
        kind: reference.kind,
        namespace: reference.namespace,
        name: reference.name,
        fields: &BINDING_FIELDS,
    })?;
    match binding {
        Some(binding) if !binding.is_object() => {
            Err(LookupError::Garbage(format!("it is {}", metadata::type_name(&binding))))
        }
        binding => Ok(binding),
    }
}

/// The state that is written into a Work.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Feed {
    state: State,
    move_type: MoveType,
    from: String,
}

impl Feed {
    /// The state for the Work of `member`: that of the newest move in the binding's history or, where there is no
    /// history, that of the last eviction task, as Karmada itself does.
    fn choose(
        binding: Binding<'_>,
        member: &str,
        is_create: bool,
        settings: &FeedSettings,
        warnings: &mut Vec<String>,
    ) -> Option<Self> {
        let mut history = History::read(binding.object()).unwrap_or_else(|error| {
            warnings.push(warning(&format!("{}: {}", binding.resource(), chain(&error))));
            History::default()
        });
        // Statuses change without a request that the policy sees.
        history.update(binding, binding);
        let (feed, is_owed_here) = match history.newest() {
            Some(record) => (Self::of_record(record), Self::is_owed(record, member, is_create, settings)),
            None => Self::of_task(binding, member, settings)?,
        };
        // A copy that is already running and healthy has its own state.
        if !is_owed_here || binding.is_healthy(member) || feed.state.is_empty() {
            return None;
        }
        // Several clusters would all resume from the same state.
        let clusters = binding.clusters_with_required_by();
        if clusters == [member] {
            return Some(feed);
        }
        if clusters.contains(&member) {
            let text = format!(
                "state of {} from {} is not fed: {} clusters are chosen, and state goes to one",
                binding.resource(),
                feed.from,
                clusters.len()
            );
            warnings.push(warning(&text));
        }
        None
    }

    /// Whether the state of a record still has to be fed to `member`.
    fn is_owed(record: &Record, member: &str, is_create: bool, settings: &FeedSettings) -> bool {
        let is_open = record.phase.is_ongoing() || (record.phase == Phase::Expired && is_create);
        // Where no other cluster fits, the scheduler sends the application back to the cluster that it left.
        let is_new_here = !record.before.iter().any(|before| before == member) || (record.from == member && is_create);
        is_open && is_new_here && record.effective_purge_mode().is_some_and(|mode| settings.purge_modes.contains(&mode))
    }

    fn of_record(record: &Record) -> Self {
        Self { state: record.state.clone(), move_type: record.move_type, from: record.from.clone() }
    }

    /// The state of the last eviction task, and whether it has to be fed to `member`.
    fn of_task(binding: Binding<'_>, member: &str, settings: &FeedSettings) -> Option<(Self, bool)> {
        let task = *binding.tasks().last()?;
        let before = task.clusters_before_failover().unwrap_or_default();
        let is_fed = PurgeMode::from_name(task.purge_mode()).is_some_and(|mode| settings.purge_modes.contains(&mode));
        let feed = Self {
            state: state::of_labels(task.preserved_label_state()?),
            move_type: MoveType::Failover(task.failover_type()),
            from: task.from_cluster().to_owned(),
        };
        Some((feed, is_fed && !before.contains(&member)))
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
        metadata::set_label(manifest, TYPE_LABEL, self.move_type.as_str())?;
        if is_label_value(&self.from) {
            metadata::set_label(manifest, FROM_LABEL, &self.from)?;
        }
        Ok(())
    }
}

/// Why a value can't be written as the label `alias`.
fn label_problem(alias: &str, value: &str) -> Option<&'static str> {
    match state::check_alias(alias) {
        Err(AliasError::NotALabelName(_)) => Some("not a valid label name"),
        Err(AliasError::OfKarmada(_) | AliasError::OfThisPolicy(_)) => Some("reserved by Karmada or this policy"),
        Ok(()) if !is_label_value(value) => Some("not a valid label value"),
        Ok(()) => None,
    }
}

/// The end of a long label name, which is the part that differs between names, so that it fits into a warning.
fn ellipsis(alias: &str) -> String {
    const MAX: usize = 40;
    let length = alias.chars().count();
    if length <= MAX {
        return quote(alias);
    }
    let end: String = alias.chars().skip(length - MAX + 1).collect();
    quote(&format!("…{end}"))
}

/// The Work with `feed` written onto its manifests, or with what was fed into the manifests of `old`.
fn write(
    work: &Value,
    old: Option<&Value>,
    feed: Option<&Feed>,
    resource: Option<ObjectReference<'_>>,
    mut warnings: Vec<String>,
) -> Verdict {
    let old_manifests = old.map(|old| Work::new(old).manifests()).unwrap_or_default();
    if feed.is_none() && old_manifests.is_empty() {
        return Verdict { warnings, ..Verdict::accept() };
    }
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
                "cannot feed the state to {reference}: {error} in its manifest; fix the resource template"
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

/// Copies what this policy wrote onto `old` to `manifest`, where that does not set the same keys itself. The state
/// annotation says which labels were fed. An annotation without this policy's label came from the template, which may
/// remove it again.
fn keep(manifest: &mut Value, old: &Value) -> Result<(), MetadataError> {
    let Some(state) = state::read_annotation(old) else {
        return Ok(());
    };
    if metadata::label(old, TYPE_LABEL).is_none() {
        return Ok(());
    }
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
