"""A `register` that fails on one shard fails on all, at once, with the reason; then all try again."""

import numpy as np
import pytest

import weightcast as wc

from .conftest import SOON, Group

ROWS, COLUMNS = 8, 4


def rows(shard: int, array: np.ndarray | None = None, **other) -> wc.Layout:
    """Half of `w`, or what `other` makes of it."""
    memory = np.zeros((ROWS // 2, COLUMNS), "f4") if array is None else array
    arguments = {"shape": (ROWS, COLUMNS), "dim": 0, "index": shard, "of": 2} | other
    return wc.Layout().add(memory, wc.part(arguments.pop("name", "w"), **arguments))


@pytest.fixture
def trainer(group):
    weight = np.arange(ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
    made = group("trainer", [wc.Layout().add(weight, "w")], role="trainer")
    made[0].publish(1, deadline=SOON, seal=True)
    return weight


def register(pair: Group, layouts: list[wc.Layout]) -> list:
    return pair.each(lambda h: h.register(layouts[h.replica.shard], deadline=SOON))


def check_usable(pair: Group, weight: np.ndarray) -> None:
    """The same handles register what is right, and replicate."""
    halves = [np.zeros((ROWS // 2, COLUMNS), "f4") for _ in range(2)]
    assert register(pair, [rows(shard, half) for shard, half in enumerate(halves)]) == [None, None]
    pair.all(lambda h: h.replicate(1, deadline=SOON))
    assert np.array_equal(np.concatenate(halves), weight)


WRONG = {
    "does not add up": (lambda shard: rows(shard, np.zeros((5, COLUMNS), "f4")), "buffer 0"),
    "part beyond the tensor": (lambda shard: rows(shard, index=7), "7"),
    "name that cannot be": (lambda shard: rows(shard, name="../w"), "../w"),
}
OPEN_WRONG = {
    "unmatched": (lambda shard: rows(shard, name="v", shape=None), "v"),
    "wrong dtype": (lambda shard: rows(shard, np.zeros((4, 4), "f8"), shape=None), "F64"),
}


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG)
def test_what_one_shard_cannot_register_no_shard_does(group, trainer, make, said, bad):
    layouts = [make(shard) if shard == bad else rows(shard) for shard in range(2)]
    pair = group("pair", layouts, register=False)
    errors = register(pair, layouts)
    assert isinstance(errors[bad], wc.LayoutMismatch) and said in str(errors[bad]), errors
    other = errors[1 - bad]
    assert isinstance(other, wc.LayoutMismatch) and other.replica == "pair", other
    assert f"shard {bad}: " in other.detail and said in other.detail, other.detail
    check_usable(pair, trainer)


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize(("make", "said"), OPEN_WRONG.values(), ids=OPEN_WRONG)
def test_a_name_that_one_shard_cannot_match(group, trainer, make, said, bad):
    layouts = [make(s) if s == bad else rows(s, shape=None) for s in range(2)]
    pair = group("pair", layouts, register=False)
    errors = register(pair, layouts)
    for error in errors:
        assert isinstance(error, wc.LayoutMismatch) and said in str(error), errors
    assert f"shard {bad}: " in errors[1 - bad].detail
    check_usable(pair, trainer)


def test_shards_that_disagree_take_it_back(group, trainer):
    layouts = [rows(0), rows(1, np.zeros((4, 5), "f4"), shape=(ROWS, 5))]
    pair = group("pair", layouts, register=False)
    for error in register(pair, layouts):
        assert isinstance(error, wc.Misuse) and "[8, 5]" in str(error), error
    check_usable(pair, trainer)


def fixed(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def test_read_only_memory_is_published_but_not_filled(group, trainer):
    held = fixed(np.ones((ROWS, COLUMNS), "f4"))
    layout = wc.Layout().add(np.zeros(3, "f4"), "a").add(held, "w")
    other = group("other", [layout], role="trainer", model="other")
    other[0].publish(1, deadline=SOON, seal=True)
    copies = [np.zeros(3, "f4"), np.zeros((ROWS, COLUMNS), "f4")]
    rollout = group(
        "rollout", [wc.Layout().add(copies[0], "a").add(copies[1], "w")], model="other"
    )
    rollout[0].replicate(1, deadline=SOON)
    assert np.array_equal(copies[1], held)
    other[0].unpublish(deadline=SOON)
    for call in (lambda h: h.replicate(1, deadline=SOON), lambda h: h.update(deadline=SOON)):
        with pytest.raises(wc.Misuse, match="registered for w is read-only"):
            call(other[0])
    other[0].publish(1, deadline=SOON)


def test_read_only_memory_of_one_shard_is_told_to_all(group, trainer):
    layouts = [rows(0), rows(1, fixed(np.zeros((ROWS // 2, COLUMNS), "f4")))]
    pair = group("pair", layouts)
    errors = pair.each(lambda h: h.replicate(1, deadline=SOON))
    assert isinstance(errors[1], wc.Misuse) and "w is read-only" in str(errors[1]), errors
    assert isinstance(errors[0], wc.LayoutMismatch), errors
    assert "shard 1: " in errors[0].detail and "w is read-only" in errors[0].detail
    pair.all(lambda h: h.unregister(deadline=SOON))
    check_usable(pair, trainer)
