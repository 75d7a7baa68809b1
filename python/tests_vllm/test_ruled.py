"""Each family that has rules of its own: what these say of every rank is what vLLM's class does, and the checkpoint that
they describe is the one that transformers saves."""

import math
from pathlib import Path

import pytest
import torch

from weightcast.adapters import vllm
from weightcast.adapters.catalog import Catalog

from .cpu import claim_fp8
from .engine import build
from .ruled import RULED, Ruled
from .rules import Refused, Rules, agree, laid
from .space import catalog_of
from .test_coordinates import first_elements, landed, recorded

LAID_OUT = {name: family for name, family in RULED.items() if not family.refused}
REFUSED = {name: family for name, family in RULED.items() if family.refused}

#: Tensor-parallel ranks, data-parallel ones, and whether experts are spread over both.
CASES = [
    (name, tp, dp, ep)
    for name, family in LAID_OUT.items()
    for tp, dp, ep in ((1, 1, False), (2, 1, False), (4, 1, False), (2, 1, True), (2, 2, True))
    if family.experts or not ep
]


def spec(tp: int, dp: int, ep: bool) -> str:
    return f"vllm:tp={tp},dp={dp}" + f",ep={tp * dp}" * ep


def by_rule(rules: Rules, catalog: Catalog, spec: str, rank: int) -> dict[str, torch.Tensor]:
    """For each parameter, the number of the element that the rules put in each place; -1: none."""
    starts, found = first_elements(catalog), {}
    for record in rules.records(spec, rank):
        place = torch.full(record["shape"], -1)
        for name, dim, start, length, target_dim, target_start, index in record["pieces"]:
            numbers = torch.arange(math.prod(catalog[name].shape)).reshape(catalog[name].shape) + starts[name]
            numbers = numbers.narrow(dim, start, length) if numbers.dim() else numbers
            target = place if index is None else place[index]
            target.narrow(target_dim, target_start, length).copy_(numbers)
        found[record["name"]] = place
    return found


def same(by_rule: dict[str, torch.Tensor], real: dict[str, torch.Tensor]) -> None:
    """Fails unless each element of each parameter is the same one."""
    real = {name.replace(".experts.routed_experts.", ".experts."): place for name, place in real.items()}
    assert by_rule.keys() == real.keys()
    for name, place in real.items():
        assert torch.equal(by_rule[name], place), name


@pytest.mark.parametrize("name", RULED)
def test_the_checkpoint_is_the_one_that_transformers_saves(name: str, tmp_path: Path) -> None:
    family = RULED[name]
    assert dict(Rules(family.config(), tmp_path).catalog()) == dict(family.catalog())


@pytest.mark.parametrize(("name", "tp", "dp", "ep"), CASES)
def test_rules_equal_the_layout_of_the_real_class(name: str, tp: int, dp: int, ep: bool, tmp_path: Path) -> None:
    family = RULED[name]
    config, catalog = family.config(), family.catalog()
    rules = Rules(config, tmp_path)
    for rank in range(tp * dp):
        live = vllm.read(build(config, tp=tp, dp=dp, rank=rank, ep=ep), catalog)
        if family.stacked:
            # Expert by expert in the one, run by run in the other: the elements are the same.
            same(by_rule(rules, catalog, spec(tp, dp, ep), rank), recorded(live, catalog))
        else:
            agree(live, rules, catalog, spec(tp, dp, ep), rank)


@pytest.mark.parametrize(("name", "tp", "dp", "ep"), CASES)
def test_elements_land_where_the_rules_say(name: str, tp: int, dp: int, ep: bool, tmp_path: Path) -> None:
    family = RULED[name]
    config, catalog = family.config(), family.catalog()
    rules = Rules(config, tmp_path)
    rank = tp * dp - 1
    want = landed(lambda: build(config, tp=tp, dp=dp, rank=rank, ep=ep), catalog)
    same(by_rule(rules, catalog, spec(tp, dp, ep), rank), want)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_slice_is_refused(name: str, tmp_path: Path) -> None:
    family: Ruled = REFUSED[name]
    rules = Rules(family.config(), tmp_path)
    for tp, ep in ((1, False), (2, True)):
        with pytest.raises(Refused, match=family.refused):
            rules.records(spec(tp, 1, ep))


@pytest.mark.parametrize(("tp", "ep"), [(1, False), (2, False), (2, True), (4, True)])
def test_minimax_m2_in_fp8_as_it_is_published(
    tp: int, ep: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim_fp8(monkeypatch.setattr)
    drawn = RULED["minimax_m2"].config() | {
        "hidden_size": 256,
        "intermediate_size": 256,
        "head_dim": 128,
        "rotary_dim": 64,
        "quantization_config": {
            "activation_scheme": "dynamic",
            "fmt": "float8_e4m3fn",
            "quant_method": "fp8",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"],
        },
    }
    rules = Rules(drawn, tmp_path)
    catalog = catalog_of(rules, drawn)
    assert any(entry.dtype == "F8_E4M3" for entry in catalog.values())
    for rank in range(tp):
        live = vllm.read(build(drawn, tp=tp, rank=rank, ep=ep), catalog)
        found = laid([record.as_json() for record in live.records], catalog)
        found = {name: record for name, record in found.items() if name not in live.unsourced}
        assert found == laid(rules.records(spec(tp, 1, ep), rank), catalog)
