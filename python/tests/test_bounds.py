"""Tables of what the small rules of the package take and refuse, at their bounds."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import weightcast as wc
from weightcast import layout, mappings, selector
from weightcast.adapters import catalog
from weightcast.adapters.boxes.cover import covered
from weightcast.adapters.boxes.pieces import ParameterPiece, Unlike, buffers
from weightcast.adapters.boxes.strides import Box
from weightcast.adapters.naming.decisions import left_out
from weightcast.adapters.naming.nearest import listed, unmatched
from weightcast.adapters.recording.owners import Owners
from weightcast.memory import NUMPY, TORCH, describe

MOST = 2**64 - 1


@pytest.mark.parametrize("given, parsed", [
    (0, ("exact", 0)), (MOST, ("exact", MOST)), ("0", ("exact", 0)), ("latest", ("latest", 0)),
    ("latest-0", ("latest_minus", 0)), (f"latest-{MOST}", ("latest_minus", MOST)),
    (wc.latest(), ("latest", 0)), (wc.exact(4), ("exact", 4)), (wc.nth_latest(4), ("nth_latest", 4)), (wc.at_least(4), ("at_least", 4)),
])
def test_a_selector_is_a_kind_and_a_number(given: Any, parsed: tuple[str, int]) -> None:
    assert selector.parse(given) == wc.Selector(*parsed)


@pytest.mark.parametrize("given, error", [
    (-1, ValueError), (MOST + 1, ValueError), (f"latest-{MOST + 1}", ValueError), (wc.exact(MOST + 1), ValueError),
    (True, TypeError), (False, TypeError), ("latest-", ValueError), ("", ValueError), (None, ValueError),
])
def test_what_names_no_version_is_refused(given: Any, error: type) -> None:
    with pytest.raises(error):
        selector.parse(given)


def test_conditions_have_bounds() -> None:
    for make in (wc.held, wc.fresh):
        assert (make(0).rollouts, make(MOST, by=0).rollouts, make(1, by=2**32 - 1).rollouts) == (None, 0, 2**32 - 1)
        assert make(5, by=6).kind == make.__name__
        for wrong in ({"by": -1}, {"by": 2**32}):
            with pytest.raises(ValueError, match="rollouts"):
                make(1, **wrong)
        for number in (-1, MOST + 1):
            with pytest.raises(ValueError, match="a version"):
                make(number)


def test_types_have_the_sizes_that_their_names_say() -> None:
    bits = {"F64": 64, "F32": 32, "F16": 16, "BF16": 16, "BOOL": 8, "F4": 8}
    kinds = {"F": "float", "I": "int", "U": "uint", "B": "b"}
    assert len(set(TORCH.values())) == len(TORCH)
    for name, known in TORCH.items():
        assert kinds[known[0]] == name.rstrip("0123456789")[: len(kinds[known[0]])]
        if hasattr(torch, name):
            size = bits.get(known) or int(known.partition("_")[0][1:])
            assert getattr(torch, name).itemsize * 8 == size, name
    for name, known in NUMPY.items():
        if known.startswith("F8_"):
            assert name.removeprefix("float8_").removesuffix("fn") == known.removeprefix("F8_").lower()


def test_a_type_that_is_given_wins() -> None:
    codes = np.zeros(4, np.uint16)
    assert describe("w", codes, "BF16").dtype == "BF16" and describe("w", codes).dtype == "U16"
    assert describe("w", torch.zeros(4, dtype=torch.uint8), "F8_E4M3").dtype == "F8_E4M3"
    with pytest.raises(wc.Misuse, match="big-endian"):
        describe("w", np.zeros(2, ">f4"))
    with pytest.raises(wc.Misuse, match=r"strides \(1, 3\)"):
        describe("w", np.zeros((2, 3), "f4").T)
    with pytest.raises(wc.Misuse, match="a meta tensor"):
        describe("w", torch.zeros(2, device="meta"), "F32")
    codes = torch.zeros(3, dtype=torch.uint8)
    assert describe("w", codes, "F4").shape == [6] and describe("w", codes[0], "F4").shape == []


@pytest.mark.parametrize("dim, index, of, start, length", [
    (0, 0, 2, 0, 2), (None, 0, 2, None, None), (None, None, None, 0, 2), (0, None, None, None, None),
    (0, 0, None, None, None), (0, None, 2, None, None), (0, None, None, 0, None), (0, None, None, None, 2),
])
def test_a_cut_is_said_in_one_way_and_whole(dim: Any, index: Any, of: Any, start: Any, length: Any) -> None:
    with pytest.raises(ValueError):
        wc.part("w", dim=dim, index=index, of=of, start=start, length=length)


def test_what_a_layout_refused_is_not_noted() -> None:
    refused, tensor = wc.Layout(), torch.zeros(3)
    with pytest.raises(ValueError):
        refused.add(tensor, "w", dtype="F7")
    tensor.data = torch.ones(3)
    assert refused.origins.moved() is None and refused._places == []


class Core:
    """Stands for the native layout, or the native module: notes calls, and is what they answer."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __len__(self) -> int:
        return 7

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> "Core":
            self.calls.append((name, *arguments))
            return self

        return call


def test_a_layout_passes_all_that_it_is_given() -> None:
    made, codes, [a, b] = wc.Layout(), np.zeros((3, 2), "u2"), [wc.part(name, shape=(1, 2)) for name in "ab"]
    made._core = Core()
    made.add(codes, [a, b], along=2, pad=True, dtype="BF16").also(b, along=3).also([a, b])
    made.keep("k*").cast("c*", "F16").quantise("q*", block=(4, 5), formula="triton", scales="F8_E8M0", suffix="_s")
    [(_, name, data, *added), *others] = made._core.calls
    assert (name, data.nbytes, added) == ("buffer 7", 12, ["BF16", [3, 2], [a._core, b._core], 2, True])
    assert made._places == [("buffer 7", codes.ctypes.data, 12)]
    assert others == [("also", [b._core], 3), ("also", [a._core, b._core], 0), ("keep", "k*"), ("cast", "c*", "F16"),
                      ("quantise", "q*", (4, 5), "triton", "F8_E8M0", "_s")]


@pytest.mark.parametrize("shape, passed", [(None, None), ((), []), ((2, 3), [2, 3])])
def test_a_scalar_has_a_shape(monkeypatch: pytest.MonkeyPatch, shape: Any, passed: list[int] | None) -> None:
    core = Core()
    monkeypatch.setattr(layout, "_core", core)
    wc.part("w", shape=shape)
    assert core.calls == [("Part", "w", passed)]


MAPS = """1000-2000 r--p 0 08:01 5 /model/a b.bin
2000-3000 r--p 0 08:01 6 /gone (deleted)
3000-4000 rw-p 0 00:01 7 /memfd:x
4000-5000 rw-p 0 00:00 0
5000-6000 r--p 0 08:01 8 /model/c
"""


def test_names_are_found_at_both_ends_of_a_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_text", lambda self, **_: MAPS)
    where = {"before": (0xFFF, 1), "reaches in": (0xFFF, 2), "first": (0x1000, 1), "last": (0x1FFF, 1),
             "behind": (0x2000, 1), "empty": (0x1800, 0), "memfd": (0x3000, 4), "ends before": (0x4FFF, 1), "c": (0x5000, 9)}
    found = mappings.in_files((name, *place) for name, place in where.items())
    assert found == {"/model/a b.bin": ["reaches in", "first", "last"], "/model/c": ["c"]}


@pytest.mark.parametrize("count, said", [(3, "a, b, c: "), (4, "a, b, c and 1 more: "), (5, "a, b, c and 2 more: ")])
def test_three_names_of_a_file_are_told_where_the_caller_stands(
    monkeypatch: pytest.MonkeyPatch, count: int, said: str
) -> None:
    monkeypatch.setattr(mappings, "in_files", lambda places: {"/f": list("abcde")[:count]})
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        mappings.warn([], level=1)
    assert str(told[0].message).startswith(said) and told[0].filename == __file__


def test_lines_beyond_eight_are_counted() -> None:
    for count, last in ((8, "7"), (9, "and 1 more"), (10, "and 2 more")):
        lines = listed([str(n) for n in range(count)])
        assert (lines[-1], len(lines)) == (last, min(count, 9))


def test_all_names_that_are_left_over_are_counted_and_a_remark_is_no_name() -> None:
    left = [f"query{n}.weight (0 of 6 elements are filled)" for n in range(9)]
    said = unmatched("parameters", left, ["querry0.weight"], "rename them").splitlines()
    assert (said[0], said[-1]) == ("9 parameters:", "rename them")
    assert said[1] == f"  {left[0]} (nearest: querry0.weight)"


def test_a_header_has_a_limit_and_is_an_object(tmp_path: Path) -> None:
    file = tmp_path / "m.safetensors"
    for length, body, said in ((catalog.HEADER_LIMIT + 1, b"", "a header of"), (catalog.HEADER_LIMIT, b"", "not JSON"),
                               (2, b"[]", "not a JSON object"), (3, b"[1]", "not a JSON object"),
                               (1, b"\xff", "not JSON")):
        file.write_bytes(length.to_bytes(8, "little") + body)
        with pytest.raises(wc.Misuse, match=said):
            catalog.catalog_of(file)
    file.write_bytes(b"1234567")
    with pytest.raises(wc.Misuse, match="too short"):
        catalog.catalog_of(file)


def test_a_file_of_layouts_that_is_too_long_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "trainer.json"
    with file.open("wb") as made:
        made.truncate(catalog.LAYOUTS_LIMIT + 1)  # sparse
    with pytest.raises(wc.Misuse, match=rf"^{file}: 536870913 bytes; of a file of layouts at most 536870912 are read$"):
        catalog.catalog_of(file)


def test_a_catalog_has_matrices_and_known_types() -> None:
    class Stacked(nn.Module):
        config = type("Config", (), {"model_type": "olmoe"})()

    module = Stacked()
    module.layer = nn.Module()
    module.layer.mlp = nn.Module()
    module.layer.mlp.experts = nn.Module()
    module.layer.mlp.experts.down_proj = nn.Parameter(torch.zeros(2, 3, 4))
    names = [f"layer.mlp.experts.{expert}.down_proj.weight" for expert in range(2)]
    assert catalog.catalog_of(module) == dict.fromkeys(names, catalog.Entry((3, 4), "F32"))
    with pytest.raises(wc.Misuse, match="w: dtype torch.complex64 is not known"):
        catalog.catalog_of({"w": ((2,), torch.complex64)})


def test_boxes_cover_what_a_grid_of_them_does() -> None:
    draw = np.random.default_rng(1)
    for _ in range(60):
        shape = draw.integers(1, 6, size=draw.integers(0, 4))
        grid, boxes = np.zeros(shape, bool), []
        for _ in range(draw.integers(0, 4)):
            start = [int(draw.integers(0, n)) for n in shape]
            lengths = [int(draw.integers(0 if d else 1, n - s + 1)) for d, (n, s) in enumerate(zip(shape, start, strict=True))]
            grid[tuple(slice(s, s + n) for s, n in zip(start, lengths, strict=True))] = True
            boxes.append(Box(tuple(start), tuple(lengths)))
        assert covered(boxes, len(shape)) == int(grid.sum())


def test_the_largest_tensor_owns_a_view_and_only_if_all_of_it_lies_there() -> None:
    memory = torch.zeros(12)
    owners = Owners({"low": memory[:4], "none": memory[:0], "middle": memory[2:10], "same": memory[2:10]})
    for view, owner in ((memory[0:4], "low"), (memory[3:5], "middle"), (memory[2:4], "middle"),
                        (memory[9:10], "middle"), (memory[9:11], None), (memory[10:11], None), (memory[1:5], None),
                        (memory[1:4:2], "low"), (memory[5:5], "middle"), (memory.view(torch.int8)[39:40], "middle")):
        assert owners.of(view) == owner
    assert Owners({"none": memory[5:5]}).of(memory[5:5]) is None


def test_draft_layers_lie_behind_those_of_the_model() -> None:
    def names(**config: Any) -> set[str]:
        class Model:
            pass

        model = Model()
        model.config = type("Config", (), config)()
        return set(left_out(model)) - {"*rotary_emb.inv_freq"}

    drafts = {"num_hidden_layers": 4, "num_nextn_predict_layers": 2}
    assert names() == names(num_nextn_predict_layers=2) == names(num_hidden_layers=4) == set()
    assert names(**drafts) == {"model.layers.4.*", "model.layers.5.*"}
    assert names(text_config=type("Text", (), {"tie_word_embeddings": True})()) == {"lm_head.weight"}


def test_pieces_that_end_early_leave_padding_and_others_do_not() -> None:
    for rows, padded in ((4, False), (5, True)):
        of = [ParameterPiece(name, (2, 3), Box((0, 0), (2, 3)), Box((at, 0), (2, 3))) for at, name in ((0, "a"), (2, "b"))]
        [one] = buffers((rows, 3), of)
        assert (one.padded, one.along, [p.tensor for p in one.pieces]) == (padded, 0, ["a", "b"])


def test_what_lies_behind_a_gap_stays_there() -> None:
    """Rows before, between and behind the pieces belong to nobody."""
    for first in (0, 1):
        places = {"a": first, "b": first + 3}
        of = [ParameterPiece(name, (2, 3), Box((0, 0), (2, 3)), Box((at, 0), (2, 3))) for name, at in places.items()]
        found = [(one.box, one.padded, [p.tensor for p in one.pieces]) for one in buffers((6 + first, 3), of)]
        assert found == [(Box((at, 0), (2, 3)), False, [name]) for name, at in places.items()]


@pytest.mark.parametrize("source, target, record", [
    (Box((0, 0), (2, 3)), Box((0, 3), (2, 3)), [1, 0, 3, 1, 3, None]),  # whole, beside others
    (Box((0, 1), (2, 1)), Box((0, 0), (2, 1)), [1, 1, 1, 1, 0, None]),
    (Box((0, 0), (2, 3)), Box((4, 5, 0), (1, 2, 3)), [0, 0, 2, 0, 5, 4]),  # one of a stack
    (Box((0, 0), (2, 3)), Box((4, 0, 0), (2, 1, 3)), [0, 0, 2, 0, 4, None]),
])
def test_a_record_says_where_a_piece_lies(source: Box, target: Box, record: list) -> None:
    assert ParameterPiece("w", (2, 3), source, target).as_record() == ["w", *record]


def test_lengths_of_one_may_come_and_go_and_others_not() -> None:
    def piece(shape: tuple[int, ...], start: tuple[int, ...], length: tuple[int, ...]) -> ParameterPiece:
        return ParameterPiece("w", shape, Box((0,) * len(shape), shape), Box(start, length))

    [one] = buffers((6,), [piece((6, 1), (0,), (6,))])
    assert (one.shape, one.along, one.padded) == ((6, 1), 0, False)
    with pytest.raises(Unlike):
        buffers((6, 1), [piece((1, 6), (0, 0), (6, 1))])
    # Two of each expert: rows that touch are not one.
    stack = [piece((2, 3), (expert, at, 0), (1, 2, 3)) for expert in range(2) for at in (0, 2)]
    found = buffers((2, 4, 3), stack)
    assert [(one.box, len(one.pieces)) for one in found] == [(Box((e, 0, 0), (1, 4, 3)), 2) for e in range(2)]
