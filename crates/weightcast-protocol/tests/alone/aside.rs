//! Copies that a server asks to have made aside: every course of asking, failing and ending, against the rule
//! written a second time.

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The server asks for a copy of this version.
    Asks(u64),
    /// The runtime could not make the copy of this version.
    Fails(u64),
    /// The copy of this version, made at so many generations after the memory's, was let go of.
    Over(u64, u64),
}

/// The memory holds version 1.
const HELD: u64 = 1;
const STEPS: [Step; 7] = [
    Step::Asks(HELD),
    Step::Asks(2),
    Step::Fails(HELD),
    Step::Fails(2),
    Step::Over(HELD, 0),
    Step::Over(HELD, 1),
    Step::Over(2, 0),
];
const LONGEST: u32 = 5;

/// The last copy that was asked for.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    None,
    /// Of the version held; whether the server has asked for another one meanwhile.
    Runs {
        again: bool,
    },
    Failed(u64),
}

#[derive(Debug, PartialEq)]
enum Said {
    Nothing,
    Copy,
    Failed(u64),
}

impl Last {
    fn after(self, step: Step) -> (Self, Said) {
        let runs = matches!(self, Self::Runs { .. });
        match (step, self) {
            (Step::Asks(HELD), Self::Runs { .. }) => (Self::Runs { again: true }, Said::Nothing),
            (Step::Asks(HELD), _) => (Self::Runs { again: false }, Said::Copy),
            (Step::Asks(other), _) => (Self::Failed(other), Said::Failed(other)),
            (Step::Fails(HELD), _) if runs => (Self::Failed(HELD), Said::Failed(HELD)),
            (Step::Fails(number), Self::Failed(failed)) if number == failed => {
                (self, Said::Failed(number))
            }
            (Step::Over(HELD, 0), Self::Runs { again: true }) => {
                (Self::Runs { again: false }, Said::Copy)
            }
            (Step::Over(HELD, 0), Self::Runs { again: false }) => (Self::None, Said::Nothing),
            _ => (self, Said::Nothing),
        }
    }
}

fn take(alone: &mut Alone, step: Step, generation: Generation) -> Said {
    let mut outputs = match step {
        Step::Asks(number) => {
            alone.say(ServerMessage::Offload { version: version(1, number), generation })
        }
        Step::Fails(number) => {
            let (now, of) = (alone.now, version(1, number));
            alone.session.handle_offload_failed(now, of, generation, "full".into());
            alone.take()
        }
        Step::Over(number, later) => {
            let generation = Generation(generation.0 + later);
            alone.session.handle_offload_over(alone.now, version(1, number), generation);
            alone.take()
        }
    };
    if outputs == [Output::Offload { version: version(1, HELD), generation }] {
        return Said::Copy;
    }
    match sent(&outputs)[..] {
        [ClientMessage::OffloadFailed { version, generation: of, .. }] if *of == generation => {
            Said::Failed(version.number)
        }
        [] => outputs.pop().map_or(Said::Nothing, |more| panic!("{more:?}")),
        ref other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_is_made_once_until_it_fails_or_is_let_go_of() {
    for course in 0..STEPS.len().pow(LONGEST) {
        let mut alone = Alone::open(config("a:1"));
        alone.publishes(HELD);
        let generation = alone.session.generation();
        let (mut last, mut told) = (Last::None, Vec::new());
        for place in 0..LONGEST {
            let step = STEPS[course / STEPS.len().pow(place) % STEPS.len()];
            told.push(step);
            let (next, expected) = last.after(step);
            assert_eq!(take(&mut alone, step, generation), expected, "{told:?}");
            last = next;
        }
    }
}
