"""One rank of a gloo job: trains modules whose parameters lie on several device meshes, and publishes each step.

Arguments: rank, world size, the server, and a directory in which the ranks find each other, and what is expected.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import weightcast as wc
import weightcast.torch as wct

DEADLINE = 300.0
STEPS = 2
#: Blocks of FP8 that shards are cut within.
BLOCK = (5, 3)


class Experts(nn.Module):
    """One matrix of each expert, in one parameter."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6, 8))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.einsum("erc,nc->ner", self.w, inputs)


class Block(nn.Module):
    """What tensor parallelism cuts by rows and columns, what it leaves alone, and experts."""

    def __init__(self, seed: int = 0):
        super().__init__()
        torch.manual_seed(seed)
        self.norm = nn.Parameter(torch.randn(9))
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8, dtype=torch.bfloat16)
        self.experts = Experts()

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        up = self.up(inputs)
        return self.down(up.bfloat16()).float().sum() + self.norm.sum() + self.experts(up[:, :8]).sum()


def tensor_parallel(model: Block, mesh: DeviceMesh) -> None:
    parallelize_module(model, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


def expert_parallel(model: Block, mesh: DeviceMesh) -> None:
    cut = distribute_tensor(model.experts.w.detach(), mesh, [Shard(0)])
    model.experts.w = nn.Parameter(cut)


def ddp(world: int) -> nn.Module:
    return DistributedDataParallel(Block())


def ddp_over_tensor_parallel(world: int) -> nn.Module:
    model = Block()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    tensor_parallel(model, mesh["tensor"])
    return DistributedDataParallel(model, device_mesh=mesh["data"])


def fsdp_over_tensor_parallel(world: int) -> nn.Module:
    """`norm` and the experts lie on the data dimension alone, the others on both."""
    model = Block()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("data", "tensor"))
    tensor_parallel(model, mesh["tensor"])
    return fully_shard(model, mesh=mesh["data"])


def tensor_parallel_and_plain(world: int) -> nn.Module:
    """`up` lies on one dimension of a mesh and the experts on the other; the rest lies on none."""
    model = Block()
    mesh = init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("experts", "tensor"))
    tensor_parallel(model, mesh["tensor"])
    expert_parallel(model, mesh["experts"])
    return model


def hsdp_over_tensor_parallel(world: int) -> nn.Module:
    model = Block()
    mesh = init_device_mesh("cpu", (2, world // 4, 2), mesh_dim_names=("copy", "data", "tensor"))
    tensor_parallel(model, mesh["tensor"])
    return fully_shard(model, mesh=mesh["copy", "data"])


def experts_on_their_own_mesh(world: int) -> nn.Module:
    """Experts on a mesh that was made by itself, with copies; the rest over all ranks."""
    model = Block()
    expert_parallel(model, init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("copy", "experts"))["experts"])
    return fully_shard(model, mesh=init_device_mesh("cpu", (world,)), ignored_params={model.experts.w})


def experts_beside_copies(world: int) -> nn.Module:
    """Dense parameters are copies on all ranks, experts on each second one."""
    model = Block()
    expert_parallel(model, init_device_mesh("cpu", (world // 2, 2), mesh_dim_names=("copy", "experts"))["experts"])
    return model


def pipeline(world: int) -> nn.Module:
    """Stages hold other parameters: they are shards of one replica, and no copies."""
    model = Block()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("stage", "data"))
    if mesh.get_coordinate()[0] == 0:
        del model.down, model.experts
    else:
        del model.norm, model.up
    return fully_shard(model, mesh=mesh["data"])


#: How many copies there are by how many ranks, for each way of sharding.
CASES = {
    "ddp": (ddp, {4: 4}),
    "ddp-tensor": (ddp_over_tensor_parallel, {4: 2}),
    "fsdp-tensor": (fsdp_over_tensor_parallel, {4: 1}),
    "tensor-plain": (tensor_parallel_and_plain, {4: 1}),
    "hsdp-tensor": (hsdp_over_tensor_parallel, {8: 2}),
    "experts": (experts_on_their_own_mesh, {4: 1}),
    "experts-copies": (experts_beside_copies, {4: 2}),
    "pipeline": (pipeline, {4: 1}),
}


#: Those that are published in FP8 as well: no mesh of their parameters has all ranks, or one has.
FP8 = ("fsdp-tensor", "tensor-plain")


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Each element takes a step of its own."""
    for parameter in model.parameters():
        parameter.grad = torch.sin(parameter.detach() * 7)
    optimizer.step()


def expected(steps: int) -> dict[str, torch.Tensor]:
    """What every case has after so many steps."""
    model = Block()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        step(model, optimizer)
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def check(model: nn.Module, steps: int) -> None:
    """What torch itself gathers is that."""
    if isinstance(model, DistributedDataParallel):
        return
    wanted = expected(steps)
    for name, held in model.named_parameters():
        full = held.full_tensor() if isinstance(held, DTensor) else held
        assert torch.equal(full, wanted[name]), name


def train(name: str, model: nn.Module, copies: int, server: str) -> None:
    """Publishes each step until the rollout has it."""
    me = wct.replica("trainer", model)
    shards = dist.get_world_size() // copies
    assert me.num_shards == shards and (copies == 1) == (me.name == "trainer"), me
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    layout = wct.layout(model)
    both = {name: layout}
    if name in FP8:
        both[f"{name}-fp8"] = wct.layout(model).quantise("*.weight", block=BLOCK)
    with ExitStack() as entered:
        handles = [
            entered.enter_context(wc.open(job, me, role="trainer", server=server, deadline=DEADLINE)) for job in both
        ]
        for handle in handles:
            handle.register(both[handle.model], deadline=DEADLINE)
        for version in range(1, STEPS + 1):
            step(model, optimizer)
            check(model, version)
            for handle in handles:
                handle.publish(version, seal=True, deadline=DEADLINE)
            for handle in handles:
                handle.wait(lambda held, v=version: "done" in held.get(v, ()), deadline=DEADLINE)
                handle.unpublish(deadline=DEADLINE)


def refused(said: str, call) -> None:
    try:
        call()
    except wc.WeightcastError as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"nothing was told of {said!r}")


def refuse(world: int) -> None:
    """Meshes that do not say enough are refused on all ranks; nobody waits for ever."""
    outside = Block()
    cut = distribute_tensor(outside.norm.detach(), DeviceMesh("cpu", torch.arange(world - 1)), [Shard(0)])
    outside.norm = nn.Parameter(cut)
    tensor_parallel(outside, init_device_mesh("cpu", (world,)))
    refused(f"rank {world - 1}: this rank has norm", lambda: wct.replica("trainer", outside))
    refused("is not part of", lambda: wct.replica("trainer", outside, group=dist.group.WORLD))
    apart = nn.Module()
    for name, ranks in {"one": [0, 1], "other": [1, 2]}.items():
        mesh = DeviceMesh("cpu", torch.tensor(ranks))
        setattr(apart, name, nn.Parameter(distribute_tensor(torch.zeros(4), mesh, [Shard(0)])))
    refused("of which none has all ranks", lambda: wct.replica("trainer", apart))


def grouped(world: int) -> None:
    """A process group stands for what no mesh says."""
    rank = dist.get_rank()
    whole = wct.replica("trainer", Block(), group=dist.group.WORLD, spot=True)
    assert whole == wc.Replica(f"trainer-{rank}", spot=True), whole
    stage = Block()
    delattr(stage, "up" if rank % 2 else "down")
    halves = wct.replica("trainer", stage, group=dist.group.WORLD)
    assert halves == wc.Replica(f"trainer-{rank // 2}", shard=rank % 2, num_shards=2), halves


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    for name, (build, copies) in CASES.items():
        if int(world) in copies:
            train(name, build(int(world)), copies[int(world)], server)
    if int(world) == 4:
        refuse(int(world))
        grouped(int(world))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
