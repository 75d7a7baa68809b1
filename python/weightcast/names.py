"""Names: what a checkpoint calls the parameters that a training framework renames or stacks.

A `NameMap` is data: rows from a module's name to the published one, or to the matrices that a stack
holds. `map_of` knows those of transformers models; another model takes a `NameMap` of its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _core

#: Parts of a path that wrappers add: torch.compile, FSDP1, activation checkpoints.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")

#: Maps a published name to another, or to None to leave it out.
Rename = Callable[[str], str | None]
#: A box of a parameter: its first index and its length by dimension.
StartAndLength = tuple[Sequence[int], Sequence[int]]
#: Published names, or those of a stack's matrices, by a module's name; None leaves out.
Rows = Mapping[str, str | Sequence[str] | None]


@dataclass(frozen=True)
class PublishedSlice:
    """A slice of a published tensor: its name and global shape, first index and length by dimension."""

    name: str
    shape: tuple[int, ...]
    start: tuple[int, ...]
    length: tuple[int, ...]


@dataclass(frozen=True)
class Stack:
    """A parameter of shape `[experts, rows, columns]` that holds one matrix of each expert, or
    several of equal size one below the other: published names with `{expert}` in them."""

    matrices: tuple[str, ...]

    def whole(self, name: str, shape: Sequence[int]) -> dict[str, tuple[int, int]]:
        """The published tensors of the whole parameter, with their shapes."""
        experts, rows, columns = self._shape(name, shape)
        shape = (rows // len(self.matrices), columns)
        names = [matrix.format(expert=e) for e in range(experts) for matrix in self.matrices]
        return dict.fromkeys(names, shape)

    def slices(
        self, name: str, shape: Sequence[int], box: StartAndLength
    ) -> list[PublishedSlice]:
        """What a box of the parameter is, matrix by matrix, in the order in which it lies."""
        _, rows, columns = self._shape(name, shape)
        each = rows // len(self.matrices)
        (first, row, column), (count, height, width) = box
        slices = []
        for expert in range(first, first + count):
            for at, matrix in enumerate(self.matrices):
                start, end = max(row, at * each), min(row + height, (at + 1) * each)
                if start < end:
                    inner = (start - at * each, column), (end - start, width)
                    name = matrix.format(expert=expert)
                    slices.append(PublishedSlice(name, (each, columns), *inner))
        return slices

    def _shape(self, name: str, shape: Sequence[int]) -> tuple[int, int, int]:
        if len(shape) != 3 or shape[1] % len(self.matrices):
            raise _core.LayoutMismatch(
                f"{name} has shape {tuple(shape)}: a stack of {', '.join(self.matrices)} is "
                f"[experts, rows, columns] with rows for {len(self.matrices)} matrices; give `names`"
            )
        experts, rows, columns = shape
        return experts, rows, columns


class NameMap:
    """Published names by those of a module.

        NameMap({
            "*.experts.gate_up_proj": ("*.experts.{expert}.gate_proj.weight",
                                       "*.experts.{expert}.up_proj.weight"),
            "language_model.*": "*",
            "*.rotary.*": None,
        })

    `*` stands for anything and is filled in on the right in the same order; the first row that fits
    decides; a tuple is a `Stack`, and None leaves out. A name that no row fits is published as it is.
    Before that, parts of a path that wrappers add are left out (`WRAPPERS`).
    """

    def __init__(self, rows: Rows | None = None) -> None:
        self._rows = [(_pattern(left), left, right) for left, right in (rows or {}).items()]
        for _, left, right in self._rows:
            for one in [right] if isinstance(right, str) else right or ():
                if one.count("*") > left.count("*"):
                    raise ValueError(f"{left}: {one} has a * that the left side does not fill")

    def published(self, name: str) -> str | Stack | None:
        """What is published of the parameter of this name."""
        name = ".".join(part for part in name.split(".") if part not in WRAPPERS)
        for pattern, _, right in self._rows:
            if found := pattern.fullmatch(name):
                if right is None or isinstance(right, str):
                    return right and _fill(right, found.groups())
                return Stack(tuple(_fill(one, found.groups()) for one in right))
        return name


def _pattern(left: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(re.escape(part) for part in left.split("*")))


def _fill(template: str, groups: Sequence[str]) -> str:
    first, *rest = template.split("*")
    return first + "".join(group + part for group, part in zip(groups, rest, strict=False))


def renamed(what: str | Stack | None, rename: Rename | None, name: str) -> str | Stack | None:
    """What is published of the parameter of this name, with each published name renamed."""
    if what is None or rename is None:
        return what
    if isinstance(what, str):
        return rename(what)
    found = [rename(matrix) for matrix in what.matrices]
    matrices = [matrix for matrix in found if matrix is not None and "{expert}" in matrix]
    if len(matrices) < len(found):
        raise _core.Misuse(f"{name}: rename keeps {{expert}} in the names of a stack's matrices")
    return Stack(tuple(matrices))


_EXPERTS: Rows = {
    "*.experts.gate_up_proj": (
        "*.experts.{expert}.gate_proj.weight",
        "*.experts.{expert}.up_proj.weight",
    ),
    "*.experts.down_proj": ("*.experts.{expert}.down_proj.weight",),
}

_MIXTRAL: Rows = {
    "*.mlp.experts.gate_up_proj": (
        "*.block_sparse_moe.experts.{expert}.w1.weight",
        "*.block_sparse_moe.experts.{expert}.w3.weight",
    ),
    "*.mlp.experts.down_proj": ("*.block_sparse_moe.experts.{expert}.w2.weight",),
    "*.mlp.gate.weight": "*.block_sparse_moe.gate.weight",
    "*.mlp.router.weight": "*.block_sparse_moe.gate.weight",
    "*.mlp.e_score_correction_bias": "*.block_sparse_moe.e_score_correction_bias",
}

#: By `model_type`, what transformers 5 calls otherwise than the checkpoints that it reads and writes.
TRANSFORMERS: dict[str, Rows] = {
    "deepseek_v2": _EXPERTS,
    "deepseek_v3": _EXPERTS,
    "glm4_moe": _EXPERTS,
    "glm4_moe_lite": _EXPERTS,
    "glm_moe_dsa": _EXPERTS,
    "gpt_oss": {},
    "minimax_m2": _MIXTRAL,
    "mixtral": _MIXTRAL,
    "olmoe": _EXPERTS,
    "phimoe": _MIXTRAL,
    "qwen2_moe": _EXPERTS,
    "qwen3_moe": _EXPERTS,
}


def map_of(module: Any) -> NameMap:
    """The map of a module: of its `config.model_type`, else the identity. Of a model of PEFT, that of the
    base model, without what only the adapters have.

    A transformers model that stacks its experts and is not known is an error: its names would be
    in no checkpoint.
    """
    if hasattr(module, "peft_config") and hasattr(module, "get_base_model"):
        from .adapters.peft.names import BaseNames

        return BaseNames(module)
    kind = getattr(getattr(module, "config", None), "model_type", None)
    if kind in TRANSFORMERS:
        return NameMap(TRANSFORMERS[kind])
    if kind is not None:
        for name, parameter in module.named_parameters():
            shape = getattr(parameter, "ds_shape", parameter.shape)  # DeepSpeed's, where ZeRO-3 has cut it
            if name.endswith((".experts.gate_up_proj", ".experts.down_proj")) and len(shape) == 3:
                raise _core.LayoutMismatch(
                    f"{name}: a stack of experts, in a model of type {kind}, whose checkpoint's names "
                    "weightcast does not know; give `names`, a weightcast.NameMap"
                )
    return NameMap()


def check(published: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Compares two catalogs. What only one of them has is an error that names the nearest of the
    other; so is another shape."""
    from .adapters.naming.nearest import listed, unmatched

    problems = []
    for what, one, other in [
        ("published names are not in the checkpoint", published, expected),
        ("names of the checkpoint are not published", expected, published),
    ]:
        if left := one.keys() - other.keys():
            advice = "rename them, leave them out, or publish what `buffers=False` leaves out"
            problems.append(unmatched(what, left, other.keys() - one.keys() or other, advice))
    for name in sorted(published.keys() & expected.keys()):
        if tuple(published[name].shape) != tuple(expected[name].shape):
            problems.append(
                f"{name} is published as {list(published[name].shape)}, and is "
                f"{list(expected[name].shape)} in the checkpoint"
            )
    if problems:
        raise _core.LayoutMismatch("\n".join(listed(problems)))
