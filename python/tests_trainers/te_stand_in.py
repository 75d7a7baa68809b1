"""TransformerEngine without a GPU: what Megatron's own TransformerEngine modules are built over, with the
parameters, names and marks of the real one, and no way to compute.

Only for processes of their own, before Megatron is imported.
"""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn


class Base(nn.Module):
    """What all modules of TransformerEngine have."""

    fp8 = fp8_calibration = False

    def __init__(self) -> None:
        super().__init__()
        self.fp8_meta = {"fp8_checkpoint": False}

    def get_extra_state(self) -> torch.Tensor:
        return torch.empty(0, dtype=torch.uint8)

    def set_extra_state(self, state: Any) -> None:
        pass

    def _weight(self, name: str, shape: tuple[int, ...], dtype: torch.dtype, cut: int | None) -> None:
        parameter = nn.Parameter(torch.zeros(shape, dtype=dtype))
        if cut is not None:
            parameter.tensor_model_parallel, parameter.partition_dim, parameter.partition_stride = True, cut, 1
        self.register_parameter(name, parameter)


class Linear(Base):
    """`weight`, and `bias` if there is one; cut where TransformerEngine itself knows of tensor parallelism."""

    def __init__(
        self, in_features: int, out_features: int, *, tp_size: int = 1, bias: bool = True,
        parallel_mode: str | None = None, params_dtype: torch.dtype = torch.float32, **_: Any,
    ) -> None:
        super().__init__()
        out_features //= tp_size if parallel_mode == "column" else 1
        in_features //= tp_size if parallel_mode == "row" else 1
        cut = {"column": 0, "row": 1}.get(parallel_mode)
        self.use_bias, self.parallel_mode = bias, parallel_mode
        self._weight("weight", (out_features, in_features), params_dtype, cut)
        if bias:
            self._weight("bias", (out_features,), params_dtype, 0 if cut == 0 else None)
        else:
            self.bias = None


class LayerNormLinear(Linear):
    """The same with the norm before it."""

    def __init__(self, in_features: int, out_features: int, *, normalization: str = "LayerNorm", **more: Any) -> None:
        super().__init__(in_features, out_features, **more)
        dtype = more.get("params_dtype", torch.float32)
        self._weight("layer_norm_weight", (in_features,), dtype, None)
        if normalization == "LayerNorm":
            self._weight("layer_norm_bias", (in_features,), dtype, None)


class GroupedLinear(Base):
    """`weight0`, `weight1`, ...: without marks, as TransformerEngine is not told that they are cut."""

    def __init__(
        self, num_gemms: int, in_features: int, out_features: int, *, tp_size: int = 1, bias: bool = True,
        parallel_mode: str | None = None, params_dtype: torch.dtype = torch.float32, **_: Any,
    ) -> None:
        super().__init__()
        out_features //= tp_size if parallel_mode == "column" else 1
        in_features //= tp_size if parallel_mode == "row" else 1
        self.num_gemms, self.use_bias = num_gemms, bias
        for gemm in range(num_gemms):
            self._weight(f"weight{gemm}", (out_features, in_features), params_dtype, None)


class RMSNorm(Base):
    """`weight`."""

    def __init__(self, hidden_size: int, *, params_dtype: torch.dtype = torch.float32, **_: Any) -> None:
        super().__init__()
        self._weight("weight", (hidden_size,), params_dtype, None)


class DotProductAttention(Base):
    """No parameters."""

    def __init__(self, **_: Any) -> None:
        super().__init__()


class Nothing:
    """A class that is only derived from, or only asked for."""

    is_fp8_enabled = staticmethod(lambda: False)


def install() -> None:
    """Puts the stand-in where Megatron looks for TransformerEngine."""
    pytorch = {
        "Linear": Linear, "LayerNormLinear": LayerNormLinear, "GroupedLinear": GroupedLinear, "RMSNorm": RMSNorm,
        "LayerNorm": RMSNorm, "DotProductAttention": DotProductAttention,
        "distributed": SimpleNamespace(CudaRNGStatesTracker=Nothing),
    }
    _module("transformer_engine", __version__="1.12.0")
    _module("transformer_engine.pytorch", **pytorch)
    _module("transformer_engine.pytorch.fp8", FP8GlobalStateManager=Nothing, fp8_autocast=None)
    _module("transformer_engine.pytorch.float8_tensor", Float8Tensor=Nothing)
    _module("transformer_engine.pytorch.cpp_extensions", cast_to_fp8=None)
    _module("transformer_engine.pytorch.module", base=SimpleNamespace(TransformerEngineBaseModule=Base))
    _module("transformer_engine.pytorch.module.base", TransformerEngineBaseModule=Base)
    _module("transformer_engine.common", recipe=SimpleNamespace(DelayedScaling=Nothing))


def _module(name: str, **names: Any) -> None:
    module = ModuleType(name)
    module.__dict__.update(names)
    sys.modules[name] = module
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, module)
