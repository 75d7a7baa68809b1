//! The transfers of the benches: which tensors are moved, from which layouts into which.

use anyhow::Result;
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use weightcast::plan::Layout;
use weightcast::transport::bench::Slices;

use super::layouts;
use super::qwen::Qwen;

const MIB: u64 = 1 << 20;

/// A case, or a family of cases, as the command line names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum CaseName {
    /// Time to publish 1 MiB and 4 GiB
    Publish,
    /// Qwen2.5-0.5B's 290 tensors, from one shard into one with an equal layout
    #[value(name = "qwen2.5-0.5b")]
    Qwen,
    /// The same, from 2 FSDP shards into 2 tensor-parallel ones with fused QKV and gate-up
    #[value(name = "qwen2.5-0.5b-reshard")]
    QwenReshard,
    /// The same, from one shard into one that has fused QKV and gate-up
    #[value(name = "qwen2.5-0.5b-fuse")]
    QwenFuse,
    /// The same, from one shard into one that has the slices of 2 tensor-parallel ranks
    #[value(name = "qwen2.5-0.5b-slice")]
    QwenSlice,
    /// 5,000 tensors of 4 KiB
    Tiny,
    /// One tensor of 2 GiB
    One,
    /// 40 tensors of 25 MiB of which 36 are frozen, beside an update that changes all of them
    Frozen,
    /// One tensor of each size of --sizes
    Sweep,
}

/// The published tensors of a case.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum CaseModel {
    Qwen(Qwen),
    /// Equal tensors of this many bytes each.
    Even {
        tensors: u64,
        bytes: u64,
    },
}

/// How the reader's layout differs from the publisher's.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
enum LayoutPair {
    /// Equal layouts, one shard each.
    Equal,
    /// From 2 shards by rows into 2 tensor-parallel shards.
    Resharded,
    /// One shard each, projections fused.
    Fused,
    /// One shard each, with the slices of two tensor-parallel ranks.
    Sliced,
}

/// One transfer. Every process computes the same layouts from this value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TransferCase {
    pub(crate) name: String,
    model: CaseModel,
    layouts: LayoutPair,
    /// Whether every second version changes only a tenth of the one before.
    pub(crate) freezes: bool,
    /// The promises that the transfer has to keep.
    pub(crate) floors: Floors,
}

/// What is promised of the full stack; `None` where nothing is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Floors {
    /// Shared memory: share of the speed of the bare loop that copies and digests, with two threads.
    pub(crate) shared: Option<f64>,
    /// Shared memory: share of the speed of the faster of two ways to copy without digests.
    pub(crate) shared_of_memcpy: Option<f64>,
    /// Direct reads: share of the speed of bare `process_vm_readv` with two threads.
    pub(crate) direct: Option<f64>,
    /// TCP: share of the speed of raw sockets, in the fastest of a few shapes.
    pub(crate) tcp: Option<f64>,
    /// TCP: share of the speed of the same sockets with a digest at both ends.
    pub(crate) tcp_digested: Option<f64>,
    /// Most seconds of an update by shared memory.
    pub(crate) shared_seconds: Option<f64>,
    /// Most seconds of an update by either other way.
    pub(crate) seconds: Option<f64>,
}

/// The promises for whole models, whatever the layouts.
const WHOLE: Floors = Floors {
    shared: Some(0.95),
    shared_of_memcpy: Some(0.82),
    direct: Some(0.8),
    tcp: Some(0.9),
    tcp_digested: Some(1.0),
    shared_seconds: None,
    seconds: None,
};
/// The promises for thousands of tiny tensors.
const TINY: Floors = Floors {
    shared: None,
    shared_of_memcpy: None,
    direct: None,
    tcp: None,
    tcp_digested: None,
    shared_seconds: Some(0.005),
    seconds: Some(0.015),
};

impl TransferCase {
    /// The transfers of a name; `sizes` are the sweep's, in MiB.
    pub(crate) fn of(name: CaseName, quick: bool, sizes: &[u64]) -> Vec<TransferCase> {
        let qwen = CaseModel::Qwen(if quick { Qwen::QUICK } else { Qwen::FULL });
        match name {
            CaseName::Publish => Vec::new(),
            CaseName::Qwen => vec![TransferCase::new("qwen2.5-0.5b", qwen, WHOLE)],
            CaseName::QwenReshard => {
                let case = TransferCase::new("qwen2.5-0.5b-reshard", qwen, WHOLE);
                vec![TransferCase { layouts: LayoutPair::Resharded, ..case }]
            }
            CaseName::QwenFuse => {
                let case = TransferCase::new("qwen2.5-0.5b-fuse", qwen, WHOLE);
                vec![TransferCase { layouts: LayoutPair::Fused, ..case }]
            }
            CaseName::QwenSlice => {
                let case = TransferCase::new("qwen2.5-0.5b-slice", qwen, WHOLE);
                vec![TransferCase { layouts: LayoutPair::Sliced, ..case }]
            }
            CaseName::Tiny => {
                vec![TransferCase::new(
                    "tiny",
                    CaseModel::Even { tensors: 5_000, bytes: 4 << 10 },
                    TINY,
                )]
            }
            CaseName::One => {
                let bytes = if quick { 64 * MIB } else { 2048 * MIB };
                vec![TransferCase::new("one", CaseModel::Even { tensors: 1, bytes }, WHOLE)]
            }
            CaseName::Frozen => {
                let bytes = if quick { MIB } else { 25 * MIB };
                let model = CaseModel::Even { tensors: 40, bytes };
                let case = TransferCase::new("frozen", model, Floors::default());
                vec![TransferCase { freezes: true, ..case }]
            }
            CaseName::Sweep => sizes.iter().map(|mib| TransferCase::even(1, mib * MIB)).collect(),
        }
    }

    /// Equal tensors of `bytes` bytes in all, without a promise.
    pub(crate) fn even(tensors: u64, bytes: u64) -> TransferCase {
        let name = format!("{}MiB", bytes / MIB);
        let model = CaseModel::Even { tensors, bytes: bytes / tensors };
        TransferCase::new(&name, model, Floors::default())
    }

    fn new(name: &str, model: CaseModel, floors: Floors) -> TransferCase {
        let (name, layouts) = (name.to_owned(), LayoutPair::Equal);
        TransferCase { name, model, layouts, freezes: false, floors }
    }

    fn tensors(&self) -> Vec<(String, Vec<u64>)> {
        match self.model {
            CaseModel::Qwen(qwen) => qwen.tensors(),
            CaseModel::Even { tensors, bytes } => layouts::even(tensors, bytes),
        }
    }

    /// Number of published tensors.
    pub(crate) fn tensor_count(&self) -> usize {
        self.tensors().len()
    }

    /// The column slices that a sliced reader takes, if the case is sliced. Only the down
    /// projections count: the rows of the attention's output are few beside them.
    pub(crate) fn slices(&self) -> Option<Slices> {
        let (CaseModel::Qwen(qwen), LayoutPair::Sliced) = (self.model, self.layouts) else {
            return None;
        };
        Some(qwen.slices())
    }

    /// The publisher's layouts, shard by shard.
    pub(crate) fn sources(&self) -> Result<Vec<Layout>> {
        let tensors = self.tensors();
        let shards = if self.layouts == LayoutPair::Resharded { 2 } else { 1 };
        (0..shards).map(|shard| layouts::rows(&tensors, shard, shards, 0)).collect()
    }

    /// The reader's layouts, shard by shard.
    pub(crate) fn targets(&self) -> Result<Vec<Layout>> {
        match (self.model, self.layouts) {
            (CaseModel::Qwen(qwen), LayoutPair::Resharded) => {
                (0..2).map(|rank| layouts::tensor_parallel(&qwen, rank..rank + 1, 2)).collect()
            }
            (CaseModel::Qwen(qwen), LayoutPair::Fused) => {
                Ok(vec![layouts::tensor_parallel(&qwen, 0..1, 1)?])
            }
            (CaseModel::Qwen(qwen), LayoutPair::Sliced) => {
                Ok(vec![layouts::tensor_parallel(&qwen, 0..2, 2)?])
            }
            _ => Ok(vec![layouts::rows(&self.tensors(), 0, 1, 0)?]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Across layouts no less is promised than between equal ones.
    #[test]
    fn all_whole_models_have_the_same_promises() {
        let promised = |name| TransferCase::of(name, true, &[])[0].floors;
        for name in [
            CaseName::Qwen,
            CaseName::QwenReshard,
            CaseName::QwenFuse,
            CaseName::QwenSlice,
            CaseName::One,
        ] {
            let of = promised(name);
            let shared = (of.shared, of.shared_of_memcpy);
            assert_eq!(shared, (Some(0.95), Some(0.82)), "{name:?}");
            let others = (of.direct, of.tcp, of.tcp_digested);
            assert_eq!(others, (Some(0.8), Some(0.9), Some(1.0)), "{name:?}");
            assert_eq!((of.shared_seconds, of.seconds), (None, None), "{name:?}");
        }
        let tiny =
            Floors { shared_seconds: Some(0.005), seconds: Some(0.015), ..Floors::default() };
        assert_eq!(promised(CaseName::Tiny), tiny);
        assert_eq!(promised(CaseName::Frozen), Floors::default());
        assert_eq!(TransferCase::of(CaseName::Sweep, true, &[1])[0].floors, Floors::default());
    }

    /// Names, tensors and bytes as the command line says them.
    #[test]
    fn cases_are_what_they_are_called() {
        for (tensors, mib) in [(1, 1), (32, 64), (4, 3)] {
            let case = TransferCase::even(tensors, mib << 20);
            assert_eq!(case.name, format!("{mib}MiB"));
            assert_eq!(case.tensor_count() as u64, tensors);
            assert_eq!(case.sources().unwrap()[0].bytes(), mib << 20);
        }
        let buffers = |name| {
            let case = TransferCase::of(name, true, &[]).swap_remove(0);
            case.targets().unwrap()[0].buffers().len()
        };
        // Fusing makes one buffer of three projections, one of two, and one of three biases: five
        // fewer a layer.
        assert_eq!(buffers(CaseName::Qwen) - buffers(CaseName::QwenFuse), 2 * 5);
        let sliced = TransferCase::of(CaseName::QwenSlice, false, &[]).swap_remove(0);
        let slices = sliced.slices().unwrap();
        assert_eq!((slices.bytes, slices.row), (24 * 896 * 4864 * 2, 4864));
    }

    #[test]
    fn qwen_has_its_real_size() {
        let case = &TransferCase::of(CaseName::Qwen, false, &[])[0];
        assert_eq!(case.tensor_count(), 290);
        // 494,032,768 parameters of two bytes.
        assert_eq!(case.sources().unwrap()[0].bytes(), 988_065_536);
        assert_eq!(case.targets().unwrap()[0].bytes(), 988_065_536);
    }

    #[test]
    fn a_resharded_case_publishes_every_byte_once() {
        let case = &TransferCase::of(CaseName::QwenReshard, true, &[])[0];
        let whole = TransferCase::of(CaseName::Qwen, true, &[])[0].sources().unwrap()[0].bytes();
        let published: u64 = case.sources().unwrap().iter().map(Layout::bytes).sum();
        assert_eq!(published, whole);
        // Both ranks hold the five norms.
        let held: u64 = case.targets().unwrap().iter().map(Layout::bytes).sum();
        assert_eq!(held, whole + 5 * 896 * 2);
    }

    #[test]
    fn fused_and_sliced_ones_hold_every_byte_once() {
        for name in [CaseName::QwenFuse, CaseName::QwenSlice] {
            let case = &TransferCase::of(name, false, &[])[0];
            assert_eq!(case.sources().unwrap()[0].bytes(), 988_065_536);
            assert_eq!(case.targets().unwrap()[0].bytes(), 988_065_536);
        }
    }

    #[test]
    fn a_sweep_has_one_case_per_size() {
        let cases = TransferCase::of(CaseName::Sweep, false, &[1, 3]);
        let sizes: Vec<u64> = cases.iter().map(|c| c.sources().unwrap()[0].bytes()).collect();
        assert_eq!(sizes, [1 << 20, 3 << 20]);
    }
}
