//! What a tensor of a checkpoint is for. Rules of engines and trainers speak of roles, never of
//! models.

/// The part that a tensor plays in a decoder, whatever the model calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the names are the documentation
pub enum TensorRole {
    Embedding,
    Positions,
    InputNorm,
    PostAttentionNorm,
    /// After attention, before the residual sum (sandwich norms).
    PostSelfAttentionNorm,
    /// After the MLP, before the residual sum.
    PostMlpNorm,
    Query,
    Key,
    Value,
    /// Query, key and value in one tensor, as the checkpoint stores them.
    QueryKeyValue,
    Output,
    QueryNorm,
    KeyNorm,
    Sinks,
    /// Linear attention: queries, keys, values, and gates where the checkpoint has these in one tensor.
    LinearInput,
    LinearGate,
    /// Write strength of each value head, with its decay where the checkpoint has both in one tensor.
    LinearStrength,
    LinearDecay,
    LinearConvolution,
    /// One number for each value head.
    LinearTimeBias,
    LinearDecayLog,
    LinearNorm,
    LinearOutput,
    /// MLA: down projection of queries.
    QueryDown,
    QueryDownNorm,
    QueryUp,
    /// MLA: down projection of keys and values, with the rotary key.
    KeyValueDown,
    KeyValueDownNorm,
    KeyValueUp,
    /// Sparse attention: the indexer's queries, keys, norm of keys, head weights.
    IndexQuery,
    IndexKey,
    IndexKeyNorm,
    IndexWeights,
    DenseGate,
    DenseUp,
    /// Gate and up in one tensor, as the checkpoint stores them.
    DenseGateUp,
    DenseDown,
    Router,
    RouterCorrection,
    ExpertGate,
    ExpertUp,
    ExpertDown,
    /// Gate and up of all experts in one tensor, as the checkpoint stores them.
    ExpertsGateUp,
    ExpertsDown,
    SharedGate,
    SharedUp,
    SharedDown,
    SharedSwitch,
    FinalNorm,
    Head,
    /// The draft layer: projection of embedding and hidden state, their norms, its final norm.
    DraftProjection,
    DraftEmbeddingNorm,
    DraftHiddenNorm,
    DraftFinalNorm,
    DraftEmbedding,
    DraftHead,
    /// A tower that sees: its patches and their positions, then its blocks.
    TowerPatches,
    TowerPositions,
    TowerInputNorm,
    TowerPostAttentionNorm,
    /// Query, key and value in one tensor, as the checkpoint stores them.
    TowerQueryKeyValue,
    TowerQuery,
    TowerKey,
    TowerValue,
    TowerOutput,
    TowerGate,
    TowerUp,
    TowerDown,
    TowerFinalNorm,
    /// What leads from a tower to the decoder: a norm and an MLP, or a projection stored `[in, out]`.
    MergerNorm,
    MergerUp,
    MergerDown,
    TowerProjection,
    /// The same, from blocks within a tower.
    InnerMergerNorm,
    InnerMergerUp,
    InnerMergerDown,
    /// Of a file of layouts, which knows no roles.
    Listed,
}

impl TensorRole {
    /// Whether it is of a tower, whose blocks are counted by themselves, or leads from one to the decoder.
    pub(crate) fn is_of_tower(self) -> bool {
        use TensorRole::*;
        matches!(
            self,
            TowerPatches
                | TowerPositions
                | TowerInputNorm
                | TowerPostAttentionNorm
                | TowerQueryKeyValue
                | TowerQuery
                | TowerKey
                | TowerValue
                | TowerOutput
                | TowerGate
                | TowerUp
                | TowerDown
                | TowerFinalNorm
                | TowerProjection
                | MergerNorm
                | MergerUp
                | MergerDown
        ) || self.is_of_inner_merger()
    }

    /// Whether it leads from a block within a tower to the decoder.
    pub(crate) fn is_of_inner_merger(self) -> bool {
        matches!(
            self,
            TensorRole::InnerMergerNorm | TensorRole::InnerMergerUp | TensorRole::InnerMergerDown
        )
    }

    /// Whether FP8 checkpoints quantise it: linear layers do, but for the router, the embedding,
    /// the head and what is too small to matter.
    pub(crate) fn is_quantised(self) -> bool {
        use TensorRole::*;
        matches!(
            self,
            Query
                | Key
                | Value
                | Output
                | QueryDown
                | QueryUp
                | KeyValueDown
                | KeyValueUp
                | IndexQuery
                | IndexKey
                | DenseGate
                | DenseUp
                | DenseGateUp
                | DenseDown
                | ExpertGate
                | ExpertUp
                | ExpertDown
                | SharedGate
                | SharedUp
                | SharedDown
                | DraftHead
        )
    }
}

/// Which tensor of a module it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)] // the names are the documentation
pub enum ModuleTensor {
    Weight,
    Bias,
    /// One scale for each block of the weight, stored inverted: `weight_scale_inv`.
    Scale,
}
