//! Why a command failed, and what to do.

use std::fmt;
use std::io;
use std::path::Path;

use thiserror::Error;

/// Printed as two lines: the problem, and what to do.
#[derive(Debug, Error)]
pub struct Failure {
    what: String,
    remedy: String,
    is_closed_output: bool,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Messages of servers and libraries are put on one line.
        let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        write!(f, "error: {}\nhint: {}", line(&self.what), line(&self.remedy))
    }
}

impl Failure {
    /// What went wrong, and what to do.
    pub fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into(), is_closed_output: false }
    }

    /// A file or folder that can't be read or written.
    pub fn file(path: &Path, error: &io::Error, remedy: &str) -> Self {
        Self::new(format!("{}: {error}", path.display()), remedy)
    }

    /// Output that can't be written.
    pub fn output(error: &io::Error) -> Self {
        let failure = Self::new(format!("cannot write the output: {error}"), "make room for it");
        Self { is_closed_output: error.kind() == io::ErrorKind::BrokenPipe, ..failure }
    }

    /// Whether the reader has closed the output, as `| head` does.
    pub fn is_closed_output(&self) -> bool {
        self.is_closed_output
    }

    /// The failure to read `what` from the API server.
    pub fn api(what: &str, error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 401 => Self::new(
                format!("cannot read {what}: the API server does not know who you are ({})", status.message),
                "renew the credentials in the kubeconfig, or choose another one with --kubeconfig and --context",
            ),
            kube::Error::Api(status) if status.code == 403 => Self::new(
                format!("cannot read {what}: forbidden ({})", status.message),
                format!("ask for a role with get, list and watch on {what}"),
            ),
            kube::Error::Api(status) if status.code == 404 => Self::new(
                format!("the API server has no {what}"),
                "choose the context of the Karmada API server with --context; the host and the members have no bindings",
            ),
            kube::Error::Api(status) => Self::new(
                format!("cannot read {what}: {} ({})", status.message, status.code),
                "try again; the log of the API server says more",
            ),
            other => Self::new(
                format!("cannot read {what}: {}", chain(other)),
                "see whether `kubectl get --raw /version` answers with this kubeconfig and context",
            ),
        }
    }
}

/// An error with its causes, without repetitions.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = error.source();
    }
    text
}
