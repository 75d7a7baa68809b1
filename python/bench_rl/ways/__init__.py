"""The ways that are compared. `way.Way` is what each of them does."""

from importlib import import_module

from .way import Place, Task, Way

WAYS = {
    "broadcast": "collective:Broadcast",
    "packed": "packed:Packed",
    "chain": "chain:Chain",
    "two-level": "two_level:TwoLevel",
    "ray": "ray:RayObjects",
    "disk": "disk:Disk",
    "weightcast-pull": "weightcast:Pull",
    "weightcast-push": "weightcast:Push",
}
"""Their names, and where they are."""
ABOUT = {
    "broadcast": "torch.distributed.broadcast (gloo) of each tensor, from the first trainer to all rollouts",
    "packed": "the same of flat buckets; bucket size and number of senders by a short search",
    "chain": "pieces from the first trainer through all rollouts, one after the other, as NCCL's ring does",
    "two-level": "buckets to the first rollout of each group, and from that on to the others",
    "ray": "ray.put of flat buckets, ray.get",
    "disk": "safetensors, written and read",
    "weightcast-pull": "publish, update",
    "weightcast-push": "publish and push, accept",
}


class UnknownWay(ValueError):
    """There is no such way."""


def find(name: str) -> type[Way]:
    """The class of a way: a name of `WAYS`, or MODULE:CLASS."""
    if name not in WAYS and ":" not in name:
        raise UnknownWay(f"there is no way {name!r}, only {', '.join(WAYS)} and MODULE:CLASS")
    module, _, attribute = WAYS.get(name, name).partition(":")
    try:
        found = import_module(f"{__name__}.{module}" if name in WAYS else module)
        way: type[Way] = getattr(found, attribute)
    except (ImportError, AttributeError) as error:
        raise UnknownWay(f"--ways {name}: {error}") from error
    return way


__all__ = ["ABOUT", "Place", "Task", "UnknownWay", "WAYS", "Way", "find"]
