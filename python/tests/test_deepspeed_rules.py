"""The rules of DeepSpeed's adapter that need no DeepSpeed: pieces, refusals."""

from math import prod
from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.deepspeed import layout, replica  # noqa: E402


class Group:
    """A process group, as far as it is asked."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = (lambda: rank), (lambda: size)


def cut(shape: tuple[int, ...], rank: int = 0, ranks: int = 2) -> nn.Parameter:
    """A parameter as ZeRO-3 leaves it."""
    parameter = nn.Parameter(torch.empty(0))
    each = -(-prod(shape) // ranks)
    parameter.ds_id, parameter.ds_shape, parameter.ds_numel = 0, torch.Size(shape), prod(shape)
    parameter.ds_process_group = Group(rank, ranks)
    parameter.ds_tensor = torch.zeros(each)
    parameter.ds_tensor.ds_numel = each
    return parameter


def engine(monkeypatch: pytest.MonkeyPatch, parameter: nn.Parameter, **facts: Any) -> SimpleNamespace:
    """An engine of DeepSpeed, as far as it is asked."""
    monkeypatch.setattr(torch.distributed, "get_backend", lambda _: "gloo")
    module = nn.Module()
    module.weight = parameter
    return SimpleNamespace(module=module, **facts)


def test_a_rank_behind_the_last_element_has_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [layout(engine(monkeypatch, cut((5,), rank, 4))).nbytes for rank in range(4)] == [8, 8, 4, 0]


def test_it_is_the_live_memory(monkeypatch: pytest.MonkeyPatch, group: Any) -> None:
    parameter = cut((3, 4), ranks=1)
    parameter.ds_tensor.copy_(torch.arange(12.0))
    source = layout(engine(monkeypatch, parameter))
    target = torch.zeros(3, 4)
    trainer = group("trainer", [source], role="trainer")
    rollout = group("rollout", [wc.Layout().add(target, "weight")])
    for step in (1, 2):
        trainer[0].publish(step, deadline=20)
        rollout[0].update(deadline=20)
        assert torch.equal(target, parameter.ds_tensor.view(3, 4))
        trainer[0].unpublish(deadline=20)
        parameter.ds_tensor.add_(100)
    parameter.ds_tensor.data = torch.zeros(12)
    with pytest.raises(wc.Misuse, match="weight: the storage has been replaced"):
        trainer[0].publish(3, deadline=20)


def test_what_checkpoints_have_is_met(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = engine(monkeypatch, cut((3, 4)))
    layout(parts, expect={"weight": ((3, 4), torch.float32)})
    with pytest.raises(wc.LayoutMismatch, match=r"weight is published as \[3, 4\], and is \[4, 3\]"):
        layout(parts, expect={"weight": ((4, 3), torch.float32)})


def test_renamed_left_out_and_without_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = engine(monkeypatch, cut((3, 4)))
    parts.module.other = cut((5,))
    parts.module.register_buffer("steps", torch.tensor([7.0]))
    assert layout(parts).nbytes == 4 * (6 + 3 + 1)
    assert layout(parts, buffers=False).nbytes == 4 * (6 + 3)
    assert layout(parts, rename=lambda name: None if name == "other" else name).nbytes == 4 * (6 + 1)
    layout(parts, rename=str.upper, buffers=False, expect={
        "WEIGHT": ((3, 4), torch.float32), "OTHER": ((5,), torch.float32),
    })


def test_buffers_are_watched_and_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = engine(monkeypatch, cut((3, 4)))
    parts.module.register_buffer("steps", torch.tensor([7.0]))
    made = layout(parts)
    parts.module.steps = torch.tensor([8.0])
    assert "steps: the storage has been replaced" in made.origins.moved()
    parts.module.steps = torch.tensor([1j])
    with pytest.raises(wc.Misuse, match="steps has dtype torch.complex64"):
        layout(parts)


@pytest.mark.parametrize("parameter", [cut((3, 4)), nn.Parameter(torch.zeros(3, 4))])
def test_beside(monkeypatch: pytest.MonkeyPatch, parameter: nn.Parameter) -> None:
    parts = engine(monkeypatch, parameter)
    assert layout(parts, beside=True).all_beside
    assert not layout(parts).all_beside


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_stacked_experts_are_taken_apart(monkeypatch: pytest.MonkeyPatch, group: Any, ranks: int) -> None:
    """Pieces begin and end within experts, halves and rows."""
    whole = torch.arange(24.0).reshape(3, 4, 2)
    names = wc.NameMap({"weight": ("{expert}.gate", "{expert}.up")})
    expected = {f"{e}.{half}": whole[e].chunk(2)[i] for e in range(3) for i, half in enumerate(("gate", "up"))}
    layouts = []
    for rank in range(ranks):
        parts = engine(monkeypatch, cut((3, 4, 2), rank, ranks))
        piece = whole.reshape(-1).split(-(-24 // ranks))[rank]
        parts.module.weight.ds_tensor[: len(piece)] = piece
        catalog = {name: (tensor.shape, tensor.dtype) for name, tensor in expected.items()}
        layouts.append(layout(parts, names=names, expect=catalog))
    trainer = group("trainer", layouts, role="trainer")
    trainer.all(lambda handle: handle.publish(1, deadline=20))
    held, target = {name: torch.zeros(2, 2) for name in expected}, wc.Layout()
    for name, tensor in held.items():
        target.add(tensor, name)
    group("rollout", [target])[0].replicate(1, deadline=20)
    assert all(torch.equal(held[name], tensor) for name, tensor in expected.items())


def test_stacks_of_unknown_models_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    experts = nn.Module()
    experts.gate_up_proj = cut((3, 4, 2))
    module = nn.Module()
    module.experts, module.config = experts, SimpleNamespace(model_type="of a kind nobody knows")
    mlp = nn.Module()
    mlp.mlp, mlp.config = module, module.config
    parts = engine(monkeypatch, cut((3, 4)))
    parts.module = mlp
    with pytest.raises(wc.LayoutMismatch, match="mlp.experts.gate_up_proj: a stack of experts"):
        layout(parts)


def offloaded(parameter: Any) -> None:
    parameter.ds_tensor.final_location = "nvme"


def quantised(parameter: Any) -> None:
    parameter.ds_tensor.ds_quant_scale = torch.ones(1)


def absent(parameter: Any) -> None:
    parameter.ds_tensor = None


def in_smaller_groups(parameter: Any) -> None:
    parameter.ds_tensor.ds_numel = 3


@pytest.mark.parametrize(("spoil", "message"), [
    (offloaded, "weight is offloaded to NVMe.*offload parameters to the CPU"),
    (quantised, "weight is quantised"),
    (absent, "weight has not been partitioned yet"),
    (in_smaller_groups, "weight: 2 pieces of 3 elements are not the 12"),
])
def test_pieces_that_cannot_be_read_are_refused(monkeypatch: pytest.MonkeyPatch, spoil: Any, message: str) -> None:
    parameter = cut((3, 4))
    spoil(parameter)
    with pytest.raises(wc.Misuse, match=message):
        layout(engine(monkeypatch, parameter))


@pytest.mark.parametrize(("facts", "message"), [
    ({"pipeline_parallelism": True}, "is a pipeline"),
    ({"has_moe_layers": True}, "has layers of deepspeed.moe"),
    ({"autotp_size": lambda: 2}, "is tensor-parallel"),
    ({"mpu": SimpleNamespace(get_tensor_model_parallel_world_size=lambda: 4)}, "is tensor-parallel"),
])
def test_engines_whose_ranks_have_other_parameters_are_refused(
    monkeypatch: pytest.MonkeyPatch, facts: dict, message: str
) -> None:
    parts = engine(monkeypatch, cut((3, 4)), **facts)
    for ask in (layout, lambda parts: replica("trainer", parts)):
        with pytest.raises(wc.Misuse, match=message):
            ask(parts)


def test_where_a_rank_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = engine(monkeypatch, nn.Parameter(torch.zeros(2)))
    assert replica("trainer", whole) == wc.Replica("trainer")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 2)
    assert replica("trainer", whole, spot=True) == wc.Replica("trainer-2", spot=True)
    parts = engine(monkeypatch, cut((3, 4), rank=3, ranks=4))
    assert replica("trainer", parts) == wc.Replica("trainer", shard=3, num_shards=4)
    with pytest.raises(wc.Misuse, match="cuts over 2 of 4 ranks"):
        replica("trainer", engine(monkeypatch, cut((3, 4))))
