//! Lanes: ways of moving bytes, all of one shape, so that the engine knows none of them by name.
//!
//! A [`LaneKind`](kind::LaneKind) is what both ends know before they meet: what a source offers, how a
//! reader reaches it. An [`Endpoint`] is a lane to one peer, shared by all transfers; a [`Lane`] is what
//! one worker moves pieces over during one of them. A new way is a folder here, its name in [`way`], and a
//! line in [`LANES`].

use crate::base::error::TransportError;
use crate::export::served::Export;
use crate::wire::description::LaneDescriptor;
use crate::wire::socket::Socket;
use kind::{LaneKind, Meeting};
use way::Way;

pub(crate) mod direct;
mod endpoint;
pub(crate) mod kind;
mod ready;
mod reference;
mod rows;
mod shared;
mod task;
mod tcp;
pub(crate) mod way;
mod writable;

pub(crate) use endpoint::{Endpoint, Lane, OpenLane, WriteEndpoint};
pub use shared::ExportView;
pub(crate) use task::{LaneTask, WriteTask};

/// All lanes, the preferred first. The last one carries everything, so no peer is without it.
const LANES: [&dyn LaneKind; 4] =
    [&shared::SharedKind, &direct::DirectKind, &reference::ReferenceKind, &tcp::TcpKind];

/// What a source tells the reader at the other end of a connection of an export, lane by lane.
pub(crate) fn offers(export: &Export, reader: &Socket) -> Vec<LaneDescriptor> {
    let offered =
        LANES.iter().filter_map(|lane| Some((lane.number(), lane.offer(export, reader)?)));
    offered.map(|(lane, bytes)| LaneDescriptor { lane, bytes }).collect()
}

/// The lanes that both ends offer, the preferred first, and why there is none before the first.
///
/// # Errors
/// [`TransportError::NoDirect`] if a lane was demanded in vain; whatever ended the patience.
pub(crate) fn reach(
    meeting: &Meeting<'_>,
) -> Result<(Vec<Box<dyn Endpoint>>, String), TransportError> {
    let (demanded, mut lanes, mut whys) = (meeting.demand.way, Vec::new(), Vec::new());
    for (number, kind) in LANES.iter().enumerate() {
        let carries_everything = number + 1 == LANES.len();
        if demanded != Way::Auto && demanded != kind.way() && !carries_everything {
            whys.push(format!("{demanded} was demanded"));
            continue;
        }
        match kind.reach(meeting) {
            Ok(lane) => lanes.push(lane),
            Err(TransportError::NoDirect { what, .. }) if demanded == Way::Auto => whys.push(what),
            Err(error) => return Err(error),
        }
    }
    Ok((lanes, whys.into_iter().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_a_name_and_a_number_of_its_own() {
        for (at, lane) in LANES.iter().enumerate() {
            assert_ne!(lane.way(), Way::Auto);
            for other in &LANES[..at] {
                assert_ne!(lane.number(), other.number());
                assert_ne!(lane.way(), other.way());
            }
        }
    }
}
