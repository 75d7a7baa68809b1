//! The thread that runs a target's machine during one call: it opens and closes grants, and compares the content.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use weightcast_plan::Plan;
use weightcast_protocol::message::ReadFailure;
use weightcast_protocol::push::{
    ParcelsWritten, PushTarget, SenderId, TargetId, TargetOutput, TargetState,
};
use weightcast_protocol::{Generation, Sum, Version};
use weightcast_transport::Digest;

use super::outbox::post;
use super::plans::PushPlan;
use super::server::layouts;
use super::target::{PushedRead, TargetEvent};
use super::word::{OrderWord, OverWord, PushWord, ReportWord, TargetOver, WrittenWord};
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::client::reading::evidence::Evidence;
use crate::client::reading::plans::PlanFrom;
use crate::client::reading::route::ArrivedRead;
use crate::client::reading::unchanged::content::KnownContent;
use crate::client::threads;
use crate::client::updated::Transfer;
use crate::error::Error;

/// How often the thread looks at its time.
const TICK: Duration = Duration::from_millis(100);
/// How long the server may take to tell the layouts of a plan.
const LAYOUTS: Duration = Duration::from_secs(10);
/// Drivers whose addresses are kept: the newest, and one that it has taken over from.
const DRIVERS: usize = 2;

/// One call of a target, as its thread sees it.
pub(super) struct Fill {
    state: Arc<HandleState>,
    id: TargetId,
    machine: PushTarget,
    version: Version,
    registration: Arc<RegisteredShard>,
    plan: Arc<PushPlan>,
    whole: Arc<Plan>,
    plan_from: PlanFrom,
    /// How long grants may stay open at most: as long as the call.
    until: Instant,
    started: Instant,
    /// Where drivers hear, by number.
    drivers: BTreeMap<u64, String>,
    /// What senders have sent, by parcel.
    sums: BTreeMap<u32, Sum>,
    senders: BTreeSet<SenderId>,
    /// The session's read, until it was told its end.
    read: Option<Box<PushedRead>>,
    /// Whether the session has fenced the memory: its read has begun.
    fenced: bool,
    /// Set once the content was compared: the digests of its cells, and the generation that was compared.
    compared: Option<(Vec<Digest>, Generation)>,
    /// Why the push is to end here.
    failed: Option<String>,
    /// Why it did.
    ended_as: Option<String>,
}

impl Fill {
    /// A fill by this order. Makes the plan, which takes time.
    ///
    /// # Errors
    /// There is no plan for what is registered, or the driver has another one.
    pub(super) fn new(
        state: &Arc<HandleState>,
        word: &OrderWord,
        until: Instant,
    ) -> Result<Self, Error> {
        let nothing = || Error::misuse("register memory before it is pushed to");
        let (registration, export) = state.current().ok_or_else(nothing)?;
        let sources = layouts(state, &word.base, LAYOUTS)?;
        let made = state.routes.plans.get(&registration, &word.base, &sources, None);
        let (whole, plan_from) = made.map_err(|failure| Error::misuse(said(&failure)))?;
        let plan = Arc::new(PushPlan::new(Arc::clone(&registration), &whole));
        if plan.fingerprint != word.parcels {
            let detail = "driver and target cut a plan in different ways: run one release at both";
            return Err(Error::misuse(detail));
        }
        let id = TargetId(export.0);
        let generation = state.view.lock().expect("no panic while held").generation;
        let machine = state.push.target.take(id, generation);
        Ok(Self {
            state: Arc::clone(state),
            id,
            machine,
            version: word.order.version,
            registration,
            plan,
            whole,
            plan_from,
            until,
            started: Instant::now(),
            drivers: BTreeMap::new(),
            sums: BTreeMap::new(),
            senders: BTreeSet::new(),
            read: None,
            fenced: false,
            compared: None,
            failed: None,
            ended_as: None,
        })
    }

    /// Runs until the session's call has ended.
    pub(super) fn run(mut self, first: OrderWord, events: &Receiver<TargetEvent>) {
        self.order(first);
        loop {
            self.carry_out();
            if self.is_over() {
                self.hand_over();
            }
            match events.recv_timeout(TICK) {
                Ok(TargetEvent::Order(word)) => self.order(*word),
                Ok(TargetEvent::Written(word)) => self.written(word),
                Ok(TargetEvent::Read(read)) => self.begin_read(read),
                Ok(TargetEvent::Ended(result)) => {
                    self.end(result);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = self.state.push.now();
            if self.machine.next_timeout().is_some_and(|at| at <= now) {
                self.machine.handle_timeout(now);
            }
        }
    }

    /// An order of another version waits for the next call.
    fn order(&mut self, word: OrderWord) {
        if word.order.version != self.version || word.parcels != self.plan.fingerprint {
            return;
        }
        self.drivers.insert(word.order.push.driver, word.driver);
        while self.drivers.len() > DRIVERS {
            self.drivers.pop_first();
        }
        if self.failed.is_none() {
            self.machine.handle_order(self.state.push.now(), word.order);
        }
    }

    /// What a sender says counts while its grant is open.
    fn written(&mut self, word: WrittenWord) {
        let ParcelsWritten { grant, sender, .. } = word.written;
        if !self.state.push.target.opened.has(grant, sender) {
            return;
        }
        self.sums.extend(word.sums);
        self.senders.insert(sender);
        self.machine.handle_written(&word.written);
    }

    /// The session has begun a read: the memory is fenced, and nobody was told what it will hold.
    fn begin_read(&mut self, read: Box<PushedRead>) {
        let keep = read.keep;
        if read.assignment.version != self.version {
            self.failed = Some(format!("the group reads {}", read.assignment.version));
        }
        self.read = Some(read);
        self.fenced = true;
        match self.compared.take() {
            Some(compared) if keep => {
                self.compared = Some(compared);
                self.tell_filled();
            }
            // The group's content is not the version's, though each parcel is as it was sent: so what was sent is wrong.
            Some((_, generation)) => {
                let all = (0..self.plan.parcels.len() as u32).collect();
                self.machine.handle_verified(generation, &all);
            }
            None => self.machine.handle_paused(),
        }
    }

    /// Does what the machine says.
    fn carry_out(&mut self) {
        while let Some(output) = self.machine.poll_output() {
            match output {
                TargetOutput::Pause if self.fenced => self.machine.handle_paused(),
                TargetOutput::Pause | TargetOutput::Resume { .. } => {}
                TargetOutput::Open(grant) => {
                    let left = self.until.saturating_duration_since(Instant::now());
                    let exports = self.state.exports.exports();
                    let (auth, regions) = (&self.state.routes.auth, &self.registration.regions);
                    let room = &self.state.push.target;
                    match room.opened.open(exports, auth, &grant, regions, left) {
                        Ok(_) => {}
                        Err(error) => self.failed = Some(error.to_string()),
                    }
                }
                TargetOutput::Close { grant } => {
                    let room = &self.state.push.target;
                    room.opened.close(self.state.exports.exports(), grant);
                }
                TargetOutput::Verify { generation, .. } => self.compare(generation),
                TargetOutput::Tell { driver, report } => {
                    let opened = self.state.push.target.opened.all();
                    let word = PushWord::Report(ReportWord { report, opened });
                    if let Some(at) = self.drivers.get(&driver) {
                        post(&self.state, at, word);
                    }
                }
            }
        }
    }

    /// Compares each parcel with what its sender sent. What all parcels come to, the server compares with the version.
    fn compare(&mut self, generation: Generation) {
        let wanted = || self.state.push.target.fills();
        let mut digests = vec![Digest::default(); self.plan.target.cells.len()];
        let mut differing = BTreeSet::new();
        for (number, parcel) in (0..).zip(&self.plan.parcels) {
            let found = self.plan.digests(parcel, threads::copying(), wanted);
            if self.sums.get(&number) != Some(&self.plan.sum(&found)) {
                differing.insert(number);
            }
            digests.iter_mut().zip(found).for_each(|(all, part)| *all += part);
        }
        if !wanted() {
            return; // the call has ended
        }
        if !differing.is_empty() {
            tracing::warn!(parcels = differing.len(), "parcels of a push are not what was sent");
            return self.machine.handle_verified(generation, &differing);
        }
        self.registration.digest(&self.plan.echoes, &mut digests);
        self.compared = Some((digests, generation));
        self.tell_filled();
    }

    /// Tells the session that its read has ended well.
    fn tell_filled(&mut self) {
        let Some((digests, _)) = &self.compared else { return };
        let digests = digests.clone();
        let Some(read) = self.read.take() else { return };
        let result = self.arrived(&read, digests);
        (read.report)(result);
    }

    fn arrived(&self, read: &PushedRead, digests: Vec<Digest>) -> Result<ArrivedRead, ReadFailure> {
        let failed = |error: Error| ReadFailure::Source { shard: 0, reason: error.to_string() };
        let names: Vec<_> = read.assignment.shards.iter().map(|shard| shard.layout).collect();
        let sources = layouts(&self.state, &names, LAYOUTS).map_err(failed)?;
        let plans = &self.state.routes.plans;
        let (plan, _) = plans.get(&self.registration, &names, &sources, None)?;
        let (bytes, senders) = (self.registration.bytes(), self.senders.len());
        let transfer = Transfer {
            bytes,
            verified: bytes,
            seconds: self.started.elapsed().as_secs_f64(),
            plan_from: self.plan_from,
            way: "push".to_owned(),
            way_reason: format!("{senders} senders wrote it, by leave of grants"),
            tcp: self.whole.bytes(),
            ..Transfer::default()
        };
        Ok(ArrivedRead {
            sums: self.registration.fold(&digests),
            transfer,
            note: self.registration.note(&digests),
            in_place: true,
            content: KnownContent::of_cells(digests.clone()),
            evidence: Evidence {
                registration: Arc::clone(&self.registration),
                assignment: read.assignment.clone(),
                sources,
                plan,
                digests,
                overwritten: Arc::clone(&read.cancelled),
            },
        })
    }

    /// Whether nobody fills the memory any more: the driver has dismissed it, or is gone.
    fn is_over(&self) -> bool {
        self.failed.is_some() || !(self.is_filled() || self.compared.is_some())
    }

    fn is_filled(&self) -> bool {
        use TargetState::{Filling, Pausing, Verifying};
        matches!(self.machine.state(), Pausing | Filling | Verifying)
    }

    /// What the push leaves undone the session does itself: it reads.
    fn hand_over(&mut self) {
        self.state.push.target.end_fill(self.state.exports.exports());
        if let Some(detail) = self.failed.take() {
            self.leave(TargetOver::Left, &detail);
            self.ended_as = Some(detail);
        }
        let Some(read) = self.read.take() else { return };
        let early = || "the push ended before it was whole".to_owned();
        let reason = self.ended_as.clone().unwrap_or_else(early);
        tracing::info!(reason, "a push ended early, and the version is read instead");
        (read.report)(Err(ReadFailure::Source { shard: 0, reason }));
    }

    /// The push is over here for a reason of this end: the driver is told, and the memory is no version.
    fn leave(&mut self, why: TargetOver, detail: &str) {
        let push = self.machine.report().push;
        if let Some(at) = self.drivers.get(&push.driver) {
            let word = PushWord::Over(OverWord::new(self.id, push, why, detail));
            post(&self.state, at, word);
        }
        self.compared = None;
        self.machine.handle_slept();
        self.machine.handle_woken();
        // What the machine says of that is said.
        while self.machine.poll_output().is_some() {}
    }

    /// The session's call has ended.
    fn end(mut self, result: Result<(), (TargetOver, String)>) {
        match (result, self.compared.take()) {
            (Ok(()), Some((_, generation))) => {
                self.machine.handle_verified(generation, &BTreeSet::new());
            }
            // Nothing was written: the memory held the version.
            (Ok(()), None) if self.is_filled() => {
                self.leave(TargetOver::Left, "the memory holds the version already");
            }
            (Ok(()), None) => {}
            (Err((why, detail)), _) => self.leave(why, &detail),
        }
        self.carry_out();
        self.state.push.target.rest(self.id, self.machine);
    }
}

fn said(failure: &ReadFailure) -> String {
    match failure {
        ReadFailure::Source { reason, .. } => reason.clone(),
        ReadFailure::Layout { detail } => detail.clone(),
    }
}

#[cfg(test)]
mod tests;
