"""What verl's own workers need in order to run where there is no GPU: a platform, by verl's own registry, and
its FSDP engine for that. verl imports this module in all processes (`VERL_USE_EXTERNAL_MODULES`)."""

import types
from contextlib import nullcontext
from typing import Any

import torch
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

#: As much of `torch.cuda` as verl's workers call.
DEVICE = types.SimpleNamespace(
    current_device=lambda: "cpu",
    device_count=lambda: 1,
    empty_cache=lambda: None,
    is_available=lambda: True,
    ipc_collect=lambda: None,
    max_memory_allocated=lambda *_: 0,
    max_memory_reserved=lambda *_: 0,
    mem_get_info=lambda *_: (1 << 30, 1 << 30),
    memory_allocated=lambda *_: 0,
    memory_reserved=lambda *_: 0,
    set_device=lambda *_: None,
    synchronize=lambda *_: None,
)


@PlatformRegistry.register(platform="cpu")
class OnCpu(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module = DEVICE

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    def nvtx_range(self, msg: str) -> Any:
        return nullcontext()

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "CPU"

    def ray_resource_options(self, num_gpus: float) -> dict[str, Any]:
        return {}

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None
