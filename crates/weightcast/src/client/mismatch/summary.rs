//! Sums of what a replica's shards hold together, tensor by tensor: a few numbers, whatever the
//! layout.

use std::collections::BTreeMap;

use weightcast_plan::{Cell, Layout, Tensor};
use weightcast_protocol::{ShardSums, Sum};
use weightcast_transport::Digest;

/// Sums of one tensor over some shards of one replica: [`ShardSums`] before they are folded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TensorSums {
    /// Over the elements that these shards count: over a replica, all of them once.
    counted: Digest,
    /// Over all that they hold.
    held: Digest,
    /// Over the counted elements, each times the number of shards that hold it.
    expected: Digest,
    /// How many elements they count.
    elements: u64,
}

impl TensorSums {
    /// Whether, over a whole replica, all further copies equal the counted ones.
    fn copies_agree(&self) -> bool {
        self.held == self.expected
    }
}

/// All tensors of some shards of one replica, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary(BTreeMap<String, TensorSums>);

impl Summary {
    /// The summary of one shard; `cells` are the shard's own, as [`weightcast_plan::cells`] made
    /// them, with their digests.
    pub(crate) fn of(layout: &Layout, cells: &[Cell], digests: &[Digest]) -> Self {
        let mut tensors = BTreeMap::<String, TensorSums>::new();
        for (cell, digest) in cells.iter().zip(digests) {
            let name = layout.tensor_of(cell.entry).name();
            if !tensors.contains_key(name) {
                tensors.insert(name.to_owned(), TensorSums::default());
            }
            let sums = tensors.get_mut(name).expect("put there just now");
            sums.held += *digest;
            if cell.counted {
                sums.counted += *digest;
                sums.expected += digest.scale(u64::from(cell.copies));
                sums.elements += cell.slice.volume();
            }
        }
        Self(tensors)
    }

    /// Adds the summary of another shard.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, sums) in other.0 {
            let all = self.0.entry(name).or_default();
            all.counted += sums.counted;
            all.held += sums.held;
            all.expected += sums.expected;
            all.elements += sums.elements;
        }
    }

    /// The sums of the whole replica, as the server compares them.
    pub(crate) fn folded(&self, tensors: &BTreeMap<String, Tensor>) -> ShardSums {
        let mut all = ShardSums::default();
        for (name, sums) in &self.0 {
            let key = tensors[name].key();
            let [counted, held, expected] =
                [sums.counted, sums.held, sums.expected].map(|digest| Sum(digest.mul(key).0));
            all = all + ShardSums { counted, held, expected };
        }
        all
    }

    fn get(&self, name: &str) -> TensorSums {
        self.0.get(name).copied().unwrap_or_default()
    }
}

/// The tensors that are not the same everywhere: between replicas, or between the copies of one.
pub(crate) fn suspects(tensors: &BTreeMap<String, Tensor>, of: &[Summary]) -> Vec<Tensor> {
    chosen(tensors, of, |_, sums| {
        sums.iter().any(|other| !other.copies_agree() || other.counted != sums[0].counted)
    })
}

/// The tensors that some replica does not hold whole. An element that nobody holds counts as zero,
/// so the sums say nothing of it.
pub(crate) fn partial(tensors: &BTreeMap<String, Tensor>, of: &[Summary]) -> Vec<Tensor> {
    chosen(tensors, of, |tensor, sums| {
        let whole: u64 = tensor.shape().iter().product();
        sums.iter().any(|sums| sums.elements != whole)
    })
}

fn chosen(
    tensors: &BTreeMap<String, Tensor>,
    of: &[Summary],
    choose: impl Fn(&Tensor, &[TensorSums]) -> bool,
) -> Vec<Tensor> {
    let chosen = tensors.values().filter(|tensor| {
        let sums: Vec<TensorSums> = of.iter().map(|all| all.get(tensor.name())).collect();
        choose(tensor, &sums)
    });
    chosen.cloned().collect()
}
