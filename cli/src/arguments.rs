//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

/// What a failover of your applications would do, and what the failovers before it did.
///
/// Everything is read; nothing is ever written to a cluster. Exit codes: 0, 1 where something was found that stands in the way,
/// 2 where the command could not be carried out.
#[derive(Debug, Parser)]
#[command(name = "stateful-failover", version, max_term_width = 120)]
pub struct Arguments {
    /// The Karmada API server.
    #[command(flatten)]
    pub connection: Connection,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// How the Karmada API server is reached.
#[derive(Debug, Default, Args)]
pub struct Connection {
    /// The kubeconfig of the Karmada API server; by default that of KUBECONFIG, else ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The context in it; by default the current one.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Evaluate what would become of each application that runs now if it had to leave its cluster.
    Rehearse(Rehearse),
    /// Print the failover histories of bindings, newest first.
    History(History),
    /// Check PropagationPolicies in files, as the policy would on admission.
    Lint(Lint),
    /// Print what the restore rules would write into a manifest, as a diff.
    Restore(Restore),
    /// Print a script of completions for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages into a folder.
    Manpages {
        /// The folder.
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// Which bindings.
#[derive(Debug, Default, Args)]
pub struct Selection {
    /// Names of ResourceBindings or ClusterResourceBindings; by default all of them.
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// The namespace of the bindings; by default the context's.
    #[arg(short, long, conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// The bindings of all namespaces, and the ClusterResourceBindings.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

/// Where the policy's settings are.
#[derive(Debug, Default, Args)]
pub struct SettingsSource {
    /// The settings as they are deployed: policies.yml, a ClusterAdmissionPolicy, or the settings alone; a file, a folder, or `-`.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub settings: Option<PathBuf>,
    /// The name of the policy, where there are several.
    #[arg(long, value_name = "NAME", requires = "settings")]
    pub policy: Option<String>,
}

/// `rehearse`.
#[derive(Debug, Args)]
pub struct Rehearse {
    /// Which bindings.
    #[command(flatten)]
    pub selection: Selection,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: SettingsSource,
    /// The members restore the state, or another policy does: a binding is ready without a restored field.
    #[arg(long)]
    pub restored_elsewhere: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `history`.
#[derive(Debug, Args)]
pub struct History {
    /// Which bindings.
    #[command(flatten)]
    pub selection: Selection,
    /// Go on, and print what changes.
    #[arg(short, long)]
    pub watch: bool,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `lint`.
#[derive(Debug, Args)]
pub struct Lint {
    /// Files and folders with YAML, or `-` for the standard input.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: SettingsSource,
    /// The form of the output.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: LintFormat,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The manifest, or `-` for the standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: SettingsSource,
    /// The state that was preserved: an alias and its value. Can be given several times.
    #[arg(long, value_name = "ALIAS=VALUE", value_parser = alias_and_value)]
    pub state: Vec<(String, String)>,
    /// ConfigMaps that the rules look up: a file or a folder with YAML.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub objects: Option<PathBuf>,
}

/// The form of what is printed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, and below it the reasons.
    #[default]
    Table,
    /// A table with everything in it.
    Wide,
    /// A JSON list.
    Json,
    /// A YAML list.
    Yaml,
}

/// The form of what `lint` prints.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LintFormat {
    /// A line for each finding.
    #[default]
    Text,
    /// A JSON list.
    Json,
    /// SARIF 2.1.0.
    Sarif,
    /// Annotations of GitHub Actions.
    Github,
}

fn alias_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((alias, value)) if !alias.is_empty() => Ok((alias.to_owned(), value.to_owned())),
        _ => Err("expected ALIAS=VALUE".to_owned()),
    }
}
