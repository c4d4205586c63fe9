//! What can go wrong with a trace or a workload, said so that the user knows what would be right.

use std::path::PathBuf;

/// See the module's text.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file at `path` cannot be read or written; `source` says why.
    #[error("{path}: {source}")]
    Io {
        /// Of a trace, its folder or a file in it.
        path: PathBuf,
        /// Also what a library says that encodes or decodes, as [`std::io::ErrorKind::Other`].
        source: std::io::Error,
    },
    /// Not a trace, or a damaged one. `what` names the place and the cause.
    #[error("{path}: {what}")]
    Corrupt {
        /// Of a trace, its folder or a file in it; otherwise the imported file.
        path: PathBuf,
        /// One sentence without a full stop, as it stands behind the path.
        what: String,
    },
    /// A workload spec or an option that makes no sense. `what` names it and what is allowed.
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

    /// What a library says that encodes for the trace at `path`.
    pub(crate) fn cannot_encode(path: impl Into<PathBuf>, why: impl std::fmt::Display) -> Self {
        Self::io(path, std::io::Error::other(format!("cannot encode: {why}")))
    }

    /// The file at `path` is damaged, or not what it should be.
    pub fn corrupt(path: impl Into<PathBuf>, what: impl Into<String>) -> Self {
        Self::Corrupt { path: path.into(), what: what.into() }
    }

    /// A spec or an option that makes no sense.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::Usage { what: what.into() }
    }
}
