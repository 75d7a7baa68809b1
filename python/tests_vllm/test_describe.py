"""Plans of engines of which there are no rules, and which do not run: what a plan moves to each rank is what vLLM's own
class takes of the checkpoint there, no more and no less."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from vllm.config import ModelConfig, set_current_vllm_config
from vllm.distributed import parallel_state

import weightcast as wc
from weightcast import plans
from weightcast._core import command_line
from weightcast.adapters import vllm
from weightcast.adapters.catalog import Entry
from weightcast.adapters.vllm import ranks
from weightcast.adapters.vllm.describe import main
from weightcast.adapters.vllm.ranks import Spread

from .cpu import claim_experts
from .engine import build_with_config, register
from .families import MENDED, Family
from .planned import held, moves_what_is_taken, trainer
from .rules import Refused, Rules

#: Families without rules: with values that are computed, with activations that are trained, with experts, with experts
#: that are transposed.
CASES = [
    ("falcon_h1", Spread(tp=2)),
    ("apertus", Spread(tp=2)),
    ("apertus", Spread(tp=2, pp=2)),
    ("jamba", Spread(tp=2)),
    ("jamba", Spread(tp=2, ep=True)),
    ("jamba", Spread(tp=1, dp=2, ep=True)),
    ("llama4", Spread(tp=2)),
    ("llama4", Spread(tp=2, ep=True)),
]

@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    claim_experts(monkeypatch.setattr)


def directory_of(family: Family, path: Path) -> Path:
    """As a model's directory is, without weights."""
    register(family.architecture)
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(family.config()))
    return path


class Rank:
    """vLLM's class on a rank, as an engine has it, and what its own loader makes of a checkpoint."""

    def __init__(self, path: Path, spread: Spread, rank: int) -> None:
        self._spread, self._rank = spread, rank
        model = ModelConfig(model=str(path), skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True)
        self._whole = ranks.config_of(model, spread)

    def load(self, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        model: nn.Module = ranks.build(self._whole, self._spread, self._rank, device="cpu")
        for parameter in model.parameters():
            parameter.data.zero_()
        model.load_weights(values.items())
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}


@pytest.mark.parametrize(("name", "spread"), CASES, ids=str)
def test_a_plan_moves_what_the_class_takes(name: str, spread: Spread, tmp_path: Path) -> None:
    family = MENDED[name]
    path, catalog = directory_of(family, tmp_path), family.catalog()
    with pytest.raises(Refused):
        Rules(family.config(), tmp_path).records("vllm:tp=2")
    target = vllm.layouts(
        path, tp=spread.tp, pp=spread.pp, dp=spread.dp, ep=spread.ep, published=catalog
    )
    assert len(target) == spread.ranks
    moves_what_is_taken(catalog, target, lambda rank, values: Rank(path, spread, rank).load(values))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["falcon_h1", "jamba"])
def test_a_live_rank_registers_what_was_planned(name: str, dtype: str, tmp_path: Path) -> None:
    """In the published type, whatever the engine's is."""
    family = MENDED[name]
    catalog = family.catalog()
    planned = vllm.layouts(directory_of(family, tmp_path), tp=2, published=catalog, dtype=dtype)
    for rank, layout in enumerate(planned):
        model, _ = build_with_config(family.config(), tp=2, rank=rank, dtype=dtype)
        live = vllm.read(model, catalog).layout(stage=True)
        assert held(live) == held(layout)
        assert live.nbytes == layout.nbytes


@pytest.mark.parametrize("pp", [1, 2])
def test_what_no_stage_takes_is_refused(pp: int, tmp_path: Path) -> None:
    family, more = MENDED["jamba"], "model.layers.0.mamba.in_proj.bias"
    path, catalog = directory_of(family, tmp_path), family.catalog() | {more: Entry((256,), "BF16")}
    # Its loader passes over it without a word.
    with pytest.raises(wc.LayoutMismatch, match=re.escape(more)):
        vllm.layouts(path, pp=pp, published=catalog)
    for layout in vllm.layouts(path, pp=pp, published=catalog, unused={"*.in_proj.bias": "nobody has it"}):
        assert more in layout.describe(), "a replica holds a version whole"


def test_what_is_unused_is_kept_from_the_loader(tmp_path: Path) -> None:
    family, more = MENDED["apertus"], "model.layers.7.mlp.up_proj.weight"
    path, catalog = directory_of(family, tmp_path), family.catalog() | {more: Entry((96, 64), "BF16")}
    with pytest.raises(wc.Misuse, match=re.escape(more)):
        vllm.layouts(path, published=catalog)
    (only,) = vllm.layouts(path, published=catalog, unused={"model.layers.7.*": "a layer more"})
    assert more in only.describe()


def test_what_vllm_does_not_build_is_named(tmp_path: Path) -> None:
    path = directory_of(MENDED["apertus"], tmp_path)
    config = json.loads((path / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "awq", "bits": 4, "group_size": 128}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(wc.Misuse, match="vLLM does not build .* here, quantised by awq: "):
        vllm.layouts(path, tp=2)


def test_a_checkpoint_is_known_by_its_config(tmp_path: Path) -> None:
    family = MENDED["apertus"]
    path = directory_of(family, tmp_path)
    by_class, told = vllm.layouts(path, tp=2, dtype="bfloat16"), vllm.layouts(path, tp=2, published=family.catalog())
    assert plans.text_of(by_class) == plans.text_of(told)
    with pytest.raises(wc.Misuse, match="at least one rank"):
        vllm.layouts(path, tp=0)


def test_the_command_makes_a_file_that_is_planned(tmp_path: Path, capfd) -> None:
    family = MENDED["apertus"]
    model = directory_of(family, tmp_path / "model")
    source, target = tmp_path / "trainer.json", tmp_path / "engine.json"
    plans.write(source, trainer(family.catalog(), 2))

    command = [sys.executable, "-m", "weightcast.adapters.vllm.describe", str(model)]
    made = subprocess.run([*command, "--tp", "2", "--published", str(source)], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    assert "rank 1: " in made.stderr
    target.write_text(made.stdout)
    assert command_line(["weightcast", "plan", "--source", str(source), "--target", str(target), "--json"], []) == 0
    planned = json.loads(capfd.readouterr().out)
    assert planned["coverage"] == "exact"
    assert planned == plans.plan(source, vllm.layouts(model, tp=2, published=source)) | {
        key: planned[key] for key in ("plan_s", "target", "source")
    }


def test_the_command_says_what_is_wrong(tmp_path: Path, capfd) -> None:
    path = directory_of(MENDED["apertus"], tmp_path)
    assert main([str(path), "--tp", "3"]) == 1
    told = capfd.readouterr()
    assert not told.out and "weightcast: vLLM does not build" in told.err
    for wrong in (["--unused", "no reason"], ["--nonsense"], []):
        with pytest.raises(SystemExit):
            main([*([str(path)] if wrong else []), *wrong])
    assert "give PATTERN=REASON" in capfd.readouterr().err


class Placed:
    """A group as vLLM makes it: which of its ranks this one is."""

    def __init__(self, group_ranks: list[list[int]], *_: Any, **__: Any) -> None:
        rank = torch.distributed.get_rank()
        (own,) = [ranks for ranks in group_ranks if rank in ranks]
        self.world_size, self.rank_in_group = len(own), own.index(rank)


def places() -> list[tuple[int, int]]:
    groups = [getattr(parallel_state, name) for name in ("_TP", "_PP", "_DP", "_EP")]
    return [(group.world_size, group.rank_in_group) for group in groups]


@pytest.mark.parametrize("spread", [Spread(tp=2, pp=3, dp=2), Spread(tp=3, pp=2, dp=1), Spread(tp=1, pp=1, dp=4)], ids=str)
def test_ranks_are_in_vllms_order(spread: Spread, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group has the size and the place for a rank that vLLM's own `initialize_model_parallel` gives it."""
    whole = build_with_config(MENDED["jamba"].config(), tp=1, rank=0)[1]
    whole.parallel_config.data_parallel_size = spread.dp
    for rank in range(spread.ranks):
        ranks.be(spread, rank)
        said = places()
        with monkeypatch.context() as patched, set_current_vllm_config(whole):
            patched.setattr(torch.distributed, "get_rank", lambda *_, rank=rank: rank)
            patched.setattr(torch.distributed, "get_world_size", lambda *_: spread.ranks)
            patched.setattr(torch.distributed, "is_initialized", lambda: True)
            patched.setattr(parallel_state, "GroupCoordinator", Placed)
            for name in [n for n in vars(parallel_state) if re.fullmatch("_[A-Z]+(_DP)?", n) and n != "_WORLD"]:
                patched.setattr(parallel_state, name, None)
            parallel_state.initialize_model_parallel(spread.tp, spread.pp, backend="none")
            assert said == places()
