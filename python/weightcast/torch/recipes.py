"""Recipes: which published tensors a function makes of which parameters."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .. import _core
from ..memory import TORCH
from .dry_run import Make, tried


@dataclass(frozen=True)
class Recipe:
    """Publishes under `outputs` what `make` returns for the whole of `inputs`. Made by `recipe`."""

    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    make: Make
    like: Make | None
    making: int | None


def recipe(
    outputs: str | Sequence[str],
    inputs: str | Sequence[str],
    make: Make | None = None,
    *,
    like: Make | None = None,
    making: int | None = None,
) -> Recipe:
    """For `gathered`: publishes under `outputs` what `make` returns for the whole tensors of `inputs`.

    `inputs` are names of the module's parameters and buffers (those of `named_parameters`), `outputs` the
    names under which engines look for what is made. `*` stands for anything: what the stars of the first
    input stand for is put in place of the stars of the others and of the outputs, in order. `make` takes
    the inputs in order, changes none of them, and returns a tensor, or as many as there are outputs;
    without it, an input is published as it is, whole.

    What `make` returns is found out in advance on tensors without memory. Where it cannot run on those,
    `like` takes the same inputs and returns empty tensors of the same shapes and types. `making` is then the
    number of bytes that `make` has beside its inputs at most, outputs included; what it returns, by default.
    """
    listed = (outputs,) if isinstance(outputs, str) else tuple(outputs)
    taken = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    if not listed or not taken:
        raise _core.Misuse("a recipe has one output and one input at least")
    if make is None and len(listed) != len(taken):
        raise _core.Misuse(
            f"{listed[0]}: without a function each input is an output, and there are {len(taken)} inputs for "
            f"{len(listed)} outputs"
        )
    stars = taken[0].count("*")
    for name in (*listed, *taken):
        if name.count("*") > stars:
            raise _core.Misuse(f"{name} has more stars than the first input, {taken[0]}")
    return Recipe(listed, taken, make or _as_they_are, like, making)


def _as_they_are(*inputs: torch.Tensor) -> Sequence[torch.Tensor]:
    return inputs


@dataclass(frozen=True)
class Product:
    """One use of a recipe: names without stars, and what comes of them."""

    recipe: Recipe
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    #: Shape and type of each output.
    made: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    #: Bytes that making has beside the inputs, outputs included.
    making: int

    @property
    def name(self) -> str:
        """What errors and traces call it."""
        return self.outputs[0]

    @property
    def nbytes(self) -> int:
        """Bytes of all outputs."""
        return sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in self.made)


def products(recipes: Sequence[Recipe], held: Mapping[str, torch.Tensor]) -> list[Product]:
    """Every use of every recipe, in the order of the module's tensors, which is that of all ranks."""
    found = [(at, product) for one in recipes for at, product in _uses(one, held)]
    found.sort(key=lambda use: use[0])
    listed = [product for _, product in found]
    seen: set[str] = set()
    for name in (output for product in listed for output in product.outputs):
        if name in seen:
            raise _core.Misuse(f"two recipes make {name}")
        seen.add(name)
    return listed


def _uses(one: Recipe, held: Mapping[str, torch.Tensor]) -> Iterator[tuple[int, Product]]:
    pattern = re.compile("(.*)".join(map(re.escape, one.inputs[0].split("*"))))
    used = False
    for at, name in enumerate(held):
        if (match := pattern.fullmatch(name)) is None:
            continue
        outputs = tuple(_filled(output, match.groups()) for output in one.outputs)
        inputs = (name, *(_filled(other, match.groups()) for other in one.inputs[1:]))
        for other in inputs:
            if other not in held:
                raise _core.LayoutMismatch(
                    f"{outputs[0]} is made of {other} too, which the module does not have (tied weights are "
                    "there once, under their first name)"
                )
        used = True
        yield at, _product(one, outputs, inputs, [held[each] for each in inputs])
    if not used:
        raise _core.Misuse(
            f"the recipe for {one.outputs[0]} fits nothing: the module has no {one.inputs[0]}, only "
            f"{', '.join(list(held)[:4])} and so on"
        )


def _filled(pattern: str, stars: Sequence[str]) -> str:
    parts = pattern.split("*")
    return parts[0] + "".join(star + part for star, part in zip(stars, parts[1:], strict=False))


def _product(
    one: Recipe, outputs: tuple[str, ...], inputs: tuple[str, ...], tensors: list[torch.Tensor]
) -> Product:
    made, peak = tried(outputs[0], one.like or one.make, tensors)
    if len(made) != len(outputs):
        raise _core.Misuse(f"{outputs[0]}: its function returns {len(made)} tensors for {len(outputs)} names")
    for name, tensor in zip(outputs, made, strict=True):
        if str(tensor.dtype).removeprefix("torch.") not in TORCH:
            raise _core.Misuse(
                f"{name}: its function returns {tensor.dtype}, which is none of the types of a checkpoint"
            )
    described = tuple((tuple(tensor.shape), tensor.dtype) for tensor in made)
    product = Product(one, outputs, inputs, described, peak)
    making = peak if one.like is None else max(one.making or 0, product.nbytes)
    return Product(one, outputs, inputs, described, making)


def check(product: Product, made: Sequence[Any]) -> None:
    """Refuses what is not of the shapes and types that were found out."""
    if len(made) != len(product.outputs):
        raise _core.LayoutMismatch(
            f"{product.name}: its function returned {len(made)} tensors, and {len(product.outputs)} when it "
            "was asked; as many each time"
        )
    for name, tensor, (shape, dtype) in zip(product.outputs, made, product.made, strict=True):
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise _core.LayoutMismatch(
                f"{name}: its function returned {tuple(tensor.shape)} {tensor.dtype}, and "
                f"{shape} {dtype} when it was asked; the same shapes and types each time"
            )


