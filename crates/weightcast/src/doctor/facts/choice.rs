//! Looks at two replicas of a live job, and goes the way of the reader to the source.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tonic::Code;
use weightcast_transport::{Auth, Peer, Secret, Way};

use super::server::AskedServers;
use crate::client::connection::ServerConnection;
use crate::client::reading::networks::Networks;
use crate::client::reading::route::Routes;
use crate::config::{Options, Replica};
use crate::doctor::examination::ChoiceOf;
use crate::doctor::judgement::choice::{
    ChoiceFacts, FoundPair, NamedPair, Previewed, TriedWay, Whereabouts,
};
use crate::serve::Status;
use crate::wire::{ModelStatus, ReplicaStatus};

/// How long the server, and each data port of the source, may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Shards of the source to which this process connects: enough to see whether hosts differ.
const TRIED_SHARDS: usize = 8;

/// What is known of the two.
pub(in crate::doctor) async fn choice(
    of: &ChoiceOf,
    options: &Options,
    asked: &AskedServers,
    token: Option<Secret>,
) -> ChoiceFacts {
    let pair = match (&asked.connection, &asked.status) {
        (Some((connection, _)), Some(status)) => match find(status, of) {
            Ok((model, source, reader)) => {
                let preview = preview(connection, &model.name, of).await;
                NamedPair::Found(Box::new(FoundPair {
                    source_state: source.state.clone(),
                    preview,
                    source_at: whereabouts(source),
                    reader_at: whereabouts(reader),
                    tried: tried(options, asked, token, source, reader),
                }))
            }
            Err(why) => NamedPair::Missing(why),
        },
        _ => NamedPair::Missing("no server says which replicas there are".to_owned()),
    };
    ChoiceFacts { source: of.source.clone(), reader: of.reader.clone(), pair }
}

/// The two replicas, and their model.
fn find<'a>(
    status: &'a Status,
    of: &ChoiceOf,
) -> Result<(&'a ModelStatus, &'a ReplicaStatus, &'a ReplicaStatus), String> {
    let ChoiceOf { source, reader, model: named } = of;
    if source == reader {
        return Err(format!("{source} does not read from itself: name two replicas"));
    }
    let replica = |model: &'a ModelStatus, name: &str| {
        model.replicas.iter().find(|replica| replica.name == name)
    };
    let wanted = |model: &&ModelStatus| named.as_ref().is_none_or(|named| model.name == *named);
    let models: Vec<&ModelStatus> = status.models.iter().filter(wanted).collect();
    let found = models
        .iter()
        .filter_map(|model| Some((*model, replica(model, source)?, replica(model, reader)?)));
    let found: Vec<_> = found.collect();
    let names = |models: &[&ModelStatus]| -> String {
        models.iter().map(|model| model.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    match &found[..] {
        [one] => Ok(*one),
        [] => {
            let model = named.as_ref().map_or(String::new(), |named| format!(" {named}"));
            let here = match names(&status.models.iter().collect::<Vec<_>>()) {
                none if none.is_empty() => "there is no model".to_owned(),
                names => format!("the models are: {names}"),
            };
            Err(format!("no model{model} has both replicas {source} and {reader}; {here}"))
        }
        several => {
            let models: Vec<&ModelStatus> = several.iter().map(|(model, ..)| *model).collect();
            Err(format!(
                "several models have replicas {source} and {reader}: name one of them with \
                 --model: {}",
                names(&models)
            ))
        }
    }
}

fn whereabouts(replica: &ReplicaStatus) -> Whereabouts {
    replica.shards.first().map_or_else(Whereabouts::default, |shard| Whereabouts {
        host: shard.host.clone(),
        datacentre: shard.datacentre.clone(),
    })
}

async fn preview(connection: &ServerConnection, model: &str, of: &ChoiceOf) -> Previewed {
    let told = connection.preview(model, &of.reader, &of.source);
    match tokio::time::timeout(PATIENCE, told).await {
        Ok(Ok(Some(preview))) => Previewed::Told(preview),
        Ok(Ok(None)) => Previewed::NothingHeld,
        Ok(Err(refusal)) if refusal.code() == Code::Unimplemented => {
            Previewed::Unknown("the server is of a release that does not tell".to_owned())
        }
        Ok(Err(refusal)) => Previewed::Unknown(format!("the server does not tell: {refusal}")),
        Err(_) => Previewed::Unknown(format!("the server did not answer within {PATIENCE:?}")),
    }
}

/// Connects to the source as the reader would, if that is on this host.
fn tried(
    options: &Options,
    asked: &AskedServers,
    token: Option<Secret>,
    source: &ReplicaStatus,
    reader: &ReplicaStatus,
) -> TriedWay {
    let here = Replica::new("", 0, 1).host;
    if whereabouts(reader).host != here {
        return TriedWay::NotHere;
    }
    // A rollout's own data port decides whether loopback may be asked, and is known to the server.
    let own = reader.shards.first().and_then(|shard| shard.data_address.parse().ok());
    let servers = asked.facts.origin.servers().unwrap_or_default();
    let networks = match Networks::new(options, servers, own) {
        Ok(networks) => networks,
        Err(error) => return TriedWay::Unreached(error.to_string()),
    };
    let auth = Auth { token, insecure: options.insecure };
    let routes = Routes::new(auth, Way::Auto, networks, None);
    let mut slowest: Option<Arc<Peer>> = None;
    for shard in source.shards.iter().take(TRIED_SHARDS) {
        match routes.peer(&shard.data_address, Instant::now() + PATIENCE) {
            Ok(peer) if slowest.is_none() || peer.way() == Way::Tcp => slowest = Some(peer),
            Ok(_) => {}
            Err(why) => return TriedWay::Unreached(format!("shard {}: {why}", shard.shard)),
        }
    }
    match slowest {
        Some(peer) => {
            TriedWay::Reached { way: peer.way().to_string(), why: peer.why_first().to_owned() }
        }
        None => TriedWay::Unreached("the source has no shard yet".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str, replicas: &[&str]) -> ModelStatus {
        let replica =
            |name: &&str| ReplicaStatus { name: (*name).to_owned(), ..Default::default() };
        let replicas = replicas.iter().map(replica).collect();
        ModelStatus { name: name.to_owned(), replicas, ..ModelStatus::default() }
    }

    fn of(source: &str, reader: &str, model: Option<&str>) -> ChoiceOf {
        let [source, reader] = [source, reader].map(str::to_owned);
        ChoiceOf { source, reader, model: model.map(str::to_owned) }
    }

    #[test]
    fn two_replicas_are_found_in_their_model() {
        let models = vec![model("a", &["t", "r"]), model("b", &["t", "r", "x"]), model("c", &[])];
        let status = Status { models, ..Status::default() };
        let found = |source, reader, model| {
            find(&status, &of(source, reader, model)).map(|(model, source, reader)| {
                format!("{} {} {}", model.name, source.name, reader.name)
            })
        };
        assert_eq!(found("t", "x", None).as_deref(), Ok("b t x"));
        assert_eq!(found("r", "t", Some("a")).as_deref(), Ok("a r t"));
        for (source, reader, model, words) in [
            ("t", "r", None, "name one of them with --model: a, b"),
            ("t", "y", None, "no model has both replicas t and y; the models are: a, b, c"),
            ("t", "x", Some("a"), "no model a has both"),
            ("t", "t", Some("a"), "name two replicas"),
        ] {
            let why = found(source, reader, model).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        let nothing = find(&Status::default(), &of("t", "r", None)).unwrap_err();
        assert!(nothing.contains("there is no model"), "{nothing}");
    }
}
