"""Copies of what a vLLM `WeightSource` yields: what is copied, what is refused word by word, and what other ranks get to see."""

from types import SimpleNamespace
from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.catalog import Entry  # noqa: E402
from weightcast.adapters.engine import copied as module  # noqa: E402
from weightcast.adapters.engine import sources  # noqa: E402
from weightcast.adapters.engine.copied import Copied, Streamed  # noqa: E402
from weightcast.adapters.engine.sources import InPlace, Made, source_of  # noqa: E402


def meta(name: str, *shape: int, dtype: Any = torch.float32) -> Any:
    return SimpleNamespace(name=name, shape=torch.Size(shape), dtype=dtype)


LISTED = [meta("a", 3), meta("b", 2, 2), meta("c", 1, dtype=torch.bfloat16)]


def whole(version: float) -> dict[str, Any]:
    return {m.name: torch.full(m.shape, version, dtype=m.dtype) for m in LISTED}


class Source:
    """Yields what a test says, and counts how far it is asked."""

    def __init__(self, yields: Any, metadata: Any = LISTED) -> None:
        self.metadata, self.yields, self.yielded = metadata, yields, 0

    def __iter__(self) -> Any:
        for one in self.yields.items() if isinstance(self.yields, dict) else self.yields:
            self.yielded += 1
            yield one


def holds(source: Copied, version: float) -> bool:
    return all(bool((tensor == version).all()) for tensor in source._tensors.values())


@pytest.mark.parametrize("metadata", [LISTED, tuple(LISTED), lambda: LISTED])
@pytest.mark.parametrize("budget", [0, 1 << 20])
def test_each_refresh_copies_what_is_yielded_then(metadata: Any, budget: int) -> None:
    source = Source(whole(1), metadata)
    copied = Copied(source, 0, budget)
    assert copied._pipeline._budget == budget and Copied(source, 0)._pipeline._budget == 1 << 30
    for version in (1.0, 2.0):
        source.yields = whole(version)
        copied.refresh()
        assert holds(copied, version)
    assert copied.catalog() == {"a": Entry((3,), "F32"), "b": Entry((2, 2), "F32"), "c": Entry((1,), "BF16")}
    assert copied.publishes and copied.replica("n") == wc.Replica("n") and len(copied.layout()) == 3
    source.yields = list(reversed(whole(3).items()))
    copied.refresh()
    assert holds(copied, 3), "in another order"


def test_ranks_that_publish_nothing_go_through_all() -> None:
    source = Source(whole(1))
    copied = Copied(source, 1)
    copied.refresh()
    assert source.yielded == 3 and not copied.publishes and copied._tensors == {} and set(copied.catalog()) == {"a", "b", "c"}


def test_full_tensors_are_asked_for_where_a_source_has_them() -> None:
    source = Source({})
    source.iter_full = lambda: whole(4).items()
    copied = Copied(source, 0)
    copied.refresh()
    assert holds(copied, 4)


def without(name: str) -> Any:
    return [one for one in whole(1).items() if one[0] != name]


REFUSED: dict[str, tuple[Any, str, int]] = {
    "too few": (without("b"), "the source has not yielded b, nor 0 others that its metadata lists", 2),
    "nothing": ([], "the source has not yielded a, nor 2 others that its metadata lists", 0),
    "another": ([*whole(1).items(), ("d", torch.ones(1)), ("e", torch.ones(1))], "the source yields d, which its metadata does not list", 5),
    "another before": ([("d", torch.ones(1)), *whole(1).items()], "the source yields d, which its metadata does not list", 4),
    "twice": ([*whole(1).items()][:1] * 2 + without("a"), "the source yields a twice", 4),
    "of another shape": ([("a", torch.ones(4)), *without("a")], "the source yields a as (4,) torch.float32; its metadata says (3,) torch.float32", 3),
    "of another type": ([("a", torch.ones(3, dtype=torch.int8)), *without("a")],
                        "the source yields a as (3,) torch.int8; its metadata says (3,) torch.float32", 3),
}


@pytest.mark.parametrize(("yields", "said", "yielded"), REFUSED.values(), ids=[*REFUSED])
def test_what_is_not_as_listed_is_refused_once_all_has_been_gone_through(yields: Any, said: str, yielded: int) -> None:
    """Other ranks wait in what is left."""
    source = Source(yields)
    copied = Copied(source, 0)
    with pytest.raises(wc.LayoutMismatch) as caught:
        copied.refresh()
    assert str(caught.value) == said and source.yielded == yielded
    source.yields = whole(2)
    copied.refresh()
    assert holds(copied, 2)


def test_memory_that_changes_while_it_is_copied_is_refused() -> None:
    tensors = whole(1)

    def changes() -> Any:
        yield "a", tensors["a"]
        tensors["a"].fill_(2)
        yield from without("a")

    source = Source(whole(1))
    copied = Copied(source, 0, 0)
    source.yields = changes()
    copied.refresh()
    assert copied._tensors["a"].tolist() == [1, 1, 1], "it was copied by then"
    assert module._changes(tensors["a"]) == 1 + module._changes(torch.ones(1))
    noted = {"name": "a", "changes": module._changes(tensors["a"]) - 1}
    with pytest.raises(wc.LayoutMismatch) as caught:
        module._Pass(copied._tensors, copied._pipeline, iter(()))._copy(noted, [tensors["a"]])
    assert str(caught.value) == (
        "the source has changed a after it yielded that, while it was copied; have it yield memory of its own each time, or set "
        "budget=0: it then goes on when a tensor is copied"
    )
    with torch.inference_mode():
        assert module._changes(torch.ones(1)) == 0


def test_an_error_of_the_source_is_told_as_it_is() -> None:
    def fails() -> Any:
        yield "a", torch.ones(3)
        raise ZeroDivisionError("its own")

    copied = Copied(Source(fails()), 0)
    with pytest.raises(Exception, match="its own") as caught:
        copied.refresh()
    assert not isinstance(caught.value, wc.LayoutMismatch)


def test_an_iterator_for_each_version() -> None:
    streamed = Streamed(iter(whole(1).items()))
    assert holds(streamed, 1) and streamed.publishes and streamed.catalog()["b"] == Entry((2, 2), "F32")
    streamed.refresh()
    assert holds(streamed, 1), "the first version lies there"
    for version in (2.0, 3.0):
        streamed.next(iter(whole(version).items()))
        streamed.refresh()
        assert holds(streamed, version)
    streamed.next(iter(without("c")))
    with pytest.raises(wc.LayoutMismatch, match="^the source has not yielded c, "):
        streamed.refresh()
    source = Source([*whole(1).items()] * 2)
    with pytest.raises(wc.LayoutMismatch, match="^the source yields a twice$"):
        Streamed(iter(source))
    assert source.yielded == 6


def test_what_a_trainer_may_give_as_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nn.Linear(2, 3)
    kept = Copied(Source(whole(1)), 0)
    assert source_of(kept, 1) is kept
    made = source_of(module, 0)
    assert type(made) is InPlace and made.publishes and made.replica("n") == wc.Replica("n")
    assert made.catalog() == {"weight": Entry((3, 2), "F32"), "bias": Entry((3,), "F32")} and len(made.layout()) == 2
    assert made.refresh() is None and not source_of(module, 1).publishes
    wrapped = type("ModuleSource", (), {"_module": module, "metadata": LISTED})()
    assert type(source_of(wrapped, 0)) is InPlace and source_of(wrapped, 0)._module is module
    for other in (type("Another", (), {"_module": module, "metadata": LISTED})(), type("ModuleSource", (), {"_module": 1, "metadata": LISTED})()):
        assert type(source_of(other, 0)) is Copied
    copied = source_of(Source(whole(1)), 1, 77)
    assert type(copied) is Copied and not copied.publishes
    budgets: list[Any] = []
    monkeypatch.setattr(sources, "Copied", type("Noting", (Copied,), {"__init__": lambda self, *told: budgets.append(told)}))
    source = Source(whole(1))
    source_of(source, 1, 77)
    source_of(source, 0)
    assert budgets == [(source, 1, 77), (source, 0, 1 << 30)]
    with pytest.raises(wc.Misuse) as caught:
        source_of(object(), 0)
    assert str(caught.value) == "source is a torch module, weightcast.torch.gathered() of one, or a vLLM WeightSource, not object"


def test_options_of_a_layout_are_passed_on() -> None:
    module = nn.Linear(2, 3)
    names = {"rename": lambda name: f"p.{name}"}
    assert len(InPlace(module, 0, names).layout()) == 2
    assert InPlace(module, 0, {"buffers": False})._options == {"buffers": False} and InPlace(module, 0)._options == {}


def test_what_is_made_of_a_module_is_published_by_its_own_rules() -> None:
    gathered = SimpleNamespace(publishes="p", catalog=lambda: "c", replica=lambda name: f"r {name}", layout=lambda: "l")
    made = Made(gathered)
    assert (made.publishes, made.catalog(), made.replica("n"), made.layout(), made.refresh()) == ("p", "c", "r n", "l", None)


@pytest.mark.parametrize(("flats", "held", "sharded"), [((), "", False), ((), "nd", True), (("flat",), "", True), ((), "n", False), ((), "d", True)])
def test_ranks_that_have_a_shard_each_publish_it(monkeypatch: pytest.MonkeyPatch, flats: Any, held: str, sharded: bool) -> None:
    import weightcast.torch as wct
    from weightcast.torch import flat, tensors
    from weightcast.torch import module as modules

    class DTensor:
        """A tensor that is cut."""

    asked: list[Any] = []
    monkeypatch.setattr(sources, "DTensor", DTensor)
    monkeypatch.setattr(flat, "flats", lambda module: flats)
    found = [SimpleNamespace(tensor=DTensor() if one == "d" else 1) for one in held]
    monkeypatch.setattr(tensors, "held", lambda *told: asked.append(told) or found)
    monkeypatch.setattr(wct, "replica", lambda *told: ("replica", *told))
    monkeypatch.setattr(modules, "published_by", lambda *told, **named: (told, named))
    module = nn.Linear(2, 3)
    for rank in (0, 1):
        source = InPlace(module, rank)
        assert source.publishes is (sharded or rank == 0)
        assert source.replica("n") == (("replica", "n", module) if sharded else wc.Replica("n"))
    assert flats or asked == [(module, False)] * 2
    catalog = source.catalog()
    assert catalog == (((module,), {"names": None, "rename": None, "buffers": True}) if flats else
                       {"weight": Entry((3, 2), "F32"), "bias": Entry((3,), "F32")})
