"""Real SGLang model classes on one rank of a faked tensor- and expert-parallel group.

No engine runs and no other rank exists: a rank's parameters and loaders depend on its rank and the
group's size alone.
"""

import copy
import json
import os
import tempfile
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from . import absent

absent.install()
warnings.filterwarnings("ignore", module="sglang")

import torch  # noqa: E402
from sglang.srt import runtime_context  # noqa: E402
from sglang.srt.configs.load_config import LoadConfig  # noqa: E402
from sglang.srt.configs.model_config import ModelConfig  # noqa: E402
from sglang.srt.distributed import parallel_state  # noqa: E402
from sglang.srt.environ import envs  # noqa: E402
from sglang.srt.eplb import expert_location  # noqa: E402
from sglang.srt.layers.dp_attention import initialize_dp_attention  # noqa: E402
from sglang.srt.layers.moe.utils import draft_model_build_scope, initialize_moe_config  # noqa: E402
from sglang.srt.layers.quantization.fp8 import Fp8Config  # noqa: E402
from sglang.srt.model_loader.loader import _initialize_model  # noqa: E402
from sglang.srt.model_loader.utils import set_default_torch_dtype  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402
from torch import nn  # noqa: E402

#: Groups that layers ask for their sizes.
GROUPS = ("tp", "pp", "attn_tp", "attn_cp", "moe_ep", "moe_tp", "moe_dp")


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
        arguments = ServerArgs(
            model_path=directory,
            device="cpu",
            tp_size=tp,
            ep_size=ep,
            dtype=dtype,
            attention_backend="torch_native",
            load_format="dummy",
            skip_tokenizer_init=True,
            disable_cuda_graph=True,
            **more,
        )
        _spread(arguments, rank)
        model = ModelConfig.from_server_args(arguments, is_draft_model=draft)
        if not draft:
            _place_experts(model)
        scope = draft_model_build_scope() if draft else nullcontext()
        with (
            envs.SGLANG_SHARED_EXPERT_TP1.override(shared_whole),
            scope,
            set_default_torch_dtype(model.dtype),
            torch.device(device),
        ):
            return _initialize_model(model, LoadConfig(load_format="dummy"), fp8)


def _place_experts(model: ModelConfig) -> None:
    """Says which expert is in which slot, as the engine does before it builds a model: loaders ask."""
    rank = runtime_context.get_parallel().moe_ep_rank
    places = expert_location.compute_initial_expert_location_metadata(model, rank)
    expert_location.set_global_expert_location_metadata(places, allow_overwrite=True)


def _spread(arguments: ServerArgs, rank: int) -> None:
    """One process that says it is `rank`."""
    runtime_context.reset_context()
    ranks = runtime_context.SpawnRanks(world_rank=rank, gpu_id=0)
    runtime_context.publish(arguments, role="scheduler", ranks=ranks)
    if parallel_state._WORLD is None:
        parallel_state.init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            backend="gloo",
            distributed_init_method=f"file://{tempfile.mktemp()}",
        )
    parallel = runtime_context.get_parallel()
    known = runtime_context._parallel_fields()
    groups = {f"{name}_group": _group(parallel, name) for name in GROUPS}
    parallel.override_permanently(**{n: group for n, group in groups.items() if n in known})
    initialize_dp_attention(arguments)
    initialize_moe_config()


def _group(parallel: Any, name: str) -> Any:
    group = copy.copy(parallel_state._WORLD)
    group.world_size = getattr(parallel, f"{name}_size")
    try:
        group.rank_in_group = getattr(parallel, f"{name}_rank")
    except RuntimeError:  # what nobody has set
        group.rank_in_group = 0
    return group
