//! P1: a target that serves a version has the bytes of that version alone.

use crate::pushes::checkers::{PushChecker, PushFact};

pub(super) struct WholeVersion;

impl PushChecker for WholeVersion {
    fn name(&self) -> &'static str {
        "P1"
    }

    fn observe(&mut self, fact: &PushFact<'_>) -> Option<String> {
        let PushFact::Served { target, version, memory } = fact else { return None };
        let whole = memory.iter().flatten().all(|chunk| chunk == version);
        (!whole).then(|| format!("{target} serves {version}, and has {memory:?}"))
    }
}
