//! Conditions of `wait`.

use weightcast_protocol::{Condition, Freshness, Oldest, Quorum};

use super::values::{revision, revision_frame, selector, selector_frame};
use super::{MalformedMessage, need};
use crate::wire;
use crate::wire::wait::Until;

pub(super) fn condition(until: Until) -> Result<Condition, MalformedMessage> {
    Ok(match until {
        Until::After(after) => Condition::Changed { after: revision(Some(after))? },
        Until::Available(which) => Condition::Available(selector(Some(which))?),
        Until::Held(held) => Condition::Held(Freshness {
            oldest: match need(held.oldest, "oldest version")? {
                wire::held::Oldest::Number(number) => Oldest::Number(number),
                wire::held::Oldest::Behind(behind) => Oldest::Behind(behind),
            },
            by: held.rollouts.map_or(Quorum::All, Quorum::AtLeast),
        }),
    })
}

pub(super) fn condition_frame(condition: Condition) -> Until {
    match condition {
        Condition::Changed { after } => Until::After(revision_frame(after)),
        Condition::Available(which) => {
            Until::Available(selector_frame(which).expect("every selector has a frame"))
        }
        Condition::Held(Freshness { oldest, by }) => Until::Held(wire::Held {
            oldest: Some(match oldest {
                Oldest::Number(number) => wire::held::Oldest::Number(number),
                Oldest::Behind(behind) => wire::held::Oldest::Behind(behind),
            }),
            rollouts: match by {
                Quorum::All => None,
                Quorum::AtLeast(count) => Some(count),
            },
        }),
    }
}
