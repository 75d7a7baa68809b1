"""What the ranks of a mesh tell each other before and after they gather: their plan, and a failure."""

import hashlib
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .. import _core
from ..pipeline.failure import StageFailed
from .recipes import Product


def raise_together(mesh: DeviceMesh | None, failed: StageFailed | None) -> None:
    """Raises on all ranks what one of them has raised; on that one, the error itself."""
    mine = None if failed is None else (failed.tensor, str(failed.stage), failed.reason, failed.rank)
    told = next((one for one in told_by_all(mesh, mine) if one is not None), None)
    if failed is not None:
        raise failed
    if told is not None:
        raise StageFailed(*told)


def refuse_other_plans(mesh: DeviceMesh | None, products: Sequence[Product]) -> None:
    """Raises `Misuse` if ranks make different things, and so would wait for different gathers."""
    plan = hashlib.sha256()
    for product in products:
        plan.update(repr((product.outputs, product.inputs, product.made)).encode())
    mine = (plan.hexdigest(), len(products), dist.get_rank() if mesh is not None else 0)
    for digest, count, rank in told_by_all(mesh, mine):
        if digest != mine[0]:
            raise _core.Misuse(
                f"rank {rank} makes {count} tensors and rank {mine[2]} makes {mine[1]}, or of other names or "
                "shapes: give gathered() the same module and recipes on all ranks"
            )


def told_by_all(mesh: DeviceMesh | None, mine: Any) -> list[Any]:
    """What each rank of the mesh says, without order."""
    told = [mine]
    if mesh is None:
        return told
    # What all say along one dimension after the other is what all say.
    for dim in range(mesh.ndim):
        group = mesh.get_group(dim)
        heard: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(heard, told, group=group)
        told = [one for each in heard for one in each]
    return told
