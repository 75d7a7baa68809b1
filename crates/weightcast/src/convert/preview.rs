//! What the choice of a source would come to.

use weightcast_protocol::server::{Drawbacks, Preview, PreviewedChoice};

use super::values::{version, version_frame};
use super::{MalformedMessage, need};
use crate::wire;
use crate::wire::preview::Chosen;

/// To a message.
pub(crate) fn preview_frame(of: Preview) -> wire::Preview {
    wire::Preview {
        version: Some(version_frame(of.version)),
        held: of.held,
        near: of.near,
        may_cross: of.may_cross,
        has_room: of.has_room,
        below: of.below,
        registered: of.registered,
        same_layouts: of.same_layouts,
        drawbacks: Some(drawbacks_frame(of.drawbacks)),
        chosen: Some(match of.chosen {
            PreviewedChoice::Replica { name, drawbacks } => {
                let drawbacks = Some(drawbacks_frame(drawbacks));
                Chosen::Replica(wire::PreviewedSource { name, drawbacks })
            }
            PreviewedChoice::Busy => Chosen::Busy(true),
            PreviewedChoice::Nobody => Chosen::Nobody(true),
        }),
    }
}

/// From a message.
pub(crate) fn previewed(of: wire::Preview) -> Result<Preview, MalformedMessage> {
    Ok(Preview {
        version: version(of.version)?,
        held: of.held,
        near: of.near,
        may_cross: of.may_cross,
        has_room: of.has_room,
        below: of.below,
        registered: of.registered,
        same_layouts: of.same_layouts,
        drawbacks: drawbacks(of.drawbacks)?,
        chosen: match need(of.chosen, "chosen")? {
            Chosen::Replica(wire::PreviewedSource { name, drawbacks: of }) => {
                PreviewedChoice::Replica { name, drawbacks: drawbacks(of)? }
            }
            Chosen::Busy(_) => PreviewedChoice::Busy,
            Chosen::Nobody(_) => PreviewedChoice::Nobody,
        },
    })
}

fn drawbacks_frame(of: Drawbacks) -> wire::Drawbacks {
    wire::Drawbacks {
        accusers: of.accusers as u64,
        slow: of.slow,
        depth: of.depth as u64,
        readers: of.readers as u64,
        other_host: of.other_host,
        trainer: of.trainer,
    }
}

fn drawbacks(of: Option<wire::Drawbacks>) -> Result<Drawbacks, MalformedMessage> {
    let of = need(of, "drawbacks")?;
    Ok(Drawbacks {
        accusers: of.accusers as usize,
        slow: of.slow,
        depth: of.depth as usize,
        readers: of.readers as usize,
        other_host: of.other_host,
        trainer: of.trainer,
    })
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weightcast_protocol::{Epoch, Version};

    use super::*;

    /// All flags off but for the one of this number, and numbers that are all different.
    fn told(flag: usize, chosen: PreviewedChoice) -> Preview {
        let is = |number| flag == number;
        Preview {
            version: Version { epoch: Epoch(1), number: 2 },
            held: is(0),
            near: is(1),
            may_cross: is(2),
            has_room: is(3),
            below: is(4),
            registered: is(5),
            same_layouts: is(6),
            drawbacks: drawn(3, is(7), is(8)),
            chosen,
        }
    }

    fn drawn(from: usize, slow: bool, other_host: bool) -> Drawbacks {
        let (depth, readers, trainer) = (from + 1, from + 2, slow != other_host);
        Drawbacks { accusers: from, slow, depth, readers, other_host, trainer }
    }

    #[test]
    fn a_preview_goes_over_the_wire_and_comes_back_as_it_was() {
        for flag in 0..=9 {
            let name = "r".to_owned();
            let replica = PreviewedChoice::Replica { name, drawbacks: drawn(6, false, flag == 9) };
            for chosen in [replica, PreviewedChoice::Busy, PreviewedChoice::Nobody] {
                let told = told(flag, chosen);
                let bytes = preview_frame(told.clone()).encode_to_vec();
                let heard = wire::Preview::decode(&*bytes).expect("it was encoded");
                assert_eq!(previewed(heard).expect("it makes sense"), told);
            }
        }
    }

    #[test]
    fn what_lacks_a_part_is_no_preview() {
        let whole = || preview_frame(told(0, PreviewedChoice::Busy));
        for lacking in [
            wire::Preview { version: None, ..whole() },
            wire::Preview { drawbacks: None, ..whole() },
            wire::Preview { chosen: None, ..whole() },
            wire::Preview {
                chosen: Some(Chosen::Replica(wire::PreviewedSource::default())),
                ..whole()
            },
        ] {
            assert!(previewed(lacking).is_err());
        }
        assert!(previewed(whole()).is_ok());
    }
}
