"""One set of vLLM's kernels on every CPU, or tests would see what the machine at hand packs: vLLM asks
torch what the CPU can do, loads another library for it, and packs weights for AMX where there is some
(where a hypervisor shows AMX and does not allow it, the process dies of an illegal instruction).

To be imported before vLLM.
"""

import os
from collections.abc import Callable
from types import MappingProxyType

# Tests fork: a pool of threads is not there afterwards, and whoever asks it for work waits for ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

#: What of x86 is newer than plain AVX-512.
NEWER = ("amx", "avx512_bf16", "avx512_fp16", "avx10")

_real = torch.cpu.get_capabilities


def _plain() -> MappingProxyType:
    able = _real().items()
    return MappingProxyType({name: not name.startswith(NEWER) and has for name, has in able})


def claim_fp8(setattr: Callable = setattr) -> None:
    """Has vLLM find kernels for FP8 when it makes a layer. None may run: there are none."""
    from vllm import _custom_ops

    setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    setattr(_custom_ops, "_supports_cpu_fp8_w8a16", True)


def claim_experts(setattr: Callable = setattr) -> None:
    """Has vLLM make experts without gates, for which the CPU has no kernels. None may run."""
    from vllm.model_executor.layers.fused_moe import config, unquantized_fused_moe_method
    from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend

    platform = config.current_platform

    class Claiming:
        def __getattr__(self, name: str) -> object:
            return (lambda: True) if name == "is_xpu" else getattr(platform, name)

    setattr(config, "current_platform", Claiming())
    setattr(
        unquantized_fused_moe_method,
        "select_unquantized_moe_backend",
        lambda *_, **__: (UnquantizedMoeBackend.CPU, None),
    )


torch.cpu.get_capabilities = _plain
os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_VNNI"
