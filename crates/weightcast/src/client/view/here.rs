//! Which replicas of this host hold a version.

use weightcast_protocol::{CallError, Epoch, Selector, Version};

use crate::config::Replica;
use crate::error::Error;
use crate::serve::Status;
use crate::wire::{ReplicaStatus, VersionStatus};

/// Who could be asked.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Here {
    pub(super) version: Version,
    /// The host of the asker.
    pub(super) host: String,
    /// Replicas with shards there, without the asker's own. Trainers come last, who change their memory first.
    pub(super) replicas: Vec<String>,
}

/// Finds them in what a server knows.
///
/// # Errors
/// [`CallError::VersionUnavailable`].
pub(super) fn holders(
    status: &Status,
    model: &str,
    own: &Replica,
    selector: Selector,
) -> Result<Here, Error> {
    let found = status.models.iter().find(|of| of.name == model);
    let mut known: Vec<_> =
        found.iter().flat_map(|of| &of.versions).map(|of| (named(of), &of.replicas)).collect();
    known.sort();
    let versions: Vec<Version> = known.iter().map(|(version, _)| *version).collect();
    let (model, latest) = (model.to_owned(), versions.last().copied());
    let version = selector.pick(&versions);
    let version = version.ok_or(CallError::VersionUnavailable { model, selector, latest })?;
    let replicas = || found.iter().flat_map(|of| &of.replicas);
    let mut mine = replicas().filter(|of| of.name == own.name).flat_map(|of| &of.shards);
    let host = mine.find(|of| of.shard == own.shard).map(|of| of.host.clone()).unwrap_or_default();
    let holds = |name: &String| {
        known.iter().any(|(held, by)| *held == version && by.contains(name)) && *name != own.name
    };
    let here = |of: &&ReplicaStatus| of.shards.iter().any(|shard| shard.host == host);
    let mut near: Vec<_> = replicas().filter(here).filter(|of| holds(&of.name)).collect();
    near.sort_by_key(|of| (of.role == "trainer", &of.name));
    Ok(Here { version, host, replicas: near.into_iter().map(|of| of.name.clone()).collect() })
}

fn named(of: &VersionStatus) -> Version {
    Version { epoch: Epoch(of.epoch), number: of.version }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ModelStatus, ShardStatus};

    fn shard(number: u32, host: &str) -> ShardStatus {
        ShardStatus { shard: number, host: host.to_owned(), ..ShardStatus::default() }
    }

    fn replica(name: &str, role: &str, hosts: &[&str]) -> ReplicaStatus {
        ReplicaStatus {
            name: name.to_owned(),
            role: role.to_owned(),
            shards: (0..).zip(hosts).map(|(number, host)| shard(number, host)).collect(),
            ..ReplicaStatus::default()
        }
    }

    fn version(epoch: u64, version: u64, replicas: &[&str]) -> VersionStatus {
        let replicas = replicas.iter().map(|name| (*name).to_owned()).collect();
        VersionStatus { epoch, version, replicas }
    }

    /// The second shard of `engine` lies on host b.
    fn status() -> Status {
        let model = ModelStatus {
            name: "policy".to_owned(),
            versions: vec![
                version(2, 1, &["trainer", "spread", "away", "rollout", "engine"]),
                version(1, 9, &["old"]),
            ],
            replicas: vec![
                replica("trainer", "trainer", &["b"]),
                replica("spread", "rollout", &["c", "b"]),
                replica("away", "rollout", &["a"]),
                replica("old", "rollout", &["b"]),
                replica("rollout", "rollout", &["b"]),
                replica("engine", "rollout", &["a", "b"]),
            ],
            ..ModelStatus::default()
        };
        let other = ModelStatus { name: "another".to_owned(), ..ModelStatus::default() };
        Status { models: vec![other, model], ..Status::default() }
    }

    #[test]
    fn holders_of_the_askers_host_are_asked_and_trainers_last() {
        let asked = |own: &str, shard, selector| {
            holders(&status(), "policy", &Replica::new(own, shard, 2), selector).unwrap()
        };
        let here = |number, host: &str, replicas: &[&str]| Here {
            version: Version { epoch: Epoch(if number == 1 { 2 } else { 1 }), number },
            host: host.to_owned(),
            replicas: replicas.iter().map(|name| (*name).to_owned()).collect(),
        };
        let on_b = here(1, "b", &["rollout", "spread", "trainer"]);
        assert_eq!(asked("engine", 1, Selector::Latest), on_b);
        assert_eq!(asked("engine", 1, Selector::Exact(1)), on_b);
        assert_eq!(asked("engine", 0, Selector::Latest), here(1, "a", &["away"]));
        assert_eq!(asked("engine", 1, Selector::Exact(9)), here(9, "b", &["old"]));
        let all = here(1, "b", &["engine", "rollout", "trainer"]);
        assert_eq!(asked("spread", 1, Selector::Latest), all);
        assert_eq!(asked("unknown", 0, Selector::Latest), here(1, "", &[]));
    }

    #[test]
    fn what_nobody_has_is_not_available() {
        let newest = Some(Version { epoch: Epoch(2), number: 1 });
        for (model, selector, newest) in
            [("policy", Selector::Exact(7), newest), ("nothing", Selector::Latest, None)]
        {
            let own = Replica::new("engine", 1, 2);
            let Err(Error::Call(CallError::VersionUnavailable { model: named, latest, .. })) =
                holders(&status(), model, &own, selector)
            else {
                panic!("{model}")
            };
            assert_eq!((named.as_str(), latest), (model, newest));
        }
    }
}
