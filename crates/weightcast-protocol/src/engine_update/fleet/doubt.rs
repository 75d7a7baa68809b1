//! The engine's own machine: what to do when it stands still and its driver is silent.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::engine_update::attempt::FleetTransaction;
use crate::engine_update::fleet::config::DoubtConfig;
use crate::engine_update::fleet::verdict::FleetVerdict;
use crate::{Safeguard, Span, Time};

/// Something that happens to an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtInput {
    /// A worker obeys a driver's order, or has taken its step: the engine may stand still since then.
    Heard {
        /// The fleet's update for which the engine stands still, if it does.
        paused_in: Option<FleetTransaction>,
        /// How long the driver may wait for steps that workers still take ([`EngineGate::busy`], of the busiest worker): it
        /// says nothing meanwhile.
        ///
        /// [`EngineGate::busy`]: crate::engine_update::EngineGate::busy
        busy: Span,
    },
    /// The register says which verdict counts.
    Decided {
        /// The update.
        transaction: FleetTransaction,
        /// The verdict.
        verdict: FleetVerdict,
    },
    /// What the engine did by itself is over.
    Went {
        /// Whether it serves.
        serving: bool,
    },
    /// The engine sleeps: it has forgotten the update.
    Slept,
}

/// What the engine has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoubtOutput {
    /// Write `Abort` into the register, unless there is a verdict already, and hand in what counts.
    Ask {
        /// The update.
        transaction: FleetTransaction,
    },
    /// Do what the verdict says, and tell the end with [`DoubtInput::Went`]: by an [`EngineUpdate`](crate::engine_update::EngineUpdate) of the engine's own: `back`, or
    /// `forward`, whose attempt is the newest that was heard, `by_itself`.
    Go {
        /// The update.
        transaction: FleetTransaction,
        /// The verdict.
        verdict: FleetVerdict,
    },
    /// The register can't be had, or the engine can't do what it says: say that this engine has left the fleet. It stays
    /// paused until a driver comes.
    Leave {
        /// The update.
        transaction: FleetTransaction,
    },
}

/// What an engine does about its silent driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum DoubtStage {
    /// It owes nobody anything, or has done what it could.
    Rest,
    /// It stands still for this update. The driver has until then.
    Waits { transaction: FleetTransaction, until: Time },
    /// It asks the register.
    Asks { transaction: FleetTransaction, again: Time, until: Time },
    /// It does what the register says.
    Goes { transaction: FleetTransaction },
}

/// The engine's side of a fleet's update: bounded, whatever becomes of the driver.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EngineDoubt {
    config: DoubtConfig,
    stage: DoubtStage,
    retries: u32,
    left: bool,
    #[serde(skip)]
    outputs: VecDeque<DoubtOutput>,
}

impl EngineDoubt {
    /// An engine that owes nobody anything.
    pub fn new(config: DoubtConfig) -> Self {
        let (stage, retries) = (DoubtStage::Rest, config.retries);
        Self { config, stage, retries, left: false, outputs: VecDeque::new() }
    }

    /// Something happens.
    pub fn handle(&mut self, now: Time, input: DoubtInput) {
        match (input, self.stage) {
            (DoubtInput::Heard { paused_in: None, .. } | DoubtInput::Slept, _) => self.rest(),
            (DoubtInput::Heard { paused_in: Some(transaction), busy }, _) => {
                self.rest();
                let waits = self.config.safeguards.on(Safeguard::BusyTrusts);
                self.wait(if waits { now + busy } else { now }, transaction);
            }
            (DoubtInput::Went { serving: true }, DoubtStage::Goes { .. }) => self.rest(),
            (DoubtInput::Went { serving: false }, DoubtStage::Goes { transaction }) => {
                self.try_again(now, transaction);
            }
            (DoubtInput::Went { .. }, _) => {}
            (
                DoubtInput::Decided { transaction, verdict },
                DoubtStage::Asks { transaction: asked, .. },
            ) if asked == transaction => {
                self.go(transaction, verdict);
            }
            (DoubtInput::Decided { .. }, _) => {}
        }
        self.handle_timeout(now);
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<DoubtOutput> {
        self.outputs.pop_front()
    }

    /// When to call [`EngineDoubt::handle_timeout`].
    pub fn next_timeout(&self) -> Option<Time> {
        match self.stage {
            DoubtStage::Rest | DoubtStage::Goes { .. } => None,
            DoubtStage::Waits { until, .. } => Some(until),
            DoubtStage::Asks { again, until, .. } => Some(again.min(until)),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Time) {
        match self.stage {
            DoubtStage::Waits { transaction, until } if until <= now => {
                self.doubt(now, transaction)
            }
            DoubtStage::Asks { transaction, until, .. } if until <= now => {
                self.give_up(transaction)
            }
            DoubtStage::Asks { transaction, again, until } if again <= now => {
                self.ask(now, transaction, until);
            }
            _ => {}
        }
    }

    /// Whether the engine has left its fleet, since it could not learn the verdict, or not do it.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// The update that the engine is in doubt about.
    pub fn in_doubt(&self) -> Option<FleetTransaction> {
        match self.stage {
            DoubtStage::Asks { transaction, .. } => Some(transaction),
            _ => None,
        }
    }

    fn rest(&mut self) {
        (self.stage, self.left) = (DoubtStage::Rest, false);
        self.retries = self.config.retries;
    }

    fn wait(&mut self, from: Time, transaction: FleetTransaction) {
        self.stage = DoubtStage::Waits { transaction, until: from + self.config.lease };
    }

    /// The engine could not do what the register says: a driver may come, or it goes better next time.
    fn try_again(&mut self, now: Time, transaction: FleetTransaction) {
        if !self.config.safeguards.on(Safeguard::DoubtRepeats) {
            self.stage = DoubtStage::Rest;
        } else if self.retries == 0 {
            self.leave(transaction);
        } else {
            self.retries -= 1;
            self.wait(now, transaction);
        }
    }

    /// The driver has been silent for a lease.
    fn doubt(&mut self, now: Time, transaction: FleetTransaction) {
        if self.config.safeguards.on(Safeguard::DoubtAsks) {
            self.ask(now, transaction, now + self.config.deadline);
        } else {
            self.go(transaction, FleetVerdict::Abort);
        }
    }

    fn ask(&mut self, now: Time, transaction: FleetTransaction, until: Time) {
        self.stage = DoubtStage::Asks { transaction, again: now + self.config.ask_every, until };
        self.outputs.push_back(DoubtOutput::Ask { transaction });
    }

    fn go(&mut self, transaction: FleetTransaction, verdict: FleetVerdict) {
        self.stage = DoubtStage::Goes { transaction };
        self.outputs.push_back(DoubtOutput::Go { transaction, verdict });
    }

    /// The verdict is not to be had: whatever it is, an engine that stands still does no harm.
    fn give_up(&mut self, transaction: FleetTransaction) {
        if self.config.safeguards.on(Safeguard::DoubtLeaves) {
            self.leave(transaction);
        } else {
            self.go(transaction, FleetVerdict::Abort);
        }
    }

    fn leave(&mut self, transaction: FleetTransaction) {
        (self.stage, self.left) = (DoubtStage::Rest, true);
        self.outputs.push_back(DoubtOutput::Leave { transaction });
    }
}
