//! What a driver asks the register.

use crate::Time;
use crate::engine_update::fleet::driver::{DriverEnd, DriverStage, FleetDriver};
use crate::engine_update::fleet::register::{FleetAnswer, FleetQuestion};
use crate::engine_update::fleet::update::FleetInput;
use crate::engine_update::fleet::verdict::FleetVerdict;

use super::DriverOutput;

impl FleetDriver {
    /// Asks what the driver wants to know now.
    pub(super) fn ask(&mut self) {
        self.outputs.extend(self.question().map(DriverOutput::Ask));
    }

    fn question(&self) -> Option<FleetQuestion> {
        match self.stage {
            DriverStage::Register { .. } => Some(match self.number {
                Some(_) => FleetQuestion::State,
                None => {
                    let key = self.config.key.wrapping_add(self.numbers);
                    FleetQuestion::Number { key, heard: self.heard }
                }
            }),
            DriverStage::Settles { transaction, offered: version, .. } => {
                Some(FleetQuestion::Verdict { transaction, wanted: FleetVerdict::Abort, version })
            }
            _ => None,
        }
    }

    /// Forgets its number: it is not that driver any more, or may have a successor.
    pub(super) fn renounce(&mut self, heard: Option<u64>) {
        self.heard = heard;
        (self.number, self.doubted) = (None, false);
        self.numbers += 1;
    }

    /// The register has answered.
    pub(super) fn register_says(&mut self, now: Time, asked: FleetQuestion, answer: FleetAnswer) {
        if let DriverStage::Fleet { update, .. } = &mut self.stage
            && let FleetQuestion::Verdict { transaction, .. } = asked
        {
            let unknown = FleetInput::Unknown { transaction };
            let told = |verdict| FleetInput::Decided { transaction, verdict };
            return update.handle(now, answer.verdict.map_or(unknown, told));
        }
        if self.question() != Some(asked) {
            return;
        }
        match asked {
            FleetQuestion::State => self.learn_state(now, answer),
            FleetQuestion::PushNumber { .. } => {} // never asked
            FleetQuestion::Number { .. } if answer.superseded => self.end(DriverEnd::Superseded),
            FleetQuestion::Number { .. } => {
                (self.number, self.heard) = (Some(answer.driver), None);
                self.fleet = answer.version;
                self.begin_roll_call(now);
            }
            FleetQuestion::Verdict { transaction, version, .. } => {
                // No register remembers: the engines, all of which have answered, do.
                let told = || FleetVerdict::of_reports(self.reports.values(), transaction, version);
                let verdict = answer.verdict.unwrap_or_else(told);
                self.recover(now, transaction, version, verdict);
            }
        }
    }

    /// Where the register has numbered another driver, or is another one, engines say whether that driver has come: its
    /// question may have been late, and itself dead.
    fn learn_state(&mut self, now: Time, answer: FleetAnswer) {
        (self.fleet, self.doubted) = (answer.version, Some(answer.driver) != self.number);
        self.begin_roll_call(now);
    }
}
