"""What the tests share with those of the package."""

import pytest

from tests.conftest import group, patient_server

__all__ = ["group", "patient_server"]


@pytest.fixture
def server(patient_server):
    return patient_server
