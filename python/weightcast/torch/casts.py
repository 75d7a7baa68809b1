"""Conversions of parameters that stay sharded: made once, in host memory beside them, where several read it;
else as they are read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from .. import _core
from ..memory import TORCH
from ..pinned import PinnedMemory
from ..pipeline.course import Item
from ..pipeline.run import Gathering, Work
from ..pipeline.sharing import once_is_cheaper
from .streams import StageStreams, end_here
from .tensors import local_of

#: Types that the core converts to as bytes are read.
ON_THE_WAY = ("F32", "BF16", "F16")


@dataclass(frozen=True)
class Cast:
    """Publishes tensors in another type. Made by `cast`."""

    names: str
    dtype: torch.dtype
    readers: int


def cast(names: str, dtype: torch.dtype, *, readers: int = 2) -> Cast:
    """For `gathered`, among its recipes: publishes parameters of these names, which no recipe takes, as F32,
    BF16 or F16, each rank its own shard. `names` is a name of the module in which `*` stands for anything; of
    several the first that fits decides. Buffers and what is no floating-point number stay as they are.

    `readers` is how often each byte is read out of this trainer: one for each engine that does not read from
    another engine. Where that is often enough the conversion is made once for all of them, and takes host
    memory; else it is made anew for each as bytes are read, and takes none (`Layout.cast`).
    """
    if TORCH.get(str(dtype).removeprefix("torch.")) not in ON_THE_WAY:
        raise _core.Misuse(f"{names}: a cast is to {', '.join(ON_THE_WAY)}, not {dtype}; use a recipe")
    if readers < 1:
        raise _core.Misuse(f"{names}: {readers} readers; each version is read once at least")
    return Cast(names, dtype, readers)


@dataclass(frozen=True)
class Converted:
    """A parameter that is published in another type."""

    name: str
    dtype: torch.dtype
    #: Host memory for this rank's shard of it; None if it is converted as it is read.
    host: torch.Tensor | None

    def work(self, tensor: torch.Tensor, transforms: StageStreams, sends: StageStreams) -> Work:
        """Converts the shard into the host memory."""
        host, shard = self.host, local_of(tensor).detach()
        assert host is not None, "it is made once"

        def transform(lying: list[torch.Tensor]) -> tuple[list[torch.Tensor], int]:
            made = transforms.run(lambda: lying[0].to(self.dtype))
            return [made], made.nbytes

        def send(made: list[torch.Tensor]) -> None:
            sends.run(lambda: host.copy_(made[0], non_blocking=True))

        return Work(
            Item(self.name, making=host.nbytes, slot=self.name),
            gather=lambda: Gathering([shard], end_here([shard])),
            transform=transform,
            send=send,
            nbytes=host.nbytes,
        )


def converted(
    casts: Sequence[Cast], tensors: Mapping[str, torch.Tensor], memory: PinnedMemory
) -> Iterator[Converted]:
    """The parameters that a cast fits, of those that it changes."""
    for name, tensor in tensors.items():
        found = next((one for one in casts if fnmatchcase(name, one.names)), None)
        if found is None or tensor.dtype == found.dtype or not tensor.is_floating_point():
            continue
        shard = local_of(tensor)
        host = None
        # By the whole, so that ranks with larger and smaller shards do the same.
        size = tensor.numel()
        if once_is_cheaper(found.readers, size * tensor.dtype.itemsize, size * found.dtype.itemsize):
            host = memory.sized(shard.shape, found.dtype, shard.device.type)
        yield Converted(name, found.dtype, host)
