"""Arrays and tensors as bytes in place: nothing is copied here."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ._core import Misuse

#: numpy's types by their safetensors names.
NUMPY = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    # ml_dtypes, where it is installed
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}

#: torch's types by their safetensors names, where they differ from numpy's.
TORCH = NUMPY | {"float8_e8m0fnu": "F8_E8M0", "float4_e2m1fn_x2": "F4"}


@dataclass(frozen=True)
class Memory:
    """A tensor's bytes in place, and what they mean."""

    bytes: np.ndarray
    dtype: str
    shape: list[int]


def describe(name: str, tensor: Any, dtype: str | None = None) -> Memory:
    """The memory of a numpy array or a torch CPU tensor; `name` is for messages."""
    if isinstance(tensor, np.ndarray):
        return _numpy(name, tensor, dtype)
    if type(tensor).__module__.partition(".")[0] == "torch" or hasattr(tensor, "data_ptr"):
        return _torch(name, tensor, dtype)
    raise TypeError(f"{name}: a numpy array or a torch tensor is needed, not {type(tensor)}")


def _numpy(name: str, array: np.ndarray, dtype: str | None) -> Memory:
    if not array.flags.c_contiguous:
        raise Misuse(_not_contiguous(name, array.shape, [s // array.itemsize for s in array.strides]))
    if array.dtype.byteorder == ">":
        raise Misuse(f"{name}: big-endian arrays are not supported; convert with astype('<...')")
    known = dtype or NUMPY.get(array.dtype.name)
    if known is None:
        raise Misuse(f"{name}: dtype {array.dtype} is not known; pass dtype= with its real name")
    return Memory(array.reshape(-1).view(np.uint8), known, list(array.shape))


def _torch(name: str, tensor: Any, dtype: str | None) -> Memory:
    import torch

    if hasattr(tensor, "to_local"):
        raise Misuse(f"{name}: a DTensor; use weightcast.torch.layout(module), or add its to_local()")
    if type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        raise Misuse(
            f"{name}: a {type(tensor).__name__}, which is made of other tensors (torchao quantises so) and "
            "has no bytes of its own; publish the weights that it was made of (Layout.quantise publishes "
            "them in FP8), or add the tensors that it holds"
        )
    if tensor.device.type == "meta":
        raise Misuse(
            f"{name}: a meta tensor, which has a shape and no memory; give it some (to_empty, or load "
            "the weights) before its layout is read"
        )
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        raise Misuse(
            f"{name}: on device {tensor.device}; this release moves CPU memory: publish a CPU copy"
        )
    if not tensor.is_contiguous():
        raise Misuse(_not_contiguous(name, tensor.shape, tensor.stride()))
    known = dtype or TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if known is None:
        raise Misuse(f"{name}: dtype {tensor.dtype} is not known; pass dtype= with its real name")
    shape = list(tensor.shape)
    if known == "F4" and shape:
        shape[-1] *= 2  # torch counts bytes of two elements
    return Memory(tensor.reshape(-1).view(torch.uint8).numpy(), known, shape)


def _not_contiguous(name: str, shape: Any, strides: Any) -> str:
    return (
        f"{name}: not contiguous (shape {tuple(shape)}, strides {tuple(strides)}); "
        "register a contiguous tensor, as a view of which this one may be kept"
    )
