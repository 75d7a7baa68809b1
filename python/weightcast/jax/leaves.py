"""The arrays of a tree, by name, and which boxes of them lie with which process."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
from jax.tree_util import keystr, tree_flatten_with_path

from .. import _core
from ..memory import TORCH

#: First index and length by dimension.
ArrayBox = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Leaf:
    """An array of a tree."""

    #: Its path, with dots between the parts.
    name: str
    array: Any

    @property
    def dtype(self) -> str:
        """Its type, by safetensors name."""
        known = TORCH.get(str(self.array.dtype))
        if known is None:
            raise _core.Misuse(
                f"{self.name} has dtype {self.array.dtype}, which is none of those of a checkpoint; leave it "
                "out by `rename`, or publish a part of the tree"
            )
        return known

    def here(self) -> dict[ArrayBox, Any]:
        """The boxes that this process holds, each once, in order, with the array of one device."""
        found: dict[ArrayBox, Any] = {}
        for shard in self.array.addressable_shards:
            found.setdefault(box_of(shard.index, self.array.shape), shard.data)
        return dict(sorted(found.items()))

    def boxes(self, process: int) -> frozenset[ArrayBox]:
        """The boxes that a process holds."""
        indices = self.array.sharding.devices_indices_map(self.array.shape)
        return frozenset(
            box_of(index, self.array.shape)
            for device, index in indices.items()
            if device.process_index == process
        )

    def processes(self) -> set[int]:
        """The processes that hold anything of it."""
        return {device.process_index for device in self.array.sharding.device_set}


def leaves(tree: Any) -> Iterator[Leaf]:
    """The arrays of a tree, in its order."""
    for path, array in tree_flatten_with_path(tree)[0]:
        name = keystr(path, simple=True, separator=".")
        if not isinstance(array, jax.Array):
            raise _core.Misuse(
                f"{name or 'the tree'} is a {type(array).__name__} and no array of JAX; publish the part of "
                "the tree that has the weights, or make it one (jax.numpy.asarray)"
            )
        yield Leaf(name, array)


def box_of(index: tuple[slice, ...], shape: tuple[int, ...]) -> ArrayBox:
    """The box that an index of a shard stands for."""
    ranges = [one.indices(size) for one, size in zip(index, shape, strict=True)]
    return tuple(start for start, _, _ in ranges), tuple(stop - start for start, stop, _ in ranges)
