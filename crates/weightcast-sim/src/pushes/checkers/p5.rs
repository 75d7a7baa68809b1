//! P5: a push ends at each target within its bound, and what it says of the target is true; grants end within a lease of the
//! driver's last word.

use weightcast_protocol::push::TargetEnd;

use crate::pushes::checkers::{PushChecker, PushFact};

pub(super) struct Bounded;

impl PushChecker for Bounded {
    fn name(&self) -> &'static str {
        "P5"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        match fact {
            PushFact::Overdue { push, target, due } => {
                let due = due.0 as f64 / 1e9;
                Some(format!("push {push} had to end at {target} by {due:.3} s"))
            }
            PushFact::LeftOpen { target, grants, since } => {
                let since = since.0 as f64 / 1e9;
                Some(format!(
                    "{target} has {grants} grants open; its driver was heard {since:.3} s"
                ))
            }
            PushFact::Ended { push, target, end: TargetEnd::Ready, ready: false } => {
                Some(format!("push {push} says that {target} is ready, and it never was"))
            }
            _ => None,
        }
    }
}
