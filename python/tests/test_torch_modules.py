"""What a module holds: which tensors are one memory, and over which mesh its shards exchange."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402
from torch.distributed.tensor import Shard, distribute_tensor  # noqa: E402
from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: E402

import weightcast as wc  # noqa: E402
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


class Ignoring(nn.Module):
    """As transformers' models name what their checkpoints leave out."""

    _keys_to_ignore_on_save = ["inner.table"]

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.inner.bias = None
        for name, persistent in (("table", True), ("kept", True), ("scratch", False)):
            self.inner.register_buffer(name, torch.ones(2), persistent=persistent)
        self.inner.register_buffer("none", None)


def test_buffers_are_those_that_a_checkpoint_has() -> None:
    model = Ignoring()
    assert [one.name for one in held(model, buffers=True)] == ["inner.weight", "inner.kept"]
    assert [(one.owner, one.key) for one in held(model, buffers=True)] == [(model.inner, "weight"), (model.inner, "kept")]
    assert [one.name for one in held(model, buffers=False)] == ["inner.weight"]
    model.inner.kept = model.inner.weight.detach()[:]
    assert [one.name for one in held(model, buffers=True)] == ["inner.weight"], "a buffer may be tied to a parameter"
    model._keys_to_ignore_on_save = None
    assert [one.name for one in held(model, buffers=True)] == ["inner.weight", "inner.table"]


def test_tensors_without_elements_are_not_tied() -> None:
    module = nn.Module()
    for name in ("a", "b"):
        module.register_parameter(name, nn.Parameter(torch.empty(0, 3), requires_grad=False))
    module.c = nn.Parameter(torch.empty(2, device="meta"), requires_grad=False)
    module.d = nn.Parameter(torch.empty(2, device="meta"), requires_grad=False)
    module.e = module.c
    assert [one.name for one in held(module, buffers=False)] == ["a", "b", "c", "d"]


class Group:
    def __init__(self, size: int) -> None:
        self.size = lambda: size


@pytest.mark.parametrize(
    ("marked", "group", "sizes", "refused"),
    [
        (None, None, None, False),
        (True, None, None, True),
        (False, None, None, False),
        (True, 1, None, False),
        (True, 2, None, True),
        (False, 2, None, True),
        (True, 1, {"tensor": 4, "pipeline": 1}, False),
        (False, None, {"tensor": 1, "pipeline": 1, "expert": 1}, False),
        (False, None, {"tensor": 1, "pipeline": 2, "expert": 1}, True),
        (False, 1, {"tensor": 1, "pipeline": 1, "expert": 8}, True),
        (True, None, {"tensor": 1, "pipeline": 1}, False),
        (True, None, {"tensor": AssertionError("no groups"), "pipeline": 1}, True),
    ],
)
def test_a_weight_that_megatron_has_marked_is_whole_only_in_groups_of_one(
    monkeypatch: pytest.MonkeyPatch, marked: bool | None, group: int | None, sizes: dict | None, refused: bool
) -> None:
    module = nn.Module()
    module.weight = nn.Parameter(torch.zeros(2))
    if marked is not None:
        module.weight.tensor_model_parallel = marked
    if group is not None:
        module.tp_group = Group(group)
    monkeypatch.delitem(sys.modules, "megatron.core.parallel_state", raising=False)
    if sizes is not None:
        def asked(size: Any) -> Any:
            if isinstance(size, Exception):
                raise size
            return size

        state = SimpleNamespace(**{f"get_{name}_model_parallel_world_size": lambda size=size: asked(size) for name, size in sizes.items()})
        monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", state)
    if refused:
        with pytest.raises(wc.Misuse, match=r"weight belongs to Megatron, .*weightcast.adapters.megatron.layout"):
            wct.layout(module)
    else:
        assert len(wct.layout(module)) == 1


def test_memory_in_place_of_a_parameters_is_published_under_its_name(four_ranks: DeviceMesh) -> None:
    """Of a cut one this rank's slice of it; the parameter itself is not watched, and what is left out is not there."""
    module = nn.Module()
    module.cut = nn.Parameter(distribute_tensor(torch.zeros(8, 4), four_ranks, [Shard(0)]), requires_grad=False)
    module.plain, module.out = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(5))
    half = torch.ones(2, 4, dtype=torch.bfloat16)
    listed = wc.Layout()
    published = modules.add_module(listed, module, names=None, rename=None, buffers=True, but={"out"}, instead={"cut": half})
    assert {name: entry.shape for name, entry in published.items()} == {"cut": (8, 4), "plain": (3,)}
    assert [length for *_, length in listed._places] == [16, 12], "halves of its two rows, and the plain one"
    module.cut = nn.Parameter(distribute_tensor(torch.zeros(8, 4), four_ranks, [Shard(0)]), requires_grad=False)
    assert listed.origins.moved() is None
    module.plain = nn.Parameter(torch.zeros(3))
    assert listed.origins.moved().startswith("plain: ")


def test_blocks_of_ranks_that_no_mesh_joins_are_refused_only_where_they_are_asked_for(four_ranks: DeviceMesh) -> None:
    module = nn.Module()
    for name, ranks in (("a", [0, 1]), ("b", [0, 2])):
        mesh = DeviceMesh("cpu", torch.tensor(ranks))
        module.register_parameter(name, nn.Parameter(distribute_tensor(torch.zeros(4, 4), mesh, [Shard(0)]), requires_grad=False))
    layout = wct.layout(module)
    with pytest.raises(wc.Misuse, match="FP8 blocks of which several ranks hold parts need all ranks: .* none has all ranks"):
        layout.exchange(None)
    plain = nn.Linear(2, 2)
    assert wct.layout(plain).exchange is None
