"""What the tests share: a server."""

from collections.abc import Iterator

import pytest

from .ranks import Served


@pytest.fixture
def server() -> Iterator[str]:
    served = Served()
    yield served.address
    served.stop()
