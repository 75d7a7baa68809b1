"""One rank of a gloo job: FSDP2 over a PEFT model, published merged and as an adapter alone.

Arguments: rank, world size, the server, and a directory in which the ranks find each other, and what is expected.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from weightcast.adapters.engine.adapter import Adapter
from weightcast.adapters.peft import merged
from weightcast.adapters.trainers.steps import Steps

from ..models import DEADLINE, STEPS, build

LORA = {"r": 3, "lora_alpha": 5, "target_modules": ["q_proj", "v_proj", "down_proj"], "alpha_pattern": {"v_proj": 7}}


def tuned(**given):
    """A PEFT model whose adapter changes something."""
    model = get_peft_model(build(), LoraConfig(**(LORA | given)))
    torch.manual_seed(3)
    learn(model)
    return model


def learn(model) -> None:
    """A step for all that is trained."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.sin(parameter.detach() * 9 + 1) / 8)


def write(directory: str, version: int) -> None:
    """Writes what PEFT itself saves and merges, of a model that no rank shares."""
    model = tuned()
    for _ in range(version - 1):
        learn(model)
    model.save_pretrained(Path(directory) / f"alone-{version}")
    made = model.merge_and_unload()
    found = {name: tensor.detach() for name, tensor in made.named_parameters()}
    save_file(found, Path(directory) / f"merged-{version}.safetensors")


def main(rank: str, world: str, server: str, directory: str) -> None:
    store = Path(directory) / "rendezvous"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=int(rank), world_size=int(world))
    model = tuned()
    mesh = init_device_mesh("cpu", (int(world),))
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    both = [Steps("merged", of=merged, server=server), Steps("alone", of=Adapter, server=server)]
    for version in range(1, STEPS + 1):
        if rank == "0":
            write(directory, version)
        dist.barrier()
        if version == 1:
            for steps in both:
                steps.begin(model, version)
        else:
            for steps in both:
                steps.before()
            learn(model)
            for steps in both:
                steps.after(version)
        for steps in both:
            steps.handle.wait(lambda held, v=version: f"done-{v}" in held.get(v, ()), deadline=DEADLINE)
    for steps in both:
        steps.end()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
