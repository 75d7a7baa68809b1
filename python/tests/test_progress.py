"""`update(progress=...)`: whoever waits is told how far the read is."""

import io
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import weightcast as wc
from weightcast.progress import _Line

from .conftest import SOON
from .programs.driver import Gate

#: Elements of the tensor: many pieces.
COUNT = 8 << 20


@dataclass
class Scene:
    """A trainer of version 1 behind a gate, which lets a megabyte through, and a rollout."""

    gate: Gate
    trainer: wc.Handle
    rollout: wc.Handle
    weight: np.ndarray
    copy: np.ndarray
    told: list[tuple[int, int]] = field(default_factory=list)

    def note(self, arrived: int, total: int) -> None:
        self.told.append((arrived, total))

    def in_the_middle(self) -> bool:
        return 0 < self.told[-1][0] < self.weight.nbytes


@pytest.fixture
def scene(group: Callable[..., Any]) -> Iterator[Scene]:
    gate = Gate()
    weight, copy = np.arange(COUNT, dtype="f4"), np.zeros(COUNT, "f4")
    [trainer] = group("trainer", [wc.Layout().add(weight, "w")], role="trainer", way="tcp", **gate.options).handles
    trainer.publish(1, deadline=SOON, seal=True)
    [rollout] = group("rollout", [wc.Layout().add(copy, "w")], way="tcp").handles
    gate.hold_after(1 << 20)
    yield Scene(gate, trainer, rollout, weight, copy)
    gate.close()


@pytest.mark.parametrize("staged", [False, True])
def test_whoever_waits_is_told_in_the_calling_thread(scene: Scene, staged: bool) -> None:
    threads = set()

    def progress(arrived: int, total: int) -> None:
        scene.note(arrived, total)
        threads.add(threading.get_ident())
        if scene.in_the_middle():
            assert scene.rollout.progress_total == total
            scene.gate.open()

    assert scene.rollout.progress_total == 0
    assert scene.rollout.update(staged=staged, deadline=SOON, progress=progress)
    arrived = [arrived for arrived, _ in scene.told]
    assert arrived == sorted(set(arrived)) and len(arrived) > 1
    assert {total for _, total in scene.told} == {scene.weight.nbytes}
    assert arrived[-1] == scene.weight.nbytes == scene.rollout.progress == scene.rollout.progress_total
    assert threads == {threading.get_ident()}
    assert np.array_equal(scene.copy, scene.weight)


def test_a_read_that_is_over_at_once_is_told_of_once_and_no_read_never(scene: Scene) -> None:
    scene.gate.open()
    assert scene.rollout.replicate(1, deadline=SOON, progress=scene.note)
    assert scene.told[-1] == (scene.weight.nbytes, scene.weight.nbytes)
    scene.told.clear()
    assert not scene.rollout.update(deadline=SOON, progress=scene.note)
    assert scene.told == [], "that was an earlier read"


def test_what_progress_raises_is_raised_when_the_update_has_ended(scene: Scene) -> None:
    def progress(arrived: int, total: int) -> None:
        scene.note(arrived, total)
        scene.gate.open()
        raise ValueError("of the caller")

    with pytest.raises(ValueError, match="of the caller"):
        scene.rollout.update(deadline=SOON, progress=progress)
    assert len(scene.told) == 1, "it is not called again"
    assert scene.rollout.version == 1 and np.array_equal(scene.copy, scene.weight)
    assert not scene.rollout.update(deadline=SOON), "the handle works"


def test_the_error_of_an_update_counts_for_more(scene: Scene) -> None:
    def progress(arrived: int, total: int) -> None:
        scene.trainer.close(deadline=0.1)
        raise ValueError("of the caller")

    with pytest.raises(wc.WeightcastError) as failed:
        scene.rollout.update(deadline=2.0, progress=progress)
    assert isinstance(failed.value.__context__, ValueError)
    assert scene.rollout.version is None


def test_an_interrupt_ends_the_update_at_once(scene: Scene) -> None:
    def progress(arrived: int, total: int) -> None:
        raise KeyboardInterrupt("of the caller")

    with pytest.raises(KeyboardInterrupt, match="of the caller"):
        scene.rollout.update(deadline=SOON, progress=progress)
    assert scene.rollout.version is None, "the gate is shut"


def test_the_server_knows_how_far_readers_are(scene: Scene, server: wc.Server) -> None:
    def rollout() -> dict[str, Any]:
        [model] = wc.status(server.address)["models"]
        return next(replica for replica in model["replicas"] if replica["name"] == "rollout")

    reader = threading.Thread(target=lambda: scene.rollout.update(deadline=SOON))
    assert rollout()["reading"] is None and rollout()["versions_behind"] is None
    reader.start()
    scene.gate.wait_held()
    end = time.monotonic() + SOON
    while not (rollout()["reading"] or {}).get("arrived_bytes"):
        assert time.monotonic() < end, "the shard has told nothing"
    status = rollout()
    reading, pending = status["reading"], status["pending_call"]
    assert reading["version"] == 1 and reading["total_bytes"] == scene.weight.nbytes
    assert 0 < reading["arrived_bytes"] < scene.weight.nbytes
    assert pending["call"] == "update(latest)" and pending["shards_arrived"] == 1
    assert 0 < pending["left_s"] <= SOON and pending["age_s"] > 0
    scene.gate.open()
    reader.join()
    status = rollout()
    assert status["reading"] is None and status["pending_call"] is None
    assert (status["versions_behind"], status["stale_s"]) == (0, 0.0)
    scene.trainer.unpublish(deadline=SOON)
    scene.trainer.publish(2, deadline=SOON)
    status = rollout()
    assert status["versions_behind"] == 1 and status["stale_s"] > 0


class Library(types.ModuleType):
    """A module of which only one name is used, as often as a test asks for it."""

    def __init__(self, **names: Any) -> None:
        super().__init__("library")
        self.__dict__.update(names)


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Modules that are not installed."""
    return lambda *names: [monkeypatch.setitem(sys.modules, name, None) for name in names]


def test_each_call_has_a_bar_of_tqdm(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    bars: list[Any] = []

    class Bar:
        def __init__(self, **options: Any) -> None:
            self.options, self.total, self.n, self.closed = options, options["total"], 0, False
            bars.append(self)

        def update(self, more: int) -> None:
            assert not self.closed
            self.n += more

        def close(self) -> None:
            self.closed = True

    monkeypatch.setitem(sys.modules, "tqdm", Library(tqdm=Bar))
    bar = wc.progress_bar("policy")
    scene.gate.open()
    scene.rollout.update(deadline=SOON, progress=bar)
    scene.rollout.update(deadline=SOON, progress=bar)
    [first] = bars
    assert (first.n, first.total, first.closed) == (scene.weight.nbytes, scene.weight.nbytes, True)
    assert first.options["desc"] == "policy"
    # A call that fails ends its bar as well.
    bar(1, 10)
    with pytest.raises(wc.WeightcastError):
        scene.rollout.replicate(1, deadline=SOON, progress=bar)
    assert [bar.closed for bar in bars] == [True, True]


def test_a_bar_of_tqdm_itself() -> None:
    pytest.importorskip("tqdm")
    bar = wc.progress_bar()
    for arrived in (1, 5, 3, 10):
        bar(arrived, 10)
    shown = bar._shown
    assert shown is not None and shown._bar.n == 10
    bar.close()


def test_a_bar_of_rich(monkeypatch: pytest.MonkeyPatch, without: Callable[..., None]) -> None:
    said: list[Any] = []

    class Bar:
        def __init__(self, *columns: Any) -> None:
            said.append(len(columns))

        def start(self) -> None:
            said.append("start")

        def add_task(self, label: str, total: int) -> int:
            said.append((label, total))
            return 7

        def update(self, task: int, completed: int, total: int) -> None:
            said.append((task, completed, total))

        def stop(self) -> None:
            said.append("stop")

    names = ("TextColumn", "BarColumn", "DownloadColumn", "TransferSpeedColumn", "TimeRemainingColumn")
    columns = dict.fromkeys(names, lambda *_: None)
    without("tqdm")
    monkeypatch.setitem(sys.modules, "rich", Library())
    monkeypatch.setitem(sys.modules, "rich.progress", Library(Progress=Bar, **columns))
    bar = wc.progress_bar("policy")
    bar(3, 10)
    bar(10, 10)
    bar.close()
    bar.close()
    assert said == [5, "start", ("policy", 10), (7, 3, 10), (7, 10, 10), "stop"]


def test_a_line_where_neither_is_installed(
    without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    without("tqdm", "rich", "rich.progress")
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    bar = wc.progress_bar("policy")
    bar(0, 4_000_000)
    bar(1_500_000, 4_000_000)
    bar(4_000_000, 4_000_000)
    bar.close()
    [line] = out.getvalue().splitlines()
    assert line.startswith("policy 100 %  4.00 MB of 4.00 MB  "), "a log gets the end, and little else"


def test_a_line_on_a_terminal_is_written_over() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Terminal()
    line = _Line(out, "policy")
    for arrived in (0, 999, 1_000):
        line.show(arrived, 1_000)
    line.close()
    shown = out.getvalue().split("\r")[1:]
    assert [text.split(" %  ")[1].split(" of ")[0] for text in shown] == ["0 B", "999 B", "1.00 KB"]
    assert "\x1b[K" in shown[0] and shown[-1].endswith("\n")
