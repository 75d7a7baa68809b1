"""Real SGLang model classes on one rank of a faked tensor- and expert-parallel group.

No engine runs and no other rank exists: a rank's parameters and loaders depend on its rank and the
group's size alone.
"""

import json
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from . import absent

absent.install()
warnings.filterwarnings("ignore", module="sglang")

from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.layers.quantization.fp8 import Fp8Config  # noqa: E402
from torch import nn  # noqa: E402

from weightcast.adapters.sglang import ranks  # noqa: E402


def build(
    config: dict[str, Any],
    *,
    tp: int,
    rank: int,
    ep: int = 1,
    dtype: str = "bfloat16",
    device: str = "cpu",
    fp8: Fp8Config | None = None,
    shared_whole: bool = False,
    draft: bool = False,
    **more: Any,
) -> nn.Module:
    """The model of a config on one rank, or the draft model beside it, with whatever values memory
    has. `shared_whole`: DeepSeek's shared experts on every rank, which a variable of the environment
    asks for. `more`: further `ServerArgs`."""
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "config.json").write_text(json.dumps(config))
        arguments = ranks.arguments_of(directory, tp_size=tp, ep_size=ep, dtype=dtype, **more)
        with envs.SGLANG_SHARED_EXPERT_TP1.override(shared_whole):
            return ranks.build(arguments, rank, device=device, fp8=fp8, draft=draft)
