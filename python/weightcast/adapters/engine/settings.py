"""What an engine is told about the job that it gets its weights from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ... import _core
from ..naming.reasons import matching

#: Where the bytes of a version land: beside the parameters, or in them.
LANDINGS = ("staged", "in_place")
#: `Settings.draft` for a draft model that updates leave alone.
STALE = "stale"


@dataclass(kw_only=True)
class Settings:
    """The job's model and server, and how this engine takes part. Every field has a plain JSON value,
    so that settings travel in an engine's own requests.

    What is not given comes from the environment, as for `weightcast.open`: `WEIGHTCAST_SERVER`,
    `WEIGHTCAST_TOKEN_FILE`, `WEIGHTCAST_JOB`, `WEIGHTCAST_DATA_BIND`.
    """

    #: The model's name in the job.
    model: str = "policy"
    #: This engine's name, the same for all of its workers; by default one made of host and engine.
    replica: str | None = None
    server: str | None = None
    token_file: str | None = None
    job: str | None = None
    datacentre: str = ""
    spot: bool = False
    #: `staged`: bytes land in host memory beside the parameters while the engine generates, and are
    #: copied in place when verified; costs host memory for the weights once more. `in_place`: bytes land
    #: in the parameters, with the engine paused meanwhile; a failure then leaves the engine empty.
    landing: str = "staged"
    #: What published names have in front of the checkpoint's own names (`policy.`, say).
    prefix: str = ""
    #: Patterns of published names that the engine shall not take, with the reason.
    unused: Mapping[str, str] = field(default_factory=dict)
    #: Patterns of parameters that nothing published shall fill, with the reason.
    unsourced: Mapping[str, str] = field(default_factory=dict)
    #: Of an engine that guesses tokens with a draft model: what published names of that model begin with,
    #: `draft.` say; or `stale`, and updates leave it as it was loaded. By default, heads of the model's own
    #: checkpoint (MTP) are looked for there, and a draft with a checkpoint of its own under `draft.`.
    draft: str | None = None
    #: What will be published, as `{name: [shape, dtype]}`: names are matched before the first version.
    catalog: Mapping[str, Any] | None = None
    #: The engine's address as routers know it (`weightcast.engines`); by default this engine's name.
    address: str | None = field(default=None, compare=False)
    #: Seconds for joining the job, and for each fetch that gives no deadline of its own.
    deadline: float = 60.0

    def __post_init__(self) -> None:
        if self.landing not in LANDINGS:
            raise _core.Misuse(f"landing is one of {', '.join(LANDINGS)}, not {self.landing!r}")
        if self.draft not in (None, STALE) and not str(self.draft).endswith("."):
            raise _core.Misuse(
                f"draft is 'stale', or a prefix of names that ends in a dot, not {self.draft!r}"
            )
        if not self.deadline > 0:
            raise _core.Misuse(f"deadline is a number of seconds above 0, not {self.deadline!r}")

    def reading(self) -> dict[str, Any]:
        """What an adapter's `read` is told beside the model and the catalog."""
        rename = self.known_name if self.prefix or self.unused else None
        return {"unused": self.unused, "unsourced": self.unsourced, "rename": rename}

    def known_name(self, published: str) -> str | None:
        """The checkpoint's name of a published tensor; None of one that the engine shall not take: not every
        loader lets names pass that it does not know."""
        known = published.removeprefix(self.prefix)
        return None if matching(published, self.unused) or matching(known, self.unused) else known
