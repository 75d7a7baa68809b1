"""Megatron-core on real gloo ranks: what engines read is what Megatron holds, converted by hand."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

pytest.importorskip("megatron.core", reason="megatron-core is not installed: make test-trainers installs it")

from . import by_hand, engine, megatron_job
from .jobs import Job
from .ranks import Process, tell

EXPERTS = {
    "num_moe_experts": 4, "moe_ffn_hidden_size": 24, "moe_router_topk": 2, "moe_token_dispatcher_type": "allgather",
    "moe_router_load_balancing_type": "none",
}
#: Engines of one rank and of several.
TENSOR = {"one": (1, False), "two": (2, False), "four": (4, False)}
BY_EXPERT = {"one": (1, False), "experts": (2, True), "two": (2, False)}

MIXED = EXPERTS | {
    "moe_layer_freq": [0, 1], "moe_shared_expert_intermediate_size": 20, "moe_shared_expert_gate": True,
}
SHARED = EXPERTS | {"moe_shared_expert_intermediate_size": 20}
LATENT = {
    "multi_latent_attention": True, "q_lora_rank": 12, "kv_lora_rank": 16, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4,
    "v_head_dim": 8, "rope_type": "rope",
}
UNEVEN = {"num_layers_in_first_pipeline_stage": 1, "num_layers_in_last_pipeline_stage": 3}

CASES = {
    "tp2-pp2": (Job(tp=2, pp=2, world=4, qk_norm=True, config={"add_qkv_bias": True}), TENSOR),
    "ep2": (Job(ep=2, world=2, layers=2, config=EXPERTS), BY_EXPERT),
}
FULL = {
    "tp4, more ranks than groups": (Job(tp=4, world=4, layers=1, config={"add_qkv_bias": True}), TENSOR),
    "padding on several ranks": (Job(tp=4, world=4, layers=1, vocab=30), TENSOR),
    "pp2, tied, bf16": (Job(pp=2, world=2, layers=2, tied=True, bf16=True), TENSOR),
    "tp2, pp2, fp8": (Job(tp=2, pp=2, world=4, layers=2, fp8=True), TENSOR),
    "tp2, ep2, etp2, fp8": (Job(tp=2, ep=2, etp=2, world=4, layers=1, bf16=True, fp8=True, config=EXPERTS), BY_EXPERT),
    "etp2 over data parallel ranks, fp8": (Job(etp=2, world=2, layers=1, fp8=True, config=EXPERTS), BY_EXPERT),
    "dp2, gathered late": (Job(world=2, layers=1, bf16=True, late=True), TENSOR),
    "tp2, dp2": (Job(tp=2, world=4, layers=1), TENSOR),
    "pp2, uneven": (Job(pp=2, world=2, stages=(1, 3), config=UNEVEN), TENSOR),
    "pp2, two chunks each": (Job(pp=2, chunks=2, world=2), TENSOR),
    "tp2, ep2, etp2": (Job(tp=2, ep=2, etp=2, world=4, layers=2, config=MIXED), BY_EXPERT),
    "tp2, ep2, etp1": (Job(tp=2, ep=2, world=2, layers=2, config=MIXED), BY_EXPERT),
    "pp2, ep2": (Job(pp=2, ep=2, world=4, layers=2, config=EXPERTS), BY_EXPERT),
    "ep2, dp2": (Job(ep=2, world=4, layers=1, config=EXPERTS), BY_EXPERT),
}


def cases() -> list:
    core = [pytest.param(*case, id=name) for name, case in CASES.items()]
    return core + [pytest.param(*case, id=name, marks=pytest.mark.full) for name, case in FULL.items()]


@pytest.mark.parametrize(("job", "engines"), cases())
def test_engines_have_what_megatron_trained(job: Job, engines: dict, server: str, tmp_path: Path) -> None:
    follow(megatron_job.run, job, engines, server, tmp_path)


TRANSFORMER_ENGINE = {
    "tp2, pp2": (Job(tp=2, pp=2, world=4, layers=2, qk_norm=True, config={"add_qkv_bias": True}), TENSOR),
    "tp2, ep2, etp2": (Job(tp=2, ep=2, etp=2, world=4, layers=1, config=SHARED), BY_EXPERT),
    "tp2, latent attention": (Job(tp=2, world=2, layers=1, qk_norm=True, config=LATENT), BY_EXPERT),
}


@pytest.mark.full
@pytest.mark.parametrize(("job", "engines"), TRANSFORMER_ENGINE.values(), ids=TRANSFORMER_ENGINE.keys())
def test_engines_have_what_lies_in_modules_of_transformer_engine(
    job: Job, engines: dict, server: str, tmp_path: Path
) -> None:
    """Megatron's own modules of TransformerEngine, over a stand-in for the latter."""
    follow("tests_trainers.te_job", job, engines, server, tmp_path)


def follow(program: Callable | str, job: Job, engines: dict, server: str, tmp_path: Path) -> None:
    """Two steps of a trainer, which engines follow."""
    rendezvous = str(tmp_path / "rendezvous")
    ranks = [Process(program, rank, job, server, rendezvous) for rank in range(job.world)]
    rollout = None
    try:
        standing, replicas, held = zip(*[rank.told() for rank in ranks], strict=True)
        expected = convert(job, standing, held)
        tell(ranks, engine.checkpoint_of(expected))
        assert len({replica.name for replica in replicas}) == job.world // replicas[0].num_shards
        published = engine.in_fp8 if job.fp8 else dict
        rollout = Process(engine.serve, server, engine.checkpoint_of(published(expected)), engines)
        for step in (1, 2):
            tell(ranks, step)
            before, expected = expected, convert(job, standing, [rank.told() for rank in ranks])
            assert all(not torch.equal(before[name], expected[name]) for name in expected if "experts" not in name)
            rollout.tell(step)
            engine.compare(rollout.told(), published(expected))
            tell(ranks, "go on")
        tell(ranks, None)
        assert [rank.told() for rank in ranks] == [None] * job.world
    finally:
        for process in [*ranks, *([] if rollout is None else [rollout])]:
            process.end()


def convert(job: Job, standing: list, held: list) -> dict[str, torch.Tensor]:
    local = [by_hand.of_transformer_engine(chunk) for chunks in held for chunk in chunks]
    places = [place for chunks in standing for place in chunks]
    virtual = job.pp * job.chunks
    return by_hand.convert(
        list(zip(places, local, strict=True)), heads=job.config.get("num_attention_heads", 4),
        groups=job.config.get("num_query_groups", 2), vocab=job.vocab, layers_per_stage=list(job.stages or [job.layers // virtual] * virtual),
        experts=job.config.get("num_moe_experts", 0),
    )
