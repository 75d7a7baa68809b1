"""What a module holds: which tensors are one memory, and over which mesh its shards exchange."""

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import weightcast.torch as wct  # noqa: E402
from weightcast.torch import module as modules  # noqa: E402
from weightcast.torch.tensors import held  # noqa: E402


def test_only_tensors_of_one_place_and_shape_are_tied() -> None:
    """A view of the first rows of another is a weight of its own name, which must not be lost."""
    module = nn.Module()
    fused = torch.arange(12.0).reshape(4, 3)
    for name, tensor in {
        "fused": fused, "tied": fused[:], "rows": fused[:2], "across": fused.t(), "flat": fused.view(12),
        "bits": fused.view(torch.int32), "apart": fused.clone(),
    }.items():
        setattr(module, name, nn.Parameter(tensor, requires_grad=False))
    assert [one.name for one in held(module, buffers=False)] == ["fused", "rows", "across", "flat", "bits", "apart"]


@pytest.fixture
def four_ranks():
    """This process is the first of four, of which there are no others."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    yield init_device_mesh("cpu", (4,))
    dist.destroy_process_group()


@pytest.mark.parametrize("experts_first", [True, False])
def test_shards_exchange_over_the_largest_mesh_of_a_module(
    four_ranks: DeviceMesh, monkeypatch: pytest.MonkeyPatch, experts_first: bool
) -> None:
    """Experts lie on a mesh of their own; the ranks outside of it have to take part too."""
    pair = DeviceMesh("cpu", torch.tensor([0, 1]))
    over: list[DeviceMesh] = []
    monkeypatch.setattr(modules, "exchange", over.append)
    module = nn.Module()
    for mesh in (pair, four_ranks) if experts_first else (four_ranks, pair):
        name = f"of_{mesh.size()}"
        weight = distribute_tensor(torch.zeros(8, 4), mesh, [Shard(0)])
        setattr(module, name, nn.Parameter(weight, requires_grad=False))
    wct.layout(module)
    assert over == [four_ranks]
