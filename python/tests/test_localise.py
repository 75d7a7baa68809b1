"""A digest mismatch says which tensor, which slice of it, and who changed it."""

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON
from .test_hostile import WEIGHT, Tamperer, flip_a_bit_of_the_payload

ROWS, COLUMNS = 64, 48
#: Elements of four bytes in the smallest range that is compared.
FINE = (64 << 10) // 4


def halves(dim: int, filled: bool) -> tuple[list[np.ndarray], list[wc.Layout]]:
    """`w` in two, along a dimension, and a whole `bias` on both."""
    whole = np.arange(ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
    arrays = [np.ascontiguousarray(half) for half in np.split(whole, 2, axis=dim)]
    arrays = arrays if filled else [np.zeros_like(half) for half in arrays]
    layouts = []
    for shard, half in enumerate(arrays):
        part = wc.part("w", shape=whole.shape, dim=dim, index=shard, of=2)
        bias = np.full(7, float(filled), "f4")
        layouts.append(wc.Layout().add(bias, "bias").add(half, part))
    return arrays, layouts


def refusals(group: object) -> list[wc.DigestMismatch]:
    errors = group.each(lambda h: h.replicate("latest", deadline=SOON))
    assert all(isinstance(error, wc.DigestMismatch) for error in errors), errors
    return errors


@pytest.mark.parametrize("way", ["direct", "tcp"])
def test_a_source_that_changed_what_it_published(group, way):
    arrays, layouts = halves(0, filled=True)
    trainer = group("trainer", layouts, role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    arrays[1][3, 5] += 1  # in the columns of the first reader
    rollout = group("rollout", halves(1, filled=False)[1], way=way)
    first, second = refusals(rollout)
    # Both have read from the slice that has changed: it is known as a whole.
    for error in (first, second):
        assert (error.tensor, error.cause, error.source_shard) == ("w", "source", 1), error
        assert error.slice == [(ROWS // 2, ROWS), (0, COLUMNS)]
        assert "w[32:64, 0:48]" in str(error) and "shard 1 of trainer" in error.detail


def test_a_relay_whose_memory_went_bad(group):
    arrays, layouts = halves(0, filled=True)
    trainer = group("trainer", layouts, role="trainer")
    trainer.all(lambda h: h.publish(1, deadline=SOON, seal=True))
    copies, layouts = halves(1, filled=False)
    relay = group("relay", layouts)
    relay.all(lambda h: h.replicate(1, deadline=SOON))
    trainer.all(lambda h: h.unpublish(deadline=SOON))
    copies[0].view("u4")[7, 7] ^= 1
    (error,) = refusals(group("rollout", [wc.Layout().add(np.zeros(7, "f4"), "bias").add(
        np.zeros((ROWS, COLUMNS), "f4"), "w")]))
    assert error.source_replica == "relay" and "shard 0 of relay" in error.detail
    assert (error.tensor, error.cause, error.source_shard) == ("w", "source", 0)
    assert error.slice == [(0, ROWS), (0, COLUMNS // 2)]
    relay.all(lambda h: h.unpublish(deadline=SOON))


def test_bytes_changed_on_the_way(group):
    proxy = Tamperer(to_reader=flip_a_bit_of_the_payload)
    try:
        layout = wc.Layout().add(WEIGHT.copy(), "w")
        behind = group("behind", [layout], role="trainer", **proxy.options)
        behind[0].publish(1, deadline=SOON, seal=True)
        copy = np.zeros_like(WEIGHT)
        (error,) = refusals(group("rollout", [wc.Layout().add(copy, "w")], way="tcp"))
        assert (error.tensor, error.cause, error.source_shard) == ("w", "transfer", 0), error
        ((start, stop),) = error.slice
        assert 0 < stop - start <= FINE
        assert not np.array_equal(copy[start:stop], WEIGHT[start:stop])
        assert f"w[{start}:{stop}]" in error.detail and "on the way" in error.detail
        behind[0].unpublish(deadline=SOON)
    finally:
        proxy.close()
