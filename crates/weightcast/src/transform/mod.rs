//! A shard's memory in another representation: cast or quantised as it is read, never stored.
//!
//! [`weightcast_plan::transform`] says what comes from where. Here [`amax`] looks at the weights once
//! before they are published, and [`maker`] makes the bytes that a reader, or a digest, asks for:
//! a megabyte at a time for each connection, whatever the model's size.

mod amax;
mod maker;

use std::sync::{Arc, OnceLock};

use weightcast_plan::DType;
use weightcast_plan::Layout;
use weightcast_plan::quantise::Scale;
use weightcast_plan::transform::{Backing, Grid, Representation, Rules, Shared, SharedBlocks};
use weightcast_transport::Region;

use crate::error::Error;
use maker::Maker;

/// Takes the largest of each number over all shards of the group, in place: an all-reduce with
/// `max`. All shards call it with as many numbers, in the same order. The numbers are the bits of
/// magnitudes: as integers they have the order of the floats.
pub type Exchange<'a> = dyn FnMut(&mut [i32]) -> Result<(), Error> + Send + 'a;

/// One shard's memory as another representation of it.
///
/// The weights are the caller's and stay where they are; codes and casts are made from them when
/// they are read. [`Transformed::refresh`] must see each new content before it is published.
pub struct Transformed {
    layout: Layout,
    regions: Vec<Region>,
    source: (Layout, Vec<Region>),
    rules: Rules,
    maker: Arc<Maker>,
    scales: Option<Region>,
    shared: OnceLock<(usize, Vec<SharedBlocks>)>,
}

impl Transformed {
    /// The representation of `regions`, which `layout` describes, by these rules.
    ///
    /// # Errors
    /// A tensor that a rule cannot be applied to; no memory for the scales.
    pub fn new(layout: &Layout, regions: &[Region], rules: Rules) -> Result<Self, Error> {
        let source = (layout.clone(), regions.to_vec());
        let Representation { layout, memory, pieces, grids } = Representation::new(layout, &rules)?;
        let maker = Arc::new(Maker::new(pieces, grids, regions.to_vec()));
        let mut scales = None;
        let mut region_of = |(memory, bytes): (&Backing, &u64)| match memory {
            Backing::Kept(number) => Ok(regions[*number as usize].clone()),
            Backing::Made => Ok(Region::computed(*bytes as usize, Arc::clone(&maker) as _)),
            Backing::Scales => {
                let region = Region::allocate(*bytes as usize)
                    .map_err(|error| Error::io("allocate memory for the scales", error))?;
                scales = Some(region.clone());
                Ok(region.read_only())
            }
        };
        let made = memory.iter().zip(layout.buffers()).map(&mut region_of);
        let regions = made.collect::<Result<Vec<_>, Error>>()?;
        Ok(Self { layout, regions, source, rules, maker, scales, shared: OnceLock::new() })
    }

    /// The layout that is published.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The memory of each buffer of the published layout.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// The layout of the weights that the representation is made of, and their memory.
    pub fn source(&self) -> (&Layout, &[Region]) {
        (&self.source.0, &self.source.1)
    }

    /// Learns which blocks other shards of the group hold parts of. Until then, no block counts as
    /// shared.
    ///
    /// # Errors
    /// A rule names a tensor that no shard has. All shards find the same.
    pub fn join(&self, group: &[Arc<Layout>]) -> Result<(), Error> {
        let layouts: Vec<&Layout> = group.iter().map(Arc::as_ref).collect();
        let names = layouts.iter().flat_map(|layout| layout.tensors()).map(|tensor| tensor.name());
        if let [pattern, ..] = self.rules.unused(names.clone())[..] {
            let example = names.min().unwrap_or("none");
            return Err(Error::misuse(format!(
                "no tensor of the group is called {pattern:?}, which is to be cast or quantised; they \
                 are called {example}, say"
            )));
        }
        let shared = Shared::new(&layouts, &self.rules);
        let _ = self.shared.set((shared.len(), shared.overlaps(&self.maker.grids)));
        Ok(())
    }

    /// How many largest magnitudes are exchanged with the group before each publication.
    pub fn exchanged(&self) -> usize {
        self.shared.get().map_or(0, |shared| shared.0)
    }

    /// Makes the scales of the weights as they are now. Nobody may be reading.
    ///
    /// # Errors
    /// The exchange fails; or blocks are shared and there is no exchange. The scales are then of no
    /// use.
    pub fn refresh(
        &self,
        threads: usize,
        exchange: Option<&mut Exchange<'_>>,
    ) -> Result<(), Error> {
        let table = amax::table(&self.maker, threads);
        if let Some((len, overlaps)) = self.shared.get().filter(|shared| shared.0 > 0) {
            let exchange = exchange.ok_or_else(|| {
                Error::misuse(format!(
                    "{len} FP8 blocks lie with several shards, whose largest magnitudes must be \
                     exchanged: publish with an exchange (an all-reduce with max), or cut the \
                     weights at blocks"
                ))
            })?;
            let mut seen = vec![0; *len];
            for SharedBlocks { at, table: first, len } in overlaps {
                for (number, amax) in seen[*at..at + len].iter_mut().zip(&table[*first..]) {
                    *number = amax.to_bits().cast_signed();
                }
            }
            exchange(&mut seen)?;
            return self.set(table, &seen, overlaps);
        }
        self.set(table, &[], &[])
    }

    /// Takes the group's magnitudes of shared blocks into the table, and makes the scales.
    fn set(
        &self,
        mut table: Vec<f32>,
        seen: &[i32],
        overlaps: &[SharedBlocks],
    ) -> Result<(), Error> {
        for SharedBlocks { at, table: first, len } in overlaps {
            for (amax, number) in table[*first..].iter_mut().zip(&seen[*at..at + len]) {
                *amax = f32::from_bits(number.cast_unsigned());
            }
        }
        let mut all = Vec::with_capacity(table.len());
        for grid in &self.maker.grids {
            let amaxes = &table[grid.first..grid.first + grid.within.volume() as usize];
            let scales: Vec<Scale> = amaxes.iter().map(|&amax| grid.formula.scale(amax)).collect();
            if let Some(region) = &self.scales {
                let bytes = stored(grid, &scales);
                region.write_at(grid.scales_at as usize, &bytes).expect("as long as the grids");
            }
            all.extend(scales);
        }
        self.maker.set_scales(all);
        Ok(())
    }
}

/// A grid's scales as they are published.
fn stored(grid: &Grid, scales: &[Scale]) -> Vec<u8> {
    match grid.scales {
        // A power of two: its exponent is all of it.
        DType::F8E8M0 => scales.iter().map(|s| (s.stored.to_bits() >> 23) as u8).collect(),
        _ => scales.iter().flat_map(|s| s.stored.to_le_bytes()).collect(),
    }
}
