//! Sessions that claim to come from an earlier server, under numbers that they chose.

use std::time::Duration;

use anyhow::Result;

use crate::attacker::control::{ControlClient, RogueSession, RogueStream, open};
use crate::attacker::forge::Mint;
use crate::attacker::wire::client_frame::Body as Ask;
use crate::attacker::wire::server_frame::Body as Told;
use crate::attacker::wire::{
    Announce, Holding, Incarnation, Open, Proved, Register, Role, ShardSums, Sum, TermProof,
    Ticket, Version,
};
use crate::scene::Scene;

/// Long enough for an answer that may not come.
const MOMENT: Duration = Duration::from_secs(3);

/// What the server is told by somebody who says that he comes from an earlier one.
pub(super) struct Ghost {
    pub(super) stream: RogueStream,
    /// Whether it was let in.
    pub(super) inside: bool,
}

impl Ghost {
    pub(super) fn enter(scene: &mut Scene, control: &ControlClient, open: Open) -> Result<Self> {
        let stream = control.stream()?;
        stream.say(Ask::Open(open))?;
        let answer = stream.wait(MOMENT, |told| match told {
            Told::Opened(_) => Some(Ok(())),
            Told::Refused(refused) => Some(Err(format!("{:?}", refused.error))),
            Told::Superseded(_) => Some(Err("superseded".to_owned())),
            _ => None,
        });
        let inside = match answer {
            Ok(Ok(())) => true,
            Ok(Err(refused)) => {
                scene.note(format!("refused: {refused}"));
                false
            }
            Err(error) => {
                scene.note(format!("not let in: {error:#}"));
                false
            }
        };
        Ok(Self { stream, inside })
    }

    /// Whatever comes of it.
    pub(super) fn announce(&self, announce: Announce) {
        let _ = self.stream.say(Ask::Announce(announce));
    }
}

/// Whoever says that he comes from an earlier server, with a ticket of this attacker's making.
pub(super) struct Forger {
    /// What a server has really given to the attacker.
    given: Ticket,
    /// The token is all the secret that a client has.
    mint: Mint,
}

impl Forger {
    pub(super) fn new(scene: &Scene, control: &ControlClient) -> Result<(Self, RogueSession)> {
        let real = control.open(open("ghosts", "real", Role::Rollout))?;
        let given = real.opened.given();
        Ok((Self { given, mint: Mint::new(&scene.workspace.token) }, real))
    }

    /// The number of groups after the one that the attacker founded.
    pub(super) fn number(&self, after: i64) -> Incarnation {
        let mine = self.given.incarnation.unwrap_or_default();
        Incarnation { number: mine.number.wrapping_add_signed(after), ..mine }
    }

    /// The same open with tickets of all kinds: as given to somebody else, changed, signed with
    /// what the attacker has.
    pub(super) fn opens(&self, seat: &Open, ticket: &Ticket) -> Vec<Open> {
        let of_earlier = |term: u64| self.mint.proof(term, self.origin());
        let (now, before) = (self.term(), self.term().saturating_sub(1));
        let mut tickets = vec![self.given.clone()];
        let changed = Ticket { proof: self.given.proof.clone(), ..ticket.clone() };
        tickets.push(Ticket { mac: self.given.mac.clone(), ..changed });
        for term in [before, now, now + 1] {
            let made = Ticket { proof: Some(of_earlier(term)), ..ticket.clone() };
            tickets.push(self.mint.ticket(seat, made));
        }
        let with = |ticket| Open { ticket: Some(ticket), rejoins: true, ..seat.clone() };
        tickets.into_iter().map(with).collect()
    }

    pub(super) fn term(&self) -> u64 {
        self.given.proof.as_ref().map_or(0, |proof| proof.term)
    }

    fn origin(&self) -> u64 {
        self.given.proof.as_ref().map_or(0, |proof| proof.origin)
    }

    /// Proofs of a term: copied from a true one, signed with what the attacker has, without any.
    pub(super) fn proofs(&self, term: u64) -> [TermProof; 3] {
        let true_one = self.given.proof.clone().unwrap_or_default();
        let copied = TermProof { term, ..true_one };
        [copied, self.mint.proof(term, self.origin()), TermProof { term, ..TermProof::default() }]
    }
}

pub(super) fn chosen_incarnation(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let control = scene.control()?;
    let (forger, _real) = Forger::new(scene, &control)?;
    let ticket = Ticket { incarnation: Some(forger.number(1)), ..Ticket::default() };
    let mut seat = open("ghosts", "ghost", Role::Rollout);
    (seat.shard, seat.num_shards) = (3, 4);
    let mut seats = Vec::new();
    for open in forger.opens(&seat, &ticket) {
        seats.push(Ghost::enter(scene, &control, open)?);
    }
    // The next group gets the number that the ghost has.
    let honest = scene.rollout("ghosts", "honest")?;
    for seat in &seats {
        seat.announce(Announce { generation: 1, ..Announce::default() });
    }
    scene.keep(honest);
    // A claim about the past must not make the server wait for it either.
    let mut late = scene.trainer("policy-2")?;
    scene.note(format!("a trainer that came meanwhile opened in {:.0} ms", late.opened_ms));
    late.must("publish 1")?;
    scene.keep(late);
    Ok(())
}

pub(super) fn unregistered_copy(scene: &mut Scene) -> Result<()> {
    announce_newest(scene, None, None)
}

pub(super) fn forged_copy(scene: &mut Scene) -> Result<()> {
    let memory = Register { layout: vec![7; 16], export: 7, bytes: 7 };
    let sum = Some(Sum { low: 1, high: 2 });
    let sums = ShardSums { counted: sum, held: sum, expected: sum };
    announce_newest(scene, Some(memory), Some(sums))
}

/// Announces a version far newer than the honest one, in its model.
fn announce_newest(
    scene: &mut Scene,
    registration: Option<Register>,
    sums: Option<ShardSums>,
) -> Result<()> {
    scene.begin()?;
    let control = scene.control()?;
    let (forger, _real) = Forger::new(scene, &control)?;
    let version = Some(Version { epoch: 1 << 40, number: 1 });
    let catalog = crate::attacker::forge::catalog(
        crate::scene::victims::TENSOR,
        crate::scene::MODEL_BYTES as u64,
    );
    let sum = sums.and_then(|sums| sums.counted);
    let held = Holding { version, catalog: catalog.clone(), sums, ..Holding::default() };
    for role in [Role::Trainer, Role::Rollout] {
        let seat = open("policy", &format!("ghost-{}", role as i32), role);
        let ticket = Ticket {
            incarnation: Some(forger.number(5_000 + role as i64)),
            held: Some(Proved { version, catalog: catalog.clone(), sum }),
            ..Ticket::default()
        };
        for open in forger.opens(&seat, &ticket) {
            let seat = Ghost::enter(scene, &control, open)?;
            if !seat.inside {
                continue;
            }
            seat.announce(Announce {
                generation: 1,
                registration: registration.clone(),
                held: Some(held.clone()),
                ..Announce::default()
            });
            let heard = seat.stream.wait(MOMENT, |told| match told {
                Told::Recovered(_) => Some("believed"),
                Told::Broken(_) => Some("broken"),
                _ => None,
            });
            scene.note(format!("a {role:?} announces: {}", heard.unwrap_or("no answer")));
        }
    }
    Ok(())
}
