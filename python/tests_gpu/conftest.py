"""Every test here needs a GPU: on a machine without one the run fails, and is not taken for passed."""

import pytest
import torch


def pytest_configure(config: pytest.Config) -> None:
    if not torch.cuda.is_available():
        raise pytest.UsageError("torch finds no CUDA GPU here: these tests need one")
