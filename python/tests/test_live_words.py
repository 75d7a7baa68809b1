"""A live engine's layout piece by piece: which memory is registered, and what `finish` puts where, in which order."""

from typing import Any

import pytest

import weightcast as wc

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from weightcast.adapters.catalog import catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live.beside import Beside  # noqa: E402
from weightcast.adapters.live.read import examine  # noqa: E402

CATALOG = catalog_of({"a": ((4, 2), "F32"), "b": ((2, 3), "BF16"), "c": ((3,), "F32"), "d": ((2,), "F32"), "e": ((5,), "F32")})


class Engine(nn.Module):
    """`a` lies as it is published, and a second copy of it; `b` is cast and turned; `c` is computed with; nothing comes of `e`."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in {"one": (4, 2), "again": (4, 2), "cast": (3, 2), "made": (3,), "own": (2,)}.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape), requires_grad=False))

    def load_weights(self, weights: Any) -> None:
        for name, tensor in weights:
            if name == "a":
                self.one.copy_(tensor)
                self.again.copy_(tensor)
            elif name == "b":
                self.cast.copy_(tensor.t())
            elif name == "c":
                self.made.copy_(tensor * 2)
            elif name == "d":
                self.own.copy_(tensor)


def live(engine: Engine, **more: Any) -> LiveLayout:
    reading = examine(dict(engine.named_parameters()), engine.load_weights, CATALOG, unused={"e": "an extra"}, unsourced={})
    return LiveLayout(reading, **({"model": engine} | more))


class Job:
    """A trainer whose tensors are all of one value, and a replica that reads into a layout."""

    def __init__(self, server: str, layout: Any) -> None:
        dtypes = {"F32": torch.float32, "BF16": torch.bfloat16}
        self.tensors = {name: torch.zeros(entry.shape, dtype=dtypes[entry.dtype]) for name, entry in CATALOG.items()}
        own = wc.Layout()
        for name, tensor in self.tensors.items():
            own.add(tensor, name)
        self.trainer = wc.open("m", wc.Replica("t"), role="trainer", epoch="new", server=server)
        self.rollout = wc.open("m", wc.Replica("r"), server=server)
        self.trainer.register(own)
        self.rollout.register(layout)

    def bring(self, version: int) -> None:
        for tensor in self.tensors.values():
            tensor.fill_(version)
        with self.trainer.published(version):
            assert self.rollout.update(deadline=20).changed


def values(engine: Engine) -> dict[str, float]:
    found = {name: parameter.unique().tolist() for name, parameter in engine.named_parameters()}
    assert all(len(own) == 1 for own in found.values()), found
    return {name: own[0] for name, own in found.items()}


def of(version: float) -> dict[str, float]:
    return {"one": version, "again": version, "cast": version, "made": 2 * version, "own": version}


@pytest.mark.parametrize("beside", [False, True])
def test_what_arrives_is_in_place_once_it_is_finished(server: Any, beside: bool) -> None:
    engine, redone = Engine(), []
    layout = live(engine, redo=lambda: redone.append(values(engine)), derived={"x": "who"})
    assert layout.derived == {"x": "who"} and set(layout.unused) == {"e"} and set(layout.whole) == {"c"} and layout.left == {}
    job = Job(server.address, layout.layout(stage=True, beside=beside))
    for version in (1, 2):
        job.bring(version)
        landed = of(version - 1) if beside else of(version - 1) | {"one": version, "own": version}
        assert values(engine) == landed, "what converts, what is computed and what lies twice waits"
        layout.finish()
        assert values(engine) == of(version) and redone[-1] == of(version), "what is derived is derived last"
        assert list(layout.left) == ["e"] and layout.left["e"].tolist() == [version] * 5, "a replica holds a version whole"
    layout.left.clear()
    assert list(layout.left) == ["e"]
    job.rollout.close()
    job.trainer.close()


def test_what_needs_more_than_bytes_is_listed_unless_it_is_staged() -> None:
    layout = live(Engine())
    with pytest.raises(wc.Misuse) as caught:
        layout.layout()
    assert str(caught.value) == (
        "2 copies are not of bytes:\n  cast: cast BF16 to F32 of b\n  made: a copy, which computes other values (aten::mul.Tensor), of c\n"
        "register read(...).layout(stage=True), and call finish() after each update"
    )
    assert not layout.layout(stage=True).apart and layout.layout(stage=True, beside=True).apart
    into = wc.Layout()
    assert layout.layout(stage=True, into=into) is into


def test_a_layout_knows_the_module_whose_parameters_it_has() -> None:
    engine = Engine()
    layout = live(engine).layout(stage=True)
    assert layout.origins.moved() is None
    engine.one = nn.Parameter(torch.zeros(4, 2), requires_grad=False)
    assert layout.origins.moved().startswith("one: the storage has been replaced")
    other = Engine()
    unwatched = live(other, model=None).layout(stage=True)
    other.one = nn.Parameter(torch.zeros(4, 2), requires_grad=False)
    assert unwatched.origins.moved() is None


def test_experts_that_have_moved_are_noticed_before_anything_changes() -> None:
    moved = [False]
    layout = live(Engine(), stale=lambda: moved[0])
    layout.check()
    assert layout.stale() is False and live(Engine()).stale() is False
    moved[0] = True
    assert layout.stale() is True
    with pytest.raises(wc.Misuse, match="^the engine has moved experts between its workers since this update began to be fetched, "):
        layout.check()


def test_parameters_that_another_layout_has_are_left_out() -> None:
    layout = live(Engine())
    every = [record.name for record in layout.records]
    left = layout.leave({"cast", "own"})
    assert [record.name for record in left] == [name for name in every if name in ("cast", "own")]
    assert [record.name for record in layout.records] == [name for name in every if name not in ("cast", "own")]
    assert [each.parameter for each in layout.conversions] == ["made"]


def test_memory_beside_a_place_is_the_same_when_asked_again() -> None:
    parameter, beside = torch.arange(6.0).view(3, 2), Beside()
    first = beside.of(parameter[:2])
    assert beside.of(parameter[:2]) is first and torch.equal(first, parameter[:2]) and first.data_ptr() != parameter.data_ptr()
    other = beside.of(parameter[2:])
    first.fill_(7)
    other.fill_(8)
    beside.install()
    assert parameter.tolist() == [[7, 7], [7, 7], [8, 8]]
    with pytest.raises(wc.Misuse):
        beside.of(parameter[1:])
