//! Numbers that name things. Each has its own type, so that none is taken for another.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// The number after this one. The last number stays, so that no claim can make the
            /// count wrap.
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }
        }
    };
}

number!(
    /// One control-plane stream, named by the runtime that accepted it. A session may outlive it.
    ConnectionId
);
number!(
    /// One server's time of acting. Messages of an older term have no effect (T2, T3). The upper
    /// bits count how often servers have taken over from one another. At an equal count the term of
    /// the server that is earlier in the list is the later term. The lowest bits tell one server's
    /// lives apart.
    Term
);

impl Term {
    /// How many servers one list of a client may have.
    pub const SERVERS: u64 = 1 << 10;
    /// How many lives of one server are told apart.
    const LIVES: u64 = 1 << 16;
    /// The highest step. At a thousand steps a second the steps last for eight years.
    const STEPS: u64 = u64::MAX / (Self::LIVES * Self::SERVERS);

    /// How often servers have taken over from one another; the first server to act counts as one.
    pub fn step(self) -> u64 {
        self.0 / (Self::LIVES * Self::SERVERS)
    }

    /// The place, in the list of servers, of the server that took this term.
    pub fn server(self) -> u64 {
        Self::SERVERS - 1 - self.0 / Self::LIVES % Self::SERVERS
    }

    /// The term one step after this one, taken by this life of server number `index`. `None` after
    /// the last step.
    pub fn after(self, index: u32, life: u64) -> Option<Term> {
        let step = Some(self.step() + 1).filter(|step| *step <= Self::STEPS)?;
        let rank = Self::SERVERS - 1 - u64::from(index) % Self::SERVERS;
        Some(Term((step * Self::SERVERS + rank) * Self::LIVES + life % Self::LIVES))
    }
}
number!(
    /// One training run of a model. A trainer that starts a new run gets a later one, so that
    /// versions never repeat, also where a lost server has taken its knowledge with it: see
    /// [`Epoch::first`]. Zero: no run has begun.
    Epoch
);

impl Epoch {
    /// How many bits tell runs of servers apart that know nothing of each other.
    const DRAWN: u32 = 32;

    /// The first run that a life of a server counts in a term. Later than all runs of earlier terms
    /// of its line; and other than those of a server that knows of no earlier term either, whose
    /// life is another random number.
    pub fn first(term: Term, life: u64) -> Self {
        let step = term.step().min(u64::MAX >> Self::DRAWN);
        Self(step << Self::DRAWN | life & u64::MAX >> Self::DRAWN)
    }

    /// The step of the term in which the run began.
    pub fn step(self) -> u64 {
        self.0 >> Self::DRAWN
    }
}

number!(
    /// Count of a shard's changes of memory: grows each time its buffers become mutable or get a
    /// new version (S3).
    Generation
);
number!(
    /// Number of a call in the sequence that every shard of a group makes (G1 to G5).
    OpSeq
);
number!(
    /// Number of an assignment within one transfer. A transfer that continues the bytes of an
    /// earlier call counts on from there.
    Attempt
);
number!(
    /// Number of one challenge, unpredictable. The sums that a shard has to show are keyed with it.
    Nonce
);
number!(
    /// Random name under which a shard's data port serves its registered regions.
    ExportId
);

/// One life of a group: the shards that opened the same replica together. Kept when the group goes
/// on in another term. Unique: the server that founds the group counts within its own term, and
/// terms differ.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Incarnation {
    /// The term in which it was founded.
    pub term: Term,
    /// The group's number in that term.
    pub number: u64,
}

impl Attempt {
    /// The first assignment of a transfer that continues nothing.
    pub const FIRST: Self = Self(1);
}

impl Incarnation {
    /// The next incarnation of the same term.
    pub fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.number)
    }
}

/// Position in a model's history of visible changes (S10). Contains the whole term, so that two
/// servers that know nothing of each other never count the same revision. A client that moves to a
/// later term is shown later revisions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision {
    /// The term of the server that counts.
    pub term: Term,
    /// Changes that the server has counted.
    pub number: u64,
}

impl Revision {
    /// The next revision of the same term.
    pub fn next(self) -> Self {
        Self { number: self.number.saturating_add(1), ..self }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term, self.number)
    }
}

/// Random name of one process life of one shard; resumes its session on a new stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u128);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The id proves who resumes a session, so logs get the first 32 bits only.
        write!(f, "SessionId({:08x}..)", (self.0 >> 96) as u32)
    }
}

/// The upper half alone: enough to tell sessions apart, in their order, and not enough to resume one.
impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        ((self.0 >> 64) as u64).serialize(to)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u64::deserialize(from).map(|half| Self(u128::from(half) << 64))
    }
}

/// Name of a blob by its content: of a layout, or of a catalog of logical tensors.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ContentDigest(pub [u8; 16]);

impl fmt::Display for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// One training step's weights. Ordered by epoch first, so a restarted run is always newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version {
    /// The training run.
    pub epoch: Epoch,
    /// The number that the trainer gave this version.
    pub number: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (epoch {})", self.number, self.epoch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_says_its_step_its_server_and_its_life() {
        let mut at = Term(0);
        for (index, life, step) in [(0, 0, 1), (3, 9, 2), (1_023, 65_535, 3), (1_022, 1, 4)] {
            at = at.after(index, life).unwrap();
            assert_eq!((at.step(), at.server()), (step, u64::from(index)));
            assert_eq!(at.0 % (1 << 16), life);
        }
        // What is beyond the bounds counts as something within them, and touches nothing else.
        let beyond = Term(0).after(1_024 + 7, (1 << 16) + 5).unwrap();
        assert_eq!(beyond, Term(0).after(7, 5).unwrap());
    }

    #[test]
    fn a_later_step_is_later_then_the_first_server_of_the_list_is() {
        let one = Term(0).after(0, 65_535).unwrap();
        let two = one.after(1_023, 0).unwrap();
        assert!(two > one, "whoever takes it, and however often it has lived");
        let servers: Vec<Term> = [0, 1, 512, 1_023].map(|n| one.after(n, 7).unwrap()).into();
        assert!(servers.is_sorted_by(|a, b| a > b), "{servers:?}");
        assert!(one.after(5, 2).unwrap() > one.after(5, 1).unwrap());
        // The term that nobody has is before all.
        assert!(Term(0).after(1_023, 0).unwrap() > Term(0));
        assert_eq!((Term(0).step(), Term(0).server()), (0, 1_023));
    }

    #[test]
    fn there_is_a_last_step_which_any_server_may_take() {
        let last_but_one = Term((Term::STEPS - 1) * Term::SERVERS * Term::LIVES);
        for index in [0, 1_023] {
            let last = last_but_one.after(index, 65_535).expect("one is left");
            assert_eq!((last.step(), last.server()), (Term::STEPS, u64::from(index)));
            assert_eq!(last.after(0, 0), None);
        }
        assert_eq!(Term(u64::MAX).step(), Term::STEPS);
        assert_eq!(Term(u64::MAX).after(0, 0), None);
        assert_eq!(Term(0).after(0, 0).map(Term::step), Some(1));
    }

    #[test]
    fn numbers_go_up_by_one_and_stop_at_the_last() {
        assert_eq!(OpSeq(4).next(), OpSeq(5));
        assert_eq!(Attempt(u64::MAX - 1).next(), Attempt(u64::MAX));
        assert_eq!(Attempt(u64::MAX).next(), Attempt(u64::MAX));
        let term = Term(3);
        assert_eq!(Revision { term, number: 4 }.next(), Revision { term, number: 5 });
        assert_eq!(Incarnation { term, number: 4 }.next(), Incarnation { term, number: 5 });
        let number = u64::MAX;
        assert_eq!(Revision { term, number }.next(), Revision { term, number });
        assert_eq!(Incarnation { term, number }.next(), Incarnation { term, number });
    }

    #[test]
    fn what_is_newer_comes_later() {
        let later = |term| Revision { term: Term(term), number: 0 };
        assert!(later(2) > Revision { number: u64::MAX, ..later(1) });
        let version = |epoch, number| Version { epoch: Epoch(epoch), number };
        assert!(version(2, 0) > version(1, 99) && version(1, 100) > version(1, 99));
    }

    #[test]
    fn names_are_written_as_people_see_them() {
        assert_eq!(OpSeq(12).to_string(), "12");
        assert_eq!(Incarnation { term: Term(3), number: 4 }.to_string(), "3.4");
        assert_eq!(Revision { term: Term(5), number: 6 }.to_string(), "5.6");
        assert_eq!(Version { epoch: Epoch(1), number: 20 }.to_string(), "20 (epoch 1)");
        let mut digest = ContentDigest([0xab; 16]);
        digest.0[15] = 1;
        let text = format!("{}01", "ab".repeat(15));
        assert_eq!((digest.to_string(), format!("{digest:?}")), (text.clone(), text));
        // Who could read all of it in a log could take the session over.
        let session = SessionId(0x0123_4567_89ab_cdef_0011_2233_4455_6677);
        assert_eq!(format!("{session:?}"), "SessionId(01234567..)");
    }
}
