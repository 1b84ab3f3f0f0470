//! The command line tool: computes what a failover would do, with the policy's core and the objects in the Karmada API
//! server.
//!
//! | module | what it holds |
//! |---|---|
//! | [`arguments`] | the command line |
//! | [`rehearse`], [`history`], [`lint`], [`restore`] | the commands |
//! | [`control_plane`], [`placement`] | reading from the Karmada API server |
//! | [`settings`], [`documents`] | reading files |
//! | [`output`], [`failure`] | the output |

pub mod arguments;
pub mod control_plane;
pub mod documents;
pub mod failure;
pub mod history;
pub mod lint;
pub mod output;
pub mod placement;
pub mod rehearse;
pub mod restore;
pub mod settings;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use arguments::{Arguments, Command};
use failure::Failure;

/// How a successful command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// No problems were found.
    Clean,
    /// A binding is blocked, or a policy has errors.
    Findings,
}

/// Runs the command line: exit code 0, 1 for findings, 2 where the command failed.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ending = match runtime {
        Ok(runtime) => runtime.block_on(run(arguments)),
        Err(error) => Err(Failure::new(format!("cannot start: {error}"), "try again")),
    };
    match ending {
        Ok(Ending::Clean) => ExitCode::SUCCESS,
        Ok(Ending::Findings) => ExitCode::from(1),
        // The reader has closed the output.
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => {
            anstream::eprintln!("{failure}");
            ExitCode::from(2)
        }
    }
}

async fn run(arguments: Arguments) -> Result<Ending, Failure> {
    let Arguments { connection, command } = arguments;
    match command {
        Command::Rehearse(arguments) => rehearse::run(&connection, &arguments).await,
        Command::History(arguments) => history::run(&connection, &arguments).await,
        Command::Lint(arguments) => lint::run(&arguments),
        Command::Restore(arguments) => restore::run(&arguments),
        Command::Completions { shell } => {
            let mut command = Arguments::command();
            clap_complete::generate(shell, &mut command, "stateful-failover", &mut std::io::stdout());
            Ok(Ending::Clean)
        }
        Command::Manpages { folder } => {
            clap_mangen::generate_to(Arguments::command(), &folder)
                .map_err(|error| Failure::file(&folder, &error, "name a folder that exists and can be written to"))?;
            Ok(Ending::Clean)
        }
    }
}
