"""What a pipeline decides: held against a ledger that knows nothing of it, in every order of small cases and in
random orders of larger ones."""

import random
from dataclasses import dataclass, field
from itertools import product

import pytest

from weightcast.pipeline import Course, Item, Slots, Stage
from weightcast.pipeline.sharing import share
from weightcast.pipeline.staging import Staging, assign, stages_of


@dataclass
class Ledger:
    """What lies where, piece by piece, counted from what was begun and what has ended alone."""

    items: list[Item]
    budget: int
    course: Course
    #: Bytes of each piece under way.
    bytes: dict[int, int] = field(default_factory=dict)
    doing: dict[int, str] = field(default_factory=dict)
    gathered: list[int] = field(default_factory=list)
    made: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    #: Transfers under way by slot, and the slots that are filled.
    transfers: dict[object, int] = field(default_factory=dict)
    filling: set[object] = field(default_factory=set)

    def hold(self, number: int, nbytes: int) -> None:
        self.bytes[number] = nbytes
        held = sum(self.bytes.values())
        assert held <= self.budget or len(self.bytes) == 1, f"{held} bytes of {self.budget}: {self.bytes}"

    def begin(self) -> bool:
        """Begins what may begin; False if nothing may."""
        course, some = self.course, False
        while (number := course.next_gather()) is not None:
            assert number == len(self.gathered), "gathers begin in the order of the list"
            self.gathered.append(number)
            self.doing[number] = "gather"
            self.hold(number, self.items[number].gathering)
            some = True
        waiting = len(self.gathered)
        if course.gathers_left and course.failure is None and waiting < len(self.items):
            # Strict, but no stricter: what does not begin does not fit, if each had what it may have yet.
            could = sum(self.worst(n) for n in self.bytes)
            assert self.bytes and could + self.items[waiting].peak > self.budget
        if (number := course.next_transform()) is not None:
            assert self.doing[number] == "ready"
            self.doing[number] = "transform"
            self.hold(number, self.items[number].gathered + self.items[number].making)
            some = True
        if (number := course.next_send()) is not None:
            slot = self.items[number].slot
            assert self.doing[number] == "made"
            assert slot not in self.filling and not self.transfers.get(slot), "the slot is read, or filled"
            self.filling.add(slot)
            self.doing[number] = "send"
            some = True
        return some

    def worst(self, number: int) -> int:
        item, doing = self.items[number], self.doing[number]
        if doing == "gather":
            return item.peak
        return item.gathered + item.making if doing in ("ready", "transform") else self.bytes[number]

    def ends(self) -> list[tuple[str, object]]:
        """What may end now."""
        running = [(doing, n) for n, doing in self.doing.items() if doing in ("gather", "transform", "send")]
        return running + [("transfer", slot) for slot, left in self.transfers.items() if left]

    def end(self, what: str, which) -> None:
        course = self.course
        if what == "transfer":
            self.transfers[which] -= 1
            course.transferred(which)
            return
        item, failed = self.items[which], course.failure is not None
        if what == "gather":
            course.gathered(which)
            if item.slot is None or failed:
                self.drop(which)
            else:
                self.doing[which] = "ready"
                self.hold(which, item.gathered)
        elif what == "transform":
            held = item.making // 2
            course.transformed(which, held)
            self.made.append(which)
            if failed:
                self.drop(which)
            else:
                self.doing[which] = "made"
                self.hold(which, held)
        else:
            course.sent(which)
            self.filling.remove(item.slot)
            self.sent.append(which)
            self.drop(which)
            if item.transfers and not failed:
                assert not self.transfers.get(item.slot)
                self.transfers[item.slot] = item.transfers

    def fail(self, what: str, which: int) -> None:
        item = self.items[which]
        self.course.fail(which, Stage(what), RuntimeError(f"{what} of {which}"))
        if what == "send":
            self.filling.remove(item.slot)
        self.drop(which)
        for other in [n for n, doing in self.doing.items() if doing in ("ready", "made")]:
            self.drop(other)

    def drop(self, number: int) -> None:
        del self.bytes[number], self.doing[number]


def random_items(draw: random.Random, count: int) -> list[Item]:
    sizes = (0, 1, 2, 3, 5, 8)
    return [
        Item(
            str(n), draw.choice(sizes), draw.choice(sizes), draw.choice(sizes),
            slot=draw.choice((None, 0, 1, n + 2, n + 2)), transfers=draw.choice((0, 0, 1, 3)),
        )
        for n in range(count)
    ]


def play(ledger: Ledger, draw: random.Random, failures: float = 0.0) -> None:
    while not ledger.course.over:
        while ledger.begin():
            pass
        ends = ledger.ends()
        if not ends:
            break
        what, which = draw.choice(ends)
        if what != "transfer" and draw.random() < failures:
            ledger.fail(what, which)
        else:
            ledger.end(what, which)
    assert ledger.course.over, f"stuck: {ledger}"


@pytest.mark.parametrize("seed", range(200))
def test_all_is_sent_and_the_budget_kept_in_random_orders(seed: int) -> None:
    draw = random.Random(seed)
    items = random_items(draw, draw.randint(1, 12))
    ledger = Ledger(items, draw.choice((0, 1, 6, 12, 30)), course=None)  # type: ignore[arg-type]
    ledger.course = Course(items, ledger.budget)
    play(ledger, draw)
    ours = [n for n, item in enumerate(items) if item.slot is not None]
    assert sorted(ledger.sent) == sorted(ledger.made) == ours
    assert ledger.gathered == list(range(len(items)))
    assert ledger.course.failure is None and ledger.course.staged == 0
    assert ledger.course.peak <= max(ledger.budget, *(item.peak for item in items))


@pytest.mark.parametrize("seed", range(200))
def test_the_first_failure_ends_all_and_others_get_their_gathers(seed: int) -> None:
    draw = random.Random(seed)
    items, collective = random_items(draw, draw.randint(1, 12)), draw.random() < 0.5
    ledger = Ledger(items, draw.choice((0, 1, 6, 12, 30)), course=None)  # type: ignore[arg-type]
    ledger.course = Course(items, ledger.budget, collective=collective)
    first: list[tuple[str, Stage]] = []
    fail = ledger.fail

    def noted(what: str, which: int) -> None:
        fail(what, which)
        failure = ledger.course.failure
        first.append((failure.tensor, failure.stage))
        assert first[0] == first[-1], "the first failure is the one that is told"

    ledger.fail = noted  # type: ignore[method-assign]
    while not ledger.course.over:
        before = list(ledger.sent), ledger.course.failure is not None
        while ledger.begin():
            pass
        if before[1]:
            assert "transform" not in ledger.doing.values() or ledger.ends()
        if not (ends := ledger.ends()):
            break
        what, which = draw.choice(ends)
        if what != "transfer" and draw.random() < 0.15:
            ledger.fail(what, which)
        else:
            ledger.end(what, which)
    assert ledger.course.over
    gathers = len(ledger.gathered) == len(items)
    if first:
        assert gathers or not collective or first[0][1] is Stage.GATHER
        assert ledger.course.next_transform() is None and ledger.course.next_send() is None
    else:
        assert gathers


def test_nothing_begins_after_a_failure_but_gathers_of_others() -> None:
    items = [Item(str(n), 1, 1, 1, slot=n) for n in range(6)]
    course = Course(items, budget=6)
    assert [course.next_gather() for _ in range(4)] == [0, 1, 2, None]
    course.gathered(0)
    course.gathered(1)
    assert course.next_transform() == 0
    assert course.fail(0, Stage.TRANSFORM, ValueError("no"))
    assert course.next_transform() is None and course.is_over(1) and not course.over
    assert [course.next_gather() for _ in range(3)] == [3, 4, None]
    for number in (2, 3, 4):
        course.gathered(number)
    assert course.next_gather() == 5 and not course.over
    course.gathered(5)
    assert course.over and course.staged == 0
    assert not course.fail(5, Stage.SEND, ValueError("later")) and course.failure.tensor == "0"


def test_a_failed_gather_ends_all_gathers_and_waits_for_none() -> None:
    course = Course([Item(str(n), 1, 1, slot=n) for n in range(3)], budget=2)
    assert [course.next_gather(), course.next_gather()] == [0, 1]
    course.fail(0, Stage.GATHER, OSError("peer"))
    assert course.next_gather() is None and course.over


def test_every_order_of_small_cases_ends() -> None:
    """Each order in which ends can come, for all items of few sizes: nothing is stuck, nothing too large."""
    kinds = [Item("a", 1, 1, 1, slot="s", transfers=1), Item("b", 2, 2, 1, slot="s"), Item("c", 0, 0, 2, slot="t", transfers=2), Item("d", 3, 3, 0)]
    states = 0
    for items, budget in product(product(kinds, repeat=3), (0, 3, 6)):
        pending: list[list[int]] = [[]]
        seen = set()
        while pending:
            choices = pending.pop()
            ledger = Ledger(list(items), budget, Course(items, budget))
            for choice in [*choices, None]:
                while ledger.begin():
                    pass
                ends = ledger.ends()
                if choice is not None:
                    ledger.end(*ends[choice])
            state = repr((sorted(ledger.doing.items()), sorted(ledger.sent), ledger.transfers))
            if state in seen:
                continue
            seen.add(state)
            pending += [[*choices, n] for n in range(len(ends))]
            assert ends or ledger.course.over, f"stuck: {ledger}"
        states += len(seen)
    assert states > 1000


def test_a_tensor_over_the_budget_goes_alone() -> None:
    items = [Item("small", 1, 1, slot=0), Item("large", 9, 9, slot=1), Item("after", 1, 1, slot=2)]
    course = Course(items, budget=4)
    assert course.next_gather() == 0 and course.next_gather() is None
    course.gathered(0)
    assert course.next_transform() == 0 and course.next_gather() is None
    course.transformed(0, 1)
    assert course.next_send() == 0 and course.next_gather() is None
    course.sent(0)
    assert course.next_gather() == 1 and course.next_gather() is None
    course.gathered(1)
    assert course.next_transform() == 1
    course.transformed(1, 2)
    assert course.next_gather() == 2, "what is left of the large one fits beside the next"


def test_no_more_than_so_many_pieces_are_under_way() -> None:
    course = Course([Item(str(n), slot=n) for n in range(5)], budget=100, most=2)
    assert [course.next_gather() for _ in range(3)] == [0, 1, None]
    course.alone()
    course.gathered(0)
    course.next_transform()
    course.transformed(0, 0)
    course.next_send()
    course.sent(0)
    assert course.next_gather() is None, "one is under way"


def test_a_slot_is_filled_again_when_its_transfers_are_over_also_by_the_next_course() -> None:
    slots = Slots()
    for round_ in range(2):
        course = Course([Item("a", slot="s", transfers=2)], budget=9, slots=slots)
        course.next_gather()
        course.gathered(0)
        course.next_transform()
        course.transformed(0, 0)
        if round_:
            assert course.next_send() is None
            slots.transferred("s")
            assert course.next_send() is None, "one is under way"
            slots.transferred("s")
        assert course.next_send() == 0
        course.sent(0)
        assert not course.over and slots.under_way == 2
    with pytest.raises(ValueError, match="filled while"):
        slots.fill("s")
    slots.transferred("s")
    slots.transferred("s")
    assert course.over
    with pytest.raises(ValueError, match="no transfer"):
        slots.transferred("s")


def test_a_slot_whose_filling_has_failed_is_free_for_the_next_course() -> None:
    slots = Slots()
    for fails in (True, False):
        course = Course([Item("a", slot="s", transfers=1)], budget=9, slots=slots)
        course.next_gather()
        course.gathered(0)
        course.next_transform()
        course.transformed(0, 0)
        assert course.next_send() == 0
        if fails:
            course.fail(0, Stage.SEND, RuntimeError("it fails"))
            assert course.over


def test_what_is_sent_after_a_failure_keeps_no_slot_from_the_next_course() -> None:
    slots = Slots()
    first = Course([Item("a", slot="s", transfers=2), Item("b", slot="t")], budget=9, slots=slots)
    assert (first.next_gather(), first.next_gather()) == (0, 1)
    for number in range(2):
        first.gathered(number)
        assert first.next_transform() == number
    first.transformed(0, 0)
    assert first.next_send() == 0
    first.fail(1, Stage.TRANSFORM, RuntimeError("it fails"))
    first.sent(0)
    assert first.over, "nobody begins the transfers any more"
    second = Course([Item("a", slot="s")], budget=9, slots=slots)
    second.next_gather()
    second.gathered(0)
    second.next_transform()
    second.transformed(0, 0)
    assert second.next_send() == 0, "the slot is free"


def test_what_is_reported_out_of_turn_is_refused() -> None:
    course = Course([Item("a", slot=0)], budget=1)
    for report in (lambda: course.gathered(0), lambda: course.transformed(0, 0), lambda: course.sent(0)):
        with pytest.raises(ValueError, match="a is WAITING"):
            report()
    with pytest.raises(ValueError, match="none could begin"):
        Course([], budget=-1)
    assert Course([]).over


# Which rank stages what


def test_the_exercise_of_the_miles_document() -> None:
    """pp 4, 32 trainer ranks, 2 engines of 16 ranks: two stagings each, rank 0 serves 0 and 16, 1 and 17."""
    found = assign(stages_of(32, 4), engines=2, engine_ranks=16)
    assert found[0] == (Staging(0, (0, 16)), Staging(1, (1, 17)))
    assert {len(stagings) for stagings in found.values()} == {2}
    assert sorted(found) == list(range(32))
    for stage in range(4):
        assert [found[stage * 8 + n] for n in range(8)] == [found[n] for n in range(8)]


@pytest.mark.parametrize("seed", range(300))
def test_every_target_is_served_once_for_each_stage_and_nobody_serves_two_more(seed: int) -> None:
    draw = random.Random(seed)
    stages = stages_of(draw.randint(1, 12) * (pp := draw.randint(1, 5)), pp)
    engines, ranks = draw.randint(1, 5), draw.randint(1, 17)
    found = assign(stages, engines, ranks)
    for stage in stages:
        served = [target for rank in stage for staging in found[rank] for target in staging.targets]
        assert sorted(served) == list(range(engines * ranks)), "each target once"
        loads = [sum(len(staging.targets) for staging in found[rank]) for rank in stage]
        assert max(loads) - min(loads) <= 1
        for rank in stage:
            structures = [staging.structure for staging in found[rank]]
            assert len(set(structures)) == len(structures), "one memory for all targets of a structure"
            assert all(t % ranks == s.structure for s in found[rank] for t in s.targets)
            # A run of neighbours begins and ends inside of a structure at most.
            most = -(-max(loads) // engines) + 1
            assert len(structures) <= (ranks // len(stage) if ranks % len(stage) == 0 else most)


def test_few_trainers_and_many_engines_share_one_structure() -> None:
    assert assign([[3, 7]], engines=3, engine_ranks=1) == {3: (Staging(0, (0,)),), 7: (Staging(0, (1, 2)),)}
    assert assign([[0], [0]], 1, 1) == {0: (Staging(0, (0,)), Staging(0, (0,)))}, "a rank of two stages serves each"
    for bad in (lambda: assign([[]], 1, 1), lambda: assign([[0]], 0, 1), lambda: stages_of(6, 4)):
        with pytest.raises(ValueError, match="rank"):
            bad()


@pytest.mark.parametrize("seed", range(100))
def test_work_is_shared_about_evenly(seed: int) -> None:
    draw = random.Random(seed)
    costs, of = [draw.choice((0, 1, 3, 10, 50)) for _ in range(draw.randint(0, 6))], draw.randint(1, 3)
    bearers = share(costs, of)
    loads = [sum(c for c, b in zip(costs, bearers, strict=True) if b == rank) for rank in range(of)]
    best = min(
        (max(sum(c for c, b in zip(costs, every, strict=True) if b == rank) for rank in range(of))
         for every in product(range(of), repeat=len(costs))),
    )
    # Graham's bound of "largest first"; what costs nothing is counted as one.
    assert max(loads) <= best * 4 / 3 + len(costs)


def test_what_costs_nothing_is_shared_too() -> None:
    assert share([0] * 6, 3) == [0, 1, 2, 0, 1, 2]
    assert share([5, 1, 1, 1, 1, 1], 2) == [0, 1, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="nobody"):
        share([1], 0)
