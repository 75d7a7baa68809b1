"""Updates through the engine's own loader, where its memory does not hold what is published."""

from collections.abc import Iterator, Mapping

import torch

from ... import _core
from ... import layout as layouts
from ..boxes.pieces import ParameterPiece
from ..catalog import Entry
from ..recording.recorder import DTYPES
from .layout import LiveLayout, part_of
from .reading import Reading


class ThroughLoader(LiveLayout):
    """The layout of an engine that has rearranged its parameters after loading (packed, transposed,
    requantised).

    What this rank needs of each published tensor is staged, in the published form. `finish()` hands
    it to the engine's loader, one tensor at a time, which slices and rearranges it as ever.
    """

    always_beside = True

    def __init__(
        self, reading: Reading, catalog: Mapping[str, Entry], *, derived: Mapping[str, str]
    ) -> None:
        """`load` of the reading is the loader that updates go through."""
        super().__init__(reading, derived=derived)
        self._catalog = catalog
        self._memory: dict[str, list[tuple[ParameterPiece, torch.Tensor]]] = {}

    def layout(
        self, *, stage: bool = False, beside: bool = False, into: layouts.Layout | None = None
    ) -> layouts.Layout:
        """The layout of the staged tensors, for `Handle.register`; added to `into`, if that is given. They
        lie `beside` the parameters anyway."""
        if not stage:
            raise _core.Misuse(
                "this engine has rearranged its parameters after loading, so no published bytes lie "
                "in them; register layout(stage=True), and call finish() after each update"
            )
        self._allocate()
        listed = layouts.Layout() if into is None else into
        for staged in self._memory.values():
            for piece, memory in staged:
                listed.add(memory, [part_of(piece)])
                for again in piece.also:
                    listed.also([part_of(again)])
        self._lay_left(listed)
        listed.apart = True
        return listed

    def finish(self) -> None:
        """What has to follow an update: the engine loads what has arrived."""
        if not self._memory:
            raise _core.Misuse("nothing is staged; register layout(stage=True) first")
        self._reading.load(self._tensors())

    def _allocate(self) -> None:
        if self._memory:
            return
        # A box that two parameters hold arrives once.
        every = [*self.whole.values(), *(p for record in self.records for p in record.pieces)]
        pieces = {
            (p.tensor, p.source.start, p.source.len): p
            for p in every
            if p.tensor not in self.whole or p is self.whole[p.tensor]
        }
        for piece in pieces.values():
            dtype = DTYPES[self._catalog[piece.tensor].dtype]
            memory = torch.empty(piece.source.len, dtype=dtype)
            self._memory.setdefault(piece.tensor, []).append((piece, memory))

    def _tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Published tensors under the loader's names, in the order of the catalog; of each, what this
        rank does not need is zeros."""
        for name, entry in self._catalog.items():
            staged = self._memory.get(name)
            if staged is None:
                continue
            if len(staged) == 1 and staged[0][0].source.len == entry.shape:
                yield self._reading.known[name], staged[0][1]
                continue
            whole = torch.zeros(entry.shape, dtype=DTYPES[entry.dtype])
            for piece, memory in staged:
                box = piece.source
                at = tuple(slice(s, s + n) for s, n in zip(box.start, box.len, strict=True))
                whole[at] = memory
            yield self._reading.known[name], whole
