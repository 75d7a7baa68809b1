"""SGLang's model classes as each rank of an engine has them, without the engine: no weights, no memory, no
GPU, no other process.

What a rank holds depends on its place in the engine's groups and their sizes alone, which SGLang's layers and
loaders ask its `runtime_context` for. Here one process says that it is one rank after the other.
"""

import copy
import tempfile
from contextlib import nullcontext
from typing import Any

import torch
from torch import nn

from ... import _core

#: Groups that layers ask for their sizes.
GROUPS = ("tp", "pp", "attn_tp", "attn_cp", "moe_ep", "moe_tp", "moe_dp")


def arguments_of(model: str, **more: Any) -> Any:
    """The server's arguments of an engine of a model. `more`: further ones, as SGLang has them."""
    from sglang.srt.server_args import ServerArgs

    return ServerArgs(
        model_path=model,
        device="cpu",
        attention_backend="torch_native",
        load_format="dummy",
        skip_tokenizer_init=True,
        disable_cuda_graph=True,
        **more,
    )


def build(
    arguments: Any, rank: int, *, device: str = "meta", fp8: Any = None, draft: bool = False
) -> nn.Module:
    """The model, or the draft model beside it, as a rank has it, on a device, with whatever values memory
    has. `fp8`: SGLang's config of how weights are quantised."""
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.layers.moe.utils import draft_model_build_scope
    from sglang.srt.model_loader.loader import _initialize_model
    from sglang.srt.model_loader.utils import set_default_torch_dtype

    _be(arguments, rank)
    model = ModelConfig.from_server_args(arguments, is_draft_model=draft)
    if not draft:
        _place_experts(model)
    scope = draft_model_build_scope() if draft else nullcontext()
    with scope, set_default_torch_dtype(model.dtype), torch.device(device):
        made: nn.Module = _initialize_model(model, LoadConfig(load_format="dummy"), fp8)
    return made


def _place_experts(model: Any) -> None:
    """Says which expert is in which slot, as the engine does before it builds a model: loaders ask."""
    from sglang.srt import runtime_context
    from sglang.srt.eplb import expert_location

    rank = runtime_context.get_parallel().moe_ep_rank
    places = expert_location.compute_initial_expert_location_metadata(model, rank)
    expert_location.set_global_expert_location_metadata(places, allow_overwrite=True)


#: Whether the groups of this process are those that were made here.
_own = False


def _be(arguments: Any, rank: int) -> None:
    """Has this process say that it is a rank."""
    global _own
    from sglang.srt import runtime_context
    from sglang.srt.distributed import parallel_state
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe.utils import initialize_moe_config

    if not _own and (parallel_state._WORLD is not None or torch.distributed.is_initialized()):
        raise _core.Misuse(
            "this process belongs to an engine, or to a job of torch.distributed, and cannot say that it is "
            "the ranks of another engine: run python -m weightcast.adapters.sglang.describe instead"
        )
    runtime_context.reset_context()
    ranks = runtime_context.SpawnRanks(world_rank=rank, gpu_id=0)
    runtime_context.publish(arguments, role="scheduler", ranks=ranks)
    if not _own:
        with tempfile.TemporaryDirectory() as directory:
            parallel_state.init_distributed_environment(
                world_size=1,
                rank=0,
                local_rank=0,
                backend="gloo",
                distributed_init_method=f"file://{directory}/store",
            )
        _own = True
    parallel = runtime_context.get_parallel()
    known = runtime_context._parallel_fields()
    groups = {f"{name}_group": _group(parallel, name) for name in GROUPS}
    parallel.override_permanently(**{n: group for n, group in groups.items() if n in known})
    initialize_dp_attention(arguments)
    initialize_moe_config()


def _group(parallel: Any, name: str) -> Any:
    from sglang.srt.distributed import parallel_state

    group = copy.copy(parallel_state._WORLD)
    group.world_size = getattr(parallel, f"{name}_size")
    try:
        group.rank_in_group = getattr(parallel, f"{name}_rank")
    except RuntimeError:  # what nobody has set
        group.rank_in_group = 0
    return group
