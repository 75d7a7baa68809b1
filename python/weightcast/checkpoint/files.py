"""What lies where in safetensors files: decided here, without touching a file.

The format: https://huggingface.co/docs/safetensors. A file is the length of a header (u64, little-endian),
the header (JSON: for each tensor its dtype, shape, and range of bytes after the header), and the bytes.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from .. import _core
from ..adapters.catalog import Entry

#: Bits of an element, by safetensors name.
BITS = {
    "F64": 64, "I64": 64, "U64": 64,
    "F32": 32, "I32": 32, "U32": 32,
    "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8,
    "F4": 4,
}  # fmt: skip
#: numpy's types of so many bits, for bytes that are only moved.
ARRAYS = {64: "<u8", 32: "<u4", 16: "<u2", 8: "u1", 4: "u1"}
#: A header's length is a multiple of this, so that elements are aligned.
ALIGNED = 8
#: Bytes of tensors in a file at most, if it has several.
SHARD_BYTES = 5 << 30


@dataclass(frozen=True)
class Placed:
    """A tensor's bytes in a file, counted from the file's start."""

    name: str
    entry: Entry
    offset: int
    nbytes: int

    def within(self, file: np.ndarray) -> np.ndarray:
        """The tensor in its file's bytes: elements of its size, in its shape."""
        bits, shape = BITS[self.entry.dtype], list(self.entry.shape)
        if bits == 4:
            shape[-1] //= 2  # two elements a byte
        raw = file[self.offset : self.offset + self.nbytes]
        return raw.view(ARRAYS[bits]).reshape(shape)


@dataclass(frozen=True)
class File:
    """A file to be written: its header, and what follows."""

    name: str
    header: bytes
    tensors: tuple[Placed, ...]
    nbytes: int


def bytes_of(name: str, entry: Entry) -> int:
    """Bytes of a tensor. Raises `Misuse` for a dtype that is not known."""
    if entry.dtype not in BITS:
        raise _core.Misuse(f"{name}: dtype {entry.dtype} is not known; known are {', '.join(sorted(BITS))}")
    bits = BITS[entry.dtype] * math.prod(entry.shape)
    if bits % 8 or (BITS[entry.dtype] == 4 and entry.shape and entry.shape[-1] % 2):
        raise _core.Misuse(f"{name}: {entry.dtype} {list(entry.shape)} ends within a byte")
    return bits // 8


def planned(catalog: Mapping[str, Entry], metadata: Mapping[str, str], most: int = SHARD_BYTES) -> list[File]:
    """The files that hold all tensors of a catalog: in order of name, as many to a file as `most` bytes
    allow."""
    shards: list[list[str]] = [[]]
    held = 0
    for name in sorted(catalog):
        nbytes = bytes_of(name, catalog[name])
        if shards[-1] and held + nbytes > most:
            shards.append([])
            held = 0
        shards[-1].append(name)
        held += nbytes
    one = len(shards) == 1
    return [
        _file(
            "model.safetensors" if one else f"model-{at:05}-of-{len(shards):05}.safetensors",
            {name: catalog[name] for name in names},
            metadata,
        )
        for at, names in enumerate(shards, 1)
    ]


def _file(name: str, entries: Mapping[str, Entry], metadata: Mapping[str, str]) -> File:
    # Larger elements first: each is aligned then.
    order = sorted(entries, key=lambda tensor: (-BITS[entries[tensor].dtype], tensor))
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    places = []
    for tensor in order:
        entry, nbytes = entries[tensor], bytes_of(tensor, entries[tensor])
        header[tensor] = {"dtype": entry.dtype, "shape": list(entry.shape), "data_offsets": [at, at + nbytes]}
        places.append((tensor, at, nbytes))
        at += nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNED)
    head = len(text).to_bytes(8, "little") + text
    placed = tuple(Placed(tensor, entries[tensor], len(head) + start, n) for tensor, start, n in places)
    return File(name, head, placed, len(head) + at)


def index(files: Iterable[File]) -> str:
    """`model.safetensors.index.json`: which file has which tensor."""
    listed = list(files)
    total = sum(placed.nbytes for file in listed for placed in file.tensors)
    weights = {placed.name: file.name for file in listed for placed in file.tensors}
    return (
        json.dumps({"metadata": {"total_size": total}, "weight_map": dict(sorted(weights.items()))}, indent=2)
        + "\n"
    )
