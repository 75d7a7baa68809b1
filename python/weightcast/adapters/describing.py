"""What engines share that are described before they run: the checkpoint's catalog, the command."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import _core
from .. import layout as layouts
from ..plans import text_of
from .catalog import Catalog, catalog_of
from .live.layout import LiveLayout
from .live.reading import OTHERS
from .naming.nearest import unmatched
from .naming.reasons import Reasons, matching
from .naming.rename import Rename


def catalog_of_config(model: str, dtype: Any, trust_remote_code: bool) -> Catalog:
    """What the checkpoint of a model holds, by the safetensors files in its directory, or else by
    transformers' own class of its config, without memory."""
    if any(Path(model).glob("*.safetensors")):
        return catalog_of(model)
    import torch
    import transformers

    config = transformers.AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    (name, *_) = config.architectures or [""]
    made = getattr(transformers, name, None)
    if made is None or getattr(config, "quantization_config", None):
        why = "it is quantised" if made is not None else f"transformers has no class {name or 'for it'}"
        raise _core.Misuse(
            f"{model}: what its checkpoint holds is not known: it has no safetensors files here, and {why}; "
            "give published=, or --published: a checkpoint's directory, or a file of the trainer's layouts"
        )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device("meta"):
            return catalog_of(made(config))
    finally:
        torch.set_default_dtype(before)


def quantised_by(model: str) -> str | None:
    """How the weights are quantised, by the config in a model's directory, if they are."""
    file = Path(model) / "config.json"
    said = json.loads(file.read_text()).get("quantization_config") if file.is_file() else None
    return str(said.get("quant_method", "a method without a name")) if said else None


@contextmanager
def refusing(engine: str, model: str) -> Iterator[None]:
    """Says what an engine does not build when its own error comes out."""
    try:
        yield
    except _core.WeightcastError:
        raise
    except Exception as error:
        method = quantised_by(model)
        how = f" here, quantised by {method}" if method else " here"
        what = f"{type(error).__name__}: {error}"
        raise _core.Misuse(f"{engine} does not build {model}{how}: {what}") from error


def hiding(unused: Reasons, rename: Rename | None) -> Rename:
    """A renaming that keeps from a loader what it shall not take, as an engine's `Settings` do."""

    def known(name: str) -> str | None:
        if matching(name, unused) is not None:
            return None
        return name if rename is None else rename(name)

    return known


def union(ranks: Sequence[LiveLayout], catalog: Catalog) -> list[layouts.Layout]:
    """The layouts of all ranks. Raises `LayoutMismatch` for what is published and no rank takes."""
    lost = [name for name in catalog if all(live.unused.get(name) == OTHERS for live in ranks)]
    if lost:
        advice = "rename them as the engine's loader expects, or pass unused={pattern: reason}"
        what = "published tensors that no rank of the engine takes"
        raise _core.LayoutMismatch(unmatched(what, lost, [n for n in catalog if n not in lost], advice))
    return [live.described() for live in ranks]


def command(
    engine: str,
    layouts_of: Callable[..., list[layouts.Layout]],
    arguments_of: Callable[[argparse.ArgumentParser], None],
    arguments: list[str],
) -> int:
    """Prints the layouts of an engine's ranks as the text of a file; what the engine's own code prints goes
    to the standard error. Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=f"python -m weightcast.adapters.{engine}.describe",
        description=f"Prints the layouts of all ranks of a {engine} engine that does not run, for plans.",
        epilog="weightcast plan --source trainer.json --target engine.json",
    )
    parser.add_argument("model", help="a directory with a config.json, or a name that Hugging Face knows")
    arguments_of(parser)
    parser.add_argument(
        "--published",
        metavar="PATH",
        help="what the trainer publishes: a file of its layouts (.json), or a checkpoint's directory; the "
        "model's own checkpoint if it is not given",
    )
    parser.add_argument(
        "--unused",
        action="append",
        default=[],
        metavar="PATTERN=REASON",
        help="published tensors that the engine shall not take; may be given again",
    )
    options = vars(parser.parse_args(arguments))
    options["unused"] = _reasons(parser, options["unused"])
    model, kept = options.pop("model"), os.dup(1)
    os.dup2(2, 1)
    try:
        found = layouts_of(model, **options)
        text = text_of(found)
    except _core.WeightcastError as error:
        print(f"weightcast: {error}", file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
    print(text)
    for rank, layout in enumerate(found):
        print(f"weightcast: rank {rank}: {layout.nbytes} bytes in {len(layout)} buffers", file=sys.stderr)
    return 0


def _reasons(parser: argparse.ArgumentParser, listed: list[str]) -> Mapping[str, str]:
    reasons = {}
    for one in listed:
        pattern, equals, reason = one.partition("=")
        if not equals or not reason:
            parser.error(f"--unused {one}: give PATTERN=REASON")
        reasons[pattern] = reason
    return reasons
