"""One rank of a gloo job: trains modules that FSDP1 has sharded, and publishes each step.

Arguments: rank, world size, the server, and a directory through which the ranks find each other.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

import weightcast as wc
import weightcast.torch as wct
from weightcast.adapters.catalog import catalog_of
from weightcast.adapters.engine.sources import source_of

from .mesh_trainer import BLOCK, DEADLINE, STEPS, Block, expected, refused, step

CPU = torch.device("cpu")
FULL, NONE, HYBRID = ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD, ShardingStrategy.HYBRID_SHARD


class Tied(Block):
    """With a layer that has the weight of another."""

    def __init__(self):
        super().__init__()
        self.again = nn.Linear(8, 16, bias=False)
        self.again.weight = self.up.weight


def build(strategy: ShardingStrategy, original: bool, kind: type[Block] = Block) -> nn.Module:
    """The layer of another type is flattened by itself."""
    options = {"sharding_strategy": strategy, "use_orig_params": original, "device_id": CPU}
    if strategy is HYBRID:
        names = ("copy", "shard")
        options["device_mesh"] = init_device_mesh("cpu", (2, dist.get_world_size() // 2), mesh_dim_names=names)
    model = kind()
    model.down = FullyShardedDataParallel(model.down, **options)
    return FullyShardedDataParallel(model, **options)


#: How to build each, and how many copies there are, by how many ranks.
CASES = {
    "flat": (lambda: build(FULL, False), {2: 1, 4: 1}),
    "flat-original": (lambda: build(FULL, True), {2: 1, 4: 1}),
    "flat-tied": (lambda: build(FULL, True, Tied), {2: 1}),
    "flat-whole": (lambda: build(NONE, False), {2: 2}),
    "flat-whole-original": (lambda: build(NONE, True), {2: 2}),
    "flat-hybrid": (lambda: build(HYBRID, True), {4: 2}),
}


#: Those whose layout is read when a forward pass has run.
GATHERED = ("flat-original", "flat-hybrid", "flat-whole")


def evaluate(model: nn.Module) -> None:
    """What the root gathered for this still stands in its parameters afterwards."""
    with torch.no_grad():
        model(torch.ones(2, 8))


def check(model: nn.Module, steps: int) -> None:
    """What torch itself gathers is that."""
    wanted = expected(steps)
    with FullyShardedDataParallel.summon_full_params(model, writeback=False):
        for name, tensor in model.named_parameters():
            plain = name.replace("_fsdp_wrapped_module.", "")
            assert torch.equal(tensor, wanted[plain]), name


def train(name: str, model: nn.Module, copies: int, server: str) -> None:
    """Publishes each step until the rollout has it. What is read of a module must be the same before its first
    forward pass, and while the pass has left parameters gathered."""
    if name in GATHERED:
        evaluate(model)
    me = wct.replica("trainer", model)
    assert me.num_shards == dist.get_world_size() // copies and (copies == 1) == (me.name == "trainer"), me
    told = wct.replica("trainer", model, group=dist.group.WORLD)
    assert (told.num_shards, told.name == "trainer") == (me.num_shards, me.name == "trainer"), told
    wanted = {key: (tuple(tensor.shape), tensor.dtype) for key, tensor in expected(0).items()}
    layout = wct.layout(model, expect=wanted)
    source = source_of(model, dist.get_rank())
    assert source.publishes and source.catalog() == catalog_of(wanted) and source.replica("trainer") == me
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    with (
        wc.open(name, me, role="trainer", server=server, deadline=DEADLINE) as handle,
        wc.open(f"{name}-fp8", me, role="trainer", server=server, deadline=DEADLINE) as smaller,
    ):
        handle.register(layout, deadline=DEADLINE)
        smaller.register(wct.layout(model).quantise("*.weight", block=BLOCK), deadline=DEADLINE)
        for version in range(1, STEPS + 1):
            model(torch.ones(2, 8)).backward()
            step(model, optimizer)
            optimizer.zero_grad()
            check(model, version)
            evaluate(model)
            for one in (handle, smaller):
                one.publish(version, seal=True, deadline=DEADLINE)
            for one in (handle, smaller):
                one.wait(lambda held, v=version: "done" in held.get(v, ()), deadline=DEADLINE)
                one.unpublish(deadline=DEADLINE)


def misuse(model: nn.Module) -> None:
    """What is not read right is told."""
    refused("give the FullyShardedDataParallel itself", lambda: wct.layout(model.module))
    refused("knows no flat parameters", lambda: wct.gathered(model, [wct.recipe("a", "norm")]))
    across = nn.Linear(3, 5)
    across.weight = nn.Parameter(torch.randn(3, 5).t())
    turned = FullyShardedDataParallel(across, device_id=CPU)
    refused("weight was not contiguous", lambda: wct.layout(turned))
    layout = wct.layout(model)
    flat = model._handle.flat_param
    flat._local_shard = flat.data = flat.data.clone()
    assert "the storage has been replaced" in (layout.origins.moved() or ""), layout.origins.moved()
    if dist.get_world_size() == 4:
        one = FullyShardedDataParallel(nn.Linear(4, 4), device_id=CPU, process_group=dist.new_group([0, 1, 2, 3]))
        pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        mine = pairs[dist.get_rank() // 2]
        both = nn.ModuleList([one, FullyShardedDataParallel(nn.Linear(4, 4), device_id=CPU, process_group=mine)])
        refused("over different process groups", lambda: wct.replica("trainer", both))
        assert wct.replica("trainer", both, group=dist.group.WORLD).num_shards == 4


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    for name, (make, copies) in CASES.items():
        if int(world) in copies:
            train(name, make(), copies[int(world)], server)
    misuse(build(FULL, False))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
