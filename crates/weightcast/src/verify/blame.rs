//! Tells which shards no longer hold what was sealed, by the notes that they made then.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_plan::{Slice, Tensor};

use super::asker::Asker;
use super::atoms::HeldEntry;
use super::comparison::MAX_RANGES;
use super::meet::ComparedReplica;
use super::search::{Found, Question};
use super::verdict::{Difference, DifferentRange, HeldBy};
use crate::error::Error;

/// For entries of which there is a note: whether they are as they were.
type AsSealed = BTreeMap<HeldEntry, bool>;

/// The places found in the suspects, at most [`MAX_RANGES`] of each, and which shards are to blame.
pub(super) fn differences(
    asker: &Asker<'_>,
    suspects: &[Tensor],
    found: &[Found],
) -> Result<Vec<Difference>, Error> {
    let mut told: Vec<(&Tensor, Vec<&Found>, u64)> = Vec::new();
    for (number, tensor) in suspects.iter().enumerate() {
        let places: Vec<&Found> = found.iter().filter(|place| place.tensor == number).collect();
        let more = places.len().saturating_sub(MAX_RANGES);
        if !places.is_empty() {
            told.push((tensor, places.into_iter().take(MAX_RANGES).collect(), more as u64));
        }
    }
    let held = told.iter().flat_map(|(_, places, _)| places);
    let held = held.flat_map(|place| place.readings.iter().flatten().copied());
    let sealed = as_sealed(asker, &held.collect())?;
    let range = |place: &&Found| DifferentRange {
        slice: ends(&place.slice),
        exact: place.exact,
        moving: place.moving,
        readings: place
            .readings
            .iter()
            .map(|same| same.iter().map(|held| held_by(asker, held, &sealed)).collect())
            .collect(),
    };
    let difference = |(tensor, places, more): &(&Tensor, Vec<&Found>, u64)| {
        difference(tensor, places.iter().map(range).collect(), *more)
    };
    Ok(told.iter().map(difference).collect())
}

/// All entries of all shards that are no longer what was sealed, tensor by tensor.
pub(super) fn unsealed(
    replicas: &[ComparedReplica],
    asker: &Asker<'_>,
) -> Result<Vec<Difference>, Error> {
    let shards = asker.shards.iter().enumerate();
    let held = shards.flat_map(|(holder, shard)| {
        (0..shard.layout.entries().len() as u32).map(move |entry| HeldEntry { holder, entry })
    });
    let sealed = as_sealed(asker, &held.collect())?;
    let mut of: BTreeMap<&str, Vec<DifferentRange>> = BTreeMap::new();
    for held in sealed.iter().filter(|(_, as_it_was)| !**as_it_was).map(|(held, _)| held) {
        let layout = &asker.shards[held.holder].layout;
        let slice = ends(&layout.entry(held.entry).slice);
        let readings = vec![vec![held_by(asker, held, &sealed)]];
        let range = DifferentRange { slice, exact: false, moving: false, readings };
        of.entry(layout.tensor_of(held.entry).name()).or_default().push(range);
    }
    let difference = |(name, ranges): (&str, Vec<DifferentRange>)| {
        let (named, more) = first_of(ranges);
        difference(&replicas[0].tensors[name], named, more)
    };
    Ok(of.into_iter().map(difference).collect())
}

/// The ranges that are named, and how many there are besides.
fn first_of<T>(mut ranges: Vec<T>) -> (Vec<T>, u64) {
    let more = ranges.len().saturating_sub(MAX_RANGES) as u64;
    ranges.truncate(MAX_RANGES);
    (ranges, more)
}

/// Compares what entries hold with what was noted of them.
fn as_sealed(asker: &Asker<'_>, held: &BTreeSet<HeldEntry>) -> Result<AsSealed, Error> {
    let mut of: BTreeMap<usize, Vec<HeldEntry>> = BTreeMap::new();
    held.iter().for_each(|held| of.entry(held.holder).or_default().push(*held));
    let of: Vec<_> = of.into_iter().collect();
    let notes = asker.each(&of, |(holder, _)| asker.note(*holder))?;
    let (mut questions, mut noted) = (Vec::new(), Vec::new());
    for ((holder, held), note) in of.into_iter().zip(notes) {
        let Some(note) = note else { continue };
        for held in held {
            let slice = asker.shards[holder].layout.entry(held.entry).slice;
            questions.push(Question { held, slice });
            noted.push(note[held.entry as usize]);
        }
    }
    let now = asker.answers(&questions)?;
    let same = now.into_iter().zip(noted).map(|(now, then)| now == then);
    Ok(questions.into_iter().map(|question| question.held).zip(same).collect())
}

fn difference(tensor: &Tensor, ranges: Vec<DifferentRange>, more_ranges: u64) -> Difference {
    Difference {
        tensor: tensor.name().to_owned(),
        dtype: tensor.dtype().name(),
        shape: tensor.shape().to_vec(),
        ranges,
        more_ranges,
    }
}

fn held_by(asker: &Asker<'_>, held: &HeldEntry, sealed: &AsSealed) -> HeldBy {
    let shard = &asker.shards[held.holder];
    HeldBy {
        replica: shard.replica.clone(),
        shard: shard.number,
        address: shard.at.data_address.clone(),
        as_published: sealed.get(held).copied(),
    }
}

fn ends(slice: &Slice) -> Vec<(u64, u64)> {
    (0..slice.ndim()).map(|dim| (slice.start[dim], slice.end(dim))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_fit_are_named_and_the_others_counted() {
        for (there, more) in
            [(0, 0), (1, 0), (MAX_RANGES, 0), (MAX_RANGES + 1, 1), (5 * MAX_RANGES, 64)]
        {
            let (named, besides) = first_of((0..there).collect());
            assert_eq!((named.len(), besides), (there.min(MAX_RANGES), more));
            assert!(named.into_iter().eq(0..there.min(MAX_RANGES)));
        }
    }
}
