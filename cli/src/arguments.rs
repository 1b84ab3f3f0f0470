//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use clap_complete::Shell;

/// Show what a failover of your applications would do, and what earlier failovers did.
///
/// The command only reads from clusters and never writes. Exit codes: 0; 1 if it found a problem;
/// 2 if the command failed.
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
    /// The kubeconfig of the Karmada API server [default: KUBECONFIG, else ~/.kube/config].
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The context in the kubeconfig [default: the current one].
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Evaluate what would happen to each running application if it had to leave its cluster.
    Rehearse(Rehearse),
    /// Print the failover histories of bindings, newest first.
    History(History),
    /// Check PropagationPolicies in files, as the policy does on admission.
    Lint(Lint),
    /// Print the changes that restore rules would make to a manifest, as a diff.
    Restore(Restore),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the man pages into a folder.
    Manpages {
        /// The folder.
        #[arg(value_hint = ValueHint::DirPath)]
        folder: PathBuf,
    },
}

/// Which bindings.
#[derive(Debug, Default, Args)]
pub struct Selection {
    /// Names of ResourceBindings or ClusterResourceBindings [default: all].
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
    /// The namespace of the bindings [default: that of the context].
    #[arg(short, long, conflicts_with = "all_namespaces")]
    pub namespace: Option<String>,
    /// Select the bindings of all namespaces, and the ClusterResourceBindings.
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,
}

/// Where the policy's settings are.
#[derive(Debug, Default, Args)]
pub struct SettingsSource {
    /// The policy's settings: a policies.yml, a ClusterAdmissionPolicy, or the settings alone; a file, a folder, or
    /// `-`.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub settings: Option<PathBuf>,
    /// The name of the policy, if there are several.
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
    /// The state is restored in the members, or by another policy: a binding is ready without a restored field.
    #[arg(long)]
    pub restored_elsewhere: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `history`.
#[derive(Debug, Args)]
pub struct History {
    /// Which bindings.
    #[command(flatten)]
    pub selection: Selection,
    /// Keep watching, and print changes.
    #[arg(short, long)]
    pub watch: bool,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Format,
}

/// `lint`.
#[derive(Debug, Args)]
pub struct Lint {
    /// YAML files, folders with YAML files, or `-` for standard input.
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub files: Vec<PathBuf>,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: SettingsSource,
    /// The output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: LintFormat,
}

/// `restore`.
#[derive(Debug, Args)]
pub struct Restore {
    /// The manifest, or `-` for standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// The policy's settings.
    #[command(flatten)]
    pub settings: SettingsSource,
    /// A preserved value, as ALIAS=VALUE; can be repeated.
    #[arg(long, value_name = "ALIAS=VALUE", value_parser = alias_and_value)]
    pub state: Vec<(String, String)>,
    /// ConfigMaps that the rules look up: a file or a folder with YAML.
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub objects: Option<PathBuf>,
}

/// The output format.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table, followed by the reasons.
    #[default]
    Table,
    /// A table with all columns.
    Wide,
    /// A JSON list.
    Json,
    /// A YAML list.
    Yaml,
}

/// The output format of `lint`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LintFormat {
    /// One line for each finding.
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
