"""How the ranks of an SGLang engine say what became of what they were asked."""

import functools
import json
from dataclasses import asdict, dataclass
from typing import Any

from sglang.srt.model_executor.model_runner_components.weight_updater import WeightUpdater
from sglang.srt.runtime_context import get_parallel

from ..engine.exchange import SIZE, exchange
from .request import LOADER


@dataclass(frozen=True)
class Report:
    """What one rank says."""

    #: Why it did not do what was asked, if it did not.
    error: str | None
    #: `EngineState` of the rank, once it has joined a job.
    state: dict[str, Any] | None
    #: Whether the engine may generate, as far as this rank is concerned.
    serves: bool
    #: What the rank answers to an order.
    said: Any = None


#: The answer to the request that is being handled: whether all ranks did it, and their reports.
_answer: tuple[bool, str] = (True, "")


def gathered(own: Report) -> None:
    """Makes the reports of all tensor-parallel ranks the answer. All ranks call: SGLang hears only the
    first one, and takes its loader's return for success."""
    global _answer
    reports = [json.loads(text) for text in exchange(_fitting(own), get_parallel().tp_group.cpu_group)]
    _answer = all(report["error"] is None for report in reports), json.dumps({"ranks": reports})


def watch_updates() -> None:
    """Wraps, once, SGLang's method that calls custom loaders: it answers with what `gathered` got. The
    first call of a process is answered as SGLang does it."""
    inner = WeightUpdater.update_weights_from_tensor
    if hasattr(inner, "answers_for_weightcast"):
        return

    @functools.wraps(inner)
    def outer(self: Any, named_tensors: Any, load_format: str | None = None) -> Any:
        done = inner(self, named_tensors, load_format)
        return _answer if done[0] and load_format == LOADER else done

    outer.answers_for_weightcast = True  # type: ignore[attr-defined]
    WeightUpdater.update_weights_from_tensor = outer


def _fitting(report: Report) -> str:
    """A report as JSON, its texts cut until there is room for it. Never raises: the other ranks wait."""
    longest = SIZE
    while len(text := json.dumps(_cut(asdict(report), longest))) > SIZE:
        if longest == 0:
            return _fitting(Report(f"a rank's report has more than {SIZE} characters", None, False))
        longest //= 2
    return text


def _cut(value: Any, longest: int) -> Any:
    if isinstance(value, dict):
        return {key: _cut(each, longest) for key, each in value.items()}
    if isinstance(value, list):
        return [_cut(each, longest) for each in value]
    return value[:longest] if isinstance(value, str) else value
