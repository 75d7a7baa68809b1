"""One rank of a gloo job: trains in FP8 as torchao does it under FSDP2, and publishes each step.

Arguments: rank, world size, the server, and a directory in which the ranks find each other, and what is expected.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

import weightcast as wc
import weightcast.torch as wct
from weightcast.adapters.trainers.accelerate import publish_steps

from ..models import DEADLINE, STEPS, file_of


def build() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 48), nn.Linear(48, 32))
    # In plain arithmetic: this may be no machine with FP8.
    config = Float8LinearConfig(enable_fsdp_float8_all_gather=True, emulate=True)
    return convert_to_float8_training(model, config=config)


def write(model: nn.Module, directory: str, version: int) -> None:
    """Writes what torch gathers."""
    full = {}
    for name, tensor in model.named_parameters():
        whole = tensor.full_tensor()
        full[name] = getattr(whole, "_tensor", whole).detach().clone()
    if dist.get_rank() == 0:
        torch.save(full, file_of(directory, "float8", version))
    dist.barrier()


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    model, mesh = build(), init_device_mesh("cpu", (int(world),))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer, count = torch.optim.AdamW(model.parameters(), lr=0.1), 0

    def note(*_) -> None:
        nonlocal count
        count += 1
        write(model, directory, count)

    optimizer.register_step_post_hook(note)
    write(model, directory, 0)
    with publish_steps(model, optimizer, "float8", server=server) as steps:
        for version in range(STEPS + 1):
            steps.handle.wait(lambda held, v=version: f"done-{v}" in held.get(v, ()), deadline=DEADLINE)
            if version < STEPS:
                model(torch.randn(16, 32)).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    assert count == STEPS
    layout = wct.layout(model)
    inner = model[0].weight._local_tensor
    inner._tensor = inner._tensor.clone()
    assert "0.weight: the storage has been replaced" in layout.origins.moved(), layout.origins.moved()
    assert isinstance(wct.replica("trainer", model), wc.Replica)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
