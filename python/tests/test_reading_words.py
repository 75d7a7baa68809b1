"""What a loader may do with published tensors, one way at a time, and what is known of the layout then."""

import random
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import weightcast as wc  # noqa: E402
from weightcast.adapters.boxes.cover import without  # noqa: E402
from weightcast.adapters.boxes.strides import Box  # noqa: E402
from weightcast.adapters.catalog import catalog_of  # noqa: E402
from weightcast.adapters.live import LiveLayout  # noqa: E402
from weightcast.adapters.live import layout as layouts  # noqa: E402
from weightcast.adapters.live.read import examine, read  # noqa: E402
from weightcast.adapters.live.reading import OTHERS  # noqa: E402
from weightcast.adapters.recording.kept import keeping  # noqa: E402
from weightcast.adapters.recording.picked import runs  # noqa: E402

from .test_random_loaders import Listed  # noqa: E402

F32 = torch.float32
CATALOG = catalog_of({"a": ((4, 3), F32), "b": ((4, 3), F32), "h": ((4, 3), torch.bfloat16), "s": ((), F32)})


def published(version: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(version)
    return {n: torch.randn(e.shape).to(torch.bfloat16 if e.dtype == "BF16" else F32) for n, e in CATALOG.items()}


def follow(monkeypatch: pytest.MonkeyPatch, parameters: dict[str, torch.Tensor], load: Callable[[Any], None]) -> LiveLayout:
    """Reads a layout, brings two versions, and looks whether they lie as the loader itself would have put them."""
    monkeypatch.setattr(layouts, "part_of", lambda piece: piece)
    live = LiveLayout(examine(parameters, load, CATALOG, unused={"*": "drawn"}, unsourced={}))
    listed, before = Listed(), {name: p.clone() for name, p in parameters.items()}
    live.layout(stage=True, into=listed)  # type: ignore[arg-type]
    padded = {name: p.clone() for name, p in parameters.items()}
    loaded: dict[str, list[torch.Tensor]] = {name: [] for name in parameters}
    for version in (1, 2):
        weights = published(version)
        listed.bring(weights)
        live.finish()
        found = {name: p.clone() for name, p in parameters.items()}
        for p in parameters.values():
            p.fill_(-1)
        load(iter(weights.items()))
        for name, parameter in parameters.items():
            assert torch.equal(found[name], parameter), (version, name)
            loaded[name].append(parameter.clone())
    for name, (one, other) in loaded.items():
        assert (one == other)[padded[name] != before[name]].all(), "an engine uses what arrives: a layout fills padding alone"
    return live


def on(name: str, do: Callable[[torch.Tensor, torch.Tensor], Any], parameter: torch.Tensor) -> Callable[[Any], None]:
    def load(weights: Any) -> None:
        for given, tensor in weights:
            if given == name:
                do(parameter, tensor)

    return load


WAYS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor, torch.Tensor], Any], str | None]] = {
    # In which form, and what it does instead of a copy of bytes.
    "as it is": ((4, 3), lambda p, t: p.copy_(t), None),
    "a clone": ((4, 3), lambda p, t: p.copy_(t.clone()), None),
    "detached, in another shape": ((2, 6), lambda p, t: p.copy_(t.detach().reshape(2, 6)), None),
    "rows in order": ((2, 3), lambda p, t: p.copy_(t[torch.tensor([1, 2])]), None),
    "one row": ((3,), lambda p, t: p.copy_(t[2]), None),
    "rows out of order": ((3, 3), lambda p, t: p.copy_(t[torch.tensor([3, 0, 1])]), None),
    "rows from behind": ((2, 3), lambda p, t: p.copy_(t[torch.tensor([-1, -4])]), None),
    "rows by a mask": ((3, 3), lambda p, t: p.copy_(t[torch.tensor([True, False, True, True])]), None),
    "columns": ((4, 2), lambda p, t: p.copy_(t.index_select(1, torch.tensor([2, 0]))), None),
    "columns by the last dimension": ((4, 2), lambda p, t: p.copy_(t.index_select(-1, torch.tensor([1, 2]))), None),
    "split and stacked": ((2, 2, 3), lambda p, t: p.copy_(torch.cat([t[:2][None], t[2:][None]])), None),
    "turned": ((3, 4), lambda p, t: p.copy_(t.t()), "transpose"),
    "turned on the other side": ((3, 4), lambda p, t: p.t().copy_(t), "transpose"),
    "cast": ((4, 3), lambda p, t: p.copy_(t.to(torch.bfloat16)), "cast F32 to BF16 to F32"),
    "doubled": ((4, 3), lambda p, t: p.copy_(t + t), "computes other values"),
    "joined and doubled": ((4, 6), lambda p, t: p.copy_(torch.cat([t, t * 2], 1)), "computes other values"),
    "repeated": ((2, 4, 3), lambda p, t: p.copy_(t.expand(2, 4, 3)), "repeats elements"),
    "one element for all": ((4, 3), lambda p, t: p.fill_(t[1, 1]), "computes other values"),
    "in rows of zeros": ((6, 3), lambda p, t: (p.zero_(), p[1:5].copy_(t)), None),
    "in the midst of a constant": ((6, 3), lambda p, t: (p.fill_(4), p[:2].fill_(6), p[1:5].copy_(t)), None),
    "before zeros": ((6, 3), lambda p, t: (p[:4].copy_(t), p[4:].copy_(torch.zeros(2, 3))), None),
    "before ones": ((6, 3), lambda p, t: (p[:4].copy_(t), p[4:].copy_(torch.ones(2, 3))), None),
    "before a constant": ((6, 3), lambda p, t: (p[:4].copy_(t), p[4:].copy_(torch.full((2, 3), 7.0))), None),
    "before a constant of another type": ((6, 3), lambda p, t: (p[:4].copy_(t), p[4:].copy_(torch.full((2, 3), 7).float())), None),
    "before a number": ((6, 3), lambda p, t: (p[:4].copy_(t), p[4:].fill_(torch.tensor(5.0))), None),
    "in place of itself": ((4, 3), lambda p, t: p.data.copy_(t.contiguous()), None),
    "twice": ((4, 3), lambda p, t: (p.copy_(t), p.copy_(t)), None),
    "over what was there": ((4, 3), lambda p, t: (p.fill_(3), p.copy_(t)), None),
}


@pytest.mark.parametrize("name", ["a", "h"])
@pytest.mark.parametrize("way", WAYS)
def test_what_arrives_is_what_this_loader_puts_there(monkeypatch: pytest.MonkeyPatch, way: str, name: str) -> None:
    shape, do, how = WAYS[way]
    parameter = torch.full(shape, -1.0)
    live = follow(monkeypatch, {"p": parameter}, on(name, do, parameter))
    assert set(live.unused) | {name} == set(CATALOG)
    said = " ".join(conversion.how for conversion in live.conversions)
    if name == "h":
        assert said, "halves are cast at least"
    else:
        assert (how in said) if how else not said


def test_two_tensors_of_two_types_are_joined_as_torch_joins_them(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter = torch.zeros(8, 3)

    def load(weights: Any) -> None:
        given = dict(weights)
        if {"a", "h"} <= given.keys():
            parameter.copy_(torch.cat([given["h"], given["a"]]))

    follow(monkeypatch, {"p": parameter}, load)


def test_tensors_in_one_place_are_tied_and_all_of_them_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    parameter, also = torch.zeros(4, 3), []
    monkeypatch.setattr(layouts, "part_of", lambda piece: piece)
    monkeypatch.setattr(Listed, "also", lambda self, parts, *, along=0: also.append([(p.tensor, p.source.len) for p in parts]))

    def load(weights: Any) -> None:
        for name, tensor in weights:
            if name in ("a", "b"):
                parameter.copy_(tensor)

    for catalog in (CATALOG, dict(reversed(CATALOG.items()))):
        live = LiveLayout(examine({"p": parameter}, load, catalog, unused={"[hs]": "drawn"}, unsourced={}))
        listed = Listed()
        live.layout(into=listed)  # type: ignore[arg-type]
        added = [[piece.tensor for piece in parts] for memory, parts, *_ in listed.added if memory.data_ptr() == parameter.data_ptr()]
        assert added == [["a"]] and also == [[("b", (4, 3))]], "in the order of names, whichever came first"
        also.clear()


def test_what_a_parameters_loader_keeps_nothing_of_is_elsewhere() -> None:
    """Experts of other ranks: the loader was asked, and took nothing."""
    parameter = nn.Parameter(torch.zeros(4, 3), requires_grad=False)

    def mine(target: torch.Tensor, tensor: torch.Tensor, expert: int) -> None:
        if expert == 0:
            target.copy_(tensor)

    mine.supports = "told"  # type: ignore[attr-defined]
    parameter.weight_loader = mine

    def load(weights: Any) -> None:
        for name, tensor in weights:
            if name in ("a", "b"):
                assert parameter.weight_loader.supports == "told" and parameter.weight_loader.__name__ == "mine"
                parameter.weight_loader(parameter, tensor, expert=int(name == "b"))

    reading = examine({"p": parameter}, load, CATALOG, unused={"[hs]": "drawn"}, unsourced={})
    assert reading.elsewhere == {"b": "p"} and parameter.weight_loader is mine
    with pytest.raises(wc.LayoutMismatch, match="published tensors that the engine does not take:\n  h"):
        examine({"p": parameter}, load, CATALOG, unused={"s": "drawn"}, unsourced={})
    assert parameter.weight_loader is mine, "also after an error"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda p, t: (p.copy_(t), p[:1].fill_(0)), "p: its loader fills it again after a copy"),
        (lambda p, t: p.add_(t), "changes parameters otherwise than by copies"),
        (lambda p, t: torch.add(t, t, out=p), "changes parameters otherwise than by copies"),
        (lambda p, t: p.copy_(p * 2), "p: its loader reads it .* before it has filled what it reads"),
        (lambda p, t: t.tolist(), "a: .*its loader looks at values|a: the engine's loader failed on it"),
        (lambda p, t: bool(t[0, 0]), "a: its loader looks at values"),
        (lambda p, t: p[1:].copy_(p[:3]), "p: its loader reads it"),
        (lambda p, t: (p[:2].copy_(t[:2]), p[2:].copy_(t.new_zeros(2, 3))), "p: its loader writes something that no published"),
    ],
)
def test_what_cannot_be_followed_is_refused_and_changes_nothing(do: Callable[[Any, Any], Any], said: str) -> None:
    parameter = torch.full((4, 3), 5.0)
    with pytest.raises(wc.Misuse, match=said):
        examine({"p": parameter}, on("a", do, parameter), CATALOG, unused={"*": "drawn"}, unsourced={})
    assert (parameter == 5).all()


def test_a_part_that_nothing_fills_is_told_with_its_size() -> None:
    parameter = torch.zeros(6, 3)
    load = on("a", lambda p, t: p[:4].copy_(t), parameter)
    with pytest.raises(wc.LayoutMismatch, match=r"1 parameters that nothing published fills:\n  p \(12 of 18 elements are filled\)"):
        read({"p": parameter}, load, CATALOG, unused={"*": "drawn"}, unsourced={})
    live = read({"p": parameter}, load, CATALOG, unused={"*": "drawn"}, unsourced={"p": "why"})
    assert live.unsourced == {"p": "why"} and [record.name for record in live.records] == ["p"]


def test_reasons_of_names_decide_what_still_arrives() -> None:
    parameter = torch.zeros(4, 3)
    load = on("a", lambda p, t: p.copy_(t), parameter)
    decided = {"x": "first", "b": OTHERS, "[bh]": "second", "*": "last"}
    renames = {"a": "a", "b": "b", "h": "x", "s": None}
    reading = examine({"p": parameter}, load, CATALOG, unused=decided, unsourced={}, rename=renames.get)
    assert reading.unused == {"b": OTHERS, "h": "second", "s": "last"}
    assert set(reading.left) == {"h", "s"}, "a replica holds a version whole, but for what another model of the engine takes"
    reading = examine({"p": parameter}, load, CATALOG, unused={"x": "by its own name", "[bs]": "why"}, unsourced={}, rename=renames.get)
    assert reading.unused["h"] == "by its own name"
    renames["h"] = None
    reading = examine({"p": parameter}, load, CATALOG, unused={"[bs]": "why"}, unsourced={}, rename=renames.get)
    assert reading.unused["h"] == "left out by rename"


def test_buffers_are_laid_out_if_the_loader_writes_to_them() -> None:
    parameter, buffer, idle = torch.zeros(4, 3), torch.zeros(4, 3), torch.zeros(2)

    def load(weights: Any) -> None:
        for name, tensor in weights:
            if name in ("a", "b"):
                (parameter if name == "a" else buffer).copy_(tensor)

    reading = examine({"p": parameter}, load, CATALOG, memory={"q": buffer, "r": idle, "v": parameter[:2]}, unused={"[hs]": "drawn"}, unsourced={})
    assert [(record.name, record.buffer) for record in reading.records] == [("p", False), ("q", True)]
    assert reading.unsourced == {"v": "a view of p"}


class Model(nn.Module):
    def __init__(self, do: Callable[["Model"], None]) -> None:
        super().__init__()
        self.layer, self.do = nn.Linear(3, 3), do
        self.register_buffer("steps", torch.zeros(1), persistent=False)

    def load_weights(self, weights: Any) -> str:
        self.do(self)
        return "loaded"


@pytest.mark.parametrize(
    ("do", "said"),
    [
        (lambda m: setattr(m.layer, "weight", nn.Parameter(torch.zeros(3, 3))), "layer.weight: the loader makes or replaces"),
        (lambda m: delattr(m.layer, "bias"), "layer.bias: "),
        (lambda m: setattr(m, "extra", nn.Linear(1, 1)), "extra: "),
        (lambda m: m.register_buffer("table", torch.zeros(2)), "table: "),
        (lambda m: None, None),
    ],
)
def test_a_model_keeps_the_parts_that_it_has(do: Callable[[Model], None], said: str | None) -> None:
    model = Model(do)
    before = {name: id(tensor) for name, tensor in [*model.named_parameters(), *model.named_buffers()]}
    load = keeping(model)
    if said is None:
        assert load([]) == "loaded"
    else:
        from weightcast.adapters.recording.recorder import Refused

        with pytest.raises(Refused, match=f"^{said}"):
            load([])
    assert {name: id(t) for name, t in [*model.named_parameters(), *model.named_buffers()]} == before
    assert list(model.state_dict()) == ["layer.weight", "layer.bias"], "what is not persistent stays so"


@pytest.mark.parametrize("seed", range(60))
def test_what_is_left_of_a_box_is_all_that_no_other_has(seed: int) -> None:
    draw = random.Random(seed)
    ndim = draw.randint(0, 3)

    def drawn() -> Box:
        start = [draw.randint(0, 4) for _ in range(ndim)]
        return Box(tuple(start), tuple(draw.randint(0 if draw.random() < 0.2 else 1, 6 - s) for s in start))

    def cells(of: Box) -> list[tuple[int, ...]]:
        return list(product(*(range(s, s + n) for s, n in zip(of.start, of.len, strict=True))))

    box, others = drawn(), [drawn() for _ in range(draw.randint(0, 3))]
    taken = {cell for other in others for cell in cells(other)}
    found = [cell for left in without(box, others) for cell in cells(left)]
    assert sorted(found) == sorted(cell for cell in cells(box) if cell not in taken)


@pytest.mark.parametrize("numbers", [[], [3], [0, 1, 2], [2, 1, 0], [0, 2, 3, 1], [5, 5, 6], [1, 3, 5], [0, 1, 4, 5, 2]])
def test_runs_of_numbers(numbers: list[int]) -> None:
    found = list(runs(numbers))
    assert [start + n for start, length in found for n in range(length)] == numbers and all(length > 0 for _, length in found)
    assert all(first[0] + first[1] != then[0] for first, then in zip(found, found[1:], strict=False)), "as long as they can be"
