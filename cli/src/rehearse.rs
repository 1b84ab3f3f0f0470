//! `rehearse`: what a failover of each application would do now.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures::stream::{self, StreamExt as _};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use stateful_failover::Settings;
use stateful_failover::cluster::LookupError;
use stateful_failover::history::{History, Record};
use stateful_failover::interpreted_kinds::Interpretation;
use stateful_failover::karmada::{Binding, FailoverType, is_stateless};
use stateful_failover::lint::unnoticed_failure;
use stateful_failover::object_reference::ObjectReference;
use stateful_failover::rehearsal::scenario::restored;
use stateful_failover::rehearsal::{Rehearsal, Stop};
use stateful_failover::state::{self, State};

use crate::Ending;
use crate::arguments::{Connection, Format, Rehearse};
use crate::control_plane::{ControlPlane, Found, Lookups};
use crate::failure::{Failure, chain};
use crate::output::{Tone, one_line, print, print_structured, short, table};
use crate::{placement, settings};

/// The number of templates that are read at the same time.
const CONCURRENT_READS: usize = 16;
/// The age from which the output points out that a status is old.
const OLD_STATUS: Duration = Duration::from_secs(15 * 60);

/// The result of a failover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// The application resumes from its state.
    Ready,
    /// The application starts, but some of its state is missing or not restored.
    Degraded,
    /// The application does not start, or Karmada never moves it.
    Blocked,
}

impl Verdict {
    fn tone(self) -> Tone {
        match self {
            Self::Ready => Tone::Good,
            Self::Degraded => Tone::Doubtful,
            Self::Blocked => Tone::Bad,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Degraded => "degraded",
            Self::Blocked => "blocked",
        }
    }
}

/// One failover, from a cluster that the application runs in to one that its placement allows.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Rehearsed {
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    binding: String,
    /// `Kind/name` of the resource.
    resource: String,
    /// `application`, `cluster`, or both where the results are equal.
    failover: Vec<&'static str>,
    from: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    state: State,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    missing: BTreeMap<String, String>,
    /// Path to value.
    restored: BTreeMap<String, Value>,
    /// RFC 3339: the newest time in the status that the state was read from.
    #[serde(skip_serializing_if = "Option::is_none")]
    status_time: Option<String>,
    verdict: Verdict,
    /// The problems, each with what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

/// Rehearses the selected bindings.
///
/// # Errors
/// The settings or the bindings can't be read.
pub async fn run(connection: &Connection, arguments: &Rehearse) -> Result<Ending, Failure> {
    let settings = settings::read(&arguments.settings)?;
    let control_plane = ControlPlane::connect(connection).await?;
    let clusters = control_plane.clusters().await?;
    let context = Context {
        control_plane: &control_plane,
        settings: &settings,
        clusters: &clusters,
        found: Found::default(),
        is_restored_elsewhere: arguments.restored_elsewhere,
        now: Timestamp::now(),
    };
    let mut rehearsed = Vec::new();
    let mut without_rules = 0;
    let mut seen = 0;
    let progress = progress();
    let pages = control_plane.for_each_page(&arguments.selection, async |page| {
        seen += page.items.len() as u64;
        progress.set_length(seen + page.left);
        let (with_rules, others): (Vec<Value>, Vec<Value>) =
            page.items.into_iter().partition(|binding| !context.failovers(Binding::new(binding)).is_empty());
        without_rules += others.len();
        progress.inc(others.len() as u64);
        let mut rows =
            stream::iter(with_rules.iter().map(|binding| context.rehearse(binding))).buffered(CONCURRENT_READS);
        while let Some(rows) = rows.next().await {
            progress.inc(1);
            rehearsed.extend(rows);
        }
    });
    pages.await?;
    progress.finish_and_clear();
    rehearsed
        .sort_by(|a, b| (&a.namespace, &a.binding, &a.from, &a.to).cmp(&(&b.namespace, &b.binding, &b.from, &b.to)));
    match arguments.output {
        Format::Json | Format::Yaml => print_structured(&rehearsed, arguments.output)?,
        format => print(&as_table(&rehearsed, without_rules, format))?,
    }
    let is_blocked = rehearsed.iter().any(|row| row.verdict == Verdict::Blocked);
    Ok(if is_blocked { Ending::Findings } else { Ending::Clean })
}

fn progress() -> ProgressBar {
    // On standard error, and only on a terminal.
    let progress = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{pos} of {len} bindings {wide_bar}") {
        progress.set_style(style);
    }
    progress
}

/// The inputs that all rehearsals share.
struct Context<'a> {
    control_plane: &'a ControlPlane,
    settings: &'a Settings,
    clusters: &'a [Value],
    found: Found,
    is_restored_elsewhere: bool,
    now: Timestamp,
}

/// A failover to rehearse.
#[derive(Clone, Copy)]
struct Failover<'a> {
    failover_type: FailoverType,
    from: &'a str,
    to: &'a str,
    /// The other clusters that the application runs in.
    survivors: &'a [&'a str],
}

impl Context<'_> {
    /// The failovers of a binding for which there are state rules: its own, or the settings'.
    fn failovers(&self, binding: Binding<'_>) -> Vec<FailoverType> {
        if is_stateless(binding.resource()) {
            return Vec::new();
        }
        let types = [FailoverType::Application, FailoverType::Cluster].into_iter();
        let failover = binding.failover();
        let own: Vec<FailoverType> = types
            .filter(|failover_type| failover.is_some_and(|failover| !failover.rules(*failover_type).is_empty()))
            .collect();
        if own.is_empty() && !self.settings.preserve.rules_for(binding.resource()).is_empty() {
            return vec![FailoverType::Cluster];
        }
        own
    }

    /// All failovers of a binding.
    async fn rehearse(&self, binding: &Value) -> Vec<Rehearsed> {
        let view = Binding::new(binding);
        let (template, problem) = match self.template(binding).await {
            Ok(template) => (template, None),
            Err(problem) => (Value::Null, Some(problem)),
        };
        let lookups = Lookups::new(&self.found);
        let mut rows: Vec<Rehearsed> = Vec::new();
        let allowed = placement::allowed(binding, self.clusters);
        for from in view.clusters() {
            let survivors: Vec<&str> = view.clusters().into_iter().filter(|cluster| *cluster != from).collect();
            let targets: Vec<&str> =
                allowed.iter().copied().filter(|cluster| *cluster != from && !survivors.contains(cluster)).collect();
            for failover_type in self.failovers(view) {
                if targets.is_empty() || problem.is_some() {
                    let mut row = Rehearsed::new(binding, failover_type, from, None);
                    row.block(problem.clone().unwrap_or_else(|| {
                        let clusters = view.clusters().join(" and ");
                        format!("the placement allows no other cluster than {clusters}; add one to its clusterAffinity")
                    }));
                    merge(&mut rows, row);
                    continue;
                }
                for to in &targets {
                    let failover = Failover { failover_type, from, to, survivors: &survivors };
                    let row = loop {
                        let row = self.fail_over(binding, &template, failover, &lookups);
                        if !lookups.read(self.control_plane).await {
                            break row;
                        }
                    };
                    merge(&mut rows, row);
                }
            }
        }
        rows
    }

    /// The resource template, as Karmada would write it into a Work.
    async fn template(&self, binding: &Value) -> Result<Value, String> {
        let resource =
            |key: &str| binding.pointer(&format!("/spec/resource/{key}")).and_then(Value::as_str).unwrap_or_default();
        let namespace = Some(resource("namespace")).filter(|namespace| !namespace.is_empty());
        let found =
            self.control_plane.look_up(resource("apiVersion"), resource("kind"), namespace, resource("name")).await;
        let described = Binding::new(binding).resource();
        match found {
            Ok(Some(template)) => Ok(template),
            Ok(None) => Err(format!("{described} does not exist; apply it again, or let Karmada remove the binding")),
            Err(LookupError::Forbidden) => {
                Err(format!("{described} can't be read: forbidden; ask for a role with get on it"))
            }
            Err(error) => Err(format!("{described} can't be read: {}", chain(&error))),
        }
    }

    fn fail_over(&self, binding: &Value, template: &Value, failover: Failover<'_>, lookups: &Lookups<'_>) -> Rehearsed {
        let Failover { failover_type, from, to, survivors } = failover;
        let mut row = Rehearsed::new(binding, failover_type, from, Some(to));
        let mut rehearsal = Rehearsal::new(binding.clone(), template.clone(), Some(self.settings), lookups, false);
        let moved = move_application(&mut rehearsal, failover);
        let record = History::read(rehearsal.binding()).ok().and_then(|history| history.newest().cloned());
        let record = record.filter(|record| record.from == from && record.phase.is_ongoing());
        if let Some(record) = &record {
            row.state.clone_from(&record.state);
            row.missing.clone_from(&record.missing);
        }
        if let Some(manifest) = rehearsal.manifest(to) {
            let is_fed = state::read_annotation(manifest).is_some();
            row.restored = restored(manifest);
            self.judge(&mut row, record.as_ref(), is_fed, !survivors.is_empty());
        }
        if let Err(stop) = moved {
            row.block(match stop {
                Stop::Denied(message) | Stop::Karmada(message) => message,
            });
        }
        let warnings = rehearsal.steps().iter().flat_map(|step| step.verdict.warnings.iter());
        row.reasons.extend(warnings.filter(|warning| !warning.ends_with("it is in the annotation only")).cloned());
        self.look_at_cluster(&mut row, to);
        self.look_at_kind(&mut row, binding, failover_type);
        self.look_at_status(&mut row, Binding::new(binding).status(from));
        row
    }

    /// Judges what happened to the state in the new cluster.
    fn judge(&self, row: &mut Rehearsed, record: Option<&Record>, is_fed: bool, has_survivors: bool) {
        for (alias, why) in &row.missing.clone() {
            row.degrade(format!("`{alias}` has no value in {}: {why}; fix its jsonPath", row.from));
        }
        let Some(record) = record else {
            let from = &row.from;
            row.degrade(format!(
                "no status of the application was collected from {from}: it would start cold; see whether its Work there is applied"
            ));
            return;
        };
        if !is_fed {
            let mode = record.effective_purge_mode().map_or(record.purge_mode.as_str(), |mode| mode.as_str());
            let is_fed_mode =
                record.effective_purge_mode().is_some_and(|mode| self.settings.feed.purge_modes.contains(&mode));
            row.degrade(if !is_fed_mode {
                format!("purge mode {mode} is not fed; write `purgeMode: Directly`, or list it in `feed.purgeModes`")
            } else if has_survivors {
                "state is fed to one cluster only, and it runs in several; choose one with {spreadByField: cluster, maxGroups: 1}"
                    .to_owned()
            } else {
                format!("{} is not fed its state; the warnings below say why", row.resource)
            });
        } else if row.restored.is_empty() && !self.is_restored_elsewhere {
            let kind = row.resource.split('/').next().unwrap_or_default();
            let text = format!(
                "no restore rule writes the state into a {kind}; add one, or say --restored-elsewhere where members restore it"
            );
            row.degrade(text);
        }
    }

    fn look_at_cluster(&self, row: &mut Rehearsed, to: &str) {
        let cluster = self.clusters.iter().find(|cluster| placement::name(cluster) == to);
        if !cluster.is_some_and(placement::is_ready) {
            row.degrade(format!("{to} is not ready now; see `kubectl describe cluster {to}`"));
        }
    }

    /// Whether Karmada notices that the application is unhealthy.
    fn look_at_kind(&self, row: &mut Rehearsed, binding: &Value, failover_type: FailoverType) {
        let api_version = binding.pointer("/spec/resource/apiVersion").and_then(Value::as_str).unwrap_or_default();
        let kind = Binding::new(binding).resource().kind;
        let known = Interpretation::of(api_version, kind, &self.settings.lint_kinds);
        if failover_type == FailoverType::Application && !known.has_health {
            let (problem, remedy) = unnoticed_failure(api_version, kind);
            row.degrade(format!("{problem}; {remedy}"));
        }
    }

    fn look_at_status(&self, row: &mut Rehearsed, status: Option<&Value>) {
        let Some(time) = status.and_then(newest_time) else { return };
        row.status_time = Some(time.to_string());
        let age = self.now.duration_since(time);
        if age.unsigned_abs() > OLD_STATUS && !age.is_negative() {
            let minutes = age.as_secs() / 60;
            row.reasons.push(format!(
                "the newest time in the status of {} is {}: see whether it is still up to date",
                row.from,
                match minutes {
                    0..120 => format!("{minutes} minutes old"),
                    120..2880 => format!("{} hours old", minutes / 60),
                    _ => format!("{} days old", minutes / 1440),
                }
            ));
        }
    }
}

fn move_application(rehearsal: &mut Rehearsal<'_, Lookups<'_>>, failover: Failover<'_>) -> Result<(), Stop> {
    let Failover { failover_type, from, to, survivors } = failover;
    rehearsal.evict(from, failover_type)?;
    rehearsal.schedule(&[survivors, &[to]].concat())?;
    rehearsal.write_work(to)
}

impl Rehearsed {
    fn new(binding: &Value, failover_type: FailoverType, from: &str, to: Option<&str>) -> Self {
        let reference = ObjectReference::of(binding);
        let resource = Binding::new(binding).resource();
        Self {
            namespace: reference.namespace.to_owned(),
            binding: reference.name.to_owned(),
            resource: format!("{}/{}", resource.kind, resource.name),
            failover: vec![failover_type.as_str()],
            from: from.to_owned(),
            to: to.map(str::to_owned),
            state: State::new(),
            missing: BTreeMap::new(),
            restored: BTreeMap::new(),
            status_time: None,
            verdict: Verdict::Ready,
            reasons: Vec::new(),
        }
    }

    fn degrade(&mut self, reason: String) {
        self.verdict = self.verdict.max(Verdict::Degraded);
        self.reasons.push(reason);
    }

    fn block(&mut self, reason: String) {
        self.verdict = Verdict::Blocked;
        self.reasons.insert(0, reason);
    }
}

/// Merges failovers between the same clusters with equal results.
fn merge(rows: &mut Vec<Rehearsed>, row: Rehearsed) {
    let same = rows.iter_mut().find(|known| Rehearsed { failover: row.failover.clone(), ..(*known).clone() } == row);
    match same {
        Some(known) => known.failover.extend(row.failover),
        None => rows.push(row),
    }
}

/// The newest time in a status: RFC 3339, or milliseconds since 1970, as Flink writes them.
fn newest_time(status: &Value) -> Option<Timestamp> {
    match status {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(key, value)| {
                let is_time = key.ends_with("Time") || key.ends_with("Timestamp") || key.ends_with("timeStamp");
                let own = is_time.then(|| time(value)).flatten();
                own.max(newest_time(value))
            })
            .max(),
        Value::Array(items) => items.iter().filter_map(newest_time).max(),
        _ => None,
    }
}

fn time(value: &Value) -> Option<Timestamp> {
    let milliseconds = match value {
        Value::String(text) => match text.parse::<Timestamp>() {
            Ok(time) => return Some(time),
            Err(_) => text.parse::<i64>().ok()?,
        },
        value => value.as_i64()?,
    };
    // Smaller numbers are seconds, durations or placeholders.
    (milliseconds > 1_000_000_000_000).then(|| Timestamp::from_millisecond(milliseconds).ok()).flatten()
}

fn as_table(rows: &[Rehearsed], without_rules: usize, format: Format) -> String {
    let plain = |text: &str| (text.to_owned(), Tone::Plain);
    let state = |row: &Rehearsed| {
        let values = row.state.iter().map(|(alias, value)| format!("{}={value}", short(alias)));
        let missing = row.missing.keys().map(|alias| format!("{} missing", short(alias)));
        values.chain(missing).collect::<Vec<_>>().join(" ")
    };
    let restored = |row: &Rehearsed| {
        let fields = row.restored.iter().map(|(path, value)| match (format, value) {
            (Format::Wide, Value::String(text)) => format!("{path}={text}"),
            (Format::Wide, value) => format!("{path}={value}"),
            _ => path.clone(),
        });
        fields.collect::<Vec<_>>().join(" ")
    };
    let mut header = vec!["NAMESPACE", "BINDING", "FAILOVER", "FROM", "TO", "STATE", "RESTORED", "VERDICT"];
    if format == Format::Wide {
        header.insert(2, "RESOURCE");
        header.push("STATUS FROM");
    }
    let cells = rows.iter().map(|row| {
        let mut cells = vec![
            plain(&row.namespace),
            plain(&row.binding),
            plain(&row.failover.join(",")),
            plain(&row.from),
            plain(row.to.as_deref().unwrap_or_default()),
            plain(&state(row)),
            plain(&restored(row)),
            (row.verdict.name().to_owned(), row.verdict.tone()),
        ];
        if format == Format::Wide {
            cells.insert(2, plain(&row.resource));
            cells.push(plain(row.status_time.as_deref().unwrap_or_default()));
        }
        cells
    });
    let mut text = String::new();
    if !rows.is_empty() {
        let _ = writeln!(text, "{}", table(&header, cells));
    }
    for row in rows.iter().filter(|row| !row.reasons.is_empty()) {
        let style = row.verdict.tone().style();
        let name = [row.namespace.as_str(), row.binding.as_str()].join("/");
        let to = row.to.as_deref().map(|to| format!(" to {to}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "\n{}, {} failover from {}{to}: {style}{}{style:#}",
            name.trim_start_matches('/'),
            row.failover.join(" and "),
            row.from,
            row.verdict.name()
        );
        for reason in &row.reasons {
            let _ = writeln!(text, "  {}", one_line(reason));
        }
    }
    let count = |verdict: Verdict| rows.iter().filter(|row| row.verdict == verdict).count();
    let separator = if rows.is_empty() { "" } else { "\n" };
    let _ = writeln!(
        text,
        "{separator}ready: {}, degraded: {}, blocked: {}; bindings without state rules: {without_rules}",
        count(Verdict::Ready),
        count(Verdict::Degraded),
        count(Verdict::Blocked)
    );
    text
}
