//! `history`: the earlier failovers.

use futures::StreamExt as _;
use kube::Api;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;
use serde_json::Value;
use stateful_failover::history::{History as Records, Record};
use stateful_failover::karmada::Binding;
use stateful_failover::object_reference::ObjectReference;

use crate::Ending;
use crate::arguments::{Connection, Format, History};
use crate::control_plane::{BindingKind, ControlPlane};
use crate::failure::{Failure, chain};
use crate::output::{Tone, print, print_structured, short, table};

/// One failover of a binding.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    binding: String,
    #[serde(flatten)]
    record: Record,
}

/// Prints the histories, newest first.
///
/// # Errors
/// The bindings can't be read.
pub async fn run(connection: &Connection, arguments: &History) -> Result<Ending, Failure> {
    let control_plane = ControlPlane::connect(connection).await?;
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    let pages = control_plane.for_each_page(&arguments.selection, async |page| {
        for binding in &page.items {
            match rows_of(binding) {
                Ok(found) => rows.extend(found),
                Err(problem) => problems.push(problem),
            }
        }
    });
    pages.await?;
    // Records without a time are those of moves, and of tasks that Karmada has not processed yet.
    rows.sort_by(|a, b| {
        let time = |row: &Row| (row.record.time.is_none(), row.record.time.clone());
        time(b).cmp(&time(a)).then_with(|| (&a.namespace, &a.binding).cmp(&(&b.namespace, &b.binding)))
    });
    show(&rows, arguments.output, true)?;
    for problem in problems {
        anstream::eprintln!("warning: {problem}");
    }
    if arguments.watch {
        watch(&control_plane, arguments, rows).await?;
    }
    Ok(Ending::Clean)
}

/// The records of a binding, newest first.
fn rows_of(binding: &Value) -> Result<Vec<Row>, String> {
    let reference = ObjectReference::of(binding);
    let mut history = Records::read(binding).map_err(|error| format!("{reference}: {error}"))?;
    // The annotation is as old as the last write of the binding; statuses have changed since.
    history.update(Binding::new(binding), Binding::new(binding));
    let row = |record: &Record| Row {
        namespace: reference.namespace.to_owned(),
        binding: reference.name.to_owned(),
        record: record.clone(),
    };
    Ok(history.records().iter().rev().map(row).collect())
}

async fn watch(control_plane: &ControlPlane, arguments: &History, mut known: Vec<Row>) -> Result<(), Failure> {
    let watches = control_plane.scopes(&arguments.selection).into_iter().map(|(kind, namespace)| {
        let api = kind.api();
        let objects: Api<DynamicObject> = match namespace {
            Some(namespace) if kind == BindingKind::ResourceBinding => {
                Api::namespaced_with(control_plane.client(), namespace, &api)
            }
            _ => Api::all_with(control_plane.client(), &api),
        };
        watcher::watcher(objects, watcher::Config::default()).map(move |event| (kind, event)).boxed()
    });
    let mut events = futures::stream::select_all(watches);
    while let Some((kind, event)) = events.next().await {
        let binding = match event {
            Ok(Event::Apply(binding) | Event::InitApply(binding)) => binding,
            Ok(_) => continue,
            // The watcher retries by itself.
            Err(error) => {
                anstream::eprintln!("warning: cannot watch {}: {}", kind.api().plural, chain(&error));
                continue;
            }
        };
        let name = binding.metadata.name.clone().unwrap_or_default();
        if !arguments.selection.names.is_empty() && !arguments.selection.names.contains(&name) {
            continue;
        }
        let rows =
            serde_json::to_value(&binding).map_err(|error| error.to_string()).and_then(|binding| rows_of(&binding));
        let mut changed = Vec::new();
        for row in rows.unwrap_or_default() {
            if !known.contains(&row) {
                changed.push(row);
            }
        }
        show(&changed, arguments.output, false)?;
        known.extend(changed);
    }
    Ok(())
}

fn show(rows: &[Row], format: Format, has_header: bool) -> Result<(), Failure> {
    if rows.is_empty() && !has_header {
        return Ok(());
    }
    if matches!(format, Format::Json | Format::Yaml) {
        return print_structured(&rows, format);
    }
    if rows.is_empty() {
        return print("no failovers yet\n");
    }
    let mut header = vec!["NAMESPACE", "BINDING", "TIME", "TYPE", "FROM", "TO", "PHASE", "STATE", "MISSING"];
    if format == Format::Wide {
        header.extend(["REASON", "PURGE MODE", "CARRIED FROM"]);
    }
    let cells = rows.iter().map(|Row { namespace, binding, record }| {
        let phase = match record.phase.as_str() {
            "Recovered" => Tone::Good,
            "Evicted" | "Pending" => Tone::Doubtful,
            "Expired" => Tone::Bad,
            _ => Tone::Plain,
        };
        let plain = |text: &str| (text.to_owned(), Tone::Plain);
        let state: Vec<String> =
            record.state.iter().map(|(alias, value)| format!("{}={value}", short(alias))).collect();
        let missing: Vec<&str> = record.missing.keys().map(|alias| short(alias)).collect();
        let mut cells = vec![
            plain(namespace),
            plain(binding),
            plain(record.time.as_deref().unwrap_or_default()),
            plain(record.move_type.as_str()),
            plain(&record.from),
            plain(&record.to.join(",")),
            (record.phase.as_str().to_owned(), phase),
            plain(&state.join(" ")),
            plain(&missing.join(" ")),
        ];
        if format == Format::Wide {
            cells.extend([
                plain(&record.reason),
                plain(&record.purge_mode),
                plain(record.carried_from.as_deref().unwrap_or_default()),
            ]);
        }
        cells
    });
    print(&format!("{}\n", table(&header, cells)))
}
