"""Torch's operators, by what they do to the elements of a tensor."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import torch

_aten = torch.ops.aten

COPIES = {_aten.copy_.default}
FILLS = {_aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default}
#: Make the same elements anew, perhaps in another type.
SAME = {_aten._to_copy.default, _aten.clone.default}
#: Take a value out of a tensor.
VALUES = {_aten._local_scalar_dense.default, _aten.equal.default, _aten.is_nonzero.default}
#: Make a tensor of the shape and type of another one.
LIKE = {
    _aten.empty_like.default,
    _aten.new_empty.default,
    _aten.new_empty_strided.default,
    _aten.zeros_like.default,
    _aten.new_zeros.default,
    _aten.ones_like.default,
    _aten.new_ones.default,
    _aten.full_like.default,
    _aten.new_full.default,
}
#: Make a tensor of one constant.
UNIFORM = LIKE - {
    _aten.empty_like.default, _aten.new_empty.default, _aten.new_empty_strided.default
} | {_aten.zeros.default, _aten.ones.default, _aten.full.default}


@cache
def views(func: Any) -> bool:
    """Whether an op makes nothing but views of its arguments, or makes its argument another view."""
    returns = func._schema.returns
    if torch.Tag.inplace_view in func.tags:
        return True
    return bool(returns) and all(r.alias_info and not r.alias_info.is_write for r in returns)


def changed(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors that an op writes to."""
    given = [args[at] if at < len(args) else kwargs.get(name) for at, name in _written(func)]
    return list(tensors_in(given))


@cache
def _written(func: Any) -> list[tuple[int, str]]:
    """The arguments that an op writes to: their places, and their names."""
    arguments = enumerate(func._schema.arguments)
    return [(at, a.name) for at, a in arguments if a.alias_info and a.alias_info.is_write]


def on_meta(arguments: Any) -> Any:
    """The same arguments of an op, with tensors of the same shapes and types that have no elements,
    and with no device but that of such tensors."""
    if isinstance(arguments, torch.Tensor):
        if arguments.device.type == "meta":
            return arguments
        shape, strides = arguments.shape, arguments.stride()
        return torch.empty_strided(shape, strides, dtype=arguments.dtype, device="meta")
    if isinstance(arguments, torch.device):
        return torch.device("meta")
    if isinstance(arguments, Mapping):
        return {key: on_meta(value) for key, value in arguments.items()}
    if isinstance(arguments, list | tuple):
        return [on_meta(value) for value in arguments]
    return arguments


def tensors_in(of: Any) -> Iterator[torch.Tensor]:
    """All tensors in an op's arguments or results."""
    if isinstance(of, torch.Tensor):
        yield of
    elif isinstance(of, Mapping):
        yield from tensors_in(list(of.values()))
    elif isinstance(of, list | tuple):
        for item in of:
            yield from tensors_in(item)
