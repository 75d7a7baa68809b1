//! Offloading: the shard holds a part of the last copy of a retained version that its group wants
//! to give up. The runtime copies the memory aside and opens an offload replica with the copy,
//! which has a session of its own. This session only starts the copying, stops it before the memory
//! may change, and reports a failure.

use serde::{Deserialize, Serialize};

use super::host::{Output, Outputs};
use crate::message::ClientMessage;
use crate::{Generation, Version};

/// The offload that the server asked for last, until the memory may change.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Offload {
    copy: Option<OffloadCopy>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct OffloadCopy {
    version: Version,
    generation: Generation,
    /// Why the copy failed, once it has.
    failed: Option<String>,
    /// The server has asked again since, perhaps because this copy was released meanwhile.
    again: bool,
}

impl OffloadCopy {
    fn is_of(&self, version: Version, generation: Generation) -> bool {
        (self.version, self.generation) == (version, generation)
    }

    fn runs(&self, version: Version, generation: Generation) -> bool {
        self.is_of(version, generation) && self.failed.is_none()
    }
}

impl Offload {
    /// The server asks to copy the memory aside; `holds`: the memory holds the version that the
    /// server means. A server asks again after a reconnect, while the copying goes on. It also asks
    /// again when an earlier copy came to nothing. That copy may have come too late, for a call
    /// that had ended, so its failure says nothing about the next copy.
    pub(super) fn asked(
        &mut self,
        version: Version,
        generation: Generation,
        holds: bool,
        outputs: &mut Outputs,
    ) -> Option<ClientMessage> {
        if let Some(copy) = self.copy.as_mut().filter(|copy| copy.runs(version, generation)) {
            copy.again = true;
            return None;
        }
        let failed = (!holds).then(|| format!("it does not hold version {version}"));
        self.copy = Some(OffloadCopy { version, generation, failed, again: false });
        if holds {
            outputs.push_back(Output::Offload { version, generation });
        }
        self.failure()
    }

    /// The memory could not be copied, or the copy's session could not be opened.
    pub(super) fn failed(
        &mut self,
        version: Version,
        generation: Generation,
        reason: String,
    ) -> Option<ClientMessage> {
        let copy = self.copy.as_mut().filter(|copy| copy.is_of(version, generation))?;
        copy.failed.get_or_insert(reason);
        self.failure()
    }

    /// The copy was made, and released since. Returns whether the server has asked for another copy
    /// meanwhile.
    pub(super) fn over(&mut self, version: Version, generation: Generation) -> bool {
        let over = self.copy.take_if(|copy| copy.runs(version, generation));
        over.is_some_and(|copy| copy.again)
    }

    /// The report for the server, if the copy failed.
    pub(super) fn failure(&self) -> Option<ClientMessage> {
        let OffloadCopy { version, generation, failed, .. } = self.copy.as_ref()?;
        let (version, generation, reason) = (*version, *generation, failed.clone()?);
        Some(ClientMessage::OffloadFailed { version, generation, reason })
    }

    /// The memory may change, or was refused: the copying stops.
    pub(super) fn stop(&mut self, outputs: &mut Outputs) {
        // Stop even if this copy failed: a new copy may be running after an older one of the
        // version failed.
        if self.copy.take().is_some() {
            outputs.push_back(Output::StopOffload);
        }
    }
}
