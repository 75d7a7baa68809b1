"""From a trainer's layout to a vLLM engine's, between processes: equal, to the bit, to what vLLM's
own `load_weights` makes of the same checkpoint."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import weightcast as wc
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog

from .configs import FAMILIES, MOE, config
from .engine import build
from .processes import SOON, Rank, Server, together
from .rules import Rules
from .trainer import Trainer, checkpoint

VERSIONS = (1, 2)

#: What each family meets: every TP, EP for experts, and both kinds of trainer.
CASES = [
    (family, tp, ep)
    for family in FAMILIES
    for tp, ep in ((1, False), (2, False), (4, False), (8, False), (2, True), (8, True))
    if family in MOE or not ep
]


def trainer(say: Callable, hear: Callable, records: list, catalog: Catalog, me: wc.Replica) -> None:
    """A rank that publishes each version that it is told to."""
    local = Trainer(records, catalog)
    with wc.open("policy", me, role="trainer", epoch="new", server=hear()) as handle:
        handle.register(local.layout, deadline=SOON)
        say("ready")
        while (version := hear()) is not None:
            local.fill(checkpoint(catalog, version))
            handle.publish(version, deadline=SOON)
            say("published")
            hear()
            handle.unpublish(deadline=SOON)
            say("unpublished")
    say("closed")


def rollout(
    say: Callable, hear: Callable, drawn: dict[str, Any], tp: int, ep: bool, catalog: Catalog,
    me: wc.Replica,
) -> None:
    """A rank of an engine that updates, and says which parameters are not what the loader makes."""
    def built() -> torch.nn.Module:
        return build(drawn, tp=tp, rank=me.shard, ep=ep)

    model, once = built(), built()
    for parameter in model.parameters():
        parameter.data.fill_(7)
    live = vllm.read(model, catalog)
    assert not live.unsourced
    with wc.open("policy", me, server=hear()) as handle:
        handle.register(live.layout(stage=True), deadline=SOON)
        say("ready")
        while (version := hear()) is not None:
            assert handle.update(wc.exact(version), deadline=SOON).changed
            live.finish()
            once.load_weights(checkpoint(catalog, version).items())
            want = dict(once.named_parameters())
            say([n for n, got in model.named_parameters() if not same(got, want[n])])
    say("closed")


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = (t.detach().contiguous().view(-1).view(torch.uint8) for t in (one, other))
    return torch.equal(one, other)


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.mark.parametrize(("family", "tp", "ep"), CASES)
def test_update_equals_load_weights(
    family: str, tp: int, ep: bool, tmp_path: Path, server: Server
) -> None:
    draw = random.Random(f"{family} {tp} {ep}")
    drawn = config(family, draw)
    rules = Rules(drawn, tmp_path)
    catalog = rules.catalog()
    spec, ranks = publisher(family, drawn, draw)
    trainers = [
        Rank(trainer, rules.records(spec, rank), catalog, wc.Replica("trainer", rank, ranks))
        for rank in range(ranks)
    ]
    rollouts = [
        Rank(rollout, drawn, tp, ep, catalog, wc.Replica("rollout", rank, tp)) for rank in range(tp)
    ]
    update_all(trainers, rollouts, server, (drawn, spec))


def update_all(trainers: list[Rank], rollouts: list[Rank], server: Server, of: tuple) -> None:
    """Version after version from trainers to rollouts, which must find nothing wrong."""
    try:
        together(trainers + rollouts, server.address)
        for version in VERSIONS:
            together(trainers, version)
            wrong = together(rollouts, version)
            assert not any(wrong), (*of, wrong)
            together(trainers, "enough")
        together(rollouts, None)
        together(trainers, None)
    finally:
        for each in trainers + rollouts:
            each.end()


def publisher(family: str, drawn: dict[str, Any], draw: random.Random) -> tuple[str, int]:
    """A trainer's spec, and how many ranks it has: rows of FSDP2, or Megatron's grid."""
    if draw.random() < 0.5:
        ranks = draw.choice((2, 3))
        return f"fsdp2:dp={ranks}", ranks
    # Megatron's TP has no more ranks than query groups here; its experts are spread as well.
    tp = 2 if drawn["num_key_value_heads"] % 2 == 0 else 1
    experts = drawn.get("num_experts") or drawn.get("n_routed_experts")
    ep = tp if experts and experts % tp == 0 else 1
    pp = 2 if drawn["num_hidden_layers"] % 2 == 0 else 1
    return f"megatron:tp={tp},pp={pp}" + (f",ep={ep}" if experts else ""), tp * pp
