"""Catalogs: what a published version holds, as a name, a global shape and a dtype each."""

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import _core
from ..memory import TORCH
from ..names import Stack, map_of

#: Bytes of a safetensors header that are read at most.
HEADER_LIMIT = 256 << 20
#: Bytes of a file of layouts that are read at most (`MOST_FILE_BYTES` of `weightcast-fleet`).
LAYOUTS_LIMIT = 512 << 20


@dataclass(frozen=True)
class Entry:
    """A published tensor: its global shape, and its dtype by safetensors name."""

    shape: tuple[int, ...]
    dtype: str


Catalog = dict[str, Entry]


def catalog_of(of: Any) -> Catalog:
    """The catalog of a checkpoint or a module.

    `of` is a mapping from names to `(shape, dtype)`, a safetensors file, a directory of them, a file of
    layouts (`.json`, see `weightcast.plans`), or a torch module, on the meta device if need be: a
    transformers model, or another whose `state_dict` has the published names.
    """
    if isinstance(of, str | os.PathLike):
        path = Path(of)
        return _listed(path) if path.suffix == ".json" else _files(path)
    if hasattr(of, "state_dict"):
        return _module(of)
    if isinstance(of, Mapping):
        return {name: _entry(name, entry) for name, entry in of.items()}
    raise TypeError(f"a catalog is a mapping, a path or a module, not {type(of)}")


def _entry(name: str, entry: Any) -> Entry:
    if isinstance(entry, Entry):
        return entry
    shape, dtype = entry
    known = TORCH.get(str(dtype).removeprefix("torch."), dtype)
    if not isinstance(known, str):
        raise _core.Misuse(f"{name}: dtype {dtype} is not known; give its safetensors name")
    return Entry(tuple(int(n) for n in shape), known)


def _module(module: Any) -> Catalog:
    # Tied weights are published once, under their first name.
    tensors = dict(module.named_parameters())
    tied = set(dict(module.named_parameters(remove_duplicate=False))) - set(tensors)
    tensors |= {name: t for name, t in module.state_dict().items() if name not in tied}
    names, listed = map_of(module), {}
    for name, tensor in tensors.items():
        match names.published(name):
            case str(published):
                listed[published] = _entry(name, (tensor.shape, tensor.dtype))
            case Stack() as stack:
                for one, shape in stack.whole(name, tensor.shape).items():
                    listed[one] = _entry(name, (shape, tensor.dtype))
    return listed


def _listed(path: Path) -> Catalog:
    if (size := path.stat().st_size) > LAYOUTS_LIMIT:
        raise _core.Misuse(f"{path}: {size} bytes; of a file of layouts at most {LAYOUTS_LIMIT} are read")
    # Checked there, and written anew.
    tensors = json.loads(_core.join_layouts([path.read_text()]))["tensors"]
    return {name: Entry(tuple(shape), dtype) for name, dtype, shape in tensors}


def _files(path: Path) -> Catalog:
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    if not files:
        raise _core.Misuse(f"{path}: no safetensors files; give one, or a mapping of names")
    listed: Catalog = {}
    for file in files:
        for name, tensor in header_of(file)[0].items():
            if name != "__metadata__":
                listed[name] = Entry(tuple(tensor["shape"]), tensor["dtype"])
    return listed


def header_of(file: Path) -> tuple[dict[str, Any], int]:
    """The header of a safetensors file as it is written, and the byte after it, from which its offsets
    count."""
    with file.open("rb") as opened:
        prefix = opened.read(8)
        if len(prefix) < 8:
            raise _core.Misuse(f"{file}: too short for a safetensors file")
        (length,) = struct.unpack("<Q", prefix)
        if length > HEADER_LIMIT:
            raise _core.Misuse(f"{file}: a header of {length} bytes; not a safetensors file")
        try:
            header = json.loads(opened.read(length))
        except ValueError as error:
            raise _core.Misuse(f"{file}: its header is not JSON ({error})") from None
    if not isinstance(header, dict):
        raise _core.Misuse(f"{file}: its header is not a JSON object")
    return header, 8 + length
