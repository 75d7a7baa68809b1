"""What tests of live engines share."""

import pytest

from .job import Fresh, Job


@pytest.fixture(scope="session")
def fresh(tmp_path_factory: pytest.TempPathFactory):
    made = Fresh(tmp_path_factory.mktemp("fresh"))
    yield made
    made.end()


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, fresh: Fresh):
    made = Job(tmp_path_factory.mktemp("job"), fresh)
    yield made
    made.end()
