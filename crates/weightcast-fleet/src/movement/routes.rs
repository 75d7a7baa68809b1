//! Routes: every copy that a target rank is filled by.

use weightcast_plan::Slice;

use super::cells::{cut, groups};
use super::holders::{HeldBox, Holders};
use super::sources_of;
use super::unlike::Unlike;
use crate::cluster::Cluster;
use crate::error::RuleError;
use crate::model::fill;
use crate::record::{ParameterPiece, Record};

/// A box of a tensor, from a source rank into a parameter of a target rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RankRoute {
    /// The published name.
    pub tensor: String,
    /// The box, in elements of the published tensor.
    pub slice: Slice,
    /// Bytes, in the target's type.
    pub bytes: u64,
    /// The rank of one engine.
    pub target: u32,
    /// Its parameter, where the piece that this is part of starts in it, and the local expert.
    pub parameter: String,
    /// See `parameter`.
    pub target_start: u64,
    /// See `parameter`.
    pub expert: Option<u64>,
    /// The rank that gives it: of those that hold it, the one with the least bytes so far.
    pub source: u32,
    /// All that hold it.
    pub sources: Vec<u32>,
}

/// The routes to a target rank, or to all; of a tensor, or of all.
///
/// Errors as a layout's; what no source holds has no route.
pub fn routes(
    source: &Cluster,
    target: &Cluster,
    rank: Option<u64>,
    tensor: Option<&str>,
) -> Result<Vec<RankRoute>, RuleError> {
    let (source, target) = &Cluster::alike(source, target)?;
    let holders = Holders::of(source)?.with_tied(source);
    let ranks = rank.map_or(0..target.ranks(), |rank| rank..rank + 1);
    let unlike = Unlike::of(source, target).shapes;
    let mut sent = vec![0u64; holders.ranks as usize];
    let mut routes = Vec::new();
    for rank in ranks {
        for record in &target.layout(rank)?.records {
            for piece in record.pieces.iter().filter(|piece| !unlike.contains(&piece.tensor)) {
                let made = sources_of(&holders, target, &piece.tensor);
                for layer in layers(record, piece, tensor) {
                    let here = (rank as u32, record, piece, layer);
                    of_piece(here, &made, &mut sent, &mut routes);
                }
            }
        }
    }
    Ok(routes)
}

/// The layers of a record in which the piece is of this tensor.
fn layers(record: &Record, piece: &ParameterPiece, tensor: Option<&str>) -> Vec<Option<u64>> {
    let all: Vec<Option<u64>> = match record.layers {
        None => vec![None],
        Some((first, last)) => (first..=last).map(Some).collect(),
    };
    let wanted = |layer: &Option<u64>| {
        tensor.is_none_or(|name| name == piece.tensor || fill(&piece.tensor, *layer, None) == name)
    };
    all.into_iter().filter(wanted).collect()
}

fn of_piece(
    (rank, record, piece, layer): (u32, &Record, &ParameterPiece, Option<u64>),
    made: &[HeldBox],
    sent: &mut [u64],
    routes: &mut Vec<RankRoute>,
) {
    let here = made.iter().filter(|held| held.is_in(layer));
    let groups = groups(here.map(|held| (held.rank, &held.slice)));
    for (slice, group) in cut(&piece.slice, &groups).0 {
        let sources = groups[group].ranks.clone();
        let turn = rank as usize % sources.len();
        let order = sources[turn..].iter().chain(&sources[..turn]);
        let Some(&source) = order.min_by_key(|&&source| sent[source as usize]) else { continue };
        let bytes = slice.volume() * record.dtype.bits() / 8;
        sent[source as usize] += bytes;
        routes.push(RankRoute {
            tensor: fill(&piece.tensor, layer, None),
            slice,
            bytes,
            target: rank,
            parameter: fill(&record.name, layer, None),
            target_start: piece.target_start,
            expert: piece.target_index,
            source,
            sources,
        });
    }
}
