//! S2, S3: memory is written only while none of it is served and the shard holds no version.

use weightcast_protocol::Time;

use super::{Checker, Fact};

pub(super) struct FenceBeforeMutate;

impl Checker for FenceBeforeMutate {
    fn name(&self) -> &'static str {
        "S3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Changes { replica, exposed, held } = fact else { return None };
        match (exposed, held) {
            (Some(generation), _) => {
                Some(format!("{replica} is written while generation {generation} is served"))
            }
            (None, Some(version)) => Some(format!("{replica} is written while it holds {version}")),
            (None, None) => None,
        }
    }
}
