//! Who holds the version that is pushed, and in which layouts.

use std::collections::BTreeMap;
use std::sync::Arc;

use weightcast_plan::Layout;
use weightcast_protocol::message::SourceShard;
use weightcast_protocol::push::SenderId;
use weightcast_protocol::{CallError, ContentDigest, Version};

use super::server::{ANSWER, ask, layouts};
use crate::client::handle::ShardHandle;
use crate::client::handle_state::HandleState;
use crate::error::Error;
use crate::limits::PUSH_SHARDS;

/// Replicas of the version that may write, at most.
const HOLDERS: usize = 64;

/// The layouts whose plan is executed, and who holds the version in them.
pub(super) struct Base {
    pub(super) names: Vec<ContentDigest>,
    pub(super) layouts: Vec<Arc<Layout>>,
    /// For each shard, those that can write what comes from it.
    pub(super) senders: Vec<Vec<SenderId>>,
    pub(super) addresses: BTreeMap<SenderId, String>,
}

impl Base {
    pub(super) fn find(
        state: &Arc<HandleState>,
        handle: &ShardHandle,
        version: Version,
    ) -> Result<Self, Error> {
        let (model, own) = (handle.model().to_owned(), handle.replica().name.clone());
        let replicas = ask(state, ANSWER, move |connection| async move {
            let status = connection.status().await?;
            let of_model = status.models.iter().find(|of| of.name == model);
            let holders = of_model.into_iter().flat_map(|of| &of.replicas);
            let holders = holders.filter(|of| of.version == Some(version.number) && of.name != own);
            let others: Vec<String> = holders.map(|of| of.name.clone()).take(HOLDERS).collect();
            let mut found = Vec::new();
            for name in std::iter::once(own).chain(others) {
                let copy = connection.inspect(&model, &name, None).await?.copy;
                found.extend(copy.filter(|copy| copy.version == version).map(|copy| copy.shards));
            }
            Ok(found)
        })?;
        let none = || {
            Error::misuse(
                "this replica's version is not listed: all of its shards publish it first",
            )
        };
        let own = replicas.first().ok_or_else(none)?;
        let names: Vec<ContentDigest> = own.iter().map(|shard| shard.layout).collect();
        if names != state.push.layouts() {
            return Err(none());
        }
        if names.len() > PUSH_SHARDS {
            return Err(Error::Call(CallError::Limit {
                what: "the shards of a replica that pushes".to_owned(),
                limit: PUSH_SHARDS as u64,
                got: names.len() as u64,
            }));
        }
        let (mut senders, mut addresses) = (vec![Vec::new(); names.len()], BTreeMap::new());
        let same = |shards: &&Arc<[SourceShard]>| {
            shards.iter().map(|of| of.layout).eq(names.iter().copied())
        };
        for (number, shard) in
            replicas.iter().filter(same).flat_map(|shards| shards.iter().enumerate())
        {
            let sender = SenderId(shard.export.0);
            senders[number].push(sender);
            addresses.insert(sender, shard.data_address.clone());
        }
        let layouts = layouts(state, &names, ANSWER)?;
        Ok(Self { names, layouts, senders, addresses })
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;
    use weightcast_protocol::message::Assignment;
    use weightcast_protocol::{Epoch, Generation, Term};

    use super::*;
    use crate::client::connection::tests::{FakePort, Said, whole as reply};
    use crate::client::handle::tests::HandleScene;
    use crate::client::push::samples::VERSION;
    use crate::client::push::scene::{self, *};
    use crate::convert::{Inspected, inspect_reply};
    use crate::serve::Status;
    use crate::wire::{ModelStatus, ReplicaStatus};

    /// The handle's own replica is `rollout`, of the model `policy`.
    fn found(said: Vec<Said>) -> (Result<Base, Error>, usize) {
        found_by(&BASE, said)
    }

    /// The same, where the replica has registered these layouts.
    fn found_by(layouts: &[ContentDigest], said: Vec<Said>) -> (Result<Base, Error>, usize) {
        let port = FakePort::saying(said);
        let asked = Arc::clone(&port.asked);
        let driver = PushScene::sender_of(0, port);
        driver.state.push.registered(layouts.to_vec());
        let own = HandleScene::new(2, Vec::new(), |call| panic!("{call:?}"));
        let base = Base::find(&driver.state, &own.handle, VERSION);
        (base, asked.load(std::sync::atomic::Ordering::Relaxed))
    }

    fn listed(replicas: &[(&str, u64)]) -> Said {
        let replica = |(name, version): &(&str, u64)| ReplicaStatus {
            name: (*name).to_owned(),
            version: Some(*version),
            ..ReplicaStatus::default()
        };
        let model = |name: &str, replicas| ModelStatus {
            name: name.to_owned(),
            replicas,
            ..ModelStatus::default()
        };
        let elsewhere = model("another", vec![replica(&("elsewhere", VERSION.number))]);
        let models = vec![elsewhere, model("policy", replicas.iter().map(replica).collect())];
        reply(&Status { term: 1, models, ..Status::default() }.encode_to_vec())
    }

    /// A copy whose shards have these layouts, at ports from this one on.
    fn copy(version: Version, layouts: &[ContentDigest], port: u64) -> Option<Assignment> {
        let shard = |(number, layout): (u64, &ContentDigest)| SourceShard {
            data_address: format!("10.0.0.1:{}", port + number),
            export: weightcast_protocol::ExportId(port + number),
            generation: Generation(1),
            layout: *layout,
        };
        Some(Assignment {
            version,
            catalog: ContentDigest::default(),
            replica: "a".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: (0..).zip(layouts).map(shard).collect(),
        })
    }

    fn inspected(copy: Option<Assignment>) -> Said {
        let of = Inspected { term: Term(1), state: String::new(), copy, as_published: None };
        reply(&inspect_reply(of).encode_to_vec())
    }

    /// Each shard is written from where the same share of the same version lies.
    #[test]
    fn whoever_holds_the_version_in_the_same_layouts_may_write() {
        let older = Version { epoch: Epoch(VERSION.epoch.0 - 1), ..VERSION };
        let turned = [BASE[1], BASE[0]];
        let (number, other) = (VERSION.number, VERSION.number - 1);
        let names = ["one", "two", "three", "four"].map(|name| (name, number));
        let mut replicas = vec![("behind", other), ("rollout", number)];
        replicas.extend(names);
        let (base, asked) = found(vec![
            listed(&replicas),
            inspected(copy(VERSION, &BASE, 100)),
            inspected(copy(VERSION, &BASE, 200)),
            inspected(copy(older, &BASE, 300)),
            inspected(copy(VERSION, &turned, 400)),
            inspected(None),
        ]);
        let found = base.unwrap();
        assert_eq!(asked, 6, "each of the model that has the number, and none twice");
        assert_eq!((found.names, found.layouts), (BASE.to_vec(), scene::base()));
        let of = |sender| SenderId(sender);
        assert_eq!(found.senders, [vec![of(100), of(200)], vec![of(101), of(201)]]);
        let addresses: Vec<(u64, String)> =
            found.addresses.into_iter().map(|(of, at)| (of.0, at)).collect();
        let expected = [100, 101, 200, 201].map(|of| (of, format!("10.0.0.1:{of}")));
        assert_eq!(addresses, expected);
    }

    #[test]
    fn what_is_not_listed_as_it_is_registered_is_not_pushed() {
        for own in [None, copy(VERSION, &BASE[..1], 1), copy(VERSION, &[WHOLE, BASE[1]], 1)] {
            let (base, _) = found(vec![listed(&[]), inspected(own)]);
            let refused = base.err().unwrap().to_string();
            assert!(refused.contains("all of its shards publish it first"), "{refused}");
        }
    }

    /// No word names more.
    #[test]
    fn so_many_shards_push_together_at_most() {
        for (shards, pushes) in [(PUSH_SHARDS, true), (PUSH_SHARDS + 1, false)] {
            let layouts = vec![WHOLE; shards];
            let said = vec![listed(&[]), inspected(copy(VERSION, &layouts, 100))];
            match (found_by(&layouts, said).0, pushes) {
                (Ok(base), true) => assert_eq!(base.senders.len(), shards),
                (Err(Error::Call(CallError::Limit { limit, got, .. })), false) => {
                    assert_eq!((limit, got), (PUSH_SHARDS as u64, shards as u64));
                }
                (found, _) => panic!("{shards}: {:?}", found.err()),
            }
        }
    }

    /// The server is asked about so many others at most.
    #[test]
    fn there_are_so_many_senders_at_most() {
        let names: Vec<String> = (0..2 * HOLDERS).map(|number| format!("twin{number}")).collect();
        let replicas: Vec<_> = names.iter().map(|name| (name.as_str(), VERSION.number)).collect();
        let copies = (0..=HOLDERS as u64).map(|of| inspected(copy(VERSION, &BASE, 1_000 + 2 * of)));
        let (base, asked) = found(std::iter::once(listed(&replicas)).chain(copies).collect());
        assert_eq!((base.unwrap().senders[1].len(), asked), (HOLDERS + 1, HOLDERS + 2));
    }
}
