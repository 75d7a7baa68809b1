//! Every way in which weightcast can fail a user.

use thiserror::Error;
use weightcast_plan::transform::TransformError;
use weightcast_plan::{LayoutError, PlanError};
use weightcast_protocol::CallError;
use weightcast_protocol::recording::RecordingError;

/// Why something did not work.
#[derive(Debug, Error)]
pub enum Error {
    /// A call of the protocol failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Nothing was published, in the job whose server was found without an address.
    #[error(
        "{error}; it was looked for in job {job} of this host: programs that are started in another \
         directory are of another job, unless WEIGHTCAST_JOB is the same for all"
    )]
    NobodyHere {
        /// The version that is not there.
        error: CallError,
        /// The job.
        job: String,
    },
    /// A layout is not well formed, or does not fit the version.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A layout has no such representation.
    #[error(transparent)]
    Transform(Box<TransformError>),
    /// A layout cannot be filled from another.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A setting makes no sense.
    #[error("{what}: {problem}")]
    Config {
        /// Which setting.
        what: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// A staged update needs memory beside the registered one, and may not take that much.
    #[error(
        "a staged update needs {bytes} bytes beside the registered memory and staging_bytes is \
         {limit}; raise it, or update without staging"
    )]
    NoRoom {
        /// Bytes that it needs.
        bytes: u64,
        /// The most that it may take.
        limit: u64,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {error}")]
    Io {
        /// What was tried.
        what: String,
        /// Its answer.
        error: std::io::Error,
    },
    /// A data port or region could not be set up.
    #[error("data port: {0}")]
    Transport(String),
    /// Nothing can be said of what a replica holds.
    #[error("cannot verify {replica}: {reason}")]
    Unverified {
        /// The replica.
        replica: String,
        /// What is in the way.
        reason: String,
    },
    /// Nobody on this host shares the memory of a version.
    #[error(
        "version {version} cannot be viewed on host {host:?}: {}; hold it in shared memory there \
         (weightcast.empty_like, weightcast.torch.share_), or copy it by replicate or update",
        if reasons.is_empty() { "no other replica there holds it".to_owned() } else { reasons.join("; ") }
    )]
    NoView {
        /// The version.
        version: u64,
        /// The host.
        host: String,
        /// Each replica that was asked, and why not.
        reasons: Vec<String>,
    },
    /// The caller's interrupt ended the wait; the handle should be closed.
    #[error("interrupted")]
    Interrupted,
    /// There is nothing to record.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A defect of weightcast itself.
    #[error("weightcast has a bug: {0}")]
    Bug(String),
}

impl From<TransformError> for Error {
    fn from(error: TransformError) -> Self {
        match error {
            TransformError::Layout(error) => Self::Layout(error),
            other => Self::Transform(Box::new(other)),
        }
    }
}

impl Error {
    /// The outcome of a call that failed with this error, in one word.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Call(error) | Self::NobodyHere { error, .. } => error.name(),
            Self::Interrupted => "interrupted",
            _ => "failed",
        }
    }

    pub(crate) fn io(what: impl Into<String>, error: std::io::Error) -> Self {
        Self::Io { what: what.into(), error }
    }

    pub(crate) fn misuse(detail: impl Into<String>) -> Self {
        Self::Call(CallError::Misuse { detail: detail.into() })
    }
}
