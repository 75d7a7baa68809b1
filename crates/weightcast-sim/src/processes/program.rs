//! What processes do. All shards of a group do the same, as in SPMD code: the first shard at a place of the program
//! decides, and the others find its decision.

use weightcast_protocol::message::{Call, EpochPolicy, Role};
use weightcast_protocol::{
    Condition, ContentDigest, Freshness, Generation, Incarnation, Oldest, Quorum, Selector, Span,
};
use weightcast_testkit::mix;

use crate::parts::action::Action;
use crate::parts::process::Process;
use crate::world::World;

/// Name of the logical tensors of the only model.
pub(crate) const CATALOG: ContentDigest = ContentDigest([1; 16]);

/// Sets apart the dice that decide whether a group stages its updates.
const STAGED: u64 = 0x0073_7461_6765;

impl World {
    /// What the process's group does at the process's place in the program.
    pub(crate) fn action(&mut self, index: usize) -> Action {
        let process = &self.processes[index];
        if !process.program.registered {
            return Action::Call(register(process), Span::from_secs(6));
        }
        let Some(incarnation) = process.incarnation() else { return Action::Idle };
        let place = (incarnation, process.program.position);
        if let Some(action) = self.decisions.get(&place) {
            return action.clone();
        }
        let action = match process.role {
            Role::Trainer => self.trainer_action(process, incarnation),
            Role::Rollout => self.rollout_action(process, incarnation),
            Role::Offload(version) => call(publish(version.number), 0),
            Role::Seed(version) => {
                let selector = Selector::Exact(version.number);
                Action::Call(Call::Replicate { selector }, self.options.seed_deadline)
            }
        };
        if !matches!(action, Action::Idle) {
            self.decisions.insert(place, action.clone());
        }
        action
    }

    fn dice(&self, process: &Process, incarnation: Incarnation, sides: u64) -> u64 {
        mix(&[self.seed, number(incarnation), process.program.position.into()]) % sides
    }

    fn trainer_action(&self, process: &Process, incarnation: Incarnation) -> Action {
        let dice = self.dice(process, incarnation, 100);
        let kept = process.program.kept;
        if process.program.must_unpublish {
            return call(Call::Unpublish, dice);
        }
        match process.version() {
            // A call tells the shard that another shard of its group has closed.
            Some(_) if self.quiet => call(Call::List, 0),
            Some(_) if dice < 30 => call(Call::List, dice),
            Some(_) if dice < 33 => Action::Close,
            Some(_) if dice < 45 => call(Call::Wait { until: self.condition(process, dice) }, dice),
            Some(_) => call(Call::Unpublish, dice),
            None if !self.quiet && dice < 5 => call(Call::Unregister, dice),
            None if !self.quiet && dice < 25 && kept.is_some() => {
                call(publish(kept.map(|version| version.number).unwrap_or_default()), dice)
            }
            None if process.epoch == EpochPolicy::New => {
                Action::Write(process.program.position.into())
            }
            None => self.mirror(process),
        }
    }

    /// A condition to wait for, about a version near the one that the group holds.
    fn condition(&self, process: &Process, dice: u64) -> Condition {
        let near = process.version().map_or(1, |version| version.number) + dice / 4 % 2;
        let by = if dice.is_multiple_of(3) { Quorum::AtLeast(1) } else { Quorum::All };
        match dice % 4 {
            0 => Condition::Available(Selector::AtLeast(near)),
            1 => Condition::Held(Freshness { oldest: Oldest::Behind(dice / 4 % 3), by }),
            _ => Condition::Held(Freshness { oldest: Oldest::Number(near), by }),
        }
    }

    /// A second trainer replica publishes the newest version of the first one.
    fn mirror(&self, process: &Process) -> Action {
        let epoch = process.session.as_ref().and_then(|s| s.lease()).map(|lease| lease.epoch);
        let books = self.books();
        let models = books.iter().flat_map(|books| books.models.values());
        let versions = models.flat_map(|model| model.versions.keys());
        match versions.filter(|version| Some(version.epoch) == epoch).max() {
            Some(version) => Action::Write(version.number),
            None if self.quiet => Action::Idle,
            None => call(Call::List, 0),
        }
    }

    fn rollout_action(&self, process: &Process, incarnation: Incarnation) -> Action {
        let dice = self.dice(process, incarnation, 100);
        let latest = Selector::Latest;
        let selector = match self.dice(process, incarnation, 1000) / 100 {
            0 => Selector::NthLatest(1),
            1 => Selector::LatestMinus(1),
            2 => Selector::AtLeast(dice),
            _ => latest,
        };
        let staged = mix(&[self.seed, number(incarnation), STAGED]) % 1_000 < self.options.staged;
        let update = Call::Update { selector, allow_rollback: dice.is_multiple_of(7), staged };
        if process.program.must_unpublish {
            return call(Call::Unpublish, dice);
        }
        if self.quiet && process.program.stray {
            return Action::Close;
        }
        if self.quiet {
            return call(Call::Update { selector: latest, allow_rollback: false, staged }, 50);
        }
        let after = process.program.revision;
        let kept = process.program.kept;
        match (process.version(), dice) {
            (None, 60..) if kept.is_some() => {
                call(publish(kept.map(|version| version.number).unwrap_or_default()), dice)
            }
            (None, 27) => call(Call::Unregister, dice),
            (None, 30..) => call(Call::Replicate { selector }, dice),
            (_, 0..8) => call(Call::List, dice),
            (_, 8..12) => call(Call::Wait { until: Condition::Changed { after } }, dice),
            // One of the two has a short deadline.
            (_, 13 | 21) if process.kept_first().is_some() => {
                let version = process.kept_first().unwrap_or_default();
                call(Call::LetGo { version }, dice)
            }
            (_, 12..16) => call(Call::Wait { until: self.condition(process, dice) }, dice),
            (_, 16..19) => call(Call::Describe { selector }, dice),
            (_, 19..22) => call(Call::Retain { selector }, dice),
            (Some(_), 22..28) => call(Call::Unpublish, dice),
            (_, 28) => Action::Close,
            _ => call(update, dice),
        }
    }
}

/// A call with a deadline: a short one for some dice, else a long one.
fn call(call: Call, dice: u64) -> Action {
    let millis = if dice % 10 == 3 { 200 } else { 2_500 };
    Action::Call(call, Span::from_millis(millis))
}

/// Groups of the same size have the same layouts, unless one of them is replicated.
fn register(process: &Process) -> Call {
    let mut layout = [2; 16];
    let replicated = process.memory.is_replicated();
    layout[..2].copy_from_slice(&[process.num_shards as u8, process.shard as u8]);
    layout[2] += u8::from(replicated);
    let bytes = 1 + u64::from(replicated);
    Call::Register { layout: ContentDigest(layout), export: process.export, bytes }
}

pub(crate) fn publish(version: u64) -> Call {
    Call::Publish { version, catalog: CATALOG, generation: Generation(0) }
}

/// A group's life as one number.
fn number(incarnation: Incarnation) -> u64 {
    mix(&[incarnation.term.0, incarnation.number])
}
