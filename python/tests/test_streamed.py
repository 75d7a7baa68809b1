"""Weights that a loop hands out as an iterator for each version, as TRL does: engines take each to the bit."""

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.adapters.engine.trainer import TrainerSettings  # noqa: E402
from weightcast.adapters.trainers.trl import WeightTransfer  # noqa: E402

from .conftest import SOON  # noqa: E402


class FetchingEngine:
    """An engine without steps of its own: it holds what it has fetched and was told to install."""

    def __init__(self, fails: bool = False) -> None:
        self.calls: list[str] = []
        self.weights: dict[str, torch.Tensor] = {}
        self.versions: list[str] = []
        self.fails = fails
        self._handle: Any = None

    def init_weight_transfer_engine(self, info: dict[str, Any]) -> None:
        self._handle = wc.open(info["model"], wc.Replica("engine"), server=info["server"])
        layout = wc.Layout()
        kinds = {"F32": torch.float32, "BF16": torch.bfloat16}
        self._memory = {name: torch.zeros(shape, dtype=kinds[dtype]) for name, (shape, dtype) in info["catalog"].items()}
        for name, tensor in self._memory.items():
            layout.add(tensor, name)
        self._handle.register(layout, deadline=SOON)

    def start_weight_update(self) -> None:
        self.calls.append("start")

    def update_weights(self, info: dict[str, Any]) -> None:
        if info.get("abandon"):
            return
        self.calls.append("fetch")
        if self.fails:
            raise RuntimeError("this engine cannot fetch")
        self._handle.update(info["version"], deadline=SOON)

    def finish_weight_update(self, weight_version: str) -> None:
        self.calls.append("install")
        self.versions.append(weight_version)
        self.weights = {name: tensor.clone() for name, tensor in self._memory.items()}

    def pause(self, mode: str = "abort") -> None:
        self.calls.append("pause")

    def resume(self) -> None:
        self.calls.append("resume")

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()


@pytest.fixture
def engine() -> Iterator[FetchingEngine]:
    made = FetchingEngine()
    yield made
    made.close()


def stream(weights: dict[str, torch.Tensor], seen: list[str] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """As TRL yields: each tensor for the moment."""
    for name, tensor in weights.items():
        yield name, tensor.clone().requires_grad_()
        if seen is not None:
            seen.append(name)


def weights(step: int) -> dict[str, torch.Tensor]:
    drawn = torch.Generator().manual_seed(step)
    return {
        "up.weight": torch.randn(5, 3, generator=drawn),
        "down.weight": torch.randn(3, 5, generator=drawn).bfloat16(),
        "scale": torch.randn((), generator=drawn),
    }


def test_each_version_is_taken_to_the_bit(server, engine) -> None:
    transfer = WeightTransfer(engine, TrainerSettings(server=server.address))
    transfer.init_weight_transfer()
    assert transfer.version == 0
    for step in (1, 2, 3):
        transfer.pause()
        transfer.send_weights(stream(weights(step)))
        transfer.resume()
        assert not any(tensor.requires_grad for tensor in transfer._streamed._tensors.values()), "keeps no graph"
        assert transfer.version == step and engine.versions[-1] == str(step)
        assert engine.weights.keys() == weights(step).keys()
        for name, tensor in weights(step).items():
            assert torch.equal(engine.weights[name], tensor), (name, step)
    assert engine.calls == ["start", "fetch", "pause", "install", "resume"] * 3, "paused for the install alone"
    transfer.destroy()
    transfer.destroy()
    assert transfer.version == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda held: held.pop("scale"), "has not yielded scale"),
        (lambda held: held.update(other=torch.zeros(2)), "yields other, which"),
        (lambda held: held.update({"scale": torch.zeros(2)}), "yields scale as"),
    ],
)
def test_another_stream_is_refused_and_exhausted(server, engine, change, said) -> None:
    """Other ranks wait in the gathers of what is left."""
    transfer = WeightTransfer(engine, TrainerSettings(server=server.address))
    transfer.send_weights(stream(weights(1)))
    other, seen = weights(2), []
    change(other)
    with pytest.raises(wc.LayoutMismatch, match=said):
        transfer.send_weights(stream(other, seen))
    assert seen == list(other), "all was asked for"
    assert torch.equal(engine.weights["up.weight"], weights(1)["up.weight"])
    transfer.send_weights(stream(weights(3)))
    assert torch.equal(engine.weights["up.weight"], weights(3)["up.weight"])
    transfer.destroy()


def test_the_first_stream_yields_each_name_once(server, engine) -> None:
    transfer = WeightTransfer(engine, TrainerSettings(server=server.address))
    seen: list[str] = []

    def twice() -> Iterator[tuple[str, torch.Tensor]]:
        yield from stream(weights(1), seen)
        yield from stream(weights(1), seen)

    with pytest.raises(wc.LayoutMismatch, match=r"yields up\.weight twice"):
        transfer.send_weights(twice())
    assert len(seen) == 6


def test_an_engine_that_fails_leaves_the_loop_able_to_try_again(server, engine) -> None:
    transfer = WeightTransfer(engine, TrainerSettings(server=server.address))
    transfer.send_weights(stream(weights(1)))
    engine.fails = True
    with pytest.raises(RuntimeError, match="cannot fetch"):
        transfer.send_weights(stream(weights(2)))
    assert torch.equal(engine.weights["up.weight"], weights(1)["up.weight"])
    engine.fails = False
    transfer.send_weights(stream(weights(3)))
    assert torch.equal(engine.weights["up.weight"], weights(3)["up.weight"])
    transfer.destroy()
