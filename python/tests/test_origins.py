"""Whose memory a layout is of: what counts as moved, and what is said of it."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from weightcast.origins import Origins


def of_module(*, settle: Callable[[Any], None] | None = None) -> tuple[Origins, nn.Module]:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    noted = Origins()
    noted.module(model, settle)
    for name, owner, key in (("0.weight", model[0], "weight"), ("1.running_mean", model[1], "running_mean")):
        noted.slot(name, owner, key)
    return noted, model


def remove(model: nn.Module) -> None:
    del model[0].weight


def no_memory(model: nn.Module) -> None:
    model[0].weight = nn.Parameter(torch.empty(3, 2, device="meta"))


def gone(model: nn.Module) -> None:
    model[0]._parameters["weight"] = None


@pytest.mark.parametrize("change", [remove, no_memory, gone])
def test_a_parameter_that_is_no_more_has_moved(change: Callable[[nn.Module], None]) -> None:
    noted, model = of_module()
    assert noted.moved() is None
    change(model)
    assert (noted.moved() or "").startswith("0.weight: ")


def test_values_may_change_and_storage_may_not() -> None:
    noted, model = of_module()
    with torch.no_grad():
        model[0].weight.fill_(2)
    assert noted.moved() is None
    model[1].running_mean = torch.ones(3)
    assert (noted.moved() or "").startswith("1.running_mean: ")


def test_what_was_dropped_has_not_moved() -> None:
    noted, model = of_module()
    del model
    assert noted.moved() is None
    noted, tensor = Origins(), torch.zeros(3)
    noted.tensor("w", tensor)
    tensor.data = torch.ones(3)
    assert (noted.moved() or "").startswith("w: ")
    del tensor
    assert noted.moved() is None


def test_a_module_takes_the_place_of_its_tensors() -> None:
    noted, model, tensor = Origins(), nn.Linear(2, 2), torch.zeros(3)
    noted.tensor("w", tensor)
    noted.module(model)
    tensor.data = torch.ones(3)
    assert noted.moved() is None


def test_a_module_that_settles_is_asked_again() -> None:
    settled = []

    def settle(model: nn.Module) -> None:
        settled.append(model)
        model[0].weight.data = first

    noted, model = of_module(settle=settle)
    first = model[0].weight.data
    assert noted.moved() is None and settled == []
    model[0].weight.data = torch.ones(3, 2)
    assert noted.moved() is None and settled == [model]


@pytest.mark.parametrize("count, said", [(3, "a, b, c: "), (4, "a, b, c, d: "), (5, "a, b, c, d and 1 more: "), (6, "a, b, c, d and 2 more: ")])
def test_four_names_are_listed_and_the_others_counted(count: int, said: str) -> None:
    noted, tensors = Origins(), [torch.zeros(1) for _ in range(count)]
    for name, tensor in zip("abcdef", tensors, strict=False):
        noted.tensor(name, tensor)
    for tensor in tensors:
        tensor.data = torch.ones(1)
    assert (noted.moved() or "").startswith(said + "the storage")


@pytest.mark.parametrize("lives", [True, False])
def test_a_module_that_is_gone_is_told_once_at_the_second_version(
    caplog: pytest.LogCaptureFixture, lives: bool
) -> None:
    noted, model = of_module()
    if not lives:
        del model
    said = []
    with caplog.at_level(logging.WARNING, "weightcast"):
        for _ in range(4):
            noted.publish()
            said.append(len(caplog.records))
    assert said == ([0, 0, 0, 0] if lives else [0, 1, 1, 1])
