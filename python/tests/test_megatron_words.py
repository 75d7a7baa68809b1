"""Layouts of Megatron without Megatron: what each rank adds, held against a checkpoint that is laid out row by row."""

import importlib
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
from weightcast.adapters.megatron import held, where  # noqa: E402
from weightcast.adapters.megatron import layout as layout_of  # noqa: E402
from weightcast.adapters.megatron.where import replica  # noqa: E402

module = importlib.import_module("weightcast.adapters.megatron.layout")

QUERIES, GROUPS, CHANNELS, HIDDEN = 4, 2, 3, 5
VOCABULARY, PADDED = 13, 16


def checkpoint() -> dict[str, torch.Tensor]:
    torch.manual_seed(2)
    at = "model.layers.1.self_attn"
    return {
        f"{at}.q_proj.weight": torch.randn(QUERIES * CHANNELS, HIDDEN),
        f"{at}.k_proj.weight": torch.randn(GROUPS * CHANNELS, HIDDEN),
        f"{at}.v_proj.weight": torch.randn(GROUPS * CHANNELS, HIDDEN),
        f"{at}.o_proj.weight": torch.randn(HIDDEN, QUERIES * CHANNELS),
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN),
        "model.norm.weight": torch.randn(HIDDEN),
    }


def fused(whole: dict[str, torch.Tensor]) -> torch.Tensor:
    """Group by group: queries, key, value."""
    members = [whole[f"model.layers.1.self_attn.{one}_proj.weight"].chunk(GROUPS) for one in "qkv"]
    return torch.cat([torch.cat([member[group] for member in members]) for group in range(GROUPS)])


class Chunk(nn.Module):
    """What one rank of `tp` has of a GPT model, and what its `sharded_state_dict` says."""

    def __init__(self, rank: int, tp: int, **facts: Any) -> None:
        super().__init__()
        whole = checkpoint()
        padded = torch.cat([whole["model.embed_tokens.weight"], torch.full((PADDED - VOCABULARY, HIDDEN), 9.0)])
        self.config = SimpleNamespace(num_attention_heads=QUERIES, num_query_groups=GROUPS, kv_channels=CHANNELS, **facts)
        self.decoder, self.shards = nn.Module(), []
        self.cut("decoder.layers.1.self_attention.linear_qkv.weight", fused(whole), rank, tp, 0)
        self.cut("decoder.layers.1.self_attention.linear_proj.weight", whole["model.layers.1.self_attn.o_proj.weight"], rank, tp, 1)
        self.cut("embedding.word_embeddings.weight", padded, rank, tp, 0, allow_shape_mismatch=True)
        self.cut("decoder.final_layernorm.weight", whole["model.norm.weight"], 0, 1, 0)

    def cut(self, key: str, whole: torch.Tensor, rank: int, tp: int, dim: int, **facts: Any) -> None:
        part = whole.chunk(tp, dim)[rank].contiguous()
        self.register_parameter(key.replace(".", "_"), nn.Parameter(part, requires_grad=False))
        offset = [0] * whole.ndim
        offset[dim] = rank * part.shape[dim]
        said = {"allow_shape_mismatch": False, "prepend_axis_num": 0, "flattened_range": None} | facts
        data = self.get_parameter(key.replace(".", "_")).detach()
        self.shards.append(SimpleNamespace(
            key=key, data=data, global_shape=tuple(whole.shape), global_offset=tuple(offset), local_shape=tuple(part.shape), **said
        ))

    def sharded_state_dict(self) -> None:
        raise NotImplementedError("stands in")


@pytest.fixture(autouse=True)
def no_megatron(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "sharded", lambda chunk: chunk.shards)
    monkeypatch.setattr(where, "groups", lambda model: [])


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("wrapped", [False, True])
def test_ranks_together_publish_the_checkpoint(group: Any, tp: int, wrapped: bool) -> None:
    whole = checkpoint()
    chunks = [Chunk(rank, tp) for rank in range(tp)]
    layouts = []
    for chunk in chunks:
        model: Any = chunk
        if wrapped:
            model = nn.Module()
            model.module = chunk
            model = [model]
        layouts.append(layout_of(model, vocab_size=VOCABULARY))
    trainer = group("trainer", layouts, role="trainer")
    trainer.all(lambda handle: handle.publish(1, deadline=20))
    memory, target = {name: torch.zeros_like(t) for name, t in whole.items()}, wc.Layout()
    for name, tensor in memory.items():
        target.add(tensor, name)
    group("rollout", [target])[0].replicate(1, deadline=20)
    assert all(torch.equal(memory[name], tensor) for name, tensor in whole.items())
    name = "decoder_layers_1_self_attention_linear_proj_weight"
    chunks[0].get_parameter(name).data = torch.zeros_like(chunks[0].get_parameter(name))
    assert f"{name}: the storage has been replaced" in layouts[0].origins.moved()


def test_the_vocabulary_is_that_of_the_checkpoint() -> None:
    said = {n: (t.shape, t.dtype) for n, t in checkpoint().items()}
    layout_of(Chunk(0, 1), expect=said)
    padded = said | {"model.embed_tokens.weight": ((PADDED, HIDDEN), torch.float32)}
    layout_of(Chunk(0, 1), expect=padded)
    with pytest.raises(wc.LayoutMismatch, match=r"embed_tokens.weight is published as \[12, 5\], and is \[16, 5\]"):
        layout_of(Chunk(0, 1), vocab_size=12, expect=padded)
    with pytest.raises(wc.LayoutMismatch, match="embed_tokens.weight has 17 rows in the checkpoint, and 16 in the model"):
        layout_of(Chunk(0, 1), vocab_size=17)
    without = {n: one for n, one in padded.items() if "embed" not in n}
    layout_of(Chunk(0, 1), rename=lambda name: None if "embed" in name else name, expect=without)


def test_all_ranks_together_have_what_the_checkpoint_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four ranks none has queries, keys and values: one alone would miss some of them."""
    said = {n: (t.shape, t.dtype) for n, t in checkpoint().items()}
    distributed, heard = module.distributed, []
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 4)

    def gather(each: list[Any], own: Any) -> None:
        each[:] = [*heard, own][-4:] + [{}] * (4 - len([*heard, own][-4:]))
        heard.append(own)

    monkeypatch.setattr(distributed, "all_gather_object", gather)
    for rank in range(3):
        with pytest.raises(wc.LayoutMismatch, match="names of the checkpoint are not published"):
            layout_of(Chunk(rank, 4), vocab_size=VOCABULARY, expect=dict(said, last=((1,), torch.float32)))
    layout_of(Chunk(3, 4), vocab_size=VOCABULARY, expect=said)
    assert len(heard) == 4


def test_queries_keys_and_values_are_kept_or_left_out_together() -> None:
    whole = {n: (t.shape, t.dtype) for n, t in checkpoint().items() if "_proj" not in n or "o_proj" in n}
    padded = whole | {"model.embed_tokens.weight": ((PADDED, HIDDEN), torch.float32)}
    layout_of(Chunk(0, 1), rename=lambda name: None if name[-13:-12] in "qkv" else name, expect=padded)
    for left in "qkv":
        with pytest.raises(wc.Misuse, match=r"linear_qkv.weight: rename leaves out some of model.layers.1.self_attn.q_proj"):
            layout_of(Chunk(0, 1), rename=lambda name, left=left: None if f".{left}_proj" in name else name)
    with pytest.raises(wc.LayoutMismatch, match="linear_qkv.weight has 24 rows; .* are 30: 6 query heads in 2 groups, 3 rows each"):
        model = Chunk(0, 1)
        model.config.num_attention_heads = 6
        layout_of(model)


def test_what_a_state_dict_copies_or_leaves_out_is_noticed() -> None:
    model = Chunk(0, 1)
    model.shards[1].data = model.shards[1].data.clone()
    with pytest.raises(wc.Misuse, match="linear_proj.weight: Megatron hands out a copy of this"):
        layout_of(model)
    model = Chunk(0, 1)
    gone = model.shards.pop(1)
    with pytest.raises(wc.LayoutMismatch, match="1 tensors of the model are not, or not wholly, in its sharded_state_dict:\n.*linear_proj"):
        layout_of(model)
    # Two views of one parameter are the whole of it; a half is not, nor is one that is there twice.
    halves = []
    for first in (0, 2):
        rows = gone.data[first : first + (2 if first == 0 else 3)]
        halves.append(SimpleNamespace(**{**vars(gone), "data": rows, "global_offset": (first, 0), "local_shape": tuple(rows.shape)}))
    for shards, whole in (([halves[0]], False), ([halves[0], halves[0]], False), (halves, True), ([*halves, halves[1]], True)):
        owners = held.Owners(model)
        for shard in [*model.shards, *shards]:
            owners.see(shard.key, shard.data)
        if whole:
            owners.check()
        else:
            with pytest.raises(wc.LayoutMismatch, match="linear_proj"):
                owners.check()


def test_shards_that_are_no_boxes_are_refused() -> None:
    for facts, said in (({"prepend_axis_num": 1}, "numbers layers or experts by axes"), ({"flattened_range": slice(0, 3)}, "a piece of a flattened parameter")):
        model = Chunk(0, 1)
        vars(model.shards[2]).update(facts)
        with pytest.raises(wc.Misuse, match=f"word_embeddings.weight: .*{said}"):
            layout_of(model)
    with pytest.raises(wc.Misuse, match="layernorm_zero_centered_gamma"):
        layout_of(Chunk(0, 1, layernorm_zero_centered_gamma=True))


def test_parameters_that_are_gathered_late_are_refused_unless_they_are_synced() -> None:
    inner, outer = nn.Module(), nn.Module()
    inner.module, outer.module = Chunk(0, 1), inner
    inner.ddp_config = SimpleNamespace(overlap_param_gather=True)
    with pytest.raises(wc.Misuse, match="overlap_param_gather"):
        layout_of([outer])
    assert len(layout_of([outer], synced=True)) == 4
    inner.ddp_config = SimpleNamespace(overlap_param_gather=False)
    assert len(layout_of(outer)) == 4


def grouped(**places: tuple[int, int]) -> Any:
    def group(at: int, of: int) -> Any:
        return SimpleNamespace(rank=lambda: at, size=lambda: of)

    model = Chunk(0, 1)
    model.pg_collection = SimpleNamespace(**{name: group(*place) for name, place in places.items()})
    return model


@pytest.mark.parametrize(
    ("experts", "places", "wanted", "over"),
    [
        (None, {"tp": (1, 2), "pp": (0, 1), "dp_cp": (0, 1)}, ("t", 1, 2), ["tp", "dp_cp", "pp"][::2]),
        (None, {"tp": (1, 2), "pp": (1, 3), "dp_cp": (3, 4)}, ("t-3", 3, 6), ["tp", "pp"]),
        (8, {"tp": (0, 1), "pp": (0, 1), "dp_cp": (1, 4), "expt_dp": (0, 1)}, ("t", 1, 4), ["tp", "dp_cp", "pp"]),
        (8, {"tp": (1, 2), "pp": (0, 1), "dp_cp": (3, 4), "expt_dp": (1, 2)}, ("t-1", 3, 4), []),
    ],
)
def test_where_a_rank_stands_and_whom_it_exchanges_with(
    monkeypatch: pytest.MonkeyPatch, experts: int | None, places: dict[str, tuple[int, int]], wanted: tuple[str, int, int], over: list[str]
) -> None:
    monkeypatch.undo()
    model = grouped(**places)
    model.config.num_moe_experts = experts
    name, shard, shards = wanted
    assert replica("t", model, spot=True) == wc.Replica(name, shard=shard, num_shards=shards, spot=True)
    assert where.groups(model) == [getattr(model.pg_collection, which) for which in over]
