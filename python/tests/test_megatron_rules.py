"""The rules of Megatron's adapter that need no Megatron: rows, names, places."""

import itertools

import numpy as np
import pytest

import weightcast as wc

pytest.importorskip("torch")

from weightcast.adapters.megatron.layout import layout
from weightcast.adapters.megatron.names import MIXTRAL, map_for, published
from weightcast.adapters.megatron.rows import Heads, within
from weightcast.adapters.megatron.where import InGroup, Place, Stand


class Config:
    """Of a `TransformerConfig`, what names depend on."""

    def __init__(self, **facts: object) -> None:
        self.__dict__.update(facts)


def mixed(heads: Heads) -> np.ndarray:
    """For each row of the fused projection, made group by group: of which member it is, and which row there."""
    each = heads.queries // heads.groups
    query, key, value = (np.array([(member, row) for row in range(rows)])
                         for member, rows in enumerate(heads.members()))
    grouped = [
        np.concatenate([
            query.reshape(heads.groups, each * heads.channels, 2)[group],
            key.reshape(heads.groups, heads.channels, 2)[group],
            value.reshape(heads.groups, heads.channels, 2)[group],
        ])
        for group in range(heads.groups)
    ]
    return np.concatenate(grouped)


@pytest.mark.parametrize("heads", [Heads(4, 2, 8), Heads(6, 6, 2), Heads(8, 1, 3), Heads(12, 4, 4)])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8])
def test_runs_of_rows_are_those_of_rows_mixed_one_by_one(heads: Heads, ranks: int) -> None:
    rows = mixed(heads)
    edges = np.linspace(0, len(rows), ranks + 1).astype(int)
    for first, end in itertools.pairwise(edges):
        runs = heads.runs(int(first), int(end - first))
        told = [(member, start + i) for member, start, count in runs for i in range(count)]
        assert told == [tuple(row) for row in rows[first:end]]
        assert all(a[0] != b[0] for a, b in itertools.pairwise(runs)), "neighbours of one member are one run"


def test_rows_of_a_vocabulary_end_where_the_checkpoint_does() -> None:
    assert [within(30, first, 16) for first in (0, 16, 32, 48)] == [(0, 16), (16, 14), (30, 0), (30, 0)]


@pytest.mark.parametrize(("key", "name"), {
    "embedding.word_embeddings.weight": "model.embed_tokens.weight",
    "output_layer.weight": "lm_head.weight",
    "decoder.final_layernorm.weight": "model.norm.weight",
    "decoder.layers.12.input_layernorm.weight": "model.layers.12.input_layernorm.weight",
    "decoder.layers.12.self_attention.linear_qkv.layer_norm_weight": "model.layers.12.input_layernorm.weight",
    "decoder.layers.0.self_attention.linear_proj.bias": "model.layers.0.self_attn.o_proj.bias",
    "decoder.layers.0.self_attention.q_layernorm.weight": "model.layers.0.self_attn.q_norm.weight",
    "decoder.layers.0.self_attention.k_layernorm.weight": "model.layers.0.self_attn.k_norm.weight",
    "decoder.layers.0.pre_mlp_layernorm.weight": "model.layers.0.post_attention_layernorm.weight",
    "decoder.layers.0.mlp.linear_fc1.layer_norm_bias": "model.layers.0.post_attention_layernorm.bias",
    "decoder.layers.0.mlp.linear_fc1.weight_w": "model.layers.0.mlp.gate_proj.weight",
    "decoder.layers.0.mlp.linear_fc1.bias_v": "model.layers.0.mlp.up_proj.bias",
    "decoder.layers.0.mlp.linear_fc1.weight": "model.layers.0.mlp.up_proj.weight",
    "decoder.layers.0.mlp.linear_fc2.weight": "model.layers.0.mlp.down_proj.weight",
    "decoder.layers.3.mlp.router.weight": "model.layers.3.mlp.gate.weight",
    "decoder.layers.3.mlp.router.expert_bias": "model.layers.3.mlp.gate.e_score_correction_bias",
    "decoder.layers.3.mlp.experts.experts.17.linear_fc1.weight_v": "model.layers.3.mlp.experts.17.up_proj.weight",
    "decoder.layers.3.mlp.experts.experts.17.linear_fc2.weight": "model.layers.3.mlp.experts.17.down_proj.weight",
    "decoder.layers.3.mlp.shared_experts.linear_fc1.weight_w": "model.layers.3.mlp.shared_experts.gate_proj.weight",
}.items())
def test_names_of_a_checkpoint(key: str, name: str) -> None:
    assert published(key, [map_for(Config())]) == (name,)


def test_queries_keys_and_values_lie_mixed() -> None:
    names = published("decoder.layers.4.self_attention.linear_qkv.bias", [map_for(Config())])
    assert names == tuple(f"model.layers.4.self_attn.{one}_proj.bias" for one in "qkv")


def test_a_gated_shared_expert_is_one() -> None:
    names = map_for(Config(moe_shared_expert_gate=True))
    assert published("decoder.layers.1.mlp.shared_experts.linear_fc2.weight", [names]) == (
        "model.layers.1.mlp.shared_expert.down_proj.weight",
    )


@pytest.mark.parametrize(("key", "name"), {
    "linear_q_down_proj.weight": "q_a_proj.weight",
    "q_layernorm.weight": "q_a_layernorm.weight",
    "linear_q_up_proj.layer_norm_weight": "q_a_layernorm.weight",
    "linear_q_up_proj.weight": "q_b_proj.weight",
    "linear_kv_down_proj.weight": "kv_a_proj_with_mqa.weight",
    "linear_kv_up_proj.layer_norm_weight": "kv_a_layernorm.weight",
    "linear_kv_up_proj.weight": "kv_b_proj.weight",
}.items())
def test_latent_attention(key: str, name: str) -> None:
    names = [map_for(Config(multi_latent_attention=True))]
    assert published(f"decoder.layers.2.self_attention.{key}", names) == (f"model.layers.2.self_attn.{name}",)


def test_names_given_come_first() -> None:
    given = wc.NameMap({"mtp.*": None})
    assert published("mtp.layers.0.enorm.weight", [given, map_for(Config())]) == ()
    assert published("decoder.layers.1.mlp.experts.experts.2.linear_fc1.weight_w", [MIXTRAL, map_for(Config())]) == (
        "model.layers.1.block_sparse_moe.experts.2.w1.weight",
    )


def test_what_has_no_name_is_refused_by_name() -> None:
    with pytest.raises(wc.LayoutMismatch, match=r"mtp.layers.0.enorm.weight.*names=weightcast.NameMap"):
        published("mtp.layers.0.enorm.weight", [map_for(Config())])


def test_what_is_no_megatron_model_is_refused() -> None:
    import torch

    with pytest.raises(wc.Misuse, match="Linear is no model of Megatron-core"):
        layout(torch.nn.Linear(2, 2))
    with pytest.raises(wc.Misuse, match="is empty"):
        layout([])


GRIDS = [
    grid for grid in itertools.product((1, 2, 4), (1, 2), (1, 2, 3), (1, 2, 4), (1, 2, 4), (1, 2))
    if grid[0] * grid[1] * grid[2] % (grid[3] * grid[4]) == 0
]


@pytest.mark.parametrize(("tp", "cp", "dp", "ep", "etp", "pp"), GRIDS)
def test_a_copy_has_everything_once_and_no_smaller_one_does(
    tp: int, cp: int, dp: int, ep: int, etp: int, pp: int
) -> None:
    """Ranks in Megatron's order, `tp-cp-dp-pp` and within a stage `etp-ep-edp`."""
    stage = tp * cp * dp
    copies: dict[int, list[tuple[int, Place, Stand]]] = {}
    for rank in range(stage * pp):
        within_stage = rank % stage
        stand = Stand(
            tensor=InGroup(within_stage % tp, tp), pipeline=InGroup(rank // stage, pp),
            data=InGroup(within_stage // tp, cp * dp),
            expert_data=InGroup(within_stage // (etp * ep), stage // (etp * ep)),
        )
        copies.setdefault(stand.place().copy, []).append((rank, stand.place(), stand))
    smallest = np.lcm(tp, etp * ep)
    for members in copies.values():
        assert len(members) == smallest * pp
        assert sorted(place.shard for _, place, _ in members) == list(range(len(members)))
        assert {(place.shards, place.copies) for _, place, _ in members} == {(len(members), len(copies))}
        everything = {(s.pipeline.at, s.tensor.at) for _, _, s in members}
        experts = {(s.pipeline.at, rank % stage % (etp * ep)) for rank, _, s in members}
        assert len(everything) == pp * tp
        assert len(experts) == pp * ep * etp


def test_without_experts_each_data_parallel_rank_has_a_copy() -> None:
    stand = Stand(tensor=InGroup(1, 2), pipeline=InGroup(1, 2), data=InGroup(2, 3))
    assert stand.place() == Place(copy=2, copies=3, shard=3, shards=4)


def test_groups_in_another_order_are_refused() -> None:
    stand = Stand(InGroup(0, 1), InGroup(0, 1), data=InGroup(1, 4), expert_data=InGroup(1, 2))
    with pytest.raises(wc.Misuse, match="weightcast.Replica by hand"):
        stand.place()
