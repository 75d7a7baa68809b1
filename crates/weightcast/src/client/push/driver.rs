//! `push`: the driver, in the thread of whoever calls it.
//!
//! One machine drives all targets that take part at a time; those that come when it has ended get another one, with the
//! next number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use weightcast_protocol::push::{
    PushConfig, PushDriver, PushInput, PushNumber, PushOutput, PushParcel, PushResult, SenderId,
    TargetEnd, TargetId, TargetNeeds, TargetOutcome,
};
use weightcast_protocol::{ContentDigest, Safeguards, Time, Version};

use super::base::Base;
use super::candidates::{Candidates, WillingReplica};
use super::desk::DriverWord;
use super::looking::{Driving, LOOK, look};
use super::outbox::post;
use super::outcome::{PushEnd, PushTerms, Pushed, PushedShard};
use super::plans::PushPlan;
use super::server::{ANSWER, layouts};
use super::word::{GrantWord, OpenedGrant, OrderWord, OverWord, PushWord, TargetOver};
use crate::client::handle::{ShardHandle, left};
use crate::client::handle_state::HandleState;
use crate::clock::span;
use crate::error::Error;

/// How often targets that have not changed are told again, and their senders.
const ASK: Duration = Duration::from_millis(200);
/// How long a target may be silent.
const SILENCE: Duration = Duration::from_secs(10);
/// How long grants stay open when the driver is silent.
const LEASE: Duration = Duration::from_secs(15);
/// How often a parcel may leave a sender that lives.
const MOVES: u32 = 3;
/// How long the driver waits at once.
const TICK: Duration = Duration::from_millis(50);
impl ShardHandle {
    /// Pushes the version that this handle's replica holds: those that hold it in the same layouts, the shards of this
    /// replica first, write it into the memory of shards that [`accept`](ShardHandle::accept). Not a call of the group: one
    /// shard makes it, and the others of its replica write in the background. Returns what became of each shard, once all
    /// of them have ended; that some have not got the version is no error.
    ///
    /// # Errors
    /// [`CallError::Misuse`](crate::CallError::Misuse) if this replica holds no such version, or a push of this handle is
    /// running; [`CallError::ServerUnreachable`](crate::CallError::ServerUnreachable).
    pub fn push(&self, options: &PushTerms) -> Result<Pushed, Error> {
        let until = Instant::now() + options.deadline;
        let state = Arc::clone(&self.own()?.shared);
        let version = self.pushable(options.version)?;
        let number = self.push_number(left(until))?;
        let words = state.push.drive()?;
        let _driving = Driving(&state);
        let base = Base::find(&state, self, version)?;
        let push = RunningPush {
            handle: self,
            state: Arc::clone(&state),
            options,
            until,
            version,
            number,
            candidates: Candidates::new(version, options.to.clone()),
            base,
            machine: None,
            targets: BTreeMap::new(),
            opened: BTreeMap::new(),
            over: BTreeMap::new(),
            ended: Vec::new(),
            looks_at: Instant::now(),
        };
        push.run(&words)
    }

    /// The version that is held here and asked for.
    pub(super) fn pushable(&self, asked: Option<u64>) -> Result<Version, Error> {
        match (self.version(), asked) {
            (Some(held), None) => Ok(held),
            (Some(held), Some(asked)) if held.number == asked => Ok(held),
            (Some(held), Some(asked)) => Err(Error::misuse(format!(
                "version {asked} cannot be pushed from here, which holds {held}: publish it first"
            ))),
            (None, _) => Err(Error::misuse("nothing can be pushed before it is published here")),
        }
    }

    /// The number of this handle's next push.
    fn push_number(&self, left: Duration) -> Result<PushNumber, Error> {
        let mut numbers = self.own()?.shared.push.numbers.lock().expect("no panic while held");
        numbers.next(|question| Ok(self.ask_fleet(question, left)?.driver))
    }
}

/// A shard that takes part.
struct PushedTo {
    replica: String,
    shard: u32,
    address: String,
    layouts: Vec<ContentDigest>,
    plan: Arc<PushPlan>,
}

/// A push while it runs.
struct RunningPush<'a> {
    handle: &'a ShardHandle,
    state: Arc<HandleState>,
    options: &'a PushTerms,
    until: Instant,
    version: Version,
    /// Of the machine that runs, or is next.
    number: PushNumber,
    candidates: Candidates,
    base: Base,
    machine: Option<PushDriver>,
    targets: BTreeMap<TargetId, PushedTo>,
    opened: BTreeMap<(TargetId, u64), OpenedGrant>,
    /// What targets said of an end that is theirs.
    over: BTreeMap<TargetId, OverWord>,
    ended: Vec<PushedShard>,
    looks_at: Instant,
}

impl RunningPush<'_> {
    fn run(mut self, words: &Receiver<DriverWord>) -> Result<Pushed, Error> {
        loop {
            if self.handle.is_interrupted() {
                self.tell(PushInput::Cancel);
                return Err(Error::Interrupted);
            }
            self.look();
            match words.recv_timeout(self.wait()) {
                Ok(word) => self.hear(word)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Error::Bug("a push was ended by somebody else".to_owned()));
                }
            }
            let now = self.state.push.now();
            if let Some(machine) = &mut self.machine
                && machine.next_timeout().is_some_and(|at| at <= now)
            {
                machine.handle_timeout(now);
                self.carry_out();
            }
            let late = Instant::now() >= self.until;
            let settled = self.candidates.is_settled(!self.ended.is_empty());
            if self.machine.is_none() && (late || settled) {
                return Ok(self.result());
            }
        }
    }

    /// Until the next thing to do.
    fn wait(&self) -> Duration {
        let due = self.machine.as_ref().and_then(PushDriver::next_timeout);
        let due = due.map_or(TICK, |Time(at)| {
            Duration::from_nanos(at.saturating_sub(self.state.push.now().0))
        });
        due.min(TICK).max(Duration::from_millis(1))
    }

    /// Looks who is there, now and then, and asks them whether they take part.
    fn look(&mut self) {
        if Instant::now() < self.looks_at {
            return;
        }
        self.looks_at = Instant::now() + LOOK;
        look(&self.state, self.handle, &mut self.candidates);
    }

    fn hear(&mut self, word: DriverWord) -> Result<(), Error> {
        match word {
            DriverWord::Gone(address) => self.lose(&address),
            DriverWord::Said(word) => match *word {
                PushWord::Offer(offer) => {
                    if let Some(willing) = self.candidates.offered(offer) {
                        self.join(willing)?;
                    }
                }
                PushWord::Report(word) => {
                    let target = word.report.target;
                    let parcels = self.targets.get(&target).map(|to| to.plan.parcels.len());
                    if parcels.is_none_or(|parcels| word.most_parcels() > parcels) {
                        return Ok(()); // of another push, or of another plan
                    }
                    self.state.push.heard(word.report.push.driver);
                    let opened = word.opened.into_iter().map(|of| ((target, of.number), of));
                    self.opened.extend(opened);
                    self.tell(PushInput::Reported(word.report));
                }
                PushWord::Refused(refused) => self.tell(PushInput::Refused(refused)),
                PushWord::Over(word) => self.is_over(word),
                _ => {}
            },
        }
        Ok(())
    }

    /// A replica takes part from now on.
    fn join(&mut self, willing: WillingReplica) -> Result<(), Error> {
        let mut needs = Vec::new();
        for (offer, address) in willing.shards {
            let targets = layouts(&self.state, &offer.layouts, ANSWER)?;
            let of = (offer.layouts.clone(), offer.shard, self.base.names.clone());
            let plan = self.state.push.plans.get(of, &targets, &self.base.layouts)?;
            let parcels = plan.parcels.iter().map(|parcel| PushParcel {
                bytes: parcel.bytes,
                holders: self.base.senders[parcel.source as usize].iter().copied().collect(),
            });
            needs.push(TargetNeeds { target: offer.target, parcels: parcels.collect() });
            let (replica, shard, layouts) = (willing.name.clone(), offer.shard, offer.layouts);
            let target = PushedTo { replica, shard, address, layouts, plan };
            self.targets.insert(offer.target, target);
        }
        if self.machine.is_none() {
            self.machine = Some(PushDriver::new(self.config()));
        }
        self.tell(PushInput::Joins(needs));
        Ok(())
    }

    fn config(&self) -> PushConfig {
        PushConfig {
            push: self.number,
            version: self.version,
            deadline: span(left(self.until)),
            silence: span(SILENCE),
            patience: span(self.options.patience),
            lease: span(LEASE),
            ask_every: span(ASK),
            moves: MOVES,
            safeguards: Safeguards::default(),
        }
    }

    /// Tells the machine something, and does what it says.
    fn tell(&mut self, input: PushInput) {
        if let Some(machine) = &mut self.machine {
            machine.handle(self.state.push.now(), input);
        }
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(output) = self.machine.as_mut().and_then(PushDriver::poll_output) {
            match output {
                PushOutput::Order(order) => {
                    let Some(to) = self.targets.get(&order.target) else { continue };
                    let word = OrderWord {
                        order,
                        driver: self.state.push.address.clone(),
                        base: self.base.names.clone(),
                        parcels: to.plan.fingerprint,
                    };
                    post(&self.state, &to.address, PushWord::Order(word));
                }
                PushOutput::Send(grant) => {
                    let opened = self.opened.get(&(grant.target, grant.number));
                    let to = self.targets.get(&grant.target);
                    let sender = self.base.addresses.get(&grant.sender);
                    let (Some(opened), Some(to), Some(sender)) = (opened, to, sender) else {
                        continue;
                    };
                    let word = GrantWord {
                        grant,
                        opened: *opened,
                        at: to.address.clone(),
                        driver: self.state.push.address.clone(),
                        base: self.base.names.clone(),
                        layouts: to.layouts.clone(),
                        shard: to.shard,
                        parcels: to.plan.fingerprint,
                    };
                    post(&self.state, sender, PushWord::Grant(word));
                }
                PushOutput::Ended(result) => self.conclude(result),
            }
        }
    }

    /// Nobody listens at an address: whoever was there is lost.
    fn lose(&mut self, address: &str) {
        let senders = self.base.addresses.iter().filter(|(_, at)| *at == address);
        let senders: Vec<SenderId> = senders.map(|(sender, _)| *sender).collect();
        let targets = self.targets.iter().filter(|(_, of)| of.address == address);
        let targets: Vec<TargetId> = targets.map(|(target, _)| *target).collect();
        senders.into_iter().for_each(|sender| self.tell(PushInput::SenderLost { sender }));
        targets.into_iter().for_each(|target| self.tell(PushInput::TargetLost { target }));
    }

    /// A target has ended the push.
    fn is_over(&mut self, word: OverWord) {
        if self.machine.as_ref().is_none_or(|machine| machine.number() != word.push) {
            return;
        }
        let target = word.target;
        self.over.insert(target, word);
        self.tell(PushInput::Leaves { target });
    }

    /// The machine has ended; who comes later gets another.
    fn conclude(&mut self, result: PushResult) {
        for (target, outcome) in result.targets {
            if let Some(to) = self.targets.remove(&target) {
                let over = self.over.remove(&target);
                self.ended.push(ended(&to, &outcome, over));
            }
        }
        self.opened.clear();
        self.machine = None;
        let mut numbers = self.state.push.numbers.lock().expect("no panic while held");
        self.number.number = numbers.next_push();
    }

    fn result(mut self) -> Pushed {
        self.ended.extend(self.candidates.others(false));
        self.ended.sort_by(|a, b| (&a.replica, a.shard).cmp(&(&b.replica, b.shard)));
        Pushed { version: self.version, shards: self.ended }
    }
}

/// What became of a target.
fn ended(to: &PushedTo, outcome: &TargetOutcome, over: Option<OverWord>) -> PushedShard {
    let all: u64 = to.plan.parcels.iter().map(|parcel| parcel.bytes).sum();
    let missing = outcome.missing.values().flatten().chain(&outcome.unheld);
    let missing: std::collections::BTreeSet<u32> = missing.copied().collect();
    let missing = missing.into_iter().filter_map(|number| to.plan.parcels.get(number as usize));
    let end = match (&over, outcome.end) {
        (_, TargetEnd::Ready) => PushEnd::New,
        (Some(OverWord { why: TargetOver::Differs, .. }), _) => PushEnd::Ended(TargetEnd::Differs),
        (_, end) => PushEnd::Ended(end),
    };
    PushedShard {
        replica: to.replica.clone(),
        shard: to.shard,
        end,
        bytes: all - missing.map(|parcel| parcel.bytes).sum::<u64>(),
        seconds: Duration::from_nanos(outcome.took.0).as_secs_f64(),
        moved: outcome.moved,
        detail: over.map_or_else(String::new, |over| over.detail),
    }
}

#[cfg(test)]
mod tests;
