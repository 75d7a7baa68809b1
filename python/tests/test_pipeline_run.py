"""The threads of a pipeline, over stages that end when a test says so: no torch, no time."""

import gc
import json
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from weightcast import spans
from weightcast.pipeline import Course, Gathering, Item, Pipeline, Stage, StageFailed, Work, assign, stages_of

from .conftest import SOON


class Gate:
    """Events that stages wait for and tell, by name; a wait that is too long is an error of the test."""

    def __init__(self) -> None:
        self._events: dict[str, threading.Event] = {}
        self._lock = threading.Lock()
        self.order: list[str] = []

    def __getitem__(self, name: str) -> threading.Event:
        with self._lock:
            return self._events.setdefault(name, threading.Event())

    def tell(self, name: str) -> None:
        self.order.append(name)
        self[name].set()

    def wait(self, *names: str) -> None:
        for name in names:
            assert self[name].wait(SOON), f"{name} has not happened"


class Held:
    """Memory that is let go of when nobody has it."""


def work(
    name: str, gate: Gate, *, before: dict[str, tuple[str, ...]] | None = None, lane: str = "all",
    made: list[Any] | None = None, wait: bool = True, **item: Any,
) -> Work:
    """A piece of work that tells the gate what begins and ends. `before` says what the end of a stage waits
    for."""
    before = before or {}

    def ended(stage: str) -> None:
        gate.wait(*before.get(stage, ()))
        gate.tell(f"{name} {stage} ended")

    def gather() -> Gathering:
        gate.tell(f"{name} gather begun")
        if not wait:
            ended("gather")
            return Gathering([Held()])
        return Gathering([Held()], lambda: ended("gather"))

    def transform(_: list[Any]) -> tuple[list[Any], int]:
        gate.tell(f"{name} transform begun")
        ended("transform")
        return made if made is not None else [Held()], item.get("making", 0)

    def send(_: list[Any]) -> None:
        gate.tell(f"{name} send begun")
        ended("send")

    item.setdefault("slot", name)
    return Work(Item(name, **item), gather, transform, send, lane=lane, nbytes=1)


def test_three_stages_run_at_once_and_the_trace_shows_them(tmp_path, monkeypatch):
    """A send ends when the next tensor is transformed and the one after that gathered, and so for the others."""
    monkeypatch.setenv("WEIGHTCAST_TRACE", str(tmp_path / "job.json"))
    monkeypatch.setattr(spans, "_named", None)
    gate, count = Gate(), 4
    before: list[dict[str, tuple[str, ...]]] = [{"gather": (), "transform": (), "send": ()} for _ in range(count)]
    for n in range(count - 1):
        before[n]["send"] += (f"{n + 1} transform begun",)
        before[n + 1]["transform"] += (f"{n} send begun",)
        before[n]["transform"] += (f"{n + 1} gather ended",)
        before[n + 1]["gather"] += (f"{n} transform begun",)
    for n in range(count - 2):
        before[n]["send"] += (f"{n + 2} gather ended",)
        before[n + 2]["gather"] += (f"{n} send begun",)
    sizes, began = {"gathering": 1, "gathered": 1, "making": 1}, spans.now() / 1e3
    Pipeline(8, name="test").run([work(str(n), gate, before=before[n], **sizes) for n in range(count)])
    told = spans_of(tmp_path / "job.json")
    assert {name for name, _ in told} == {"gather", "transform", "send"} and len(told) == 3 * count
    assert all(began <= start <= end <= spans.now() / 1e3 for start, end in told.values())
    for n in range(count - 2):
        # The file says so by itself: each two of these spans overlap, so there was a time of all three.
        sent, made, whole = told["send", str(n)], told["transform", str(n + 1)], told["gather", str(n + 2)]
        assert overlap(sent, made) and overlap(made, whole) and overlap(sent, whole)
    command = [sys.executable, "-m", "weightcast", "trace", str(tmp_path / "job.json"), "--json"]
    summary = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=SOON).stdout)
    assert {times["name"]: times["count"] for times in summary["spans"]} == {"gather": 4, "transform": 4, "send": 4}


def test_without_overlap_one_tensor_goes_after_the_other(tmp_path, monkeypatch):
    monkeypatch.setenv("WEIGHTCAST_TRACE", str(tmp_path / "job.json"))
    monkeypatch.setattr(spans, "_named", None)
    gate = Gate()
    Pipeline(1 << 30, overlap=False).run([work(str(n), gate) for n in range(5)])
    told = spans_of(tmp_path / "job.json")
    for (_, one), first in told.items():
        assert not any(overlap(first, second) for (_, other), second in told.items() if other != one)
    stages = ("gather begun", "gather ended", "transform begun", "transform ended", "send begun", "send ended")
    assert gate.order == [f"{n} {stage}" for n in range(5) for stage in stages]


def spans_of(file) -> dict[tuple[str, str], tuple[float, float]]:
    """Start and end of each span, by stage and tensor."""
    lines = [line.rstrip(",\n") for line in file.read_text().splitlines()[1:]]
    events = [event for event in map(json.loads, lines) if event["ph"] == "X"]
    return {(e["name"], e["args"]["tensor"]): (e["ts"], e["ts"] + e["dur"]) for e in events}


def overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def test_lanes_do_not_wait_for_each_other():
    """The first lane's gather ends when all of the other lane has been sent."""
    gate = Gate()
    works = [
        work("stuck", gate, lane="a", before={"gather": ("free 1 send ended", "free 2 send ended")}),
        work("free 1", gate, lane="b"),
        work("free 2", gate, lane="b"),
    ]
    Pipeline().run(works)
    assert gate.order[-1] == "stuck send ended"


def test_the_budget_holds_back_what_does_not_fit():
    gate = Gate()
    works = [
        work("first", gate, before={"send": ("checked",)}, gathering=3, gathered=3, making=3),
        work("second", gate, gathering=5, gathered=5),
    ]
    thread = threading.Thread(target=lambda: Pipeline(10).run(works))
    thread.start()
    gate.wait("first send begun")
    # 3 bytes of the first are left: 5 fit beside them, as they did not beside its 6.
    gate.wait("second gather begun")
    assert gate.order.index("first transform ended") < gate.order.index("second gather begun")
    gate.tell("checked")
    thread.join(SOON)
    assert not thread.is_alive()


def test_nothing_is_kept_longer_than_its_bytes_are_counted():
    alive: list[weakref.ref] = []
    at_most = []

    def one(number: int) -> Work:
        def gather() -> Gathering:
            whole = Held()
            alive.append(weakref.ref(whole))
            at_most.append(sum(ref() is not None for ref in alive))
            return Gathering([whole], lambda: None)

        def transform(_: list[Any]) -> tuple[list[Any], int]:
            made = Held()
            alive.append(weakref.ref(made))
            return [made], 1

        return Work(Item(str(number), 1, 1, 1, slot=number if number % 3 else None), gather, transform, lambda _: None, lane="a")

    gc.disable()
    try:
        pipeline = Pipeline(2)
        pipeline.run([one(n) for n in range(60)])
    finally:
        gc.enable()
    assert max(at_most) <= 2 and pipeline.peak == 2
    assert not any(ref() is not None for ref in alive)


def test_what_is_given_up_is_let_go_before_others_gathers_are_taken_part_in():
    gate, alive, at_most = Gate(), [], []

    def one(number: int) -> Work:
        def gather() -> Gathering:
            whole = Held()
            alive.append(weakref.ref(whole))
            at_most.append(sum(ref() is not None for ref in alive))
            return Gathering([whole], lambda: None)

        def fails(_: list[Any]) -> Any:
            gate.wait("two are there")
            raise ValueError("planted")

        return Work(Item(str(number), 1, 1, slot=number), gather, fails, lambda _: None, lane="a")

    gathered = Course.gathered

    def told(course: Course, number: int) -> None:
        gathered(course, number)
        if number == 1:
            gate.tell("two are there")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Course, "gathered", told)
        with pytest.raises(StageFailed, match="transform of 0 failed"):
            Pipeline(2).run([one(n) for n in range(8)])
    assert len(at_most) == 8 and max(at_most) == 2


@pytest.mark.parametrize("stage", list(Stage))
def test_the_first_failure_ends_all_and_names_tensor_and_stage(stage: Stage):
    gate = Gate()
    works = [work(str(n), gate, gathering=1, gathered=1) for n in range(6)]

    def fails(*_: Any) -> Any:
        raise OSError("no more")

    names = {Stage.GATHER: "gather", Stage.TRANSFORM: "transform", Stage.SEND: "send"}
    works[2] = Work(**{**vars(works[2]), names[stage]: fails})
    with pytest.raises(StageFailed, match=f"{stage} of 2 failed: OSError: no more.*Nothing was published") as failed:
        Pipeline(3).run(works)
    assert (failed.value.tensor, failed.value.stage, failed.value.rank) == ("2", stage, None)
    assert isinstance(failed.value.__cause__, OSError)
    gathered = [name for name in gate.order if name.endswith("gather begun")]
    # Other ranks wait in the gathers that are left; not if gathers do not fit together any more.
    assert len(gathered) == (2 if stage is Stage.GATHER else 6)
    assert "5 send begun" not in gate.order


def test_a_failure_without_other_ranks_gathers_no_more():
    gate, fails = Gate(), work("0", Gate(), gathering=1, gathered=1)
    fails = Work(**{**vars(fails), "transform": lambda _: 1 / 0})
    with pytest.raises(StageFailed, match="ZeroDivisionError"):
        Pipeline(1).run([fails, *(work(str(n), gate, gathering=1) for n in range(1, 4))], collective=False)
    assert not gate.order


def test_a_gather_that_never_ends_does_not_hold_up_the_error():
    """After one gather has failed, the end of another may never come."""
    gate, never = Gate(), threading.Event()
    stuck = Work(Item("stuck", slot=0), lambda: Gathering([], never.wait), lambda _: ([], 0), lambda _: None, lane="a")
    lost = Work(**{**vars(work("lost", gate)), "gather": lambda: Gathering([], lambda: 1 / 0), "lane": "b"})
    with pytest.raises(StageFailed, match="gather of lost failed"):
        Pipeline().run([stuck, lost])
    never.set()


def test_an_interrupt_ends_all_and_is_raised_as_it_is():
    gate = Gate()
    works = [work(str(n), gate, wait=False) for n in range(3)]

    def interrupted() -> Gathering:
        raise KeyboardInterrupt

    works[1] = Work(**{**vars(works[1]), "gather": interrupted})
    with pytest.raises(KeyboardInterrupt):
        Pipeline(name="interrupted").run(works)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("interrupted")]
    assert "2 gather begun" not in gate.order
    Pipeline().run([work("again", gate)])


def test_progress_is_told_in_the_thread_of_the_caller_and_may_end_the_run():
    gate, told, here = Gate(), [], threading.current_thread()
    works = [work(str(n), gate, slot=None if n == 1 else str(n)) for n in range(4)]
    Pipeline().run(works, progress=lambda sent, total: told.append((sent, total, threading.current_thread())))
    assert told[-1] == (3, 3, here) and all(one[1:] == (3, here) for one in told)
    assert [one[0] for one in told] == sorted({one[0] for one in told})

    def ends(*_: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        Pipeline().run([work(str(n), gate) for n in range(4)], progress=ends)


def test_what_is_sent_by_nobody_is_made_by_nobody():
    gate = Gate()
    Pipeline().run([work("other's", gate, slot=None), work("mine", gate)])
    assert {name.split()[0] for name in gate.order if "transform" in name or "send" in name} == {"mine"}


# Transfers out of staging memory that is filled again


class Targets:
    """Memory of engine ranks, filled by transfers that end when a test says so."""

    def __init__(self) -> None:
        self.got: dict[tuple[int, int], bytes] = {}
        self.under_way: list[tuple[int, Callable[[BaseException | None], None], Callable[[], None]]] = []
        self.lock = threading.Lock()
        self.begun = threading.Condition(self.lock)

    def transfer(self, stage: int, target: int, slot: bytearray) -> Callable[[Any], None]:
        """One transfer: what lies in the slot when it ends is what arrives."""

        def begin(done: Callable[[BaseException | None], None]) -> None:
            def arrive() -> None:
                self.got[stage, target] = bytes(slot)

            with self.lock:
                self.under_way.append((target, done, arrive))
                self.begun.notify_all()

        return begin

    def end_one(self, at: int = 0) -> None:
        with self.begun:
            assert self.begun.wait_for(lambda: len(self.under_way) > at, SOON)
            _, done, arrive = self.under_way.pop(at)
        arrive()
        done(None)


def staged(trainer: int, stage: int, stagings, targets: Targets, slot: bytearray, filled: list[int]) -> list[Work]:
    """What one trainer rank does for its stagings, all in one memory."""

    def one(staging) -> Work:
        def send(_: list[Any]) -> None:
            filled.append(staging.structure)
            slot[:] = bytes([stage, staging.structure])

        return Work(
            Item(f"structure {staging.structure}", slot="memory", transfers=len(staging.targets)),
            lambda: Gathering([]),
            lambda _: ([], 0),
            send,
            [targets.transfer(stage, target, slot) for target in staging.targets],
        )

    return [one(staging) for staging in stagings]


def test_the_memory_of_a_structure_is_filled_again_when_its_last_transfer_is_over():
    """Rank 0 of the exercise: structure 0 for ranks 0 and 16, then structure 1, in the same memory, for 1 and 17."""
    [first, *_] = assign(stages_of(32, 4), engines=2, engine_ranks=16).values()
    targets, slot, filled = Targets(), bytearray(2), []
    pipeline = Pipeline()
    thread = threading.Thread(target=lambda: pipeline.run(staged(0, 0, first, targets, slot, filled)))
    thread.start()
    targets.end_one(1)
    with targets.begun:
        assert filled == [0] and [target for target, *_ in targets.under_way] == [0]
    assert thread.is_alive()
    targets.end_one()
    targets.end_one()
    targets.end_one()
    thread.join(SOON)
    assert not thread.is_alive() and filled == [0, 1]
    assert targets.got == {(0, 0): b"\0\0", (0, 16): b"\0\0", (0, 1): b"\0\1", (0, 17): b"\0\1"}


def test_the_whole_exercise_reaches_every_target_once():
    targets, stages = Targets(), stages_of(32, 4)
    threads = []
    found = assign(stages, engines=2, engine_ranks=16)
    for trainer, stagings in found.items():
        stage = trainer // 8
        works = staged(trainer, stage, stagings, targets, bytearray(2), [])
        threads.append(threading.Thread(target=Pipeline().run, args=(works,)))
    for thread in threads:
        thread.start()
    for _ in range(4 * 32):
        targets.end_one()
    for thread in threads:
        thread.join(SOON)
        assert not thread.is_alive()
    assert targets.got == {(stage, target): bytes([stage, target % 16]) for stage in range(4) for target in range(32)}


def test_a_transfer_that_fails_is_the_failure_of_its_tensor():
    failed = Work(
        Item("w", slot="s", transfers=2), lambda: Gathering([]), lambda _: ([], 0), lambda _: None,
        [lambda done: done(ConnectionError("gone")), lambda done: done(None)],
    )
    pipeline = Pipeline()
    with pytest.raises(StageFailed, match="send of w failed: ConnectionError: gone"):
        pipeline.run([failed])
    with pytest.raises(StageFailed, match="send of w failed: RuntimeError: refused"):
        def refuse(done: Callable[..., None]) -> None:
            raise RuntimeError("refused")
        pipeline.run([Work(**{**vars(failed), "transfers": [refuse, refuse]})])
    pipeline.run([Work(**{**vars(failed), "transfers": [lambda done: done(None)] * 2})])


def test_spans_of_forks_and_files_that_cannot_be_written(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(spans, "_named", None)
    monkeypatch.setattr(spans, "_file", None)
    monkeypatch.delenv("WEIGHTCAST_TRACE", raising=False)
    spans.write("gather", "t", 1, 2)
    monkeypatch.setenv("WEIGHTCAST_TRACE", str(tmp_path / "no" / "such.json"))
    for _ in range(2):
        spans.write("gather", "t", 1, 2)
    assert caplog.text.count("spans are missing") == 1
    spans.to_file(tmp_path / "named.json")
    spans.write("gather", "t", 1_000, 3_500, tensor="w")
    text = (tmp_path / "named.json").read_text()
    assert text.startswith("[\n") and '"ts": 1.0, "dur": 2.5, "args": {"tensor": "w"}' in text
    assert (tmp_path / "named.json").stat().st_mode & 0o777 == 0o600


