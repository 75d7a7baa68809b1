"""One rank of a gloo job: what FSDP1 wraps is refused without its wrapper, modules of FSDP2 are right or told.

Arguments: rank, world size, the server, and a directory through which the ranks find each other.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard

import weightcast as wc
import weightcast.torch as wct

DEADLINE = 60.0
VERSIONS = 3


def plain(seed: int = 0) -> nn.Module:
    """Rows that no world divides."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(7, 13), nn.Linear(13, 5))


def refused(said: str, call) -> None:
    try:
        call()
    except wc.WeightcastError as error:
        assert said in str(error), error
    else:
        raise AssertionError(f"nothing was told of {said!r}")


def fsdp1() -> None:
    """Flat parameters, and views of them: whole, halves of rows, or empty."""
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
        for original in (False, True):
            model = FullyShardedDataParallel(
                plain(),
                sharding_strategy=strategy,
                use_orig_params=original,
                device_id=torch.device("cpu"),
            )
            refused("belongs to FSDP1", lambda model=model: wct.layout(model.module))


def save_full(model: nn.Module, version: int, directory: str) -> None:
    full = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
    if dist.get_rank() == 0:
        torch.save(full, Path(directory) / f"expected-{version}.pt")


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(2, 7)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def evaluate(model: nn.Module) -> None:
    """What the root gathered for this still stands in its parameters afterwards."""
    with torch.no_grad():
        model(torch.ones(2, 7))
    assert not hasattr(model[1].weight, "_local_tensor"), "it is no more as this test wants it"


def publish(handle: wc.Handle, model: nn.Module, version: int, directory: str) -> None:
    """Publishes until the rollout has it; evaluates the model before, as trainers do."""
    save_full(model, version, directory)
    evaluate(model)
    dist.barrier()
    handle.publish(version, seal=True, deadline=DEADLINE)
    handle.wait(
        lambda held: f"rollout-{version}" in held.get(version, ()), deadline=DEADLINE
    )
    handle.unpublish(deadline=DEADLINE)


def fsdp2(world: int, server: str, directory: str) -> None:
    model = plain(seed=7)
    mesh = init_device_mesh("cpu", (world,))
    fully_shard(model[0], mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    evaluate(model)
    me, layout = wct.replica("trainer", model), wct.layout(model)
    assert me.num_shards == world, me
    with wc.open("sharded", me, role="trainer", server=server, deadline=DEADLINE) as handle:
        handle.register(layout, deadline=DEADLINE)
        step(model, optimizer)
        publish(handle, model, 1, directory)
        step(model, optimizer)
        publish(handle, model, 2, directory)
        state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        model.load_state_dict(state, assign=True)
        refused("0.weight, 0.bias, ", lambda: handle.publish(3, deadline=DEADLINE))
        handle.unregister(deadline=DEADLINE)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        step(model, optimizer)  # FSDP2 pads what was assigned, in storage of its own
        handle.register(wct.layout(model), deadline=DEADLINE)
        publish(handle, model, 3, directory)


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world)
    )
    fsdp1()
    fsdp2(int(world), server, directory)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
