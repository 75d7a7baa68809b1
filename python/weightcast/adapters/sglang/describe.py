"""The layouts of all ranks of an SGLang engine that does not run, off SGLang's own classes: for plans.

    python -m weightcast.adapters.sglang.describe Qwen/Qwen3-8B --tp 2 > engine.json
"""

import argparse
import os
import sys
from collections.abc import Mapping
from typing import Any

from ... import _core
from ... import layout as layouts_of
from ..catalog import catalog_of
from ..describing import catalog_of_config, command, hiding, quantised_by, refusing, union
from ..naming.rename import Rename
from .model import read
from .ranks import arguments_of, build


def layouts(
    model: str | os.PathLike[str],
    *,
    tp: int = 1,
    ep: int = 1,
    dtype: str = "auto",
    published: Any = None,
    unused: Mapping[str, str] | None = None,
    unsourced: Mapping[str, str] | None = None,
    rename: Rename | None = None,
    trust_remote_code: bool = False,
    **more: Any,
) -> list[layouts_of.Layout]:
    """The layout of each rank of an SGLang engine of a model, without memory.

    As `weightcast.adapters.vllm.layouts`, of SGLang's own class. `more` are further `ServerArgs`, such as
    `enable_dp_attention`. Stages of a pipeline and quantised models are refused.
    """
    if more.get("pp_size", 1) > 1:
        raise _core.Misuse("stages of a pipeline are not described for SGLang; describe them for vLLM")
    path = os.fspath(model)
    if method := quantised_by(path):
        raise _core.Misuse(
            f"{path} is quantised ({method}), which is not described for SGLang; a live engine can be read"
        )
    decisions: dict[str, Any] = {
        "unused": unused,
        "unsourced": unsourced,
        "rename": hiding(unused or {}, rename),
    }
    found, catalog = [], {} if published is None else catalog_of(published)
    with refusing("SGLang", path):
        arguments = arguments_of(
            path, tp_size=tp, ep_size=ep, dtype=dtype, trust_remote_code=trust_remote_code, **more
        )
        for rank in range(tp):
            made = build(arguments, rank)
            if published is None and not rank:
                catalog = catalog_of_config(path, next(made.parameters()).dtype, trust_remote_code)
            found.append(read(made, catalog, as_loaded=True, **decisions))
    return union(found, catalog)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks")
    parser.add_argument("--ep", type=int, default=1, metavar="N", help="ranks that experts are spread over")
    parser.add_argument("--dtype", default="auto", help="as SGLang takes it: auto, bfloat16, float16, ...")
    parser.add_argument("--trust-remote-code", action="store_true", help="run code that comes with the model")


def main(arguments: list[str]) -> int:
    """Runs the command; returns its exit status."""
    return command("sglang", layouts, _arguments, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
