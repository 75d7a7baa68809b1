"""Whatever is drawn from the whole grammar, the rules say what the real class does, or both refuse."""

import random
from pathlib import Path

import pytest

import weightcast as wc
from weightcast.adapters import vllm

from .cpu import claim_fp8
from .engine import build
from .rules import Rules, laid
from .space import DENSE, MOE, Case, catalog_of, config, quantised

DRAWS = 150

#: How vLLM refuses a config or a parallelism.
REFUSALS = (AssertionError, ValueError, ZeroDivisionError, RuntimeError, KeyError, wc.LayoutMismatch, wc.Misuse)


def case(seed: int) -> Case:
    draw = random.Random(f"space {seed}")
    family = draw.choice(DENSE + 2 * MOE)
    drawn = config(family, draw)
    tp, dp = draw.choice((1, 2, 2, 3, 4, 4, 8)), draw.choice((1, 1, 2))
    spec = {"tp": tp, "dp": dp}
    if draw.random() < 0.5:
        # vLLM takes no FP16 for GLM-4.
        spec["dtype"] = draw.choice(("bf16", "bf16" if family == "glm4" else "fp16"))
    if family in MOE and tp * dp > 1 and draw.random() < 0.7:
        spec["ep"] = tp * dp
        spec["placement"] = draw.choice(("linear", "round_robin"))
        # The class of qwen2_moe knows no redundant experts.
        most = 2 * tp * dp if family != "qwen2_moe" else 0
        spec["redundant"] = draw.choice((0, 0, draw.randint(min(1, most), most)))
    if draw.random() < 0.25:
        drawn = quantised(drawn, (128, 128), draw)
        # There are kernels for BF16 alone.
        spec.pop("dtype", None)
    written = "vllm:" + ",".join(f"{key}={value}" for key, value in spec.items())
    arguments = {
        "tp": tp,
        "dp": dp,
        "rank": draw.randrange(tp * dp),
        "ep": "ep" in spec,
        "placement": spec.get("placement", "linear"),
        "redundant": spec.get("redundant", 0),
        "dtype": {"fp16": "float16"}.get(spec.get("dtype"), "bfloat16"),
    }
    return Case(drawn, arguments["rank"], written, arguments)


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    claim_fp8(monkeypatch.setattr)


@pytest.mark.parametrize("seed", range(DRAWS))
def test_rules_equal_the_real_class(seed: int, tmp_path: Path) -> None:
    drawn = case(seed)
    rules = Rules(drawn.config, tmp_path)
    catalog = catalog_of(rules, drawn.config)
    try:
        live = vllm.read(build(drawn.config, **drawn.arguments), catalog)
    except REFUSALS as refused:
        assert rules.refuse(drawn.spec, drawn.rank), (drawn, refused)
        return
    by_rule = laid(rules.records(drawn.spec, drawn.rank), catalog)
    found = laid([record.as_json() for record in live.records], catalog)
    found = {name: record for name, record in found.items() if name not in live.unsourced}
    assert found == by_rule, drawn
