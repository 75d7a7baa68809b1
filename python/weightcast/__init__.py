"""weightcast: moves model weights from the trainers of an RL job to its rollout workers.

A worker opens a handle for its shard of a replica, registers its memory with a layout, and then
publishes, replicates or updates versions. Weights stay in place; any replica can serve.

    me = wc.Replica("rollout-0", shard=rank, num_shards=2)
    with wc.open("policy", me) as handle:
        handle.register(layout)
        while running:
            if handle.update(wc.latest(), deadline=300).changed:  # waits for the first version
                engine.reset_cache()
            samples.put(engine.generate(), version=handle.version)
"""

from ._core import (
    Check,
    ContentMismatch,
    Difference,
    DifferentRange,
    DigestMismatch,
    GroupBroken,
    GroupDiverged,
    HeldBy,
    InDoubt,
    LayoutMismatch,
    Misuse,
    NoRoom,
    NoView,
    Pushed,
    PushedShard,
    PushOutlook,
    ServerUnreachable,
    SourceLost,
    Timeout,
    Unverified,
    Updated,
    Verdict,
    Verified,
    VersionUnavailable,
    ViewEnded,
    WeightcastError,
    Why,
    __version__,
    metrics,
    metrics_text,
)
from .check import doctor
from .condition import Condition, available, fresh, held
from .follow import Follower
from .handle import Handle, open
from .layout import Layout, Part, part
from .names import NameMap
from .pipeline.failure import StageFailed
from .progress import Progress, progress_bar
from .replica import Replica
from .selector import Selector, at_least, exact, latest, nth_latest
from .server import Server, engines, serve, status, why
from .shared import empty_like
from .verdict import verify
from .view import View

__all__ = [
    "Check",
    "Condition",
    "ContentMismatch",
    "Difference",
    "DifferentRange",
    "DigestMismatch",
    "Follower",
    "GroupBroken",
    "GroupDiverged",
    "Handle",
    "HeldBy",
    "InDoubt",
    "Layout",
    "LayoutMismatch",
    "Misuse",
    "NameMap",
    "NoRoom",
    "NoView",
    "Part",
    "Progress",
    "PushOutlook",
    "Pushed",
    "PushedShard",
    "Replica",
    "RoutingLease",
    "Selector",
    "Server",
    "ServerUnreachable",
    "SourceLost",
    "StageFailed",
    "Timeout",
    "Unverified",
    "Updated",
    "Verdict",
    "Verified",
    "VersionUnavailable",
    "View",
    "ViewEnded",
    "WeightcastError",
    "Why",
    "__version__",
    "at_least",
    "available",
    "doctor",
    "empty_like",
    "engines",
    "exact",
    "fresh",
    "held",
    "latest",
    "metrics",
    "metrics_text",
    "nth_latest",
    "open",
    "part",
    "progress_bar",
    "serve",
    "status",
    "verify",
    "why",
]
