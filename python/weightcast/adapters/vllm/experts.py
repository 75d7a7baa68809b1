"""Experts that vLLM moves between workers while an engine runs (EPLB), some of them in several copies.

Each worker has slots for experts. A model's own `load_weights` fills them in the order in which they are when
an engine starts; the engine moves experts afterwards, each layer's for itself.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from ... import _core
from ..boxes.pieces import ParameterPiece
from ..catalog import Entry
from ..live.reading import Reading, Record

#: By name of a layer: the expert in each slot, over all workers.
Placed = dict[str, tuple[int, ...]]


def placed(model: nn.Module) -> Placed:
    """Which expert lies where now. Empty for a model whose experts stay where they are."""
    experts = _model_of_experts(model)
    found: Placed = {}
    names = {id(module): name for name, module in model.named_modules()}
    for layer in [] if experts is None else experts.moe_layers:
        state = layer.eplb_state
        if state is not None and state.logical_to_physical_map is not None:
            found[names[id(layer)]] = _by_slot(state.logical_to_physical_map.tolist())
    return found


def _model_of_experts(model: nn.Module) -> Any:
    from vllm.model_executor.models import interfaces

    find = getattr(interfaces, "get_mixture_of_experts_model", None)
    if find is not None:
        return find(model)
    layers = [layer.moe_config for layer in model.modules() if hasattr(layer, "moe_config")]
    if any(layer.moe_parallel_config.enable_eplb for layer in layers):
        raise _core.Misuse(
            "this engine moves experts between its workers (enable_eplb), where weightcast follows them from "
            "vLLM 0.28 on: take a newer vLLM, or start the engine without --enable-eplb"
        )
    return None


def _by_slot(slots: list[list[int]]) -> tuple[int, ...]:
    """From the slots of each expert (-1 for none) to the expert of each slot."""
    by_slot = {slot: expert for expert, own in enumerate(slots) for slot in own if slot >= 0}
    return tuple(by_slot[slot] for slot in range(len(by_slot)))


def follow(reading: Reading, model: nn.Module, catalog: Mapping[str, Entry], now: Placed) -> None:
    """Has a reading, of a loader that knows the order of the start alone, say what the slots hold now."""
    for name, experts in now.items():
        start = _at_start(len(experts), max(experts) + 1)
        first = _first_slot(model.get_submodule(name), len(experts))
        for record in reading.records:
            if record.name.startswith(f"{name}."):
                _refuse_converted(reading, record)
                record.pieces = [
                    _moved(piece, catalog, start[slot], experts[slot])
                    for piece in record.pieces
                    for slot in [first + piece.target.start[0]]
                ]


def _at_start(slots: int, experts: int) -> list[int]:
    from vllm.distributed.eplb.eplb_state import EplbState

    return list(EplbState.build_initial_global_physical_to_logical_map(experts, slots - experts))


def _first_slot(layer: Any, slots: int) -> int:
    """The first slot of this worker; each has as many as the others."""
    parallel = layer.moe_config.moe_parallel_config
    return int(parallel.ep_rank * (slots // parallel.ep_size))


def _refuse_converted(reading: Reading, record: Record) -> None:
    whole = [piece.tensor for piece in record.pieces if piece.tensor in reading.whole]
    if record.name in reading.staged or whole:
        raise _core.Misuse(
            f"{record.name}: the loader converts these experts, and the engine moves them (enable_eplb); "
            "start the engine without EPLB"
        )


def _moved(piece: ParameterPiece, catalog: Mapping[str, Entry], was: int, now: int) -> ParameterPiece:
    head, part, rest = piece.tensor.rpartition(f".experts.{was}.")
    name = f"{head}.experts.{now}.{rest}"
    entry = catalog.get(name)
    if not part or entry is None or entry.shape != piece.shape:
        raise _core.Misuse(
            f"{piece.tensor} was read as a tensor of expert {was}, in whose place the engine has moved "
            f"expert {now} (enable_eplb), and no {name} of its shape is published; publish one tensor for "
            "each expert, or start the engine without EPLB"
        )
    return replace(piece, tensor=name)
