"""What torchao makes of weights: training in FP8 and for quantisation keeps them, quantised ones are refused."""

import pytest
import torch
from torch import nn
from torchao.quantization import (
    Float8WeightOnlyConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.qat import QATConfig

import weightcast as wc
import weightcast.torch as wct
from tests.jobs import ranks
from weightcast.adapters.catalog import catalog_of

from .follow import follow
from .models import STEPS
from .programs import torchao_trainer


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64, dtype=torch.bfloat16))


@pytest.mark.parametrize("config", [Int8WeightOnlyConfig(), Float8WeightOnlyConfig()])
def test_quantised_weights_are_refused_by_name(config) -> None:
    model = linear()
    quantize_(model, config)
    kind = type(model[0].weight).__name__
    for read in (
        lambda: wct.layout(model),
        lambda: wct.layout(model, beside=True),
        lambda: wct.gathered(model, [wct.recipe("0.weight", "0.weight")]),
    ):
        with pytest.raises(wc.Misuse, match=rf"0\.weight: a {kind}, .*before quantize_"):
            read()


def test_weights_that_are_trained_for_quantisation_are_themselves() -> None:
    model = linear()
    before = catalog_of(model)
    quantize_(model, QATConfig(IntxWeightOnlyConfig(), step="prepare"))
    assert type(model[0]) is not nn.Linear
    assert len(wct.layout(model, expect=before)) == 2


def test_training_in_fp8_publishes_the_weights_themselves(group, server, tmp_path) -> None:
    with ranks(torchao_trainer, 2, server.address, str(tmp_path)):
        follow(group, tmp_path, "float8", list(range(STEPS + 1)), {"trainer"})
