"""The layout of a rank of DeepSpeed."""

from math import prod
from typing import Any

from ... import layout as layouts
from ...memory import TORCH
from ...names import NameMap, PublishedSlice, Rename, Stack, check
from ...torch import marks
from ...torch import module as modules
from ...torch.ranges import boxes_of
from ..catalog import Catalog, Entry, catalog_of
from .pieces import Piece, is_cut, piece
from .where import cutting_group, refuse


def layout(
    engine: Any,
    *,
    names: NameMap | None = None,
    rename: Rename | None = None,
    buffers: bool = True,
    beside: bool = False,
    expect: Any = None,
) -> layouts.Layout:
    """The layout of what this rank holds of the module that DeepSpeed trains, in place, under the names of
    its checkpoint: whole parameters with ZeRO 1 and 2, pieces of flattened ones with ZeRO 3, on a GPU or
    offloaded to the CPU.

    `names`, `rename`, `buffers`, `beside` and `expect` are those of `weightcast.torch.layout`. Raises
    `Misuse` for an engine that is a pipeline, tensor-parallel or has layers of `deepspeed.moe`, and for
    parameters that are offloaded to NVMe or quantised.
    """
    refuse(engine)
    module, group = engine.module, cutting_group(engine)
    if group is None:
        return modules.layout(
            module, names=names, rename=rename, buffers=buffers, beside=beside, expect=expect
        )
    listed = layouts.Layout(beside=beside)
    listed.exchange = modules.exchange_over([group])
    published: Catalog = {}
    chosen = list(modules.chosen(module, names, rename, buffers))
    for what, one in chosen:
        found = piece(one.name, one.tensor) if is_cut(one.tensor) else None
        published |= _whole(what, one.name, one.tensor, found)
        if found is not None:
            _add(listed, what, one.name, found)
        else:
            marks.refuse(one.name, one.owner, one.tensor)
            listed.add(one.tensor, str(what))
    listed.origins.module(module)
    for _, one in chosen:
        if is_cut(one.tensor):
            listed.origins.tensor(one.name, one.tensor.ds_tensor)
        else:
            listed.origins.slot(one.name, one.owner, one.key)
    if expect is not None:
        check(published, catalog_of(expect))
    return listed


def _add(listed: layouts.Layout, what: str | Stack, name: str, found: Piece) -> None:
    """Adds a piece, box by box."""
    at = 0
    for box in boxes_of(found.shape, found.start, found.count):
        if isinstance(what, str):
            slices = [PublishedSlice(what, found.shape, *box)]
        else:
            slices = what.slices(name, found.shape, box)
        for one in slices:
            end = at + prod(one.length)
            view = found.memory.view(-1)[at:end].view(one.length)
            listed.add(view, [layouts.part_of(one)])
            at = end


def _whole(what: str | Stack, name: str, tensor: Any, found: Piece | None) -> Catalog:
    """What all ranks together have of a parameter."""
    shape, held = (tuple(tensor.shape), tensor) if found is None else (found.shape, found.memory)
    dtype = str(held.dtype).removeprefix("torch.")
    shapes = {what: shape} if isinstance(what, str) else what.whole(name, shape)
    return {one: Entry(each, TORCH.get(dtype, dtype)) for one, each in shapes.items()}
