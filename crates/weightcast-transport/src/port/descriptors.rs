//! How many descriptors of its process a data port may have.

use crate::base::limits::RESERVED_DESCRIPTORS;

/// What a port knows of the descriptors of its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Those that neither the process itself nor anything but this port has in use.
    left: u64,
    /// Of those, how many the process is to find free.
    reserve: u64,
}

impl Descriptors {
    /// As many as anybody wants.
    pub(crate) const PLENTY: Self = Self { left: u64::MAX, reserve: 0 };

    /// Of a process that may have `limit` of them and has just been given the number `newest`; the
    /// port has `port` of them, that one included. The kernel gives out the lowest number that is
    /// free, so all below are in use.
    pub(crate) fn seen(limit: u64, newest: u64, port: usize) -> Self {
        let own = (newest + 1).saturating_sub(port as u64);
        let left = limit.saturating_sub(own);
        // Never more than half of what there is: the reserve of a process that has too few already
        // would keep all readers out, and not bring one back.
        let reserve = RESERVED_DESCRIPTORS.min(limit / 4).min(left.div_ceil(2));
        Self { left, reserve }
    }

    /// Connections that the port may have.
    pub(crate) fn places(self) -> usize {
        usize::try_from(self.left - self.reserve).unwrap_or(usize::MAX)
    }

    /// Connections that have not proved themselves which the port may have beside its places, so
    /// that newcomers can be told from strangers however full it is.
    pub(crate) fn at_the_door(self) -> usize {
        self.reserve as usize / 4
    }

    /// Whether the process still has half of its reserve while the port has `port` of them.
    pub(crate) fn can_spare(self, port: usize) -> bool {
        self.left.saturating_sub(port as u64) >= self.reserve / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places of a port that has `port` connections, in a process with `own` descriptors beside.
    fn places(limit: u64, own: u64, port: usize) -> usize {
        Descriptors::seen(limit, own + port as u64 - 1, port).places()
    }

    #[test]
    fn a_port_leaves_a_reserve_and_at_most_half_of_what_there_is() {
        let table = [
            (1 << 20, 50, (1 << 20) - 50 - 256),
            (1_024, 50, 1_024 - 50 - 256),
            (1_024, 512, 256),
            (1_024, 768, 128),
            (1_024, 1_000, 12),
            (1_024, 1_022, 1),
            (1_024, 1_023, 0),
            (256, 20, 256 - 20 - 64),
        ];
        for (limit, own, expected) in table {
            for port in [1, 7] {
                assert_eq!(places(limit, own, port), expected, "{limit} {own} {port}");
            }
        }
    }

    #[test]
    fn half_of_the_reserve_is_nobodys_but_the_process_s() {
        let descriptors = Descriptors::seen(1_024, 100, 1);
        let places = descriptors.places();
        assert_eq!((places, descriptors.at_the_door()), (668, 64));
        assert!(descriptors.can_spare(places + 128) && !descriptors.can_spare(places + 129));
        assert!(Descriptors::PLENTY.can_spare(1 << 20));
        // The last one of all.
        assert!(Descriptors::seen(1_024, 1_023, 1).can_spare(1));
    }

    /// By hand, over all there may be of a small limit.
    #[test]
    fn what_is_left_and_kept_is_counted_from_the_newest() {
        for limit in [0, 1, 2, 3, 4, 5, 7, 8, 100, 1_023, 1_024, 1_028, 4_096] {
            for newest in (0..12).chain(limit - limit.min(6)..limit + 3) {
                for port in [0_usize, 1, 2, 5, 2_000] {
                    let own = (newest + 1).max(port as u64) - port as u64;
                    let left = (own..limit).count() as u64;
                    let half = left / 2 + left % 2;
                    let reserve = [256, limit / 4, half].into_iter().min().unwrap();
                    let seen = Descriptors::seen(limit, newest, port);
                    let case = format!("{limit} {newest} {port}");
                    assert_eq!(seen, Descriptors { left, reserve }, "{case}");
                    assert_eq!(seen.places() as u64, left - reserve, "{case}");
                    assert_eq!(seen.at_the_door() as u64, reserve / 4, "{case}");
                    let spare = (0..=left).filter(|port| seen.can_spare(*port as usize)).max();
                    assert_eq!(spare, Some(left - reserve / 2), "{case}");
                    assert_eq!(seen.can_spare(left as usize + 9), reserve < 2, "{case}");
                }
            }
        }
        assert_eq!(Descriptors::PLENTY.places(), usize::MAX);
        assert_eq!(Descriptors::PLENTY.at_the_door(), 0);
    }
}
