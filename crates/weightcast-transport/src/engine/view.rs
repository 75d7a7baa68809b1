//! A peer's memory, mapped instead of copied.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::patience::Patience;
use crate::engine::peer::Peer;
use crate::lane::ExportView;
use std::time::Instant;

impl Peer {
    /// Maps the memory of an export for reading, if the peer is a process of this host that shares it. The export
    /// has to be whole: one that is still being filled is not mapped.
    ///
    /// # Errors
    /// [`TransportError::NotLent`], which says why not; [`TransportError::Fenced`] if the export is not served any
    /// more; that the peer is gone, or is silent until the deadline.
    pub fn view(
        &self,
        export: ExportId,
        generation: u64,
        deadline: Instant,
    ) -> Result<ExportView, TransportError> {
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let described = self.describe_anew(export, generation, &patience);
        let description = described.map_err(|error| error.while_reading(export))?;
        let not = |what| Err(TransportError::NotLent { addr: self.addr(), what });
        if description.filling {
            return not("it is still being filled".to_owned());
        }
        match self.lanes().find_map(|lane| lane.view(export)) {
            Some(view) if view.is_whole() => Ok(view),
            Some(_) => Err(TransportError::Fenced { export }),
            None => not(self.why(export, generation)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Auth, DataServer, Filling, Region, StridedCopy, Way};
    use std::sync::Arc;
    use std::time::Duration;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    /// A source, and a peer of it that reads what this very process shares.
    fn scene(way: Way) -> (DataServer, Peer) {
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let peer = Peer::connect_by(way, server.addr(), &Auth::default(), soon()).unwrap();
        (server, peer)
    }

    fn shared(bytes: &[u8]) -> Region {
        let region = Region::allocate_shared(bytes.len()).unwrap();
        region.write_at(0, bytes).unwrap();
        region
    }

    #[test]
    fn a_view_is_the_sources_own_memory_until_the_fence() {
        let (server, peer) = scene(Way::Shared);
        let memory = [shared(b"weights"), shared(b""), shared(b"more")];
        let export = server.exports().expose(3, memory.to_vec());
        let view = peer.view(export, 3, soon()).unwrap();
        let seen =
            |view: &ExportView| view.regions().iter().map(Region::to_vec).collect::<Vec<_>>();
        assert_eq!(seen(&view), [&b"weights"[..], b"", b"more"]);
        assert!(view.regions().iter().all(|region| !region.is_writable()));
        memory[0].write_at(0, b"W").unwrap();
        assert_eq!(seen(&view)[0], b"Weights", "nothing was copied");
        assert_ne!(view.regions()[0].address(), memory[0].address());
        assert!(view.is_whole());
        server.exports().fence(export);
        assert!(!view.is_whole() && !view.clone().is_whole());
        assert_eq!(seen(&view)[2], b"more", "it is mapped as long as the view lives");
        let again = peer.view(export, 3, soon()).unwrap_err();
        assert_eq!(again, TransportError::Fenced { export });
        let next = server.exports().expose(4, memory.to_vec());
        assert!(peer.view(next, 4, soon()).unwrap().is_whole() && !view.is_whole());
    }

    #[test]
    fn what_is_not_lent_is_not_mapped_and_the_error_says_why() {
        let (server, peer) = scene(Way::Shared);
        let exports = server.exports();
        let private = vec![shared(b"weights"), Region::from_bytes(b"w").unwrap()];
        let partly = exports.expose(1, private.clone());
        let filling = ExportId::random();
        let coming = vec![shared(b"weights")];
        let progress = Arc::new(Filling::new(&coming));
        exports.expose_filling(filling, 1, coming.clone(), Arc::clone(&progress));
        let plain = exports.expose(1, vec![Region::from_bytes(b"w").unwrap()]);
        let whole = exports.expose(1, coming);
        let (other, tcp) = scene(Way::Tcp);
        let of_other = other.exports().expose(1, vec![shared(b"weights")]);
        for (peer, export, why) in [
            (
                &peer,
                partly,
                "1 of its regions are not in shared memory, the first of them is number 1",
            ),
            (&peer, plain, "not in shared memory"),
            (&peer, filling, "still being filled"),
            (&tcp, of_other, "TCP was demanded"),
        ] {
            match peer.view(export, 1, soon()) {
                Err(TransportError::NotLent { addr, what }) => {
                    assert_eq!(addr, peer.addr());
                    assert!(what.contains(why), "{what}");
                }
                other => panic!("{why}: {other:?}"),
            }
        }
        // What has come whole is mapped under the name under which it was filled.
        let part = StridedCopy::contiguous(0, 0, 0, 0, 7);
        progress.begin([&[part][..]].into_iter());
        assert!(matches!(peer.view(filling, 1, soon()), Err(TransportError::NotLent { .. })));
        progress.arrived(0, 0, 7);
        assert!(peer.view(filling, 1, soon()).unwrap().is_whole());
        let stale = peer.view(whole, 2, soon()).unwrap_err();
        assert_eq!(stale, TransportError::Fenced { export: whole });
    }
}
