//! Asks the server which replicas to compare, and what their shards hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use weightcast_plan::{Layout, Tensor};
use weightcast_protocol::message::Assignment;
use weightcast_protocol::{CallError, ContentDigest, Epoch, Sum, Version};

use super::comparison::{Comparison, Other};
use crate::client::connection::ServerConnection;
use crate::client::memory::registration::union;
use crate::convert::Inspected;
use crate::error::Error;
use crate::manifest;
use crate::wire::{ModelStatus, StatusReply};

/// A replica, and what its shards hold where.
pub(super) struct ComparedReplica {
    pub(super) source: Assignment,
    /// Whether the version is sealed.
    pub(super) sealed: bool,
    pub(super) layouts: Vec<Arc<Layout>>,
    pub(super) tensors: BTreeMap<String, Tensor>,
}

/// The replicas to compare, the named one first; one alone is compared with what it was sealed as.
/// And the bytes of the manifests that were fetched for it.
pub(super) async fn replicas(
    connection: &ServerConnection,
    status: &StatusReply,
    what: &Comparison,
) -> Result<(Vec<ComparedReplica>, u64), Error> {
    let model = model(status, &what.model)?;
    let first = inspect(connection, model, &what.replica).await?;
    let version = first.0.version;
    wanted(model, what, version)?;
    let other = match &what.other {
        Other::Replica(name) if *name == what.replica => {
            return Err(Error::misuse(format!(
                "{name} is compared with itself: name another replica, or compare it with what it \
                 was sealed as"
            )));
        }
        Other::Replica(name) => Some(name.clone()),
        Other::Any => any_other(model, version, &what.replica),
        Other::Sealed => None,
    };
    let mut found = vec![first];
    if let Some(other) = other {
        let second = inspect(connection, model, &other).await?;
        if second.0.version != version {
            let reason =
                format!("it holds version {}, {} holds {version}", second.0.version, what.replica);
            return Err(Error::Unverified { replica: other, reason });
        }
        found.push(second);
    }
    let mut layouts = FetchedLayouts { connection, known: BTreeMap::new(), moved: 0 };
    let mut replicas = Vec::new();
    for (source, sealed) in found {
        let mut of = Vec::with_capacity(source.shards.len());
        for shard in source.shards.iter() {
            of.push(layouts.get(shard.layout).await?);
        }
        let tensors = union(&of)?;
        replicas.push(ComparedReplica { source, sealed, layouts: of, tensors });
    }
    same_tensors(&replicas)?;
    Ok((replicas, layouts.moved))
}

fn model<'a>(status: &'a StatusReply, name: &str) -> Result<&'a ModelStatus, Error> {
    status.models.iter().find(|model| model.name == name).ok_or_else(|| {
        let known: Vec<&str> = status.models.iter().map(|model| model.name.as_str()).collect();
        Error::misuse(match known[..] {
            [] => format!("the server knows no model {name}, nor any other"),
            _ => format!("the server knows no model {name}; it knows {}", known.join(", ")),
        })
    })
}

/// Checks that the version is the one that was asked for, if one was.
fn wanted(model: &ModelStatus, what: &Comparison, held: Version) -> Result<(), Error> {
    let Some(selector) = what.version else { return Ok(()) };
    let version =
        |v: &crate::wire::VersionStatus| Version { epoch: Epoch(v.epoch), number: v.version };
    let available: Vec<Version> = model.versions.iter().map(version).collect();
    let Some(picked) = selector.pick(&available) else {
        let (model, latest) = (what.model.clone(), available.last().copied());
        return Err(CallError::VersionUnavailable { model, selector, latest }.into());
    };
    if picked == held {
        return Ok(());
    }
    let reason = format!("it holds version {held}, not {picked}");
    Err(Error::Unverified { replica: what.replica.clone(), reason })
}

/// Asks the server whether a replica's content, as it was found, is what its version was sealed
/// with; nothing if the version is not sealed.
pub(super) async fn as_published(
    connection: &ServerConnection,
    model: &str,
    source: &Assignment,
    found: Sum,
) -> Result<Option<bool>, Error> {
    let seen = connection.inspect(model, &source.replica, Some(found)).await?;
    judged(source, &seen)
}

/// The server's judgement, which counts only while the replica holds what was looked at.
fn judged(source: &Assignment, seen: &Inspected) -> Result<Option<bool>, Error> {
    if seen.copy.as_ref() == Some(source) {
        return Ok(seen.as_published);
    }
    let reason = "it moved on while it was looked at".to_owned();
    Err(Error::Unverified { replica: source.replica.clone(), reason })
}

/// How to reach a replica's copy, and whether the version is sealed.
async fn inspect(
    connection: &ServerConnection,
    model: &ModelStatus,
    replica: &str,
) -> Result<(Assignment, bool), Error> {
    let seen = connection.inspect(&model.name, replica, None).await?;
    if let Some(copy) = seen.copy {
        return Ok((copy, seen.as_published.is_some()));
    }
    let reason = match seen.state.as_str() {
        "" => {
            let names: Vec<&str> = model.replicas.iter().map(|r| r.name.as_str()).collect();
            format!("model {} has none of that name; it has {}", model.name, names.join(", "))
        }
        state => format!("it holds nothing that may be read now: it is {state}"),
    };
    Err(Error::Unverified { replica: replica.to_owned(), reason })
}

/// Another replica that holds the version: a trainer rather than a rollout, and a rollout rather
/// than an offload or a seed.
fn any_other(model: &ModelStatus, version: Version, than: &str) -> Option<String> {
    let same =
        |v: &&crate::wire::VersionStatus| (v.epoch, v.version) == (version.epoch.0, version.number);
    let holders = &model.versions.iter().find(same)?.replicas;
    let rank = |name: &&String| {
        let of = model.replicas.iter().find(|replica| replica.name == **name);
        let role = of.map_or("", |replica| replica.role.as_str());
        ["trainer", "rollout"].iter().position(|known| *known == role).unwrap_or(2)
    };
    holders.iter().filter(|name| *name != than).min_by_key(rank).cloned()
}

/// Layouts by their names, each fetched once.
struct FetchedLayouts<'a> {
    connection: &'a ServerConnection,
    known: BTreeMap<ContentDigest, Arc<Layout>>,
    moved: u64,
}

impl FetchedLayouts<'_> {
    async fn get(&mut self, name: ContentDigest) -> Result<Arc<Layout>, Error> {
        if let Some(layout) = self.known.get(&name) {
            return Ok(Arc::clone(layout));
        }
        let bytes = self.connection.manifest(name).await?;
        self.moved += bytes.len() as u64;
        let layout = Arc::new(manifest::decode(&bytes)?);
        self.known.insert(name, Arc::clone(&layout));
        Ok(layout)
    }
}

/// Checks that both replicas have the same tensors. The server has seen to it for copies of one
/// version.
fn same_tensors(replicas: &[ComparedReplica]) -> Result<(), Error> {
    let [one, other] = replicas else { return Ok(()) };
    if one.tensors == other.tensors {
        return Ok(());
    }
    let lacks = |a: &ComparedReplica, b: &ComparedReplica| {
        a.tensors.keys().find(|n| !b.tensors.contains_key(*n)).cloned()
    };
    let detail = match lacks(one, other).or_else(|| lacks(other, one)) {
        Some(name) => format!("only one of the replicas has {name}"),
        None => "the replicas have tensors of the same name with other types or shapes".to_owned(),
    };
    Err(CallError::LayoutMismatch { replica: other.source.replica.clone(), detail }.into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weightcast_protocol::{ContentDigest, Term};

    use super::*;

    fn copy(number: u64) -> Assignment {
        Assignment {
            version: Version { epoch: Epoch(0), number },
            catalog: ContentDigest([1; 16]),
            replica: "rollout".to_owned(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: Arc::new([]),
        }
    }

    #[test]
    fn a_replica_that_has_moved_on_meanwhile_is_not_judged() {
        let seen = |copy| Inspected {
            term: Term(1),
            state: String::new(),
            copy,
            as_published: Some(false),
        };
        assert_eq!(judged(&copy(1), &seen(Some(copy(1)))).unwrap(), Some(false));
        for moved in [Some(copy(2)), None] {
            let error = judged(&copy(1), &seen(moved)).unwrap_err();
            assert!(matches!(error, Error::Unverified { .. }), "{error}");
        }
    }

    fn held(epoch: u64, version: u64, by: &[&str]) -> crate::wire::VersionStatus {
        let replicas = by.iter().map(|name| (*name).to_owned()).collect();
        crate::wire::VersionStatus { epoch, version, replicas }
    }

    fn of_role((name, role): &(&str, &str)) -> crate::wire::ReplicaStatus {
        let (name, role) = ((*name).to_owned(), (*role).to_owned());
        crate::wire::ReplicaStatus { name, role, ..Default::default() }
    }

    fn model_of(
        name: &str,
        versions: Vec<crate::wire::VersionStatus>,
        replicas: &[(&str, &str)],
    ) -> ModelStatus {
        let replicas = replicas.iter().map(of_role).collect();
        ModelStatus { name: name.to_owned(), versions, replicas, ..Default::default() }
    }

    #[test]
    fn the_other_is_a_trainer_before_a_rollout_before_a_copy() {
        let version = Version { epoch: Epoch(1), number: 5 };
        let replicas = [
            ("seed", "seed"),
            ("one", "rollout"),
            ("two", "rollout"),
            ("trainer", "trainer"),
            ("elsewhere", "trainer"),
        ];
        let other = |by: &[&str], than: &str| {
            // Other versions are of no interest, nor is the number in another run.
            let versions = vec![
                held(0, 5, &["elsewhere"]),
                held(1, 4, &["elsewhere"]),
                held(1, 5, by),
                held(1, 6, &["elsewhere"]),
            ];
            any_other(&model_of("m", versions, &replicas), version, than)
        };
        for (by, than, expected) in [
            (&["seed", "one", "two", "trainer"][..], "two", Some("trainer")),
            (&["seed", "one", "two", "trainer"], "trainer", Some("one")),
            (&["seed", "one"], "one", Some("seed")),
            (&["seed", "one"], "seed", Some("one")),
            (&["seed", "two", "one"], "seed", Some("two")),
            (&["unlisted", "seed"], "one", Some("unlisted")),
            (&["unlisted", "one"], "two", Some("one")),
            (&["one"], "one", None),
            (&[], "one", None),
        ] {
            assert_eq!(other(by, than).as_deref(), expected, "{by:?} than {than}");
        }
        assert_eq!(any_other(&model_of("m", vec![], &replicas), version, "one"), None);
    }

    fn asked(version: Option<weightcast_protocol::Selector>) -> Comparison {
        Comparison {
            model: "m".to_owned(),
            replica: "rollout".to_owned(),
            other: Other::Any,
            version,
            deadline: std::time::Duration::ZERO,
        }
    }

    #[test]
    fn a_replica_has_to_hold_the_version_that_is_asked_for() {
        use weightcast_protocol::Selector::{Exact, Latest, LatestMinus};
        let versions = vec![held(0, 3, &[]), held(1, 2, &[]), held(1, 3, &[])];
        let model = model_of("m", versions, &[]);
        let at = |epoch, number| Version { epoch: Epoch(epoch), number };
        for (selector, held, right) in [
            (None, at(9, 9), true),
            (Some(Latest), at(1, 3), true),
            (Some(Latest), at(0, 3), false),
            (Some(Latest), at(1, 2), false),
            (Some(Exact(3)), at(1, 3), true),
            (Some(Exact(2)), at(1, 2), true),
            (Some(Exact(2)), at(1, 3), false),
            (Some(LatestMinus(1)), at(1, 2), true),
        ] {
            let found = wanted(&model, &asked(selector), held);
            let said =
                matches!(&found, Err(Error::Unverified { replica, .. }) if replica == "rollout");
            assert_eq!((found.is_ok(), said), (right, !right), "{selector:?} {held}");
        }
        let gone = wanted(&model, &asked(Some(Exact(7))), at(1, 3)).unwrap_err();
        let latest = Some(at(1, 3));
        let Error::Call(CallError::VersionUnavailable { model, latest: told, .. }) = gone else {
            panic!("{gone}")
        };
        assert_eq!((model.as_str(), told), ("m", latest));
    }

    #[test]
    fn a_model_that_is_not_known_is_an_error_that_names_those_that_are() {
        let known = |names: &[&str]| StatusReply {
            models: names.iter().map(|name| model_of(name, vec![], &[])).collect(),
            ..Default::default()
        };
        assert_eq!(model(&known(&["a", "b"]), "b").unwrap().name, "b");
        let error = model(&known(&["a", "b"]), "c").unwrap_err().to_string();
        assert!(error.contains("no model c; it knows a, b"), "{error}");
        let error = model(&known(&[]), "c").unwrap_err().to_string();
        assert!(error.contains("no model c, nor any other"), "{error}");
    }

    #[test]
    fn replicas_of_other_tensors_are_not_compared() {
        use weightcast_plan::DType;
        let of = |tensors: &[(&str, u64)]| {
            let tensor = |(name, size): &(&str, u64)| {
                ((*name).to_owned(), Tensor::new(*name, DType::U8, [*size]).unwrap())
            };
            let tensors = tensors.iter().map(tensor).collect();
            ComparedReplica { source: copy(1), sealed: true, layouts: Vec::new(), tensors }
        };
        let differ = |one: &[(&str, u64)], other: &[(&str, u64)]| {
            same_tensors(&[of(one), of(other)]).map_err(|error| error.to_string())
        };
        assert_eq!(differ(&[("a", 4), ("b", 4)], &[("b", 4), ("a", 4)]), Ok(()));
        for (one, other, said) in [
            (&[("a", 4), ("b", 4)][..], &[("a", 4)][..], "only one of the replicas has b"),
            (&[("a", 4)], &[("a", 4), ("c", 4)], "only one of the replicas has c"),
            (&[("a", 4)], &[("a", 5)], "other types or shapes"),
        ] {
            let error = differ(one, other).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        assert!(same_tensors(&[of(&[("a", 4)])]).is_ok(), "one alone");
    }
}
