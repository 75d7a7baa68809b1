"""What the tests share: Ray on this machine, with one node or several."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import weightcast.adapters.ray as wcr

#: What the tests need of Ray is little, and several share the machine.
SMALL: dict[str, Any] = {"num_cpus": 6, "object_store_memory": 100 << 20, "include_dashboard": False}


def pytest_configure(config: pytest.Config) -> None:
    # Workers import what the tests import.
    here = str(Path(__file__).parent.parent)
    os.environ |= {"VERL_PLATFORM": "cpu", "VERL_USE_EXTERNAL_MODULES": "tests_ray.verl_on_cpu"}
    os.environ["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])


def begin(tries: int = 3) -> None:
    """Starts Ray. It gives its own processes 30 s for that, which are not enough on a machine that builds
    too."""
    try:
        ray.init(**SMALL, log_to_driver=False)
    except Exception:
        ray.shutdown()
        if tries == 1:
            raise
        begin(tries - 1)


@pytest.fixture(scope="session")
def one_node() -> Iterator[None]:
    """A node, and its job with a reference server."""
    begin()
    wcr.serve(lease=3.0, drain_deadline=5.0)
    yield
    ray.shutdown()


@dataclass
class Three:
    """A head and two nodes beside it, on this machine. Each is its id."""

    cluster: Cluster
    nodes: dict[str, Any]

    def __getitem__(self, name: str) -> str:
        return self.nodes[name].node_id

    def lose(self, name: str) -> None:
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


@pytest.fixture
def three_nodes() -> Iterator[Three]:
    cluster = Cluster(initialize_head=True, head_node_args=SMALL)
    nodes = {"head": cluster.head_node}
    for region, market in [("eu", "on-demand"), ("us", "spot")]:
        labels = {"ray.io/region": region, "ray.io/market-type": market}
        nodes[region] = cluster.add_node(num_cpus=4, object_store_memory=100 << 20, labels=labels)
    ray.init(address=cluster.address, log_to_driver=False)
    yield Three(cluster, nodes)
    ray.shutdown()
    cluster.shutdown()
