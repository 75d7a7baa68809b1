"""Which replica of the model an SGLang rank is a shard of, and which engines cannot follow a trainer yet."""

from sglang.srt.runtime_context import get_exec, get_parallel, get_spec

from ... import _core
from ...replica import Replica
from ..engine import Settings


def replica_of(settings: Settings, instance: str) -> Replica:
    """The tensor-parallel ranks of an engine are the shards of one replica; `instance` names it if the
    settings do not."""
    parallel = get_parallel()
    return Replica(
        settings.replica or instance,
        parallel.tp_rank,
        parallel.tp_size,
        datacentre=settings.datacentre,
        spot=settings.spot,
    )


def refuse(settings: Settings) -> None:
    """Raises for an engine that updates would leave partly old."""
    if get_parallel().pp_size > 1:
        raise _core.Misuse("this engine is pipeline-parallel, which the layout is not read for yet")
    if get_exec().moe.enable_eplb:
        raise _core.Misuse(
            "this engine moves experts between its ranks while it runs (enable_eplb), and a layout that "
            "was read before would put weights into other experts; start it without EPLB"
        )
    guesses = get_spec().speculative_algorithm
    if guesses not in (None, "NGRAM") and settings.draft != "stale":
        raise _core.Misuse(
            f"this engine guesses tokens with a draft model ({guesses}), which updates would leave as it "
            "was loaded; accept that with draft='stale' in the engine's settings, or start the engine "
            "without it"
        )
