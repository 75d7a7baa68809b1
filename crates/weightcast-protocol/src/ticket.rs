//! Tickets and term proofs: statements of one server that the next server believes.
//!
//! A server that takes over knows only what clients bring. A client's statement about the past
//! counts only with a keyed hash of a server of the same job, which needs the servers' key. A
//! [`TermProof`] says that there was a term. A [`Ticket`] says which session was which shard of
//! which group in that term, and what the group held.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::role::Role;
use crate::{ContentDigest, Epoch, Incarnation, SessionId, Sum, Term, Version};

/// Separates this key from other keys that are derived from the same secret.
const CONTEXT: &str = "weightcast 2026 tickets of reference servers";

/// The key with which the servers of a job prove their statements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TicketKey([u8; 32]);

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

/// A keyed hash.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Mac(pub [u8; 32]);

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.0;
        write!(f, "Mac({a:02x}{b:02x}..)")
    }
}

/// What is secret has no encoding, so no recording shows it.
macro_rules! unwritten {
    ($secret:ident is read as $read:expr) => {
        impl Serialize for $secret {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_unit()
            }
        }

        impl<'de> Deserialize<'de> for $secret {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                <()>::deserialize(from).map(|()| $read)
            }
        }
    };
}

unwritten!(TicketKey is read as TicketKey::known());
unwritten!(Mac is read as Mac::default());

/// A server's statement that it acted in a term. Not bound to a session: any client may show it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TermProof {
    /// The term.
    pub term: Term,
    /// The first term of the line: of the terms that took over from one another up to this one.
    /// Servers of different lines know nothing of each other, and their epochs are in no order.
    pub origin: Term,
    /// Keyed hash over both.
    pub mac: Mac,
}

/// A server's statement to one session, which brings it to the next server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Ticket {
    /// The term in which the ticket was given.
    pub proof: TermProof,
    /// The group that the session is a member of.
    pub incarnation: Incarnation,
    /// The run that the group publishes into.
    pub epoch: Epoch,
    /// The version that the group held last.
    pub held: Option<Proved>,
    /// Keyed hash over all this and the ticket's owner.
    pub mac: Mac,
}

/// A version that a server has seen a group hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Proved {
    /// The version.
    pub version: Version,
    /// Name of its logical tensors.
    pub catalog: ContentDigest,
    /// Sum of the version, if it was sealed by then.
    pub sum: Option<Sum>,
}

/// The owner of a ticket.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TicketOwner<'a> {
    pub(crate) session: SessionId,
    pub(crate) model: &'a str,
    pub(crate) replica: &'a str,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
    pub(crate) role: Role,
}

impl TicketKey {
    /// The key that is derived from a secret of the job.
    pub fn of_secret(secret: &[u8]) -> Self {
        Self(blake3::derive_key(CONTEXT, secret))
    }

    /// The key that everybody knows: that of servers without a secret, and of servers that are played back.
    pub(crate) fn known() -> Self {
        Self::of_secret(b"")
    }

    pub(crate) fn prove(&self, term: Term, origin: Term) -> TermProof {
        TermProof { term, origin, mac: self.term_hash(term, origin).mac() }
    }

    pub(crate) fn has_proved(&self, proof: &TermProof) -> bool {
        // No server could act after the last term, so a proof of it must not end the job, even with
        // the right key.
        let has_successor = proof.term.after(0, 0).is_some();
        has_successor && self.term_hash(proof.term, proof.origin).is(proof.mac)
    }

    /// Signs a ticket.
    pub(crate) fn grant(&self, ticket: Ticket, owner: TicketOwner<'_>) -> Ticket {
        Ticket { mac: self.ticket_hash(&ticket, owner).mac(), ..ticket }
    }

    /// Whether a server with this key gave the ticket to this owner.
    pub(crate) fn has_granted(&self, ticket: &Ticket, owner: TicketOwner<'_>) -> bool {
        self.has_proved(&ticket.proof) && self.ticket_hash(ticket, owner).is(ticket.mac)
    }

    fn term_hash(&self, term: Term, origin: Term) -> Hash {
        Hash::new(self, "term").number(term.0).number(origin.0)
    }

    fn ticket_hash(&self, ticket: &Ticket, owner: TicketOwner<'_>) -> Hash {
        let hash = Hash::new(self, "ticket")
            .number(ticket.proof.term.0)
            .number(ticket.proof.origin.0)
            .number(ticket.incarnation.term.0)
            .number(ticket.incarnation.number)
            .number(ticket.epoch.0)
            .proved(ticket.held)
            .bytes(&owner.session.0.to_le_bytes())
            .bytes(owner.model.as_bytes())
            .bytes(owner.replica.as_bytes())
            .number(owner.shard.into())
            .number(owner.num_shards.into());
        match owner.role {
            Role::Trainer => hash.number(0),
            Role::Rollout => hash.number(1),
            Role::Offload(version) => hash.number(2).version(version),
            Role::Seed(version) => hash.number(3).version(version),
        }
    }
}

/// A keyed hash that is being computed. Fields can't run into each other: numbers have one length,
/// and bytes follow their length.
struct Hash(blake3::Hasher);

impl Hash {
    fn new(key: &TicketKey, what: &str) -> Self {
        Self(blake3::Hasher::new_keyed(&key.0)).bytes(what.as_bytes())
    }

    fn number(mut self, number: u64) -> Self {
        self.0.update(&number.to_le_bytes());
        self
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        let mut hash = self.number(bytes.len() as u64);
        hash.0.update(bytes);
        hash
    }

    fn version(self, version: Version) -> Self {
        self.number(version.epoch.0).number(version.number)
    }

    fn proved(self, held: Option<Proved>) -> Self {
        let Some(held) = held else { return self.number(0) };
        let hash = self.number(1).version(held.version).bytes(&held.catalog.0);
        match held.sum {
            None => hash.number(0),
            Some(sum) => hash.number(1).number(sum.0[0]).number(sum.0[1]),
        }
    }

    fn mac(self) -> Mac {
        Mac(*self.0.finalize().as_bytes())
    }

    /// Compares in constant time.
    fn is(self, mac: Mac) -> bool {
        self.0.finalize() == mac.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Open;

    const OWNER: TicketOwner<'_> = TicketOwner {
        session: SessionId(7),
        model: "policy",
        replica: "trainer",
        shard: 1,
        num_shards: 2,
        role: Role::Trainer,
    };

    fn ticket(key: &TicketKey) -> Ticket {
        let version = Version { epoch: Epoch(3), number: 4 };
        let held =
            Proved { version, catalog: ContentDigest([5; 16]), sum: Some(crate::Sum([1, 2])) };
        let ticket = Ticket {
            proof: key.prove(Term(11), Term(10)),
            incarnation: Incarnation { term: Term(9), number: 8 },
            epoch: Epoch(3),
            held: Some(held),
            mac: Mac::default(),
        };
        key.grant(ticket, OWNER)
    }

    #[test]
    fn a_ticket_is_good_as_it_was_given_and_in_no_other_form() {
        let key = TicketKey::of_secret(b"job");
        let given = ticket(&key);
        assert!(key.has_granted(&given, OWNER));
        assert!(!TicketKey::of_secret(b"other job").has_granted(&given, OWNER));
        let held = given.held.unwrap();
        let later = Version { number: u64::MAX, ..held.version };
        let forged = [
            Ticket { proof: TermProof { term: Term(12), ..given.proof }, ..given },
            Ticket { proof: key.prove(Term(12), Term(10)), ..given },
            Ticket { proof: key.prove(Term(11), Term(11)), ..given },
            Ticket { incarnation: given.incarnation.next(), ..given },
            Ticket { incarnation: Incarnation { term: Term(1), ..given.incarnation }, ..given },
            Ticket { epoch: Epoch(u64::MAX), ..given },
            Ticket { held: None, ..given },
            Ticket { held: Some(Proved { version: later, ..held }), ..given },
            Ticket { held: Some(Proved { catalog: ContentDigest([6; 16]), ..held }), ..given },
            Ticket { held: Some(Proved { sum: None, ..held }), ..given },
            Ticket { held: Some(Proved { sum: Some(Sum([2, 1])), ..held }), ..given },
            Ticket { mac: Mac::default(), ..given },
        ];
        for ticket in forged {
            assert!(!key.has_granted(&ticket, OWNER), "{ticket:?}");
        }
    }

    #[test]
    fn a_ticket_is_good_for_its_bearer_alone() {
        let key = TicketKey::of_secret(b"");
        let given = ticket(&key);
        let version = Version { epoch: Epoch(0), number: 0 };
        let others = [
            TicketOwner { session: SessionId(8), ..OWNER },
            TicketOwner { model: "other", ..OWNER },
            TicketOwner { model: "policyt", replica: "rainer", ..OWNER },
            TicketOwner { shard: 0, ..OWNER },
            TicketOwner { num_shards: 3, ..OWNER },
            TicketOwner { role: Role::Rollout, ..OWNER },
            TicketOwner { role: Role::Offload(version), ..OWNER },
        ];
        for owner in others {
            assert!(!key.has_granted(&given, owner), "{owner:?}");
        }
    }

    #[test]
    fn a_term_is_proved_by_a_server_alone() {
        let key = TicketKey::of_secret(b"job");
        let proof = key.prove(Term(11), Term(10));
        assert!(key.has_proved(&proof));
        for forged in [
            TermProof { term: Term(1 << 61), ..proof },
            TermProof { origin: Term(11), ..proof },
            TermProof { mac: ticket(&key).mac, ..proof },
            TermProof::default(),
            key.prove(Term(u64::MAX), Term(10)),
        ] {
            assert!(!key.has_proved(&forged), "{forged:?}");
        }
    }

    #[test]
    fn each_role_and_each_version_that_it_is_for_is_another_owner() {
        let key = TicketKey::of_secret(b"job");
        let version = |epoch, number| Version { epoch: Epoch(epoch), number };
        let versions = [version(1, 2), version(2, 1), version(1, 3), version(0, 0)];
        let mut roles = vec![Role::Trainer, Role::Rollout];
        roles.extend(versions.iter().flat_map(|v| [Role::Offload(*v), Role::Seed(*v)]));
        for role in &roles {
            let given = key.grant(ticket(&key), TicketOwner { role: *role, ..OWNER });
            for other in &roles {
                let good = key.has_granted(&given, TicketOwner { role: *other, ..OWNER });
                assert_eq!(good, role == other, "{role:?}, shown as {other:?}");
            }
        }
    }

    #[test]
    fn nothing_of_what_was_held_can_be_changed_for_anything_else() {
        let key = TicketKey::of_secret(b"job");
        let given = ticket(&key);
        let held = given.held.unwrap();
        let other_run = Version { epoch: Epoch(4), ..held.version };
        let swapped = Version { epoch: Epoch(4), number: 3 };
        for forged in [
            Proved { version: other_run, ..held },
            Proved { version: swapped, ..held },
            Proved { sum: Some(Sum([1, 3])), ..held },
            Proved { sum: Some(Sum([0, 2])), ..held },
        ] {
            assert!(!key.has_granted(&Ticket { held: Some(forged), ..given }, OWNER), "{forged:?}");
        }
        // Less can be granted too, and is something else again.
        for held in [None, Some(Proved { sum: None, ..held })] {
            let less = key.grant(Ticket { held, ..given }, OWNER);
            assert!(key.has_granted(&less, OWNER));
            assert!(!key.has_granted(&Ticket { held: given.held, ..less }, OWNER));
        }
    }

    #[test]
    fn the_last_term_of_all_proves_nothing_and_the_one_before_it_does() {
        let key = TicketKey::of_secret(b"job");
        let last_but_one = Term(u64::MAX - Term::SERVERS * (1 << 16));
        assert!(last_but_one.after(0, 0).is_some());
        assert!(key.has_proved(&key.prove(last_but_one, Term(1))));
        let first_of_the_last = last_but_one.after(Term::SERVERS as u32 - 1, 0).unwrap();
        assert!(!key.has_proved(&key.prove(first_of_the_last, Term(1))));
    }

    #[test]
    fn an_owner_is_who_opens() {
        let key = TicketKey::of_secret(b"job");
        let open = Open {
            protocol: crate::PROTOCOL,
            session: SessionId(7),
            model: "policy".into(),
            replica: "trainer".into(),
            shard: 1,
            num_shards: 2,
            role: Role::Trainer,
            epoch: crate::message::EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Default::default(),
            data_address: String::new(),
            ticket: None,
            rejoins: false,
            activate: true,
        };
        assert!(key.has_granted(&ticket(&key), TicketOwner::from(&open)));
    }

    #[test]
    fn a_log_shows_neither_the_key_nor_a_whole_mac() {
        assert_eq!(format!("{:?}", TicketKey::of_secret(b"job")), "TicketKey(..)");
        let mut mac = Mac([0; 32]);
        (mac.0[0], mac.0[1], mac.0[2]) = (0xab, 0x0c, 0xff);
        assert_eq!(format!("{mac:?}"), "Mac(ab0c..)");
    }
}
