//! Sums of models that are made up.

use std::collections::BTreeSet;

use weightcast_protocol::server::{Counters, PendingCall, ReadEdge};
use weightcast_protocol::{CallDurations, Epoch, Incarnation, OpSeq, Revision, Term};

use super::*;
use crate::metrics::model_label::{MODEL_LABELS, OTHER};

pub(in crate::serve::metrics) fn version(epoch: u64, number: u64) -> Version {
    Version { epoch: Epoch(epoch), number }
}

pub(in crate::serve::metrics) fn replica(
    role: Role,
    state: ReplicaState,
    version: Option<Version>,
) -> ReplicaSnapshot {
    ReplicaSnapshot {
        name: "secret name".to_owned(),
        incarnation: Incarnation { term: Term(1), number: 1 },
        num_shards: 1,
        role,
        offload_seeding: false,
        state,
        version,
        retains: BTreeSet::new(),
        staleness: None,
        proved: true,
        shards: Vec::new(),
        pending: None,
        reading: None,
    }
}

fn waiting(kind: &'static str, seconds: u64) -> ReplicaSnapshot {
    let pending = PendingCall {
        seq: OpSeq(1),
        kind,
        call: format!("{kind}(latest)"),
        arrived: 1,
        age: Span::from_secs(seconds),
        left: Span(0),
        wants: None,
        failed: BTreeMap::new(),
    };
    let replica = replica(Role::Rollout, ReplicaState::Empty, None);
    ReplicaSnapshot { pending: Some(pending), ..replica }
}

/// Versions 5 to 9 of run 1, the newest for 30 seconds.
pub(in crate::serve::metrics) fn model(replicas: Vec<ReplicaSnapshot>) -> ModelSnapshot {
    let life = Incarnation { term: Term(1), number: 1 };
    let edge = ReadEdge {
        reader: "secret name".to_owned(),
        reader_life: life,
        source: "secret name".to_owned(),
        source_life: life,
        version: version(1, 9),
    };
    ModelSnapshot {
        revision: Revision { term: Term(1), number: 1 },
        epoch: Epoch(1),
        retain: 0,
        exact: BTreeSet::new(),
        versions: (5..=9).map(|number| (version(1, number), Vec::new())).collect(),
        latest_for: Some(Span::from_secs(30)),
        replicas,
        edges: vec![edge; 3],
        out_of_sight: Default::default(),
    }
}

/// A busy one.
pub(in crate::serve::metrics) fn busy() -> ModelSnapshot {
    use ReplicaState::{Broken, Closing, Empty, Published, Reading, Sealed};
    let rollout = |state, held| replica(Role::Rollout, state, held);
    model(vec![
        replica(Role::Trainer, Published, Some(version(1, 9))),
        // None but rollouts that work are behind.
        replica(Role::Trainer, Sealed, Some(version(1, 5))),
        replica(Role::Offload(version(1, 5)), Sealed, Some(version(1, 5))),
        rollout(Sealed, Some(version(1, 9))),
        rollout(Sealed, Some(version(1, 8))),
        rollout(Sealed, Some(version(1, 5))),
        rollout(Sealed, Some(version(0, 3))),
        rollout(Closing, Some(version(1, 5))),
        rollout(Broken, Some(version(1, 5))),
        rollout(Reading, None),
        rollout(Empty, None),
        waiting("update", 4),
        waiting("update", 7),
        waiting("wait", 90),
    ])
}

pub(in crate::serve::metrics) fn snapshot(
    models: impl IntoIterator<Item = (String, ModelSnapshot)>,
) -> Snapshot {
    Snapshot {
        term: Term(3),
        recovers: true,
        sessions: 4,
        manifests: 5,
        manifests_bytes: 6,
        models: models.into_iter().collect(),
        losses: Vec::new(),
        counters: Counters::default(),
        durations: CallDurations::default(),
    }
}

#[test]
fn rollouts_are_behind_the_newest_version() {
    let snapshot = snapshot([("m".to_owned(), busy())]);
    let models = by_model(&snapshot);
    let sums = &models["m"];
    assert_eq!(sums.newest, Some((version(1, 9), Span::from_secs(30))));
    assert_eq!((sums.rollouts_behind, sums.versions_behind, sums.lag_max), (3, 1 + 4, 4));
    assert_eq!((sums.stale_for, sums.versions, sums.readers), (Span::from_secs(30), 5, 3));
    let pending = [("update", (2, Span::from_secs(7))), ("wait", (1, Span::from_secs(90)))];
    assert_eq!(sums.pending, BTreeMap::from(pending));
    let kinds = [
        (("offload", "sealed"), 1),
        (("rollout", "broken"), 1),
        (("rollout", "closing"), 1),
        (("rollout", "empty"), 4),
        (("rollout", "reading"), 1),
        (("rollout", "sealed"), 4),
        (("trainer", "published"), 1),
        (("trainer", "sealed"), 1),
    ];
    assert_eq!(sums.replicas, BTreeMap::from(kinds));
}

#[test]
fn nobody_is_behind_the_newest_version_or_where_there_is_none() {
    let rollout = |held| replica(Role::Rollout, ReplicaState::Sealed, held);
    let ahead = model(vec![rollout(Some(version(1, 9))), rollout(Some(version(2, 1)))]);
    let mut nothing = model(vec![rollout(Some(version(1, 5)))]);
    (nothing.versions, nothing.latest_for) = (BTreeMap::new(), None);
    for model in [ahead, nothing] {
        let snapshot = snapshot([("m".to_owned(), model)]);
        let models = by_model(&snapshot);
        let sums = &models["m"];
        assert_eq!((sums.rollouts_behind, sums.versions_behind, sums.lag_max), (0, 0, 0));
        assert_eq!(sums.stale_for, Span(0));
    }
}

#[test]
fn so_many_models_have_a_label_and_the_others_are_summed_up() {
    for (models, alone, together) in [
        (MODEL_LABELS - 1, MODEL_LABELS - 1, 0),
        (MODEL_LABELS, MODEL_LABELS, 0),
        (MODEL_LABELS + 1, MODEL_LABELS, 1),
        (3 * MODEL_LABELS, MODEL_LABELS, 2 * MODEL_LABELS as u64),
    ] {
        let named = (0..models).map(|at| (format!("model-{at:03}"), busy()));
        let snapshot = snapshot(named);
        let sums = by_model(&snapshot);
        let other = sums.get(OTHER).map_or(0, |other| other.rollouts_behind / 3);
        assert_eq!((sums.len() - usize::from(together > 0), other), (alone, together), "{models}");
        let of_all: u64 = sums.values().map(|of| of.replicas.values().sum::<u64>()).sum();
        assert_eq!(of_all, 14 * models as u64);
    }
}

#[test]
fn a_model_of_that_name_is_counted_with_the_others() {
    let named = (0..MODEL_LABELS).map(|at| (format!("zzz-{at:03}"), busy()));
    let snapshot = snapshot(named.chain([(OTHER.to_owned(), busy())]));
    let sums = by_model(&snapshot);
    assert_eq!((sums.len(), sums[OTHER].rollouts_behind), (MODEL_LABELS, 6));
}
