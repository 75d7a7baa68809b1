//! How bytes get in, and what becomes of sequences meanwhile.

use serde::{Deserialize, Serialize};

/// Where the bytes of a new version land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum InstallMeans {
    /// In the live parameters. From `Begin` on, a failure leaves the engine empty.
    InPlace,
    /// In staging memory, which stays until the engine has resumed, so that an install can be repeated.
    Staged,
}

/// What becomes of the sequences that an engine generates when it is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum PauseMode {
    /// They end at once.
    Abort,
    /// They are generated to their ends first; no new ones begin.
    Wait,
    /// They stand still, and go on after the update. Their caches are computed anew, unless `mixed` allows sequences of
    /// several versions.
    Keep {
        /// Sequences go on with the caches that they have; new ones begin with none of these. Each sequence says which of its tokens are of which version.
        mixed: bool,
    },
}
