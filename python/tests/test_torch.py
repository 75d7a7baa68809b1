"""Modules of torch as layouts: plain ones in this process, sharded ones in real gloo jobs."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
import weightcast.torch as wct  # noqa: E402
from weightcast.testing import fp8  # noqa: E402

from .conftest import SOON  # noqa: E402
from .programs import fsdp_trainer  # noqa: E402

PROGRAM = Path(fsdp_trainer.__file__)


@pytest.fixture
def server(patient_server):
    return patient_server


class Model(nn.Module):
    """Tied embeddings, several types, a buffer that is kept and one that is not."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.embed = nn.Embedding(11, 6)
        self.low = nn.Linear(6, 5, dtype=torch.bfloat16)
        self.scale = nn.Parameter(torch.randn(()))
        self.eighth = nn.Parameter(torch.randn(4, 3).to(torch.float8_e4m3fn), requires_grad=False)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("mean", torch.randn(6))
        self.register_buffer("scratch", torch.randn(6), persistent=False)


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes()


def move(group, source: wc.Layout, target: wc.Layout, way: str = "auto") -> wc.Updated:
    trainer = group("trainer", [source], role="trainer")
    trainer[0].publish(1, deadline=SOON, seal=True)
    return group("rollout", [target], way=way)[0].replicate("latest", deadline=SOON)


@pytest.mark.parametrize("way", ["direct", "tcp"])
def test_a_plain_module(group, way):
    one, two = Model(1), Model(2)
    scratch = two.scratch.clone()
    move(group, wct.layout(one), wct.layout(two), way)
    for (name, a), b in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert bits(a) == bits(b), name
    assert two.head.weight is two.embed.weight
    assert torch.equal(two.scratch, scratch), "not part of the state"


def test_tied_weights_are_listed_once():
    layout, model = wct.layout(Model(1), buffers=False), Model(1)
    assert len(layout) == len(list(model.parameters()))
    assert layout.nbytes == sum(p.numel() * p.element_size() for p in model.parameters())


def test_types_arrive_as_numpy_sees_them(group):
    model = Model(3)
    layout, copies = wc.Layout(), {}
    for name, dtype, stored in [
        ("low.weight", "BF16", "u2"),
        ("low.bias", "BF16", "u2"),
        ("eighth", "F8_E4M3", "u1"),
        ("embed.weight", None, "f4"),
        ("scale", None, "f4"),
    ]:
        copies[name] = np.zeros(model.get_parameter(name).shape, stored)
        layout.add(copies[name], name, dtype=dtype)
    move(group, wct.layout(model, buffers=False), layout)
    for name, copy in copies.items():
        assert bits(model.get_parameter(name)) == copy.tobytes(), name


def test_the_same_bytes_of_another_type_are_refused(group):
    model, other = nn.Linear(4, 4, dtype=torch.bfloat16), nn.Linear(4, 4, dtype=torch.float16)
    with pytest.raises(wc.LayoutMismatch, match="weight.*F16.*BF16"):
        move(group, wct.layout(model), wct.layout(other))


def test_a_parameter_that_is_not_contiguous_is_named():
    model = Model(1)
    model.low.weight = nn.Parameter(torch.randn(6, 5, dtype=torch.bfloat16).T)
    with pytest.raises(wc.Misuse, match="low.weight.*not contiguous"):
        wct.layout(model)


def test_renamed_and_left_out(group):
    one, two = nn.Linear(3, 3), nn.Linear(3, 3)
    bias = two.bias.detach().clone()

    def rename(name: str) -> str | None:
        return None if name == "bias" else f"model.{name}"

    target = wc.Layout().add(two.weight, "model.weight")
    move(group, wct.layout(one, rename=rename), target)
    assert torch.equal(one.weight, two.weight) and torch.equal(two.bias, bias)


def test_a_plain_module_is_one_whole_replica():
    me = wct.replica("trainer", Model(1), datacentre="eu1", spot=True)
    assert me == wc.Replica("trainer", datacentre="eu1", spot=True)


def launch(world: int, server: str, directory: Path) -> list[subprocess.Popen]:
    command = [sys.executable, "-m", f"{__package__}.programs.fsdp_trainer"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return [
        subprocess.Popen(
            [*command, str(rank), str(world), server, str(directory)],
            cwd=Path(__file__).parent.parent,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", [2, 4])
def test_sharded_modules_arrive_whole(group, server, tmp_path, world):
    """A plain rollout gets each full tensor to the bit, however the ranks share them."""
    ranks = launch(world, server.address, tmp_path)
    try:
        for name, (_, worlds) in fsdp_trainer.CASES.items():
            if world in worlds:
                copies = 2 if name == "replicated" else 0
                receive(group, name, copies)
                receive_fp8(group, f"{name}-fp8", copies)
        for name in ["experts"] + ["rows-of-experts"] * (world == 2):
            receive_tensors(group, name, fsdp_trainer.expected_experts(), copies=0)
        for rank in ranks:
            _, errors = rank.communicate(timeout=3 * SOON)
            assert rank.returncode == 0, errors
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate(timeout=SOON)


def receive(group, name: str, copies: int) -> None:
    """Replicates the model into a module of other weights and compares it."""
    model = fsdp_trainer.plain(seed=1)
    replicate(group, name, wct.layout(model), copies)
    state = model.state_dict()
    for key, tensor in fsdp_trainer.expected().items():
        assert bits(state[key]) == bits(tensor), (name, key)


def receive_fp8(group, name: str, copies: int) -> None:
    """The same in FP8: what torch makes of the full tensors, though blocks lie with several ranks."""
    expected = {}
    for key, tensor in fsdp_trainer.expected().items():
        if key.endswith("weight"):
            expected[key], expected[f"{key}_scale_inv"] = fp8.quantise(tensor, fsdp_trainer.BLOCK)
        else:
            expected[key] = tensor if key == "steps" else tensor.to(torch.bfloat16)
    receive_tensors(group, name, expected, copies)


def receive_tensors(group, name: str, expected: dict[str, torch.Tensor], copies: int) -> None:
    """Replicates the model into zeros and compares it."""
    memory = {key: torch.zeros_like(tensor) for key, tensor in expected.items()}
    layout = wc.Layout()
    for key, tensor in memory.items():
        layout.add(tensor, key)
    replicate(group, name, layout, copies)
    for key, tensor in expected.items():
        assert bits(memory[key]) == bits(tensor), (name, key)


def replicate(group, name: str, layout: wc.Layout, copies: int) -> None:
    """Fills the layout with the version that trainers of this name publish."""
    rollout = group("rollout", [layout], model=name)[0]
    held = rollout.wait(lambda held: len(held.get(1, ())) >= max(1, copies), deadline=3 * SOON)
    names = {f"trainer-{copy}" for copy in range(copies)} or {"trainer"}
    assert held == {1: names}
    updated = rollout.replicate(1, deadline=SOON)
    assert updated.source in names and updated.verified == updated.bytes
