"""Weights of jobs that run on Ray: the reference server as an actor, handles that know where their worker is,
and a manager that has trainers publish and rollouts update.

    wcr.serve()                                         # the driver, once
    sync = wcr.WeightSync([trainer], rollouts)          # actors that have called these in `__init__`:
    ...                                                 #   self.weights = wcr.trainer(self.model)
    sync.send()                                         #   self.weights = wcr.rollout(self.model)

- `servers`: the reference server and its backups
- `where`: node, datacentre and placement group of a worker, and the replica that follows from them
- `weights`: what an actor holds
- `sync`: the manager
- `transport`: a transport of Ray's own references to tensors
"""

from .servers import Servers, serve, servers
from .sync import Sent, WeightSync
from .weights import Weights, held, open, rollout, trainer
from .where import Where, where


def register_transport() -> None:
    """Has references to tensors carry them by weightcast: `@ray.method(tensor_transport="weightcast")`. The
    driver calls it before it creates actors."""
    from .transport import register_transport

    register_transport()


__all__ = [
    "Sent",
    "Servers",
    "Weights",
    "WeightSync",
    "Where",
    "held",
    "open",
    "register_transport",
    "rollout",
    "serve",
    "servers",
    "trainer",
    "where",
]
