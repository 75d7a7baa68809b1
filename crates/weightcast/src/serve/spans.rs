//! Spans of groups' calls, as the server sees them: a call's own, and below it one for each stage.

use std::collections::BTreeMap;

use tracing::field::{Empty, display};
use tracing::{Level, Span, info_span};
use weightcast_protocol::TraceId;
use weightcast_protocol::server::{CallStage, StageChange, StagedCall};

/// Whether somebody takes the spans.
pub(super) fn are_wanted() -> bool {
    tracing::span_enabled!(Level::INFO, "group call")
}

/// The spans of the calls that have no answer yet.
#[derive(Default)]
pub(super) struct CallSpans(BTreeMap<TraceId, CallSpan>);

struct CallSpan {
    call: Span,
    /// Ends when the next stage begins.
    _stage: Span,
}

impl CallSpans {
    /// A call has come to another stage.
    pub(super) fn follow(&mut self, StageChange { trace, stage, of }: StageChange) {
        match (stage, of) {
            (CallStage::Ended(outcome), _) => {
                if let Some(known) = self.0.remove(&trace) {
                    known.call.record("outcome", outcome);
                }
            }
            (_, None) => {}
            (stage, Some(of)) => {
                let call = match self.0.remove(&trace) {
                    Some(known) => known.call,
                    None => call_span(trace, &of),
                };
                if let Some(version) = of.version {
                    call.record("version", display(version));
                }
                let stage = stage_span(&call, stage, &of);
                self.0.insert(trace, CallSpan { call, _stage: stage });
            }
        }
    }
}

fn call_span(trace: TraceId, of: &StagedCall) -> Span {
    let StagedCall { model, replica, call, .. } = of;
    info_span!(
        parent: None,
        "group call",
        call,
        model,
        replica,
        %trace,
        version = Empty,
        outcome = Empty,
    )
}

fn stage_span(call: &Span, stage: CallStage, of: &StagedCall) -> Span {
    match stage {
        CallStage::Group => info_span!(parent: call, "group"),
        CallStage::Choose => info_span!(parent: call, "choose"),
        CallStage::Drain => info_span!(parent: call, "drain"),
        CallStage::Read => info_span!(parent: call, "shards read", source = of.sources.join(", ")),
        CallStage::Install => info_span!(parent: call, "shards install"),
        CallStage::Commit => info_span!(parent: call, "commit"),
        CallStage::Wait => info_span!(parent: call, "wait"),
        CallStage::Ended(_) => Span::none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_kept_until_its_answer() {
        let mut calls = CallSpans::default();
        let of = StagedCall {
            model: "m".into(),
            replica: "r".into(),
            call: "list".into(),
            version: None,
            sources: Vec::new(),
        };
        let change = |trace, stage, of| StageChange { trace: TraceId(trace), stage, of };
        calls.follow(change(1, CallStage::Group, Some(of.clone())));
        calls.follow(change(2, CallStage::Wait, Some(of.clone())));
        calls.follow(change(1, CallStage::Read, Some(of)));
        assert_eq!(calls.0.len(), 2);
        // The end of a call that was never told of is nothing.
        calls.follow(change(3, CallStage::Ended("ok"), None));
        calls.follow(change(1, CallStage::Ended("ok"), None));
        assert_eq!(calls.0.keys().collect::<Vec<_>>(), [&TraceId(2)]);
    }
}
