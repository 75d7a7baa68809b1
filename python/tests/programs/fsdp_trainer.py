"""One rank of a gloo job: publishes sharded modules, one model after another.

Arguments: rank, world size, the server, and a directory through which the ranks find each other.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

import weightcast as wc
import weightcast.torch as wct
from weightcast.names import TRANSFORMERS

DEADLINE = 60.0


class Block(nn.Module):
    """Rows and columns that no mesh divides, of two types, with a buffer and a scalar."""

    def __init__(self):
        super().__init__()
        self.up = nn.Linear(7, 13)
        self.down = nn.Linear(13, 5, dtype=torch.bfloat16)
        self.one = nn.Linear(3, 1)  # fewer rows than ranks: the last ones are empty
        self.register_buffer("steps", torch.tensor(7))


def plain(seed: int = 0) -> Block:
    torch.manual_seed(seed)
    return Block()


def shard_rows(world: int) -> nn.Module:
    model, mesh = plain(), init_device_mesh("cpu", (world,))
    for child in model.children():
        fully_shard(child, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shard_replicated(world: int) -> nn.Module:
    model = plain()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("copy", "shard"))
    for child in model.children():
        fully_shard(child, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def shard_over_tensor_parallel(world: int) -> nn.Module:
    model = plain()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    ways = {"up": ColwiseParallel(), "down": RowwiseParallel(), "one": ColwiseParallel()}
    parallelize_module(model, mesh["tensor"], ways)
    for child in model.children():
        fully_shard(child, mesh=mesh["data"])
    return fully_shard(model, mesh=mesh["data"])


CASES = {
    "rows": (shard_rows, [2, 4]),
    "replicated": (shard_replicated, [4]),
    "strided": (shard_over_tensor_parallel, [4]),
}


class Experts(nn.Module):
    """Experts stacked as transformers 5 stacks them; no world divides them."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.gate_up_proj = nn.Parameter(torch.randn(5, 8, 4))
        self.down_proj = nn.Parameter(torch.randn(5, 4, 4))


def expected_experts() -> dict[str, torch.Tensor]:
    """What a checkpoint has of them."""
    experts = {}
    for e, (gate_up, down) in enumerate(zip(*(p.detach() for p in Experts().parameters()), strict=True)):
        gate, up = gate_up.chunk(2)
        for name, matrix in (("gate", gate), ("up", up), ("down", down)):
            experts[f"mlp.experts.{e}.{name}_proj.weight"] = matrix.contiguous()
    return experts


def stacked(world: int, dim: int) -> wc.Layout:
    """Experts cut by FSDP2 along a dimension, under the names of a checkpoint."""
    mlp = nn.Module()
    mlp.experts = Experts()
    model = nn.Module()
    model.mlp = mlp
    fully_shard(
        model, mesh=init_device_mesh("cpu", (world,)), shard_placement_fn=lambda _: Shard(dim)
    )
    names = wc.NameMap(TRANSFORMERS["qwen3_moe"])
    return wct.layout(model, names=names, expect=catalog_of_tensors(expected_experts()))


def catalog_of_tensors(tensors: dict[str, torch.Tensor]) -> dict:
    return {name: (tensor.shape, tensor.dtype) for name, tensor in tensors.items()}


def expected() -> dict[str, torch.Tensor]:
    """The full tensors that every case must deliver."""
    return {name: tensor.detach() for name, tensor in plain().state_dict().items()}


def check(model: nn.Module) -> None:
    """What torch itself gathers is what the seed made."""
    for name, tensor in expected().items():
        held = model.state_dict()[name]
        full = held.full_tensor() if hasattr(held, "full_tensor") else held
        assert torch.equal(full, tensor), name


def check_awkward(name: str, model: nn.Module) -> None:
    """The meshes really are as awkward as these tests want them."""
    if name == "rows" and dist.get_rank() > 0:
        assert model.one.weight.to_local().numel() == 0
    if name == "strided":
        assert "_StridedShard" in repr(model.up.weight.placements)


#: Blocks that no case's shards are cut at.
BLOCK = (4, 3)


def fp8(model: nn.Module) -> wc.Layout:
    """The matrices in FP8, the rest in BF16, but for the buffer."""
    layout = wct.layout(model)
    return layout.quantise("*.weight", block=BLOCK).keep("steps").cast("*", "BF16")


def publish(me: wc.Replica, name: str, layout: wc.Layout, server: str) -> None:
    """Publishes until the rollout has it."""
    with wc.open(name, me, role="trainer", server=server, deadline=DEADLINE) as handle:
        handle.register(layout, deadline=DEADLINE)
        handle.publish(1, seal=True, deadline=DEADLINE)
        handle.wait(lambda held: "rollout" in held.get(1, ()), deadline=DEADLINE)
        handle.unpublish(deadline=DEADLINE)


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world)
    )
    for name, (shard, worlds) in CASES.items():
        if int(world) in worlds:
            model = shard(int(world))
            check(model)
            check_awkward(name, model)
            me = wct.replica("trainer", model)
            publish(me, name, wct.layout(model), server)
            publish(me, f"{name}-fp8", fp8(model), server)
    me = wc.Replica("trainer", int(rank), int(world))
    publish(me, "experts", stacked(int(world), 0), server)
    if int(world) == 2:
        publish(me, "rows-of-experts", stacked(2, 1), server)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
