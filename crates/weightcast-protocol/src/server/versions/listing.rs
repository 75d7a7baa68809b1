//! `list` and `describe`: the available versions, the same for all shards (S10, G1).

use crate::message::Answer;
use crate::server::contexts::GroupCtx;
use crate::server::rooms::VersionHandler;
use crate::server::stores::model::Resolution;
use crate::{CallError, Incarnation, Selector};

impl VersionHandler<'_> {
    /// Answers with the current listing.
    pub(in crate::server) fn finish_listed(&mut self, incarnation: Incarnation) {
        let model = &self.groups.of(&incarnation).model;
        let listing = self.models.of_mut(model).listing();
        self.calls().finish(incarnation, Ok(Answer::Listed(listing)));
    }

    pub(in crate::server) fn advance_describe(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
    ) {
        let asker = self.books().group(incarnation);
        match asker.model.resolve(selector) {
            Resolution::NotYet => {}
            Resolution::Gone => {
                let error = asker.unavailable(selector);
                self.calls().finish(incarnation, Err(error));
            }
            Resolution::Available(version) => {
                let layouts = self.groups.of(&asker.model.first_holder(version)).layouts();
                self.calls().finish(incarnation, Ok(Answer::Described { version, layouts }));
            }
        }
    }
}

impl GroupCtx<'_> {
    /// The error for a version that is not available.
    pub(in crate::server) fn unavailable(&self, selector: Selector) -> CallError {
        let (model, latest) = (self.group.model.clone(), self.model.latest());
        CallError::VersionUnavailable { model, selector, latest }
    }

    /// The same error, if the group's call waits for a version that has not come.
    pub(in crate::server) fn version_missing(&self) -> Option<CallError> {
        let transaction = self.group.active_call()?;
        let resolved = transaction.transfer.as_ref().is_some_and(|t| t.version.is_some());
        let selector = transaction.selector().filter(|_| !resolved)?;
        Some(self.unavailable(selector))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Call;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};
    use crate::{Condition, Revision};

    #[test]
    fn a_call_lacks_its_version_until_that_is_known() {
        let mut server = server();
        let group = server.prop("g", 1);
        let selector = Selector::Exact(3);
        let missing = |server: &Server| server.books().group(group).version_missing().is_some();
        assert!(!missing(&server));
        for (call, lacks) in [
            (Call::List, false),
            (Call::Describe { selector }, true),
            (Call::Wait { until: Condition::Available(selector) }, true),
            (Call::Wait { until: Condition::Changed { after: Revision::default() } }, false),
            (Call::Replicate { selector }, true),
        ] {
            server.has_called(group, call.clone());
            assert_eq!(missing(&server), lacks, "{call:?}");
        }
        server.at(group).transactions.get_mut(&SEQ).unwrap().transfer = Some(Default::default());
        assert!(missing(&server));
        server.groups.transfer(group).unwrap().version = Some(version(3));
        assert!(!missing(&server));
        let latest = None;
        let expected = CallError::VersionUnavailable { model: "policy".into(), selector, latest };
        assert_eq!(server.books().group(group).unavailable(selector), expected);
    }
}
