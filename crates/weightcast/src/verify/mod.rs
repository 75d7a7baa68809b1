//! Whether two live replicas of a version hold the same, whatever their layouts, and where they
//! differ if they do not. The weights stay where they are.
//!
//! [`meet`] asks the server who the shards are. Each shard digests its memory as it is now, over its
//! data port ([`asker`]); tensor by tensor the parts add up to the same number in any layout
//! (`client::mismatch::summary`). A tensor that is not the same everywhere is cut where its holders change
//! ([`atoms`]), and boxes of it are asked of all who hold them until the rows are known
//! ([`search`]). [`blame`] says who no longer holds what was sealed.
//!
//! Every answer is of one exposure of the memory: a replica that gives its version up meanwhile is
//! an error, not a verdict. The digests find accidents, not adversaries.

mod asker;
mod atoms;
mod blame;
mod comparison;
mod meet;
mod search;
#[cfg(test)]
mod tests;
mod verdict;

use std::sync::Arc;
use std::time::Instant;

use weightcast_plan::{Layout, Slice, Tensor, cells};
use weightcast_protocol::message::SourceShard;
use weightcast_protocol::{CallError, Sum};
use weightcast_transport::{Auth, Way};

use self::asker::{AskedShard, Asker};
use self::atoms::{Atom, HeldEntry, atoms};
use self::meet::ComparedReplica;
use self::search::{Found, Search};
use crate::client::connection::ServerConnection;
use crate::client::connection::status;
use crate::client::mismatch::summary::{Summary, partial, suspects};
use crate::client::reading::networks::Networks;
use crate::client::reading::route::Routes;
use crate::config::Options;
use crate::error::Error;

pub use comparison::{Comparison, MAX_RANGES, MAX_TENSORS, Other, Watch};
pub use verdict::{Difference, DifferentRange, HeldBy, Verdict, Verified};

/// Compares two replicas of a version, or one with what it was sealed as.
///
/// # Errors
/// [`Error::Unverified`] where nothing can be said: a replica holds nothing that may be read, or
/// another version, or moved on meanwhile, or a shard does not answer in time. Whatever
/// [`status`](crate::status()) may return; [`Error::Interrupted`] if `watch` said so.
pub fn verify(what: &Comparison, options: &Options, watch: Watch<'_>) -> Result<Verdict, Error> {
    let started = Instant::now();
    let (server, token) = options.running_server()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::io("start a runtime", e))?;
    let met = runtime.block_on(async {
        let connection = ServerConnection::new(&server, token.as_ref())?;
        let status = status::of_list(&connection, &server).await?;
        if status.term == 0 {
            let reason = "no server acts: no worker has come to one yet".to_owned();
            return Err(Error::Call(CallError::ServerUnreachable {
                server: server.clone(),
                reason,
            }));
        }
        let met = async {
            let met = meet::replicas(&connection, &status, what).await?;
            Ok((met, connection.clone()))
        };
        let late = || CallError::Timeout {
            call: "verify".to_owned(),
            waiting_for: "the server to say who holds what".to_owned(),
            detail: String::new(),
        };
        tokio::time::timeout(what.deadline, met).await.unwrap_or_else(|_| Err(late().into()))
    });
    let ((replicas, moved), connection) = met?;
    let auth = Auth { token, insecure: options.insecure };
    let routes = Routes::new(auth, Way::Tcp, Networks::new(options, &server, None)?, None);
    let asker = Asker::new(shards(&replicas), routes, started + what.deadline, moved, watch);
    let as_published = |of: &ComparedReplica, found: Sum| {
        runtime.block_on(async {
            let asked = meet::as_published(&connection, &what.model, &of.source, found);
            let late = || CallError::Timeout {
                call: "verify".to_owned(),
                waiting_for: "the server to say whether that is what was sealed".to_owned(),
                detail: String::new(),
            };
            let left = (started + what.deadline).saturating_duration_since(Instant::now());
            tokio::time::timeout(left, asked).await.unwrap_or_else(|_| Err(late().into()))
        })
    };
    let mut verdict = compare(&replicas, &asker, &as_published)?;
    verdict.model.clone_from(&what.model);
    (verdict.digested, verdict.moved) = asker.cost();
    verdict.seconds = started.elapsed().as_secs_f64();
    Ok(verdict)
}

/// All shards, in order of replica and number.
fn shards(replicas: &[ComparedReplica]) -> Vec<AskedShard> {
    let of = |replica: &ComparedReplica| {
        let shards = replica.source.shards.iter().zip(&replica.layouts).enumerate();
        let shard = |(number, (at, layout)): (usize, (&SourceShard, &Arc<Layout>))| AskedShard {
            replica: replica.source.replica.clone(),
            number: number as u32,
            layout: Arc::clone(layout),
            at: SourceShard::clone(at),
        };
        shards.map(shard).collect::<Vec<_>>()
    };
    replicas.iter().flat_map(of).collect()
}

fn compare(
    replicas: &[ComparedReplica],
    asker: &Asker<'_>,
    as_published: AsPublished<'_>,
) -> Result<Verdict, Error> {
    let summaries = summarise(replicas, asker)?;
    let each = replicas.iter().zip(&summaries);
    let verified = each.map(|(of, summary)| verified(of, summary, as_published));
    let verified = verified.collect::<Result<Vec<Verified>, Error>>()?;
    if let ([only], false) = (&verified[..], replicas[0].sealed) {
        let reason = "the version is not sealed yet, and nobody else holds it: there is nothing to \
                      compare it with";
        return Err(Error::Unverified { replica: only.name.clone(), reason: reason.to_owned() });
    }
    let tensors = &replicas[0].tensors;
    // An element that only one side holds is an error; an element that neither side holds is not
    // compared.
    partial(tensors, &summaries).iter().try_for_each(|t| atoms_of(replicas, asker, t).map(drop))?;
    let suspects = suspects(tensors, &summaries);
    let looked_at = &suspects[..suspects.len().min(MAX_TENSORS)];
    let found = find(replicas, asker, looked_at)?;
    let mut differences = blame::differences(asker, looked_at, &found)?;
    let mut different: Vec<String> = suspects.iter().map(|t| t.name().to_owned()).collect();
    if different.is_empty() && verified.iter().any(|of| of.as_published == Some(false)) {
        differences = blame::unsealed(replicas, asker)?;
        different = differences.iter().map(|difference| difference.tensor.clone()).collect();
        differences.truncate(MAX_TENSORS);
    }
    let version = replicas[0].source.version;
    let as_published = verified.iter().all(|of| of.as_published != Some(false));
    Ok(Verdict {
        equal: different.is_empty() && as_published,
        model: String::new(),
        epoch: version.epoch.0,
        version: version.number,
        replicas: verified,
        tensors: tensors.len() as u64,
        different,
        differences,
        digested: 0,
        moved: 0,
        seconds: 0.0,
    })
}

/// What the shards of each replica hold together.
fn summarise(replicas: &[ComparedReplica], asker: &Asker<'_>) -> Result<Vec<Summary>, Error> {
    let of = |replica: usize| (0..replicas[replica].layouts.len()).map(move |n| (replica, n));
    let shards: Vec<(usize, usize)> = (0..replicas.len()).flat_map(of).collect();
    let holders: Vec<(usize, (usize, usize))> = shards.into_iter().enumerate().collect();
    let parts = asker.each(&holders, |(holder, (replica, number))| {
        let group: Vec<_> = replicas[*replica].layouts.iter().map(AsRef::as_ref).collect();
        let cells = cells(&group, *number);
        let digests = asker.digests(*holder, &cells)?;
        Ok(Summary::of(group[*number], &cells, &digests))
    })?;
    let mut summaries = vec![Summary::default(); replicas.len()];
    for ((_, (replica, _)), part) in holders.iter().zip(parts) {
        summaries[*replica].add(part);
    }
    Ok(summaries)
}

/// Asks the server whether a replica's content, as it was found, is what was sealed.
type AsPublished<'a> = &'a dyn Fn(&ComparedReplica, Sum) -> Result<Option<bool>, Error>;

fn verified(
    of: &ComparedReplica,
    summary: &Summary,
    as_published: AsPublished<'_>,
) -> Result<Verified, Error> {
    let sums = summary.folded(&of.tensors);
    let copies_agree = sums.copies_agree();
    let equal = as_published(of, sums.counted)?;
    Ok(Verified {
        name: of.source.replica.clone(),
        shards: of.source.shards.len() as u32,
        bytes: of.layouts.iter().map(|layout| layout.bytes()).sum(),
        copies_agree,
        as_published: equal.map(|equal| equal && copies_agree),
    })
}

/// Where these tensors differ.
fn find(
    replicas: &[ComparedReplica],
    asker: &Asker<'_>,
    suspects: &[Tensor],
) -> Result<Vec<Found>, Error> {
    let cut = |tensor: &Tensor| Ok((tensor.clone(), atoms_of(replicas, asker, tensor)?));
    let suspects = suspects.iter().map(cut).collect::<Result<Vec<_>, Error>>()?;
    let mut search = Search::new(suspects);
    loop {
        let questions = search.questions();
        if questions.is_empty() {
            return Ok(search.end());
        }
        search.answer(&asker.answers(&questions)?);
    }
}

/// A tensor, cut where its holders change. All replicas must hold the same elements of it.
fn atoms_of(
    replicas: &[ComparedReplica],
    asker: &Asker<'_>,
    tensor: &Tensor,
) -> Result<Vec<Atom>, Error> {
    let mut boxes: Vec<(HeldEntry, Slice)> = Vec::new();
    for (holder, shard) in asker.shards.iter().enumerate() {
        let Some(number) = shard.layout.find(tensor.name()) else { continue };
        let entries = shard.layout.entries_of(number);
        boxes.extend(
            entries.map(|entry| (HeldEntry { holder, entry }, shard.layout.entry(entry).slice)),
        );
    }
    let atoms = atoms(boxes);
    let owner = |held: &HeldEntry| asker.shards[held.holder].replica.as_str();
    for atom in &atoms {
        let lacks =
            |of: &&ComparedReplica| !atom.held.iter().any(|held| owner(held) == of.source.replica);
        if let Some(lacking) = replicas.iter().find(lacks) {
            let detail = format!(
                "it holds nothing of {}{}, which {} holds",
                tensor.name(),
                atom.slice,
                owner(&atom.held[0])
            );
            let replica = lacking.source.replica.clone();
            return Err(CallError::LayoutMismatch { replica, detail }.into());
        }
    }
    Ok(atoms)
}
