//! Tables, JSON and YAML on standard output.

use std::io::{self, Write};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use comfy_table::{Cell, Color, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::arguments::Format;
use crate::failure::Failure;

/// The tone of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Neutral.
    Plain,
    /// Good.
    Good,
    /// Worth a look.
    Doubtful,
    /// A problem.
    Bad,
}

impl Tone {
    /// The colour of text in that tone.
    pub fn style(self) -> Style {
        match self {
            Self::Plain => Style::new(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Doubtful => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }

    fn color(self) -> Option<Color> {
        match self {
            Self::Plain => None,
            Self::Good => Some(Color::Green),
            Self::Doubtful => Some(Color::Yellow),
            Self::Bad => Some(Color::Red),
        }
    }
}

/// A table in the style of kubectl: no lines, two spaces between the columns.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<(String, Tone)>>) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    if is_coloured() {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for row in rows {
        table.add_row(row.into_iter().map(|(text, tone)| {
            let text = if text.is_empty() { "-".to_owned() } else { one_line(&text) };
            let cell = Cell::new(text);
            match tone.color() {
                Some(color) => cell.fg(color),
                None => cell,
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
}

/// An alias without its prefix, which is short enough for a table.
pub fn short(alias: &str) -> &str {
    alias.rsplit('/').next().unwrap_or(alias)
}

/// Removes control characters: text from a cluster must not move the cursor of a terminal.
pub fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn is_coloured() -> bool {
    AutoStream::choice(&io::stdout()) != ColorChoice::Never
}

/// Prints `text`, without its colours where the output is not a terminal.
///
/// # Errors
/// The output can't be written.
pub fn print(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}

/// Prints `rows` as JSON or YAML.
///
/// # Errors
/// The output can't be written.
pub fn print_structured(rows: &impl Serialize, format: Format) -> Result<(), Failure> {
    let unwritable =
        |error: String| Failure::new(format!("cannot write the output: {error}"), "report this as a fault");
    let json = serde_json::to_string_pretty(rows).map_err(|error| unwritable(error.to_string()))?;
    let text = if format == Format::Yaml {
        // Converted by way of text (all JSON is YAML), since the two libraries represent numbers in different ways.
        let value: serde_yaml_ng::Value =
            serde_yaml_ng::from_str(&json).map_err(|error| unwritable(error.to_string()))?;
        serde_yaml_ng::to_string(&value).map_err(|error| unwritable(error.to_string()))?
    } else {
        json + "\n"
    };
    print(&text)
}
