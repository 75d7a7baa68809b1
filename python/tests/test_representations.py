"""Versions published in another representation than the weights lie in: casts and FP8."""

import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import weightcast as wc  # noqa: E402
from weightcast.testing import fp8  # noqa: E402

from .conftest import SOON  # noqa: E402

SHAPE = (300, 257)
BLOCK = (128, 128)


def weights(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.manual_seed(seed)).to(torch.bfloat16)


def published(weight: torch.Tensor, norm: torch.Tensor) -> wc.Layout:
    return wc.Layout().add(weight, "w").add(norm, "norm").quantise("w", block=BLOCK)


class Target:
    """Memory of an FP8 engine: the codes as two halves of the rows, or whole."""

    def __init__(self) -> None:
        self.codes = torch.zeros(SHAPE, dtype=torch.float8_e4m3fn)
        self.scales = torch.zeros(3, 3)
        self.norm = torch.zeros(257, dtype=torch.bfloat16)

    def layout(self) -> wc.Layout:
        layout = wc.Layout().add(self.codes, "w").add(self.scales, "w_scale_inv")
        return layout.add(self.norm, "norm")

    def holds(self, weight: torch.Tensor, norm: torch.Tensor) -> bool:
        codes, scales = fp8.quantise(weight, BLOCK)
        same = self.codes.view(torch.uint8).equal(codes.view(torch.uint8))
        return same and self.scales.equal(scales) and self.norm.equal(norm)


NORM = torch.linspace(-1, 1, 257).to(torch.bfloat16)


@pytest.mark.parametrize("way", ["direct", "tcp"])
def test_weights_stay_and_codes_arrive(group, way):
    """Version after version; the weights are the trainer's own and stay as they are."""
    weight, target = weights(1), Target()
    trainer = group("trainer", [published(weight, NORM)], role="trainer")[0]
    rollout = group("rollout", [target.layout()], way=way)[0]
    for version in (1, 2, 3):
        with trainer.published(version, deadline=SOON):
            updated = rollout.update("latest", deadline=SOON)
            assert updated.version == version and updated.verified == updated.bytes
            assert updated.way == "tcp", "what is made when it is read has no address"
            assert target.holds(weight, NORM)
            assert weight.equal(weights(version))
        weight.copy_(weights(version + 1))


def test_a_replica_in_fp8_serves_what_it_has(group):
    """From then on it is a layout like any other, and the trainer may go on."""
    weight, first, second = weights(1), Target(), Target()
    trainer = group("trainer", [published(weight, NORM)], role="trainer")[0]
    trainer.publish(1, deadline=SOON, seal=True)
    group("first", [first.layout()])[0].replicate(1, deadline=SOON)
    trainer.unpublish(deadline=SOON)
    weight.zero_()
    updated = group("second", [second.layout()])[0].replicate(1, deadline=SOON)
    assert updated.source == "first"
    assert second.holds(weights(1), NORM)


def test_the_last_copy_is_kept_in_fp8(group):
    """Retained, it is copied aside as it was published."""
    weight, target = weights(1), Target()
    trainer = group("trainer", [published(weight, NORM)], role="trainer", retain=1)[0]
    trainer.publish(1, deadline=SOON, seal=True)
    trainer.unpublish(deadline=SOON)
    weight.zero_()
    updated = group("rollout", [target.layout()])[0].replicate(1, deadline=SOON)
    assert updated.source.startswith("trainer~offload") and target.holds(weights(1), NORM)


def test_a_change_while_it_is_published_is_noticed(group):
    weight, target = weights(1), Target()
    trainer = group("trainer", [published(weight, NORM)], role="trainer")[0]
    trainer.publish(1, deadline=SOON, seal=True)
    weight[17, 31] += 1.0
    with pytest.raises(wc.DigestMismatch):
        group("rollout", [target.layout()])[0].replicate(1, deadline=SOON)


def test_scales_are_not_made_anew_under_readers(group):
    trainer = group("trainer", [published(weights(1), NORM)], role="trainer")[0]
    trainer.publish(1, deadline=SOON)
    with pytest.raises(wc.Misuse, match="version 1 is published.*unpublish it first"):
        trainer.publish(2, deadline=SOON)
    assert trainer.list(deadline=SOON) == {1: {"trainer"}}


def test_it_cannot_be_filled(group):
    rollout = group("rollout", [published(weights(1), NORM)])[0]
    with pytest.raises(wc.Misuse, match="read-only"):
        rollout.replicate(1, deadline=SOON)


def halves(weight: torch.Tensor) -> list[wc.Layout]:
    """Two shards, cut in the middle of a block."""
    cut = wc.part("w", dim=0, start=0, length=200, shape=SHAPE)
    rest = wc.part("w", dim=0, start=200, length=100, shape=SHAPE)
    layouts = [wc.Layout().add(weight[:200], cut), wc.Layout().add(weight[200:], rest)]
    for layout in layouts:
        layout.quantise("w", block=BLOCK)
    layouts[0].add(NORM, "norm")
    return layouts


def test_shared_blocks_need_an_exchange(group):
    """Without one, no scale is guessed: all shards are told, and nothing is published."""
    trainer = group("trainer", halves(weights(1)), role="trainer")
    for error in trainer.each(lambda handle: handle.publish(1, deadline=SOON)):
        assert isinstance(error, wc.WeightcastError) and "6 FP8 blocks" not in str(error)
        assert "3 FP8 blocks lie with several shards" in str(error)
    assert trainer[0].version is None


def test_shared_blocks_are_exchanged(group):
    """One block row lies with both shards; each takes the larger magnitude of the two."""
    weight, target = weights(1), Target()
    weight[130, 5], weight[210, 5] = 9.0, 11.0
    layouts, barrier, seen = halves(weight), threading.Barrier(2), []

    def exchange(numbers: np.ndarray) -> None:
        seen.append(numbers.copy())
        barrier.wait(SOON)
        numbers[:] = np.maximum(*seen)

    for layout in layouts:
        layout.exchange = exchange
    trainer = group("trainer", layouts, role="trainer")
    trainer.all(lambda handle: handle.publish(1, deadline=SOON))
    group("rollout", [target.layout()])[0].replicate(1, deadline=SOON)
    assert target.holds(weight, NORM)
    assert sorted(numbers.view(np.float32)[0] for numbers in seen) == [9.0, 11.0]


def test_what_an_exchange_raises_is_raised(group):
    layouts = halves(weights(1))

    def exchange(numbers: np.ndarray) -> None:
        raise RuntimeError("a rank is gone")

    for layout in layouts:
        layout.exchange = exchange
    trainer = group("trainer", layouts, role="trainer")
    errors = trainer.each(lambda handle: handle.publish(1, deadline=SOON))
    assert any(isinstance(e, RuntimeError) and str(e) == "a rank is gone" for e in errors)
    assert not any(e is None for e in errors) and trainer[0].version is None


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (lambda layout: layout.quantise("norm"), "norm has 1 dimensions.*rows and columns"),
        (lambda layout: layout.cast("steps", "BF16"), "steps is I64: only F32, BF16 and F16"),
        (lambda layout: layout.cast("norm", "I32"), "norm is BF16: only F32, BF16 and F16"),
        (lambda layout: layout.quantise("w", block=(0, 128)), "blocks of 0 x 128"),
        (lambda layout: layout.quantise("w", scales="F8_E8M0"), "deepgemm has scales in F32"),
        (lambda layout: layout.quantise("w", suffix="_of"), "w would be called w_of"),
    ],
)
def test_rules_that_do_not_fit_are_refused(group, rule, message):
    layout = wc.Layout().add(weights(1), "w").add(NORM, "norm")
    layout.add(torch.tensor([7]), "steps").add(torch.zeros(1), "w_of")
    rule(layout)
    with pytest.raises(wc.LayoutMismatch, match=message):
        group("trainer", [layout], role="trainer")


def test_a_rule_that_names_nothing_is_refused_on_all_shards(group):
    """On all, though one has no matrix to begin with."""
    matrix = wc.Layout().add(weights(1), "w").quantise("w", block=BLOCK)
    norm = wc.Layout().add(NORM, "norm").quantise("w", block=BLOCK)
    group("good", [matrix, norm], role="trainer")
    for layout in (matrix, norm):
        layout.quantise("*_proj.weight")
    trainer = group("trainer", [matrix, norm], role="trainer", register=False)
    layouts = {0: matrix, 1: norm}
    for error in trainer.each(lambda h: h.register(layouts[h.replica.shard], deadline=SOON)):
        assert isinstance(error, wc.Misuse) and 'called "*_proj.weight"' in str(error)


def test_unknown_formulas_and_types_are_named():
    layout = wc.Layout()
    with pytest.raises(ValueError, match="there are triton, offline"):
        layout.quantise("w", formula="magic")
    with pytest.raises(ValueError, match="unknown dtype bf16"):
        layout.cast("w", "bf16")
