"""vLLM's model classes as each rank of an engine has them, without the engine: no weights, no memory, no
GPU, no other process.

What a rank holds depends on its place in the engine's groups and their sizes alone, which vLLM's layers and
loaders ask `parallel_state` for. Here one process says that it is one rank after the other.
"""

import copy
import logging
import tempfile
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ... import _core

log = logging.getLogger("weightcast")


@dataclass(frozen=True)
class Spread:
    """How an engine is spread over its ranks: stages of a pipeline, each of them over tensor- and
    data-parallel ranks, and experts over all of a stage's if `ep`."""

    tp: int = 1
    pp: int = 1
    dp: int = 1
    ep: bool = False
    #: How vLLM deals out experts: `linear` or `round_robin`.
    placement: str = "linear"

    @property
    def ranks(self) -> int:
        """How many there are."""
        return self.tp * self.pp * self.dp

    def place(self, rank: int) -> tuple[int, int, int]:
        """Tensor-, pipeline- and data-parallel rank, in vLLM's order."""
        return rank % self.tp, rank // self.tp % self.pp, rank // self.tp // self.pp


def config_of(model_config: Any, spread: Spread, **more: Any) -> Any:
    """vLLM's config of an engine of a model. `more`: further parts of it."""
    from vllm.config import DeviceConfig, ParallelConfig, VllmConfig, set_current_vllm_config

    parallel = ParallelConfig(enable_expert_parallel=spread.ep, expert_placement_strategy=spread.placement)
    whole = VllmConfig(
        model_config=model_config, parallel_config=parallel, device_config=DeviceConfig("cpu"), **more
    )
    with set_current_vllm_config(whole):
        initialise()
    # Set afterwards: vLLM would look for as many devices, and for GPUs.
    parallel = whole.parallel_config
    parallel.tensor_parallel_size, parallel.data_parallel_size = spread.tp, spread.dp
    parallel.pipeline_parallel_size, parallel.world_size = spread.pp, spread.tp * spread.pp
    return whole


def build(whole: Any, spread: Spread, rank: int, *, device: str = "meta") -> nn.Module:
    """The model of a config as a rank has it, on a device, with whatever values memory has."""
    from vllm.model_executor.layers import rotary_embedding
    from vllm.model_executor.model_loader.utils import initialize_model

    be(spread, rank)
    # vLLM shares them between models: those made here are of no use to another one, on another device.
    shared = rotary_embedding._ROPE_DICT
    known = dict(shared)
    before = torch.get_default_dtype()
    torch.set_default_dtype(whole.model_config.dtype)
    try:
        with torch.device(device):
            return initialize_model(whole)
    finally:
        torch.set_default_dtype(before)
        shared.clear()
        shared.update(known)
        whole.compilation_config.static_forward_context.clear()


def build_unfilled(whole: Any, spread: Spread, rank: int) -> nn.Module:
    """The same where no memory is taken: on the `meta` device, or, of a class that looks at values when it is
    made, on the host, whose pages are there once something is written to them."""
    try:
        return build(whole, spread, rank)
    except RuntimeError as error:  # of which `NotImplementedError` is one: there are no data
        log.info("%s; its model is made on the host", error)
    return build(whole, spread, rank, device="cpu")


def be(spread: Spread, rank: int) -> None:
    """Has this process say that it is a rank. Loaders may ask as well."""
    from vllm.distributed import parallel_state

    tp, pp, dp = spread.place(rank)
    groups = {
        "_TP": (spread.tp, tp),
        "_PP": (spread.pp, pp),
        "_DP": (spread.dp, dp),
        "_EP": (spread.tp * spread.dp, dp * spread.tp + tp),
    }
    for name, (size, index) in groups.items():
        group = getattr(parallel_state, name)
        group.world_size, group.rank_in_group = size, index
        group.ranks, group.rank = list(range(size)), index


#: Whether the groups of this process are those that were made here.
_own = False


def initialise() -> None:
    """Groups of this one process."""
    global _own
    from vllm.distributed import parallel_state

    if parallel_state.model_parallel_is_initialized() or torch.distributed.is_initialized():
        if not _own:
            raise _core.Misuse(
                "this process belongs to an engine, or to a job of torch.distributed, and cannot say that it "
                "is the ranks of another engine: run python -m weightcast.adapters.vllm.describe instead"
            )
        return
    with tempfile.TemporaryDirectory() as directory:
        parallel_state.init_distributed_environment(
            world_size=1,
            rank=0,
            local_rank=0,
            backend="gloo",
            distributed_init_method=f"file://{directory}/store",
        )
        parallel_state.initialize_model_parallel()
    # Dense models have none, and experts of one rank are the same.
    parallel_state._EP = parallel_state._EP or copy.copy(parallel_state._TP)
    _own = True
