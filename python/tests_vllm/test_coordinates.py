"""A second way to the same layout: tensors whose values are coordinates go through the real loader,
and where they land is compared with what was recorded."""

import math
import random
from pathlib import Path

import pytest
import torch

from weightcast.adapters import vllm
from weightcast.adapters.boxes.strides import Box
from weightcast.adapters.catalog import Catalog
from weightcast.adapters.live import LiveLayout
from weightcast.adapters.recording.recorder import DTYPES

from .configs import FAMILIES, MOE, config
from .engine import build
from .rules import Rules

#: Digits are 1 to 255, which BF16 holds exactly; 0 is where nothing landed.
BASE = 255


def first_elements(catalog: Catalog) -> dict[str, int]:
    """Numbers all elements of a checkpoint: where each tensor's begin."""
    starts, at = {}, 0
    for name, entry in catalog.items():
        starts[name] = at
        at += math.prod(entry.shape)
    return starts


def landed(build_one, catalog: Catalog) -> dict[str, torch.Tensor]:
    """For each parameter, the number of the element that the loader put in each place; -1: none."""
    starts = first_elements(catalog)
    total = sum(math.prod(entry.shape) for entry in catalog.values())
    found: dict[str, torch.Tensor] = {}
    for digit in range(math.ceil(math.log(total, BASE))):
        model = build_one()
        for parameter in model.parameters():
            parameter.data.zero_()
        model.load_weights(
            (name, digits(starts[name], entry.shape, digit).to(DTYPES[entry.dtype]))
            for name, entry in catalog.items()
        )
        for name, parameter in model.named_parameters():
            values = parameter.detach().to(torch.int64)
            found.setdefault(name, torch.where(values == 0, -1, 0))
            found[name] += (values - 1).clamp(min=0) * BASE**digit
    return found


def digits(start: int, shape: tuple[int, ...], digit: int) -> torch.Tensor:
    numbers = torch.arange(start, start + math.prod(shape)).reshape(shape)
    return numbers // BASE**digit % BASE + 1


def recorded(live: LiveLayout, catalog: Catalog) -> dict[str, torch.Tensor]:
    """The same, by the layout."""
    starts = first_elements(catalog)
    found = {}
    for record in live.records:
        place = torch.full(record.shape, -1)
        for piece in record.pieces:
            shape = catalog[piece.tensor].shape
            numbers = torch.arange(math.prod(shape)).reshape(shape) + starts[piece.tensor]
            place[slices(piece.target)] = numbers[slices(piece.source)].reshape(piece.target.len)
        found[record.name] = place
    return found


def slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(box.start, box.len, strict=True))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tp", [1, 4])
def test_elements_land_where_the_layout_says(family: str, tp: int, tmp_path: Path) -> None:
    draw = random.Random(f"coordinates {family} {tp}")
    drawn = config(family, draw)
    catalog = Rules(drawn, tmp_path).catalog()
    rank, ep = draw.randrange(tp), family in MOE and tp > 1

    def build_one() -> torch.nn.Module:
        return build(drawn, tp=tp, rank=rank, ep=ep)

    want = landed(build_one, catalog)
    got = recorded(vllm.read(build_one(), catalog), catalog)
    assert got.keys() == want.keys()
    for name, place in want.items():
        assert torch.equal(got[name], place), (drawn, tp, rank, name)
