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
