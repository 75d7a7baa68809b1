"""Plans that stay: a worker that is killed and started again need not plan."""

import pytest

from .programs.driver import Cluster


@pytest.fixture
def cluster():
    running = Cluster()
    yield running
    running.close()


def test_a_worker_that_was_killed_takes_its_plan_from_the_file(cluster, tmp_path):
    cache = str(tmp_path / "plans")
    (trainer,) = cluster.group("trainer", role="trainer")
    trainer.do("publish", version=1)

    def filled(name):
        (worker,) = cluster.group(name, plan_cache=cache)
        moved = worker.do("replicate", version=1)
        assert moved["right"]
        worker.do("unpublish")  # so that nobody is sent to it
        worker.kill()
        return moved["plan_from"]

    assert filled("first") == "planner"
    (file,) = (tmp_path / "plans").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert filled("second") == "file"
    good = file.read_bytes()
    file.write_bytes(good[: len(good) // 2])
    assert filled("third") == "planner"
    assert file.read_bytes() == good
    assert filled("fourth") == "file"
