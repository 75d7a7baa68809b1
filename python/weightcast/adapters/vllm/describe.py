"""The layouts of all ranks of a vLLM engine that does not run, off vLLM's own classes: for plans.

    python -m weightcast.adapters.vllm.describe Qwen/Qwen3-8B --tp 2 > engine.json
"""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from ... import _core
from ... import layout as layouts_of
from ..catalog import Catalog, catalog_of
from ..describing import catalog_of_config, command, hiding, refusing, union
from ..live.reading import OTHERS
from ..naming.decisions import left_out
from ..naming.rename import Rename
from .model import read
from .ranks import Spread, build_unfilled, config_of


def layouts(
    model: str | os.PathLike[str],
    *,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    ep: bool = False,
    placement: str = "linear",
    dtype: str = "auto",
    published: Any = None,
    unused: Mapping[str, str] | None = None,
    unsourced: Mapping[str, str] | None = None,
    rename: Rename | None = None,
    trust_remote_code: bool = False,
) -> list[layouts_of.Layout]:
    """The layout of each rank of a vLLM engine of a model, in the order of vLLM's ranks, without memory.

    `model` is a directory with a `config.json`, or a name that Hugging Face knows. vLLM's own class of it is
    made on torch's `meta` device, rank by rank, and its own `load_weights` is asked (see `read`): no weights
    are loaded. The layouts are those of vLLM's build and platform here; an engine that rearranges its
    parameters after loading is sent the same bytes.

    `published` is what the trainer publishes, in any form that `catalog_of` takes, a file of its layouts for
    one; without it, what the directory's safetensors files say, or else what transformers' class of the
    config has. `unused`, `unsourced` and `rename` are those of `read`. This process must not have an engine.
    """
    spread = Spread(tp, pp, dp, ep, placement)
    for name, size in (("tp", tp), ("pp", pp), ("dp", dp)):
        if size < 1:
            raise _core.Misuse(f"{name}={size}: an engine has at least one rank")
    path = os.fspath(model)
    with refusing("vLLM", path):
        whole = config_of(_model_config(path, dtype, trust_remote_code), spread)
    if published is None:
        catalog = catalog_of_config(path, whole.model_config.dtype, trust_remote_code)
    else:
        catalog = catalog_of(published)
    unused = unused or {}
    decisions = {"unsourced": unsourced, "rename": hiding(unused, rename)}
    with refusing("vLLM", path):
        return _read(whole, spread, catalog, unused, decisions)


def _read(
    whole: Any, spread: Spread, catalog: Catalog, unused: Mapping[str, str], decisions: dict[str, Any]
) -> list[layouts_of.Layout]:
    found = []
    for rank in range(spread.ranks):
        model = build_unfilled(whole, spread, rank)
        # A stage of a pipeline takes what is its own.
        others = {"*": OTHERS} if spread.pp > 1 else {}
        found.append(read(model, catalog, unused={**unused, **left_out(model), **others}, **decisions))
    return union(found, catalog)


def _model_config(path: str, dtype: str, trust_remote_code: bool) -> Any:
    from vllm.config import ModelConfig

    return ModelConfig(
        model=path,
        tokenizer=path,
        skip_tokenizer_init=True,
        dtype=dtype,
        enforce_eager=True,
        trust_remote_code=trust_remote_code,
    )


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks")
    parser.add_argument("--pp", type=int, default=1, metavar="N", help="stages of a pipeline")
    parser.add_argument("--dp", type=int, default=1, metavar="N", help="data-parallel ranks of one server")
    parser.add_argument("--ep", action="store_true", help="experts are spread over all ranks of a stage")
    parser.add_argument("--placement", choices=("linear", "round_robin"), default="linear", help="of experts")
    parser.add_argument("--dtype", default="auto", help="as vLLM takes it: auto, bfloat16, float16, float32")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit status."""
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    return command("vllm", layouts, _arguments, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
