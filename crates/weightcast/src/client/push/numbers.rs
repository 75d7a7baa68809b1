//! The numbers of a handle's pushes.

use weightcast_protocol::engine_update::FleetQuestion;
use weightcast_protocol::push::PushNumber;

use crate::error::Error;

/// What the number of a handle's next push is made of: the register numbers drivers, and each driver its pushes.
#[derive(Default)]
pub(super) struct PushNumbers {
    /// By which the register knows this driver.
    key: Option<u64>,
    /// The largest number of a driver that a target has heard.
    heard: u64,
    /// Pushes of this handle so far.
    pushes: u64,
}

impl PushNumbers {
    /// A target has heard this driver.
    pub(super) fn hear(&mut self, driver: u64) {
        self.heard = self.heard.max(driver);
    }

    /// The number of the next push. `ask` asks the register, which answers with a driver's number. Where other drivers have
    /// pushed since, this one gets another number, later than theirs.
    pub(super) fn next(
        &mut self,
        mut ask: impl FnMut(FleetQuestion) -> Result<u64, Error>,
    ) -> Result<PushNumber, Error> {
        let key = match self.key {
            Some(key) => key,
            None => *self.key.insert(drawn_key()?),
        };
        let mut driver = ask(FleetQuestion::PushNumber { key, heard: None })?;
        if driver < self.heard {
            // Of an earlier register: this one begins after it.
            let (key, heard) = (*self.key.insert(drawn_key()?), Some(self.heard));
            driver = ask(FleetQuestion::PushNumber { key, heard })?;
        }
        Ok(PushNumber { driver, number: self.next_push() })
    }

    /// The number of this driver's next push.
    pub(super) fn next_push(&mut self) -> u64 {
        self.pushes += 1;
        self.pushes
    }
}

fn drawn_key() -> Result<u64, Error> {
    let mut key = [0; 8];
    getrandom::fill(&mut key)
        .map_err(|e| Error::io("draw a driver's key", std::io::Error::other(e.to_string())))?;
    Ok(u64::from_le_bytes(key))
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::Safeguards;
    use weightcast_protocol::engine_update::FleetRegister;

    use super::*;

    fn next(numbers: &mut PushNumbers, register: &mut FleetRegister) -> PushNumber {
        numbers.next(|question| Ok(register.answer(question).driver)).unwrap()
    }

    #[test]
    fn a_driver_keeps_its_number_until_another_has_pushed() {
        let mut register = FleetRegister::new(1, Safeguards::default());
        let (mut first, mut second) = (PushNumbers::default(), PushNumbers::default());
        let one = next(&mut first, &mut register);
        // Its own targets have heard it, which is nothing new.
        first.hear(one.driver);
        let mut asked = 0;
        let two = first.next(|question| {
            asked += 1;
            Ok(register.answer(question).driver)
        });
        let two = two.unwrap();
        assert_eq!(asked, 1);
        assert_eq!((two.driver, two.number), (one.driver, one.number + 1));
        let other = next(&mut second, &mut register);
        assert!(other.driver > one.driver);
        assert!(next(&mut first, &mut register).driver > other.driver);
    }

    #[test]
    fn a_driver_comes_after_what_targets_have_heard_of_another_register() {
        let mut lost = FleetRegister::new(7, Safeguards::default());
        let mut register = FleetRegister::new(1, Safeguards::default());
        let mut numbers = PushNumbers::default();
        let others = (0..3).map(|_| next(&mut PushNumbers::default(), &mut lost).driver);
        let heard = others.last().unwrap();
        next(&mut numbers, &mut register);
        numbers.hear(heard);
        assert!(next(&mut numbers, &mut register).driver > heard);
        numbers.hear(heard - 1);
        assert!(next(&mut numbers, &mut register).driver > heard, "the largest counts");
    }
}
