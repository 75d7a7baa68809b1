//! What the choice of a source would come to, for whoever asks before a reader does.

use crate::message::Call;
use crate::server::Server;
use crate::server::contexts::TransferCtx;
use crate::server::stores::transaction::{GroupTransfer, Transaction};
use crate::server::transfers::choose::{Choice, Drawbacks};
use crate::{OpSeq, Selector, Time, Version};

/// The choice of a source for one reader, at one moment, and how one source stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The version that the source holds: the choice is of a source of this version.
    pub version: Version,
    /// Whether the reader holds the version already.
    pub held: bool,
    /// Whether reader and source are in one datacentre.
    pub near: bool,
    /// Whether the reader may read from another datacentre: no group of its own datacentre has the version, or is
    /// getting it.
    pub may_cross: bool,
    /// Whether the source has a place for the reader.
    pub has_room: bool,
    /// Whether the source reads from the reader, directly or through others.
    pub below: bool,
    /// Whether the reader has registered its memory.
    pub registered: bool,
    /// Whether both groups have the same layouts, shard by shard.
    pub same_layouts: bool,
    /// What speaks against the source.
    pub drawbacks: Drawbacks,
    /// What is chosen.
    pub chosen: PreviewedChoice,
}

/// What a choice would come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreviewedChoice {
    /// This replica is read.
    Replica {
        /// Its name.
        name: String,
        /// What speaks against it.
        drawbacks: Drawbacks,
    },
    /// The reader waits: every source is busy, or the next one is still being filled or copied.
    Busy,
    /// Nobody has the version to read, or every source has failed the reader.
    Nobody,
}

impl Server {
    /// The choice of a source for a reader of the version that `source` holds, as if the reader asked now. A transfer
    /// of the reader that is under way counts with what has failed it. Changes nothing. `None`: one of the two is not
    /// there, or the source holds nothing that readers may be sent to.
    pub fn preview(&self, model: &str, reader: &str, source: &str) -> Option<Preview> {
        let replicas = &self.models.get(model)?.replicas;
        let reader = self.books().group(*replicas.get(reader)?);
        let source = self.groups.of(replicas.get(source)?);
        let version = source.held.as_ref().filter(|held| held.visible)?.version;
        let new = GroupTransfer::default();
        let transfer = reader.group.transfer().unwrap_or(&new);
        let call = Call::Replicate { selector: Selector::Exact(version.number) };
        let call = Transaction::new(OpSeq(0), call, 0, Time(0), Time(0));
        let asked = TransferCtx { reader, call: &call, transfer };
        let chosen = match asked.choose_source(version) {
            Choice::Granted(chosen) => {
                let chosen = self.groups.of(&chosen);
                let drawbacks = asked.drawbacks(chosen, version);
                PreviewedChoice::Replica { name: chosen.replica.clone(), drawbacks }
            }
            Choice::Busy => PreviewedChoice::Busy,
            Choice::Nobody => PreviewedChoice::Nobody,
        };
        Some(Preview {
            version,
            held: reader.group.holds(version),
            near: asked.is_near(source),
            may_cross: asked.may_cross(version),
            has_room: asked.has_room(source, version),
            below: asked.is_above(source),
            registered: reader.group.registered,
            same_layouts: source.same_layouts(reader.group),
            drawbacks: asked.drawbacks(source, version),
            chosen,
        })
    }
}
