"""A trainer's rank by rule: its local tensors, filled from a checkpoint, as a layout."""

import math
from collections.abc import Mapping
from typing import Any

import torch

import weightcast as wc
from weightcast.adapters.boxes.pieces import ParameterPiece, buffers
from weightcast.adapters.boxes.strides import Box
from weightcast.adapters.catalog import Catalog
from weightcast.adapters.live.layout import add_buffer
from weightcast.adapters.recording.recorder import DTYPES

Values = dict[str, torch.Tensor]


def checkpoint(catalog: Catalog, version: int) -> Values:
    """A random checkpoint, the same in every process."""
    values = {}
    for at, (name, entry) in enumerate(sorted(catalog.items())):
        draw = torch.Generator().manual_seed(1000 * version + at)
        values[name] = torch.randn(entry.shape, generator=draw).to(DTYPES[entry.dtype])
    return values


class Trainer:
    """The local tensors of one rank."""

    def __init__(self, records: list[dict[str, Any]], catalog: Catalog) -> None:
        self.layout = wc.Layout()
        self._copies: list[tuple[torch.Tensor, ParameterPiece]] = []
        for record in records:
            shape = tuple(record["shape"])
            if 0 in shape or not record["pieces"]:
                continue
            local = torch.zeros(shape, dtype=DTYPES[record["dtype"]])
            pieces = [_piece(piece, shape, catalog) for piece in record["pieces"]]
            for buffer in buffers(shape, pieces):
                add_buffer(self.layout, local, buffer)
            self._copies += [(local, piece) for piece in pieces]

    def fill(self, values: Mapping[str, torch.Tensor]) -> None:
        """What an optimizer step would do."""
        for local, piece in self._copies:
            value = values[piece.tensor][_slices(piece.source)]
            local[_slices(piece.target)] = value.reshape(piece.target.len)


def _slices(box: Box) -> tuple[slice, ...]:
    return tuple(slice(s, s + n) for s, n in zip(box.start, box.len, strict=True))


def _piece(record: list, shape: tuple[int, ...], catalog: Catalog) -> ParameterPiece:
    name, dim, start, length, target_dim, target_start, index = record
    whole = catalog[name].shape
    first, lengths, target = [0] * len(whole), list(whole), [0] * len(whole)
    if whole:
        first[dim], lengths[dim], target[target_dim] = start, length, target_start
    stack = [] if index is None else [index]
    box = Box(tuple(stack + target), tuple([1] * len(stack) + lengths))
    assert math.prod(box.len) <= math.prod(shape)
    return ParameterPiece(name, whole, Box(tuple(first), tuple(lengths)), box)
