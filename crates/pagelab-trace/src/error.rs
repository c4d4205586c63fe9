//! Errors about traces and workloads; each names the remedy.

use std::path::PathBuf;

/// An error about a trace, a workload or an option.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file at `path` cannot be read or written; `source` is the reason.
    #[error("{path}: {source}")]
    Io {
        /// The trace's folder or a file in it.
        path: PathBuf,
        /// Also contains errors of encoding and decoding libraries, as [`std::io::ErrorKind::Other`].
        source: std::io::Error,
    },
    /// Not a trace, or a damaged one. `what` names the place and the cause.
    #[error("{path}: {what}")]
    Corrupt {
        /// The trace's folder or a file in it; otherwise the imported file.
        path: PathBuf,
        /// One sentence without a full stop, which follows the path.
        what: String,
    },
    /// A wrong workload spec or option. `what` names it and what is allowed.
    #[error("{what}")]
    Usage {
        /// The whole message.
        what: String,
    },
}

impl TraceError {
    /// The file at `path` cannot be read or written.
    pub fn io(path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { path: path.into(), source }
    }

    /// An error of an encoding library for the trace at `path`.
    pub(crate) fn cannot_encode(path: impl Into<PathBuf>, why: impl std::fmt::Display) -> Self {
        Self::io(path, std::io::Error::other(format!("cannot encode: {why}")))
    }

    /// The file at `path` is damaged, or not what it should be.
    pub fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), what: what.into() }
    }

    /// A wrong spec or option.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage { what: what.into() }
    }
}
