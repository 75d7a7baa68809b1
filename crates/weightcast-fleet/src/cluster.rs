//! One side of a transfer: a model on all ranks of a spec, or what all ranks hold by a file.

use std::borrow::Cow;

use weightcast_plan::{DType, Tensor};

use crate::error::RuleError;
use crate::file::{LayoutFile, LayoutFileError, ListedBox, ListedRank};
use crate::model::{Family, ModelSpec, ModuleTensor, Quantisation, TensorRole};
use crate::record::{ParameterPiece, RankLayout, Record};
use crate::spec::{Quantise, Side, Spec};

/// Elements along each side of a block where neither spec nor config says.
const BLOCK: u64 = 128;

/// Most ranks of a side: more than any job has.
pub(crate) const MOST_RANKS: u64 = 65_536;

/// What all ranks of a side hold.
#[derive(Debug, Clone)]
pub struct Cluster(ClusterForm);

/// How it is known what ranks hold.
#[derive(Debug, Clone)]
enum ClusterForm {
    /// A model on the ranks of a spec, quantised as that says.
    Rule { model: Box<ModelSpec>, side: Side },
    /// Every rank by itself, without families of layers.
    ListedRanks(ListedRanks),
}

/// What each rank holds, tensor by tensor.
#[derive(Debug, Clone)]
struct ListedRanks {
    families: Vec<Family>,
    quantisation: Option<Quantisation>,
    layouts: Vec<RankLayout>,
    /// Further names for what each rank has: tied weights.
    tied: Vec<Vec<Record>>,
    /// Whether a file says so, so that what arrives has exactly these types.
    read: bool,
}

impl Cluster {
    /// The model as the spec's ranks hold it. A trainer's checkpoint is never quantised.
    pub fn new(model: &ModelSpec, spec: &Spec) -> Result<Cluster, RuleError> {
        let cluster =
            |model| Cluster(ClusterForm::Rule { model: Box::new(model), side: spec.side.clone() });
        let ranks = cluster(model.clone()).ranks();
        if ranks > MOST_RANKS {
            let what = format!("{spec} has {ranks} ranks; at most {MOST_RANKS} are supported");
            return Err(RuleError::Degrees { what });
        }
        let draft = match &spec.side {
            Side::Engine(engine) => engine.draft,
            Side::Trainer(trainer) => trainer.draft,
        };
        if draft && model.unruled_drafts {
            let model_type = &model.model_type;
            let what = format!("no rule lays out the draft layers of {model_type}; leave out mtp");
            return Err(RuleError::Degrees { what });
        }
        let model = match spec.quantise {
            Quantise::AsConfigured => model.clone(),
            Quantise::Never => model.quantised(None)?,
            Quantise::Fp8 { .. } if !model.fp8 => {
                let model_type = &model.model_type;
                let what = format!(
                    "no rule lays out {model_type} in FP8 blocks; leave out quant and block"
                );
                return Err(RuleError::Degrees { what });
            }
            Quantise::Fp8 { block } => {
                let configured = model.quantisation.clone();
                let mut quantisation = configured.unwrap_or_else(|| Quantisation::fp8(BLOCK));
                if let Some(block) = block {
                    quantisation.block = (block, block);
                }
                model.quantised(Some(quantisation))?
            }
        };
        Ok(cluster(model))
    }

    /// What the ranks of a file hold.
    pub fn of_file(file: &LayoutFile) -> Result<Cluster, LayoutFileError> {
        let tensors = file.tensors()?;
        let layouts = file.ranks.iter().map(|rank| rank_layout(rank, &tensors)).collect();
        let tied = file.ranks.iter().map(|rank| records(&rank.tied, &tensors)).collect();
        let families = tensors.iter().map(family).collect();
        Ok(Cluster(ClusterForm::ListedRanks(ListedRanks {
            families,
            quantisation: None,
            layouts,
            tied,
            read: true,
        })))
    }

    /// The model, quantised as the ranks hold it; none where a file says what they hold.
    pub fn model(&self) -> Option<&ModelSpec> {
        match &self.0 {
            ClusterForm::Rule { model, .. } => Some(model),
            ClusterForm::ListedRanks(_) => None,
        }
    }

    /// What is published.
    pub fn families(&self) -> &[Family] {
        match &self.0 {
            ClusterForm::Rule { model, .. } => &model.families,
            ClusterForm::ListedRanks(ranks) => &ranks.families,
        }
    }

    /// How weights are quantised of which sources make the scales; none in a file, which lists them.
    pub fn quantisation(&self) -> Option<&Quantisation> {
        match &self.0 {
            ClusterForm::Rule { model, .. } => model.quantisation.as_ref(),
            ClusterForm::ListedRanks(ranks) => ranks.quantisation.as_ref(),
        }
    }

    /// Whether a file says what the ranks hold.
    pub fn is_read(&self) -> bool {
        matches!(&self.0, ClusterForm::ListedRanks(ListedRanks { read: true, .. }))
    }

    /// Number of ranks.
    pub fn ranks(&self) -> u64 {
        match &self.0 {
            ClusterForm::Rule { side: Side::Engine(engine), .. } => engine.ranks(),
            ClusterForm::Rule { side: Side::Trainer(trainer), .. } => trainer.ranks(),
            ClusterForm::ListedRanks(ranks) => ranks.layouts.len() as u64,
        }
    }

    /// The name of what all ranks hold: 16 bytes of BLAKE3 over their records as
    /// `weightcast layout --json` prints them, in hexadecimal.
    pub fn digest(&self) -> Result<String, RuleError> {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast cluster 1");
        for rank in 0..self.ranks() {
            let layout = self.layout(rank)?;
            let records = serde_json::to_vec(&layout).expect("plain data has a JSON form");
            hasher.update(&(records.len() as u64).to_le_bytes()).update(&records);
        }
        Ok(hasher.finalize().to_hex()[..32].to_owned())
    }

    /// What a rank holds.
    pub fn layout(&self, rank: u64) -> Result<RankLayout, RuleError> {
        match &self.0 {
            ClusterForm::Rule { model, side: Side::Engine(engine) } => engine.layout(model, rank),
            ClusterForm::Rule { model, side: Side::Trainer(trainer) } => {
                trainer.layout(model, rank)
            }
            ClusterForm::ListedRanks(ranks) => {
                let layout = ranks.layouts.get(rank as usize).cloned();
                let (ranks, spec) = (self.ranks(), "the file".to_owned());
                layout.ok_or(RuleError::Rank { rank, ranks, spec })
            }
        }
    }

    /// Further names for what a rank holds, in the same memory: tied weights.
    pub(crate) fn tied(&self, rank: u64) -> &[Record] {
        match &self.0 {
            ClusterForm::ListedRanks(ranks) => {
                ranks.tied.get(rank as usize).map_or(&[], Vec::as_slice)
            }
            ClusterForm::Rule { .. } => &[],
        }
    }

    /// Both sides, with one name for each tensor where only one of them had a name for many.
    pub(crate) fn alike<'a>(
        one: &'a Cluster,
        other: &'a Cluster,
    ) -> Result<(Cow<'a, Cluster>, Cow<'a, Cluster>), RuleError> {
        Ok(match (one.model().is_some(), other.model().is_some()) {
            (true, false) => (Cow::Owned(one.written_out()?), Cow::Borrowed(other)),
            (false, true) => (Cow::Borrowed(one), Cow::Owned(other.written_out()?)),
            _ => (Cow::Borrowed(one), Cow::Borrowed(other)),
        })
    }

    /// The same, rank by rank and tensor by tensor.
    fn written_out(&self) -> Result<Cluster, RuleError> {
        let mut layouts = Vec::new();
        for rank in 0..self.ranks() {
            let RankLayout { records, warnings } = self.layout(rank)?;
            let records = records.iter().flat_map(Record::written_out).collect();
            layouts.push(RankLayout { records, warnings });
        }
        let families = self.families().iter().flat_map(Family::written_out).collect();
        let quantisation = self.quantisation().cloned();
        let tied = Vec::new();
        Ok(Cluster(ClusterForm::ListedRanks(ListedRanks {
            families,
            quantisation,
            layouts,
            tied,
            read: false,
        })))
    }
}

fn family(tensor: &Tensor) -> Family {
    Family {
        role: TensorRole::Listed,
        member: ModuleTensor::Weight,
        name: tensor.name().to_owned(),
        shape: tensor.shape().to_vec(),
        dtype: tensor.dtype(),
        layers: Vec::new(),
        experts: 0,
    }
}

fn rank_layout(rank: &ListedRank, tensors: &[Tensor]) -> RankLayout {
    let mut layout = RankLayout { records: records(&rank.holds, tensors), warnings: Vec::new() };
    let padding = rank.bytes - layout.transfer_bytes();
    if padding > 0 {
        layout.records.push(Record {
            name: "padding".to_owned(),
            shape: vec![padding],
            dtype: DType::U8,
            pieces: Vec::new(),
            offset: None,
            layers: None,
        });
    }
    layout
}

/// A record for each box.
fn records(boxes: &[ListedBox], tensors: &[Tensor]) -> Vec<Record> {
    let record = |held: &ListedBox| {
        let (tensor, slice) = (&tensors[held.0], held.slice());
        let is_cut = |&dim: &usize| slice.len[dim] != tensor.shape()[dim];
        let dim = (0..slice.ndim()).find(is_cut).unwrap_or(0);
        Record {
            name: held.3.clone(),
            shape: slice.len.clone(),
            dtype: tensor.dtype(),
            offset: Some(slice.start.clone()),
            pieces: vec![ParameterPiece {
                tensor: tensor.name().to_owned(),
                slice,
                dim,
                target_dim: 0,
                target_start: held.4 * 8 / tensor.dtype().bits(),
                target_index: None,
            }],
            layers: None,
        }
    };
    boxes.iter().map(record).collect()
}
