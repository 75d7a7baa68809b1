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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Epoch;

    const VERSION: Version = Version { epoch: Epoch(1), number: 7 };
    const OTHER: Version = Version { epoch: Epoch(1), number: 8 };
    const HERE: Generation = Generation(3);

    /// What a session is told to do, and what it reports.
    fn asked(
        offload: &mut Offload,
        version: Version,
        holds: bool,
    ) -> (Vec<Output>, Option<ClientMessage>) {
        let mut outputs = Outputs::default();
        let said = offload.asked(version, HERE, holds, &mut outputs);
        (outputs.into_iter().collect(), said)
    }

    fn copies(version: Version) -> (Vec<Output>, Option<ClientMessage>) {
        (vec![Output::Offload { version, generation: HERE }], None)
    }

    #[test]
    fn a_copy_that_runs_is_not_begun_again_but_the_request_is_remembered() {
        for again in 0..3 {
            let mut offload = Offload::default();
            assert_eq!(asked(&mut offload, VERSION, true), copies(VERSION));
            (0..again).for_each(|_| assert_eq!(asked(&mut offload, VERSION, true), (vec![], None)));
            assert!(!offload.over(OTHER, HERE) && !offload.over(VERSION, Generation(4)));
            assert_eq!(offload.over(VERSION, HERE), again > 0, "asked again {again} times");
            assert!(!offload.over(VERSION, HERE), "it is over once");
            assert_eq!(asked(&mut offload, VERSION, true), copies(VERSION));
        }
    }

    #[test]
    fn a_failure_is_reported_and_the_next_request_begins_anew() {
        let failed = |reason: &str| {
            let reason = reason.to_owned();
            Some(ClientMessage::OffloadFailed { version: VERSION, generation: HERE, reason })
        };
        let mut offload = Offload::default();
        let (told, said) = asked(&mut offload, VERSION, false);
        assert_eq!(
            (told, &said),
            (vec![], &failed(&format!("it does not hold version {VERSION}")))
        );
        assert_eq!(asked(&mut offload, VERSION, true), copies(VERSION));
        assert_eq!(offload.failed(OTHER, HERE, "of another".to_owned()), None);
        assert_eq!(offload.failed(VERSION, HERE, "no room".to_owned()), failed("no room"));
        assert_eq!(offload.failed(VERSION, HERE, "later".to_owned()), failed("no room"));
        assert_eq!(offload.failure(), failed("no room"), "as often as the server is new");
        assert!(!offload.over(VERSION, HERE), "what has failed is not over");
        assert_eq!(asked(&mut offload, VERSION, true), copies(VERSION));
        assert_eq!(offload.failure(), None);
    }

    #[test]
    fn what_runs_or_has_failed_is_stopped_before_the_memory_changes() {
        let stops = |offload: &mut Offload| {
            let mut outputs = Outputs::default();
            offload.stop(&mut outputs);
            outputs.into_iter().collect::<Vec<_>>()
        };
        let mut offload = Offload::default();
        assert_eq!(stops(&mut offload), []);
        for holds in [true, false] {
            asked(&mut offload, VERSION, holds);
            assert_eq!(stops(&mut offload), [Output::StopOffload], "{holds}");
            assert_eq!((stops(&mut offload), offload.failure()), (vec![], None));
        }
    }
}
