"""A tree of arrays as a layout: host memory that each publication fills from the arrays of the moment.

Arrays of JAX are new objects after each step, and a step may give the memory of the former ones to the new
ones (donation). Registered memory has to stay where it is, and as it is while it is published. So it is a
copy, made by `publish`: it is registered once, the plans of readers stay good, and training goes on at once.
Of arrays on a device a copy has to be made anyway.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ParamSpec, TypeVar

import numpy as np

from .. import _core
from .. import layout as layouts
from ..adapters.catalog import Catalog, Entry, catalog_of
from ..host_copies import HostCopies, Version
from ..names import NameMap, PublishedSlice, Rename, Stack, check, renamed
from .leaves import ArrayBox, Leaf, leaves

_P = ParamSpec("_P")
_R = TypeVar("_R")


def layout(
    params: Callable[[], Any],
    *,
    names: NameMap | None = None,
    rename: Rename | None = None,
    transpose: str | Iterable[str] = (),
    expect: Any = None,
) -> layouts.Layout:
    """The layout of what this process holds of a tree of arrays: host memory, into which each `publish`
    copies the arrays that `params()` returns then (`lambda: state.params`). They may change, or be donated,
    once `publish` has returned.

    A tensor's name is its path in the tree with dots between the parts, `layers.0.attention.kernel`. `names`
    says what engines call it, or the matrices that an array of three dimensions stacks (layers under a scan,
    experts); `rename` maps a published name to another, or to None to leave it out. Arrays whose published
    name `transpose` fits (names in which `*` stands for anything) are published with their last two
    dimensions exchanged: Flax keeps kernels as `[in, out]`, engines as `[out, in]`. `expect` is a catalog
    that must be met, as in `weightcast.torch.layout`.

    Each box is there once, however many devices of this process hold it. The tree's paths, shapes, types and
    shardings stay as they are.
    """
    turned = (transpose,) if isinstance(transpose, str) else tuple(transpose)
    made = [
        _Tensor.of(leaf, what, turned) for leaf, what in _published(params(), names or NameMap(), rename)
    ]
    if expect is not None:
        check({name: entry for one in made for name, entry in one.whole().items()}, catalog_of(expect))
    listed = layouts.Layout()
    listed.copies = _Filled(params, made)
    for one in made:
        one.add(listed)
    return listed


def _published(
    tree: Any, names: NameMap, rename: Rename | None
) -> Iterable[tuple[Leaf, str | Stack]]:
    for leaf in leaves(tree):
        what = renamed(names.published(leaf.name), rename, leaf.name)
        if what is not None:
            yield leaf, what


@dataclass(frozen=True)
class _Tensor:
    """An array that is published, and host memory for what this process holds of it."""

    name: str
    what: str | Stack
    #: Of the array in the tree.
    shape: tuple[int, ...]
    dtype: str
    turned: bool
    memory: dict[ArrayBox, np.ndarray]

    @classmethod
    def of(cls, leaf: Leaf, what: str | Stack, transpose: Iterable[str]) -> "_Tensor":
        dtype = leaf.dtype
        published = (what,) if isinstance(what, str) else what.matrices
        turned = any(fnmatchcase(name, pattern) for name in published for pattern in transpose)
        shape = tuple(leaf.array.shape)
        if turned and len(shape) < 2:
            raise _core.Misuse(f"{leaf.name} has shape {shape}, and nothing to transpose; name others")
        memory = {box: np.empty(_turn(box[1], turned), leaf.array.dtype) for box in leaf.here()}
        return cls(leaf.name, what, shape, dtype, turned, memory)

    def whole(self) -> Catalog:
        """What all processes publish of it."""
        shape = _turn(self.shape, self.turned)
        if isinstance(self.what, str):
            return {self.what: Entry(shape, self.dtype)}
        return {name: Entry(one, self.dtype) for name, one in self.what.whole(self.name, shape).items()}

    def add(self, listed: layouts.Layout) -> None:
        """Adds the memory to a layout, as memory that nothing is read into."""
        shape = _turn(self.shape, self.turned)
        for (start, length), memory in self.memory.items():
            box = _turn(start, self.turned), _turn(length, self.turned)
            lying = memory.view()
            if isinstance(self.what, str):
                slices = [PublishedSlice(self.what, shape, *box)]
            else:
                slices = self.what.slices(self.name, shape, box)
                lying = lying.reshape(-1, memory.shape[-1])
            lying.setflags(write=False)
            parts = [layouts.part_of(one) for one in slices]
            if parts:
                listed.add(lying, parts, dtype=self.dtype)

    def begin(self, leaf: Leaf) -> dict[ArrayBox, Any]:
        """What lies here now; begins to bring it from its devices."""
        if (tuple(leaf.array.shape), leaf.dtype) != (self.shape, self.dtype) or (
            (here := leaf.here()).keys() != self.memory.keys()
        ):
            raise RuntimeError(
                f"{self.name} has another shape, type or sharding than when its layout was made; unpublish, "
                "unregister, make the layout anew and register that"
            )
        for data in here.values():
            data.copy_to_host_async()
        return here

    def fill(self, here: dict[ArrayBox, Any]) -> None:
        """Copies it into the memory."""
        for box, data in here.items():
            lying = np.asarray(data)
            np.copyto(self.memory[box], lying.swapaxes(-1, -2) if self.turned else lying)


class _Filled(HostCopies):
    """Host memory that is filled before each publication."""

    def __init__(self, params: Callable[[], Any], tensors: list[_Tensor]) -> None:
        super().__init__()
        self._params, self._tensors = params, tensors

    def __bool__(self) -> bool:
        return True

    def out(self) -> None:
        """Copies the arrays of the moment."""
        try:
            now = {leaf.name: leaf for leaf in leaves(self._params())}
        except _core.Misuse as error:  # what other shards are told of
            raise RuntimeError(str(error)) from error
        if gone := [one.name for one in self._tensors if one.name not in now]:
            raise RuntimeError(f"{gone[0]} is not in the tree any more, which has {len(now)} arrays")
        begun = [(one, one.begin(now[one.name])) for one in self._tensors]
        for one, here in begun:
            one.fill(here)
        self.installed = None

    def into(self, version: Version | None) -> None:
        """Refuses: arrays of JAX never change."""
        raise _core.Misuse("arrays of JAX never change, so they can be published, not filled")

    def on_current_streams(self, call: Callable[_P, _R]) -> Callable[_P, _R]:
        """The call itself: JAX orders what it does by data."""
        return call


def _turn(of: tuple[int, ...], turned: bool) -> tuple[int, ...]:
    return (*of[:-2], of[-1], of[-2]) if turned else of
