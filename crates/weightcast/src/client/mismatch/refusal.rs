//! Why a publication was refused: in which tensor it differs, and between which shards or replicas.
//!
//! The server compares sums, so it cannot name the tensor. Each shard of a refused group serves the
//! note of its cells, and no memory (its *record*). So a shard can compare the notes of all shards
//! of its group, tensor by tensor, and with the notes of a replica whose copy is good.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_plan::{Cell, Layout, Slice, Tensor, cells};
use weightcast_protocol::message::{Assignment, Witnesses};
use weightcast_transport::{Digest, ExportId};

use super::summary::{Summary, suspects};
use crate::client::connection::ServerConnection;
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::union;
use crate::client::reading::fetch_layouts;
use crate::client::reading::route::Routes;
use crate::error::Error;
use crate::manifest;

/// The longest that a search takes, and that a caller waits for one.
const SEARCH: Duration = Duration::from_secs(5);
/// How often a witness is asked for its note: it may not have heard of the refusal yet.
const AGAIN: Duration = Duration::from_millis(20);
/// Most tensors that are named.
const NAMED: usize = 3;

/// The result of a search, once the search has ended.
#[derive(Default)]
pub(crate) struct FoundRefusal {
    /// The outer option is set when the search has ended, the inner if the search has found
    /// something.
    found: Mutex<Option<Option<String>>>,
    ended: Condvar,
}

/// What this shard has published.
pub(in crate::client) struct OwnPublication {
    pub(in crate::client) export: ExportId,
    pub(in crate::client) note: Vec<u8>,
}

/// The notes of one replica's shards.
struct ReplicaNotes {
    name: String,
    layouts: Vec<Arc<Layout>>,
    /// Per shard, its cells and their digests.
    cells: Vec<(Vec<Cell>, Vec<Digest>)>,
}

impl FoundRefusal {
    /// Waits for the end of the search. Calls `interrupted` every `tick`: true ends the wait.
    pub(in crate::client) fn wait(
        &self,
        tick: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<String>, Error> {
        let give_up = Instant::now() + SEARCH;
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(found) = &*found {
                return Ok(found.clone());
            }
            if Instant::now() >= give_up {
                return Ok(None);
            }
            if interrupted() {
                return Err(Error::Interrupted);
            }
            let waited = self.ended.wait_timeout(found, tick);
            found = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(in crate::client) fn end(&self, found: Option<String>) {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        self.ended.notify_all();
    }
}

/// Looks for the difference, and stores the result in `refusal`.
pub(in crate::client) async fn look(
    connection: ServerConnection,
    shared: Arc<HandleState>,
    own: OwnPublication,
    witnesses: Witnesses,
    refusal: Arc<FoundRefusal>,
) {
    let found = search(connection, shared, own, witnesses).await.unwrap_or_else(|reason| {
        tracing::debug!(reason, "it is not known in which tensor a refused publication differs");
        None
    });
    refusal.end(found);
}

async fn search(
    connection: ServerConnection,
    shared: Arc<HandleState>,
    own: OwnPublication,
    witnesses: Witnesses,
) -> Result<Option<String>, String> {
    let Witnesses { copy: Some(copy), holder } = witnesses else { return Ok(None) };
    let deadline = Instant::now() + SEARCH;
    let mut sides = vec![(copy, true)];
    sides.extend(holder.map(|holder| (holder, false)));
    let mut known = Vec::new();
    for (of, fenced) in sides {
        let names: Vec<_> = of.shards.iter().map(|shard| shard.layout).collect();
        let layouts = fetch_layouts(&connection, &shared, &names).await;
        known.push((of, layouts.map_err(|e| e.to_string())?, fenced));
    }
    let compared = tokio::task::spawn_blocking(move || {
        let mut notes = known.into_iter().map(|(of, layouts, fenced)| {
            ReplicaNotes::ask(&shared.routes, &own, of, layouts, fenced, deadline)
        });
        let copy = notes.next().expect("the first is the copy")?;
        if let Some(found) = copies_differ(&copy)? {
            return Ok(Some(found));
        }
        match notes.next() {
            Some(holder) => differs(&copy, &holder?),
            None => Ok(None),
        }
    });
    compared.await.map_err(|e| e.to_string())?
}

impl ReplicaNotes {
    /// Asks all shards of a replica for their notes.
    fn ask(
        routes: &Routes,
        own: &OwnPublication,
        of: Assignment,
        layouts: Vec<Arc<Layout>>,
        fenced: bool,
        deadline: Instant,
    ) -> Result<Self, String> {
        let group: Vec<&Layout> = layouts.iter().map(AsRef::as_ref).collect();
        let mut noted = Vec::with_capacity(group.len());
        for (shard, at) in of.shards.iter().enumerate() {
            let cells = cells(&group, shard);
            // The fence raised the generation: a fenced copy's note is served at the next
            // generation.
            let generation = at.generation.0 + u64::from(fenced);
            let id = ExportId(at.export.0).at(generation);
            let note = match at.export.0 == own.export.0 {
                true => own.note.clone(),
                false => note(routes, &at.data_address, id, generation, deadline)?,
            };
            let digests = manifest::decode_cells(&note, cells.len());
            let digests =
                digests.ok_or_else(|| format!("the note of shard {shard} makes no sense"))?;
            noted.push((cells, digests));
        }
        Ok(Self { name: of.replica, layouts, cells: noted })
    }

    fn summary(&self) -> Summary {
        let mut all = Summary::default();
        for (layout, (cells, digests)) in self.layouts.iter().zip(&self.cells) {
            all.add(Summary::of(layout, cells, digests));
        }
        all
    }

    /// The cells of a tensor that several shards hold: shard, box, digest.
    fn shared<'a>(
        &'a self,
        tensor: &'a Tensor,
    ) -> impl Iterator<Item = (usize, &'a Slice, Digest)> + 'a {
        let shards = self.layouts.iter().zip(&self.cells).enumerate();
        shards.flat_map(move |(shard, (layout, (cells, digests)))| {
            let of = cells.iter().zip(digests).filter(move |(cell, _)| {
                cell.copies > 1 && layout.tensor_of(cell.entry).name() == tensor.name()
            });
            of.map(move |(cell, digest)| (shard, &cell.slice, *digest))
        })
    }
}

/// The note of an export, once there is one.
fn note(
    routes: &Routes,
    address: &str,
    id: ExportId,
    generation: u64,
    deadline: Instant,
) -> Result<Vec<u8>, String> {
    as_soon_as_there(deadline, || {
        let peer = routes.peer(address, deadline)?;
        let note = peer.note(id, generation, deadline).map_err(|error| error.to_string());
        Ok(note.and_then(|note| note.ok_or_else(|| format!("the shard at {address} has no note"))))
    })
}

/// Asks until there is an answer: a shard that has not heard of the refusal yet has no note, or
/// does not serve it. An outer error ends the wait at once; an inner error is waited out.
fn as_soon_as_there<T>(
    deadline: Instant,
    mut ask: impl FnMut() -> Result<Result<T, String>, String>,
) -> Result<T, String> {
    loop {
        match ask()? {
            Ok(there) => return Ok(there),
            Err(error) if Instant::now() + AGAIN >= deadline => return Err(error),
            Err(_) => thread::sleep(AGAIN),
        }
    }
}

/// Which shards hold different copies of the same elements, if any do.
fn copies_differ(copy: &ReplicaNotes) -> Result<Option<String>, String> {
    let tensors = union(&copy.layouts).map_err(|e| e.to_string())?;
    let suspects = suspects(&tensors, &[copy.summary()]);
    let Some(first) = suspects.first() else { return Ok(None) };
    let held: Vec<_> = copy.shared(first).collect();
    let pair = held.iter().enumerate().find_map(|(at, one)| {
        let other = held[at..].iter().find(|other| other.1 == one.1 && other.2 != one.2)?;
        Some((one.0, other.0, one.1.to_string()))
    });
    let more = match suspects.len() - 1 {
        0 => String::new(),
        1 => " (and those of another tensor)".to_owned(),
        more => format!(" (and those of {more} other tensors)"),
    };
    Ok(Some(match pair {
        Some((one, other, slice)) => {
            format!(
                "the copies of {}{slice} on shards {one} and {other} differ{more}",
                first.name()
            )
        }
        // The boxes overlap without being equal, so no pair stands out: name all shards.
        None => {
            let mut shards: Vec<usize> = held.iter().map(|held| held.0).collect();
            shards.dedup();
            let shards: Vec<String> = shards.iter().map(usize::to_string).collect();
            format!("the copies of {} on shards {} differ{more}", first.name(), shards.join(", "))
        }
    }))
}

/// In which tensors a replica differs from a good one.
fn differs(copy: &ReplicaNotes, holder: &ReplicaNotes) -> Result<Option<String>, String> {
    let tensors = union(&copy.layouts).map_err(|e| e.to_string())?;
    let suspects = suspects(&tensors, &[copy.summary(), holder.summary()]);
    let names: Vec<&str> = suspects.iter().take(NAMED).map(Tensor::name).collect();
    if names.is_empty() {
        return Ok(None);
    }
    let more = match suspects.len() - names.len() {
        0 => String::new(),
        more => format!(" and {more} more tensors"),
    };
    Ok(Some(format!("{}{more} differ from what {} holds", names.join(", "), holder.name)))
}

#[cfg(test)]
mod tests;
