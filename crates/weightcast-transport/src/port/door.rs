//! What data ports and control ports decide alike about those who come: whose trouble an error of
//! `accept` is, which of the strangers makes room, and what stands for a host.

pub use crate::base::host::host_of;
use rustix::io::Errno;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

/// Troubles of one connection that Linux tells to whoever accepts it: nobody is there any more.
const PASSING: [Errno; 12] = [
    Errno::AGAIN,
    Errno::INTR,
    Errno::CONNABORTED,
    Errno::PROTO,
    Errno::PERM,
    Errno::OPNOTSUPP,
    Errno::NOPROTOOPT,
    Errno::NETDOWN,
    Errno::NETUNREACH,
    Errno::HOSTDOWN,
    Errno::HOSTUNREACH,
    Errno::NONET,
];

/// The system has no more of what a connection takes: descriptors, memory, room to watch it.
const EXHAUSTED: [Errno; 5] =
    [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC];

/// Whose trouble an error of `accept` is. What one connection suffers its peer may have chosen, and
/// may choose again: it is no reason to give up anybody's place, or to rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcceptError {
    /// Of the one connection, which is gone: the next one can be accepted.
    Passing,
    /// There are no descriptors, or no memory, for another connection.
    Exhausted,
    /// Of the port itself.
    Port,
}

impl AcceptError {
    /// What the system said.
    pub fn of(error: &io::Error) -> Self {
        match Errno::from_io_error(error) {
            Some(error) if PASSING.contains(&error) => Self::Passing,
            Some(error) if EXHAUSTED.contains(&error) => Self::Exhausted,
            _ => Self::Port,
        }
    }
}

/// Which of the strangers makes room: the oldest of whoever has most of them, one that is about to
/// come counted. So a flood costs its own, and a newcomer's place is safe from others that have more.
/// Strangers are given by number, the oldest first, each with its origin.
pub fn makes_room<O: Ord>(
    strangers: impl IntoIterator<Item = (u64, O)>,
    newcomer: Option<O>,
) -> Option<u64> {
    let mut origins = BTreeMap::new();
    for (number, origin) in strangers {
        let coming = usize::from(newcomer.as_ref() == Some(&origin));
        let (count, _oldest) = origins.entry(origin).or_insert((coming, Reverse(number)));
        *count += 1;
    }
    origins.into_values().max().map(|(_, Reverse(oldest))| oldest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_whoever_has_most_makes_room() {
        let strangers = [(1, 'b'), (2, 'a'), (3, 'a'), (5, 'b'), (7, 'c')];
        assert_eq!(makes_room(strangers, None), Some(1));
        assert_eq!(makes_room(strangers, Some('a')), Some(2));
        assert_eq!(makes_room(strangers, Some('c')), Some(1));
        assert_eq!(makes_room([], Some('a')), None);
    }

    #[test]
    fn what_one_connection_suffers_is_its_own() {
        let of = |error: Errno| AcceptError::of(&error.into());
        assert_eq!(of(Errno::CONNABORTED), AcceptError::Passing);
        assert_eq!(of(Errno::MFILE), AcceptError::Exhausted);
        assert_eq!(of(Errno::INVAL), AcceptError::Port);
        assert_eq!(AcceptError::of(&io::Error::other("?")), AcceptError::Port);
    }

    /// Whatever the system may say to whoever accepts; what is unknown is the port's.
    #[test]
    fn every_error_is_somebody_s() {
        use libc::*;
        let passing = [
            EAGAIN,
            EINTR,
            ECONNABORTED,
            EPROTO,
            EPERM,
            EOPNOTSUPP,
            ENOPROTOOPT,
            ENETDOWN,
            ENETUNREACH,
            EHOSTDOWN,
            EHOSTUNREACH,
            ENONET,
        ];
        let exhausted = [EMFILE, ENFILE, ENOMEM, ENOBUFS, ENOSPC];
        for number in 1..134 {
            let expected = match number {
                number if passing.contains(&number) => AcceptError::Passing,
                number if exhausted.contains(&number) => AcceptError::Exhausted,
                _ => AcceptError::Port,
            };
            assert_eq!(
                AcceptError::of(&io::Error::from_raw_os_error(number)),
                expected,
                "{number}"
            );
        }
    }

    /// Against a count of each, for every short queue of three origins.
    #[test]
    fn whoever_has_most_loses_the_first_to_come() {
        for queue in 0..3_u32.pow(6) {
            for len in 0..=6_u32 {
                let origin = |place: u32| queue / 3_u32.pow(place) % 3;
                let strangers = || (0..len).map(|n| (u64::from(n) * 10 + 7, origin(n)));
                for newcomer in [None, Some(0), Some(1), Some(2), Some(3)] {
                    let count = |of| {
                        let there = strangers().filter(|(_, origin)| *origin == of).count();
                        there + usize::from(newcomer == Some(of))
                    };
                    let most = (0..len).map(|n| count(origin(n))).max();
                    let goes = strangers().find(|(_, origin)| Some(count(*origin)) == most);
                    assert_eq!(makes_room(strangers(), newcomer), goes.map(|(number, _)| number));
                }
            }
        }
    }
}
