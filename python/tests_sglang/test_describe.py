"""Plans of SGLang engines of which there are no rules, and which do not run: what a plan moves to each rank is what
SGLang's own class takes of the checkpoint there."""

import json
from pathlib import Path

import pytest
import torch

import weightcast as wc
from tests_vllm.families import Family
from tests_vllm.planned import held, moves_what_is_taken
from weightcast.adapters import sglang

from .engine import build

#: Fused by the engine; fused in the checkpoint; stored transposed.
FAMILIES = {
    "stablelm": Family("stablelm", "StableLmForCausalLM"),
    "phi3": Family("phi3", "Phi3ForCausalLM", {"pad_token_id": 0}),
    "gpt2": Family("gpt2", "GPT2LMHeadModel"),
}


def directory_of(family: Family, path: Path) -> Path:
    (path / "config.json").write_text(json.dumps(family.config()))
    return path


@pytest.mark.parametrize("name", FAMILIES)
def test_a_plan_moves_what_the_class_takes(name: str, tmp_path: Path) -> None:
    family = FAMILIES[name]
    catalog = family.catalog()
    target = sglang.layouts(directory_of(family, tmp_path), tp=2, dtype="bfloat16", published=catalog)

    def load(rank: int, values: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        model = build(family.config(), tp=2, rank=rank)
        for parameter in model.parameters():
            parameter.data.zero_()
        model.load_weights(values.items())
        return dict(model.named_parameters())

    moves_what_is_taken(catalog, target, load)
    for rank, layout in enumerate(target):
        live = sglang.read(build(family.config(), tp=2, rank=rank), catalog).layout(stage=True)
        assert held(live) == held(layout)


def test_what_is_not_described_is_refused(tmp_path: Path) -> None:
    path = directory_of(FAMILIES["stablelm"], tmp_path)
    with pytest.raises(wc.Misuse, match="stages of a pipeline"):
        sglang.layouts(path, pp_size=2)
    config = json.loads((path / "config.json").read_text()) | {"quantization_config": {"quant_method": "awq"}}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(wc.Misuse, match=r"is quantised \(awq\), which is not described"):
        sglang.layouts(path)
