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
    """The memory of a numpy array or a torch tensor on the host; `name` is for messages."""
    if isinstance(tensor, np.ndarray):
        return _numpy(name, tensor, dtype)
    if type(tensor).__module__.partition(".")[0] == "torch" or hasattr(tensor, "data_ptr"):
        return _torch(name, tensor, dtype)
    raise TypeError(f"{name}: a numpy array or a torch tensor is needed, not {type(tensor)}")


def on_device(tensor: Any) -> bool:
    """Whether it is a tensor of torch whose memory lies on a device such as a GPU."""
    if isinstance(tensor, np.ndarray):
        return False
    return getattr(getattr(tensor, "device", None), "type", "cpu") not in ("cpu", "meta")


def _numpy(name: str, array: np.ndarray, dtype: str | None) -> Memory:
    if not array.flags.c_contiguous:
        raise Misuse(_not_contiguous(name, array.shape, [s // array.itemsize for s in array.strides]))
    if array.dtype.byteorder == ">":
        raise Misuse(f"{name}: big-endian arrays are not supported; convert with astype('<...')")
    known = dtype or NUMPY.get(array.dtype.name)
    if known is None:
        raise Misuse(f"{name}: dtype {array.dtype} is not known; pass dtype= with its real name")
    return Memory(array.reshape(-1).view(np.uint8), known, list(array.shape))


def form_of(name: str, tensor: Any, dtype: str | None = None) -> tuple[str, list[int]]:
    """The type of a tensor by its safetensors name, and its shape; it may have no memory."""
    known = dtype or TORCH.get(str(tensor.dtype).removeprefix("torch."))
    if known is None:
        raise Misuse(f"{name}: dtype {tensor.dtype} is not known; pass dtype= with its real name")
    shape = list(tensor.shape)
    if known == "F4" and shape:
        shape[-1] *= 2  # torch counts bytes of two elements
    return known, shape


def _torch(name: str, tensor: Any, dtype: str | None) -> Memory:
    import torch

    tensor = checked(name, tensor)
    known, shape = form_of(name, tensor, dtype)
    return Memory(tensor.reshape(-1).view(torch.uint8).numpy(), known, shape)


def checked(name: str, tensor: Any) -> Any:
    """A torch tensor; raises `Misuse` for what has no contiguous bytes of its own, wherever it lies."""
    import torch

    if isinstance(tensor, np.ndarray):
        raise Misuse(f"{name}: a numpy array, which has no copy beside it; add torch.from_numpy(array)")
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
    if not tensor.is_contiguous():
        raise Misuse(_not_contiguous(name, tensor.shape, tensor.stride()))
    return tensor.detach()


def _not_contiguous(name: str, shape: Any, strides: Any) -> str:
    return (
        f"{name}: not contiguous (shape {tuple(shape)}, strides {tuple(strides)}); "
        "register a contiguous tensor, as a view of which this one may be kept"
    )
