"""In what order a handle has its effects, and what is left of them when a call fails."""

from typing import Any

import numpy as np
import pytest

import weightcast as wc
from weightcast import _core, handle

ME = wc.Replica("trainer", shard=2, num_shards=5)


class Core:
    """Stands for the native handle: notes its calls, and fails one of them."""

    def __init__(self, fails: str = "") -> None:
        self.fails, self.calls = fails, []
        self.version = None

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> None:
            self.calls.append((name, arguments))
            if name == self.fails:
                raise wc.Misuse("as the test wants")

        return call

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


class Origins:
    """Stands for a layout's origins: what moved, and how often it was published."""

    def __init__(self, moved: str | None = None) -> None:
        self._moved, self.published = moved, 0

    def moved(self) -> str | None:
        return self._moved

    def unready(self) -> str | None:
        return None

    def publish(self) -> None:
        self.published += 1


def layout(moved: str | None = None) -> wc.Layout:
    made = wc.Layout().add(np.zeros(2, "f4"), "w")
    made.origins = Origins(moved)
    return made


def registered(core: Core, of: wc.Layout) -> wc.Handle:
    made = wc.Handle(core, "policy", ME)
    made._layout = of
    return made


def test_a_layout_that_was_refused_is_not_the_handle_s() -> None:
    kept = layout()
    one = registered(Core("register"), kept)
    with pytest.raises(wc.Misuse):
        one.register(layout())
    assert one._layout is kept


def test_a_layout_stays_where_unregister_fails_and_goes_where_it_does_not() -> None:
    kept = layout()
    one = registered(Core("unregister"), kept)
    with pytest.raises(wc.Misuse):
        one.unregister()
    assert one._layout is kept
    for leave in (wc.Handle.unregister, wc.Handle.close):
        one = registered(Core(), layout())
        leave(one)
        assert one._layout is None


@pytest.mark.parametrize("fails", ["", "publish"])
def test_a_publication_counts_once_it_has_happened(fails: str) -> None:
    one = registered(Core(fails), layout())
    try:
        one.publish(1)
    except wc.Misuse:
        pass
    assert one._layout.origins.published == (not fails)


CALLS: dict[str, Any] = {
    "publish": lambda h: h.publish(1, deadline=7.0),
    "update": lambda h: h.update(deadline=7.0),
    "replicate": lambda h: h.replicate(1, deadline=7.0),
}


@pytest.mark.parametrize("call", sorted(CALLS))
def test_memory_that_moved_is_told_to_all_before_the_call(call: str) -> None:
    core = Core("refuse")
    with pytest.raises(wc.Misuse):
        CALLS[call](registered(core, layout("w has moved")))
    assert core.calls == [("refuse", ("w has moved", 7.0))]


def test_register_asks_after_the_layout_that_comes() -> None:
    core = Core("refuse")
    with pytest.raises(wc.Misuse):
        registered(core, layout()).register(layout("w has moved"), deadline=7.0)
    assert core.calls == [("refuse", ("w has moved", 7.0))]
    core = Core()
    registered(core, layout("of the one before")).register(layout())
    assert core.names == ["register"]


def test_an_exchange_works_on_the_numbers_in_place() -> None:
    core, told = Core(), layout()

    def twice(numbers: np.ndarray) -> None:
        numbers *= 2

    told.exchange = twice
    wc.Handle(core, "policy", ME).register(told)
    numbers = bytearray(np.array([3, -4], np.int32))
    core.calls[0][1][2](numbers)
    assert np.frombuffer(numbers, np.int32).tolist() == [6, -8]
    told.exchange = None
    wc.Handle(core, "policy", ME).register(told)
    assert core.calls[1][1][2] is None


def test_published_has_one_deadline_at_both_ends() -> None:
    core = Core()
    with wc.Handle(core, "policy", ME).published(3, deadline=7.0):
        assert core.calls == [("publish", (3, 7.0, False))]
    assert core.calls[1:] == [("unpublish", (7.0,))]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("fails", ["", "close"])
def test_an_error_under_way_leaves_in_a_hurry_and_comes_out(error: type, fails: str) -> None:
    for inside in (lambda h: h, lambda h: h.published(3)):
        core = Core(fails)
        with pytest.raises(error), inside(wc.Handle(core, "policy", ME)):
            raise error
        assert core.calls[-1] == ("close", (handle.HURRY,))
        assert "unpublish" not in core.names
    assert handle.HURRY == 2.0


def test_a_handle_left_without_error_has_its_minute() -> None:
    core = Core()
    with wc.Handle(core, "policy", ME):
        pass
    assert core.calls == [("close", (60.0,))]


def test_a_handle_says_its_version_and_run_and_shard() -> None:
    core = Core()
    one = wc.Handle(core, "policy", ME)
    assert (one.version, one.epoch) == (None, None)
    core.version = (8, 3)
    assert (one.version, one.epoch) == (8, 3)
    assert repr(one) == "<Handle policy/trainer[2/5] at 8>"


def test_a_number_of_two_runs_is_the_newer_run_s() -> None:
    listed = _core.Listing((1, 1), (((7, 1), ("old",)), ((8, 1), ("kept",)), ((7, 2), ("new",))))
    assert handle._versions(listed) == {7: {"new"}, 8: {"kept"}}


def test_defaults_are_those_that_are_written_down() -> None:
    """A second writing: a default that moves without being told is found here."""
    import inspect

    def defaults(of: Any) -> dict[str, Any]:
        every = inspect.signature(of).parameters.values()
        return {p.name: p.default for p in every if isinstance(p.default, int | float) and p.default is not False}

    assert defaults(wc.open) == {"retain": 0, "deadline": 30.0, "reconnect": 60.0}
    assert defaults(wc.serve) == {
        "lease": 5.0, "drain_deadline": 30.0, "fanout": 1, "host_fanout": 8, "stripes": 8, "index": 0}
    assert defaults(wc.verify) == {"deadline": 600.0}
    fp8 = inspect.signature(wc.Layout.quantise).parameters
    assert [fp8[n].default for n in ("block", "formula", "scales", "suffix")] == [
        (128, 128), "deepgemm", "F32", "_scale_inv"]
