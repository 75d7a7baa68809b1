"""Models at their real sizes, on the meta device: what their loaders do on rank 1 is what the data
set says."""

import json
from pathlib import Path

import pytest

from weightcast.adapters import vllm

from .engine import build
from .rules import Rules, laid

DATA = Path(__file__).parents[2] / "crates/weightcast-fleet/tests/data"

CASES = [
    ("qwen2.5-0.5b", 2),
    ("qwen3-4b", 4),
    ("llama-3.1-8b", 8),
    ("qwen3-30b-a3b", 4),
    ("deepseek-v2-lite", 4),
]


@pytest.mark.parametrize(("name", "tp"), CASES)
def test_live_equals_the_data_set(name: str, tp: int, tmp_path: Path) -> None:
    config = json.loads((DATA / f"configs/{name}.json").read_text())
    case = json.loads((DATA / f"infer/{name}__vllm_tp{tp}.json").read_text())
    rules = Rules(config, tmp_path)
    catalog = rules.catalog()
    for rank, said in list(case["ranks"].items())[1:2]:
        live = vllm.read(build(config, tp=tp, rank=int(rank), device="meta"), catalog)
        want = laid(rules.expanded(said["params"]), catalog)
        assert laid([record.as_json() for record in live.records], catalog) == want, rank
