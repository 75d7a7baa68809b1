"""Whatever is drawn from the whole grammar, the rules say what the real class does, or both refuse."""

import random
from pathlib import Path
from typing import Any

import pytest

import weightcast as wc
from tests_vllm.rules import Laid, Rules, laid
from tests_vllm.space import catalog_of
from weightcast.adapters import sglang
from weightcast.adapters.catalog import Catalog

from .configs import config
from .engine import build
from .space import Case, case

DRAWS = 300

#: How SGLang refuses a config or a parallelism; `Misuse` is its loader's refusal.
REFUSALS = (
    AssertionError, ValueError, ZeroDivisionError, RuntimeError, KeyError, wc.LayoutMismatch, wc.Misuse
)

#: The engine gives a draft the embedding and the head of its model after both are built.
OF_THE_MODEL = ("model.embed_tokens.weight", "lm_head.weight")
EXPERTS = "model.decoder.mlp.experts."


@pytest.mark.parametrize("seed", range(DRAWS))
def test_rules_equal_the_real_class(seed: int, tmp_path: Path) -> None:
    drawn = case(seed)
    rules = Rules(drawn.config, tmp_path)
    catalog = catalog_of(rules, drawn.published, draft=drawn.draft)
    try:
        found = of_the_model(drawn, catalog)
        found |= of_its_draft(drawn, catalog) if drawn.draft else {}
    except REFUSALS as refused:
        assert rules.refuse(drawn.spec, drawn.rank), (drawn, refused)
        return
    by_rule = laid(rules.records(drawn.spec, drawn.rank), catalog)
    assert found == by_rule, drawn


def of_the_model(drawn: Case, catalog: Catalog) -> dict[str, Laid]:
    model = build(drawn.published, **drawn.arguments)
    live = sglang.read(model, catalog, as_loaded=True)
    found = laid([record.as_json() for record in live.records], catalog)
    return {name: record for name, record in found.items() if name not in live.unsourced}


def of_its_draft(drawn: Case, catalog: Catalog) -> dict[str, Laid]:
    """What a draft has of its own. Copies of its experts are there, and nothing fills them."""
    model = build(drawn.published, draft=True, **drawn.arguments)
    unsourced: dict[str, Any] = dict.fromkeys(OF_THE_MODEL, "the model's own")
    if "redundant" in drawn.spec:
        unsourced |= {f"{EXPERTS}*": "copies that a draft does not use"}
    live = sglang.read(
        model, catalog, as_loaded=True, unused={"*": "the model's own"}, unsourced=unsourced
    )
    found = laid([record.as_json() for record in live.records], catalog)
    for name in live.unsourced.keys() - found.keys():
        if name.startswith(EXPERTS):
            found |= laid([_empty(name, model.get_parameter(name))], catalog)
    return {f"draft.{name}": found[name] for name in found.keys() - OF_THE_MODEL}


def _empty(name: str, parameter: Any) -> dict[str, Any]:
    dtype = {"bfloat16": "BF16", "float16": "F16", "float32": "F32", "float8_e4m3fn": "F8_E4M3"}
    of = dtype[str(parameter.dtype).removeprefix("torch.")]
    return {"name": name, "shape": list(parameter.shape), "dtype": of, "pieces": []}


def test_a_class_without_room_for_copies_is_refused(tmp_path: Path) -> None:
    """GLM-4's takes no notice of them: experts would be asked for where none are."""
    glm = config("glm4_moe", random.Random(0)) | {"n_routed_experts": 8}
    rules = Rules(glm, tmp_path)
    live = sglang.read(build(glm, tp=2, rank=1, ep=2, ep_num_redundant_experts=2), rules.catalog())
    by_rule = laid(rules.records("sglang:tp=2,ep=2", 1), rules.catalog())
    assert laid([record.as_json() for record in live.records], rules.catalog()) == by_rule
    assert rules.refuse("sglang:tp=2,ep=2,redundant=2", 1)
